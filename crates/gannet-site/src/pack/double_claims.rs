//! Collects the paths that several files could answer, for warnings.

use super::limits::CLAIMS_LISTED;
use super::sources::Source;

/// The conflicts found while names are assigned. Files with equal contents do not conflict.
#[derive(Debug, Default)]
pub(super) struct DoubleClaims {
    /// Warnings for the first ones.
    lines: Vec<String>,
    count: usize,
}

impl DoubleClaims {
    /// Records that `path` is answered by the file `winner`, although the file `loser` could answer
    /// it too. Both are indexes into `files`; `None` is a listing, which takes nothing from a file.
    pub(super) fn add(
        &mut self,
        files: &[Source],
        path: &[u8],
        winner: Option<usize>,
        loser: usize,
    ) {
        let winner = winner.and_then(|number| files.get(number));
        let (Some(winner), Some(loser)) = (winner, files.get(loser)) else {
            return;
        };
        if winner.content == loser.content {
            return;
        }
        self.count += 1;
        if self.lines.len() < CLAIMS_LISTED {
            self.lines.push(format!(
                "two files for '{}': '{}' answers, '{}' does not",
                String::from_utf8_lossy(path),
                winner.file.path.display(),
                loser.file.path.display()
            ));
        }
    }

    /// The warnings for the user.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = self.lines.clone();
        let more = self.count - self.lines.len();
        if more > 0 {
            warnings.push(format!("two files for one path: {more} further paths"));
        }
        warnings
    }
}
