//! The server under test of BoGo, BoringSSL's test runner, over gannet's handshake and record layer.
//!
//! `cargo xtask conform bogo` runs it. For each case the runner starts this program, which connects to
//! the runner, is the TLS server of that connection, and sends back what it receives with every bit
//! inverted. What gannet has not, or cannot be told, is answered with the exit status that the runner
//! takes for "not implemented".

use std::error::Error;
use std::fmt;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use gannet_server::tls::alert::{Alert, TlsFault};
use gannet_server::tls::certificates::{CertificateSet, LoadOptions, Pair, PairPaths};
use gannet_server::tls::clients::{Demand, Verifier};
use gannet_server::tls::config::Options;
use gannet_server::tls::handshake::{Established, Failure, Handshake, HandshakeKind, Step};
use gannet_server::tls::record::aead::TlsVersion;
use gannet_server::tls::session::{Received, Session};

/// The exit status of a case for which this program lacks something.
const UNIMPLEMENTED: u8 = 89;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|it| it == "-is-handshaker-supported") {
        println!("No");
        return ExitCode::SUCCESS;
    }
    let case = match Case::of(&arguments) {
        Ok(case) => case,
        Err(lacking) => {
            eprintln!("not implemented: {lacking}");
            return ExitCode::from(UNIMPLEMENTED);
        }
    };
    match case.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// What is expected of one connection, or done in it.
#[derive(Clone, Default)]
struct Wanted {
    version: Option<TlsVersion>,
    group: Option<u16>,
    is_missed: bool,
    takes_early_data: Option<bool>,
    has_retry: Option<bool>,
    writes_first: bool,
    server_name: Option<String>,
}

/// One case: its connections are resumptions of the first.
struct Case {
    port: u16,
    id: u64,
    is_ipv6: bool,
    pairs: Vec<PairPaths>,
    /// Of the certificates that clients are asked for.
    authorities: Vec<PathBuf>,
    demand: Option<Demand>,
    options: Options,
    resumptions: usize,
    updates_key: bool,
    shuts_down: bool,
    checks_close: bool,
    initial: Wanted,
    resumed: Wanted,
}

impl Case {
    /// Reads the flags of a case.
    ///
    /// # Errors
    /// The flag that is not implemented.
    fn of(arguments: &[String]) -> Result<Self, String> {
        let mut case = Self {
            port: 0,
            id: 0,
            is_ipv6: false,
            pairs: Vec::new(),
            authorities: Vec::new(),
            demand: None,
            options: Options::default(),
            resumptions: 0,
            updates_key: false,
            shuts_down: false,
            checks_close: false,
            initial: Wanted::default(),
            resumed: Wanted::default(),
        };
        let (mut is_server, mut has_tickets, mut is_new) = (false, true, true);
        let mut rest = arguments.iter();
        while let Some(flag) = rest.next() {
            let mut value = || {
                rest.next()
                    .cloned()
                    .ok_or_else(|| format!("{flag}: no value"))
            };
            match flag.as_str() {
                "-server" => is_server = true,
                "-port" => case.port = number(&value()?)?,
                "-shim-id" => case.id = number(&value()?)?,
                "-ipv6" => case.is_ipv6 = true,
                "-new-x509-credential" => is_new = true,
                "-cert-file" | "-key-file" => {
                    if std::mem::take(&mut is_new) {
                        case.pairs.push(PairPaths {
                            certificate: PathBuf::new(),
                            key: PathBuf::new(),
                        });
                    }
                    let pair = case.pairs.last_mut().expect("one was added");
                    match flag.as_str() {
                        "-cert-file" => pair.certificate = value()?.into(),
                        _ => pair.key = value()?.into(),
                    }
                }
                "-trust-cert" => case.authorities.push(value()?.into()),
                "-verify-peer" => {
                    case.demand.get_or_insert(Demand::Optional);
                }
                "-require-any-client-certificate" => case.demand = Some(Demand::Required),
                "-resume-count" => case.resumptions = number(&value()?)?,
                "-no-tls12" => case.options.tls12 = false,
                "-min-version" => match value()?.as_str() {
                    "771" | "770" | "769" => {}
                    "772" => case.options.tls12 = false,
                    other => return Err(format!("-min-version {other}")),
                },
                "-max-version" => match value()?.as_str() {
                    "772" => {}
                    other => return Err(format!("-max-version {other}")),
                },
                "-no-ticket" => {
                    has_tickets = false;
                    case.options.resumption = false;
                }
                "-enable-early-data" => case.options.early_data = true,
                "-key-update" => case.updates_key = true,
                "-shim-shuts-down" => case.shuts_down = true,
                "-check-close-notify" => case.checks_close = true,
                // Words of the runner's own library, of which there are none here, and what is always so.
                "-no-ssl3"
                | "-no-tls1"
                | "-no-tls11"
                | "-no-op-extra-handshake"
                | "-expect-verify-result" => {}
                "-on-initial-expect-early-data-reason" | "-on-resume-expect-early-data-reason" => {
                    value()?;
                }
                flag => case.expect(flag, &mut value)?,
            }
        }
        match (is_server, has_tickets) {
            (false, _) => Err("a client".into()),
            (_, false) if case.resumptions > 0 => Err("resumption without tickets".into()),
            _ if case.pairs.is_empty() => Err("no certificate".into()),
            _ if case.demand.is_some() && case.authorities.is_empty() => {
                Err("client certificates of any authority".into())
            }
            _ => Ok(case),
        }
    }

    /// Reads a flag that holds for the first connection, for the resumed ones, or for all.
    fn expect(
        &mut self,
        flag: &str,
        value: &mut dyn FnMut() -> Result<String, String>,
    ) -> Result<(), String> {
        let (initial, resumed) = (&mut self.initial, &mut self.resumed);
        let (name, of) = match (
            flag.strip_prefix("-on-initial-"),
            flag.strip_prefix("-on-resume-"),
        ) {
            (Some(name), _) => (name, vec![initial]),
            (_, Some(name)) => (name, vec![resumed]),
            _ => (flag.trim_start_matches('-'), vec![initial, resumed]),
        };
        let mut set: Box<dyn FnMut(&mut Wanted)> = match name {
            "expect-version" => {
                let version = match value()?.as_str() {
                    "771" => TlsVersion::Tls12,
                    "772" => TlsVersion::Tls13,
                    other => return Err(format!("{flag} {other}")),
                };
                Box::new(move |it| it.version = Some(version))
            }
            "expect-curve-id" => {
                let group = number(&value()?)?;
                Box::new(move |it| it.group = Some(group))
            }
            "expect-server-name" => {
                let name = value()?;
                Box::new(move |it| it.server_name = Some(name.clone()))
            }
            "expect-session-miss" => Box::new(|it| it.is_missed = true),
            "expect-accept-early-data" => Box::new(|it| it.takes_early_data = Some(true)),
            "expect-reject-early-data" => Box::new(|it| it.takes_early_data = Some(false)),
            "expect-hrr" => Box::new(|it| it.has_retry = Some(true)),
            "expect-no-hrr" => Box::new(|it| it.has_retry = Some(false)),
            "shim-writes-first" => Box::new(|it| it.writes_first = true),
            _ => return Err(flag.to_owned()),
        };
        of.into_iter().for_each(&mut set);
        Ok(())
    }

    fn run(&self) -> Result<(), Box<dyn Error>> {
        let load = |paths: &PairPaths| -> Result<Pair, Box<dyn Error>> {
            let (chain, key) = (fs::read(&paths.certificate)?, fs::read(&paths.key)?);
            let options = LoadOptions::now();
            Ok(Pair::from_pem(
                paths,
                &chain,
                &key,
                &options,
                &mut Vec::new(),
            )?)
        };
        let pairs = self.pairs.iter().map(load).collect::<Result<_, _>>()?;
        let mut options = self.options.clone();
        if let Some(demand) = self.demand {
            let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
            options.clients = Verifier::read(
                &self.authorities,
                demand,
                now.cast_signed(),
                &mut Vec::new(),
            )?;
        }
        let set = CertificateSet::new(pairs, &options, None)?;
        for at in 0..=self.resumptions {
            let wanted = match at {
                0 => &self.initial,
                _ => &self.resumed,
            };
            self.connect(&set, wanted)?;
        }
        Ok(())
    }

    fn connect(&self, set: &CertificateSet, wanted: &Wanted) -> Result<(), Box<dyn Error>> {
        let address: SocketAddr = match self.is_ipv6 {
            true => (Ipv6Addr::LOCALHOST, self.port).into(),
            false => (Ipv4Addr::LOCALHOST, self.port).into(),
        };
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.write_all(&self.id.to_le_bytes())?;
        let Shaken {
            mut done,
            had_early,
            left,
        } = shake(&mut stream, set)?;
        check(&done, had_early, wanted)?;
        self.talk(&mut stream, &mut done, left, wanted)
    }

    /// Sends everything back, until the runner closes the connection.
    fn talk(
        &self,
        stream: &mut TcpStream,
        done: &mut Established,
        left: Vec<u8>,
        wanted: &Wanted,
    ) -> Result<(), Box<dyn Error>> {
        let session = &mut done.session;
        let mut out = Vec::new();
        session.take_waiting(&mut out);
        if wanted.writes_first {
            session.encrypt(&[b"hello"], &mut out).map_err(|_| Used)?;
        }
        if self.updates_key {
            session.update_keys(false, &mut out).map_err(|_| Used)?;
        }
        if self.shuts_down {
            session.end(Alert::CLOSE_NOTIFY, &mut out);
        }
        stream.write_all(&out)?;
        let mut plain = left;
        plain.append(&mut done.early);
        plain.append(&mut done.plain);
        let rest = std::mem::take(&mut done.rest);
        let mut received = session.receive(&rest, &mut plain);
        let mut buffer = vec![0; 16 << 10];
        loop {
            if !self.shuts_down {
                echo(session, &mut plain, stream)?;
            }
            match received {
                Ok(Received::Open) => {}
                Ok(Received::Closed) => break,
                Err(fault) => {
                    if let TlsFault::Ours(alert) = fault {
                        let mut out = Vec::new();
                        session.end(alert, &mut out);
                        stream.write_all(&out)?;
                    }
                    linger(stream);
                    return Err(fault.to_string().into());
                }
            }
            match stream.read(&mut buffer)? {
                0 if self.checks_close => return Err("closed without close_notify".into()),
                0 => return Ok(()),
                len => received = session.receive(&buffer[..len], &mut plain),
            }
        }
        let mut out = Vec::new();
        session.end(Alert::CLOSE_NOTIFY, &mut out);
        // The runner may be gone.
        let _ = stream.write_all(&out);
        Ok(())
    }
}

/// A handshake that has come to its end.
struct Shaken {
    done: Box<Established>,
    had_early: bool,
    /// Early data that has yet to be sent back.
    left: Vec<u8>,
}

fn shake(stream: &mut TcpStream, set: &CertificateSet) -> Result<Shaken, Box<dyn Error>> {
    let mut handshake = Handshake::new();
    let (mut buffer, mut early, mut had_early) = (vec![0; 16 << 10], Vec::new(), false);
    loop {
        let len = stream.read(&mut buffer)?;
        if len == 0 {
            return Err("closed in the handshake".into());
        }
        let mut out = Vec::new();
        let step = handshake.receive(set, &buffer[..len], &mut out);
        if step.is_ok() {
            early.extend(handshake.take_early());
            had_early |= !early.is_empty();
            let answer: Vec<u8> = early.iter().map(|byte| !byte).collect();
            if !early.is_empty() && handshake.encrypt_early(&[&answer], &mut out) {
                early.clear();
            }
        }
        stream.write_all(&out)?;
        match step {
            Ok(Step::NeedInput) => {}
            Ok(Step::Held) => return Err("held without a reason".into()),
            Ok(Step::Done(done)) => {
                return Ok(Shaken {
                    done,
                    had_early,
                    left: early,
                });
            }
            Err(Failure::ClearHttp(_)) => return Err("alert_sent=none why=clear HTTP".into()),
            Err(failure) => {
                linger(stream);
                return Err(failure.to_string().into());
            }
        }
    }
}

/// Reads until the runner has closed: what it still sends would reset the connection, and lose the alert.
fn linger(stream: &mut TcpStream) {
    let mut buffer = [0; 4096];
    let is_open = stream.shutdown(Shutdown::Write).is_ok();
    while is_open && stream.read(&mut buffer).is_ok_and(|len| len > 0) {}
}

fn echo(
    session: &mut Session,
    plain: &mut Vec<u8>,
    to: &mut TcpStream,
) -> Result<(), Box<dyn Error>> {
    if plain.is_empty() {
        return Ok(());
    }
    plain.iter_mut().for_each(|byte| *byte = !*byte);
    let mut out = Vec::new();
    session.encrypt(&[&plain[..]], &mut out).map_err(|_| Used)?;
    plain.clear();
    Ok(to.write_all(&out)?)
}

/// Compares what a handshake has come to with what the runner expects.
fn check(done: &Established, had_early: bool, wanted: &Wanted) -> Result<(), String> {
    let version = done.session.version();
    if wanted.version.is_some_and(|expected| expected != version) {
        return Err(format!("the version is {version}"));
    }
    let group = match done.group {
        "secp256r1" => 23,
        "secp384r1" => 24,
        "x25519" => 29,
        "X25519MLKEM768" => 4588,
        // A resumption in TLS 1.2 has no group of its own.
        "none" => wanted.group.unwrap_or_default(),
        other => return Err(format!("the group is {other:?}")),
    };
    let is_resumed = done.kind == HandshakeKind::Resumed;
    if wanted.group.is_some_and(|expected| expected != group) {
        return Err(format!("the group is {group}"));
    }
    if wanted.is_missed && is_resumed {
        return Err("it was resumed".into());
    }
    let has_early = had_early || !done.early.is_empty();
    if wanted
        .takes_early_data
        .is_some_and(|expected| expected != has_early)
    {
        return Err(format!("early data: {has_early}"));
    }
    let retried = done.kind == HandshakeKind::FullWithRetry;
    // The kind of a resumption does not say whether there was a second hello.
    if !is_resumed && wanted.has_retry.is_some_and(|expected| expected != retried) {
        return Err(format!("a second hello: {retried}"));
    }
    let name = done.server_name.as_deref();
    match &wanted.server_name {
        Some(expected) if name != Some(expected) => Err(format!("the name is {name:?}")),
        _ => Ok(()),
    }
}

fn number<N: std::str::FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("'{text}' is no number"))
}

/// A key is used up.
#[derive(Debug)]
struct Used;

impl fmt::Display for Used {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the key is used up, or the connection has ended")
    }
}

impl Error for Used {}
