//! Writes the findings of a check as text, as JSON, or as annotations of a code host.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write};

use gannet_site::check::{Finding, Report, Severity};

use super::Format;
use crate::commands::failure::of_finding;
use crate::json;
use crate::messages::printable;
use crate::quantities::counted;

/// Places listed per finding in text output: a mistake in a template is on every page.
const PLACES_MAX: usize = 3;

/// Writes the findings. JSON names files relative to the site, the other formats prepend `prefix`.
pub(super) fn write(
    report: &Report,
    format: Format,
    prefix: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    match format {
        Format::Text => write_text(report, prefix, out),
        Format::Json => write_json(report, out),
        Format::Github => write_annotations(report, prefix, out),
    }
}

/// Groups equal findings into one paragraph with their places: a mistake in a template is on every
/// page.
fn write_text(report: &Report, prefix: &str, out: &mut dyn Write) -> io::Result<()> {
    let mut groups: BTreeMap<(Severity, &str, &str), Vec<&Finding>> = BTreeMap::new();
    for finding in &report.findings {
        let key = (finding.severity, finding.kind, finding.message.as_str());
        groups.entry(key).or_default().push(finding);
    }
    for ((severity, kind, message), findings) in groups {
        writeln!(out, "{}: {} [{kind}]", severity.name(), printable(message))?;
        for finding in findings.iter().take(PLACES_MAX) {
            write!(out, "  {}", printable(&file(prefix, finding)))?;
            if finding.line > 0 {
                write!(out, ":{}", finding.line)?;
            }
            if finding.column > 0 {
                write!(out, ":{}", finding.column)?;
            }
            if !finding.source.is_empty() {
                write!(out, "  {}", printable(&finding.source))?;
            }
            writeln!(out)?;
        }
        if let Some(more) = findings
            .len()
            .checked_sub(PLACES_MAX)
            .filter(|more| *more > 0)
        {
            writeln!(out, "  and at {}", counted(more as u64, "more place"))?;
        }
        if let Some(help) = help(findings[0]) {
            writeln!(out, "  help: {}", printable(&help))?;
        }
        writeln!(out)?;
    }
    let (errors, warnings) = (report.error_count, report.warning_count);
    let not_shown = (errors + warnings).saturating_sub(report.findings.len() as u64);
    if not_shown > 0 {
        writeln!(out, "not shown: {}", counted(not_shown, "more finding"))?;
    }
    let read = [
        counted(report.page_count, "page"),
        counted(report.style_sheet_count, "style sheet"),
        counted(report.reference_count, "reference"),
    ];
    let read = read.join(", ");
    if errors + warnings == 0 {
        return writeln!(out, "{read}: no problems");
    }
    let (errors, warnings) = (counted(errors, "error"), counted(warnings, "warning"));
    writeln!(out, "{read}: {errors}, {warnings}")
}

fn write_json(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{{\"findings\": [")?;
    for (number, finding) in report.findings.iter().enumerate() {
        let comma = if number > 0 { "," } else { "" };
        write!(
            out,
            "{comma}\n  {{\"severity\": \"{}\", \"kind\": \"{}\", \"file\": {}, \"line\": {}, \
             \"column\": {}, \"message\": {}, \"source\": {}, \"help\": {}}}",
            finding.severity.name(),
            finding.kind,
            json::string(&finding.file),
            finding.line,
            finding.column,
            json::string(&finding.message),
            json::string(&finding.source),
            help(finding).map_or("null".into(), |help| json::string(&help)),
        )?;
    }
    let end = if report.findings.is_empty() { "" } else { "\n" };
    writeln!(
        out,
        "{end}], \"pages\": {}, \"style_sheets\": {}, \"references\": {}, \"errors\": {}, \
         \"warnings\": {}}}",
        report.page_count,
        report.style_sheet_count,
        report.reference_count,
        report.error_count,
        report.warning_count
    )
}

/// Workflow commands: `::error file=F,line=1,title=T::message`.
fn write_annotations(report: &Report, prefix: &str, out: &mut dyn Write) -> io::Result<()> {
    for finding in &report.findings {
        let mut message = finding.message.clone();
        if !finding.source.is_empty() {
            message = format!("{message} ({})", finding.source);
        }
        if let Some(help) = help(finding) {
            message = format!("{message}\nhelp: {help}");
        }
        writeln!(
            out,
            "::{} file={},line={},{}title={}::{}",
            finding.severity.name(),
            property(&file(prefix, finding)),
            finding.line.max(1),
            match finding.column {
                0 => String::new(),
                column => format!("col={column},"),
            },
            finding.kind,
            escaped(&message)
        )?;
    }
    Ok(())
}

/// The path of its file; `.` is the site.
fn file(prefix: &str, finding: &Finding) -> String {
    match (prefix, &*finding.file) {
        ("", file) => file.to_owned(),
        (prefix, ".") => prefix.trim_end_matches('/').to_owned(),
        (prefix, file) => format!("{prefix}{file}"),
    }
}

fn help(finding: &Finding) -> Option<Cow<'_, str>> {
    finding.help.as_ref().and_then(of_finding)
}

fn escaped(text: &str) -> String {
    text.replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

fn property(text: &str) -> String {
    escaped(text).replace(':', "%3A").replace(',', "%2C")
}
