//! What is to be done, decided before anything is done.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::account;
use super::texts::{CONFIGURATION, LOGS, SITE, Texts, USER, is_own};
use crate::messages::{Failure, printable};

/// Links that are there while the service is enabled.
const ENABLED: [(&str, &str); 3] = [
    (
        "etc/systemd/system/multi-user.target.wants/gannet.service",
        "gannet.service",
    ),
    (
        "etc/systemd/system/multi-user.target.wants/gannet-acme.service",
        "gannet-acme.service",
    ),
    (
        "etc/systemd/system/sockets.target.wants/gannet.socket",
        "gannet.socket",
    ),
];

/// Where to install.
pub(super) struct Target {
    pub(super) root: PathBuf,
    /// The user of this machine is made and removed, too.
    pub(super) makes_user: bool,
}

/// One thing to be done, or left. Paths are those of the installed system.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Step {
    MakeFolder(String),
    Write(String, String),
    /// Replaces what an earlier version has written.
    Replace(String, String),
    /// Makes the user of this file.
    MakeUser(String),
    Remove(String),
    /// Removes a folder if it is empty by then.
    RemoveFolder(String),
    RemoveUser,
    /// Leaves something as it is, for this reason.
    Keep(String, &'static str),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MakeFolder(path) => write!(f, "make    {path}/"),
            Self::Write(path, _) => write!(f, "write   {path}"),
            Self::Replace(path, _) => write!(f, "replace {path}"),
            Self::MakeUser(_) => write!(f, "make    user {USER}"),
            Self::Remove(path) => write!(f, "remove  {path}"),
            Self::RemoveFolder(path) => write!(f, "remove  {path}/ if it is empty"),
            Self::RemoveUser => write!(f, "remove  user {USER}"),
            Self::Keep(what, why) => write!(f, "keep    {}: {why}", printable(what)),
        }
    }
}

impl Step {
    /// Does it.
    ///
    /// # Errors
    /// Those of the system, with the path.
    pub(super) fn take(&self, target: &Target) -> Result<(), Failure> {
        let at = |path: &str| target.at(path);
        let (doing, path, result) = match self {
            Self::MakeFolder(path) => ("make the folder", path, fs::create_dir_all(at(path))),
            Self::Write(path, text) => ("write", path, write(&at(path), text)),
            Self::Replace(path, text) => ("replace", path, replace(&at(path), text)),
            Self::Remove(path) => ("remove", path, fs::remove_file(at(path))),
            Self::RemoveFolder(path) => ("remove", path, remove_if_empty(&at(path))),
            Self::MakeUser(file) => {
                let file = at(file);
                return account::make(&file).inspect_err(|_| {
                    // It says that the user is one that was made here.
                    let _ = fs::remove_file(&file);
                });
            }
            Self::RemoveUser => return account::remove(),
            Self::Keep(..) => return Ok(()),
        };
        result.map_err(|error| Failure::of_system(doing, at(path).display(), &error))
    }
}

/// What is at a path.
enum PathState {
    Nothing,
    /// The text that would be written.
    Same,
    /// What another version, or other flags, have written.
    Own,
    Other,
}

impl Target {
    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    fn state(&self, path: &str, texts: &[&str]) -> Result<PathState, Failure> {
        match fs::read(self.at(path)) {
            Ok(bytes) if texts.iter().any(|text| text.as_bytes() == bytes) => Ok(PathState::Same),
            Ok(bytes) if is_own(&bytes) => Ok(PathState::Own),
            Ok(_) => Ok(PathState::Other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(PathState::Nothing),
            Err(error) => Err(Failure::of_system("read", self.at(path).display(), &error)),
        }
    }

    /// The steps of an installation.
    ///
    /// # Errors
    /// A file that is there cannot be read.
    pub(super) fn install(&self, texts: &Texts<'_>) -> Result<Vec<Step>, Failure> {
        let user_path = texts.user_path();
        let has_user = self.makes_user && account::exists();
        let mut steps = Vec::new();
        for (path, text) in texts.files() {
            let is_users = path == user_path;
            steps.push(match self.state(&path, &[&text])? {
                PathState::Same => Step::Keep(path.clone(), "it is as it should be"),
                PathState::Own => Step::Replace(path.clone(), text),
                PathState::Other => Step::Keep(path.clone(), CHANGED),
                // Without the file, the user is not one that was made here.
                PathState::Nothing if is_users && has_user => {
                    Step::Keep(format!("user {USER}"), "there is one already")
                }
                PathState::Nothing => Step::Write(path.clone(), text),
            });
            if is_users && self.makes_user && !has_user {
                steps.push(Step::MakeUser(path));
            }
        }
        if !self.at(LOGS).exists() {
            steps.push(Step::MakeFolder(LOGS.into()));
        }
        steps.push(match self.at(SITE).exists() {
            true => Step::Keep(SITE.into(), "the site"),
            false => Step::MakeFolder(SITE.into()),
        });
        Ok(steps)
    }

    /// The steps that undo one of these forms.
    ///
    /// # Errors
    /// The service is enabled, or a file cannot be read.
    pub(super) fn remove(&self, forms: [&Texts<'_>; 2]) -> Result<Vec<Step>, Failure> {
        for (link, unit) in ENABLED {
            if fs::symlink_metadata(self.at(link)).is_ok() {
                return Err(Failure::new("remove", unit, "it is enabled")
                    .help(format!("systemctl disable --now {unit}")));
            }
        }
        let user_path = forms[0].user_path();
        let all: Vec<(String, String)> = forms.iter().flat_map(|form| form.files()).collect();
        let mut paths: Vec<&String> = all.iter().map(|(path, _)| path).collect();
        paths.sort_unstable();
        paths.dedup();
        let mut steps = Vec::new();
        for path in paths {
            let texts = all.iter().filter(|(known, _)| known == path);
            let texts: Vec<&str> = texts.map(|(_, text)| &**text).collect();
            match self.state(path, &texts)? {
                PathState::Nothing => {}
                PathState::Other => steps.push(Step::Keep(path.clone(), CHANGED)),
                PathState::Same | PathState::Own => steps.push(Step::Remove(path.clone())),
            }
        }
        let is_unit = |path: &str| path.ends_with(".service") || path.ends_with(".socket");
        let is_needed = steps
            .iter()
            .any(|step| matches!(step, Step::Keep(path, _) if is_unit(path)));
        let of_user = Step::Remove(user_path.clone());
        if let Some(at) = steps.iter().position(|step| *step == of_user) {
            match is_needed {
                true => steps[at] = Step::Keep(user_path, "a unit that stays may name the user"),
                // First, since it fails while a process is the user's: nothing is removed then.
                false if self.makes_user && account::exists() => steps.insert(0, Step::RemoveUser),
                false => {}
            }
        }
        let folder = Path::new(CONFIGURATION).parent().unwrap_or(Path::new("/"));
        for folder in [folder, Path::new(LOGS)].map(|it| it.to_string_lossy().into_owned()) {
            if self.at(&folder).is_dir() {
                steps.push(Step::RemoveFolder(folder));
            }
        }
        if self.at(SITE).exists() {
            steps.push(Step::Keep(SITE.into(), "the site"));
        }
        Ok(steps)
    }
}

/// Why a file stays that no version of this program has written like this.
const CHANGED: &str = "it has other content";

/// Puts a file in the place of another one.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".gannet-new");
    let new = PathBuf::from(new);
    // What an installation that was cut off has left.
    let _ = fs::remove_file(&new);
    write(&new, text)?;
    fs::rename(new, path)
}

/// Writes a file that is not there, and its folder.
fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(path)?;
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| file.sync_all());
    // Half of it would be kept the next time, as other content.
    written.inspect_err(|_| drop(fs::remove_file(path)))
}

fn remove_if_empty(folder: &Path) -> io::Result<()> {
    match fs::remove_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        result => result,
    }
}
