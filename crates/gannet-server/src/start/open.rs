//! Opens the content to be served, once, before any worker starts.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use gannet_archive::ArchiveError;
use gannet_archive::signature::SignatureError;
use gannet_content::archive::Host;
use gannet_content::mime::TypesError;
use gannet_content::rules::memory::Replaced;
use gannet_content::rules::table::TableError;
use gannet_io::cause::{FileError, cause};
use gannet_io::driver::Errno;
use gannet_io::named_file;
use gannet_io::user;
use gannet_store::StoreError;

use crate::coder::Coder;
use crate::config::{Content, ContentOptions};
use crate::observe::board::unix_now;
use crate::release::archive_room::ArchiveRoom;
use crate::release::directory::DirectoryOptions;
use crate::release::directory::copies::CopiesElsewhere;
use crate::release::opened::{CheckedContent, OpenedDirectory};
use crate::release::rules::{ReadAhead, RulesError, SiteRules};
use crate::start::archive::ArchiveProof;
use crate::start::follow::{LiveDirectory, Location};
use crate::start::releases::origin::{AtPath, InStore, Origin};

/// Why content cannot be served.
#[derive(Debug)]
pub enum OpenError {
    /// A file or directory cannot be opened.
    Io(&'static str, PathBuf, io::Error),
    /// The archive is not valid.
    Archive(PathBuf, ArchiveError),
    /// The rules files of a directory contain errors.
    Rules(PathBuf, RulesError),
    /// The rules in an archive are invalid.
    ArchiveRules(PathBuf, TableError),
    /// A required signature is missing or invalid.
    Signature(PathBuf, SignatureError),
    /// A new archive is not what was packed.
    Damaged(PathBuf, SignatureError),
    /// The file of a release is not the one that was published.
    Other(PathBuf),
    /// Only a part of a release is here, and no process fetches the rest.
    Partial(PathBuf),
    /// An archive that has to be copied into memory does not fit.
    Copy(PathBuf, io::Error),
    /// The store has no release that can be served.
    Store(StoreError),
    /// The path is neither a regular file nor a directory.
    Kind(PathBuf),
    /// The archive is the entry of this host, and has sites for these others alone.
    OtherHosts(PathBuf, String, Vec<String>),
}

/// What [`OpenError::Partial`] says of a release.
const IN_PART: &str = "only a part of the release is here";

/// What [`OpenError::Io`] calls the folder of `--compress CACHE/`.
const COPIES: &str = "folder of copies";

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(what, path, error) => {
                write!(
                    f,
                    "cannot open {what} '{}': {}",
                    path.display(),
                    cause(error)
                )
            }
            Self::Archive(path, error) => {
                write!(f, "cannot open archive '{}': {error}", path.display())
            }
            Self::Rules(path, error) => {
                write!(
                    f,
                    "cannot use the rules of '{}':\n  {error}",
                    path.display()
                )
            }
            Self::ArchiveRules(path, error) => {
                write!(f, "cannot open archive '{}': {error}", path.display())
            }
            Self::Signature(path, error) => {
                write!(f, "cannot serve '{}': {error}", path.display())
            }
            Self::Damaged(path, error) => {
                let what = match error {
                    SignatureError::Body(offset) => format!("the body at offset {offset}"),
                    _ => "its metadata".into(),
                };
                let path = path.display();
                write!(
                    f,
                    "archive '{path}' is damaged: {what} does not match its digest"
                )
            }
            Self::Other(path) => {
                write!(
                    f,
                    "cannot use release '{}': it is not the file that was published",
                    path.display()
                )
            }
            Self::Partial(path) => write!(f, "cannot serve '{}': {IN_PART}", path.display()),
            Self::Copy(path, error) => {
                write!(
                    f,
                    "cannot copy archive '{}' into memory: {}",
                    path.display(),
                    cause(error)
                )
            }
            Self::Store(error) => error.fmt(f),
            Self::Kind(path) => {
                write!(
                    f,
                    "cannot serve '{}': not a regular file or directory",
                    path.display()
                )
            }
            Self::OtherHosts(path, host, others) => {
                let path = path.display();
                write!(f, "cannot serve '{path}' for '{host}': ")?;
                f.write_str("it has no site for that host, only for ")?;
                let shown = others.len().min(OTHER_HOSTS_SHOWN);
                f.write_str(&others[..shown].join(", "))?;
                f.write_str(if others.len() > shown { ", ..." } else { "" })
            }
        }
    }
}

/// Hosts of an archive that a message names.
const OTHER_HOSTS_SHOWN: usize = 3;

impl std::error::Error for OpenError {}

impl OpenError {
    /// How to fix it, if known.
    #[must_use]
    pub fn help(&self) -> Option<String> {
        match self {
            _ if self.of_system().is_some_and(is_descriptors) => {
                Some("raise 'ulimit -n': each worker opens every directory and archive".into())
            }
            Self::Io(what, path, error) => match error.kind() {
                io::ErrorKind::InvalidInput if *what == COPIES => {
                    Some("keep the copies outside of the site".into())
                }
                io::ErrorKind::NotFound if *what == COPIES => {
                    Some("'gannet compress DIR --into CACHE' makes and fills it".into())
                }
                io::ErrorKind::NotFound => Some("check the path".into()),
                io::ErrorKind::PermissionDenied => Some(permission(path)),
                // Only for the folder of a host.
                io::ErrorKind::CrossesDevices => Some(elsewhere(path)),
                _ => None,
            },
            Self::Archive(_, error) => error.help().map(Into::into),
            Self::Rules(_, RulesError::Io(path, error))
                if error.kind() == io::ErrorKind::PermissionDenied =>
            {
                Some(permission(Path::new(path)))
            }
            Self::Rules(..) => {
                Some("fix them, or serve both files as plain files with --no-rules".into())
            }
            Self::ArchiveRules(_, TableError::MemoryOfSites) => {
                Some("pack it with fewer rules, or give the server more memory".into())
            }
            Self::ArchiveRules(..) => Some("pack the site again".into()),
            Self::Copy(..) => Some(
                "--require-signature serves a copy that cannot be changed: give it as much memory \
                 as the archive is long"
                    .into(),
            ),
            Self::Damaged(..) => Some(
                "transfer it again, or pack the site again; 'gannet verify' reads all of it".into(),
            ),
            Self::Other(..) => Some("transfer it again, or publish the release again".into()),
            Self::Partial(_) => Some(
                "serve the URL of the store with '--copy DIR': all of it is copied first, or with \
                 '--on-demand SIZE' what is requested"
                    .into(),
            ),
            Self::Kind(_) => Some("give a directory, a file or an archive".into()),
            Self::Store(error) => error.help(),
            Self::OtherHosts(..) => Some(
                "name the entry after one of its hosts, or pack one folder without --hosts".into(),
            ),
            Self::Signature(..) => None,
        }
    }
}

impl OpenError {
    /// The system's error, if the cause is not the content.
    pub(crate) fn of_system(&self) -> Option<&io::Error> {
        match self {
            Self::Io(_, _, error)
            | Self::Copy(_, error)
            | Self::Store(StoreError::Io(FileError { error, .. })) => Some(error),
            Self::Rules(_, RulesError::Io(_, error)) => Some(error),
            _ => None,
        }
    }

    /// Whether descriptors or memory are used up.
    pub(crate) fn is_shortage(&self) -> bool {
        if matches!(self, Self::ArchiveRules(_, TableError::MemoryOfSites)) {
            return true;
        }
        self.of_system().is_some_and(|error| {
            let is_memory = error.raw_os_error() == Some(Errno::NOMEM.raw_os_error());
            is_memory || is_descriptors(error)
        })
    }
}

/// How to serve an entry of a `--hosts` folder that links out of it.
fn elsewhere(path: &Path) -> String {
    // What is there is not looked at: that may be a file system that does not answer.
    let target = path
        .read_link()
        .ok()
        .and_then(|link| Some(fs::canonicalize(path.parent()?).ok()?.join(link)));
    let target = target.map_or_else(|| "PATH".into(), |it| without_steps_up(&it));
    let is_archive = path.extension().is_some_and(|it| it == "gannet");
    let name = match is_archive {
        true => path.file_stem(),
        false => path.file_name(),
    };
    format!(
        "'--site {}={}' serves a path elsewhere; --follow-links DIR lets links lead into DIR",
        name.unwrap_or_default().display(),
        target.display()
    )
}

/// An absolute path without `.` and `..`, which count as they are written.
fn without_steps_up(path: &Path) -> PathBuf {
    let mut steps = PathBuf::new();
    for step in path.components() {
        match step {
            Component::ParentDir => {
                steps.pop();
            }
            Component::CurDir => {}
            step => steps.push(step),
        }
    }
    steps
}

/// Describes the permission that the user lacks as which gannet runs: to enter the outermost closed folder, else to
/// read `path`.
#[must_use]
pub fn permission(path: &Path) -> String {
    let full = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let folders: Vec<_> = full.ancestors().collect();
    let is_closed = |folder: &&&Path| {
        let inside = fs::metadata(folder.join("."));
        inside.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    };
    let lacks = match folders.iter().rev().find(is_closed) {
        Some(folder) => format!(
            "enter '{}': it needs execute permission on it",
            folder.display()
        ),
        None => format!("read '{}': it needs read permission", path.display()),
    };
    format!(
        "user {}, as which gannet runs, cannot {lacks}",
        user::effective()
    )
}

/// What changes the content that is served.
pub(crate) enum Followed {
    /// A live directory, and its rules.
    Directory(LiveDirectory),
    /// The releases of an archive.
    Releases(Origin),
}

/// Opens content for a number of workers.
#[derive(Clone, Copy)]
pub(crate) struct Opening<'a> {
    pub(crate) options: &'a ContentOptions,
    pub(crate) workers: usize,
    /// Budget for archives copied into memory by default, and for rules.
    pub(crate) room: &'a Arc<ArchiveRoom>,
    /// Codes text of live directories.
    pub(crate) coder: Option<&'a Arc<Coder>>,
    /// The host whose entry in a folder of hosts it is: of an archive, only the site for it is opened.
    pub(crate) host: Option<&'a str>,
    /// What the rules of an archive hold that this one is to replace.
    pub(crate) replaced: Replaced,
}

impl Opening<'_> {
    /// Opens and checks content. Also returns what to follow.
    ///
    /// # Errors
    /// See [`OpenError`]. Content that is already being served is not affected.
    pub(crate) fn open(&self, content: &Content) -> Result<(CheckedContent, Followed), OpenError> {
        let options = self.options;
        if let (
            Some(_),
            Content::Directory(path) | Content::HostFolder(path) | Content::File(path),
        ) = (&options.require_signature, content)
        {
            let error = SignatureError::NoArchive;
            return Err(OpenError::Signature(path.clone(), error));
        }
        match content {
            Content::Directory(path) => self.open_directory((path, false), None),
            Content::HostFolder(path) => self.open_directory((path, true), None),
            Content::File(path) => self.open_single(path),
            Content::Archive(path) => {
                let origin = AtPath::new(path);
                let origin = origin.map_err(|e| OpenError::Io("archive", path.to_owned(), e))?;
                self.open_release(path, ArchiveProof::Valid, Origin::Path(origin))
            }
            Content::Many(many) => Err(OpenError::Kind(many.folder.clone())),
            Content::Store(path) => {
                let key = options.require_signature.as_deref();
                let store = InStore::open(path, key, &options.node, unix_now());
                self.open_store(store.map_err(OpenError::Store)?, unix_now())
            }
        }
    }

    /// The release that a store's pointer names or, if that cannot be served, the newest earlier one
    /// that is whole: a running server would serve that one on.
    pub(crate) fn open_store(
        &self,
        mut store: InStore,
        now: u64,
    ) -> Result<(CheckedContent, Followed), OpenError> {
        let path_of = |store: &InStore, release| store.store.file_of(release);
        let proof = match self.options.require_signature {
            Some(_) => ArchiveProof::Pointer(&store.pointer),
            None => ArchiveProof::Named(&store.pointer),
        };
        let first = self.open_archive(&path_of(&store, store.pointer.release), proof);
        let archive = match first {
            Ok(archive) => archive,
            Err(error) => {
                let whole = store.earlier(now).find_map(|pointer| {
                    let path = path_of(&store, pointer.release);
                    let archive = self.open_archive(&path, ArchiveProof::Pointer(&pointer));
                    Some((archive.ok()?, pointer))
                });
                let (archive, pointer) = whole.ok_or(error)?;
                store.begin_with(pointer);
                archive
            }
        };
        let origin = Origin::Store(Box::new(store));
        Ok((
            CheckedContent::Archive(Arc::new(archive)),
            Followed::Releases(origin),
        ))
    }

    fn open_release(
        &self,
        path: &Path,
        proof: ArchiveProof<'_>,
        origin: Origin,
    ) -> Result<(CheckedContent, Followed), OpenError> {
        let archive = self.open_archive(path, proof)?;
        Ok((
            CheckedContent::Archive(Arc::new(archive)),
            Followed::Releases(origin),
        ))
    }

    fn open_directory(
        &self,
        (path, is_host): (&Path, bool),
        single: Option<Vec<u8>>,
    ) -> Result<(CheckedContent, Followed), OpenError> {
        let refuse = |e| OpenError::Io("directory", path.to_owned(), e);
        // The folder of a single file has neither rules nor error pages.
        let ahead = ReadAhead {
            routing: single
                .is_none()
                .then(|| Arc::new(self.options.routing.clone())),
            pages: single.is_none(),
            compressed_only: self.options.compressed_only,
            memory: Arc::clone(&self.room.rules),
        };
        let outside = &self.options.follow_links;
        let place = Location::new(path, is_host, outside).map_err(refuse)?;
        let root = place.open().map_err(refuse)?;
        // Opening a folder does not require permission to enter it; without this check, the error
        // would misleadingly name its rules files.
        named_file::metadata_below(&root, Path::new(".")).map_err(refuse)?;
        let copies = self.options.copies.as_deref();
        let copies = copies.map(|folder| {
            let opened = CopiesElsewhere::open(folder, path);
            opened.map_err(|e| OpenError::Io(COPIES, folder.to_owned(), e))
        });
        let source = LiveDirectory::new(path, (place, &root), &ahead, self.workers);
        let rules = SiteRules::of_directory(&root, path, &ahead, Replaced::default());
        let rules = rules.map_err(|e| OpenError::Rules(path.to_owned(), e))?;
        let options = DirectoryOptions::new(self.options, single, self.coder);
        let options = options.map_err(|e| refuse(invalid_types(e)))?;
        let roots = (1..self.workers).map(|_| root.reopen());
        let mut roots: Vec<_> = roots.collect::<Result<_, _>>().map_err(refuse)?;
        roots.push(root);
        let directory = OpenedDirectory {
            roots,
            others: Vec::new(),
            copies: copies.transpose()?,
            rules: rules.map(Arc::new),
            options: Arc::new(options),
            kept: Arc::default(),
        };
        Ok((
            CheckedContent::Directory(directory),
            Followed::Directory(source),
        ))
    }

    fn open_single(&self, path: &Path) -> Result<(CheckedContent, Followed), OpenError> {
        let error = |e| OpenError::Io("file", path.to_owned(), e);
        let meta = fs::metadata(path).map_err(error)?;
        let name = match path.file_name() {
            Some(name) if meta.is_file() => name.as_bytes().to_vec(),
            _ => return Err(OpenError::Kind(path.to_owned())),
        };
        named_file::open(path).map_err(error)?;
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        self.open_directory((folder, false), Some(name))
    }
}

/// The content's path if it lacks the page for the single-page application, with the hosts of an
/// archive that lack it. A live directory may get the page later, so that is no error.
pub(crate) fn no_front_page(
    content: &Content,
    what: &CheckedContent,
) -> Option<(PathBuf, Vec<String>)> {
    match (content, what) {
        (
            Content::Directory(path) | Content::HostFolder(path),
            CheckedContent::Directory(directory),
        ) => {
            let page = Path::new("index.html");
            let is_there = |root| named_file::open_below(root, page).is_ok();
            let lacks = directory.options.lookup.spa && !directory.roots.iter().any(is_there);
            lacks.then(|| (path.clone(), Vec::new()))
        }
        (Content::Archive(path) | Content::Store(path), CheckedContent::Archive(opened)) => {
            let lacking = opened.hosts.iter().filter(|(host, ..)| {
                opened.spa && !Host::of(&opened.archive, *host).has_front_page()
            });
            let names: Vec<_> = lacking.map(|(_, names, _)| names.concat()).collect();
            (!names.is_empty()).then(|| (path.clone(), names))
        }
        _ => None,
    }
}

/// Whether the process or the system has no descriptor left (`EMFILE`, `ENFILE`).
fn is_descriptors(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [Errno::MFILE, Errno::NFILE]
        .iter()
        .any(|it| code == Some(it.raw_os_error()))
}

fn invalid_types(error: TypesError) -> io::Error {
    let text = match error {
        TypesError::Suffix => "a configured file name suffix is empty, too long, or has a dot",
        TypesError::ContentType => "a configured content type is malformed",
    };
    io::Error::new(io::ErrorKind::InvalidInput, text)
}
