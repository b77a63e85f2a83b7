//! Opening what is to be served, once, before any worker starts.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use gannet_archive::{Archive, ArchiveError, Namespace, SUPERBLOCK_LEN, SectionKind, Superblock};
use gannet_content::mime::TypesError;
use gannet_content::rules::table::TableError;
use gannet_io::driver::{Errno, File, Root};
use gannet_io::memory::{self, Memory};

use crate::archive_room::ArchiveRoom;
use crate::config::{Content, ContentOptions};
use crate::rules_watch::RulesSource;
use crate::signature::{self, PublicKey, SignatureError};
use crate::site::archive::ArchiveSite;
use crate::site::directory::DirectorySite;
use crate::site::files::ServedFiles;
use crate::site::inflated::Inflated;
use crate::site::rules::{RulesError, SiteRules};
use crate::site::{Site, Trust};

/// Content that was opened and checked.
pub(crate) enum OpenedContent {
    /// A directory, or one file of it.
    Directory {
        path: PathBuf,
        single: Option<Vec<u8>>,
        rules: Option<Arc<SiteRules>>,
        /// Where the rules came from, if there may be any.
        source: Option<RulesSource>,
    },
    /// An archive whose metadata is valid.
    Archive {
        path: PathBuf,
        archive: Arc<Archive<Vec<u8>>>,
        /// The archive, or the sealed copy of it if that was asked for.
        file: fs::File,
        len: u64,
        is_sealed: bool,
        /// Its hosts with their names, and the rules of each.
        hosts: Vec<ArchiveHost>,
    },
}

/// The number of a host in an archive, its names, and its rules.
pub(crate) type ArchiveHost = (u16, Vec<String>, Option<Arc<SiteRules>>);

/// Why content cannot be served.
#[derive(Debug)]
pub enum OpenError {
    /// A file or directory cannot be opened.
    Io(&'static str, PathBuf, io::Error),
    /// The archive is not valid.
    Archive(PathBuf, ArchiveError),
    /// The rules files of a directory have mistakes.
    Rules(PathBuf, RulesError),
    /// The rules in an archive cannot be read.
    ArchiveRules(PathBuf, TableError),
    /// A signature was asked for and is not there, or wrong.
    Signature(PathBuf, SignatureError),
    /// The path is neither a regular file nor a directory.
    Kind(PathBuf),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(what, path, error) => {
                write!(f, "cannot open {what} '{}': {error}", path.display())
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
            Self::Kind(path) => {
                write!(
                    f,
                    "cannot serve '{}': not a regular file or directory",
                    path.display()
                )
            }
        }
    }
}

impl std::error::Error for OpenError {}

impl OpenError {
    /// What to do about it, if we know.
    #[must_use]
    pub fn help(&self) -> Option<String> {
        match self {
            Self::Io(_, _, error) => match error.kind() {
                io::ErrorKind::NotFound => Some("check the path".into()),
                io::ErrorKind::PermissionDenied => {
                    Some("make it readable for the user that gannet runs as".into())
                }
                _ if is_descriptors(error) => {
                    Some("raise 'ulimit -n': each worker opens every directory and archive".into())
                }
                _ => None,
            },
            Self::Archive(_, error) => error.help().map(Into::into),
            Self::Rules(..) => {
                Some("mend them, or serve both files as they are with --no-rules".into())
            }
            Self::ArchiveRules(..) => Some("pack the site again".into()),
            Self::Signature(_, error) => Some(error.help().into()),
            Self::Kind(_) => Some("give a directory, a file or an archive".into()),
        }
    }
}

impl OpenedContent {
    /// Opens and checks. An archive for which there is `room` is copied into memory.
    ///
    /// # Errors
    /// See [`OpenError`]. Whatever a previous server serves is not touched.
    pub(crate) fn open(
        content: &Content,
        options: &ContentOptions,
        room: &mut ArchiveRoom,
    ) -> Result<Self, OpenError> {
        if let (Some(_), Content::Directory(path) | Content::File(path)) =
            (&options.require_signature, content)
        {
            let error = SignatureError::NoArchive;
            return Err(OpenError::Signature(path.clone(), error));
        }
        match content {
            Content::Directory(path) => {
                Root::open(path).map_err(|e| OpenError::Io("directory", path.clone(), e))?;
                let source = options.routing.rules.map(|it| RulesSource::new(path, it));
                let load = |compat| SiteRules::of_directory(path, compat);
                let rules = options.routing.rules.map(load).transpose();
                let rules = rules.map_err(|e| OpenError::Rules(path.clone(), e))?;
                Ok(Self::Directory {
                    path: path.clone(),
                    single: None,
                    rules: rules.flatten().map(Arc::new),
                    source,
                })
            }
            Content::File(path) => Self::open_single(path),
            Content::Archive(path) => Self::open_archive(path, options, room),
        }
    }

    fn open_single(path: &Path) -> Result<Self, OpenError> {
        let error = |e| OpenError::Io("file", path.to_owned(), e);
        let meta = fs::metadata(path).map_err(error)?;
        let name = match path.file_name() {
            Some(name) if meta.is_file() => name.as_bytes().to_vec(),
            _ => return Err(OpenError::Kind(path.to_owned())),
        };
        fs::File::open(path).map_err(error)?;
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        Ok(Self::Directory {
            path: folder,
            single: Some(name),
            rules: None,
            source: None,
        })
    }

    fn open_archive(
        path: &Path,
        options: &ContentOptions,
        room: &mut ArchiveRoom,
    ) -> Result<Self, OpenError> {
        let io_error = |e| OpenError::Io("archive", path.to_owned(), e);
        let bad = |e| OpenError::Archive(path.to_owned(), e);
        let file = fs::File::open(path).map_err(io_error)?;
        let len = file.metadata().map_err(io_error)?.len();
        let mut first = vec![0; SUPERBLOCK_LEN.min(usize::try_from(len).unwrap_or(usize::MAX))];
        file.read_exact_at(&mut first, 0).map_err(io_error)?;
        let superblock = Superblock::parse(&first, len).map_err(bad)?;
        let range = superblock.metadata_range();
        let size = usize::try_from(range.end - range.start).map_err(|_| {
            io_error(io::Error::new(
                io::ErrorKind::OutOfMemory,
                "its index is too large",
            ))
        })?;
        let metadata = memory::read_large(&file, range.start, size).map_err(io_error)?;
        let archive = Arc::new(Archive::new(superblock, metadata).map_err(bad)?);
        let bad_rules = |e| OpenError::ArchiveRules(path.to_owned(), e);
        let hosts = hosts_with_rules(&archive).map_err(bad_rules)?;
        let whole = usize::try_from(len).unwrap_or(usize::MAX);
        let copy = || memory::sealed_copy(&file, whole);
        let copy = if options.archive_memory {
            Some(copy().map_err(io_error)?)
        } else {
            // Without a copy it is mapped: that is slower, and no reason not to serve.
            let is_granted = room.take(len);
            let copy = is_granted.then(|| copy().ok()).flatten();
            if is_granted && copy.is_none() {
                room.give_back(len);
            }
            copy
        };
        let is_sealed = copy.is_some();
        let file = copy.map_or(file, fs::File::from);
        if let Some(key) = &options.require_signature {
            // The bodies are those of the file that will be sent from: the sealed copy, if asked for.
            PublicKey::parse(key)
                .ok_or(SignatureError::Key)
                .and_then(|key| signature::check(&archive, &key))
                .and_then(|()| signature::check_bodies(&archive, &file))
                .map_err(|error| OpenError::Signature(path.to_owned(), error))?;
        }
        if options.preload && !is_sealed {
            Memory::map(&file, 0, whole)
                .and_then(|m| m.preload())
                .map_err(io_error)?;
        }
        Ok(Self::Archive {
            path: path.to_owned(),
            archive,
            file,
            len,
            is_sealed,
            hosts,
        })
    }

    /// Bytes of it that are copied into memory, for as long as it is served.
    pub(crate) fn copied_len(&self) -> u64 {
        match self {
            Self::Archive {
                is_sealed: true,
                len,
                ..
            } => *len,
            Self::Archive { .. } | Self::Directory { .. } => 0,
        }
    }

    /// The rules files that are to be watched.
    pub(crate) fn rules_source(&self) -> Option<RulesSource> {
        match self {
            Self::Directory { source, .. } => source.clone(),
            Self::Archive { .. } => None,
        }
    }

    /// The content as one of several workers sees it, with the hosts that an archive names.
    /// `files` are all that the worker sends from, and `memory` bytes are there to remember small
    /// files, or what an archive has as gzip alone.
    pub(crate) fn sites(
        &self,
        options: &ContentOptions,
        files: &ServedFiles,
        memory: u64,
    ) -> Result<Vec<(Vec<String>, Site)>, OpenError> {
        match self {
            Self::Directory {
                path,
                single,
                rules,
                ..
            } => {
                let refuse = |e| OpenError::Io("directory", path.clone(), e);
                let root = Root::open(path).map_err(refuse)?;
                let mut site = DirectorySite::new(root, options, single.clone(), files, memory)
                    .map_err(|e| refuse(invalid_types(e)))?;
                site.set_rules(rules.clone());
                Ok(vec![(Vec::new(), Site::Directory(site))])
            }
            Self::Archive {
                path,
                archive,
                file,
                len,
                is_sealed,
                hosts,
            } => {
                let whole = usize::try_from(*len).unwrap_or(usize::MAX);
                // A description of its own, so that each worker has its own guard.
                let refuse = |e| OpenError::Io("archive", path.clone(), e);
                let own = reopen(file).map_err(refuse)?;
                let inflated = Inflated::new(memory);
                let memory = match is_sealed {
                    true => Memory::map_sealed(&own),
                    false => Memory::map(&own, 0, whole),
                };
                let memory = memory.map_err(refuse)?;
                let memory = Arc::new(memory);
                let file = files.add(File::from(own), None, Trust::Constant);
                let first_host = hosts.first().map_or(0, |(host, ..)| *host);
                let site = |host, rules: &Option<Arc<SiteRules>>| {
                    Site::Archive(ArchiveSite {
                        archive: Arc::clone(archive),
                        memory: Arc::clone(&memory),
                        file: Rc::clone(&file),
                        inflated: inflated.clone(),
                        spa: options.spa || archive.options().spa,
                        is_sealed: *is_sealed,
                        host,
                        is_first_host: host == first_host,
                        fallbacks: ArchiveSite::fallbacks(archive, host),
                        rules: rules.clone().map(Rc::new),
                    })
                };
                let sites = hosts.iter();
                let sites = sites.map(|(host, names, rules)| (names.clone(), site(*host, rules)));
                Ok(sites.collect())
            }
        }
    }
}

/// The hosts of an archive with their names; that of all others comes first, if it has content.
pub(crate) fn hosts(archive: &Archive<Vec<u8>>) -> Vec<(u16, Vec<String>)> {
    let name = |name| vec![String::from_utf8_lossy(name).into_owned()];
    let mut hosts: Vec<_> = (1..).zip(archive.hosts().map(name)).collect();
    if hosts.is_empty() || archive.has_namespace(0, Namespace::Content) {
        hosts.insert(0, (0, Vec::new()));
    }
    hosts
}

/// The same with the rules of each; rules that hold for all of them are shared.
fn hosts_with_rules(archive: &Archive<Vec<u8>>) -> Result<Vec<ArchiveHost>, TableError> {
    let read = |host| Ok(SiteRules::of_archive(archive, host)?.map(Arc::new));
    let shared = match archive.section(SectionKind::HostRules) {
        Some(_) => None,
        None => Some(read(0)?),
    };
    let with_rules = |(host, names)| {
        let rules = match &shared {
            Some(rules) => rules.clone(),
            None => read(host)?,
        };
        Ok((host, names, rules))
    };
    hosts(archive).into_iter().map(with_rules).collect()
}

/// Whether the process or the machine has no descriptor left (`EMFILE`, `ENFILE`).
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

/// The same file (not whatever has its name by now) under a new open file description.
fn reopen(file: &fs::File) -> io::Result<fs::File> {
    use std::os::fd::AsRawFd;
    fs::File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).or_else(|_| file.try_clone())
}
