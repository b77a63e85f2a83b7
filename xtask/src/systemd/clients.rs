//! Clients of the server in the container.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use xtask::running::until;

use super::machine::PAGE;

/// One request by a connection of its own; returns the answer, which has to be 200.
pub(super) fn get(port: u16, target: &str) -> Result<String> {
    let mut client = connect(port)?;
    client.write_all(
        format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").as_bytes(),
    )?;
    let mut answer = String::new();
    client.read_to_string(&mut answer)?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{target}: {answer}");
    Ok(answer)
}

fn connect(port: u16) -> Result<TcpStream> {
    let client = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    client.set_read_timeout(Some(Duration::from_secs(30)))?;
    Ok(client)
}

/// A connection that asks for the page again and again, until the server announces its end.
fn regular(rounds: &AtomicU64, ends: &AtomicBool) -> Result<()> {
    let mut client = connect(80)?;
    let mut room = [0; 2048];
    while !ends.load(Ordering::Relaxed) {
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")?;
        let mut answer = String::new();
        while !answer.ends_with(PAGE) {
            let len = client.read(&mut room).context("a regular client")?;
            ensure!(len > 0, "a regular client was cut off after {answer:?}");
            answer.push_str(&String::from_utf8_lossy(&room[..len]));
        }
        rounds.fetch_add(1, Ordering::Relaxed);
        if answer
            .to_ascii_lowercase()
            .contains("\r\nconnection: close\r\n")
        {
            return Ok(());
        }
    }
    Ok(())
}

/// Clients that come until they are ended, of which none may fail.
pub(super) struct Load {
    ends: Arc<AtomicBool>,
    clients: Vec<(JoinHandle<Result<()>>, Arc<AtomicU64>)>,
}

impl Load {
    /// Two clients that connect for each request, and one that keeps its connection.
    pub(super) fn begin() -> Self {
        Self::of(&[false, false, true])
    }

    /// Clients that connect for each request: what ends a server closes the connections of others, with
    /// a request that is on its way.
    pub(super) fn newcomers() -> Self {
        Self::of(&[false, false])
    }

    /// One for each: whether it keeps its connection.
    fn of(keeping: &[bool]) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let client = |&keeps: &bool| {
            let (ends, rounds) = (Arc::clone(&ends), Arc::new(AtomicU64::new(0)));
            let count = Arc::clone(&rounds);
            let visit = move || {
                while !ends.load(Ordering::Relaxed) {
                    match keeps {
                        true => regular(&count, &ends)?,
                        false => {
                            get(80, "/")?;
                            count.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
                Ok(())
            };
            (std::thread::spawn(visit), rounds)
        };
        let clients = keeping.iter().map(client).collect();
        Self { ends, clients }
    }

    /// Waits until each has been served some times more.
    pub(super) fn goes_on(&self) -> Result<()> {
        let counts = || -> Vec<u64> {
            let counts = self.clients.iter();
            counts
                .map(|(_, count)| count.load(Ordering::Relaxed))
                .collect()
        };
        let before = counts();
        until("all clients are served", || {
            let has_ended = self.clients.iter().any(|(client, _)| client.is_finished());
            has_ended
                || counts()
                    .iter()
                    .zip(&before)
                    .all(|(now, before)| *now > before + 5)
        })
    }

    /// Ends them, and reports the first failure.
    pub(super) fn end(self) -> Result<()> {
        self.ends.store(true, Ordering::Relaxed);
        let mut ended = self.clients.into_iter().map(|(client, _)| client.join());
        ended.try_for_each(|it| it.map_err(|_| anyhow::anyhow!("a client panicked"))?)
    }
}
