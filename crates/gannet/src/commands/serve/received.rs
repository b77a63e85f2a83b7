//! The process beside a server that takes releases which publishers bring to its store.

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use gannet_io::companion;
use gannet_server::config::ListenAddress;
use gannet_server::config::receipts::Receipts;
use gannet_server::tls::certificates::PairPaths;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};

use super::companions::CompanionCommand;
use super::{addresses, confinement, tls};
use crate::command_line::commands::RECEIVE_COMMAND;
use crate::command_line::settings::Settings;
use crate::commands::destination::is_url;
use crate::commands::receive::{Arguments, check, check_pairs};
use crate::messages::{Failure, printable};

/// Where publishers are received, and with which certificates.
pub(super) struct Receiver {
    address: SocketAddr,
    key: String,
    pairs: Vec<PairPaths>,
    /// Of ordered certificates.
    folder: Option<PathBuf>,
}

impl Receiver {
    /// What the settings name, with the folder of the store. Nothing is changed.
    ///
    /// # Errors
    /// What is served is no folder for a store, there is no key, the address is for clear text and others than
    /// this machine reach it, or the process could not use the certificates.
    pub(super) fn of(settings: &Settings, address: SocketAddr) -> Result<(Self, PathBuf), Failure> {
        let refuse = |why: &str, help: &str| {
            Err(Failure::usage(format!("cannot use '--receive {address}': {why}")).help(help))
        };
        let Some(key) = settings.server.content.require_signature.clone() else {
            return refuse(
                "nothing says whose releases to take",
                "add --require-signature KEY.pub, the public key of 'gannet publish --sign KEY'",
            );
        };
        let folder = settings
            .path
            .as_deref()
            .filter(|it| !is_url(it.as_os_str()));
        let Some(folder) = folder.filter(|_| settings.copy.is_none()) else {
            return refuse(
                "what is served is not the folder of a store",
                "name one: gannet serve STORE --receive ADDR:PORT",
            );
        };
        let (pairs, ordered) = certificates(settings)?;
        if pairs.is_empty() && ordered.is_none() && !address.ip().is_loopback() {
            return refuse(
                "without a certificate, releases would come in clear text",
                "add --tls-cert FILE or --acme HOST; or receive on loopback, behind a proxy that encrypts",
            );
        }
        check()?;
        let receiver = Self {
            address,
            key,
            pairs,
            folder: ordered,
        };
        Ok((receiver, folder.to_path_buf()))
    }

    /// Tries the address, without listening: no publisher notices. That of a receiver of the same user may be
    /// had by the server whose place this one would take.
    ///
    /// # Errors
    /// It cannot be taken.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let tried = bound(&self.address, true).map(drop);
        tried.map_err(|error| self.explained(&error))
    }

    /// The process, which has the socket as its standard input, and what it counts. If this server
    /// `is_successor` of another one, that may have the address, too.
    ///
    /// # Errors
    /// The address cannot be taken.
    pub(super) fn companion(
        &self,
        settings: &Settings,
        store: &Path,
        is_successor: bool,
    ) -> Result<(CompanionCommand, Receipts), Failure> {
        let memory = companion::memory(Receipts::LEN);
        let (output, counts) =
            memory.map_err(|error| Failure::of_system("count", "publishers", &error))?;
        let socket = open(&self.address, is_successor).map_err(|error| self.explained(&error))?;
        let arguments = Arguments {
            store: store.to_path_buf(),
            key: self.key.clone(),
            sandbox: settings.server.sandbox,
            folder: self.folder.clone(),
            pairs: typed(&self.pairs),
        };
        let command = OsString::from(RECEIVE_COMMAND);
        let shown = store.to_string_lossy();
        let companion = CompanionCommand {
            name: format!("the receiver of '{}'", printable(&shown)),
            arguments: [command].into_iter().chain(arguments.typed()).collect(),
            variable: None,
            input: Some(socket),
            output: Some(output),
        };
        Ok((companion, Receipts::new(counts)))
    }

    fn explained(&self, error: &io::Error) -> Failure {
        addresses::explain(&ListenAddress::Tcp(self.address), error)
    }
}

fn typed(pairs: &[PairPaths]) -> Vec<(PathBuf, PathBuf)> {
    let pairs = pairs.iter();
    pairs
        .map(|it| (it.certificate.clone(), it.key.clone()))
        .collect()
}

/// The files of certificates, which the process can use, and the folder of those that are ordered.
fn certificates(settings: &Settings) -> Result<(Vec<PairPaths>, Option<PathBuf>), Failure> {
    let Some(mut source) = tls::source(settings)? else {
        return Ok((Vec::new(), None));
    };
    if tls::is_for_development(&settings.tls) {
        source.pairs.push(tls::development()?.pair);
    }
    let mut there = typed(&source.pairs);
    there.retain(|(chain, _)| !source.awaits_pairs || chain.exists());
    let user = confinement::run_as(settings.user.as_deref())?.map(|it| it.user);
    confinement::check_as(user.as_ref(), || check_pairs(there))?;
    let folder = source.ordered.map(|it| it.certificates());
    Ok((source.pairs, folder))
}

/// Listens. While this server takes the place of another one, both do. Otherwise no other process does: a second
/// server of the same user would silently share the port, and have half of the publishers.
fn open(address: &SocketAddr, is_successor: bool) -> io::Result<OwnedFd> {
    if !is_successor {
        await_free(address)?;
    }
    let socket = bound(address, true)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Waits until no process has the address: what was beside a server that was killed ends soon after it.
fn await_free(address: &SocketAddr) -> io::Result<()> {
    let end = Instant::now() + LEAVING_MAX;
    loop {
        match bound(address, false) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < end => {
                thread::sleep(LEAVING_LOOK);
            }
            tried => return tried.map(drop),
        }
    }
}

/// Has the address: alone, or with others that share theirs. That of all interfaces for IPv6 takes IPv4, too.
fn bound(address: &SocketAddr, shares: bool) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, shares)?;
    bind(&socket, address)?;
    Ok(socket)
}

/// Connections that the kernel holds for the process.
const BACKLOG: i32 = 64;
/// How long the address may stay in use after its server has gone.
const LEAVING_MAX: Duration = Duration::from_secs(1);
/// The interval between attempts to bind it.
const LEAVING_LOOK: Duration = Duration::from_millis(5);
