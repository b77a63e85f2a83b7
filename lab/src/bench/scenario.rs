//! Reads the scenarios: what is served, and with which load.

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::programs::Program;
use crate::load::Order;
use xtask::certificate::{ECDSA_P256, Key, RSA_2048};

/// A file of `lab/scenarios`: a site, and the numbers of connections to load it with.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Scenario {
    /// The file's stem; not in the file itself.
    #[serde(default)]
    pub(crate) name: String,
    /// One line for people.
    pub(crate) title: String,
    /// Where the workload comes from.
    pub(crate) origin: String,
    /// The position in lists and reports.
    pub(crate) rank: u32,
    /// The unit of the cost.
    pub(crate) unit: Unit,
    /// Numbers of connections whose cells are in the README.
    #[serde(default)]
    pub(crate) readme: Vec<usize>,
    /// Measured only if `--only` names it: it takes more disk or time than usually available.
    #[serde(default)]
    pub(crate) on_demand: bool,
    /// The archive is longer than gannet copies: a run in which it is in memory gives no figure.
    #[serde(default)]
    pub(crate) uncopied: bool,
    /// The property that varies between cells, besides the connections.
    #[serde(default)]
    pub(crate) vary: Option<Vary>,
    /// The files served.
    pub(crate) content: ContentSpec,
    /// The load.
    pub(crate) load: LoadSpec,
}

/// A property of the content with several values, each a separate cell.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Vary {
    /// The size of every file, in bytes.
    Size(Vec<u64>),
    /// The number of files.
    Files(Vec<usize>),
}

impl Vary {
    /// `content` with each of the values, along with the value.
    fn contents(&self, content: &ContentSpec) -> Vec<(ContentSpec, u64)> {
        match self {
            Self::Size(sizes) => sizes
                .iter()
                .map(|&size| {
                    let sizes = Sizes::Fixed { size };
                    let content = ContentSpec {
                        sizes,
                        ..content.clone()
                    };
                    (content, size)
                })
                .collect(),
            Self::Files(counts) => counts
                .iter()
                .map(|&files| {
                    let content = ContentSpec {
                        files,
                        ..content.clone()
                    };
                    (content, files as u64)
                })
                .collect(),
        }
    }
}

/// The divisor of the server's CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Unit {
    /// Microseconds per response.
    Request,
    /// Milliseconds per 10^9 content bytes.
    Gigabyte,
}

impl Unit {
    /// The unit of the cost, for tables.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Request => "µs/req",
            Self::Gigabyte => "ms/GB",
        }
    }
}

/// The files of a site.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct ContentSpec {
    /// Number of files.
    pub(crate) files: usize,
    /// Suffix of their names; decides the content type. Several, separated by spaces, are used in
    /// turns.
    pub(crate) extension: String,
    /// What their bytes are.
    #[serde(default)]
    pub(crate) filling: Filling,
    /// Files per directory; zero places all in the root.
    #[serde(default)]
    pub(crate) per_directory: usize,
    /// Seed for the order of sizes and for the bytes.
    #[serde(default)]
    pub(crate) seed: u64,
    /// Files are holes, which read as zeros: they take neither disk space nor time to write, are
    /// always on a disk and never packed.
    #[serde(default)]
    pub(crate) sparse: bool,
    /// Text has its gzip form beside it, `f.css.gz`, and servers use that.
    #[serde(default)]
    pub(crate) compressed: bool,
    /// The distribution of sizes.
    pub(crate) sizes: Sizes,
}

/// What the bytes of files are, unless they are a text or holes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Filling {
    /// Random: no coding makes them shorter.
    #[default]
    Random,
    /// What a site's pages, styles or scripts have, as the extension says; random in pictures and fonts.
    Site,
}

/// The distribution of file sizes, in bytes.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(tag = "kind", deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) enum Sizes {
    /// Every file holds this text.
    Text {
        /// The text.
        text: String,
    },
    /// Every file has this size.
    Fixed {
        /// Bytes.
        size: u64,
    },
    /// Equal steps from the smallest to the largest.
    Uniform {
        /// Smallest, bytes.
        min: u64,
        /// Largest, bytes.
        max: u64,
    },
    /// `min * (max/min)^(u^k)` for equal steps of `u` in 0..1, with `k` chosen to give the mean.
    Skewed {
        /// Smallest, bytes.
        min: u64,
        /// Largest, bytes.
        max: u64,
        /// Mean, bytes.
        mean: u64,
    },
}

/// The key type of the servers' certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum KeyKind {
    /// ECDSA on the curve P-256.
    EcdsaP256,
    /// RSA with 2048 bits.
    #[serde(rename = "rsa-2048")]
    Rsa2048,
}

impl KeyKind {
    /// The key to make.
    pub(crate) fn key(self) -> Key {
        match self {
            Self::EcdsaP256 => ECDSA_P256,
            Self::Rsa2048 => RSA_2048,
        }
    }
}

/// The load on a site.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct LoadSpec {
    /// Concurrent connections; each number is a separate cell.
    pub(crate) connections: Vec<usize>,
    /// The order of the paths.
    pub(crate) order: Order,
    /// False means a connection per request.
    pub(crate) keep_alive: bool,
    /// All connections send a request at the same moment, and again when all have been answered.
    #[serde(default)]
    pub(crate) bursts: bool,
    /// One response in this many is compared byte for byte; zero for none.
    #[serde(default)]
    pub(crate) verify_every: u64,
    /// The protocol.
    #[serde(default)]
    pub(crate) protocol: Protocol,
    /// Codings that requests accept, and servers make of the files while they serve; empty for none.
    #[serde(default)]
    pub(crate) codings: String,
    /// The key of the servers' certificate; clear text if there is none.
    #[serde(default)]
    pub(crate) tls: Option<KeyKind>,
    /// Whether servers that have kernel TLS use it, whatever `--ktls` says.
    #[serde(default)]
    pub(crate) ktls: bool,
    /// Whether connections resume earlier TLS sessions.
    #[serde(default)]
    pub(crate) resume: bool,
    /// The load client, overriding that of the run.
    #[serde(default)]
    pub(crate) client: Option<Program>,
    /// Over HTTP/2 and HTTP/3, requests outstanding on each connection: one number for each of
    /// `connections`.
    #[serde(default)]
    pub(crate) streams: Vec<usize>,
    /// For HTTP/3, requests per second in an open loop: each is due at a fixed moment, regardless
    /// of earlier ones.
    #[serde(default)]
    pub(crate) rate: Option<f64>,
    /// For HTTP/3, whether the client knows draft-ietf-quic-ack-frequency.
    #[serde(default = "known")]
    pub(crate) ack_frequency: bool,
}

fn known() -> bool {
    true
}

/// A version of HTTP, spelled as in ALPN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) enum Protocol {
    /// HTTP/1.1.
    #[default]
    #[serde(rename = "http/1.1")]
    H1,
    /// HTTP/2, in clear text by prior knowledge.
    #[serde(rename = "h2")]
    H2,
    /// HTTP/3.
    #[serde(rename = "h3")]
    H3,
}

/// A scenario with one number of connections: what a figure belongs to.
#[derive(Clone, Debug)]
pub(crate) struct Cell<'a> {
    /// The scenario.
    pub(crate) scenario: &'a Scenario,
    /// The files served in this cell.
    pub(crate) content: ContentSpec,
    /// The value of the varying property.
    pub(crate) value: Option<u64>,
    /// Concurrent connections.
    pub(crate) connections: usize,
    /// Requests outstanding on each of them.
    pub(crate) streams: usize,
    /// Workers of the server, if their number varies; otherwise one.
    pub(crate) workers: Option<usize>,
}

impl Cell<'_> {
    /// The name of the shape, and `-wWORKERS` if their number varies.
    pub(crate) fn name(&self) -> String {
        let shape = self.shape();
        self.workers
            .map_or(shape.clone(), |workers| format!("{shape}-w{workers}"))
    }

    /// `NAME-cCONNECTIONS`, and `-mSTREAMS` over HTTP/2 and HTTP/3.
    pub(crate) fn shape(&self) -> String {
        let (name, connections) = (&self.scenario.name, self.connections);
        let name = match (&self.scenario.vary, self.value) {
            (Some(Vary::Size(_)), Some(value)) => format!("{name}-s{value}"),
            (Some(Vary::Files(_)), Some(value)) => format!("{name}-n{value}"),
            _ => name.clone(),
        };
        match self.scenario.load.protocol {
            Protocol::H1 => format!("{name}-c{connections}"),
            Protocol::H2 | Protocol::H3 => format!("{name}-c{connections}-m{}", self.streams),
        }
    }
}

impl Scenario {
    /// Whether a client with several threads makes its load.
    pub(crate) fn takes_threads(&self) -> bool {
        let load = &self.load;
        let by_wrk = load.client == Some(Program::Wrk);
        let is_plain = load.client.is_none() && !load.bursts && load.order != Order::Once;
        match load.protocol {
            Protocol::H1 => by_wrk || is_plain && load.codings.is_empty() && !load.resume,
            Protocol::H2 => is_plain,
            Protocol::H3 => false,
        }
    }

    /// The cells of this scenario.
    pub(crate) fn cells(&self) -> impl Iterator<Item = Cell<'_>> {
        let load = &self.load;
        let streams = load.streams.iter().copied().chain(std::iter::repeat(1));
        let shapes: Vec<_> = load.connections.iter().copied().zip(streams).collect();
        let contents = match &self.vary {
            None => vec![(self.content.clone(), None)],
            Some(vary) => {
                let contents = vary.contents(&self.content).into_iter();
                contents
                    .map(|(content, value)| (content, Some(value)))
                    .collect()
            }
        };
        contents.into_iter().flat_map(move |(content, value)| {
            let cells = shapes.clone().into_iter();
            cells.map(move |(connections, streams)| Cell {
                scenario: self,
                content: content.clone(),
                value,
                connections,
                streams,
                workers: None,
            })
        })
    }

    fn parse(name: &str, text: &str) -> Result<Self> {
        let mut scenario: Self = toml::from_str(text)?;
        scenario.name = name.to_owned();
        let empty = match &scenario.vary {
            None => false,
            Some(Vary::Size(sizes)) => sizes.is_empty(),
            Some(Vary::Files(counts)) => counts.is_empty() || counts.contains(&0),
        };
        ensure!(!empty, "vary needs values, and at least one file");
        let content = &scenario.content;
        ensure!(content.files > 0, "content.files must be at least 1");
        ensure!(
            !content.extension.trim().is_empty(),
            "content.extension must name one"
        );
        let connections = &scenario.load.connections;
        ensure!(
            !connections.is_empty(),
            "load.connections needs at least one number"
        );
        ensure!(
            !connections.contains(&0),
            "load.connections must be at least 1 each"
        );
        let load = &scenario.load;
        match load.protocol {
            Protocol::H1 => ensure!(load.streams.is_empty(), "load.streams is for h2 and h3"),
            Protocol::H2 | Protocol::H3 => ensure!(
                load.streams.len() == load.connections.len() && !load.streams.contains(&0),
                "load.streams must have a number for each of load.connections"
            ),
        }
        ensure!(
            !load.bursts
                || load.keep_alive && load.client.is_none() && load.protocol == Protocol::H1,
            "load.bursts is for persistent connections of HTTP/1.1, by the lab's own client"
        );
        ensure!(
            !load.resume || load.tls.is_some() && !load.keep_alive,
            "load.resume is for TLS with a connection per request"
        );
        let is_h3 = load.protocol == Protocol::H3;
        let is_random = content.filling == Filling::Random;
        ensure!(
            !is_h3 || load.tls.is_some() && load.client.is_none() && !load.ktls && !load.resume,
            "load.protocol h3 needs load.tls and the lab's own client"
        );
        ensure!(
            load.rate
                .is_none_or(|rate| rate >= 1.0 && is_h3 && load.keep_alive),
            "load.rate is for persistent connections of HTTP/3, and 1 or more"
        );
        ensure!(
            load.ack_frequency || is_h3,
            "load.ack-frequency is for HTTP/3"
        );
        ensure!(
            load.codings.is_empty()
                || !is_random
                    && load.protocol == Protocol::H1
                    && (load.client.is_none()
                        || load.client == Some(Program::Wrk) && content.compressed)
                    && load.order != Order::Once,
            "load.codings is for content.filling site, HTTP/1.1 and the lab's own client, or wrk with \
             content.compressed"
        );
        ensure!(
            is_random || !content.sparse && !matches!(content.sizes, Sizes::Text { .. }),
            "content.filling is for files that are written"
        );
        ensure!(
            !is_random || !content.compressed,
            "content.compressed is for content.filling site"
        );
        ensure!(
            !load.ktls || load.tls.is_some(),
            "load.ktls is for scenarios with load.tls"
        );
        ensure!(
            !content.sparse || matches!(content.sizes, Sizes::Fixed { .. }),
            "content.sparse is for files of one size"
        );
        ensure!(
            load.order != Order::Once
                || load.protocol == Protocol::H1 && load.client.is_none() && !content.sparse,
            "order once is for HTTP/1.1 and the lab's own client"
        );
        if let Some(client) = load.client {
            let is_wrk = client == Program::Wrk;
            ensure!(
                (content.files == 1 || is_wrk) && scenario.vary.is_none() && load.keep_alive,
                "load.client is for one file, or several with wrk, and persistent connections"
            );
            ensure!(
                !is_wrk || load.order == Order::RoundRobin,
                "wrk asks for files in turn: order round-robin"
            );
            let able = matches!(client, Program::Curl | Program::Gannet | Program::Oha);
            ensure!(
                load.protocol == Protocol::H1 || able,
                "only curl, gannet and oha are supported with HTTP/2"
            );
        }
        match content.sizes {
            Sizes::Uniform { min, max } => ensure!(min <= max, "min must not exceed max"),
            Sizes::Skewed { min, max, mean } => ensure!(
                0 < min && min < mean && mean < max && content.files > 1,
                "sizes must have 0 < min < mean < max, and more than one file"
            ),
            Sizes::Text { .. } | Sizes::Fixed { .. } => {}
        }
        Ok(scenario)
    }
}

/// Reads every scenario of `directory`, in the order of their ranks.
pub(crate) fn read_all(directory: &Path) -> Result<Vec<Scenario>> {
    let entries = fs::read_dir(directory)
        .with_context(|| format!("cannot read '{}'", directory.display()))?;
    let mut scenarios = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_none_or(|e| e != "toml") {
            continue;
        }
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let text = fs::read_to_string(&path)?;
        let scenario = Scenario::parse(&name, &text)
            .with_context(|| format!("scenario '{}'", path.display()))?;
        scenarios.push(scenario);
    }
    scenarios.sort_by(|a, b| (a.rank, &a.name).cmp(&(b.rank, &b.name)));
    Ok(scenarios)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::content;

    const GOOD: &str = r#"
        title = "t"
        origin = "o"
        rank = 1
        unit = "request"
        content = { files = 2, extension = "bin", sizes = { kind = "fixed", size = 1 } }
        load = { connections = [1, 64], order = "random", keep-alive = true, verify-every = 8 }
    "#;

    #[test]
    fn a_scenario_has_a_cell_for_each_number_of_connections() {
        let scenario = Scenario::parse("tiny", GOOD).expect("good");
        let names: Vec<_> = scenario.cells().map(|cell| cell.name()).collect();
        assert_eq!(names, ["tiny-c1", "tiny-c64"]);
    }

    #[test]
    fn wrk_asks_for_several_files_in_turn_also_over_tls() {
        let text = GOOD.replace("\"random\"", "\"round-robin\"");
        let text = text.replace("verify-every = 8", "client = \"wrk\", tls = \"rsa-2048\"");
        Scenario::parse("tiny", &text).expect("good");
        assert!(Scenario::parse("tiny", &text.replace("wrk", "ab")).is_err());
        // It compares nothing: codings are those beside the files.
        let coded = text.replace("tls =", "codings = \"gzip\", tls =");
        let coded = coded.replace("files = 2", "files = 2, filling = \"site\"");
        assert!(Scenario::parse("tiny", &coded).is_err());
        let beside = coded.replace("files = 2", "files = 2, compressed = true");
        Scenario::parse("tiny", &beside).expect("good");
    }

    #[test]
    fn mistakes_are_refused() {
        for (from, to) in [
            ("rank = 1", "rank = 1\nrnak = 2"),
            ("[1, 64]", "[]"),
            ("[1, 64]", "[0]"),
            ("files = 2", "files = 0"),
            ("extension = \"bin\"", "extension = \" \""),
            ("verify-every = 8", "streams = [1, 1]"),
            ("verify-every = 8", "protocol = \"h2\", streams = [1]"),
            ("verify-every = 8", "protocol = \"h3\""),
            ("verify-every = 8", "protocol = \"h3\", streams = [1, 1]"),
            ("verify-every = 8", "rate = 100.0"),
            ("verify-every = 8", "ack-frequency = false"),
            ("verify-every = 8", "client = \"ab\""),
            ("verify-every = 8", "client = \"wrk\""),
            ("keep-alive = true", "keep-alive = false, bursts = true"),
            ("verify-every = 8", "client = \"apache\""),
            ("verify-every = 8", "ktls = true"),
            ("size = 1 }", "size = 1 }, sparse = 1"),
            (
                "sizes = { kind = \"fixed\", size = 1 }",
                "sparse = true, sizes = { kind = \"text\", text = \"x\" }",
            ),
            ("verify-every = 8", "codings = \"gzip\""),
            ("files = 2", "files = 2, filling = \"lines\""),
            ("files = 2", "files = 2, compressed = true"),
            ("files = 2", "files = 2, sparse = true, filling = \"site\""),
            ("verify-every = 8", "tls = \"rsa-1024\""),
            ("verify-every = 8", "tls = \"rsa-2048\", resume = true"),
            ("\"request\"", "\"requests\""),
            (
                "kind = \"fixed\", size = 1",
                "kind = \"uniform\", min = 2, max = 1",
            ),
            (
                "kind = \"fixed\", size = 1",
                "kind = \"skewed\", min = 1, max = 9, mean = 9",
            ),
        ] {
            assert!(
                Scenario::parse("bad", &GOOD.replace(from, to)).is_err(),
                "{to}"
            );
        }
    }

    #[test]
    fn the_scenarios_of_the_project_are_good() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
        let scenarios = read_all(&directory).expect("all parse");
        assert!(scenarios.len() >= 6, "{}", scenarios.len());
    }

    #[test]
    fn what_is_not_to_be_copied_is_longer_than_what_gannet_copies() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
        let mut scenarios = read_all(&directory).expect("all parse");
        scenarios.retain(|scenario| scenario.uncopied);
        assert!(!scenarios.is_empty());
        for scenario in scenarios {
            let (_, bytes) = content::extent_of(&scenario.content, false);
            assert!(bytes > 256 << 20, "{}: {bytes}", scenario.name);
        }
    }
}
