//! `gannet ls`: lists the contents of an archive.

use std::io::{self, Write};

use clap::ArgMatches;
use gannet_archive::{Coding, Entry, EntryKind, Namespace};
use gannet_site::archive::{
    ArchiveFile, ListedRule, RuleEffect, entry_name, entry_url, hex, rules_of,
};

use gannet_site::target::url;

use crate::json::{string as json_string, strings as json_strings};
use crate::messages::Failure;

/// Lists all URLs in the order of their paths, one per line or as JSON. The long form and JSON also
/// list the rules.
///
/// # Errors
/// The archive cannot be opened, or its rules cannot be read.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    let (is_long, is_json) = (matches.get_flag("long"), matches.get_flag("json"));
    if is_long && is_json {
        return Err(
            Failure::usage("--long has no effect with --json, which has everything")
                .help("leave one of them out"),
        );
    }
    let file = ArchiveFile::open_metadata(&super::archive(matches)?)?;
    let rules = match is_long || is_json {
        true => rules_of(&file)?,
        false => Vec::new(),
    };
    super::write(|out| match is_json {
        true => write_json(&file, &rules, out),
        false => {
            write_lines(&file, is_long, out)?;
            rules.iter().try_for_each(|rule| write_rule(rule, out))
        }
    })
}

fn write_rule(rule: &ListedRule, out: &mut dyn Write) -> io::Result<()> {
    let source = &rule.source;
    match &rule.what {
        RuleEffect::Redirect {
            status,
            target,
            is_forced,
        } => {
            let kind = match is_forced {
                true => "redirect rule, before files",
                false => "redirect rule",
            };
            writeln!(out, "{status:>12}  {kind:<40}  {source} -> {target}")
        }
        RuleEffect::Fields(lines) => {
            let lines = lines.join("; ");
            writeln!(out, "{:>12}  {:<40}  {source}  {lines}", "", "header rule")
        }
    }
}

fn write_lines(file: &ArchiveFile, long: bool, out: &mut dyn Write) -> io::Result<()> {
    for entry in file.archive().entries() {
        let path = entry_name(file.archive(), &entry);
        // Clients cannot request these entries by path.
        if entry.key().namespace != Namespace::Content {
            if long {
                writeln!(out, "{:>12}  {:<40}  {path}", "", codings(&entry))?;
            }
            continue;
        }
        if !long {
            writeln!(out, "{path}")?;
            continue;
        }
        match entry.kind() {
            EntryKind::Redirect { status, location } => {
                let location = String::from_utf8_lossy(location);
                writeln!(
                    out,
                    "{:>12}  {:<40}  {path} -> {location}",
                    status, "redirect"
                )?;
            }
            EntryKind::Content => {
                let len = entry.select(Coding::Identity.into());
                let len = len.map_or_else(|| "-".into(), |variant| variant.blob_len().to_string());
                let kind = String::from_utf8_lossy(entry.content_type()).into_owned();
                let carried = match entry.carried_since() {
                    Some(_) => "  carried",
                    None => "",
                };
                let codings = codings(&entry);
                writeln!(out, "{len:>12}  {codings:<40}  {path}  {kind}{carried}")?;
            }
        }
    }
    Ok(())
}

/// Stored codings other than identity, smallest first: `br 120, gzip 150`; those with a dictionary
/// before the others.
fn codings(entry: &Entry<'_>) -> String {
    let coded = entry
        .dictionary_variants()
        .chain(entry.variants())
        .filter(|variant| variant.coding() != Coding::Identity);
    let list: Vec<_> = coded
        .map(|variant| format!("{} {}", variant.coding().name(), variant.blob_len()))
        .collect();
    list.join(", ")
}

fn write_variants(entry: &Entry<'_>, out: &mut dyn Write) -> io::Result<()> {
    write!(out, ", \"variants\": [")?;
    let variants = entry.variants().chain(entry.dictionary_variants());
    for (number, variant) in variants.enumerate() {
        let comma = if number > 0 { ", " } else { "" };
        let dictionary = variant.dictionary().map(|it| {
            let path = json_string(&url(it.path));
            let sha256 = hex(it.sha256);
            format!("\"dictionary\": {path}, \"dictionary_sha256\": \"{sha256}\", ")
        });
        let dictionary = dictionary.unwrap_or_default();
        write!(
            out,
            "{comma}{{\"coding\": \"{}\", {dictionary}{}\"size\": {}, \"etag\": {}, \"digest\": \"{}\"}}",
            variant.coding().name(),
            match variant.stored_as() {
                Some(coding) => format!("\"stored_as\": \"{}\", ", coding.name()),
                None => String::new(),
            },
            variant.blob_len(),
            json_string(&String::from_utf8_lossy(variant.entity_tag())),
            hex(variant.digest())
        )?;
    }
    write!(out, "]}}")
}

fn write_json(file: &ArchiveFile, rules: &[ListedRule], out: &mut dyn Write) -> io::Result<()> {
    let mut separator = "[";
    for entry in file.archive().entries() {
        write!(
            out,
            "{separator}\n  {{\"url\": {}",
            json_string(&entry_url(file.archive(), &entry))
        )?;
        separator = ",";
        let kind = match (entry.key().namespace, entry.kind()) {
            (Namespace::NotFoundPage, _) => "not-found-page",
            (Namespace::ApplicationPage, _) => "application-page",
            (Namespace::Wildcard, _) => "wildcard",
            (Namespace::Unruled, _) => "behind-rules",
            (_, EntryKind::Redirect { .. }) => "redirect",
            _ if entry.is_generated() => "generated",
            _ if entry.is_alias() => "alias",
            _ if entry.carried_since().is_some() => "carried",
            _ => "file",
        };
        write!(out, ", \"kind\": \"{kind}\"")?;
        if let EntryKind::Redirect { status, location } = entry.kind() {
            let location = json_string(&String::from_utf8_lossy(location));
            write!(out, ", \"status\": {status}, \"location\": {location}}}")?;
            continue;
        }
        let content_type = json_string(&String::from_utf8_lossy(entry.content_type()));
        write!(out, ", \"type\": {content_type}")?;
        if entry.is_immutable() {
            write!(out, ", \"immutable\": true")?;
        }
        if let Some(seconds) = entry.last_modified() {
            write!(out, ", \"last_modified\": {seconds}")?;
        }
        if let Some(seconds) = entry.carried_since() {
            write!(out, ", \"carried_since\": {seconds}")?;
        }
        write_variants(&entry, out)?;
    }
    for rule in rules {
        let source = json_string(&rule.source);
        write!(out, "{separator}\n  {{\"source\": {source}")?;
        separator = ",";
        match &rule.what {
            RuleEffect::Redirect {
                status,
                target,
                is_forced,
            } => write!(
                out,
                ", \"kind\": \"redirect-rule\", \"status\": {status}, \"target\": {}, \
                 \"before_files\": {is_forced}}}",
                json_string(target)
            )?,
            RuleEffect::Fields(lines) => write!(
                out,
                ", \"kind\": \"header-rule\", \"fields\": {}}}",
                json_strings(lines)
            )?,
        }
    }
    writeln!(out, "{}", if separator == "[" { "[]" } else { "\n]" })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use gannet_site::archive::rule_counts;
    use gannet_site::pack::{NoProgress, PackOptions, pack};

    use super::super::inspect;
    use super::*;

    #[test]
    fn ls_and_inspect_show_what_is_there() {
        let place = std::env::temp_dir().join(format!("gannet-ls-{}", std::process::id()));
        fs::create_dir_all(place.join("site/docs")).expect("writable");
        let page = "words ".repeat(1000);
        fs::write(place.join("site/docs/index.html"), page).expect("writable");
        fs::write(place.join("site/a b.txt"), "x").expect("writable");
        fs::write(place.join("site/_redirects"), "/old/* /:splat 302!\n").expect("writable");
        fs::write(place.join("site/_headers"), "/*\n  X-A: b\n  ! X-C\n").expect("writable");
        let archive = place.join("site.gannet");
        let options = PackOptions::new(place.join("site"), &archive);
        pack(&options, &mut NoProgress).expect("a sound site");
        let file = ArchiveFile::open(&archive).expect("a sound archive");
        fs::remove_dir_all(&place).expect("it is ours");
        let shown = |write: &dyn Fn(&mut dyn Write) -> io::Result<()>| {
            let mut out = Vec::new();
            write(&mut out).expect("memory takes everything");
            String::from_utf8(out).expect("text")
        };
        assert_eq!(
            shown(&|out| write_lines(&file, false, out)),
            "/a%20b.txt\n/docs\n/docs/\n/docs/index\n/docs/index.html\n"
        );
        let long = shown(&|out| write_lines(&file, true, out));
        assert!(long.contains("/docs -> /docs/"), "{long}");
        assert!(
            long.lines()
                .any(|line| line.contains("6000") && line.contains("br ")),
            "{long}"
        );
        let rules = rules_of(&file).expect("sound rules");
        let listed = shown(&|out| rules.iter().try_for_each(|rule| write_rule(rule, out)));
        let listed: Vec<Vec<&str>> = listed
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        let expect = [
            "302 redirect rule, before files /old/* -> /:splat",
            "header rule /* ! x-c; x-a: b",
        ];
        assert_eq!(
            listed.iter().map(|it| it.join(" ")).collect::<Vec<_>>(),
            expect
        );
        let json = shown(&|out| write_json(&file, &rules, out));
        let rule = "{\"source\": \"/old/*\", \"kind\": \"redirect-rule\", \"status\": 302, \
                    \"target\": \"/:splat\", \"before_files\": true}";
        assert!(json.contains(rule), "{json}");
        let fields = "\"header-rule\", \"fields\": [\"! x-c\", \"x-a: b\"]}";
        assert!(json.contains(fields), "{json}");
        assert!(
            json.starts_with("[\n  {\"url\": \"/a%20b.txt\", \"kind\": \"file\""),
            "{json}"
        );
        assert!(
            json.contains("\"kind\": \"redirect\", \"status\": 301"),
            "{json}"
        );
        let counts = rule_counts(&file).expect("sound rules");
        let text = shown(&|out| inspect::write_text(&file, counts, out));
        assert!(text.contains("format version   2\n"), "{text}");
        assert!(
            text.contains("redirect rules   1\nheader rules     1\n"),
            "{text}"
        );
        let json = shown(&|out| inspect::write_json(&file, counts, out));
        assert!(json.contains("\"files\": 2,"), "{json}");
    }
}
