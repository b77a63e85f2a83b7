//! Others ask for large files on a disk that does one thing at a time and caches nothing: as with
//! files that together are larger than the memory.

use std::fs::{self, File};
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use gannet_testkit::client::Client;
use gannet_testkit::content::pattern;
use gannet_testkit::fuse::{Disk, Mounted};

use super::{Flood, RATE, Setting, from_one_address, print};
use crate::swap::verdict;

const NAME: &str = "disk";

/// Time of each read of the disk, of at most 128 KiB unless the kernel is told otherwise.
const READ_TIME: Duration = Duration::from_millis(5);

/// Files of the flood, and the length of each in bytes.
const FILES: usize = 32;
const LEN: usize = 4 << 20;

/// Those who ask for them at once.
const CONNECTIONS: usize = 16;

/// What the server may keep: less than the files of the flood.
const CACHE: &str = "16M";

/// Longest time that the visitor may wait, in milliseconds.
const LONGEST_MAX_MS: f64 = 50.0;

/// The part of the disk's throughput that the server must reach.
const THROUGHPUT_MIN: f64 = 0.9;

pub(super) fn run(setting: &Setting) -> Result<bool> {
    let mount_point = setting.folder.join("slow");
    fs::create_dir_all(&mount_point)?;
    let content = pattern(LEN, 0);
    let names: Vec<String> = (0..FILES).map(|it| format!("{it}.bin")).collect();
    let disk = Disk::Delayed(READ_TIME);
    let files: Vec<_> = names
        .iter()
        .map(|it| (it.as_str(), &content[..], disk))
        .collect();
    let Some(_mounted) = Mounted::at(&mount_point, &files) else {
        println!("{NAME}: left out: FUSE is not permitted");
        return Ok(true);
    };
    let alone = read_directly(&mount_point, &names)?;
    println!("{NAME}: read by one program, one file after the other: {alone:.1} MB/s");
    let (_server, address) = setting.serve(&["--cache-memory", CACHE])?;
    let visitors = || from_one_address(address);
    let flood = |state: &Flood| {
        flood(address, state);
        Ok(())
    };
    let [calm, flooded] = setting.alternate(
        || setting.visit_during(visitors, RATE, |_| Ok(())),
        || setting.visit_during(visitors, RATE, flood),
    )?;
    let (calm, rate) = (calm.latencies, flooded.flooded / 1e6);
    let flooded = flooded.latencies;
    print(NAME, "without a flood", &calm);
    print(NAME, &format!("with {CONNECTIONS} downloads"), &flooded);
    let longest = flooded.percentile(100.0);
    let is_quick = longest <= LONGEST_MAX_MS;
    println!(
        "{NAME}: longest {longest:.1} ms (bound: {LONGEST_MAX_MS} ms, {})",
        verdict(is_quick)
    );
    let part = rate / alone;
    let is_fast = part >= THROUGHPUT_MIN;
    println!(
        "{NAME}: {rate:.1} MB/s to the downloads, {part:.2} of the disk's (bound: {THROUGHPUT_MIN}, {})",
        verdict(is_fast)
    );
    Ok(is_quick && is_fast)
}

/// The throughput of a program that reads the files, in MB/s.
fn read_directly(folder: &Path, names: &[String]) -> Result<f64> {
    let start = Instant::now();
    let (mut sum, mut buffer) = (0, vec![0; 128 << 10]);
    for name in &names[..FILES / 8] {
        let mut file = File::open(folder.join(name))?;
        loop {
            let count = file.read(&mut buffer)?;
            if count == 0 {
                break;
            }
            sum += count;
        }
    }
    Ok(sum as f64 / start.elapsed().as_secs_f64() / 1e6)
}

/// Downloads the files again and again.
fn flood(address: SocketAddr, state: &Flood) {
    state.has(CONNECTIONS as u64);
    thread::scope(|scope| {
        for first in 0..CONNECTIONS {
            scope.spawn(move || {
                let client = Client::try_connect(address);
                state.begins();
                let mut client = client.expect("it serves");
                for number in (first..).step_by(CONNECTIONS) {
                    let target = format!("/slow/{}.bin", number % FILES);
                    client.send(gannet_testkit::client::head("GET", &target, &[]));
                    let mut rest = client.head().expect(200).content_length().unwrap_or(0);
                    while rest > 0 {
                        if state.is_over() {
                            return;
                        }
                        let part = client.take(rest.min(64 << 10));
                        rest -= part.len() as u64;
                        state.add(part.len() as u64);
                    }
                }
            });
        }
    });
}
