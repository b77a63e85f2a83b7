//! Serving a store that a process beside the server changes: a follower, which copies one that is behind a
//! URL, or a receiver, to which publishers bring releases.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, lchown};
use std::path::{Path, PathBuf};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use gannet_io::companion;
use gannet_io::user::User;
use gannet_server::config::Content;
use gannet_server::config::receipts::Receipts;
use gannet_server::config::supply::Supply;
use gannet_store::{Pointer, Publisher, ReleaseId, SparseFile, Store, StoreError};

use super::companions::{CompanionCommand, Companions};
use super::node;
use super::received::Receiver;
use super::signals::{Commands, SignalCommand};
use crate::command_line::settings::Settings;
use crate::commands::destination::is_url;
use crate::commands::follow::STORE_URL;
use crate::commands::stores::now;
use crate::messages::{Failure, printable};

/// How often a server without any release looks for the first one.
const LOOK: Duration = Duration::from_millis(100);

/// How often it reads a part that it could not use: an error in reading may pass.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// A store that is served, and where its releases come from.
pub(super) struct Followed {
    source: Supplier,
    copy: PathBuf,
    /// A part of a release is enough.
    is_on_demand: bool,
    /// The name of the server among those that follow the store.
    node: String,
    /// Only what this key has signed counts.
    key: Option<String>,
}

enum Supplier {
    /// A store at this URL. In messages it is without a password.
    Url { url: String, shown: String },
    /// Publishers.
    Receiver(Receiver),
}

/// A file with a part of a release, and its inode and time of birth: one that takes its place has others.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) struct FoundPart(ReleaseId, [u8; 24]);

impl FoundPart {
    fn of(store: &Store, pointer: &Pointer) -> Option<Self> {
        let found = File::open(store.partial_path(pointer.release)).ok()?;
        Some(Self(pointer.release, found.identity().ok()?))
    }
}

/// What a server has of the process beside it.
pub(super) enum Tie {
    /// Files, and nothing else.
    None,
    /// Parts of releases, if it asks.
    Supply(Supply),
    /// What it counts.
    Receipts(Receipts),
}

impl Followed {
    /// What the settings name; `None` if they name no URL, and no address for publishers. Nothing is changed or
    /// asked.
    ///
    /// # Errors
    /// It is not the URL of a store, there is no place for a copy, or that has the copy of another
    /// store, or the program cannot follow. Or publishers would be received without a key, in clear text,
    /// or for what is no store.
    pub(super) fn of(settings: &Settings) -> Result<Option<Self>, Failure> {
        let is_served = settings.server.content.dummy.is_none();
        let is_on_demand = settings.on_demand.is_some();
        let without_effect = |flag| {
            let what = format!("{flag} has no effect: what is served is not a URL");
            let help = "leave it out, or name a store such as s3://BUCKET/PATH";
            Err(Failure::usage(what).help(help))
        };
        if let Some(address) = settings.receive.filter(|_| is_served) {
            if is_on_demand {
                return without_effect("--on-demand");
            }
            let (receiver, copy) = Receiver::of(settings, address)?;
            let source = Supplier::Receiver(receiver);
            return Ok(Some(Self {
                source,
                copy,
                is_on_demand,
                node: node(settings),
                key: settings.server.content.require_signature.clone(),
            }));
        }
        let Some(path) = settings
            .path
            .as_deref()
            .filter(|it| is_served && is_url(it.as_os_str()))
        else {
            let flags = [
                ("--copy", settings.copy.is_some()),
                ("--on-demand", is_on_demand),
            ];
            let given = flags.iter().find(|(_, is_given)| *is_given && is_served);
            return given.map_or(Ok(None), |(flag, _)| without_effect(flag));
        };
        let url = path.to_string_lossy().into_owned();
        let (shown, copy) = copies::checked(&url, settings.copy.as_deref())?;
        let source = Supplier::Url { url, shown };
        Ok(Some(Self {
            source,
            copy,
            is_on_demand,
            node: node(settings),
            key: settings.server.content.require_signature.clone(),
        }))
    }

    /// What is served.
    pub(super) fn content(&self) -> Content {
        Content::Store(self.copy.clone())
    }

    fn store(&self) -> Result<Store, StoreError> {
        Store::open(&self.copy, self.key.as_deref())
    }

    /// The part of the pointer's release that is there, damaged or not.
    pub(super) fn part(&self) -> Option<FoundPart> {
        let store = self.store().ok()?;
        FoundPart::of(&store, &store.pointer().ok()?)
    }

    /// Whether there is a release to serve: that of the pointer, or an earlier one, as a server does that cannot open
    /// the first. Of a file only its length is known here; whatever else is wrong is told when it is opened.
    pub(super) fn has_release(&self) -> bool {
        self.has_current(Store::has_partial) || self.has_earlier()
    }

    /// Whether that of the pointer is there. Of pointers that cannot be used, one whose signature is not that of the
    /// key is waited for: another one replaces it.
    fn has_current(&self, has_part: impl Fn(&Store, &Pointer) -> bool) -> bool {
        let Ok(store) = self.store() else {
            return false;
        };
        match store.pointer() {
            Ok(pointer) => self.has_file(&store, &pointer, has_part),
            Err(error) => !matches!(error, StoreError::Empty(_) | StoreError::Signature(..)),
        }
    }

    /// Whether an earlier one is there. The log is read for that.
    fn has_earlier(&self) -> bool {
        let Ok((current, store)) = self.store().and_then(|it| Ok((it.pointer()?, it))) else {
            return false;
        };
        store
            .activated_before(&current, &current.void, &self.node, now())
            .any(|it| self.has_file(&store, &it, Store::has_partial))
    }

    /// Whether the file of a release is there, and has its length. A part that a server on demand has left is enough
    /// for another one, unless it is damaged, or a copy of another file: then the follower makes it anew, or completes
    /// it.
    fn has_file(
        &self,
        store: &Store,
        pointer: &Pointer,
        has_part: impl Fn(&Store, &Pointer) -> bool,
    ) -> bool {
        let path = store.file_of(pointer.release);
        match path == store.partial_path(pointer.release) {
            true => self.is_on_demand && has_part(store, pointer),
            false => fs::metadata(path).map_or_else(
                |error| error.kind() != ErrorKind::NotFound,
                |found| found.len() == pointer.size,
            ),
        }
    }

    /// What is waited for, in messages. That of a pointer whose file is missing has a name.
    fn lacking(&self) -> String {
        match self.store().and_then(|it| it.pointer()) {
            Ok(pointer) => format!("release {}", &pointer.release.to_string()[..16]),
            Err(StoreError::Signature(..)) => "a release with the required signature".into(),
            Err(_) => "the first release".into(),
        }
    }

    /// Whether a server can take the place of another one before there is a release: not if there has been one, since
    /// what brings it again is beside that server, and has the copy as long as it serves.
    ///
    /// # Errors
    /// It cannot.
    pub(super) fn may_succeed(&self) -> Result<(), Failure> {
        let Ok(store) = self.store() else {
            return Ok(());
        };
        let refuse = |cause, help| {
            Err(Failure::new("serve the copy", self.copy.display(), cause).help(help))
        };
        let pointer = match store.pointer() {
            Ok(pointer) => pointer,
            Err(StoreError::Signature(..)) => {
                return refuse(
                    "its pointer does not have the required signature",
                    "stop the server and start it anew: it waits for a release that has it",
                );
            }
            Err(_) => return Ok(()),
        };
        if store.has_partial(&pointer) {
            return refuse(
                "only a part of the release is here, which a running server may serve on demand",
                "name another folder by --copy DIR, after 'gannet follow URL DIR --once' has made the copy; \
                 or keep --on-demand, or stop the server and start it anew",
            );
        }
        let cause = "the file of the release is missing or damaged";
        match &self.source {
            Supplier::Url { .. } => refuse(
                cause,
                "stop the server and start it anew, which copies it again",
            ),
            Supplier::Receiver(_) => refuse(cause, "publish the release once more"),
        }
    }

    /// What a check of the configuration says of a store that has no release to serve.
    pub(super) fn note(&self) -> String {
        let copy = self.copy.to_string_lossy();
        let (what, copy) = (self.lacking(), printable(&copy));
        match &self.source {
            Supplier::Url { shown, .. } => {
                format!("note     {what} of {shown} has not been copied to '{copy}' yet\n")
            }
            Supplier::Receiver(_) => {
                format!("note     {what} has not been published to '{copy}' yet\n")
            }
        }
    }

    /// Whether a receiver could listen, without doing so.
    ///
    /// # Errors
    /// Its address cannot be taken.
    pub(super) fn check_address(&self) -> Result<(), Failure> {
        match &self.source {
            Supplier::Url { .. } => Ok(()),
            Supplier::Receiver(receiver) => receiver.check(),
        }
    }

    /// The process that makes and keeps the copy, and what the server has of it.
    ///
    /// # Errors
    /// A receiver cannot listen, where a server before this one may still do if this `is_successor`; or there
    /// are no descriptors for pipes.
    pub(super) fn companion(
        &self,
        settings: &Settings,
        is_successor: bool,
    ) -> Result<(CompanionCommand, Tie), Failure> {
        let (url, shown) = match &self.source {
            Supplier::Url { url, shown } => (url, shown),
            Supplier::Receiver(receiver) => {
                let (companion, receipts) =
                    receiver.companion(settings, &self.copy, is_successor)?;
                return Ok((companion, Tie::Receipts(receipts)));
            }
        };
        let mut arguments: Vec<OsString> = vec!["follow".into()];
        let (mut pipes, mut tie) = ([None, None], Tie::None);
        if let Some(room) = settings.on_demand {
            arguments.extend(["--on-demand".into(), room.to_string().into()]);
            let refuse = |error| Failure::of_system("make", "a pipe", &error);
            let (read, questions) = companion::wide_input().map_err(refuse)?;
            let (written, answers) = companion::output().map_err(refuse)?;
            pipes = [Some(read), Some(written)];
            tie = Tie::Supply(Supply::new(questions, answers));
        }
        if let Some(key) = &settings.server.content.require_signature {
            arguments.extend(["--public-key".into(), key.into()]);
        }
        arguments.extend(["--".into(), shown.into(), (&self.copy).into()]);
        let is_secret = shown != url.trim_end_matches('/');
        let [input, output] = pipes;
        let companion = CompanionCommand {
            name: format!("the follower of {shown}"),
            arguments,
            variable: is_secret.then(|| (STORE_URL, url.into())),
            input,
            output,
        };
        Ok((companion, tie))
    }

    /// Makes the copy's folder, for the user that the server becomes.
    ///
    /// # Errors
    /// The system refuses it.
    pub(super) fn make_room(&self, user: Option<&User>) -> Result<(), Failure> {
        let refuse = |error| {
            Failure::of_system("make", self.copy.display(), &error).help(format!(
                "name a folder that can be written by {}",
                self.named_by()
            ))
        };
        if let Ok(found) = fs::metadata(&self.copy) {
            return self.check_folder(&found, user);
        }
        fs::create_dir_all(&self.copy).map_err(refuse)?;
        user.map_or(Ok(()), |user| {
            lchown(&self.copy, Some(user.uid), Some(user.gid))
        })
        .map_err(refuse)
    }

    /// What names the folder on the command line.
    fn named_by(&self) -> &'static str {
        match self.source {
            Supplier::Url { .. } => "--copy DIR",
            Supplier::Receiver(_) => "PATH",
        }
    }

    /// Refuses a folder that the process could not use.
    fn check_folder(&self, found: &Metadata, user: Option<&User>) -> Result<(), Failure> {
        let refuse = |cause: &str, help: String| {
            Err(Failure::new("write a store to", self.copy.display(), cause).help(help))
        };
        if !found.is_dir() || Publisher::check(&self.copy).is_err() {
            let help = format!("name another folder by {}", self.named_by());
            return refuse("it is neither a store nor an empty folder", help);
        }
        match user.filter(|user| user.uid != found.uid()) {
            None => Ok(()),
            Some(user) => refuse(
                "it belongs to another user than that of --user",
                format!(
                    "give it to that user with all that is in it: chown -R {}:{}",
                    user.uid, user.gid
                ),
            ),
        }
    }

    /// Waits for the release of a pointer, after [`Self::has_release`] has found none: what brings it brings no earlier
    /// one before. The part that was there before is `damaged`, and is read again now and then; another one was verified
    /// before it got its name, and is read by who opens it. Returns the signal that ended the wait, if one did.
    ///
    /// # Errors
    /// The follower has ended.
    pub(super) fn await_first(
        &self,
        damaged: Option<FoundPart>,
        commands: &Commands,
        companions: &mut Companions,
    ) -> Result<Option<i32>, Failure> {
        let mut read = Instant::now();
        while !self.has_current(|store, pointer| FoundPart::of(store, pointer) != damaged) {
            if read.elapsed() >= LOOK_AGAIN {
                if self.has_current(Store::has_partial) {
                    break;
                }
                read = Instant::now();
            }
            if let Some(name) = companions.lost() {
                let cause = format!("{name} cannot be started");
                return Err(Failure::new("write a store to", self.copy.display(), cause));
            }
            match commands.inbox.recv_timeout(LOOK) {
                Ok(SignalCommand::Stop(signal)) => return Ok(Some(signal)),
                // Nothing else can be done yet.
                Ok(_) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
        Ok(None)
    }

    /// The line before that.
    pub(super) fn waiting_line(&self) -> String {
        let copy = self.copy.to_string_lossy();
        let (what, copy) = (self.lacking(), printable(&copy));
        match &self.source {
            Supplier::Url { shown, .. } => {
                format!("waiting for {what} of {shown}, to be copied to '{copy}'\n")
            }
            Supplier::Receiver(_) => {
                format!("waiting for {what}, to be published to '{copy}'\n")
            }
        }
    }
}

#[cfg(not(feature = "fleet"))]
mod copies {
    use super::{Failure, Path, PathBuf};

    pub(super) fn checked(_: &str, _: Option<&Path>) -> Result<(String, PathBuf), Failure> {
        Err(crate::commands::follow::built_without())
    }
}

#[cfg(feature = "fleet")]
mod copies {
    use gannet_fleet::{Patience, Remote, must_be_of};
    use gannet_io::user::is_root;

    use super::super::state_folder::state_folder;
    use super::{Failure, Path, PathBuf};

    /// The URL without what is secret in it, and the folder of the copy, which may be named.
    pub(super) fn checked(url: &str, copy: Option<&Path>) -> Result<(String, PathBuf), Failure> {
        let remote = Remote::open(url, Patience::default())?;
        let copy = copy.map_or_else(|| default_copy(&remote), |it| Ok(it.to_path_buf()))?;
        must_be_of(&copy, &remote)?;
        Ok((remote.url().to_owned(), copy))
    }

    /// The folder of a copy that the command line does not name. One that an earlier version has named
    /// by the URL alone stays in use.
    fn default_copy(remote: &Remote) -> Result<PathBuf, Failure> {
        let Some(state) = state_folder(is_root(), |name| std::env::var_os(name)) else {
            let what = "no place for the copy of a store: neither STATE_DIRECTORY, XDG_STATE_HOME nor HOME is set";
            return Err(Failure::usage(what.to_owned()).help("name a folder by --copy DIR"));
        };
        let copies = state.join("copies");
        let former = copies.join(folder_name(remote.url(), None));
        let own = copies.join(folder_name(remote.url(), remote.service().as_deref()));
        let is_former = !own.exists() && former.exists() && must_be_of(&former, remote).is_ok();
        Ok(if is_former { former } else { own })
    }

    /// The URL as a name, with what tells its service from others: what cannot stand in one is escaped,
    /// so that two stores never share a folder.
    fn folder_name(shown: &str, service: Option<&str>) -> String {
        let mut name = String::new();
        for byte in shown.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' => {
                    name.push(byte.into());
                }
                b'/' => name.push('+'),
                _ => name.push_str(&format!("%{byte:02X}")),
            }
        }
        match service.filter(|it| *it != "default") {
            Some(service) => format!("{name}@{service}"),
            None => name,
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn no_two_stores_share_a_folder() {
            let check = |shown: &str, service: Option<&str>, expect: &str| {
                assert_eq!(folder_name(shown, service), expect);
            };
            check("https://h/a+b", None, "https%3A++h+a%2Bb");
            check("s3://bucket/site", Some("default"), "s3%3A++bucket+site");
            check("s3://bucket/site", Some("5c1f"), "s3%3A++bucket+site@5c1f");
            check("s3://bucket/site@5c1f", None, "s3%3A++bucket+site%405c1f");
        }
    }
}
