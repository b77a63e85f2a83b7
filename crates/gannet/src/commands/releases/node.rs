//! What a server serves, from its metrics.

use std::io::{self, Write};

use gannet_get::{Client, Options, Url};
use gannet_store::time_text;

use crate::json;
use crate::messages::{Failure, printable};

/// What a server serves of one archive or store.
#[derive(Debug, Default, Eq, PartialEq)]
pub(in crate::commands) struct Served {
    /// As it was named when the server was started.
    content: String,
    /// Of the pointer in force; none for an archive at a path.
    serial: Option<u64>,
    /// Unix seconds.
    activated: u64,
    /// Unix seconds.
    checked: u64,
    is_late: bool,
    releases: Vec<Release>,
    /// New releases that were refused: the reason, and how often.
    refused: Vec<(String, u64)>,
}

#[derive(Debug, Default, Eq, PartialEq)]
struct Release {
    id: String,
    state: String,
    /// Answers for immutable assets while it was not the current one.
    kept_answers: u64,
}

impl Served {
    /// Whether it serves this release now. Metrics have the first half of an id.
    pub(in crate::commands) fn has_current(&self, release: &str) -> bool {
        let mut releases = self.releases.iter();
        releases.any(|it| {
            let is_it = !it.id.is_empty() && release.starts_with(&it.id);
            is_it && it.state == "current"
        })
    }
}

/// Asks the metrics of a server, `http://HOST:PORT`.
pub(in crate::commands) fn ask(address: &str) -> Result<Vec<Served>, Failure> {
    const HELP: &str = "name the address of --metrics, such as http://127.0.0.1:9090";
    let refuse = |cause: &str| Failure::new("ask", address, cause).help(HELP);
    let url = format!(
        "{}/metrics",
        address.trim_end_matches('/').trim_end_matches("/metrics")
    );
    let url = Url::parse(&url).map_err(|why| refuse(&why).as_usage())?;
    let mut page = Bounded(Vec::new());
    let asked = Client::new(Options::default()).print(&url, &mut page);
    // Most likely, that of the site itself was named.
    asked.map_err(|error| Failure::from(error).help(HELP))?;
    let page = String::from_utf8(page.0).map_err(|_| refuse("its answer is not UTF-8"))?;
    if !page.contains("\ngannet_") {
        return Err(refuse("its answer has no metrics of gannet"));
    }
    Ok(parse(&page))
}

/// The releases in a page of metrics (Prometheus' text format).
fn parse(page: &str) -> Vec<Served> {
    let mut all: Vec<Served> = Vec::new();
    for line in page.lines() {
        let Some(sample) = Sample::parse(line) else {
            continue;
        };
        let Some(what) = sample.name.strip_prefix("gannet_release_") else {
            continue;
        };
        let value = sample.value;
        let label = |name: &str| sample.label(name);
        let content = label("content");
        let at = all.iter().position(|it| it.content == content);
        let at = at.unwrap_or_else(|| {
            all.push(Served {
                content,
                ..Served::default()
            });
            all.len() - 1
        });
        let served = &mut all[at];
        match what {
            "info" => served.releases.push(Release {
                id: label("release"),
                state: label("state"),
                kept_answers: 0,
            }),
            "kept_answers_total" => {
                let id = label("release");
                if let Some(release) = served.releases.iter_mut().find(|it| it.id == id) {
                    release.kept_answers = value;
                }
            }
            "refused_total" => served.refused.push((label("reason"), value)),
            "serial" => served.serial = Some(value),
            "activated_seconds" => served.activated = value,
            "checked_seconds" => served.checked = value,
            "late" => served.is_late = value == 1,
            _ => {}
        }
    }
    all
}

/// A line with labels.
struct Sample<'p> {
    name: &'p str,
    labels: Vec<(&'p str, String)>,
    value: u64,
}

impl<'p> Sample<'p> {
    fn parse(line: &'p str) -> Option<Self> {
        let (name, mut rest) = line.split_once('{')?;
        let mut labels = Vec::new();
        loop {
            let (label, quoted) = rest.split_once("=\"")?;
            let mut text = String::new();
            let mut letters = quoted.char_indices();
            let end = loop {
                match letters.next()? {
                    (_, '\\') => match letters.next()?.1 {
                        'n' => text.push('\n'),
                        letter => text.push(letter),
                    },
                    (at, '"') => break at,
                    (_, letter) => text.push(letter),
                }
            };
            labels.push((label, text));
            match quoted[end + 1..].split_at_checked(1)? {
                (",", more) => rest = more,
                ("}", value) => {
                    let value = value.trim().parse().ok()?;
                    return Some(Self {
                        name,
                        labels,
                        value,
                    });
                }
                _ => return None,
            }
        }
    }

    /// The value of a label; empty without it.
    fn label(&self, name: &str) -> String {
        let found = self.labels.iter().find(|(known, _)| *known == name);
        found.map(|(_, text)| text.clone()).unwrap_or_default()
    }
}

/// For people.
pub(super) fn write_table(all: &[Served], out: &mut dyn Write) -> io::Result<()> {
    if all.is_empty() {
        return writeln!(out, "it serves neither an archive nor a store");
    }
    for served in all {
        let content = printable(&served.content);
        let serial = match served.serial {
            Some(serial) => format!(" serial {serial},"),
            None => String::new(),
        };
        let late = if served.is_late { ", late" } else { "" };
        let (activated, checked) = (time_text(served.activated), time_text(served.checked));
        writeln!(
            out,
            "{content}:{serial} active since {activated}, checked {checked}{late}"
        )?;
        for release in &served.releases {
            let Release {
                id,
                state,
                kept_answers,
            } = release;
            let (id, state) = (printable(id), printable(state));
            match kept_answers {
                0 => writeln!(out, "  {state:<8} {id}")?,
                count => writeln!(out, "  {state:<8} {id}  answers from it: {count}")?,
            }
        }
        for (reason, count) in &served.refused {
            writeln!(out, "  refused  {} ({count})", printable(reason))?;
        }
    }
    Ok(())
}

/// For programs.
pub(super) fn write_json(all: &[Served], out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{{\"contents\": [")?;
    for (index, served) in all.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let releases = served.releases.iter().map(|release| {
            format!(
                "{{\"release\": {}, \"state\": {}, \"kept_answers\": {}}}",
                json::string(&release.id),
                json::string(&release.state),
                release.kept_answers
            )
        });
        let refused = served.refused.iter();
        let refused = refused.map(|(reason, count)| format!("{}: {count}", json::string(reason)));
        let serial = served.serial.map_or("null".to_owned(), |it| it.to_string());
        write!(
            out,
            "{comma}\n  {{\"content\": {}, \"serial\": {serial}, \"activated\": \"{}\", \
             \"checked\": \"{}\", \"late\": {}, \"releases\": [{}], \"refused\": {{{}}}}}",
            json::string(&served.content),
            time_text(served.activated),
            time_text(served.checked),
            served.is_late,
            releases.collect::<Vec<_>>().join(", "),
            refused.collect::<Vec<_>>().join(", ")
        )?;
    }
    writeln!(out, "\n]}}")
}

/// The beginning of an answer. Metrics have some 100 KiB.
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        const LEN_MAX: usize = 16 << 20;
        if self.0.len() + bytes.len() > LEN_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_found_in_metrics() {
        let page = "# TYPE gannet_release_info gauge\n\
            gannet_requests_total 7\n\
            gannet_release_info{content=\"a \\\"b\\\" \\\\\",release=\"00aa\",state=\"current\"} 1\n\
            gannet_release_info{content=\"a \\\"b\\\" \\\\\",release=\"00bb\",state=\"kept\"} 1\n\
            gannet_release_info{content=\"c\",release=\"00cc\",state=\"current\"} 1\n\
            gannet_release_kept_answers_total{content=\"a \\\"b\\\" \\\\\",release=\"00bb\"} 7\n\
            gannet_release_refused_total{content=\"c\",reason=\"older\"} 2\n\
            gannet_release_serial{content=\"c\"} 4\n\
            gannet_release_activated_seconds{content=\"c\"} 1795422600\n\
            gannet_release_checked_seconds{content=\"c\"} 1795422601\n\
            gannet_release_late{content=\"c\"} 1\n\
            gannet_release_late{content=\"c\n";
        let all = parse(page);
        let text = |write: &dyn Fn(&mut dyn Write) -> io::Result<()>| {
            let mut out = Vec::new();
            write(&mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            text(&|out| write_table(&all, out)),
            "a \"b\" \\: active since 1970-01-01T00:00:00Z, checked 1970-01-01T00:00:00Z\n  \
             current  00aa\n  kept     00bb  answers from it: 7\n\
             c: serial 4, active since 2026-11-23T08:30:00Z, checked 2026-11-23T08:30:01Z, late\n  \
             current  00cc\n  refused  older (2)\n"
        );
        assert_eq!(
            text(&|out| write_json(&all[1..], out)),
            "{\"contents\": [\n  {\"content\": \"c\", \"serial\": 4, \"activated\": \
             \"2026-11-23T08:30:00Z\", \"checked\": \"2026-11-23T08:30:01Z\", \"late\": true, \
             \"releases\": [{\"release\": \"00cc\", \"state\": \"current\", \"kept_answers\": 0}], \
             \"refused\": {\"older\": 2}}\n]}\n"
        );
    }
}
