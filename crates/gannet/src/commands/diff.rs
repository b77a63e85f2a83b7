//! `gannet diff`: which URLs two archives do not share or answer differently, and which rules and
//! options differ.

use std::io::{self, Write};

use clap::ArgMatches;
use gannet_site::archive::{
    self, Change, Differences, OptionChange, RuleChange, RuleDifference, SiteError,
};

use super::{archive_at, judge, text};
use crate::json;
use crate::messages::{Failure, printable};
use crate::quantities::size;

/// Like diff(1): returns 0 if there is no difference, 1 if there is one, 2 if that cannot be
/// determined.
///
/// # Errors
/// An archive cannot be read.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    let named = |name| archive_at(text(matches, name).into()).map_err(Failure::as_usage);
    let (before, after) = (named("before")?, named("after")?);
    let (before, after) = (before.as_path(), after.as_path());
    let is_json = matches.get_flag("json");
    if let Some(folder) = [before, after].into_iter().find(|path| path.is_dir()) {
        let shown = printable(&folder.to_string_lossy());
        return Err(Failure::new(
            "compare",
            folder.display(),
            "it is a directory, not an archive",
        )
        .as_usage()
        .help(format!(
            "pack it first: 'gannet pack {shown} -o new.gannet'"
        )));
    }
    if matches.get_flag("urls") {
        if is_json {
            let refused = Failure::usage("--json has no effect with --urls, which lists lines");
            return Err(refused.help("leave one of them out"));
        }
        return judge(|out| {
            let found = archive::changed_urls(before, after, &mut |url| writeln!(out, "{url}"))?;
            Ok(found > 0)
        });
    }
    judge(|out| {
        let mut is_first = true;
        let found = archive::diff(before, after, &mut |url, change| {
            match is_json {
                true => write_json(out, is_first, url, change)?,
                false => write_line(out, url, change)?,
            }
            is_first = false;
            Ok(())
        })?;
        let written = match is_json {
            true => end_json(out, &found),
            false => end(out, &found),
        };
        written.map_err(SiteError::Output)?;
        Ok(!found.is_none())
    })
}

fn end(out: &mut dyn Write, found: &Differences) -> io::Result<()> {
    if found.is_none() {
        return writeln!(out, "no differences");
    }
    for change in &found.rules {
        write_rule(out, change)?;
    }
    for OptionChange {
        name,
        before,
        after,
    } in &found.options
    {
        let word = |value: &bool| if *value { "yes" } else { "no" };
        let (before, after) = (word(before), word(after));
        writeln!(out, "~ {name}: {after}  (before: {before})")?;
    }
    write!(
        out,
        "\n{} added, {} changed, {} redirected, {} removed without redirect",
        found.added, found.changed, found.redirected, found.removed
    )?;
    for (count, what) in [
        (found.carried, "carried on"),
        (found.expired, "no longer carried on"),
    ] {
        if count > 0 {
            write!(out, ", {count} {what}")?;
        }
    }
    if found.immutable_changed > 0 {
        write!(
            out,
            "; {} changed that was immutable",
            found.immutable_changed
        )?;
    }
    for (count, what) in [(found.rules.len(), "rule"), (found.options.len(), "option")] {
        match count {
            0 => {}
            1 => write!(out, "; 1 {what} differs")?,
            more => write!(out, "; {more} {what}s differ")?,
        }
    }
    writeln!(out, "\n")?;
    writeln!(
        out,
        "{:<10}{:>12}{:>12}{:>13}",
        "coding", "before", "after", "difference"
    )?;
    for &(coding, a, b) in &found.codings {
        let sign = if b < a { "-" } else { "+" };
        let difference = format!("{sign}{}", size(a.abs_diff(b)));
        let (a, b) = (size(a), size(b));
        writeln!(out, "{:<10}{a:>12}{b:>12}{difference:>13}", coding.name())?;
    }
    Ok(())
}

fn end_json(out: &mut dyn Write, found: &Differences) -> io::Result<()> {
    let open = match found.url_count() {
        0 => "{\"changes\": [",
        _ => "\n",
    };
    let codings = found.codings.iter().map(|(coding, a, b)| {
        let name = coding.name();
        format!("\"{name}\": {{\"before\": {a}, \"after\": {b}}}")
    });
    let codings: Vec<_> = codings.collect();
    let rules: Vec<_> = found.rules.iter().map(rule_json).collect();
    let options = found.options.iter().map(|change| {
        let name = change.name.replace(' ', "_");
        let (before, after) = (change.before, change.after);
        format!("{{\"option\": \"{name}\", \"before\": {before}, \"after\": {after}}}")
    });
    let options: Vec<_> = options.collect();
    writeln!(
        out,
        "{open}], \"added\": {}, \"changed\": {}, \"redirected\": {}, \
         \"carried\": {}, \"expired\": {}, \"removed_without_redirect\": {}, \
         \"immutable_changed\": {}, \"rules\": [{}], \"options\": [{}], \
         \"codings\": {{{}}}}}",
        found.added,
        found.changed,
        found.redirected,
        found.carried,
        found.expired,
        found.removed,
        found.immutable_changed,
        rules.join(", "),
        options.join(", "),
        codings.join(", ")
    )
}

fn write_rule(out: &mut dyn Write, change: &RuleChange) -> io::Result<()> {
    let file = &change.file;
    let (source, before, after) = match &change.what {
        RuleDifference::Rule {
            source,
            before,
            after,
        } => (source, before.as_deref(), after.as_deref()),
        RuleDifference::Order => return writeln!(out, "~ {file}  (order)"),
        RuleDifference::Reading { before, after } => {
            return writeln!(out, "~ {file}  (read as {after}, before: {before})");
        }
    };
    let (mark, now) = match (before, after) {
        (None, _) => ('+', after),
        (Some(_), None) => ('-', before),
        (Some(_), Some(_)) => ('~', after),
    };
    if file.ends_with("_headers") {
        let names = field_names(before.unwrap_or_default(), after.unwrap_or_default());
        return writeln!(out, "{mark} {file}: {source}  ({names})");
    }
    let earlier = match (mark, before) {
        ('~', Some(before)) => format!("  (before: {})", before.concat()),
        _ => String::new(),
    };
    let now = now.unwrap_or_default().concat();
    writeln!(out, "{mark} {file}: {source} {now}{earlier}")
}

/// The fields whose lines differ.
fn field_names(before: &[String], after: &[String]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for line in before.iter().chain(after) {
        let named = line.strip_prefix("! ").unwrap_or(line);
        let name = named.split(':').next().unwrap_or(named);
        let is_same = before.contains(line) && after.contains(line);
        if !is_same && !names.contains(&name) {
            names.push(name);
        }
    }
    match names.is_empty() {
        true => "order".into(),
        false => names.join(", "),
    }
}

fn rule_json(change: &RuleChange) -> String {
    let file = json::string(&change.file);
    let (word, more) = match &change.what {
        RuleDifference::Rule {
            source,
            before,
            after,
        } => {
            let word = match (before, after) {
                (None, _) => "added",
                (Some(_), None) => "removed",
                (Some(_), Some(_)) => "changed",
            };
            let lines = |it: &Option<Vec<String>>| json::strings(it.as_deref().unwrap_or_default());
            let (source, before, after) = (json::string(source), lines(before), lines(after));
            let more = format!(", \"source\": {source}, \"before\": {before}, \"after\": {after}");
            (word, more)
        }
        RuleDifference::Order => ("order", String::new()),
        RuleDifference::Reading { before, after } => (
            "reading",
            format!(", \"before\": [\"{before}\"], \"after\": [\"{after}\"]"),
        ),
    };
    format!("{{\"change\": \"{word}\", \"file\": {file}{more}}}")
}

fn write_line(out: &mut dyn Write, name: &str, change: &Change) -> io::Result<()> {
    match change {
        Change::Added => writeln!(out, "+ {name}"),
        Change::Removed { .. } => writeln!(out, "- {name}"),
        Change::Changed {
            what,
            was_immutable,
        } => {
            let more = match was_immutable {
                true => "; it was immutable: browsers keep the old one",
                false => "",
            };
            writeln!(out, "~ {name}  ({}{more})", what.join(", "))
        }
        Change::Redirected(to) => writeln!(out, "> {name}  (to {to})"),
        Change::Carried => writeln!(out, "* {name}  (no longer part of the site, carried on)"),
        Change::Expired => writeln!(out, "- {name}  (no longer carried on)"),
    }
}

fn write_json(out: &mut dyn Write, is_first: bool, name: &str, change: &Change) -> io::Result<()> {
    let open = if is_first { "{\"changes\": [" } else { "," };
    let (word, more) = match change {
        Change::Added => ("added", String::new()),
        Change::Removed { was_immutable } => {
            ("removed", format!(", \"was_immutable\": {was_immutable}"))
        }
        Change::Changed {
            what,
            was_immutable,
        } => {
            let what = json::strings(what);
            let more = format!(", \"what\": {what}, \"was_immutable\": {was_immutable}");
            ("changed", more)
        }
        Change::Carried => ("carried", String::new()),
        Change::Expired => ("expired", String::new()),
        Change::Redirected(to) => (
            "redirected",
            format!(", \"location\": {}", json::string(to)),
        ),
    };
    let url = json::string(name);
    write!(
        out,
        "{open}\n  {{\"change\": \"{word}\", \"url\": {url}{more}}}"
    )
}
