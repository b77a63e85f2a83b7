//! The files of a result: its data, and the tables and the picture that are generated from them.

use std::{
    fs::{self, File},
    io::{BufReader, Write as _},
    path::Path,
};

use anyhow::{Context, Result};
use flate2::{Compression, bufread::GzDecoder, write::GzEncoder};

use super::{Report, glance, history};

/// The file with all runs of a result.
pub(super) const DATA: &str = "report.json.gz";
/// The file with every comparison as a dot.
pub(super) const PICTURE: &str = "glance.svg";

impl Report {
    /// Reads the result `name` in `directory`.
    ///
    /// # Errors
    ///
    /// The result does not exist, or is not valid.
    pub(crate) fn read(directory: &Path, name: &str) -> Result<Self> {
        let path = directory.join(name).join(DATA);
        let shown = path.display();
        let file = File::open(&path).with_context(|| format!("cannot read '{shown}'"))?;
        let json = BufReader::new(GzDecoder::new(BufReader::new(file)));
        let mut report: Self =
            serde_json::from_reader(json).with_context(|| format!("'{shown}' is not a result"))?;
        for cell in &mut report.cells {
            cell.scenario.name = scenario_of(&cell.name).to_owned();
        }
        Ok(report)
    }

    /// Writes the result `name` into `directory`.
    ///
    /// # Errors
    ///
    /// A file cannot be written.
    pub(crate) fn save(&self, directory: &Path, name: &str) -> Result<()> {
        self.write_data(directory, name)?;
        self.render(directory, name)
    }

    /// Writes the files generated from the data of the result `name` in `directory`: tables, the
    /// picture and the index.
    ///
    /// # Errors
    ///
    /// A file cannot be written.
    pub(crate) fn render(&self, directory: &Path, name: &str) -> Result<()> {
        let write = |file: &str, text: String| {
            let file = directory.join(name).join(file);
            fs::write(&file, text).with_context(|| format!("cannot write '{}'", file.display()))
        };
        write("report.md", self.markdown())?;
        if let Some(picture) = glance::picture(self) {
            write(PICTURE, picture)?;
        }
        let index = history::write_index(directory);
        index.with_context(|| format!("cannot write the index of '{}'", directory.display()))
    }

    /// Writes the data of the result `name` to `directory`; everything else can be generated from
    /// it.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub(crate) fn write_data(&self, directory: &Path, name: &str) -> Result<()> {
        let path = directory.join(name);
        let mut data = GzEncoder::new(Vec::new(), Compression::best());
        serde_json::to_writer(&mut data, self)?;
        data.write_all(b"\n")?;
        let data = data.finish()?;
        // If it is killed here, the previous file is kept.
        let (new, file) = (path.join(format!("{DATA}.new")), path.join(DATA));
        let write = || {
            fs::create_dir_all(&path)?;
            fs::write(&new, data)?;
            fs::rename(&new, &file)
        };
        write().with_context(|| format!("cannot write '{}'", file.display()))
    }
}

/// The scenario's part of a cell's name.
fn scenario_of(cell: &str) -> &str {
    let end = cell.rfind("-c").unwrap_or(cell.len());
    let name = &cell[..end];
    // A varying value is between the two.
    match name.rsplit_once('-') {
        Some((before, value))
            if value.starts_with(['s', 'n'])
                && value.len() > 1
                && value[1..].bytes().all(|b| b.is_ascii_digit()) =>
        {
            before
        }
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::tests::{figures, report};

    #[test]
    fn a_result_is_read_as_it_was_written() {
        let directory = std::env::temp_dir().join(format!("gannet-result-{}", std::process::id()));
        let written = report(vec![("nginx", vec![figures(4.0), figures(5.0)])]);
        written
            .save(&directory, "one")
            .expect("a writable temporary directory");
        let read = Report::read(&directory, "one").expect("as it was written");
        assert_eq!(
            serde_json::to_value(&read).expect("serialises"),
            serde_json::to_value(&written).expect("serialises")
        );
        let tables = fs::read_to_string(directory.join("one/report.md")).expect("written");
        assert_eq!(tables, written.markdown());
        // There is no gannet to compare.
        assert!(!directory.join("one").join(PICTURE).exists());
        assert!(Report::read(&directory, "two").is_err());
        fs::remove_dir_all(directory).expect("ours");
    }

    #[test]
    fn cells_know_their_scenario() {
        for (cell, scenario) in [
            ("plaintext-c64", "plaintext"),
            ("h2-10k-c10-m32", "h2-10k"),
            ("file-size-s1024-c16", "file-size"),
            ("site-size-n10-c64", "site-size"),
            ("https-site-mix-c100", "https-site-mix"),
        ] {
            assert_eq!(scenario_of(cell), scenario);
        }
    }
}
