//! `gannet inspect`: superblock, sections and counts of an archive.

use std::io::{self, Write};

use clap::ArgMatches;
use gannet_archive::{Coding, Stats};
use gannet_site::archive::{ArchiveFile, RuleCounts, hex, rule_counts};

use crate::json::string as json_string;
use crate::messages::Failure;
use crate::quantities::size;

/// Shows the metadata of an archive.
///
/// # Errors
/// The archive cannot be opened, or its rules cannot be read.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    let file = ArchiveFile::open_metadata(&super::archive(matches)?)?;
    let rules = rule_counts(&file)?;
    super::write(|out| match matches.get_flag("json") {
        true => write_json(&file, rules, out),
        false => write_text(&file, rules, out),
    })
}

/// Names and values of the counts, for text and JSON.
fn counts(stats: &Stats, rules: RuleCounts) -> [(&'static str, u64); 17] {
    [
        ("entries", stats.entry_count),
        ("files", stats.file_count),
        ("immutable", stats.immutable_count),
        ("carried", stats.carried_count),
        ("aliases", stats.alias_count),
        ("redirects", stats.redirect_count),
        ("redirect_rules", rules.redirects),
        ("header_rules", rules.headers),
        ("generated", stats.generated_count),
        ("blobs", stats.blob_count),
        ("blob_bytes", stats.blob_bytes),
        ("tiny_blobs", stats.tiny_count),
        ("tiny_bytes", stats.tiny_bytes),
        ("decompressed", stats.decoded_count),
        ("decompressed_bytes", stats.decoded_bytes),
        ("dictionaries", stats.dictionary_count),
        ("best_case_bytes", stats.best_bytes),
    ]
}

/// The codings to list: those with a dictionary only if there are any.
fn codings(stats: &Stats) -> impl Iterator<Item = Coding> {
    let has_any = |coding: &Coding| stats.coding(*coding).variant_count > 0;
    let with_dictionary = Coding::WITH_DICTIONARY.into_iter().filter(has_any);
    Coding::ALL.into_iter().chain(with_dictionary)
}

pub(super) fn write_text(
    file: &ArchiveFile,
    rules: RuleCounts,
    out: &mut dyn Write,
) -> io::Result<()> {
    let archive = file.archive();
    let superblock = archive.superblock();
    let (incompatible, compatible) = superblock.features();
    let options = archive.options();
    let (slot_count, probe_max) = archive.index_shape();
    let yes = |value| if value { "yes" } else { "no" };
    writeln!(out, "format version   {}", superblock.version())?;
    writeln!(
        out,
        "features         must know {incompatible:#x}, may ignore {compatible:#x}"
    )?;
    writeln!(out, "build id         {}", hex(superblock.build_id()))?;
    writeln!(out, "length           {} bytes", superblock.archive_len())?;
    if file.packed_len() > 0 {
        let len = file.packed_len();
        writeln!(
            out,
            "packed index     {len} bytes more, for copies over a network"
        )?;
    }
    writeln!(
        out,
        "options          spa {}, listings {}, clean URLs {}",
        yes(options.spa),
        yes(options.listing),
        yes(options.clean_urls)
    )?;
    writeln!(
        out,
        "index            {slot_count} slots, longest probe {probe_max}"
    )?;
    let stats = archive.stats();
    for (name, value) in counts(&stats, rules) {
        writeln!(out, "{:<16} {value}", name.replace('_', " "))?;
    }
    writeln!(out, "\n{:<10}{:>10}{:>14}", "coding", "variants", "size")?;
    for coding in codings(&stats) {
        let row = stats.coding(coding);
        writeln!(
            out,
            "{:<10}{:>10}{:>14}",
            coding.name(),
            row.variant_count,
            size(row.bytes)
        )?;
    }
    writeln!(
        out,
        "\n{:<14}{:>14}{:>14}  checksum",
        "section", "offset", "length"
    )?;
    for section in superblock.sections() {
        let kind = section.kind.to_string();
        let (offset, len, checksum) = (section.offset, section.len, section.checksum);
        writeln!(out, "{kind:<14}{offset:>14}{len:>14}  {checksum:016x}")?;
    }
    Ok(())
}

pub(super) fn write_json(
    file: &ArchiveFile,
    rules: RuleCounts,
    out: &mut dyn Write,
) -> io::Result<()> {
    let archive = file.archive();
    let superblock = archive.superblock();
    let (incompatible, compatible) = superblock.features();
    let options = archive.options();
    let (slot_count, probe_max) = archive.index_shape();
    writeln!(out, "{{\n  \"version\": {},", superblock.version())?;
    writeln!(out, "  \"incompatible_features\": {incompatible},")?;
    writeln!(out, "  \"compatible_features\": {compatible},")?;
    writeln!(out, "  \"build_id\": \"{}\",", hex(superblock.build_id()))?;
    writeln!(out, "  \"length\": {},", superblock.archive_len())?;
    writeln!(out, "  \"packed_index\": {},", file.packed_len())?;
    writeln!(out, "  \"spa\": {},", options.spa)?;
    writeln!(out, "  \"listings\": {},", options.listing)?;
    writeln!(out, "  \"clean_urls\": {},", options.clean_urls)?;
    writeln!(out, "  \"index_slots\": {slot_count},")?;
    writeln!(out, "  \"index_longest_probe\": {probe_max},")?;
    let stats = archive.stats();
    for (name, value) in counts(&stats, rules) {
        writeln!(out, "  \"{name}\": {value},")?;
    }
    writeln!(out, "  \"codings\": {{")?;
    let codings: Vec<Coding> = codings(&stats).collect();
    for (number, coding) in codings.iter().enumerate() {
        let row = stats.coding(*coding);
        let comma = if number + 1 < codings.len() { "," } else { "" };
        let (name, count, bytes) = (coding.name(), row.variant_count, row.bytes);
        writeln!(
            out,
            "    \"{name}\": {{\"variants\": {count}, \"bytes\": {bytes}}}{comma}"
        )?;
    }
    writeln!(out, "  }},\n  \"sections\": [")?;
    let sections = superblock.sections();
    for (number, section) in sections.iter().enumerate() {
        let comma = if number + 1 < sections.len() { "," } else { "" };
        writeln!(
            out,
            "    {{\"kind\": {}, \"offset\": {}, \"length\": {}, \"checksum\": \"{:016x}\"}}{comma}",
            json_string(&section.kind.to_string()),
            section.offset,
            section.len,
            section.checksum
        )?;
    }
    writeln!(out, "  ]\n}}")
}
