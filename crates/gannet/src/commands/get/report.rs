//! The report at the end of a download: for people, or as JSON.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use gannet_get::Download;

use crate::json;
use crate::messages::printable;
use crate::quantities::size;

/// A download with what it cost.
pub(super) struct Report {
    /// What was downloaded.
    pub(super) download: Download,
    /// Time from start to end.
    pub(super) elapsed: Duration,
    /// CPU time of the program.
    pub(super) cpu: Duration,
    /// The file with the content.
    pub(super) output: Option<PathBuf>,
}

/// 10^9 bits per second.
fn gigabits(bytes: u64, elapsed: Duration) -> f64 {
    let seconds = elapsed.as_secs_f64();
    if seconds > 0.0 {
        bytes as f64 * 8e-9 / seconds
    } else {
        0.0
    }
}

/// A rate with a suitable unit.
pub(super) fn rate(bytes: u64, elapsed: Duration) -> String {
    let gigabits = gigabits(bytes, elapsed);
    match gigabits {
        g if g >= 1.0 => format!("{g:.2} Gbit/s"),
        g if g >= 1e-3 => format!("{:.1} Mbit/s", g * 1e3),
        g => format!("{:.1} kbit/s", g * 1e6),
    }
}

impl Report {
    fn bytes(&self) -> u64 {
        self.download.transfers.iter().map(|it| it.bytes).sum()
    }

    /// CPU use, from 0 to the number of CPUs.
    fn cpu_share(&self) -> f64 {
        self.cpu.as_secs_f64() / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Text for people: a line per connection if there are several, and the total.
    pub(super) fn text(&self) -> String {
        if let Some(path) = &self.output
            && self.download.transfers.is_empty()
        {
            let shown = printable(&path.to_string_lossy());
            return format!("{shown}: already complete, nothing was downloaded\n");
        }
        let mut text = String::new();
        let line = |text: &mut String, name: &str, bytes: u64, elapsed: Duration| {
            let (size, rate) = (size(bytes), rate(bytes, elapsed));
            let seconds = elapsed.as_secs_f64();
            let _ = writeln!(text, "{name}: {size} in {seconds:.3} s, {rate}");
        };
        if self.download.transfers.len() > 1 {
            for (index, it) in self.download.transfers.iter().enumerate() {
                let name = format!("{:>4} {} {}", index + 1, it.protocol, printable(&it.url));
                line(&mut text, &name, it.bytes, it.elapsed);
            }
        }
        let name = match (self.download.transfers.as_slice(), &self.output) {
            (_, Some(path)) => printable(&path.to_string_lossy()),
            ([only], None) => format!("{} {}", only.protocol, printable(&only.url)),
            _ => "total".to_owned(),
        };
        line(&mut text, &name, self.bytes(), self.elapsed);
        let (cpu, share) = (self.cpu.as_secs_f64(), self.cpu_share() * 100.0);
        let _ = writeln!(text, "CPU of this client: {cpu:.3} s, {share:.0} % of one");
        if let Some(digest) = self.download.digest {
            let _ = writeln!(text, "the {digest} digest matches");
        }
        text
    }

    /// One JSON object.
    pub(super) fn json(&self) -> String {
        let rates = |bytes: u64, elapsed: Duration| {
            format!(
                "\"bytes\": {bytes}, \"seconds\": {:.6}, \"gigabits_per_s\": {:.6}",
                elapsed.as_secs_f64(),
                gigabits(bytes, elapsed)
            )
        };
        let each: Vec<String> = self
            .download
            .transfers
            .iter()
            .map(|it| {
                let (url, rates) = (json::string(&it.url), rates(it.bytes, it.elapsed));
                format!(
                    "{{\"url\": {url}, \"protocol\": \"{}\", {rates}}}",
                    it.protocol
                )
            })
            .collect();
        let optional = |text: Option<String>| text.map_or("null".to_owned(), |t| json::string(&t));
        let output = self
            .output
            .as_ref()
            .map(|path| path.to_string_lossy().into_owned());
        format!(
            "{{{}, \"cpu_seconds\": {:.6}, \"output\": {}, \"digest\": {}, \"connections\": [{}]}}\n",
            rates(self.bytes(), self.elapsed),
            self.cpu.as_secs_f64(),
            optional(output),
            optional(self.download.digest.map(str::to_owned)),
            each.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_the_unit_that_suits_them() {
        let in_1_s = |bytes| rate(bytes, Duration::from_secs(1));
        assert_eq!(in_1_s(3_125_000_000), "25.00 Gbit/s");
        assert_eq!(in_1_s(1_250_000), "10.0 Mbit/s");
        assert_eq!(in_1_s(10), "0.1 kbit/s");
        assert_eq!(rate(10, Duration::ZERO), "0.0 kbit/s");
    }
}
