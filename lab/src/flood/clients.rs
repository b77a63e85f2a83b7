//! Many addresses ask for twice what they may. The visitor comes from many addresses as well, each
//! within its limit: a proxy's would need no limits, and a single one would have one of its own.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use gannet_testkit::DEADLINE;
use gannet_testkit::client::Client;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};

use super::{CACHED, Setting, compare, give_way, print};
use crate::idle::allow_descriptors;

const NAME: &str = "clients";

/// Addresses of the flood, with one connection each.
const ADDRESSES: u32 = 10_000;

/// Threads that the flood's connections share.
const THREADS: u32 = 4;

/// The limit, and the seconds between two requests of one connection of the flood.
const LIMIT: &str = "1/s,burst=2";
const BETWEEN: Duration = Duration::from_millis(500);

/// Requests a second of the visitor, and its addresses, with one connection each.
const RATE: u32 = 100;
const VISITORS: u32 = 200;

pub(super) fn run(setting: &Setting) -> Result<bool> {
    allow_descriptors(u64::from(ADDRESSES + VISITORS) + 100)?;
    let (_server, address) = setting.serve(&["--client-requests", LIMIT])?;
    let visitors = || -> Result<Vec<Client>> {
        (0..VISITORS)
            .map(|number| from(2, number, address))
            .collect()
    };
    let calm = setting.visit_during(visitors, RATE, |_| Ok(()))?;
    print(NAME, "without a flood", &calm);
    let (answered, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let flood = |is_over: &AtomicBool| flood(address, is_over, [&answered, &refused]);
    let flooded = setting.visit_during(visitors, RATE, flood)?;
    print(
        NAME,
        &format!("with {ADDRESSES} addresses at their limit"),
        &flooded,
    );
    let [answered, refused] = [answered, refused].map(AtomicU64::into_inner);
    println!("{NAME}: {answered} of the flood's requests answered, {refused} with 429");
    Ok(compare(NAME, &calm, &flooded))
}

/// Connects from the address `127.NETWORK.x.y`.
fn from(network: u8, number: u32, server: SocketAddr) -> Result<Client> {
    let [_, _, high, low] = (number + 1).to_be_bytes();
    let own = SocketAddrV4::new(Ipv4Addr::new(127, network, high, low), 0);
    let (inet, stream) = (AddressFamily::INET, SocketType::STREAM);
    let socket = socket_with(inet, stream, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &own).with_context(|| format!("cannot use the address {own}"))?;
    connect(&socket, &server)?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    stream.set_write_timeout(Some(DEADLINE))?;
    Ok(Client::over_stream(stream))
}

fn flood(address: SocketAddr, is_over: &AtomicBool, counts: [&AtomicU64; 2]) -> Result<()> {
    let one = |thread: u32| -> Result<()> {
        give_way()?;
        let numbers = (thread..ADDRESSES).step_by(THREADS as usize);
        let mut clients = numbers
            .map(|number| from(1, number, address))
            .collect::<Result<Vec<_>>>()?;
        while !is_over.load(Ordering::SeqCst) {
            let start = Instant::now();
            let pace = BETWEEN / clients.len() as u32;
            for (number, client) in (0..).zip(&mut clients) {
                let due = start + pace * number;
                thread::sleep(due.saturating_duration_since(Instant::now()));
                let response = client.get(&format!("/{}", CACHED.0));
                let is_refused = response.status == 429;
                assert!(is_refused || response.status == 200, "{response:?}");
                counts[usize::from(is_refused)].fetch_add(1, Ordering::Relaxed);
                if response.field("connection") == Some("close") {
                    client.closes();
                    *client = from(1, thread + THREADS * number, address)?;
                }
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|it| scope.spawn(move || one(it)))
            .collect();
        let mut results = threads.into_iter().map(|it| it.join());
        results.try_for_each(|it| it.unwrap_or_else(|_| Err(anyhow::anyhow!("see above"))))
    })
}
