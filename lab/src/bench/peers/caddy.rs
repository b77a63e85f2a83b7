//! Caddy, from the distribution's package.

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
    let program = process::find_or_install("caddy", "caddy")?;
    let version = process::output(&program.to_string_lossy(), &["version"])?;
    Ok((program, format!("caddy {version}")))
}

pub(super) fn launch(program: &Path, task: &Task<'_>) -> Result<Launch> {
    let (root, port) = (task.site.root.display(), task.port);
    let (scheme, tls) = match task.certificate {
        None => ("http", String::new()),
        Some(certificate) => {
            let (chain, key) = (certificate.chain.display(), certificate.key.display());
            ("https", format!("    tls {chain} {key}\n"))
        }
    };
    let protocols = match task.cell.scenario.load.protocol {
        Protocol::H3 => "h1 h2 h3",
        Protocol::H1 | Protocol::H2 => "h1 h2 h2c",
    };
    // As its manual shows it.
    let encode = match task.cell.scenario.load.codings.is_empty() {
        true => "",
        false => "    encode zstd gzip\n",
    };
    let configuration = format!(
        "{{
    admin off
    auto_https off
    servers {{
        protocols {protocols}
    }}
}}
{scheme}://127.0.0.1:{port}, {scheme}://localhost:{port} {{
    bind 127.0.0.1
    root * {root}
{encode}    file_server
{tls}}}
"
    );
    let path = task.work.join("Caddyfile");
    fs::write(&path, &configuration)?;
    let mut command = Command::new(program);
    command
        .args(["run", "--adapter", "caddyfile", "--config"])
        .arg(path);
    // Otherwise it would store state in the user's home directory.
    command
        .env("XDG_DATA_HOME", task.work)
        .env("XDG_CONFIG_HOME", task.work);
    command.env("GOMAXPROCS", "1");
    Ok(Launch {
        command,
        input: None,
        configuration,
    })
}
