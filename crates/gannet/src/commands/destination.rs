//! The store that a command changes: a folder, or one in an object store, of which the command has a
//! picture in a folder.

use std::ffi::OsStr;
use std::path::Path;

use gannet_server::notices::ERRORS;
use gannet_site::pack::Signer;
use gannet_store::{Placed, Pointer, Pruned, Publisher, ReleaseId, Store};

use super::stores;
use crate::messages::{Failure, printable};

/// See the module.
pub(super) struct Destination {
    kind: DestinationKind,
}

enum DestinationKind {
    Folder(Publisher),
    #[cfg(feature = "fleet")]
    Remote(Box<gannet_fleet::RemotePublisher>),
}

/// Whether a text is a URL, not a path.
pub(crate) fn is_url(typed: &OsStr) -> bool {
    let typed = typed.to_string_lossy();
    let scheme = typed.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|it| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

impl Destination {
    /// Opens a store for publishing. What a signer's key has not signed counts as damaged: who signs
    /// the next pointer vouches for all that it takes over.
    pub(super) fn open(typed: &OsStr, signer: Option<&Signer>, now: u64) -> Result<Self, Failure> {
        let key = signer.map(Signer::public_key).transpose()?;
        let kind = match is_url(typed) {
            true => remote::open(typed, key.as_deref(), now)?,
            false => {
                let name = stores::publisher_name();
                let mut publisher = Publisher::open(Path::new(typed), &name, now)?;
                publisher.require(key.as_deref())?;
                DestinationKind::Folder(publisher)
            }
        };
        Ok(Self { kind })
    }

    /// Whether [`Destination::open`] could open it, as far as that can be known without changing or
    /// asking anything.
    pub(super) fn check(typed: &OsStr) -> Result<(), Failure> {
        match is_url(typed) {
            true => remote::check(typed),
            false => Ok(Publisher::check(Path::new(typed))?),
        }
    }

    /// Who changes the folder, or the picture.
    pub(super) fn publisher(&self) -> &Publisher {
        match &self.kind {
            DestinationKind::Folder(publisher) => publisher,
            #[cfg(feature = "fleet")]
            DestinationKind::Remote(publisher) => publisher.picture(),
        }
    }

    /// What the user calls it.
    pub(super) fn shown(&self) -> String {
        match &self.kind {
            DestinationKind::Folder(publisher) => {
                printable(&publisher.store().folder().to_string_lossy())
            }
            #[cfg(feature = "fleet")]
            DestinationKind::Remote(publisher) => printable(publisher.remote().url()),
        }
    }

    /// Sees to it that what is in a release's file can be read, if the store has it undamaged.
    #[cfg_attr(not(feature = "fleet"), expect(unused_variables))]
    pub(super) fn bring(&self, id: ReleaseId) -> Result<(), Failure> {
        match &self.kind {
            DestinationKind::Folder(_) => Ok(()),
            #[cfg(feature = "fleet")]
            DestinationKind::Remote(publisher) => Ok(publisher.bring(id)?),
        }
    }

    /// The same, where a release that cannot be fetched must not hold up the next one; returns whether it
    /// could.
    pub(super) fn try_to_bring(&self, id: ReleaseId) -> bool {
        let brought = self.bring(id);
        brought
            .map_err(|failure| self.explained(failure).report())
            .is_ok()
    }

    /// Sees to it that the store has a release that was placed, and returns what it has then.
    #[cfg_attr(not(feature = "fleet"), expect(unused_variables))]
    pub(super) fn put(&self, id: ReleaseId, placed: Placed) -> Result<Placed, Failure> {
        match &self.kind {
            DestinationKind::Folder(_) => Ok(placed),
            #[cfg(feature = "fleet")]
            DestinationKind::Remote(publisher) => {
                Ok(publisher.upload(id, placed, |path| stores::holds(path, id))?)
            }
        }
    }

    /// Puts a pointer into force, signed if there is a key, and removes what is no longer kept. What cannot
    /// be removed is reported.
    ///
    /// # Errors
    /// It could not be put into force; or nodes may lack its release, or that of one which another
    /// publisher has put into force at the same time.
    pub(super) fn commit(
        &self,
        pointer: &Pointer,
        signer: Option<&Signer>,
        now: u64,
    ) -> Result<Pruned, Failure> {
        let mut text = pointer.to_text();
        if let Some(signer) = signer {
            let comment = format!("serial {}", pointer.serial);
            text += &signer.sign_text(&text, "gannet pointer", &comment)?;
        }
        match &self.kind {
            DestinationKind::Folder(publisher) => publisher.commit(pointer, &text)?,
            #[cfg(feature = "fleet")]
            DestinationKind::Remote(publisher) => {
                if let Some(error) = publisher.commit(pointer, &text)? {
                    // Removals go by what the picture shows.
                    self.explained(error.into()).report();
                    return Ok(Pruned::default());
                }
            }
        }
        let pruned = self.publisher().prune(pointer, now);
        for error in &pruned.errors {
            let error = self
                .named()
                .text(&printable(&error.to_string()).to_string());
            ERRORS.log(format_args!("gannet: {error}"));
        }
        #[cfg(feature = "fleet")]
        if let DestinationKind::Remote(publisher) = &self.kind {
            let before = stores::before(publisher.picture().store(), pointer);
            let before = before.map_err(|failure| self.explained(failure).report());
            let before = before.ok().flatten();
            let needed: Vec<_> = before.into_iter().chain([pointer.release]).collect();
            let report = |error| Failure::from(error).report();
            let tidied = publisher.tidy(&text, &pruned.releases, &needed, &report);
            tidied.map_err(|error| self.explained(error.into()))?;
        }
        Ok(pruned)
    }

    /// What messages call the store.
    pub(super) fn named(&self) -> StoreName {
        StoreName::of(self.publisher().store(), self.shown())
    }

    /// A failure in terms of what the user named.
    pub(super) fn explained(&self, failure: Failure) -> Failure {
        self.named().explained(failure)
    }
}

/// What the user calls a store: where the picture of one is, is of no use.
pub(super) struct StoreName {
    folder: String,
    shown: String,
}

impl StoreName {
    /// A store in a folder, or the picture of one that is shown under another name.
    pub(super) fn of(store: &Store, shown: String) -> Self {
        Self::at(store.folder(), shown)
    }

    fn at(folder: &Path, shown: String) -> Self {
        let folder = printable(&folder.to_string_lossy());
        Self { folder, shown }
    }

    /// A text that names the store's folder, or something in it.
    pub(super) fn text(&self, text: &str) -> String {
        text.replace(&self.folder, &self.shown)
    }

    /// A failure that does.
    pub(super) fn explained(&self, failure: Failure) -> Failure {
        Failure {
            message: self.text(&failure.message),
            help: failure.help.map(|help| self.text(&help)),
            ..failure
        }
    }
}

/// Reads a store behind a URL, without keeping publishers from it.
///
/// # Errors
/// The store cannot be read, or what is passed a picture of it fails.
pub(super) fn read<T>(
    typed: &OsStr,
    key: Option<&str>,
    pass: impl FnOnce(&Store, &StoreName) -> Result<T, Failure>,
) -> Result<T, Failure> {
    remote::read(typed, key, pass)
}

#[cfg(not(feature = "fleet"))]
mod remote {
    use super::{DestinationKind, Failure, OsStr, Store, StoreName};

    fn built_without<T>() -> Result<T, Failure> {
        let cause = "cannot use a URL: this program was built without the feature 'fleet'";
        Err(Failure::usage(cause).help("build it with its default features"))
    }

    pub(super) fn open(_: &OsStr, _: Option<&str>, _: u64) -> Result<DestinationKind, Failure> {
        built_without()
    }

    pub(super) fn check(_: &OsStr) -> Result<(), Failure> {
        built_without()
    }

    pub(super) fn read<T>(
        _: &OsStr,
        _: Option<&str>,
        _: impl FnOnce(&Store, &StoreName) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        built_without()
    }
}

#[cfg(feature = "fleet")]
mod remote {
    use std::env;
    use std::ffi::OsString;
    use std::fs::DirBuilder;
    use std::os::unix::fs::DirBuilderExt;
    use std::path::{Path, PathBuf};
    use std::process;
    use std::time::{SystemTime, UNIX_EPOCH};

    use gannet_archive::digest;
    use gannet_fleet::{Glance, Patience, Remote, RemotePublisher};

    use super::super::removal::{RemovalOnSignal, remove_folder};
    use super::{DestinationKind, Failure, OsStr, Store, StoreName, printable, stores};

    pub(super) fn open(
        typed: &OsStr,
        key: Option<&str>,
        now: u64,
    ) -> Result<DestinationKind, Failure> {
        let remote = writable(typed)?;
        let folder = picture_of(&remote)?;
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder);
        made.map_err(|error| Failure::of_system("make", folder.display(), &error))?;
        let name = stores::publisher_name();
        let publisher = RemotePublisher::open(remote, &folder, key, &name, now);
        Ok(DestinationKind::Remote(Box::new(publisher?)))
    }

    pub(super) fn check(typed: &OsStr) -> Result<(), Failure> {
        writable(typed).map(drop)
    }

    pub(super) fn read<T>(
        typed: &OsStr,
        key: Option<&str>,
        pass: impl FnOnce(&Store, &StoreName) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let remote = Remote::open(&typed.to_string_lossy(), Patience::default())?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let unique = since.unwrap_or_default().as_nanos();
        let folder = format!("gannet-releases-{}-{unique:x}", process::id());
        let folder = env::temp_dir().join(folder);
        let named = StoreName::at(&folder, printable(remote.url()));
        let removed = folder.clone();
        let _removal = RemovalOnSignal::by(move || remove_folder(&removed))?;
        // Without one, all of the log is fetched.
        let earlier = picture_of(&remote).unwrap_or_default();
        let glance = Glance::take(&remote, &folder, &earlier, key);
        let glance = glance.map_err(|error| named.explained(error.into()))?;
        pass(glance.store(), &named).map_err(|failure| named.explained(failure))
    }

    fn writable(typed: &OsStr) -> Result<Remote, Failure> {
        let remote = Remote::open(&typed.to_string_lossy(), Patience::default())?;
        remote.must_be_writable()?;
        Ok(remote)
    }

    /// Where the picture of a store is: in systemd's folder for the service, or the user's cache.
    fn picture_of(remote: &Remote) -> Result<PathBuf, Failure> {
        let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        // A service may have several.
        let first = |folders: OsString| env::split_paths(&folders).next();
        let cache = set("CACHE_DIRECTORY").and_then(first);
        let cache = cache.or_else(|| set("XDG_CACHE_HOME").map(PathBuf::from));
        let cache = cache.or_else(|| Some(Path::new(&set("HOME")?).join(".cache")));
        let cache = cache.filter(|path| path.is_absolute()).ok_or_else(|| {
            Failure::new(
                "publish to",
                remote.url(),
                "there is no folder for what is kept of the store",
            )
            .help("name one in the environment: XDG_CACHE_HOME=/var/cache/gannet")
        })?;
        let name: String = digest(remote.identity().as_bytes())[..16]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Ok(cache.join("gannet/publish").join(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_told_from_paths() {
        let check = |typed: &str, expect: bool| {
            assert_eq!(is_url(OsStr::new(typed)), expect, "{typed}");
        };
        check("s3://bucket/site", true);
        check("https://host/site", true);
        check("./s3://x", false);
        check("store", false);
        check("C:/store", false);
        check("://x", false);
    }
}
