//! The functions that one request executes: those of a warm GET from an archive, without optimisation.
//!
//! Callgrind counts the calls of two runs. A function that is called more often in the longer one is on
//! the way of a request.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use xtask::process;
use xtask::served::Served;

/// Requests of the two runs.
const REQUESTS: [u64; 2] = [20, 120];

/// The content of the file that is asked for.
const TEXT: &[u8] = b"All work and no play makes a page.\n";

/// Calls of functions, by file and name.
type Calls = BTreeMap<(String, String), u64>;

/// Prints how many functions of the project, in how many files, one warm request executes.
pub(super) fn print() -> Result<()> {
    if process::find("valgrind").is_none() {
        println!("walk: left out: valgrind is not installed");
        return Ok(());
    }
    let target = process::target().join("walk");
    let mut build = process::cargo();
    build.args(["build", "--package", "gannet", "--bin", "gannet"]);
    build
        .args(["--config", "profile.dev.opt-level=0", "--target-dir"])
        .arg(&target);
    let programs = process::programs(&mut build)?;
    let gannet = programs.get("gannet").context("cargo named no program")?;
    let (site, archive) = (target.join("site"), target.join("site.gannet"));
    fs::create_dir_all(&site)?;
    fs::write(site.join("page.txt"), TEXT)?;
    let mut pack = Command::new(gannet);
    pack.args(["pack", "--quiet", "--fast"]).arg(site);
    process::run(pack.arg("-o").arg(&archive))?;
    let mut runs = Vec::new();
    for count in REQUESTS {
        let out = target.join("calls").display().to_string();
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["-q", "--tool=callgrind"]);
        // Each process writes a file.
        valgrind.arg(format!("--callgrind-out-file={out}.%p"));
        valgrind.arg(gannet).arg("serve").arg(&archive);
        valgrind.args(["--listen", "127.0.0.1:0", "--engine", "epoll"]);
        valgrind.args(["--workers", "1", "--sandbox", "off", "--log", "off"]);
        let server = Served::start(&mut valgrind)?.context("gannet does not start")?;
        let out = format!("{out}.{}", server.pid());
        ask(&server, count)?;
        ensure!(server.end()?.success(), "gannet failed");
        runs.push(calls(&fs::read_to_string(out)?));
    }
    // What is called for other reasons is called less often.
    let more = REQUESTS[1] - REQUESTS[0];
    let before = |key| runs[0].get(key).copied().unwrap_or(0);
    let walk: Vec<_> = runs[1]
        .iter()
        .filter(|(key, count)| **count >= before(key) + more)
        .collect();
    let files: BTreeSet<_> = walk.iter().map(|((file, _), _)| file).collect();
    println!("walk: {} functions in {} files", walk.len(), files.len());
    Ok(())
}

/// Requests the page so many times, over one connection.
fn ask(server: &Served, count: u64) -> Result<()> {
    let mut stream = TcpStream::connect(format!("127.0.0.1:{}", server.port))?;
    let mut got = vec![0; 4096];
    for _ in 0..count {
        stream.write_all(b"GET /page.txt HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let mut len = 0;
        while !got[..len].ends_with(TEXT) {
            let read = stream.read(&mut got[len..])?;
            ensure!(read > 0, "no page");
            len += read;
        }
        ensure!(got.starts_with(b"HTTP/1.1 200 "), "no page");
    }
    Ok(())
}

/// The calls of the product's functions in callgrind's output, which names files and functions once,
/// and by their numbers after that.
fn calls(profile: &str) -> Calls {
    let (mut files, mut functions) = (BTreeMap::new(), BTreeMap::new());
    let (mut here, mut there, mut callee) = (String::new(), None, String::new());
    let mut calls = Calls::new();
    for line in profile.lines() {
        let Some((key, value)) = line.split_once('=') else {
            continue;
        };
        match key {
            "fl" | "fi" | "fe" => here = named(&mut files, value),
            "cfi" | "cfl" => there = Some(named(&mut files, value)),
            "fn" => {
                named(&mut functions, value);
            }
            "cfn" => callee = named(&mut functions, value),
            "calls" => {
                let file = there.take().unwrap_or_else(|| here.clone());
                let count = value
                    .split(' ')
                    .next()
                    .and_then(|it| it.parse::<u64>().ok());
                if let Some(file) = product_file(&file) {
                    *calls.entry((file.to_owned(), callee.clone())).or_default() +=
                        count.unwrap_or(0);
                }
            }
            _ => {}
        }
    }
    calls
}

/// The name in `(number) name`, or the one that the number had before.
fn named(names: &mut BTreeMap<String, String>, value: &str) -> String {
    match value.split_once(' ') {
        Some((number, name)) => {
            names.insert(number.to_owned(), name.to_owned());
            name.to_owned()
        }
        None => names.get(value).cloned().unwrap_or_default(),
    }
}

/// The path from the root of a file of the project.
fn product_file(path: &str) -> Option<&str> {
    let path = &path[path.find("crates/gannet-")?..];
    path.contains("/src/").then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_added_up_by_file_and_name() {
        let profile = "fl=(1) /x/crates/gannet-server/src/worker/mod.rs\nfn=(1) turn\n12 3\n\
                       cfi=(2) /x/crates/gannet-http/src/h1/machine.rs\ncfn=(2) receive\ncalls=3 7\n12 9\n\
                       cfi=(2)\ncfn=(2)\ncalls=2 7\n13 9\ncfn=(1)\ncalls=1 5\n14 1\n\
                       cfi=(3) /x/core/src/slice.rs\ncfn=(3) get\ncalls=1 1\n15 1\n";
        let calls = calls(profile);
        let count =
            |file: &str, name: &str| calls.get(&(file.to_owned(), name.to_owned())).copied();
        assert_eq!(
            count("crates/gannet-http/src/h1/machine.rs", "receive"),
            Some(5)
        );
        assert_eq!(
            count("crates/gannet-server/src/worker/mod.rs", "turn"),
            Some(1)
        );
        assert_eq!(calls.len(), 2, "{calls:?}");
    }
}
