//! The rules of a site: from its files, or from an archive.

use std::io;
use std::path::Path;

use gannet_archive::HostRules;
use gannet_content::routing::Routing;
use gannet_content::rules::files::{RulesRoom, redirects_files};
use gannet_content::rules::headers;
use gannet_content::rules::limits::RULES_FILE_MAX;
use gannet_content::rules::problem::Problem;
use gannet_content::rules::redirects;
use gannet_content::rules::table::{HeaderTable, RedirectTable, Ruled};
use gannet_content::rules::{Compat, Place, SourceFile};
use gannet_io::driver::Root;
use gannet_io::named_file;

use super::SiteOptions;
use crate::archive::{ArchiveFile, SiteError};

/// The name of the file of redirects.
const REDIRECTS: &str = "_redirects";
/// The name of the file of fields.
const HEADERS: &str = "_headers";

/// Redirects and fields of a site.
#[derive(Debug, Default)]
pub struct Rules {
    redirects: Option<RedirectTable>,
    headers: Option<HeaderTable>,
    /// The redirect files, in the order in which they were read.
    files: Vec<String>,
    /// Mistakes in the files.
    problems: Vec<Problem>,
    is_of_archive: bool,
}

impl Rules {
    /// Reads `_redirects` and `_headers` of a directory.
    pub(super) fn read(options: &SiteOptions, compat: Compat) -> Result<Self, SiteError> {
        let (root, routing) = (options.path.as_path(), &options.routing);
        let mut rules = Self::default();
        let directory = Root::open_with(root, &options.outside);
        let directory = directory.map_err(SiteError::io("open", root))?;
        let names = redirects_files(compat, |folder| directory.names(folder))
            .map_err(SiteError::io("read", root))?;
        let mut room = RulesRoom::default();
        let mut read = |name: &str| read((&directory, root), name, &mut room);
        let mut texts = Vec::new();
        for name in names {
            if let Some(text) = read(&name)? {
                texts.push(text);
                rules.files.push(name);
            }
        }
        let files: Vec<_> = rules
            .files
            .iter()
            .zip(&texts)
            .map(|(path, text)| SourceFile { path, text })
            .collect();
        if !files.is_empty() {
            let (found, problems) = redirects::parse(&files, compat);
            rules.problems.extend(problems);
            rules.redirects = Some(RedirectTable::new(found));
        }
        if let Some(text) = read(HEADERS)? {
            let file = SourceFile {
                path: HEADERS,
                text: &text,
            };
            let (found, problems) = headers::parse(&file, compat);
            rules.problems.extend(problems);
            let table = HeaderTable::new(found).with_routing(routing, false);
            rules.problems.extend(table.problem(HEADERS));
            rules.headers = Some(table);
        }
        Ok(rules)
    }

    /// The rules of a host of an archive.
    ///
    /// # Errors
    /// The rules cannot be read.
    pub fn of_archive(file: &ArchiveFile, host: u16) -> Result<Self, SiteError> {
        let archive = file.archive();
        let damaged = |what| SiteError::Damaged {
            archive: file.path().to_path_buf(),
            what: format!("its {what} cannot be read"),
        };
        let HostRules { redirects, fields } = archive.rules(host);
        let redirects = (!redirects.is_empty())
            .then(|| RedirectTable::parse(redirects).map_err(|_| damaged("redirect rules")))
            .transpose()?;
        let headers = (!fields.is_empty())
            .then(|| HeaderTable::parse(fields).map_err(|_| damaged("field rules")))
            .transpose()?;
        let routing = Routing {
            index_names: archive.index_names().map(<[u8]>::to_vec).collect(),
            ..Routing::default()
        };
        Ok(Self {
            redirects,
            headers: headers.map(|table| table.with_routing(&routing, false)),
            files: vec![REDIRECTS.into()],
            problems: Vec::new(),
            is_of_archive: true,
        })
    }

    /// The redirects.
    #[must_use]
    pub fn redirects(&self) -> Option<&RedirectTable> {
        self.redirects.as_ref()
    }

    /// The fields.
    #[must_use]
    pub fn headers(&self) -> Option<&HeaderTable> {
        self.headers.as_ref()
    }

    /// Mistakes in the files; the rules of an archive have none.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The files with redirects, in their order.
    #[must_use]
    pub fn redirect_files(&self) -> Vec<&str> {
        self.files.iter().map(String::as_str).collect()
    }

    /// `_redirects:3`.
    #[must_use]
    pub fn place_of_redirect(&self, rule: u32) -> String {
        let rules = self
            .redirects
            .as_ref()
            .map(|table| &table.redirects().rules);
        let rule = rules.and_then(|rules| rules.get(rule as usize));
        let place = rule.map(|rule| rule.place);
        let file = place.and_then(|place| self.files.get(usize::from(place.file)));
        shown(file.map_or(REDIRECTS, String::as_str), place)
    }

    /// The outcome of the redirect rules for a request, in words.
    pub(super) fn verdict(&self, ruled: Option<&Ruled>) -> String {
        match ruled {
            None => "no redirect rule applies".into(),
            Some(Ruled::Unknown) => "finding the redirect rule takes too many steps".into(),
            Some(Ruled::Elsewhere {
                status,
                location,
                rule,
            }) => {
                let place = self.place_of_redirect(*rule);
                let location = String::from_utf8_lossy(location);
                format!("{place}: {} to {location}", status.0)
            }
            Some(Ruled::Content { status, path, rule }) => {
                let place = self.place_of_redirect(*rule);
                let shown = crate::target::url(path);
                format!("{place}: the content of {shown}, with {}", status.0)
            }
        }
    }

    /// `_headers:3`: the lines from which a field has its value, of these rules that match. Of an
    /// archive, where the rules begin.
    #[must_use]
    pub fn places_of_field(&self, rules: &[u32], name: &str) -> Vec<String> {
        let table = self.headers.iter();
        let lines = table.flat_map(|table| table.lines_of(rules, name));
        let places = lines.map(|line| Place {
            line,
            ..Place::default()
        });
        places.map(|place| shown(HEADERS, Some(place))).collect()
    }

    /// Whether the rules come from an archive, without their files.
    #[must_use]
    pub fn is_of_archive(&self) -> bool {
        self.is_of_archive
    }
}

fn shown(file: &str, place: Option<Place>) -> String {
    match place {
        Some(place) if place.line > 0 => format!("{file}:{}", place.line),
        _ => file.to_owned(),
    }
}

/// Reads a rules file of the directory at `path`, if it exists, like the server.
fn read(
    (directory, path): (&Root, &Path),
    name: &str,
    room: &mut RulesRoom,
) -> Result<Option<Vec<u8>>, SiteError> {
    let fail = |error| SiteError::io("read", &path.join(name))(error);
    match named_file::read_below(directory, Path::new(name), RULES_FILE_MAX) {
        Ok(text) => room.take(&text).map(|()| Some(text)).map_err(fail),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(fail(error)),
    }
}
