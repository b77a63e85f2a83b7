//! Inspects a site without a server: what each path resolves to, and why.
//!
//! The answers are the server's, since the code is shared: `gannet_content::directory::lookup`
//! resolves paths of directories, `gannet_content::archive` those of archives. Only names are kept
//! in memory; contents are read on request.

mod archive;
mod directory;
mod rules;

use std::io;
use std::path::{Path, PathBuf};

use gannet_archive::SectionKind;
use gannet_content::directory::lookup::LookupOptions;
use gannet_content::policy::defaults::ICON_PATH;
use gannet_content::routing::Routing;
use gannet_content::rules::matcher::RuleInput;
use gannet_content::rules::pattern::Scheme;
use gannet_io::links::Outside;

use crate::archive::{ArchiveFile, SiteError, host_name};

pub use archive::ArchivePlace;
pub use directory::{DirectoryPlace, WhyNot, may};
pub use rules::Rules;

/// How a site is inspected.
#[derive(Clone, Debug)]
pub struct SiteOptions {
    /// A directory or an archive.
    pub path: PathBuf,
    /// How paths of a directory are resolved, and the dialect of its rules files.
    pub routing: Routing,
    /// How a directory is served; an archive records this itself.
    pub lookup: LookupOptions,
    /// A server has a built-in icon for a site without one.
    pub icon: bool,
    /// Folders outside of a directory into which its links may lead.
    pub outside: Outside,
}

/// A site.
#[derive(Debug)]
pub struct Site {
    place: Place,
    rules: Rules,
    icon: bool,
    /// The rules of virtual hosts with rules of their own, from number 1 on.
    host_rules: Vec<Rules>,
}

/// The source of a site's files.
#[derive(Debug)]
pub enum Place {
    /// In a directory.
    Directory(DirectoryPlace),
    /// In an archive.
    Archive(Box<ArchivePlace>),
}

/// A file of a site. Its number is its position in [`Site::files`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SiteFile {
    /// The virtual host of an archive; 0 for any.
    pub host: u16,
    /// Its path: decoded, beginning with a slash.
    pub url: Vec<u8>,
    /// Its content type.
    pub content_type: String,
    /// It belongs to an earlier release, and is carried on.
    pub is_carried: bool,
}

/// A request, as far as it selects an answer.
#[derive(Clone, Copy, Debug)]
pub struct RequestUrl<'a> {
    /// The virtual host of an archive; 0 for any.
    pub host: u16,
    /// The host as rules see it; may be empty.
    pub host_name: &'a str,
    /// The scheme as rules see it.
    pub scheme: Scheme,
    /// The path in canonical form.
    pub path: &'a [u8],
    /// The query.
    pub query: Option<&'a str>,
    /// A browser navigates to a page.
    pub is_navigation: bool,
    /// The first of the client's languages; may be empty.
    pub language: &'a str,
}

impl RequestUrl<'_> {
    /// The input of rules.
    #[must_use]
    pub fn rule_input(&self) -> RuleInput<'_> {
        RuleInput {
            prefix: b"",
            scheme: self.scheme,
            host: self.host_name.as_bytes(),
            path: self.path,
            query: self.query.map(str::as_bytes),
            language: self.language.as_bytes(),
        }
    }
}

/// The answer for a path.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Located {
    /// The file with this number, sent with this status.
    File(usize, u16),
    /// A redirect, by a rule or by a missing slash.
    Redirect {
        /// 301, 302, 303, 307 or 308.
        status: u16,
        /// A path of this site, percent-encoded, or a URL.
        location: String,
        /// The position of the rule.
        rule: Option<u32>,
    },
    /// A listing of a folder, sent with this status.
    Listing(u16),
    /// The server's built-in icon.
    Icon,
    /// 404, 410 or 451, with this file as its page if the site has one.
    Missing(Option<usize>, u16),
    /// 403.
    Forbidden,
}

impl Site {
    /// Inspects a site.
    ///
    /// # Errors
    /// The site cannot be read, or is neither a directory nor an archive.
    pub fn open(options: &SiteOptions) -> Result<Self, SiteError> {
        let metadata =
            std::fs::metadata(&options.path).map_err(SiteError::io("open", &options.path))?;
        if metadata.is_dir() {
            let directory = DirectoryPlace::scan(options)?;
            let rules = match options.routing.rules {
                Some(compat) => Rules::read(options, compat)?,
                None => Rules::default(),
            };
            let place = Place::Directory(directory);
            return Ok(Self {
                place,
                rules,
                icon: options.icon,
                host_rules: Vec::new(),
            });
        }
        let site = Self::of_archive(&options.path, options.lookup.spa)?;
        Ok(Self {
            icon: options.icon,
            ..site
        })
    }

    /// Inspects an archive, as served with `--spa` or without.
    ///
    /// # Errors
    /// The file cannot be read, or is not an archive.
    pub fn of_archive(path: &Path, spa: bool) -> Result<Self, SiteError> {
        Self::of_file(ArchiveFile::open(path)?, spa)
    }

    /// Inspects a release of which only a part is here: what it has, and not what that contains.
    ///
    /// # Errors
    /// The file cannot be read, or is no such part.
    pub fn of_part(options: &SiteOptions) -> Result<Self, SiteError> {
        let file = ArchiveFile::open_metadata(&options.path)?;
        let site = Self::of_file(file, options.lookup.spa)?;
        Ok(Self {
            icon: options.icon,
            ..site
        })
    }

    fn of_file(file: ArchiveFile, spa: bool) -> Result<Self, SiteError> {
        let archive = ArchivePlace::new(file, spa);
        let file = archive.file();
        let rules = Rules::of_archive(file, 0)?;
        let mut host_rules = Vec::new();
        if file.archive().section(SectionKind::HostRules).is_some() {
            let numbers = 1..=file.archive().hosts().len() as u16;
            let rules = numbers.map(|host| Rules::of_archive(file, host));
            host_rules = rules.collect::<Result<_, _>>()?;
        }
        Ok(Self {
            place: Place::Archive(Box::new(archive)),
            rules,
            icon: false,
            host_rules,
        })
    }

    /// The source of its files.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The rules of a host.
    #[must_use]
    pub fn rules(&self, host: u16) -> &Rules {
        let own = usize::from(host).checked_sub(1);
        own.and_then(|number| self.host_rules.get(number))
            .unwrap_or(&self.rules)
    }

    /// The name of a virtual host.
    #[must_use]
    pub fn host_name(&self, host: u16) -> Option<&str> {
        match &self.place {
            Place::Directory(_) => None,
            Place::Archive(archive) => {
                let name = host_name(archive.file().archive(), host);
                (!name.is_empty()).then_some(name)
            }
        }
    }

    /// The rules, each with the first host they apply to.
    pub fn all_rules(&self) -> impl Iterator<Item = (u16, &Rules)> {
        (0..).zip([&self.rules].into_iter().chain(&self.host_rules))
    }

    /// Its files, ordered by host and path; additional names of a file are omitted.
    #[must_use]
    pub fn files(&self) -> &[SiteFile] {
        match &self.place {
            Place::Directory(directory) => directory.files(),
            Place::Archive(archive) => archive.files(),
        }
    }

    /// The uncoded content of a file, or `None` if it is longer than `max` bytes.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(&self, number: usize, max: u64) -> io::Result<Option<Vec<u8>>> {
        match &self.place {
            Place::Directory(directory) => directory.read(number, max),
            Place::Archive(archive) => archive.read(number, max),
        }
    }

    /// A server's answer; redirects are not followed.
    #[must_use]
    pub fn locate(&self, asked: RequestUrl<'_>) -> Located {
        self.locate_and_report(asked, &mut |_| {})
    }

    /// The same; calls `report` with each step in words.
    pub fn locate_and_report(
        &self,
        asked: RequestUrl<'_>,
        report: &mut dyn FnMut(String),
    ) -> Located {
        let rules = self.rules(asked.host);
        let located = match &self.place {
            Place::Directory(directory) => directory.locate(&asked, rules, report),
            Place::Archive(archive) => archive.locate(&asked, rules, report),
        };
        // Takes precedence over the site's 404 page, which is not an icon.
        if self.icon && matches!(located, Located::Missing(..)) && asked.path == ICON_PATH {
            report("the site has no icon: the server sends its built-in one".into());
            return Located::Icon;
        }
        located
    }

    /// Whether a path of a host has content, ignoring rules.
    #[must_use]
    pub fn has_content(&self, host: u16, path: &[u8]) -> bool {
        match &self.place {
            Place::Directory(directory) => directory.has_content(path),
            Place::Archive(archive) => archive.has_content(host, path),
        }
    }

    /// A file whose path differs only in case.
    #[must_use]
    pub fn differently_spelled(&self, asked: RequestUrl<'_>) -> Option<Vec<u8>> {
        match &self.place {
            Place::Directory(directory) => directory.differently_spelled(asked.path),
            Place::Archive(archive) => archive.differently_spelled(asked.host, asked.path),
        }
    }

    /// A folder whose names cannot be read, if there is one.
    #[must_use]
    pub fn closed_folder(&self) -> Option<PathBuf> {
        match &self.place {
            Place::Directory(directory) => directory.closed_folder(),
            Place::Archive(_) => None,
        }
    }

    /// The symbolic links of a directory that the server does not follow, by path relative to it, in
    /// order.
    #[must_use]
    pub fn unfollowed_links(&self) -> Vec<(&[u8], WhyNot)> {
        match &self.place {
            Place::Directory(directory) => directory.unfollowed_links(),
            Place::Archive(_) => Vec::new(),
        }
    }

    /// Why a path that exists is not served.
    #[must_use]
    pub fn why_not(&self, path: &[u8]) -> Option<WhyNot> {
        match &self.place {
            Place::Directory(directory) => directory.why_not(path),
            Place::Archive(_) => None,
        }
    }

    /// The path of a file for messages: in the directory, or its URL in an archive.
    #[must_use]
    pub fn shown(&self, number: usize) -> String {
        let Some(file) = self.files().get(number) else {
            return String::new();
        };
        let relative = file.url.strip_prefix(b"/").unwrap_or(&file.url);
        match &self.place {
            Place::Directory(_) => String::from_utf8_lossy(relative).into_owned(),
            Place::Archive(archive) => {
                let host = host_name(archive.file().archive(), file.host);
                let url = crate::target::url(&file.url);
                match host {
                    "" => url,
                    host => format!("//{host}{url}"),
                }
            }
        }
    }

    /// The directory, or the archive.
    #[must_use]
    pub fn path(&self) -> &Path {
        match &self.place {
            Place::Directory(directory) => directory.root(),
            Place::Archive(archive) => archive.file().path(),
        }
    }
}

/// Folds to lower case, to find names that differ in case only.
fn folded(path: &[u8]) -> Vec<u8> {
    match str::from_utf8(path) {
        Ok(text) => text.to_lowercase().into_bytes(),
        Err(_) => path.to_ascii_lowercase(),
    }
}

/// The names to try for `path`: itself, a page, a folder's index page.
fn names_of(path: &[u8]) -> [Vec<u8>; 4] {
    let bare = path.strip_suffix(b"/").unwrap_or(path);
    [
        path.to_vec(),
        [bare, b".html"].concat(),
        [bare, b"/index.html"].concat(),
        bare.to_vec(),
    ]
}
