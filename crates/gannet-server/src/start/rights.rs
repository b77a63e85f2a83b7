//! What a server that changes its user reads and makes again while it serves, tried with that user's
//! rights before it gives up root's.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use gannet_content::rules::Compat;
use gannet_io::cause::cause;
use gannet_io::driver::Root;
use gannet_io::links::Outside;
use gannet_io::named_file;

use crate::config::{Content, Hosted, RunAs};
use crate::release::directory::copies::enter;
use crate::start::follow::{Location, names};
use crate::start::open::OpenError;
use crate::start::start_error::StartError;
use crate::tls::watch::CertificateSource;
use crate::watch::in_time::however_long;

/// What the user cannot do again that root can: the server starts all the same.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Denied {
    user: String,
    path: PathBuf,
    cause: String,
    use_of_it: Use,
}

/// What a server does with a path while it serves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Use {
    /// Reads again what replaces it.
    Reads,
    /// Opens compressed copies below it.
    Copies,
    /// Makes it again, as its log, after a rotation.
    Makes,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            user, path, cause, ..
        } = self;
        let path = path.display();
        match self.use_of_it {
            Use::Makes => write!(
                f,
                "'{user}' cannot make '{path}' again: {cause}; once that is renamed, requests are logged \
                 to the renamed file"
            ),
            Use::Copies => write!(
                f,
                "'{user}' cannot enter '{path}': {cause}; none of the compressed copies there is sent"
            ),
            Use::Reads => write!(
                f,
                "'{user}' cannot read '{path}' again: {cause}; what replaces it is not used unless that user can read it"
            ),
        }
    }
}

impl Denied {
    /// How to fix it.
    #[must_use]
    pub fn help(&self) -> &'static str {
        match self.use_of_it {
            Use::Makes => {
                "give that user or its group the right to write to the folder, or have what renames the \
                 log make the new one, as logrotate's 'create' does"
            }
            Use::Copies => {
                "give that user or its group the right to enter it and to read what is in it"
            }
            Use::Reads => "give that user or its group the right to read it",
        }
    }
}

/// What a server reads or makes again while it serves.
#[derive(Clone, Copy, Debug)]
pub struct Again<'a> {
    /// Its content.
    pub contents: &'a [Hosted],
    /// Directories have rules of this dialect.
    pub rules: Option<Compat>,
    /// Its certificates.
    pub certificates: Option<&'a CertificateSource>,
    /// Its password file.
    pub passwords: Option<&'a Path>,
    /// The folder of its compressed copies.
    pub copies: Option<&'a Path>,
    /// Its log file.
    pub log: Option<&'a Path>,
}

impl Again<'_> {
    /// Tries all of it as the user that the server becomes; returns what that user cannot do.
    ///
    /// # Errors
    /// A directory of which the user could open no file, or the only file; the user cannot be had.
    pub fn denied_to(&self, RunAs { name, user }: &RunAs) -> Result<Vec<Denied>, StartError> {
        let tried = user.act(|| try_all(self, name));
        tried.map_err(|error| StartError::User(name.clone(), error))?
    }
}

/// Opens a file or a store, which is a folder; nothing else that is no file, as a FIFO would wait.
fn read(path: &Path) -> io::Result<()> {
    match fs::metadata(path)?.is_dir() {
        true => File::open(path).map(drop),
        false => named_file::open(path).map(drop),
    }
}

fn try_all(again: &Again<'_>, user: &str) -> Result<Vec<Denied>, StartError> {
    let mut all: Vec<Denied> = Vec::new();
    let mut keep = |path: &Path, use_of_it, tried: io::Result<()>| {
        if let Some(error) = tried.err().filter(is_of_rights)
            && all.iter().all(|it| it.path != path)
        {
            all.push(Denied {
                user: user.to_owned(),
                path: path.to_owned(),
                cause: cause(&error),
                use_of_it,
            });
        }
    };
    for Hosted { content, .. } in again.contents {
        let (path, is_host) = match content {
            Content::Archive(path) | Content::Store(path) => {
                keep(path, Use::Reads, read(path));
                continue;
            }
            Content::Directory(path) => (&**path, false),
            Content::HostFolder(path) => (&**path, true),
            Content::Many(many) => (&*many.folder, false),
            Content::File(path) => match path.parent() {
                Some(folder) if !folder.as_os_str().is_empty() => (folder, false),
                _ => (Path::new("."), false),
            },
        };
        let denied = |what, path: &Path, error| {
            let error = OpenError::Io(what, path.to_owned(), error);
            // The help depends on the rights of the caller.
            StartError::Denied(error.to_string(), error.help())
        };
        let root = match however_long(path, || open(path, is_host)) {
            Ok(root) => root,
            // Few hosts are opened before the user changes.
            Err(error) if matches!(content, Content::Many(many) if many.are_opened_at_start()) => {
                keep(path, Use::Reads, Err(error));
                continue;
            }
            Err(error) if is_of_rights(&error) => return Err(denied("directory", path, error)),
            Err(_) => continue,
        };
        // Nothing else is served.
        if let Content::File(path) = content
            && let Some(error) = read(path).err().filter(is_of_rights)
        {
            return Err(denied("file", path, error));
        }
        if !matches!(content, Content::File(_) | Content::Many(_)) {
            for name in names(&root, again.rules, true) {
                let opened = named_file::open_below(&root, Path::new(&name));
                keep(&path.join(name), Use::Reads, opened.map(drop));
            }
        }
    }
    let certificates = again.certificates.into_iter();
    let files = certificates.flat_map(CertificateSource::files);
    for path in files.chain(again.passwords) {
        keep(path, Use::Reads, read(path));
    }
    if let Some(folder) = again.copies {
        keep(folder, Use::Copies, enter(folder).map(drop));
    }
    if let Some(log) = again.log {
        // A device or a FIFO is never made, and to open one may wait; nor is a name for what is open already.
        let is_named = ["/dev", "/proc"].iter().any(|it| log.starts_with(it));
        let is_special = is_named || fs::metadata(log).is_ok_and(|meta| !meta.is_file());
        if !is_special {
            keep(log, Use::Makes, named_file::may_make(log));
        }
    }
    Ok(all)
}

/// Whether rights are the cause. Whatever else is wrong is found by opening it with root's; and what is not
/// there yet can be ordered, and is then the user's own.
fn is_of_rights(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem)
}

/// Opens a directory, and looks into it: that takes the right to enter it.
fn open(path: &Path, is_host: bool) -> io::Result<Root> {
    let root = Location::new(path, is_host, &Outside::default())?.open()?;
    named_file::metadata_below(&root, Path::new("."))?;
    Ok(root)
}
