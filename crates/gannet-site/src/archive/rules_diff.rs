//! Differences between two archives besides their entries: rules and options.

use std::collections::{BTreeMap, BTreeSet};

use super::{ArchiveFile, SiteError, host_name, host_number};
use crate::offline::Rules;

/// A difference between the rules of two archives.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RuleChange {
    /// `_redirects` or `_headers`, after `//host/` on a virtual host.
    pub file: String,
    /// The difference.
    pub what: RuleDifference,
}

/// How rules differ.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RuleDifference {
    /// A rule that is new, gone, or changed.
    Rule {
        /// The requests it matches.
        source: String,
        /// Its earlier effect: target and status, or one line per field. `None` if it is new.
        before: Option<Vec<String>>,
        /// Its later effect. `None` if it is gone.
        after: Option<Vec<String>>,
    },
    /// The same rules in another order.
    Order,
    /// The same rules in another dialect.
    Reading {
        /// The earlier dialect.
        before: &'static str,
        /// The later dialect.
        after: &'static str,
    },
}

/// A differing option that affects answers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OptionChange {
    /// Its name.
    pub name: &'static str,
    /// Whether it was on.
    pub before: bool,
    /// Whether it is on.
    pub after: bool,
}

/// The options that differ.
pub(super) fn options(before: &ArchiveFile, after: &ArchiveFile) -> Vec<OptionChange> {
    let (old, new) = (before.archive().options(), after.archive().options());
    let all = [
        ("spa", old.spa, new.spa),
        ("slash redirects", old.slash_redirects, new.slash_redirects),
    ];
    let changes = all.map(|(name, before, after)| OptionChange {
        name,
        before,
        after,
    });
    let differ = changes.into_iter().filter(|it| it.before != it.after);
    differ.collect()
}

/// The rules that differ, host by host.
///
/// # Errors
/// The rules cannot be read.
pub(super) fn rules(
    before: &ArchiveFile,
    after: &ArchiveFile,
) -> Result<Vec<RuleChange>, SiteError> {
    let mut names = BTreeSet::new();
    for file in [before, after] {
        let archive = file.archive();
        let numbers = 0..=archive.hosts().len() as u16;
        names.extend(numbers.map(|number| host_name(archive, number)));
    }
    let mut changes = Vec::new();
    for name in names {
        let of = |file: &ArchiveFile| match host_number(file.archive(), name.as_bytes()) {
            0 if !name.is_empty() => Ok(Rules::default()),
            number => Rules::of_archive(file, number),
        };
        let (old, new) = (of(before)?, of(after)?);
        let file = |file: &str| match name {
            "" => file.to_owned(),
            host => format!("//{host}/{file}"),
        };
        changes.extend(compare(
            &file("_redirects"),
            redirects(&old),
            redirects(&new),
        ));
        changes.extend(compare(&file("_headers"), fields(&old), fields(&new)));
    }
    Ok(changes)
}

/// Rules as text: the requests they match, and their effects.
#[derive(Debug, Default)]
struct Texts {
    reading: &'static str,
    rules: Vec<(String, Vec<String>)>,
}

fn redirects(rules: &Rules) -> Texts {
    let Some(table) = rules.redirects().map(|table| table.redirects()) else {
        return Texts::default();
    };
    let text = table.rules.iter().map(|rule| {
        let outcome = rule.outcome_text(table.compat);
        (rule.source_text(), vec![outcome])
    });
    Texts {
        reading: table.compat.name(),
        rules: text.collect(),
    }
}

fn fields(rules: &Rules) -> Texts {
    let Some(table) = rules.headers().map(|table| table.headers()) else {
        return Texts::default();
    };
    let text = table.rules.iter();
    let text = text.map(|rule| (rule.source_text(), rule.operation_texts().collect()));
    Texts {
        reading: table.compat.name(),
        rules: text.collect(),
    }
}

fn compare(file: &str, old: Texts, new: Texts) -> Vec<RuleChange> {
    let mut changes = Vec::new();
    let mut push = |what| {
        let file = file.to_owned();
        changes.push(RuleChange { file, what });
    };
    let are_there = !old.rules.is_empty() && !new.rules.is_empty();
    if are_there && old.reading != new.reading {
        push(RuleDifference::Reading {
            before: old.reading,
            after: new.reading,
        });
    }
    // A source may have several rules; they are compared in order.
    let (before, after) = (by_source(&old), by_source(&new));
    let sources: BTreeSet<&str> = before.keys().chain(after.keys()).copied().collect();
    let mut is_same = true;
    for source in sources {
        let none = Vec::new();
        let a = before.get(source).unwrap_or(&none);
        let b = after.get(source).unwrap_or(&none);
        for number in 0..a.len().max(b.len()) {
            let (before, after) = (a.get(number), b.get(number));
            if before != after {
                is_same = false;
                push(RuleDifference::Rule {
                    source: source.to_owned(),
                    before: before.map(|it| it.to_vec()),
                    after: after.map(|it| it.to_vec()),
                });
            }
        }
    }
    if is_same && old.rules != new.rules {
        push(RuleDifference::Order);
    }
    changes
}

fn by_source(texts: &Texts) -> BTreeMap<&str, Vec<&[String]>> {
    let mut by_source: BTreeMap<&str, Vec<&[String]>> = BTreeMap::new();
    for (source, outcome) in &texts.rules {
        by_source.entry(source).or_default().push(outcome);
    }
    by_source
}
