//! What packing has made, and the table that reports it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use gannet_archive::Coding;

use super::lifetimes::{self, KeptPattern};
use super::limits::{KEPT_LISTED, LARGEST_COUNT, SKIPPED_LISTED};
use super::sources::{Source, Sources};
use super::store::StoredContent;
use super::walk::Skipped;

/// What packing has made. Lengths are in bytes.
#[derive(Clone, Debug, Default)]
pub struct PackReport {
    /// The archive.
    pub output: PathBuf,
    /// Its length.
    pub archive_bytes: u64,
    /// Its build id.
    pub build_id: [u8; 32],
    /// Files packed.
    pub file_count: u64,
    /// Their lengths together.
    pub source_bytes: u64,
    /// Distinct contents.
    pub unique_count: u64,
    /// Their lengths together.
    pub unique_bytes: u64,
    /// Other names of files.
    pub alias_count: u64,
    /// Redirects.
    pub redirect_count: u64,
    /// Listings.
    pub listing_count: u64,
    /// Files that had to be read; of the others an earlier build has kept what they hold.
    pub read_count: u64,
    /// Distinct contents that were taken over whole from an earlier archive.
    pub reused_count: u64,
    /// Distinct contents that are stored as gzip alone.
    pub inflated_count: u64,
    /// Their lengths without coding, together.
    pub inflated_bytes: u64,
    /// Distinct contents that are stored as gzip and, being too long for a server to inflate,
    /// without coding; counted only where the others are stored as gzip alone.
    pub undropped_count: u64,
    /// Their lengths without coding, together.
    pub undropped_bytes: u64,
    /// By coding, identity first.
    pub codings: Vec<CodingReport>,
    /// What a client loads that takes everything: each file in its smallest form, together.
    pub best_bytes: u64,
    /// The largest files, largest first.
    pub largest: Vec<Largest>,
    /// What browsers keep for a year, most files first.
    pub kept: Vec<KeptPattern>,
    /// What was left out, and by which rule.
    pub skipped: Vec<Skipped>,
    /// What the user should know.
    pub warnings: Vec<String>,
    /// How long it took.
    pub elapsed: Duration,
}

/// Distinct contents in one coding.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CodingReport {
    /// The coding.
    pub coding: Coding,
    /// How many contents are kept in it.
    pub count: u64,
    /// Their lengths together, in this coding.
    pub bytes: u64,
    /// The lengths of the same contents without coding.
    pub identity_bytes: u64,
}

/// A large file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Largest {
    /// Its path on the site, as text.
    pub url: String,
    /// Its length.
    pub len: u64,
    /// Its length in the smallest coding.
    pub best_len: u64,
}

impl PackReport {
    pub(super) fn of(sources: Sources, contents: &[StoredContent]) -> Self {
        let mut report = Self {
            unique_count: contents.len() as u64,
            ..Self::default()
        };
        for coding in Coding::ALL {
            let mut row = CodingReport {
                coding,
                count: 0,
                bytes: 0,
                identity_bytes: 0,
            };
            for content in contents {
                let identity_len = content.identity_len();
                for variant in content.variants.iter().filter(|one| one.coding == coding) {
                    row.count += 1;
                    row.bytes += variant.len;
                    row.identity_bytes += identity_len;
                }
            }
            report.codings.push(row);
        }
        for content in contents {
            let len = content.identity_len();
            if content.variants.first().is_some_and(|it| it.is_inflated) {
                report.inflated_count += 1;
                report.inflated_bytes += len;
            } else if content.variants.iter().any(|it| it.coding == Coding::Gzip) {
                report.undropped_count += 1;
                report.undropped_bytes += len;
            }
        }
        report.unique_bytes = contents.iter().map(StoredContent::identity_len).sum();
        let mut order: Vec<_> = sources.files.iter().collect();
        for source in &order {
            report.file_count += 1;
            report.source_bytes += source.file.len;
            report.best_bytes += best_len(source, contents);
        }
        let largest_first = |a: &&Source, b: &&Source| {
            let lens = b.file.len.cmp(&a.file.len);
            lens.then_with(|| a.file.url.cmp(&b.file.url))
        };
        if order.len() > LARGEST_COUNT {
            order.select_nth_unstable_by(LARGEST_COUNT, largest_first);
            order.truncate(LARGEST_COUNT);
        }
        order.sort_by(largest_first);
        let largest = order.into_iter().map(|source| Largest {
            url: sources.shown(source),
            len: source.file.len,
            best_len: best_len(source, contents),
        });
        report.largest = largest.collect();
        report.kept = lifetimes::patterns(&sources);
        report.read_count = sources.read_count;
        report.skipped = sources.skipped;
        report.warnings = sources.warnings;
        report
    }

    /// The report as text for people, with ANSI colours only if asked. It ends with the command to
    /// type next. Many skipped files are reported as counts, unless they are to be listed.
    #[must_use]
    pub fn table(&self, colour: bool, list_skipped: bool) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_table(&mut text, colour, list_skipped);
        text
    }

    fn write_table(
        &self,
        out: &mut impl fmt::Write,
        colour: bool,
        list_skipped: bool,
    ) -> fmt::Result {
        let (bold, dim, warn, plain) = if colour {
            ("\x1b[1m", "\x1b[2m", "\x1b[33m", "\x1b[0m")
        } else {
            ("", "", "", "")
        };
        let output = printable(&self.output.to_string_lossy());
        writeln!(
            out,
            "{bold}{output}{plain}: {}, {} in {:.1} s",
            counted(self.file_count, "file"),
            size(self.archive_bytes),
            self.elapsed.as_secs_f64()
        )?;
        let row = |name: &str, count: u64, bytes: u64, rest: &str| {
            format!("  {name:<14}{count:>9}  {:>10}{rest}", size(bytes))
        };
        writeln!(
            out,
            "{dim}  {:<14}{:>9}  {:>10}{plain}",
            "", "count", "size"
        )?;
        writeln!(
            out,
            "{}",
            row("files", self.file_count, self.source_bytes, "")
        )?;
        writeln!(
            out,
            "{}",
            row("unique", self.unique_count, self.unique_bytes, "")
        )?;
        if self.reused_count > 0 {
            let rest = "  reused from the previous archive";
            let reused = format!("  {:<14}{:>9}  {:>10}{rest}", "", self.reused_count, "");
            writeln!(out, "{reused}")?;
        }
        for coding in self
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
        if self.inflated_count > 0 {
            let rest = "          identity not stored";
            let (count, bytes) = (self.inflated_count, self.inflated_bytes);
            writeln!(out, "{}", row("gzip alone", count, bytes, rest))?;
            if self.undropped_count > 0 {
                let rest = "          above 1 MiB: identity stored too";
                let (count, bytes) = (self.undropped_count, self.undropped_bytes);
                writeln!(out, "{}", row("too long", count, bytes, rest))?;
            }
        }
        let best = percent(self.best_bytes, self.source_bytes);
        let rest = format!("  {best:>6}  each file in its smallest form");
        writeln!(
            out,
            "{}",
            row("best case", self.file_count, self.best_bytes, &rest)
        )?;
        writeln!(
            out,
            "  {}, {}, {}",
            counted(self.alias_count, "other name"),
            counted(self.redirect_count, "redirect"),
            counted(self.listing_count, "listing")
        )?;
        self.write_largest(out, dim, plain)?;
        self.write_kept(out, dim, plain)?;
        self.write_skipped(out, dim, plain, list_skipped)?;
        for warning in &self.warnings {
            writeln!(out, "{warn}warning:{plain} {}", printable(warning))?;
        }
        writeln!(out, "next: gannet {output}")
    }

    fn write_largest(&self, out: &mut impl fmt::Write, dim: &str, plain: &str) -> fmt::Result {
        writeln!(out, "{dim}largest:{plain}")?;
        for file in &self.largest {
            let (len, best) = (size(file.len), size(file.best_len));
            writeln!(out, "  {len:>10} -> {best:>10}  {}", printable(&file.url))?;
        }
        Ok(())
    }

    fn write_kept(&self, out: &mut impl fmt::Write, dim: &str, plain: &str) -> fmt::Result {
        if self.kept.is_empty() {
            return Ok(());
        }
        let count = self.kept.iter().map(|it| it.count).sum();
        writeln!(
            out,
            "{dim}kept for a year ({}):{plain}",
            counted(count, "file")
        )?;
        for kept in self.kept.iter().take(KEPT_LISTED) {
            let pattern = printable(&kept.pattern);
            writeln!(out, "  {:>9}  {pattern}  ({})", kept.count, kept.evidence)?;
        }
        let rest = self.kept.iter().skip(KEPT_LISTED).map(|it| it.count);
        match rest.clone().count() {
            0 => Ok(()),
            folders => writeln!(
                out,
                "  {:>9}  in {folders} more patterns",
                rest.sum::<u64>()
            ),
        }
    }

    /// All of a few, else how many by each rule.
    fn write_skipped(
        &self,
        out: &mut impl fmt::Write,
        dim: &str,
        plain: &str,
        list_skipped: bool,
    ) -> fmt::Result {
        if self.skipped.is_empty() {
            return Ok(());
        }
        let count = self.skipped.len();
        writeln!(out, "{dim}skipped ({count}):{plain}")?;
        if list_skipped || count <= SKIPPED_LISTED {
            for skipped in &self.skipped {
                let path = skipped.path.to_string_lossy();
                let rule = printable(&skipped.rule);
                writeln!(out, "  {}  ({rule})", printable(&path))?;
            }
            return Ok(());
        }
        let mut by_rule: BTreeMap<&str, u64> = BTreeMap::new();
        for skipped in &self.skipped {
            *by_rule.entry(&skipped.rule).or_default() += 1;
        }
        for (rule, count) in by_rule {
            writeln!(out, "  {count:>9}  {}", printable(rule))?;
        }
        writeln!(out, "  (--list-skipped names them)")
    }
}

/// Names come from the disk: what could steer a terminal is shown, not sent.
fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|letter| {
            let escaped = letter.is_control().then(|| letter.escape_default());
            let plain = escaped.is_none().then_some(letter);
            escaped.into_iter().flatten().chain(plain)
        })
        .collect()
}

fn counted(count: u64, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return String::from("-");
    }
    format!("{:.1} %", part as f64 * 100.0 / whole as f64)
}

/// The length of a file in its smallest coding.
fn best_len(source: &Source, contents: &[StoredContent]) -> u64 {
    let variants = contents[source.content].variants_as(source.is_compressible);
    variants
        .iter()
        .map(|variant| variant.len)
        .min()
        .unwrap_or(0)
}

/// A length as people read it, in powers of 1024.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let check = |bytes, expect: &str| assert_eq!(size(bytes), expect);
        check(0, "0 B");
        check(1023, "1023 B");
        check(1024, "1.0 KiB");
        check(1_572_864, "1.5 MiB");
        check(1_048_575, "1.0 MiB");
        check(u64::MAX, "16384.0 PiB");
    }

    #[test]
    fn the_table_tells_everything_and_steers_no_terminal() {
        let report = PackReport {
            output: PathBuf::from("site.gannet"),
            archive_bytes: 4096,
            file_count: 1,
            source_bytes: 3000,
            codings: vec![CodingReport {
                coding: Coding::Brotli,
                count: 1,
                bytes: 1500,
                identity_bytes: 3000,
            }],
            best_bytes: 1500,
            largest: vec![Largest {
                url: "/a\x1b[2J".into(),
                len: 3000,
                best_len: 1500,
            }],
            skipped: vec![Skipped {
                path: "x~".into(),
                rule: "*~".into(),
            }],
            warnings: vec!["look".into()],
            ..PackReport::default()
        };
        let table = report.table(false, false);
        for text in [
            "site.gannet: 1 file, 4.0 KiB",
            "50.0 %",
            "br ",
            "/a\\u{1b}[2J",
            "x~  (*~)",
            "warning: look",
            "0 redirects",
            "next: gannet site.gannet",
        ] {
            assert!(table.contains(text), "{text:?} is missing in:\n{table}");
        }
        assert!(!table.contains('\x1b'), "no colours unless asked");
        assert!(
            report
                .table(true, false)
                .contains("\x1b[33mwarning:\x1b[0m look")
        );
    }
}
