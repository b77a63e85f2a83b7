//! `gannet ls`: what an archive holds.

use std::io::{self, Write};
use std::path::PathBuf;

use gannet_archive::{Coding, Entry, EntryKind, Namespace};

use super::{ArchiveFile, CommandError, entry_name, entry_url, hex, json_string};

/// What to list, and how.
#[derive(Clone, Debug)]
pub struct LsOptions {
    /// The archive.
    pub archive: PathBuf,
    /// With sizes, codings and content types.
    pub long: bool,
    /// As a JSON array with everything.
    pub json: bool,
}

/// Lists all URLs, in the order of their paths: one a line, or as JSON.
///
/// # Errors
///
/// The archive cannot be opened, or `out` takes no more.
pub fn ls(options: &LsOptions, out: &mut dyn Write) -> Result<(), CommandError> {
    let file = ArchiveFile::open(&options.archive)?;
    let mut out = io::BufWriter::new(out);
    let written = if options.json {
        write_json(&file, &mut out)
    } else {
        write_lines(&file, options.long, &mut out)
    };
    written
        .and_then(|()| out.flush())
        .map_err(CommandError::Output)
}

fn write_lines(file: &ArchiveFile, long: bool, out: &mut dyn Write) -> io::Result<()> {
    for entry in file.archive().entries() {
        let path = entry_name(file.archive(), &entry);
        // Pages for what is missing are no paths that a client can ask for.
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
                let len = entry.select(Coding::Identity.bit());
                let len = len.map_or_else(|| "-".into(), |variant| variant.blob_len().to_string());
                let kind = String::from_utf8_lossy(entry.content_type()).into_owned();
                writeln!(out, "{len:>12}  {:<40}  {path}  {kind}", codings(&entry))?;
            }
        }
    }
    Ok(())
}

/// `br 120, gzip 150`: what is stored beside identity, smallest first.
fn codings(entry: &Entry<'_>) -> String {
    let coded = entry
        .variants()
        .filter(|variant| variant.coding() != Coding::Identity);
    let list: Vec<_> = coded
        .map(|variant| format!("{} {}", variant.coding().name(), variant.blob_len()))
        .collect();
    list.join(", ")
}

fn write_json(file: &ArchiveFile, out: &mut dyn Write) -> io::Result<()> {
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
        if let Some(seconds) = entry.last_modified() {
            write!(out, ", \"last_modified\": {seconds}")?;
        }
        write!(out, ", \"variants\": [")?;
        for (number, variant) in entry.variants().enumerate() {
            let comma = if number > 0 { ", " } else { "" };
            write!(
                out,
                "{comma}{{\"coding\": \"{}\", {}\"size\": {}, \"etag\": {}, \"digest\": \"{}\"}}",
                variant.coding().name(),
                match variant.is_inflated() {
                    true => "\"stored_as\": \"gzip\", ",
                    false => "",
                },
                variant.blob_len(),
                json_string(&String::from_utf8_lossy(variant.entity_tag())),
                hex(variant.digest())
            )?;
        }
        write!(out, "]}}")?;
    }
    writeln!(out, "{}", if separator == "[" { "[]" } else { "\n]" })
}
