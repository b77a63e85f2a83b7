//! Names whose content browsers may cache for a year, and the content that they had.
//!
//! That cannot be withdrawn, so a live directory does it only for names in a framework's folder,
//! and only as long as it can notice a mistake: a name whose content changes is revalidated from
//! then on, by every worker. Digests in names count only in archives: fields are rendered before
//! any byte of a file is read.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use gannet_content::policy::cache::{Lifetime, Reason};
use gannet_io::driver::Meta;

use crate::bounds::limits::KEPT_NAMES_MAX;

/// The names of a directory, for all workers. Consulted when a file is looked up, never for a
/// response from memory.
#[derive(Debug, Default)]
pub(crate) struct KeptNames {
    names: Mutex<HashMap<Vec<u8>, FirstSent>>,
}

/// The content that a name had when it was first sent.
#[derive(Debug, Eq, PartialEq)]
enum FirstSent {
    /// Its length and modification time. A deploy that copies files preserves both, but neither the
    /// inode nor the time of the last status change.
    Content(u64, i128),
    /// The content changed later.
    Changed,
}

impl KeptNames {
    /// How long the content of a file may be cached.
    pub(crate) fn lifetime(&self, path: &[u8], content_type: &str, meta: &Meta) -> Lifetime {
        // Bundlers use only names that are valid UTF-8.
        let Ok(name) = str::from_utf8(path) else {
            return Lifetime::Revalidate;
        };
        let reason = Reason::of_name(name, content_type);
        if reason.lifetime() != Lifetime::Immutable {
            return reason.lifetime();
        }
        let content = FirstSent::Content(meta.len, meta.mtime_ns);
        // No code under the lock can panic halfway.
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = names.len() < KEPT_NAMES_MAX;
        match names.get_mut(path) {
            Some(kept) if *kept == content => Lifetime::Immutable,
            Some(kept) => {
                *kept = FirstSent::Changed;
                Lifetime::Revalidate
            }
            None if has_room => {
                names.insert(path.to_vec(), content);
                Lifetime::Immutable
            }
            None => Lifetime::Revalidate,
        }
    }
}

#[cfg(test)]
mod tests {
    use gannet_io::driver::FileKind;

    use super::*;

    fn meta(mtime_ns: i128) -> Meta {
        Meta {
            kind: FileKind::Regular,
            len: 100_000,
            mtime_ns,
            ctime_ns: 0,
            identity: (1, 2),
            links: 1,
        }
    }

    #[test]
    fn a_name_whose_content_changes_is_revalidated_from_then_on() {
        let names = KeptNames::default();
        let ask =
            |path: &str, mtime| names.lifetime(path.as_bytes(), "text/javascript", &meta(mtime));
        assert_eq!(ask("_astro/a.js", 1), Lifetime::Immutable);
        assert_eq!(ask("_astro/a.js", 1), Lifetime::Immutable);
        assert_eq!(ask("_astro/b.js", 2), Lifetime::Immutable);
        assert_eq!(ask("_astro/a.js", 2), Lifetime::Revalidate);
        assert_eq!(ask("_astro/a.js", 1), Lifetime::Revalidate);
        assert_eq!(ask("_astro/b.js", 2), Lifetime::Immutable);
        assert_eq!(ask("assets/a-BxY3k9Zq.js", 1), Lifetime::Revalidate);
    }

    #[test]
    fn what_can_not_be_remembered_is_revalidated() {
        let names = KeptNames::default();
        for number in 0..=KEPT_NAMES_MAX {
            let path = format!("_astro/{number}.js");
            let lifetime = names.lifetime(path.as_bytes(), "text/javascript", &meta(1));
            let expect = match number {
                KEPT_NAMES_MAX => Lifetime::Revalidate,
                _ => Lifetime::Immutable,
            };
            assert_eq!(lifetime, expect, "{number}");
        }
        assert!(names.names.lock().expect("not poisoned").len() <= KEPT_NAMES_MAX);
    }
}
