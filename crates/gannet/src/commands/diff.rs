//! `gannet diff`: which URLs one archive has that another has not, or has differently.

use std::io::{self, Write};
use std::path::Path;

use clap::ArgMatches;
use gannet_site::archive::{self, Change, Differences, SiteError};

use super::{judge, text};
use crate::json;
use crate::messages::Failure;
use crate::quantities::size;

/// Like diff(1): 0 if there is no difference, 1 if there is, 2 if that cannot be determined.
///
/// # Errors
/// An archive cannot be read.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    let [before, after] = ["before", "after"].map(|name| Path::new(text(matches, name)));
    let is_json = matches.get_flag("json");
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
        Ok(found.url_count() > 0)
    })
}

fn end(out: &mut dyn Write, found: &Differences) -> io::Result<()> {
    if found.url_count() == 0 {
        return writeln!(out, "no differences");
    }
    writeln!(
        out,
        "\n{} added, {} changed, {} redirected, {} removed without redirect\n",
        found.added, found.changed, found.redirected, found.removed
    )?;
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
    writeln!(
        out,
        "{open}], \"added\": {}, \"changed\": {}, \"redirected\": {}, \
         \"removed_without_redirect\": {}, \"codings\": {{{}}}}}",
        found.added,
        found.changed,
        found.redirected,
        found.removed,
        codings.join(", ")
    )
}

fn write_line(out: &mut dyn Write, name: &str, change: &Change) -> io::Result<()> {
    match change {
        Change::Added => writeln!(out, "+ {name}"),
        Change::Removed => writeln!(out, "- {name}"),
        Change::Changed(what) => writeln!(out, "~ {name}  ({})", what.join(", ")),
        Change::Redirected(to) => writeln!(out, "> {name}  (to {to})"),
    }
}

fn write_json(out: &mut dyn Write, is_first: bool, name: &str, change: &Change) -> io::Result<()> {
    let open = if is_first { "{\"changes\": [" } else { "," };
    let (word, more) = match change {
        Change::Added => ("added", String::new()),
        Change::Removed => ("removed", String::new()),
        Change::Changed(what) => {
            let what = json::strings(what);
            ("changed", format!(", \"what\": {what}"))
        }
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
