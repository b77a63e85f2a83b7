//! A host to which a hundred releases are published, one right after the other, while visitors look at it.

use std::net::{Ipv4Addr, TcpStream};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use xtask::process;
use xtask::running::{Running, free_port, until};

use super::{Fleet, Seen, visit};

const RELEASES: usize = 100;
const VISITORS: usize = 4;

/// Runs it. Pages name their releases, whose numbers go on from `last`.
pub(super) fn main(fleet: &Fleet, last: usize) -> Result<()> {
    process::run(fleet.gannet(0).args(["keygen", "often"]))?;
    let (port, of_visitors) = (free_port()?, free_port()?.to_string());
    let mut serve = fleet.gannet(0);
    serve.args(["serve", "often", "--receive", &format!("127.0.0.1:{port}")]);
    serve.args(["--require-signature", "often.pub", "--port", &of_visitors]);
    // Of several, each takes a release at its own turn: a visitor's next connection may be to a later one.
    serve.args(["--workers", "1"]);
    let host = Running::start(serve.stdout(Stdio::null()).stderr(Stdio::null()))?;
    until("the host takes a release", || publish(fleet, port).is_ok())?;
    until("the host serves", || {
        TcpStream::connect(format!("{}:{of_visitors}", Ipv4Addr::LOCALHOST)).is_ok()
    })?;
    let seen = Arc::<Seen>::default();
    let visitors: Vec<_> = (0..VISITORS)
        .map(|_| {
            let (port, seen) = (of_visitors.clone(), Arc::clone(&seen));
            thread::spawn(move || visit(0, &port, &seen))
        })
        .collect();
    let begun = Instant::now();
    let published = (last + 1..=last + RELEASES).try_for_each(|release| {
        fleet.write_pages(release, 3)?;
        publish(fleet, port)
    });
    let took = begun.elapsed().as_secs_f64();
    let is_last = || {
        let first = seen.first.lock().expect("no visitor panics");
        first.contains_key(&(0, last + RELEASES)) || seen.wrong().is_some()
    };
    let reached = published.and_then(|()| until("the host serves the last release", is_last));
    seen.ended.store(true, Ordering::Relaxed);
    for visitor in visitors {
        ensure!(visitor.join().is_ok(), "a visitor panicked");
    }
    drop(host);
    if let Some(wrong) = seen.wrong().take() {
        bail!("{wrong}");
    }
    reached?;
    let answers = seen.answers.load(Ordering::Relaxed);
    fleet.told(&format!(
        "a host has received {RELEASES} releases in {took:.1} s; of {answers} requests meanwhile none failed"
    ));
    Ok(())
}

/// Publishes the site to a store of its own, and to the host that receives at this port.
fn publish(fleet: &Fleet, port: u16) -> Result<()> {
    let mut command = fleet.gannet(0);
    command.args(["publish", "site", "published", "--fast", "-q"]);
    command.args(["--sign", "often.key", &format!("http://127.0.0.1:{port}")]);
    process::run(command.stderr(Stdio::null()))
}
