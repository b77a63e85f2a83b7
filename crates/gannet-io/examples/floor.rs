//! The least a server can cost over the driver: a constant answer for every request, no parsing.
//!
//! `floor --engine uring|epoll --port PORT`: one worker on one thread. For measuring the engines
//! against each other and against other servers.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use gannet_io::driver::{Completion, Done, Driver, Lease, Listener, SendList, Socket, Token};
use gannet_io::epoll::Epoll;
use gannet_io::options::EngineOptions;
use gannet_io::uring::Uring;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nServer: floor\r\nContent-Type: text/plain\r\n\
Date: Sat, 21 Nov 2026 12:00:00 GMT\r\nContent-Length: 13\r\n\r\nHello, World!";

const REQUEST_END: &[u8] = b"\r\n\r\n";

/// The token of the listener; those of sockets are their numbers, with a bit for sends.
const ACCEPT: Token = Token(u64::MAX);
const SEND: u64 = 1 << 32;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let port = value("--port").map_or(Ok(8080), |port| port.parse())?;
    let closes = arguments.iter().any(|argument| argument == "--close");
    let listener = gannet_io::net::bind(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))?;
    let options = EngineOptions::default();
    match value("--engine").as_deref() {
        Some("epoll") => serve(Epoll::new(vec![listener], &options)?, closes),
        _ => serve(Uring::new(vec![listener], &options)?, closes),
    }
}

fn serve<D: Driver>(mut driver: D, closes: bool) -> Result<(), Box<dyn std::error::Error>> {
    println!("{:?}", driver.report());
    driver.accept(Listener(0), ACCEPT);
    let mut out = Vec::new();
    loop {
        driver.wait(None, &mut out)?;
        for completion in out.drain(..) {
            handle(&mut driver, completion, closes);
        }
    }
}

fn handle<D: Driver>(driver: &mut D, completion: Completion, closes: bool) {
    let socket = Socket(completion.token.0 as u32);
    match completion.result {
        Ok(Done::Accepted(socket)) => driver.receive(socket, Token(u64::from(socket.0))),
        Ok(Done::Received(lease)) => answer(driver, socket, lease),
        Ok(Done::Sent(_)) if closes => driver.close(socket),
        Ok(Done::Sent(_)) => {}
        Ok(_) => driver.close(socket),
        Err(errno) if completion.token == ACCEPT => eprintln!("accept: {errno}"),
        Err(_) if completion.token.0 & SEND != 0 => {}
        Err(_) => driver.close(socket),
    }
}

fn answer<D: Driver>(driver: &mut D, socket: Socket, lease: Lease) {
    let received = driver.received(&lease);
    // One answer however the request was cut: good enough for a client that sends it whole.
    let whole = received.ends_with(REQUEST_END);
    driver.release(lease);
    if whole {
        let mut wire = driver.output();
        wire.extend_from_slice(ANSWER);
        let list = SendList {
            wire,
            ..SendList::default()
        };
        driver.send(socket, Token(u64::from(socket.0) | SEND), list);
    }
}
