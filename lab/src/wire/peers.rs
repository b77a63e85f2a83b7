//! The same files from other servers that compress while they serve: their bytes and their CPU time.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use xtask::process;
use xtask::running::free_port;
use xtask::served::Served;

use crate::bench::usage;

/// The longest wait for a peer to accept connections.
const START_MAX: Duration = Duration::from_secs(10);

/// Time for nginx to end, and its workers with it.
const STOP_TIME: Duration = Duration::from_millis(200);

/// Content that one server has sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fetched {
    /// Bytes of content, as coded.
    pub(super) bytes: u64,
    /// Files that came coded.
    pub(super) coded: usize,
}

/// A server that runs until it is dropped.
struct Peer {
    name: &'static str,
    process: Child,
    stream: BufReader<TcpStream>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        // SIGTERM, so that nginx ends its workers.
        let _ = Command::new("kill")
            .arg(self.process.id().to_string())
            .status();
        thread::sleep(STOP_TIME);
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// One server's share of the comparison.
struct Row {
    name: &'static str,
    pid: u32,
    fetched: Fetched,
    /// CPU time per response in microseconds, by round.
    costs: Vec<f64>,
}

/// Fetches all files from gannet, which has coded them, and from nginx and Caddy, in turns; prints
/// a line for each.
pub(super) fn compare(
    directory: &Path,
    targets: &[(String, u64)],
    accept: &str,
    (gannet, rounds): (&Served, usize),
) -> Result<()> {
    let work = std::env::temp_dir().join(format!("gannet-wire-{}", std::process::id()));
    fs::create_dir_all(&work)?;
    let result = compare_in(&work, directory, (targets, accept), (gannet, rounds));
    fs::remove_dir_all(&work)?;
    result
}

fn compare_in(
    work: &Path,
    directory: &Path,
    (targets, accept): (&[(String, u64)], &str),
    (gannet, rounds): (&Served, usize),
) -> Result<()> {
    let directory = directory
        .canonicalize()
        .with_context(|| format!("'{}'", directory.display()))?;
    let mut peers = Vec::new();
    for start in [nginx, caddy] {
        match start(work, &directory) {
            Ok(peer) => peers.push(peer),
            Err(error) => println!("left out: {error:#}"),
        }
    }
    let own = BufReader::new(TcpStream::connect(format!("127.0.0.1:{}", gannet.port))?);
    let mut streams = vec![("gannet", gannet.pid(), own)];
    for peer in &mut peers {
        let stream = TcpStream::connect(peer.stream.get_ref().peer_addr()?)?;
        streams.push((peer.name, peer.process.id(), BufReader::new(stream)));
    }
    let mut rows: Vec<Row> = streams
        .iter()
        .map(|&(name, pid, _)| Row {
            name,
            pid,
            fetched: Fetched::default(),
            costs: Vec::new(),
        })
        .collect();
    // The first round warms caches.
    for round in 0..=rounds {
        for (row, (_, _, stream)) in rows.iter_mut().zip(&mut streams) {
            let before = usage::of_tree(row.pid)?;
            row.fetched = fetch_all(stream, targets, accept).context(row.name)?;
            let spent = usage::of_tree(row.pid)?.cpu_since(&before);
            if round > 0 {
                row.costs
                    .push(spent.as_secs_f64() * 1e6 / targets.len() as f64);
            }
        }
    }
    print(&rows, targets);
    Ok(())
}

fn print(rows: &[Row], targets: &[(String, u64)]) {
    let all: u64 = targets.iter().map(|(_, len)| len).sum();
    println!("server   of the files   coded   CPU time a response   of gannet's");
    for row in rows {
        let costs = row.costs.iter().zip(&rows[0].costs);
        let ratio = median(costs.map(|(cost, own)| cost / own).collect());
        println!(
            "{:<8} {:>12.3} {:>7} {:>18.1} µs {ratio:>13.2}",
            row.name,
            row.fetched.bytes as f64 / all as f64,
            row.fetched.coded,
            median(row.costs.clone()),
        );
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// nginx with its usual types compressed, at its default level.
fn nginx(work: &Path, root: &Path) -> Result<Peer> {
    let program = process::find_or_install("nginx", "nginx-light")?;
    let (work_shown, root, port) = (work.display(), root.display(), free_port()?);
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {work_shown}/{kind};\n"))
        .concat();
    let text = format!(
        "daemon off;
worker_processes 1;
pid {work_shown}/nginx.pid;
error_log stderr crit;
events {{ }}
http {{
include /etc/nginx/mime.types;
access_log off;
sendfile on;
keepalive_timeout 3600s;
keepalive_requests 1000000000;
gzip on;
gzip_types text/plain text/css application/json application/javascript text/javascript text/xml
    application/xml image/svg+xml;
{temporary}server {{ listen 127.0.0.1:{port}; root {root}; }}
}}
"
    );
    let path = work.join("nginx.conf");
    fs::write(&path, text)?;
    let mut command = Command::new(program);
    command.args(["-e", "stderr", "-p"]).arg(work);
    command.arg("-c").arg(path);
    start("nginx", command, port)
}

/// Caddy with the codings that its manual shows.
fn caddy(work: &Path, root: &Path) -> Result<Peer> {
    let program = process::find_or_install("caddy", "caddy")?;
    let (root, port) = (root.display(), free_port()?);
    let text = format!(
        "{{
    admin off
    auto_https off
}}
http://127.0.0.1:{port}, http://localhost:{port} {{
    bind 127.0.0.1
    root * {root}
    encode zstd gzip
    file_server
}}
"
    );
    let path = work.join("Caddyfile");
    fs::write(&path, text)?;
    let mut command = Command::new(program);
    command.args(["run", "--adapter", "caddyfile", "--config"]);
    command.arg(path);
    // Otherwise it would store state in the user's home directory.
    command.env("XDG_DATA_HOME", work);
    command.env("XDG_CONFIG_HOME", work).env("GOMAXPROCS", "1");
    start("caddy", command, port)
}

fn start(name: &'static str, mut command: Command, port: u16) -> Result<Peer> {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::null());
    let mut process = command.spawn().context(name)?;
    let begin = Instant::now();
    loop {
        if let Ok(stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
            return Ok(Peer {
                name,
                process,
                stream: BufReader::new(stream),
            });
        }
        if begin.elapsed() > START_MAX || process.try_wait()?.is_some() {
            let _ = process.kill();
            let _ = process.wait();
            bail!("{name} does not start");
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Fetches every file once, one after the other.
pub(super) fn fetch_all(
    stream: &mut BufReader<TcpStream>,
    targets: &[(String, u64)],
    accept: &str,
) -> Result<Fetched> {
    let mut all = Fetched::default();
    for (target, len) in targets {
        let (bytes, is_coded) =
            fetch(stream, target, accept).with_context(|| format!("'{target}'"))?;
        ensure!(
            is_coded || bytes == *len,
            "'{target}': {bytes} bytes came of {len}"
        );
        all.bytes += bytes;
        all.coded += usize::from(is_coded);
    }
    Ok(all)
}

/// Fetches one file; returns the bytes of its content, and whether it was coded.
fn fetch(stream: &mut BufReader<TcpStream>, target: &str, accept: &str) -> Result<(u64, bool)> {
    let request =
        format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: {accept}\r\n\r\n");
    stream.get_mut().write_all(request.as_bytes())?;
    let (mut len, mut is_coded, mut is_chunked) = (None, false, false);
    let status = read_line(stream)?;
    ensure!(status.starts_with("HTTP/1.1 200 "), "{status}");
    loop {
        let field = read_line(stream)?.to_ascii_lowercase();
        match field.split_once(": ") {
            Some(("content-length", value)) => len = Some(value.parse()?),
            Some(("content-encoding", _)) => is_coded = true,
            Some(("transfer-encoding", "chunked")) => is_chunked = true,
            _ if field.is_empty() => break,
            _ => {}
        }
    }
    let bytes = match (len, is_chunked) {
        (Some(len), false) => discard(stream, len)?,
        (None, true) => discard_chunks(stream)?,
        _ => bail!("the end of the content is not known"),
    };
    Ok((bytes, is_coded))
}

/// Reads content in chunks (RFC 9112 section 7.1), without trailers; returns its length.
fn discard_chunks(stream: &mut BufReader<TcpStream>) -> Result<u64> {
    let mut all = 0;
    loop {
        let size = read_line(stream)?;
        let size =
            u64::from_str_radix(&size, 16).with_context(|| format!("chunk size '{size}'"))?;
        all += discard(stream, size)?;
        ensure!(read_line(stream)?.is_empty(), "no end of a chunk");
        if size == 0 {
            return Ok(all);
        }
    }
}

fn discard(stream: &mut BufReader<TcpStream>, len: u64) -> Result<u64> {
    let read = std::io::copy(&mut stream.take(len), &mut std::io::sink())?;
    ensure!(read == len, "the connection ended");
    Ok(len)
}

/// A line without its end.
fn read_line(stream: &mut BufReader<TcpStream>) -> Result<String> {
    let mut line = String::new();
    ensure!(stream.read_line(&mut line)? > 0, "the connection ended");
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}
