//! The operator's file of users, and the paths that it protects. It is read again when it changes.

use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gannet_content::routing::{Routing, hidden_segment};
use gannet_content::rules::problem::Problem;
use gannet_content::rules::protection::{Forms, Paths, parse_path};
use gannet_content::rules::users::{User, parse_file};
use gannet_content::rules::{Compat, SourceFile};
use gannet_io::cause::cause;
use gannet_io::named_file;

use crate::bounds::limits::PASSWORD_FILE_MAX;
use crate::config::{Content, ContentOptions, Hosted, PasswordOptions};
use crate::watch::in_time::until_it_answers;
use crate::watch::notices::ERRORS;

/// What a file without users means.
pub(crate) const NO_USER: &str = "names no user: no client may have what it protects";

/// The users of a file, and what they alone may have.
#[derive(Debug)]
pub(crate) struct PasswordFile {
    pub(crate) users: Vec<User>,
    pub(crate) paths: Arc<Paths>,
}

/// Why a password file cannot be used.
#[derive(Debug)]
pub enum PasswordFileError {
    /// It cannot be read.
    Io(PathBuf, io::Error),
    /// All that is wrong in it.
    Problems(Vec<Problem>),
    /// It is in this served directory, and not hidden there.
    Served(PathBuf, PathBuf),
}

impl fmt::Display for PasswordFileError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(path, error) => {
                let path = path.display();
                write!(
                    out,
                    "cannot read the password file '{path}': {}",
                    cause(error)
                )
            }
            Self::Served(path, site) => write!(
                out,
                "cannot use the password file '{}': everyone could get it, as it is in the served \
                 directory '{}'",
                path.display(),
                site.display()
            ),
            Self::Problems(problems) => {
                let lines = problems.iter().map(ToString::to_string);
                write!(out, "{}", lines.collect::<Vec<_>>().join("\n  "))
            }
        }
    }
}

impl std::error::Error for PasswordFileError {}

impl PasswordFileError {
    /// How to fix it, if known.
    #[must_use]
    pub fn help(&self) -> Option<String> {
        match self {
            Self::Io(..) => Some("'gannet password USER >> FILE' makes one".into()),
            Self::Served(..) => Some("move it out of the directory".into()),
            Self::Problems(problems) => problems
                .iter()
                .find_map(|problem| problem.what.help())
                .map(Into::into),
        }
    }
}

impl PasswordFile {
    /// Reads the file of these options, if there is one.
    ///
    /// # Errors
    /// See [`PasswordFileError`].
    pub(crate) fn open(
        options: &PasswordOptions,
        contents: &[Hosted],
        content: &ContentOptions,
    ) -> Result<Option<Arc<Self>>, PasswordFileError> {
        let Some(path) = &options.file else {
            return Ok(None);
        };
        until_it_answers(path);
        if let Some(site) = serving(path, contents, content.dotfiles) {
            return Err(PasswordFileError::Served(path.clone(), site));
        }
        let mut paths = options.paths.clone();
        if paths.is_empty() {
            paths.extend(parse_path("/*"));
        }
        let paths = Arc::new(Paths::new(&paths, forms(contents, content)));
        let users = read(path)?;
        if users.is_empty() {
            let path = path.display();
            ERRORS.log(format_args!(
                "gannet: the password file '{path}' {NO_USER}\nhelp: 'gannet password USER >> FILE' \
                 adds a user, without a restart"
            ));
        }
        Ok(Some(Arc::new(Self { users, paths })))
    }

    /// Its users, if it protects this path, in these forms of its site as well.
    pub(crate) fn protecting(&self, path: &[u8], of_site: Option<&Forms>) -> Option<&[User]> {
        let is_covered =
            self.paths.cover(path) || of_site.is_some_and(|forms| self.paths.cover_in(forms, path));
        is_covered.then_some(&self.users)
    }
}

/// Under which paths the content of all sites may be found. Archives may also come later; index names of their
/// own are among their rules. A single file is at its own name and at `/`, as if it were an index page.
fn forms(contents: &[Hosted], content: &ContentOptions) -> Forms {
    let has_own = contents.iter().any(|hosted| match hosted.content {
        Content::Directory(_) | Content::HostFolder(_) | Content::File(_) => false,
        Content::Archive(_) | Content::Store(_) | Content::Many(_) => true,
    });
    let names = contents.iter().filter_map(|hosted| match &hosted.content {
        Content::File(path) => path.file_name(),
        _ => None,
    });
    let own = Routing {
        index_names: names.map(|name| name.as_encoded_bytes().to_vec()).collect(),
        ..content.routing.clone()
    };
    let own = [&content.routing, &own];
    match has_own {
        true => of_archives(&own),
        false => Forms::new(own).with_copies_alone(content.compressed_only),
    }
}

/// The same for an archive.
pub(crate) fn forms_of_archive(routing: &Routing) -> Forms {
    of_archives(&[routing])
}

/// The same for archives, which have been packed for any dialect, and perhaps from files that exist only
/// compressed.
fn of_archives(own: &[&Routing]) -> Forms {
    let others = [Compat::Netlify, Compat::Cloudflare, Compat::Kawipiko].map(Routing::new);
    let own = own.iter().copied();
    Forms::new(others.iter().chain(own)).with_copies_alone(true)
}

/// The live directory that serves a file, if any does.
fn serving(path: &Path, contents: &[Hosted], dotfiles: bool) -> Option<PathBuf> {
    let full = path.canonicalize().ok()?;
    let directories = contents.iter().filter_map(|hosted| match &hosted.content {
        Content::Directory(site) | Content::HostFolder(site) => Some(site),
        Content::Many(many) => Some(&many.folder),
        Content::File(_) | Content::Archive(_) | Content::Store(_) => None,
    });
    let mut serving = directories.filter(|site| {
        let site = site.canonicalize();
        let inner = site.as_ref().ok().and_then(|it| full.strip_prefix(it).ok());
        inner
            .is_some_and(|inner| dotfiles || hidden_segment(inner.as_os_str().as_bytes()).is_none())
    });
    serving.next().cloned()
}

pub(crate) fn read(path: &Path) -> Result<Vec<User>, PasswordFileError> {
    let text = named_file::read(path, PASSWORD_FILE_MAX)
        .map_err(|error| PasswordFileError::Io(path.to_owned(), error))?;
    let file = SourceFile {
        path: &path.to_string_lossy(),
        text: &text,
    };
    parse_file(&file).map_err(PasswordFileError::Problems)
}
