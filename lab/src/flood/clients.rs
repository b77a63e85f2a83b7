//! Many addresses ask for twice what they may. The visitor comes from many addresses as well, each
//! within its limit: a proxy's would need no limits, and a single one would have one of its own.
//!
//! The same flood of a server without the limit is what the visitor's wait is compared with: the flood's
//! clients take as much of the processors as the server, so a comparison with a calm server measures them.

use std::collections::VecDeque;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use gannet_testkit::DEADLINE;
use gannet_testkit::client::{Client, head};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};

use super::{CACHED, Flood, Setting, Window, compare, give_way, print};
use crate::idle::allow_descriptors;

const NAME: &str = "clients";

/// Addresses of the flood, with one connection each.
const ADDRESSES: u32 = 10_000;

/// Threads that the flood's connections share.
const THREADS: u32 = 4;

/// The limit, and the seconds between two requests of one connection of the flood.
const LIMIT: &str = "client.requests = '1/s,burst=2'";
const BETWEEN: Duration = Duration::from_millis(500);

/// Requests a second of the visitor, and its addresses, with one connection each.
const RATE: u32 = 100;
const VISITORS: u32 = 200;

pub(super) fn run(setting: &Setting) -> Result<bool> {
    allow_descriptors(u64::from(ADDRESSES + VISITORS) + 100)?;
    let config = setting.folder.join("gannet.toml");
    fs::write(&config, LIMIT)?;
    let config = config.to_str().context("UTF-8")?;
    let window = |what: &str, flags: &[&str]| -> Result<Window> {
        let (_server, address) = setting.serve(flags)?;
        let connect = |number| from(2, number, address);
        let visitors = || (0..VISITORS).map(connect).collect();
        let (answered, refused) = (AtomicU64::new(0), AtomicU64::new(0));
        let flood = |state: &Flood| flood(address, state, [&answered, &refused]);
        let window = setting.visit_during(visitors, RATE, flood)?;
        let [answered, refused] = [answered, refused].map(AtomicU64::into_inner);
        println!("{NAME}: {what}: {answered} of the flood answered, {refused} with 429");
        Ok(window)
    };
    let unlimited = || window("without a limit", &[]);
    let limited = || window("with a limit", &["--config", config]);
    let [unlimited, limited] = setting.alternate(unlimited, limited)?;
    print(NAME, "without a limit", &unlimited.latencies);
    print(NAME, "with a limit", &limited.latencies);
    let rates = [unlimited.flooded, limited.flooded];
    let intended = f64::from(ADDRESSES) / BETWEEN.as_secs_f64();
    Ok(compare(
        NAME,
        &unlimited.latencies,
        &limited.latencies,
        &rates,
        intended,
    ))
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

/// Requests of one thread without an answer yet: its pace does not depend on that of the answers.
const OUTSTANDING: usize = 64;

fn flood(address: SocketAddr, state: &Flood, counts: [&AtomicU64; 2]) -> Result<()> {
    state.has(THREADS.into());
    let one = |thread: u32| -> Result<()> {
        give_way()?;
        let numbers = (thread..ADDRESSES).step_by(THREADS as usize);
        let clients = numbers
            .map(|number| from(1, number, address))
            .collect::<Result<Vec<_>>>();
        state.begins();
        let mut clients = clients?;
        let take = |clients: &mut [Client], number: usize| -> Result<()> {
            let client = &mut clients[number];
            let response = client.response();
            let is_refused = response.status == 429;
            assert!(is_refused || response.status == 200, "{response:?}");
            counts[usize::from(is_refused)].fetch_add(1, Ordering::Relaxed);
            state.add(1);
            if response.field("connection") == Some("close") {
                client.closes();
                *client = from(1, thread + THREADS * number as u32, address)?;
            }
            Ok(())
        };
        let pace = BETWEEN / clients.len() as u32;
        let mut due = Instant::now();
        let mut outstanding = VecDeque::new();
        for number in (0..clients.len()).cycle() {
            if state.is_over() {
                break;
            }
            thread::sleep(due.saturating_duration_since(Instant::now()));
            clients[number].send(head("GET", &format!("/{}", CACHED.0), &[]));
            outstanding.push_back(number);
            due += pace;
            if outstanding.len() == OUTSTANDING
                && let Some(oldest) = outstanding.pop_front()
            {
                take(&mut clients, oldest)?;
            }
        }
        outstanding
            .into_iter()
            .try_for_each(|number| take(&mut clients, number))
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|it| scope.spawn(move || one(it)))
            .collect();
        let mut results = threads.into_iter().map(|it| it.join());
        results.try_for_each(|it| it.unwrap_or_else(|_| Err(anyhow::anyhow!("see above"))))
    })
}
