//! The certificates in the folder of `gannet acme`: one file for each host, `HOST.pem`, with a chain and
//! its key.
//!
//! Files are replaced there as a whole, which changes the folder itself, so that a look at ten thousand
//! hosts costs one call while nothing changes. A file that has not changed is not read again. What was
//! read stays in use until it is replaced: neither a file that is gone nor one that is damaged takes its
//! host out of service, unless others need the place of one that is gone.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::io;
use std::mem;
use std::path::{Path, PathBuf};

use super::certificates::{
    Cause, Expected, LoadOptions, Pair, PairPaths, Warning, WarningKind, load_one,
};
use crate::bounds::tls::{FOLDER_LOOKS, FOLDER_PAIRS_MAX};
use crate::watch::lookout::Stamp;

/// See the module documentation.
pub(super) struct CertificateFolder {
    path: PathBuf,
    /// The folder when its files were last looked at.
    stamp: Option<Stamp>,
    /// They were looked at twice since it changed: a change within the same moment shows in no stamp.
    is_settled: bool,
    /// Looks since then.
    skipped: u32,
    /// There were more of them than are taken.
    is_full: bool,
    /// Why it could not be read.
    trouble: Option<io::ErrorKind>,
    files: BTreeMap<Box<str>, File>,
    /// Those of them that are gone, and when, in reads of the folder.
    gone: BTreeSet<(u64, Box<str>)>,
    reads: u64,
}

#[derive(Default)]
struct File {
    /// When it was last read; `None` once it is gone.
    stamp: Option<Stamp>,
    /// The read that found it gone.
    gone_at: Option<u64>,
    /// It could not be read: the next look tries again.
    is_unread: bool,
    /// What was last read of it that could be used.
    pair: Option<Pair>,
}

impl CertificateFolder {
    /// A folder that was not looked at.
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            stamp: None,
            is_settled: false,
            skipped: 0,
            is_full: false,
            trouble: None,
            files: BTreeMap::new(),
            gone: BTreeSet::new(),
            reads: 0,
        }
    }

    /// Reads the files that have changed. Returns whether there are other pairs now.
    pub(super) fn look(
        &mut self,
        is_asked: bool,
        options: &LoadOptions,
        warnings: &mut Vec<Warning>,
    ) -> bool {
        let stamp = Stamp::of(&self.path);
        let is_same = stamp == self.stamp;
        self.skipped += 1;
        if is_same && self.is_settled && self.skipped < FOLDER_LOOKS && !is_asked {
            return false;
        }
        let names = match names(&self.path) {
            Ok(names) => names,
            Err(error) => {
                let is_new = error.kind() == io::ErrorKind::NotFound && self.files.is_empty();
                let is_reported = self.trouble.replace(error.kind()) == Some(error.kind());
                // It is made before the first certificate. Otherwise what was read stays in use.
                if !is_reported && !is_new {
                    warnings.push(Warning {
                        path: self.path.clone(),
                        kind: WarningKind::UnreadableFolder {
                            why: gannet_io::cause::cause(&error),
                        },
                    });
                }
                self.stamp = None;
                return false;
            }
        };
        self.trouble = None;
        (self.stamp, self.is_settled, self.skipped) = (stamp, is_same, 0);
        self.read(names, options, warnings)
    }

    fn read(
        &mut self,
        names: Vec<(Box<str>, PathBuf)>,
        options: &LoadOptions,
        warnings: &mut Vec<Warning>,
    ) -> bool {
        let stamped = names.into_iter().filter_map(|(host, path)| {
            // Without a stamp it went since the folder was read, or is a link to nothing.
            let stamp = Stamp::of(&path)?;
            Some((host, path, stamp))
        });
        let found: Vec<_> = stamped.collect();
        // First, since others may get their places.
        self.note_gone(&found, warnings);
        let was_full = mem::take(&mut self.is_full);
        let mut is_changed = false;
        for (host, path, stamp) in found {
            if !self.files.contains_key(&host) && self.files.len() >= FOLDER_PAIRS_MAX {
                if !self.drop_gone(warnings) {
                    self.is_full = true;
                    continue;
                }
                is_changed = true;
            }
            let file = self.files.entry(host).or_default();
            if file.stamp == Some(stamp) && !file.is_unread {
                continue;
            }
            let is_reported = mem::take(&mut file.is_unread) && file.stamp == Some(stamp);
            file.stamp = Some(stamp);
            match load_one(&PairPaths::of_one(path.clone()), options, warnings) {
                Ok(pair) => {
                    file.pair = Some(pair);
                    is_changed = true;
                }
                Err(error) => {
                    // For want of descriptors or memory, for example: it is read again later.
                    file.is_unread = matches!(error.cause, Cause::Read(_));
                    if !is_reported {
                        warnings.push(unusable(&path, &error.cause));
                    }
                }
            }
        }
        if self.is_full && !was_full {
            warnings.push(Warning {
                path: self.path.clone(),
                kind: WarningKind::TooMany,
            });
        }
        is_changed
    }

    /// Notes which files are gone. Of those that could not be used, nothing is kept.
    fn note_gone(&mut self, found: &[(Box<str>, PathBuf, Stamp)], warnings: &mut Vec<Warning>) {
        let found: HashSet<&str> = found.iter().map(|(host, ..)| &**host).collect();
        self.reads += 1;
        self.files.retain(|host, file| {
            if found.contains(&**host) {
                if let Some(at) = file.gone_at.take() {
                    self.gone.remove(&(at, host.clone()));
                }
                return true;
            }
            if file.gone_at.is_some() {
                return true;
            }
            file.stamp = None;
            if file.pair.is_some() {
                file.gone_at = Some(self.reads);
                self.gone.insert((self.reads, host.clone()));
                warnings.push(Warning {
                    path: file_of(&self.path, host),
                    kind: WarningKind::Gone,
                });
            }
            file.pair.is_some()
        });
    }

    /// Makes room by the host whose file is gone for longest. False if no file is gone.
    fn drop_gone(&mut self, warnings: &mut Vec<Warning>) -> bool {
        let Some((_, host)) = self.gone.pop_first() else {
            return false;
        };
        self.files.remove(&host);
        warnings.push(Warning {
            path: file_of(&self.path, &host),
            kind: WarningKind::Dropped,
        });
        true
    }

    /// The pairs: those of the hosts `first`, in this order, then the others, by their names. `expected`
    /// has the same hosts.
    pub(super) fn pairs<'a>(
        &'a self,
        first: &'a [String],
        expected: &'a Expected,
    ) -> impl Iterator<Item = &'a Pair> {
        let of_host = |host: &'a String| self.files.get(host.as_str());
        let others = self
            .files
            .iter()
            .filter(|(host, _)| !expected.ordered.contains(*host));
        let all = first.iter().filter_map(of_host);
        all.chain(others.map(|(_, file)| file))
            .filter_map(|file| file.pair.as_ref())
    }

    /// The hosts that have a file, whatever is in it, or had one.
    pub(super) fn hosts(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(|host| &**host)
    }

    /// Whether there is a pair for a host.
    pub(super) fn has_pair(&self, host: &str) -> bool {
        self.files.get(host).is_some_and(|it| it.pair.is_some())
    }

    /// Whether there is a file for a host, whatever is in it, or was.
    pub(super) fn has(&self, host: &str) -> bool {
        self.files.contains_key(host)
    }
}

/// The file of a host.
pub(super) fn file_of(folder: &Path, host: &str) -> PathBuf {
    folder.join(format!("{host}.pem"))
}

/// The hosts of a folder, with their files.
fn names(folder: &Path) -> io::Result<Vec<(Box<str>, PathBuf)>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let host = name.and_then(|name| name.strip_suffix(".pem"));
        // Drafts start with a dot.
        if let Some(host) = host.filter(|host| !host.starts_with('.')) {
            names.push((host.into(), path));
        }
    }
    Ok(names)
}

fn unusable(path: &Path, cause: &Cause) -> Warning {
    Warning {
        path: path.to_owned(),
        kind: WarningKind::Unusable {
            why: cause.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gannet_testkit::tls::{Authority, KeyKind};

    use super::*;

    const OPTIONS: LoadOptions = LoadOptions {
        allow_expired: true,
        now: 1_800_000_000,
    };

    fn look(folder: &mut CertificateFolder) -> (bool, Vec<WarningKind>) {
        let mut warnings = Vec::new();
        let is_changed = folder.look(false, &OPTIONS, &mut warnings);
        let kinds = warnings.into_iter().map(|warning| warning.kind);
        // Those of tests are.
        let kinds = kinds.filter(|kind| !matches!(kind, WarningKind::WorldReadable { .. }));
        (is_changed, kinds.collect())
    }

    #[test]
    fn a_file_that_has_not_changed_is_not_read_again() {
        let files = gannet_testkit::Folder::new();
        let authority = Authority::new();
        let put = |host: &str| {
            let issued = authority.issued(KeyKind::P256, &[host]);
            files.write(format!("{host}.new"), issued.pem());
            let (from, to) = (format!("{host}.new"), format!("{host}.pem"));
            fs::rename(files.join(from), files.join(to)).expect("renamed");
        };
        let mut folder = CertificateFolder::new(files.path().to_owned());
        for host in ["a.test", "b.test", "c.test"] {
            put(host);
        }
        assert!(look(&mut folder).0);
        let expected = Expected::default();
        let keys = |folder: &CertificateFolder| -> Vec<_> {
            let pairs = folder.pairs(&[], &expected);
            pairs.map(|pair| Arc::clone(&pair.key)).collect()
        };
        let before = keys(&folder);
        assert_eq!(before.len(), 3);
        put("b.test");
        assert!(look(&mut folder).0);
        let after = keys(&folder);
        let same = before.iter().zip(&after).map(|(a, b)| Arc::ptr_eq(a, b));
        assert_eq!(same.collect::<Vec<_>>(), [true, false, true]);
        let names = |first: &[String]| -> Vec<String> {
            let expected = Expected {
                ordered: Arc::new(first.iter().map(|host| host.as_str().into()).collect()),
                ..Expected::default()
            };
            let pairs = folder.pairs(first, &expected);
            pairs.map(|pair| pair.facts.names[0].to_string()).collect()
        };
        let first = ["c.test".to_owned(), "a.test".to_owned()];
        assert_eq!(names(&first), ["c.test", "a.test", "b.test"]);
    }

    #[test]
    fn a_file_written_in_place_is_found_a_little_later() {
        let files = gannet_testkit::Folder::new();
        let pem = Authority::new().issued(KeyKind::P256, &["a.test"]).pem();
        files.write("a.test.pem", &pem[..pem.len() / 2]);
        let mut folder = CertificateFolder::new(files.path().to_owned());
        let (is_changed, kinds) = look(&mut folder);
        assert!(!is_changed && matches!(kinds[..], [WarningKind::Unusable { .. }]));
        // Until only the folder itself is looked at.
        for _ in 0..2 {
            assert_eq!(look(&mut folder), (false, Vec::new()));
        }
        files.write("a.test.pem", &pem);
        let found = (0..FOLDER_LOOKS).filter(|_| look(&mut folder).0);
        assert_eq!(found.count(), 1);
    }

    #[test]
    fn more_files_than_a_server_takes_are_left_out() {
        let files = gannet_testkit::Folder::new();
        let names: Vec<String> = (0..=FOLDER_PAIRS_MAX)
            .map(|it| format!("h{it}.test"))
            .collect();
        for name in &names {
            files.write(format!("{name}.pem"), "");
        }
        let mut folder = CertificateFolder::new(files.path().to_owned());
        let (_, kinds) = look(&mut folder);
        let taken = names.iter().filter(|name| folder.has(name)).count();
        assert_eq!(taken, FOLDER_PAIRS_MAX);
        assert_eq!(kinds.last(), Some(&WarningKind::TooMany));
        assert_eq!(look(&mut folder), (false, Vec::new()), "it is said once");
    }

    #[test]
    fn what_is_gone_for_longest_makes_room() {
        let files = gannet_testkit::Folder::new();
        let pem = Authority::new().issued(KeyKind::P256, &["a.test"]).pem();
        let put = |name: &str, text: &str| {
            files.write(format!("{name}.new"), text);
            let to = files.join(format!("{name}.pem"));
            fs::rename(files.join(format!("{name}.new")), to).expect("renamed");
        };
        let remove = |name: &str| {
            fs::remove_file(files.join(format!("{name}.pem"))).expect("removed");
        };
        let mut folder = CertificateFolder::new(files.path().to_owned());
        for name in ["old", "older", "back"] {
            put(name, &pem);
        }
        for number in 3..FOLDER_PAIRS_MAX {
            files.write(format!("h{number}.pem"), "");
        }
        folder.look(true, &OPTIONS, &mut Vec::new());
        assert_eq!(folder.files.len(), FOLDER_PAIRS_MAX);
        let look = |folder: &mut CertificateFolder| {
            let mut warnings = Vec::new();
            let is_changed = folder.look(true, &OPTIONS, &mut warnings);
            let dropped = warnings.iter().filter_map(|warning| match warning.kind {
                WarningKind::Dropped => warning.path.file_stem(),
                _ => None,
            });
            let dropped: Vec<_> = dropped
                .map(|it| it.to_string_lossy().into_owned())
                .collect();
            (is_changed, dropped)
        };
        for name in ["back", "older", "old"] {
            remove(name);
            assert_eq!(look(&mut folder), (false, vec![]));
        }
        // Of one that could not be used, the place is free.
        remove("h3");
        put("a", "");
        assert_eq!(look(&mut folder), (false, vec![]));
        put("back", &pem);
        put("b", "");
        assert_eq!(look(&mut folder), (true, vec!["older".to_owned()]));
        assert!(folder.has_pair("back") && folder.has_pair("old") && !folder.has("older"));
        // One goes and another one comes between two looks.
        remove("back");
        put("c", "");
        put("d", "");
        let both = vec!["old".to_owned(), "back".to_owned()];
        assert_eq!(look(&mut folder), (true, both));
        put("e", "");
        assert_eq!(look(&mut folder), (false, vec![]));
        assert!(folder.has("d") && !folder.has("e") && folder.is_full);
        assert_eq!(folder.files.len(), FOLDER_PAIRS_MAX);
    }

    #[test]
    fn a_folder_that_comes_and_cannot_be_read_is_reported() {
        let files = gannet_testkit::Folder::new();
        let path = files.join("certificates");
        let mut folder = CertificateFolder::new(path.clone());
        assert_eq!(look(&mut folder), (false, Vec::new()), "it is made later");
        // A test may be root's, who reads every folder.
        files.write("certificates", "a file");
        let mut warnings = Vec::new();
        folder.look(false, &OPTIONS, &mut warnings);
        let [warning] = &warnings[..] else {
            panic!("{warnings:?}")
        };
        let said = warning.to_string();
        assert!(
            said.contains("certificates': cannot be read: not a dir"),
            "{said}"
        );
        assert!(warning.help().contains("user"), "{}", warning.help());
        assert_eq!(look(&mut folder), (false, Vec::new()), "it is said once");
        fs::remove_file(&path).expect("removed");
        assert_eq!(look(&mut folder), (false, Vec::new()), "it is made later");
        files.write("certificates", "a file");
        assert_eq!(look(&mut folder).1.len(), 1, "it was another one");
    }

    #[test]
    fn a_folder_that_cannot_be_read_keeps_its_hosts() {
        let files = gannet_testkit::Folder::new();
        let path = files.join("certificates");
        let mut folder = CertificateFolder::new(path.clone());
        assert_eq!(look(&mut folder), (false, Vec::new()), "it is made later");
        let pem = Authority::new().issued(KeyKind::P256, &["a.test"]).pem();
        files.write("certificates/a.test.pem", pem);
        assert_eq!(look(&mut folder), (true, Vec::new()));
        fs::rename(&path, files.join("elsewhere")).expect("renamed");
        let (is_changed, kinds) = look(&mut folder);
        assert!(!is_changed && matches!(kinds[..], [WarningKind::UnreadableFolder { .. }]));
        assert_eq!(look(&mut folder), (false, Vec::new()), "it is said once");
        assert_eq!(folder.pairs(&[], &Expected::default()).count(), 1);
        fs::rename(files.join("elsewhere"), &path).expect("renamed");
        assert_eq!(
            look(&mut folder),
            (false, Vec::new()),
            "nothing has changed"
        );
    }
}
