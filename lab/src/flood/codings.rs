//! Others ask for ever new text. The flood is the same with `--compress=stored`, so that what differs
//! is the work of the threads that compress.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use gannet_testkit::client::Client;
use gannet_testkit::content::Numbers;

use super::{Flood, RATE, Setting, Window, compare, from_one_address, give_way, print};
use crate::swap::{mib, pss};

const NAME: &str = "codings";

/// New files a second: many times what two cores can compress.
const FILES_PER_SECOND: u32 = 500;

/// Words of each file, of five letters and a space: about 24 KB.
const WORDS: usize = 4_000;

/// Different words.
const VOCABULARY: u64 = 2_000;

pub(super) fn run(setting: &Setting) -> Result<bool> {
    let seconds = setting.window() + super::WARM;
    let files = FILES_PER_SECOND * (seconds.as_secs() as u32 + 2);
    let mut numbers = Numbers(1);
    for file in 0..files {
        let mut text = String::new();
        for _ in 0..WORDS {
            write!(text, "{:05} ", numbers.below(VOCABULARY) * 49)?;
        }
        fs::write(setting.folder.join(format!("{file}.txt")), text)?;
    }
    // To a new server each time, all files are new.
    let window = |what: &str, flags: &[&str]| -> Result<Window> {
        let flags = [flags, &["--metrics", "127.0.0.1:0"]].concat();
        let (server, address) = setting.serve(&flags)?;
        let flood = |state: &Flood| flood(address, files, state);
        let window = setting.visit_during(|| from_one_address(address), RATE, flood)?;
        let made = server.metric("gannet_codings_total{result=\"made\"}")?;
        let memory = mib(pss(&server)?);
        println!("{NAME}: {what}: {made} codings made, {memory} of memory at the end");
        Ok(window)
    };
    let plain = || window("not compressed", &["--compress=stored"]);
    let [plain, coded] = setting.alternate(plain, || window("compressed", &[]))?;
    print(NAME, "not compressed", &plain.latencies);
    print(NAME, "compressed", &coded.latencies);
    let rates = [plain.flooded, coded.flooded];
    let intended = f64::from(FILES_PER_SECOND);
    Ok(compare(
        NAME,
        &plain.latencies,
        &coded.latencies,
        &rates,
        intended,
    ))
}

/// Asks for one new file after the other, at a fixed pace.
fn flood(address: SocketAddr, files: u32, state: &Flood) -> Result<()> {
    give_way()?;
    let mut client = Client::connect(address);
    state.has(1);
    state.begins();
    let start = Instant::now();
    for file in 0..files {
        if state.is_over() {
            break;
        }
        let due = start + Duration::from_secs(1) * file / FILES_PER_SECOND;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let accept = ["accept-encoding: gzip, br, zstd"];
        client
            .request("GET", &format!("/{file}.txt"), &accept)
            .expect(200);
        state.add(1);
    }
    Ok(())
}
