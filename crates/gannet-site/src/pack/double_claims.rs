//! Paths that several files could answer: which one does, and which one does not.

use super::limits::CLAIMS_LISTED;
use super::sources::Source;

/// What was found while names were given. Files with equal contents have no quarrel.
#[derive(Debug, Default)]
pub(super) struct DoubleClaims {
    /// One line for each of the first.
    lines: Vec<String>,
    count: usize,
}

impl DoubleClaims {
    /// Notes that `path` is answered by the file `winner` (none: by a listing, which is no file's
    /// loss) although the file `loser` could answer it too. Both are numbers of `files`.
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

    /// What to tell the user.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = self.lines.clone();
        let more = self.count - self.lines.len();
        if more > 0 {
            warnings.push(format!("two files for one path: {more} further paths"));
        }
        warnings
    }
}
