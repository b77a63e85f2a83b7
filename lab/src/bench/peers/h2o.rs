//! h2o, from the distribution's package.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use super::{Launch, Task};
use crate::bench::scenario::Protocol;
use xtask::process;

pub(super) fn find() -> Result<(PathBuf, String)> {
    let program = process::find_or_install("h2o", "h2o")?;
    let version = process::output(&program.to_string_lossy(), &["--version"])?;
    let lines: Vec<&str> = version.lines().take(2).collect();
    Ok((program, lines.join(", ")))
}

/// Whether it was built with HTTP/3: the binary then contains the names of its settings.
pub(super) fn has_h3(program: &Path) -> bool {
    let name = b"http3-idle-timeout";
    fs::read(program).is_ok_and(|bytes| memchr::memmem::find(&bytes, name).is_some())
}

pub(super) fn launch(program: &Path, task: &Task<'_>) -> Result<Launch> {
    let (root, port, workers) = (task.site.root.display(), task.port, task.workers);
    let connections = task.files.min(65_536) - 64;
    let tls = task.certificate.map_or_else(String::new, |certificate| {
        let (chain, key) = (certificate.chain.display(), certificate.key.display());
        format!(
            "  ssl:
    certificate-file: {chain}
    key-file: {key}
    minimum-version: TLSv1.2
"
        )
    });
    let quic = match task.cell.scenario.load.protocol {
        Protocol::H3 => format!(
            "http3-idle-timeout: 3600
listen:
  type: quic
  host: 127.0.0.1
  port: {port}
{tls}"
        ),
        Protocol::H1 | Protocol::H2 => String::new(),
    };
    // As root it would switch to another user, who may not be able to read the site.
    let user = match rustix::process::geteuid().is_root() {
        true => "user: root\n",
        false => "",
    };
    let compress = match task.cell.scenario.load.codings.is_empty() {
        true => "",
        false if task.cell.content.compressed => "file.send-compressed: ON\n",
        false => "compress: [ br, gzip ]\n",
    };
    let configuration = format!(
        "{user}num-threads: {workers}
max-connections: {connections}
http1-request-timeout: 3600
http2-idle-timeout: 3600
{quic}listen:
  host: 127.0.0.1
  port: {port}
{tls}hosts:
  default:
    paths:
      \"/\":
        file.dir: {root}
{compress}"
    );
    let path = task.work.join("h2o.conf");
    fs::write(&path, &configuration)?;
    let mut command = Command::new(program);
    command.arg("-c").arg(path);
    Ok(Launch {
        command,
        input: None,
        configuration,
    })
}
