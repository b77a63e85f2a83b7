//! Sidecars: files beside an original that hold it in a content coding (`app.js.br`).

use gannet_http::semantics::coding::Coding;

/// A coding that sidecars may have, and the suffix of their names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Sidecar {
    /// The content coding.
    pub coding: Coding,
    /// The suffix appended to the original's name.
    pub suffix: &'static [u8],
}

/// All possible sidecars. A server with a record per original checks for all of them once and then
/// sends the smallest fresh one that a client accepts; one without tries them in this order, which
/// is that of the usual sizes.
pub const SIDECARS: [Sidecar; 3] = [
    Sidecar {
        coding: Coding::Brotli,
        suffix: b".br",
    },
    Sidecar {
        coding: Coding::Zstd,
        suffix: b".zst",
    },
    Sidecar {
        coding: Coding::Gzip,
        suffix: b".gz",
    },
];

/// Whether a file may have sidecars: not if it is one itself, nor if it is empty.
#[must_use]
pub fn may_have_sidecars(path: &[u8], len: u64) -> bool {
    len > 0
        && !SIDECARS
            .iter()
            .any(|sidecar| path.ends_with(sidecar.suffix))
}

/// Whether a sidecar may be sent in place of its original.
///
/// A sidecar older than the original holds an earlier version of it. One that is not smaller saves
/// nothing. Equal times count as fresh: copying tools set both from the original's.
#[must_use]
pub fn is_usable(sidecar: (i128, u64), original: (i128, u64)) -> bool {
    let ((mtime_ns, len), (original_mtime_ns, original_len)) = (sidecar, original);
    mtime_ns >= original_mtime_ns && len > 0 && len < original_len
}

/// Whether a copy that is kept elsewhere is one of its original: the times of the last modification of both
/// are equal, and the original's status has not changed since the copy was made.
///
/// Such a copy does not move with the site, so a later time proves nothing. Builds may give all files of all
/// versions one time; no program can set the time of the last change of status. Each is a pair of both, in
/// nanoseconds.
#[must_use]
pub fn is_copy_of(copy: (i128, i128), original: (i128, i128)) -> bool {
    copy.0 == original.0 && copy.1 > original.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sidecar_older_than_its_original_is_stale() {
        assert!(is_usable((5, 10), (5, 20)));
        assert!(is_usable((6, 10), (5, 20)));
        assert!(!is_usable((4, 10), (5, 20)));
    }

    #[test]
    fn a_sidecar_that_saves_nothing_is_not_used() {
        assert!(!is_usable((5, 20), (5, 20)));
        assert!(!is_usable((5, 0), (5, 20)));
    }

    #[test]
    fn a_copy_elsewhere_has_the_time_of_its_original_and_is_made_after_it() {
        assert!(is_copy_of((5, 8), (5, 7)));
        assert!(!is_copy_of((6, 8), (5, 7)));
        assert!(!is_copy_of((4, 8), (5, 7)));
        assert!(!is_copy_of((5, 7), (5, 7)));
        assert!(!is_copy_of((5, 6), (5, 7)));
    }

    #[test]
    fn sidecars_have_no_sidecars() {
        assert!(may_have_sidecars(b"app.js", 1));
        assert!(!may_have_sidecars(b"app.js", 0));
        assert!(!may_have_sidecars(b"app.js.br", 1));
        assert!(!may_have_sidecars(b"site.tar.gz", 1));
    }
}
