//! `asan`: tests, servers that end, and inputs of the fuzz targets, under AddressSanitizer and LeakSanitizer.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use lexopt::prelude::*;
use xtask::answer::ask;
use xtask::certificate::{Certificate, ECDSA_P256};
use xtask::process;
use xtask::running::until;
use xtask::served::Served;

use crate::fuzz;

/// The crates that `cargo xtask asan` tests: the one with unsafe code, those that read what peers and
/// authors write, and the server above them, with its simulator.
const ASAN_CRATES: [&str; 4] = [
    "gannet-io",
    "gannet-archive",
    "gannet-http",
    "gannet-server",
];

/// Simulator seeds: with AddressSanitizer each takes several times as long.
const SEEDS: u64 = 4;

/// What some tests do that AddressSanitizer takes for an error: they ask for more memory than there is.
const ASAN_OPTIONS: &str = "allocator_may_return_null=1";

/// Programs with a fault, and what has to be found.
const FAULTS: [(&str, &str); 2] = [
    (
        "fn main() { for _ in 0..9 { std::mem::forget(Box::new(std::hint::black_box([7u8; 64]))); } }",
        "LeakSanitizer: detected memory leaks",
    ),
    (
        "fn main() { let freed = vec![7u8].as_ptr(); println!(\"{}\", unsafe { freed.read_volatile() }); }",
        "AddressSanitizer: heap-use-after-free",
    ),
];

/// That faults are found here: not everywhere may a process look at its own threads, as a search for leaks does.
fn finds_faults() -> Result<()> {
    let folder = process::target().join("asan");
    fs::create_dir_all(&folder)?;
    let (source, program) = (folder.join("fault.rs"), folder.join("fault"));
    for (text, expected) in FAULTS {
        fs::write(&source, text)?;
        let mut compile = Command::new("rustc");
        compile.args(["--edition", "2024", "-Zsanitizer=address", "-o"]);
        compile.arg(&program).arg(&source);
        process::capture(compile.env("RUSTC_BOOTSTRAP", "1"))?;
        let output = Command::new(&program).output()?;
        let report = String::from_utf8_lossy(&output.stderr);
        let is_found = !output.status.success() && report.contains(expected);
        ensure!(is_found, "not found here: '{expected}'\n{report}");
    }
    Ok(())
}

/// `cargo xtask asan [CRATE...]`: tests under AddressSanitizer, which also looks for memory that is
/// never freed; without names, also servers that end, and the inputs of the fuzz targets. Everything is compiled
/// with it, in a target directory of its own.
pub(crate) fn main(parser: &mut lexopt::Parser) -> Result<()> {
    let mut names = Vec::new();
    while let Some(argument) = parser.next()? {
        match argument {
            Value(name) => names.push(name.string()?),
            _ => return Err(argument.unexpected().into()),
        }
    }
    let has_servers = names.is_empty();
    if has_servers {
        names.extend(ASAN_CRATES.map(str::to_owned));
    }
    finds_faults()?;
    let version = process::output("rustc", &["-vV"])?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    // With a target, build scripts and macros are compiled without it: they would not be loaded.
    let host = host.context("'rustc -vV' names no host")?;
    let mut test = cargo("test", host);
    test.args(["--tests", "--no-fail-fast"]);
    for name in &names {
        test.args(["--package", name]);
    }
    test.env("GANNET_SIM_SEEDS", SEEDS.to_string());
    process::run(&mut test)?;
    if has_servers {
        let programs = process::programs(cargo("build", host).args(["--package", "gannet"]))?;
        let program = programs
            .get("gannet")
            .context("cargo named no executable")?;
        ends_clean(program).context("a server that ends")?;
        println!("asan: a server that ends has freed what it does not know any more");
        let targets = fuzz::replay(cargo("build", host), &[("ASAN_OPTIONS", ASAN_OPTIONS)])?;
        println!("asan: {targets} fuzz targets over their inputs, nothing found");
    }
    Ok(())
}

/// Cargo, which compiles everything with AddressSanitizer.
fn cargo(what: &str, host: &str) -> Command {
    let mut command = process::cargo();
    command.args([what, "--target", host]);
    command.env("RUSTC_BOOTSTRAP", "1");
    command.env("RUSTFLAGS", "-Zsanitizer=address");
    command.env("ASAN_OPTIONS", ASAN_OPTIONS);
    command.env("CARGO_TARGET_DIR", process::target().join("asan"));
    command
}

/// On each engine, from a directory and from an archive.
fn ends_clean(program: &Path) -> Result<()> {
    let folder = process::target().join("asan/served");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let site = folder.join("site");
    fs::create_dir_all(&site)?;
    let certificate = Certificate::create(ECDSA_P256, &folder)?;
    let archive = folder.join("site.gannet");
    for engine in ["io_uring", "epoll"] {
        for served in [&site, &archive] {
            pack(program, &site, &archive, 0)?;
            let mut serve = Command::new(program);
            // A search for leaks stops threads in a way that the sandbox forbids.
            serve.args([
                "serve",
                "--sandbox",
                "off",
                "--log",
                "off",
                "--engine",
                engine,
            ]);
            serve.args(["--listen", "http://127.0.0.1:0", "--listen", "127.0.0.1:0"]);
            serve
                .args(["--workers", "2", "--grace", "2s"])
                .arg("--tls-cert")
                .arg(&certificate.chain);
            serve
                .arg("--tls-key")
                .arg(&certificate.key)
                .env("ASAN_OPTIONS", ASAN_OPTIONS);
            let log = fs::File::create(folder.join("log"))?;
            let server = Served::start(serve.stderr(log).arg(served))?;
            let server = server.context("it does not start")?;
            let ended = used(&server).and_then(|open| {
                pack(program, &site, &archive, 1)?;
                until_new(&server)?;
                let status = server.end();
                drop(open);
                status
            });
            let report = fs::read_to_string(folder.join("log"))?;
            let status = ended.with_context(|| report.clone())?;
            ensure!(
                status.success(),
                "{engine}, {}: {status}\n{report}",
                served.display()
            );
        }
    }
    Ok(())
}

/// Writes a version of the site, and its archive in place of an older one.
fn pack(program: &Path, site: &Path, archive: &Path, version: usize) -> Result<()> {
    let page = format!("<p>page {version}</p>\n").repeat(9000);
    let written = site.with_extension("new");
    fs::write(&written, page)?;
    fs::rename(written, site.join("index.html"))?;
    let mut pack = Command::new(program);
    pack.args(["pack", "--quiet", "--fast"]).arg(site);
    process::run(
        pack.arg("--output")
            .arg(archive)
            .env("ASAN_OPTIONS", ASAN_OPTIONS),
    )
}

/// Asks in clear, by TLS and HTTP/2, for parts, and for what is not there; then leaves connections open: one that
/// does nothing, one in the middle of a request, and one that reads nothing of its answers.
fn used(server: &Served) -> Result<Vec<TcpStream>> {
    for (target, fields, status) in [
        ("/", &[][..], 200),
        ("/", &["Accept-Encoding: br, gzip"], 200),
        ("/", &["Range: bytes=5-9,20-40"], 206),
        ("/missing", &[], 404),
    ] {
        let got = ask(&server.port, "GET", target, fields)?;
        ensure!(got.status == status, "{target}: {}", got.head);
    }
    let secure = server.other_ports.first().context("no second address")?;
    for version in ["--http1.1", "--http2"] {
        let mut curl = Command::new("curl");
        curl.args([
            "--silent",
            "--show-error",
            "--fail",
            "--insecure",
            version,
            "--output",
            "-",
        ]);
        let url = format!("https://127.0.0.1:{secure}/");
        process::capture(curl.args([&url, &url]))?;
    }
    let mut open = Vec::new();
    for sent in [
        "",
        "GET / HTTP/1.1\r\nHo",
        &"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(99),
    ] {
        let mut stream = TcpStream::connect(format!("127.0.0.1:{}", server.port))?;
        stream.write_all(sent.as_bytes())?;
        open.push(stream);
    }
    Ok(open)
}

/// Waits until it serves the other version.
fn until_new(server: &Served) -> Result<()> {
    until("the new page", || {
        let got = ask(&server.port, "GET", "/", &[]);
        got.is_ok_and(|it| it.body.starts_with(b"<p>page 1<"))
    })
}
