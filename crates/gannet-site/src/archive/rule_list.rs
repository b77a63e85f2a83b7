//! Lists the rules of an archive.

use gannet_archive::SectionKind;

use super::{ArchiveFile, SiteError, host_name};
use crate::offline::Rules;

/// The rule tables of an archive with their host numbers: one table for all hosts, or one per host.
pub(super) fn tables(file: &ArchiveFile) -> Result<Vec<(u16, Rules)>, SiteError> {
    let last = match file.archive().section(SectionKind::HostRules) {
        Some(_) => file.archive().hosts().len() as u16,
        None => 0,
    };
    let tables = (0..=last).map(|host| Ok((host, Rules::of_archive(file, host)?)));
    tables.collect()
}

/// How many rules an archive has.
#[derive(Clone, Copy, Debug, Default)]
pub struct RuleCounts {
    /// Redirects.
    pub redirects: u64,
    /// Field rules.
    pub headers: u64,
}

/// Counts the rules of an archive.
///
/// # Errors
/// The rules cannot be read.
pub fn rule_counts(file: &ArchiveFile) -> Result<RuleCounts, SiteError> {
    let mut counts = RuleCounts::default();
    for (_, rules) in tables(file)? {
        let redirects = rules.redirects().map_or(0, |it| it.redirects().rules.len());
        let headers = rules.headers().map_or(0, |it| it.headers().rules.len());
        counts.redirects += redirects as u64;
        counts.headers += headers as u64;
    }
    Ok(counts)
}

/// One rule.
#[derive(Debug)]
pub struct ListedRule {
    /// The requests it matches, after `//host` if it is a rule of a virtual host.
    pub source: String,
    /// What it does.
    pub what: RuleEffect,
}

/// What a rule does.
#[derive(Debug)]
pub enum RuleEffect {
    /// It redirects, or sends the content of another path.
    Redirect {
        /// The status of the answer.
        status: u16,
        /// A path or a URL, with the names of placeholders.
        target: String,
        /// It takes precedence over a file.
        is_forced: bool,
    },
    /// It sets (`name: value`) and removes (`! name`) fields.
    Fields(Vec<String>),
}

/// All rules of an archive, redirects before fields.
///
/// # Errors
/// The rules cannot be read.
pub fn rules_of(file: &ArchiveFile) -> Result<Vec<ListedRule>, SiteError> {
    let mut listed = Vec::new();
    for (host, rules) in tables(file)? {
        let on_host = |source: String| match host_name(file.archive(), host) {
            // The source names its host already.
            name if name.is_empty() || !source.starts_with('/') => source,
            name => format!("//{name}{source}"),
        };
        if let Some(table) = rules.redirects().map(|table| table.redirects()) {
            listed.extend(table.rules.iter().map(|rule| ListedRule {
                source: on_host(rule.source_text()),
                what: RuleEffect::Redirect {
                    status: rule.status,
                    target: rule.target_text(),
                    is_forced: rule.is_forced,
                },
            }));
        }
        if let Some(table) = rules.headers().map(|table| table.headers()) {
            listed.extend(table.rules.iter().map(|rule| ListedRule {
                source: on_host(rule.source_text()),
                what: RuleEffect::Fields(rule.operation_texts().collect()),
            }));
        }
    }
    Ok(listed)
}
