//! The minimum cost of a server over the driver: a constant response to every request, no parsing.
//!
//! `floor --engine io_uring|epoll --port PORT [--close]`: one worker on one thread.
//! `--close` allows one request per connection. For measuring the engines against each other and against other servers.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use gannet_io::driver::{Completion, Done, Driver, Lease, Listener, SendList, Socket, Token};
use gannet_io::epoll::Epoll;
use gannet_io::options::EngineOptions;
use gannet_io::uring::Uring;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nServer: floor\r\nContent-Type: text/plain\r\n\
Date: Sat, 21 Nov 2026 12:00:00 GMT\r\nContent-Length: 13\r\n\r\nHello, World!";

const LAST_ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nServer: floor\r\nContent-Type: text/plain\r\n\
Date: Sat, 21 Nov 2026 12:00:00 GMT\r\nContent-Length: 13\r\nConnection: close\r\n\r\nHello, World!";

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

struct Server<D> {
    driver: D,
    /// By socket: whether it is open. Completions that one wait returns after a close must be
    /// recognised.
    open: Vec<bool>,
    /// One request per connection.
    closes: bool,
}

fn serve<D: Driver>(mut driver: D, closes: bool) -> Result<(), Box<dyn std::error::Error>> {
    println!("{:?}", driver.report());
    driver.accept(Listener(0), ACCEPT);
    let mut server = Server {
        driver,
        open: Vec::new(),
        closes,
    };
    let mut out = Vec::new();
    loop {
        server.driver.wait(None, &mut out)?;
        for completion in out.drain(..) {
            server.handle(completion);
        }
    }
}

impl<D: Driver> Server<D> {
    fn handle(&mut self, completion: Completion) {
        let socket = Socket(completion.token.0 as u32);
        match completion.result {
            Ok(Done::Accepted(socket)) => {
                let index = socket.0 as usize;
                self.open.resize(self.open.len().max(index + 1), false);
                self.open[index] = true;
                let token = Token(u64::from(socket.0));
                if self.closes {
                    self.driver.receive_once(socket, token);
                } else {
                    self.driver.receive(socket, token);
                }
            }
            Ok(Done::Received(lease)) => self.answer(socket, lease),
            Ok(Done::Sent(_)) if self.closes => self.close(socket),
            Ok(Done::Sent(_)) => {}
            Err(errno) if completion.token == ACCEPT => eprintln!("accept: {errno}"),
            Ok(_) | Err(_) => self.close(socket),
        }
    }

    fn close(&mut self, socket: Socket) {
        if std::mem::replace(&mut self.open[socket.0 as usize], false) {
            self.driver.close(socket);
        }
    }

    fn answer(&mut self, socket: Socket, lease: Lease) {
        // One response however the request was split: good enough for a client that sends it whole.
        let whole = self.driver.received(&lease).ends_with(REQUEST_END);
        self.driver.release(lease);
        if whole && self.open[socket.0 as usize] {
            let mut wire = self.driver.output();
            wire.extend_from_slice(if self.closes { LAST_ANSWER } else { ANSWER });
            let list = SendList {
                wire,
                ..SendList::default()
            };
            self.driver
                .send(socket, Token(u64::from(socket.0) | SEND), list);
        }
    }
}
