//! The report of packing as a table.

use std::collections::BTreeMap;
use std::fmt;

use gannet_archive::Coding;
use gannet_site::pack::{PackReport, Remedy, Skipped, Warning};

use crate::messages::printable;
use crate::quantities::{counted, size};

/// Skipped files listed by name without `--list-skipped`.
const SKIPPED_LISTED: usize = 20;

/// Patterns of files kept for a year that are listed by name.
const KEPT_LISTED: usize = 10;

/// Formats the report for people, with ANSI colours if `colour`. The last line is the next command
/// to type. Many skipped files are summarised as counts unless `list_skipped`.
pub(super) fn table(report: &PackReport, colour: bool, list_skipped: bool) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_table(report, &mut text, colour, list_skipped);
    text
}

/// The warnings alone, one per line.
pub(super) fn warnings(report: &PackReport, colour: bool) -> String {
    let (warn, plain) = match colour {
        true => ("\x1b[33m", "\x1b[0m"),
        false => ("", ""),
    };
    let lines = report.warnings.iter();
    let lines = lines.map(|it| format!("{warn}warning:{plain} {}\n", printable(&words(it))));
    lines.collect()
}

fn row(name: &str, count: u64, bytes: u64, rest: &str) -> String {
    format!("  {name:<14}{count:>9}  {:>10}{rest}", size(bytes))
}

/// The rows of what was coded, carried on or dropped.
fn write_codings(report: &PackReport, out: &mut impl fmt::Write) -> fmt::Result {
    for coding in report
        .codings
        .iter()
        .filter(|row| row.coding != Coding::Identity)
    {
        let part = percent(coding.bytes, coding.identity_bytes);
        let rest = if coding.count == 0 {
            String::new()
        } else {
            format!("  {part:>6}")
        };
        writeln!(
            out,
            "{}",
            row(coding.coding.name(), coding.count, coding.bytes, &rest)
        )?;
    }
    write_plain_forms(report, out)?;
    if report.dictionary_count > 0 {
        let rest = "          coded with their previous versions too";
        let count = report.dictionary_count;
        writeln!(out, "  {:<14}{count:>9}  {:>10}{rest}", "dictionaries", "")?;
    }
    if report.carried_count > 0 {
        let rest = "          of earlier releases";
        let (count, bytes) = (report.carried_count, report.carried_bytes);
        writeln!(out, "{}", row("carried", count, bytes, rest))?;
    }
    if report.decoded_count > 0 {
        let rest = "          decompressed on request";
        let (count, bytes) = (report.decoded_count, report.decoded_bytes);
        writeln!(out, "{}", row("dropped", count, bytes, rest))?;
        if report.undropped_count > 0 {
            let rest = "          above 1 MiB: identity stored too";
            let (count, bytes) = (report.undropped_count, report.undropped_bytes);
            writeln!(out, "{}", row("too long", count, bytes, rest))?;
        }
    }
    Ok(())
}

fn write_table(
    report: &PackReport,
    out: &mut impl fmt::Write,
    colour: bool,
    list_skipped: bool,
) -> fmt::Result {
    let (bold, dim, plain) = if colour {
        ("\x1b[1m", "\x1b[2m", "\x1b[0m")
    } else {
        ("", "", "")
    };
    let output = printable(&report.output.to_string_lossy());
    writeln!(
        out,
        "{bold}{output}{plain}: {}, {} in {:.1} s",
        counted(report.file_count, "file"),
        size(report.archive_bytes),
        report.elapsed.as_secs_f64()
    )?;
    writeln!(
        out,
        "{dim}  {:<14}{:>9}  {:>10}{plain}",
        "", "count", "size"
    )?;
    writeln!(
        out,
        "{}",
        row("files", report.file_count, report.source_bytes, "")
    )?;
    writeln!(
        out,
        "{}",
        row("unique", report.unique_count, report.unique_bytes, "")
    )?;
    if report.reused_count > 0 {
        let rest = "  reused from the previous archive";
        let reused = format!("  {:<14}{:>9}  {:>10}{rest}", "", report.reused_count, "");
        writeln!(out, "{reused}")?;
    }
    write_codings(report, out)?;
    let best = percent(report.best_bytes, report.source_bytes);
    let rest = format!("  {best:>6}  each file in its smallest form");
    writeln!(
        out,
        "{}",
        row("best case", report.file_count, report.best_bytes, &rest)
    )?;
    writeln!(
        out,
        "  {}, {}, {}",
        counted(report.alias_count, "other name"),
        counted(report.redirect_count, "redirect"),
        counted(report.listing_count, "listing")
    )?;
    write_largest(report, out, dim, plain)?;
    write_kept(report, out, dim, plain)?;
    write_skipped(report, out, dim, plain, list_skipped)?;
    out.write_str(&warnings(report, colour))?;
    writeln!(out, "next: gannet {output}")
}

/// Says what the plain forms take beside codings that decode to them, and how to leave them out.
fn write_plain_forms(report: &PackReport, out: &mut impl fmt::Write) -> fmt::Result {
    if report.undropped_count == 0 || report.decoded_count > 0 {
        return Ok(());
    }
    let rest = "          for few clients: see --drop-identity";
    let (count, bytes) = (report.undropped_count, report.undropped_bytes);
    writeln!(out, "{}", row("plain", count, bytes, rest))
}

fn write_largest(
    report: &PackReport,
    out: &mut impl fmt::Write,
    dim: &str,
    plain: &str,
) -> fmt::Result {
    writeln!(out, "{dim}largest:{plain}")?;
    for file in &report.largest {
        let (len, best) = (size(file.len), size(file.best_len));
        writeln!(out, "  {len:>10} -> {best:>10}  {}", printable(&file.url))?;
    }
    Ok(())
}

fn write_kept(
    report: &PackReport,
    out: &mut impl fmt::Write,
    dim: &str,
    plain: &str,
) -> fmt::Result {
    if report.kept.is_empty() {
        return Ok(());
    }
    let count = report.kept.iter().map(|it| it.count).sum();
    writeln!(
        out,
        "{dim}kept for a year ({}):{plain}",
        counted(count, "file")
    )?;
    for kept in report.kept.iter().take(KEPT_LISTED) {
        let pattern = printable(&kept.pattern);
        writeln!(out, "  {:>9}  {pattern}  ({})", kept.count, kept.evidence)?;
    }
    let rest = report.kept.iter().skip(KEPT_LISTED).map(|it| it.count);
    match rest.clone().count() {
        0 => Ok(()),
        patterns => writeln!(
            out,
            "  {:>9}  in other patterns: {patterns}",
            rest.sum::<u64>()
        ),
    }
}

/// Lists the skipped files if they are few, else the count for each rule.
fn write_skipped(
    report: &PackReport,
    out: &mut impl fmt::Write,
    dim: &str,
    plain: &str,
    list_skipped: bool,
) -> fmt::Result {
    if report.skipped.is_empty() {
        return Ok(());
    }
    let count = report.skipped.len();
    writeln!(out, "{dim}skipped ({count}):{plain}")?;
    if list_skipped || count <= SKIPPED_LISTED {
        for skipped in &report.skipped {
            let path = skipped.path.to_string_lossy();
            let rule = rule(skipped);
            writeln!(out, "  {}  ({rule})", printable(&path))?;
        }
        return Ok(());
    }
    let mut by_rule: BTreeMap<String, u64> = BTreeMap::new();
    for skipped in &report.skipped {
        *by_rule.entry(rule(skipped)).or_default() += 1;
    }
    for (rule, count) in by_rule {
        writeln!(out, "  {count:>9}  {rule}")?;
    }
    writeln!(out, "  (--list-skipped names them)")
}

/// The rule that excluded a file, as the user gave it.
fn rule(skipped: &Skipped) -> String {
    let rule = printable(&skipped.rule);
    match skipped.is_excluded {
        true => format!("--exclude {rule}"),
        false => rule,
    }
}

/// A warning with the flag that resolves it.
fn words(Warning { text, remedy }: &Warning) -> String {
    match remedy {
        None => text.clone(),
        Some(Remedy::Exclude(patterns)) => {
            let flags = patterns.iter().map(|it| format!("--exclude '{it}'"));
            format!("{text} ({})", flags.collect::<Vec<_>>().join(" "))
        }
        Some(Remedy::ReportOnly) => format!("{text}; try it with '--csp report' first"),
        Some(Remedy::Types) => format!(
            "{text}; convert it, or let it be sent without charset (--type SUFFIX=TYPE, or \
             Content-Type in _headers); 'gannet check' lists all"
        ),
        Some(Remedy::CarryLess) => format!("{text}; choose a shorter --carry"),
        Some(Remedy::NoApplication) => format!("--spa has no effect: {text}"),
    }
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return String::from("-");
    }
    format!("{:.1} %", part as f64 * 100.0 / whole as f64)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use gannet_site::pack::{CodingReport, KeptPattern, Largest};

    use super::*;

    #[test]
    fn the_table_tells_everything_and_steers_no_terminal() {
        let look = Warning {
            text: "look".into(),
            remedy: Some(Remedy::Exclude(vec!["/a".into(), "/b".into()])),
        };
        let report = PackReport {
            output: PathBuf::from("site.gannet"),
            archive_bytes: 4096,
            file_count: 1,
            source_bytes: 3000,
            codings: [
                // A picture among them, which has no other form.
                (Coding::Identity, 9000),
                (Coding::Gzip, 1600),
                (Coding::Brotli, 1500),
            ]
            .map(|(coding, bytes)| CodingReport {
                coding,
                count: 1,
                bytes,
                identity_bytes: 3000,
            })
            .into(),
            undropped_count: 1,
            undropped_bytes: 3000,
            best_bytes: 1500,
            largest: vec![Largest {
                url: "/a\x1b[2J".into(),
                len: 3000,
                best_len: 1500,
            }],
            kept: vec![KeptPattern {
                pattern: "assets/NAME-BASE64".into(),
                evidence: "a form".into(),
                count: 2,
            }],
            skipped: vec![Skipped {
                path: "x~".into(),
                rule: "*~".into(),
                is_excluded: true,
            }],
            warnings: vec![look],
            ..PackReport::default()
        };
        let plain = table(&report, false, false);
        for text in [
            "site.gannet: 1 file, 4.0 KiB",
            "50.0 %",
            "br ",
            "plain                 1     2.9 KiB          for few clients: see --drop-identity",
            "/a\\u{1b}[2J",
            "kept for a year (2 files):\n          2  assets/NAME-BASE64  (a form)",
            "x~  (--exclude *~)",
            "warning: look (--exclude '/a' --exclude '/b')",
            "0 redirects",
            "next: gannet site.gannet",
        ] {
            assert!(plain.contains(text), "{text:?} is missing in:\n{plain}");
        }
        assert!(!plain.contains('\x1b'), "no colours unless asked");
        assert!(table(&report, true, false).contains("\x1b[33mwarning:\x1b[0m look"));
    }
}
