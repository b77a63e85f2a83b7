//! Reads and checks the rules files of a site, and stores them as sections of the archive.

use gannet_archive::{SectionKind, Writer};
use gannet_content::routing::Routing;
use gannet_content::rules::SourceFile as RulesFile;
use gannet_content::rules::files::RulesRoom;
use gannet_content::rules::headers::{self, FieldChanges};
use gannet_content::rules::limits::RULES_FILE_MAX;
use gannet_content::rules::lint::lint;
use gannet_content::rules::matcher::RuleInput;
use gannet_content::rules::pattern::Scheme;
use gannet_content::rules::problem::{Problem, has_errors};
use gannet_content::rules::redirects::{self, Redirects};
use gannet_content::rules::steps::Steps;
use gannet_content::rules::table::{HeaderTable, RedirectTable};
use gannet_io::named_file;

use super::PackError;
use super::walk::SourceFile;

/// The site's own rules.
#[derive(Debug, Default)]
pub(super) struct SiteRules {
    redirects: Option<RedirectTable>,
    headers: Option<HeaderTable>,
    /// The files with redirects, in the order in which they were parsed.
    files: Vec<String>,
}

/// The contents that redirect rules send instead of the requested path.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum RuleContents {
    /// Only these paths, or none.
    Paths(Vec<Vec<u8>>),
    /// Any path: a placeholder selects it.
    Any,
}

impl SiteRules {
    /// Removes the rules files from the files of the site and parses them.
    pub(super) fn take(files: &mut Vec<SourceFile>, routing: &Routing) -> Result<Self, PackError> {
        let Some(compat) = routing.rules else {
            return Ok(Self::default());
        };
        let is_rules = |file: &mut SourceFile| routing.is_rules_file(&file.url[1..]);
        let mut found: Vec<SourceFile> = files.extract_if(.., is_rules).collect();
        // In the order of the folders: the root's file is consulted first.
        found.sort_by_key(|file| (depth(&file.url), file.url.clone()));
        let mut room = RulesRoom::default();
        let mut texts = Vec::new();
        for file in &found {
            let text = named_file::read(&file.path, RULES_FILE_MAX)
                .and_then(|text| room.take(&text).map(|()| text))
                .map_err(PackError::io("read", &file.path))?;
            texts.push((String::from_utf8_lossy(&file.url[1..]).into_owned(), text));
        }
        let (headers, redirects): (Vec<_>, Vec<_>) =
            texts.iter().partition(|(path, _)| path == "_headers");
        let redirects: Vec<RulesFile<'_>> = redirects
            .iter()
            .map(|(path, text)| RulesFile { path, text })
            .collect();
        let (table, mut problems) = redirects::parse(&redirects, compat);
        let mut rules = Self {
            redirects: (!table.rules.is_empty()).then(|| RedirectTable::new(table)),
            headers: None,
            files: redirects.iter().map(|file| file.path.to_owned()).collect(),
        };
        for (path, text) in headers {
            let (table, more) = headers::parse(&RulesFile { path, text }, compat);
            problems.extend(more);
            problems.extend(table.clear_password(path));
            let table = (!table.rules.is_empty()).then(|| HeaderTable::new(table));
            problems.extend(table.as_ref().and_then(|table| table.problem(path)));
            rules.headers = table;
        }
        if has_errors(&problems) {
            return Err(PackError::Rules(problems));
        }
        rules.check_users(files)?;
        rules.check_fields(files)?;
        Ok(rules)
    }

    /// Whether there are none. A site may consist of rules alone: one that has moved.
    pub(super) fn is_empty(&self) -> bool {
        self.redirects.is_none() && self.headers.is_none()
    }

    /// Fields of files that are stored with them are not too much.
    fn check_fields(&self, files: &[SourceFile]) -> Result<(), PackError> {
        let Some(table) = self.headers.as_ref().filter(|table| !table.has_hosts()) else {
            return Ok(());
        };
        for file in files {
            if let Err(excess) = table.changes(&asked_for(&file.url), &Steps::default()) {
                return Err(PackError::Rules(vec![excess.problem("_headers")]));
            }
        }
        Ok(())
    }

    /// What a compressed file holds is for none but the users of that file.
    fn check_users(&self, files: &[SourceFile]) -> Result<(), PackError> {
        let Some(table) = self.headers.as_ref().filter(|table| table.has_users()) else {
            return Ok(());
        };
        for file in files {
            let Some(stored) = file.stored_url() else {
                continue;
            };
            let has = |list| {
                table
                    .users(&file.url, &Steps::default())
                    .any(|own| own == list)
            };
            if !table.users(&stored, &Steps::default()).all(has) {
                let [path, stored] = [&file.url, &stored].map(|url| String::from_utf8_lossy(url));
                return Err(PackError::OtherUsers(path.into(), stored.into()));
            }
        }
        Ok(())
    }

    /// Warns about rules that work, but probably not as intended.
    pub(super) fn lint(&self, has_content: &dyn Fn(&[u8]) -> bool) -> Vec<Problem> {
        let files: Vec<&str> = self.files.iter().map(String::as_str).collect();
        let redirects = self.redirects.iter();
        let problems = redirects.flat_map(|table| lint(table, &files, has_content));
        let headers = self.headers.iter();
        problems
            .chain(headers.flat_map(|table| table.lint("_headers")))
            .collect()
    }

    /// Whether a redirect rule answers a path that has no content.
    pub(super) fn answer(&self, path: &[u8]) -> bool {
        let table = self.redirects.as_ref();
        table.is_some_and(|table| {
            table
                .for_missing(&asked_for(path), &Steps::default())
                .is_some()
        })
    }

    /// Whether there are field rules, and the fields of a path depend on the path alone.
    pub(super) fn has_fixed_fields(&self) -> bool {
        self.headers
            .as_ref()
            .is_some_and(|table| !table.has_hosts())
    }

    /// Whether the fields of a path depend on the requested host.
    pub(super) fn has_host_fields(&self) -> bool {
        let table = self.headers.as_ref();
        table.is_some_and(HeaderTable::has_hosts)
    }

    /// The changes to the fields of a path's own content, unless they are decided at run time.
    pub(super) fn changes(&self, url: &[u8]) -> Option<FieldChanges> {
        let table = self.headers.as_ref().filter(|table| !table.has_hosts())?;
        // What is too much for a file was refused.
        Some(
            table
                .changes(&asked_for(url), &Steps::default())
                .unwrap_or_default(),
        )
    }

    /// The contents that rules send for other paths.
    pub(super) fn contents(&self) -> RuleContents {
        let mut paths = Vec::new();
        let rules = self.redirects.as_ref().map(RedirectTable::redirects);
        for rule in rules.map_or(&[][..], |Redirects { rules, .. }| rules) {
            if rule.is_redirect() {
                continue;
            }
            match rule.target.static_path() {
                Some(path) => paths.push(path),
                None => return RuleContents::Any,
            }
        }
        RuleContents::Paths(paths)
    }

    /// Redirects and fields as sections of an archive; empty if there are none.
    pub(super) fn compile(&self) -> (Vec<u8>, Vec<u8>) {
        let redirects = self.redirects.as_ref().map(RedirectTable::compile);
        let fields = self.headers.as_ref().map(HeaderTable::compile);
        (redirects.unwrap_or_default(), fields.unwrap_or_default())
    }

    /// Stores the rules in the archive.
    pub(super) fn store(&self, writer: &mut Writer) {
        let (redirects, fields) = self.compile();
        writer.set_section(SectionKind::RedirectRules, redirects);
        writer.set_section(SectionKind::FieldRules, fields);
    }
}

/// A request of which rules see the path alone.
fn asked_for(path: &[u8]) -> RuleInput<'_> {
    RuleInput {
        prefix: b"",
        scheme: Scheme::Https,
        host: b"",
        path,
        query: None,
        language: b"",
    }
}

fn depth(url: &[u8]) -> usize {
    url.iter().filter(|byte| **byte == b'/').count()
}
