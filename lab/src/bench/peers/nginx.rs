//! nginx, from the distribution's package.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use super::{BACKLOG, Launch, Task};
use crate::bench::scenario::Protocol;
use xtask::process;

pub(super) fn find() -> Result<(PathBuf, String)> {
    let program = process::find_or_install("nginx", "nginx-light")?;
    let version = process::output(&program.to_string_lossy(), &["-v"])?;
    Ok((
        program,
        version.trim_start_matches("nginx version: ").to_owned(),
    ))
}

/// Whether it was built with HTTP/3, as reported on standard error.
pub(super) fn has_h3(program: &Path) -> bool {
    let said = Command::new(program).arg("-V").output();
    said.is_ok_and(|said| String::from_utf8_lossy(&said.stderr).contains("http_v3_module"))
}

pub(super) fn launch(program: &Path, cached: bool, task: &Task<'_>) -> Result<Launch> {
    let work = task.work.display();
    let root = task.site.root.display();
    let (port, workers) = (task.port, task.workers);
    // nginx uses one descriptor per connection and some for itself.
    let connections = task.files.min(65_536) - 64;
    let files = task.files;
    let cache = match cached {
        true => "open_file_cache max=20000 inactive=600s; open_file_cache_valid 600s;",
        false => "",
    };
    let (mut options, mut tls) = (String::new(), String::new());
    if workers > 1 {
        // As gannet: the kernel spreads connections over the workers.
        options.push_str(" reuseport");
    }
    if let Some(certificate) = task.certificate {
        let (chain, key) = (certificate.chain.display(), certificate.key.display());
        options.push_str(" ssl");
        tls = format!(
            "ssl_certificate {chain};
        ssl_certificate_key {key};
        ssl_protocols TLSv1.2 TLSv1.3;"
        );
        if task.ktls {
            tls.push_str("\n        ssl_conf_command Options KTLS;");
        }
    }
    if task.cell.scenario.load.protocol == Protocol::H2 {
        options.push_str(" http2");
    }
    let quic = match task.cell.scenario.load.protocol {
        Protocol::H3 => format!("listen 127.0.0.1:{port} quic; quic_gso on;"),
        Protocol::H1 | Protocol::H2 => String::new(),
    };
    // With tcp_nopush, the end of an HTTP/2 response waits for an acknowledgement, so it is slower.
    let nopush = match task.cell.scenario.load.protocol {
        Protocol::H1 | Protocol::H3 => "on",
        Protocol::H2 => "off",
    };
    let types = match Path::new("/etc/nginx/mime.types").exists() {
        true => "include /etc/nginx/mime.types;",
        false => "types { text/html html; text/plain txt; }",
    };
    let cell = task.cell;
    let gzip = match cell.scenario.load.codings.is_empty() {
        true => "",
        false if cell.content.compressed => "gzip_static on;",
        // Its manual's directive with its default level, and what it does not compress by default.
        false => "gzip on;\n    gzip_types text/css application/javascript text/javascript;",
    };
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("    {kind}_temp_path {work}/{kind};\n"))
        .concat();
    let configuration = format!(
        "daemon off;
worker_processes {workers};
worker_rlimit_nofile {files};
pid {work}/nginx.pid;
error_log stderr crit;
events {{ use epoll; worker_connections {connections}; }}
http {{
    {types}
    default_type application/octet-stream;
    access_log off;
    sendfile on;
    tcp_nopush {nopush};
    keepalive_timeout 3600s;
    keepalive_requests 1000000000;
    {cache}
    {gzip}
{temporary}    server {{
        listen 127.0.0.1:{port} backlog={BACKLOG}{options};
        {quic}
        {tls}
        root {root};
    }}
}}
"
    );
    let path = task.work.join("nginx.conf");
    fs::write(&path, &configuration)?;
    let mut command = Command::new(program);
    command
        .arg("-p")
        .arg(task.work)
        .arg("-c")
        .arg(path)
        .args(["-e", "stderr"]);
    Ok(Launch {
        command,
        input: None,
        configuration,
    })
}
