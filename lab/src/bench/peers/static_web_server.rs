//! static-web-server, from PATH or installed by cargo: distributions do not package it.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use super::{Launch, Task, show};
use xtask::process;

/// Finds it, or installs it with cargo if `may`.
pub(super) fn find(may: bool) -> Result<(PathBuf, String)> {
    let program = process::find_or_cargo_install("static-web-server", may)?;
    let version = process::output(&program.to_string_lossy(), &["--version"])?;
    let version = version.lines().next().unwrap_or_default().to_owned();
    Ok((program, format!("static-web-server {version}")))
}

pub(super) fn launch(program: &Path, task: &Task<'_>) -> Result<Launch> {
    let mut command = Command::new(program);
    command.args(["--host", "127.0.0.1", "--threads-multiplier", "1"]);
    command.args(["--port", &task.port.to_string()]);
    command.arg("--root").arg(&task.site.root);
    command.args(["--compression", "false", "--log-level", "error"]);
    command.args(["--cache-control-headers", "false"]);
    if let Some(certificate) = task.certificate {
        command.args(["--http2", "true", "--http2-tls-cert"]);
        command
            .arg(&certificate.chain)
            .arg("--http2-tls-key")
            .arg(&certificate.key);
    }
    let configuration = show(&command);
    Ok(Launch {
        command,
        input: None,
        configuration,
    })
}
