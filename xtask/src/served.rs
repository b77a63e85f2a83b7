//! A server under test, killed on drop.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

/// A running server.
pub struct Served {
    child: Child,
    /// The port that it listens on.
    pub port: String,
    /// The ports of further addresses, in order.
    pub other_ports: Vec<String>,
    /// The address of its metrics, as `address:port`, if enabled.
    pub metrics: Option<String>,
}

impl Served {
    /// Starts it and waits until it listens. `None` if it reports that it cannot.
    ///
    /// # Errors
    ///
    /// The program cannot be started, or its output cannot be read.
    pub fn start(command: &mut Command) -> Result<Option<Self>> {
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let out = child.stdout.take().context("it was piped")?;
        let mut lines = BufReader::new(out).lines();
        let (mut port, mut metrics) = (None, None);
        let mut other_ports = Vec::new();
        let port_of = |url: &str| {
            // What clients it is for may follow.
            let url = url.split_whitespace().next()?;
            let text = url.trim_end_matches('/').rsplit(':').next();
            text.map(str::to_owned)
        };
        while let Some(line) = lines.next().transpose()? {
            if let Some(url) = line.strip_prefix("at ") {
                port = port_of(url);
            } else if line.starts_with(' ') && line.trim_start().starts_with("http") {
                other_ports.extend(port_of(&line));
            } else if let Some(url) = line.strip_prefix("metrics ") {
                let address = url.trim().trim_start_matches("http://");
                metrics = address.strip_suffix("/metrics").map(str::to_owned);
            } else if line.starts_with("engine ") || line.contains(" to stop") {
                break;
            }
        }
        let Some(port) = port else {
            child.wait()?;
            return Ok(None);
        };
        // Drains the rest of the output, so that the server does not block.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Some(Self {
            child,
            port,
            other_ports,
            metrics,
        }))
    }

    /// Its process ID.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The value of a metric.
    ///
    /// # Errors
    ///
    /// Metrics are disabled, or none has this name.
    pub fn metric(&self, name: &str) -> Result<u64> {
        let address = self.metrics.as_ref().context("metrics are not enabled")?;
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        let line = lines.find(|(found, _)| *found == name);
        let (_, value) = line.with_context(|| format!("no metric {name}"))?;
        Ok(value.parse()?)
    }
}

impl Served {
    /// Ends it by SIGTERM, and waits for it.
    ///
    /// # Errors
    ///
    /// It cannot be waited for.
    pub fn end(mut self) -> Result<ExitStatus> {
        let pid = Pid::from_raw(self.child.id().cast_signed()).context("it has no number")?;
        kill_process(pid, Signal::TERM)?;
        Ok(self.child.wait()?)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
