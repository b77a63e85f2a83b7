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
    kind: Kind,
}

enum Kind {
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
        let kind = match is_url(typed) {
            true => remote::open(typed, now)?,
            false => Kind::Folder(Publisher::open(
                Path::new(typed),
                &stores::publisher_name(),
                now,
            )?),
        };
        let key = signer.map(Signer::public_key).transpose()?;
        let mut destination = Self { kind };
        destination.require(key.as_deref())?;
        Ok(destination)
    }

    /// From here on, only pointers signed with this public key count.
    pub(super) fn require(&mut self, key: Option<&str>) -> Result<(), Failure> {
        match &mut self.kind {
            Kind::Folder(publisher) => publisher.require(key)?,
            #[cfg(feature = "fleet")]
            Kind::Remote(publisher) => publisher.require(key)?,
        }
        Ok(())
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
            Kind::Folder(publisher) => publisher,
            #[cfg(feature = "fleet")]
            Kind::Remote(publisher) => publisher.picture(),
        }
    }

    /// What the user calls it.
    pub(super) fn shown(&self) -> String {
        match &self.kind {
            Kind::Folder(publisher) => printable(&publisher.store().folder().to_string_lossy()),
            #[cfg(feature = "fleet")]
            Kind::Remote(publisher) => printable(publisher.remote().url()),
        }
    }

    /// Sees to it that what is in a release's file can be read, if the store has it undamaged.
    #[cfg_attr(not(feature = "fleet"), expect(unused_variables))]
    pub(super) fn bring(&self, id: ReleaseId) -> Result<(), Failure> {
        match &self.kind {
            Kind::Folder(_) => Ok(()),
            #[cfg(feature = "fleet")]
            Kind::Remote(publisher) => Ok(publisher.bring(id)?),
        }
    }

    /// The same, where a release that cannot be fetched must not hold up the next one.
    pub(super) fn try_to_bring(&self, id: ReleaseId) {
        if let Err(failure) = self.bring(id) {
            self.told(failure).report();
        }
    }

    /// Sees to it that the store has a release that was placed, and returns what it has then.
    #[cfg_attr(not(feature = "fleet"), expect(unused_variables))]
    pub(super) fn put(&self, id: ReleaseId, placed: Placed) -> Result<Placed, Failure> {
        match &self.kind {
            Kind::Folder(_) => Ok(placed),
            #[cfg(feature = "fleet")]
            Kind::Remote(publisher) => {
                Ok(publisher.upload(id, placed, |path| stores::holds(path, id))?)
            }
        }
    }

    /// Puts a pointer into force, signed if there is a key, and removes what is no longer kept.
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
            Kind::Folder(publisher) => publisher.commit(pointer, &text)?,
            #[cfg(feature = "fleet")]
            Kind::Remote(publisher) => {
                if let Some(error) = publisher.commit(pointer, &text)? {
                    // Removals go by what the picture shows.
                    self.told(error.into()).report();
                    return Ok(Pruned::default());
                }
            }
        }
        let pruned = self.publisher().prune(pointer, now);
        for error in &pruned.errors {
            ERRORS.tell(format_args!("gannet: {error}"));
        }
        #[cfg(feature = "fleet")]
        if let Kind::Remote(publisher) = &self.kind {
            let before = stores::before(publisher.picture().store(), pointer);
            let before = before.map_err(|failure| self.told(failure).report());
            let before = before.ok().flatten();
            let needed: Vec<_> = before.into_iter().chain([pointer.release]).collect();
            for error in publisher.tidy(&text, &pruned.releases, &needed) {
                Failure::from(error).report();
            }
        }
        Ok(pruned)
    }

    /// A failure in terms of what the user named: where the picture is, is of no use.
    pub(super) fn told(&self, failure: Failure) -> Failure {
        match &self.kind {
            Kind::Folder(_) => failure,
            #[cfg(feature = "fleet")]
            Kind::Remote(publisher) => {
                in_terms_of(&self.shown(), publisher.picture().store().folder(), failure)
            }
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
    pass: impl FnOnce(&Store) -> Result<T, Failure>,
) -> Result<T, Failure> {
    remote::read(typed, key, pass)
}

/// A failure that names the store where it names the picture's folder.
#[cfg(feature = "fleet")]
fn in_terms_of(shown: &str, folder: &Path, failure: Failure) -> Failure {
    let folder = folder.display().to_string();
    Failure {
        message: failure.message.replace(&folder, shown),
        help: failure.help.map(|help| help.replace(&folder, shown)),
        ..failure
    }
}

#[cfg(not(feature = "fleet"))]
mod remote {
    use super::{Failure, Kind, OsStr, Store};

    fn built_without<T>() -> Result<T, Failure> {
        let cause = "cannot use a URL: this program was built without the feature 'fleet'";
        Err(Failure::usage(cause).help("build it with its default features"))
    }

    pub(super) fn open(_: &OsStr, _: u64) -> Result<Kind, Failure> {
        built_without()
    }

    pub(super) fn check(_: &OsStr) -> Result<(), Failure> {
        built_without()
    }

    pub(super) fn read<T>(
        _: &OsStr,
        _: Option<&str>,
        _: impl FnOnce(&Store) -> Result<T, Failure>,
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

    use super::{Failure, Kind, OsStr, Store, in_terms_of, printable, stores};

    pub(super) fn open(typed: &OsStr, now: u64) -> Result<Kind, Failure> {
        let remote = writable(typed)?;
        let folder = picture_of(&remote)?;
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder);
        made.map_err(|error| Failure::of_system("make", folder.display(), &error))?;
        let name = stores::publisher_name();
        let publisher = RemotePublisher::open(remote, &folder, &name, now);
        Ok(Kind::Remote(Box::new(publisher?)))
    }

    pub(super) fn check(typed: &OsStr) -> Result<(), Failure> {
        writable(typed).map(drop)
    }

    pub(super) fn read<T>(
        typed: &OsStr,
        key: Option<&str>,
        pass: impl FnOnce(&Store) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let remote = Remote::open(&typed.to_string_lossy(), Patience::default())?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let unique = since.unwrap_or_default().as_nanos();
        let folder = format!("gannet-releases-{}-{unique:x}", process::id());
        let folder = env::temp_dir().join(folder);
        let told = |failure| in_terms_of(&printable(remote.url()), &folder, failure);
        // Without one, all of the log is fetched.
        let earlier = picture_of(&remote).unwrap_or_default();
        let glance = Glance::take(&remote, &folder, &earlier, key);
        pass(glance.map_err(|error| told(error.into()))?.store()).map_err(told)
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
