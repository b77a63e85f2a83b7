//! The tables of page loads.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use xtask::process;

use super::browser::Load;
use super::page::Files;
use super::picture;
use super::pipe::Counts;
use super::servers::{Found, Protocol};
use crate::bench::statistics::Spread;

/// One load.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Run {
    /// The browser's timings.
    pub(crate) load: Load,
    /// Counts of packets to the server.
    pub(crate) up: Counts,
    /// Counts of packets to the client.
    pub(crate) down: Counts,
}

/// All loads of one server over one link and protocol.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Cell {
    /// The link.
    pub(crate) link: String,
    /// Its description.
    pub(crate) link_text: String,
    /// The server.
    pub(crate) server: String,
    /// The protocol.
    pub(crate) protocol: Protocol,
    /// Why it has no figures.
    pub(crate) left_out: Option<String>,
    /// The loads.
    pub(crate) runs: Vec<Run>,
}

impl Cell {
    /// The spread of a figure over the loads; `None` if the cell was left out.
    pub(crate) fn spread(&self, figure: fn(&Load) -> f64) -> Option<Spread> {
        match self.left_out {
            Some(_) => None,
            None => Spread::of(self.runs.iter().map(|run| figure(&run.load))),
        }
    }
}

/// A figure of a load, with its name.
pub(crate) type Figure = (&'static str, fn(&Load) -> f64);

/// The figures shown in reports.
pub(crate) const FIGURES: [Figure; 3] = [
    ("first byte", Load::first_byte),
    ("first paint", |load| load.paint),
    ("last byte", Load::last_byte),
];

/// A whole measurement.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Report {
    /// The browser's version.
    browser: String,
    /// The servers.
    servers: Vec<Found>,
    /// Length of the certificates, in bytes.
    certificates: usize,
    /// Number of files of the page, and their length together.
    page: (usize, usize),
    /// The loads.
    pub(crate) cells: Vec<Cell>,
}

impl Report {
    /// Creates a report without loads.
    pub(crate) fn new(
        servers: Vec<Found>,
        certificates: usize,
        files: &Files,
        browser: &Path,
    ) -> Result<Self> {
        let len = files.iter().map(|(_, content)| content.len()).sum();
        Ok(Self {
            browser: process::output(&browser.to_string_lossy(), &["--version"])?,
            servers,
            certificates,
            page: (files.len(), len),
            cells: Vec::new(),
        })
    }

    /// The distinct links of the cells, in order.
    pub(crate) fn links(&self) -> Vec<(&str, &str)> {
        let mut links: Vec<(&str, &str)> = Vec::new();
        for cell in &self.cells {
            if links.last().is_none_or(|(name, _)| *name != cell.link) {
                links.push((&cell.link, &cell.link_text));
            }
        }
        links
    }

    /// Writes tables, picture and data to files of this name in a folder.
    pub(crate) fn save(&self, folder: &Path, name: &str) -> Result<()> {
        fs::create_dir_all(folder)?;
        let file = |kind: &str| folder.join(format!("{name}.{kind}"));
        fs::write(file("md"), self.markdown(name))?;
        fs::write(file("svg"), picture::draw(self))?;
        let mut data = flate2::write::GzEncoder::new(
            fs::File::create(file("json.gz"))?,
            flate2::Compression::best(),
        );
        serde_json::to_writer(&mut data, self)?;
        data.finish()?;
        Ok(())
    }

    /// The tables, with a reference to the picture of this name.
    pub(crate) fn markdown(&self, name: &str) -> String {
        let (files, len) = self.page;
        let mut text = format!(
            "# Page loads: {name}\n\nA page of {files} files, {} KB, in {}; each load with a new connection \
             and an empty cache, every byte compared. Certificates of {} bytes. Times in ms since \
             the navigation began: the median, and the least and the most. The last column is the \
             median divided by the best of the other servers, by the same protocol.\n\n\
             ![Page loads]({name}.svg)\n\n",
            len / 1000,
            self.browser,
            self.certificates
        );
        for found in &self.servers {
            let what = match &found.program {
                Ok(program) => program.version.clone(),
                Err(reason) => format!("left out: {reason}"),
            };
            let _ = writeln!(text, "- {}: {what}", found.name);
        }
        for (link, link_text) in self.links() {
            let _ = write!(
                text,
                "\n## {link}: {link_text}\n\n\
                 | | server | first byte | first paint | last byte | dropped, lost | beside the \
                 best other: first byte, paint, last |\n|---|---|---|---|---|---|---|\n"
            );
            for cell in self.cells.iter().filter(|cell| cell.link == link) {
                let _ = write!(text, "| {} | {} |", cell.protocol.name(), cell.server);
                if let Some(reason) = &cell.left_out {
                    let _ = writeln!(text, " left out: {reason} | | | | |");
                    continue;
                }
                let mut ratios = Vec::new();
                for (_, figure) in FIGURES {
                    let Some(own) = cell.spread(figure) else {
                        continue;
                    };
                    let _ = write!(text, " {:.0} ({:.0}-{:.0}) |", own.median, own.min, own.max);
                    ratios.push(match self.best_other(cell, figure) {
                        Some(best) => format!("{:.2}", own.median / best),
                        None => "-".to_owned(),
                    });
                }
                let mean = |count: fn(&Counts) -> u64| {
                    let total: u64 = cell.runs.iter().map(|run| count(&run.down)).sum();
                    total as f64 / cell.runs.len().max(1) as f64
                };
                let (dropped, lost) = (mean(|it| it.dropped), mean(|it| it.lost));
                let _ = writeln!(text, " {dropped:.0}, {lost:.0} | {} |", ratios.join(", "));
            }
        }
        let latest = self.cells.iter().flat_map(|cell| &cell.runs);
        let latest = latest.map(|run| run.up.latest.max(run.down.latest) as f64 / 1e6);
        if let Some(latest) = Spread::of(latest) {
            let _ = writeln!(
                text,
                "\nThe packet that was delivered latest after its time was so by {:.1} ms in the \
                 median load, and by {:.1} ms in the worst.",
                latest.median, latest.max
            );
        }
        text
    }

    /// The lowest median of the other servers on the same link over the same protocol.
    fn best_other(&self, own: &Cell, figure: fn(&Load) -> f64) -> Option<f64> {
        let others = self.cells.iter().filter(|cell| {
            cell.link == own.link && cell.protocol == own.protocol && cell.server != own.server
        });
        let medians = others.filter_map(|cell| Some(cell.spread(figure)?.median));
        medians.min_by(f64::total_cmp)
    }
}
