//! A simulated server that a test drives turn by turn, with helpers for its clients.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::Arc;

use gannet_archive::SectionKind;
use gannet_content::rules::redirects::Redirects;
use gannet_content::rules::table::{HeaderTable, RedirectTable};
use gannet_content::rules::{Compat, SourceFile, headers, redirects};
use gannet_io::driver::{Done, Listener, Nanos, Network, Receipt, Root};
use gannet_io::options::EngineOptions;
use gannet_io::sim::{Client, Faults, Sim, SimHandle};
use gannet_server::config::{ContentOptions, Limits};
use gannet_server::driven::{Driven, DrivenClients, DrivenContent};
use gannet_server::tls::limits::ENCRYPTED_RECORDS_MAX;
use gannet_testkit::{hostile, long_heads};
use rustls::ClientConfig;

use crate::link::BOUND;
use crate::run::{LIMITS, Packing, Tls, check_holdings, open, secure};

const MS: u64 = 1_000_000;

/// A `_redirects` and a `_headers`.
type Rules = [Arc<[u8]>; 2];

thread_local! {
    /// The rules of the sites that servers of this thread serve, if they have any.
    static RULES: RefCell<Option<Rules>> = const { RefCell::new(None) };
}

/// Runs tests over the site whose answers have the longest and dearest heads that are accepted.
pub(crate) fn over_the_dearest_site(tests: &[fn()]) {
    let headers = long_heads::headers();
    over(["", &headers], || tests.iter().for_each(|test| test()));
}

/// Runs tests over the sites whose rules take the most steps for any request: each test over one of them,
/// in turn, since a flood of each over all takes a minute.
pub(crate) fn over_hostile_sites(tests: &[fn()]) {
    let sites = hostile::sites();
    for ([redirects, headers], test) in sites.iter().cycle().zip(tests) {
        over([redirects, headers], test);
    }
}

/// Runs a test over a site with a `_redirects` and a `_headers`.
pub(crate) fn over(rules: [&str; 2], test: impl FnOnce()) {
    RULES.set(Some(rules.map(|text| text.as_bytes().into())));
    test();
    RULES.set(None);
}

/// An archive that is packed, with these rules.
pub(crate) fn finish(mut packing: Packing) -> Vec<u8> {
    if let Some([redirects, headers]) = RULES.with_borrow(Clone::clone) {
        let redirects = redirects_of(&redirects).expect("they are valid");
        let fields = fields_of(&headers).expect("they are valid");
        let redirects = RedirectTable::new(redirects).compile();
        let writer = &mut packing.writer;
        writer.set_section(SectionKind::RedirectRules, redirects);
        writer.set_section(SectionKind::FieldRules, fields.compile());
    }
    packing.finish()
}

/// The rules of a text of `_redirects`, if it is accepted.
pub(crate) fn redirects_of(text: &[u8]) -> Option<Redirects> {
    let path = "_redirects";
    let (rules, problems) = redirects::parse(&[SourceFile { path, text }], Compat::Netlify);
    problems.is_empty().then_some(rules)
}

/// The same of a text of `_headers`.
pub(crate) fn fields_of(text: &[u8]) -> Option<HeaderTable> {
    let path = "_headers";
    let (rules, problems) = headers::parse(&SourceFile { path, text }, Compat::Netlify);
    let table = problems.is_empty().then(|| HeaderTable::new(rules));
    table.filter(|it| it.excess().is_none())
}

/// The directory of a server, with these rules.
pub(crate) fn directory(disk: &SimHandle) -> DrivenContent {
    directory_at(disk.root())
}

/// A directory of a server, with these rules.
pub(crate) fn directory_at(root: Root) -> DrivenContent {
    match RULES.with_borrow(Clone::clone) {
        None => DrivenContent::Directory(root),
        Some(rules) => DrivenContent::RuledInAll(root, rules),
    }
}

/// Larger than files kept in memory: sent from the file.
pub(crate) const LARGE: usize = 200_000;

/// Tolerance of timers: a tick and a margin.
pub(crate) const LATE_MS: u64 = 300;

pub(crate) struct Server {
    pub(crate) driven: Driven<Sim>,
    pub(crate) disk: SimHandle,
}

impl Server {
    /// A directory with `large` and `small`.
    pub(crate) fn new(faults: Faults) -> Self {
        Self::with_tls(faults, LIMITS, Tls::None, ENCRYPTED_RECORDS_MAX).0
    }

    /// The same; received bytes are processed `delay_ms` later.
    pub(crate) fn delayed(faults: Faults, delay_ms: u64) -> Self {
        let limits = Limits { delay_ms, ..LIMITS };
        Self::with_tls(faults, limits, Tls::None, ENCRYPTED_RECORDS_MAX).0
    }

    /// The same over TLS, with the configuration for a client.
    pub(crate) fn with_tls(
        faults: Faults,
        limits: Limits,
        tls: Tls,
        key_records: u64,
    ) -> (Self, Option<Arc<ClientConfig>>) {
        Self::with_sockets(faults, limits, (tls, key_records), &[])
    }

    /// The same, with HTTP/3.
    pub(crate) fn with_datagrams(faults: Faults, limits: Limits) -> (Self, Arc<ClientConfig>) {
        Self::with_quic(faults, limits, Tls::Own)
    }

    /// The same, with this kind of TLS.
    pub(crate) fn with_quic(faults: Faults, limits: Limits, tls: Tls) -> (Self, Arc<ClientConfig>) {
        let tls = (tls, ENCRYPTED_RECORDS_MAX);
        let bound = [BOUND.parse().expect("an address")];
        let (server, config) = Self::with_sockets(faults, limits, tls, &bound);
        (server, config.expect("it speaks TLS"))
    }

    /// The same in clear text, with rules about clients.
    pub(crate) fn with_clients(limits: Limits, clients: DrivenClients) -> Self {
        let driver = Sim::new(1, 1, &EngineOptions::default(), Faults::none());
        let disk = driver.handle();
        disk.put_file("large", vec![b'L'; LARGE]);
        disk.put_file("small", "small");
        disk.age_files(100_000);
        let content = directory(&disk);
        let options = ContentOptions::default();
        let driven = Driven::with_clients(driver, content, &options, limits, (None, clients));
        let driven = driven.expect("no archive");
        Self { driven, disk }
    }

    fn with_sockets(
        faults: Faults,
        limits: Limits,
        (tls, key_records): (Tls, u64),
        sockets: &[SocketAddr],
    ) -> (Self, Option<Arc<ClientConfig>>) {
        let driver = Sim::new(1, 1, &EngineOptions::default(), faults);
        let driver = driver.with_datagrams(sockets);
        let disk = driver.handle();
        disk.put_file("large", vec![b'L'; LARGE]);
        disk.put_file("small", "small");
        let (mut tls, config) = secure(tls, key_records, &disk).unzip();
        if let Some(tls) = &mut tls {
            tls.datagram_sockets = u32::try_from(sockets.len()).expect("few");
        }
        let content = directory(&disk);
        // No snapshots: large files are sent slice by slice.
        let options = ContentOptions {
            snapshot_max: 0,
            ..ContentOptions::default()
        };
        disk.age_files(100_000);
        let driven = Driven::new(driver, content, &options, limits, tls).expect("no archive");
        (Self { driven, disk }, config)
    }

    /// A server of an archive that is served from its file, with so much memory for bodies; without any it
    /// caches only the last one.
    pub(crate) fn of_archive(packing: Packing, cache_memory: u64) -> Self {
        Self::of_archive_with(packing, cache_memory, Tls::None).0
    }

    /// The same with this kind of TLS, and the configuration for a client.
    pub(crate) fn of_archive_with(
        packing: Packing,
        cache_memory: u64,
        tls: Tls,
    ) -> (Self, Option<Arc<ClientConfig>>) {
        let mut driver = Sim::new(1, 1, &EngineOptions::default(), Faults::none());
        let disk = driver.handle();
        let bytes = finish(packing);
        disk.put_file("site.gannet", bytes.clone());
        let file = open(&mut driver, "site.gannet");
        let options = ContentOptions {
            cache_memory: Some(cache_memory),
            ..ContentOptions::default()
        };
        let (tls, config) = secure(tls, ENCRYPTED_RECORDS_MAX, &disk).unzip();
        let content = DrivenContent::Archive(bytes, file);
        let driven = Driven::new(driver, content, &options, LIMITS, tls).expect("a sound archive");
        (Self { driven, disk }, config)
    }

    /// A server that copies files up to the default length.
    pub(crate) fn copying() -> Self {
        let driver = Sim::new(1, 1, &EngineOptions::default(), Faults::none());
        let disk = driver.handle();
        let content = directory(&disk);
        let options = ContentOptions::default();
        let driven = Driven::new(driver, content, &options, LIMITS, None).expect("no archive");
        Self { driven, disk }
    }

    /// The body of a response to a request on its own connection.
    pub(crate) fn body(&mut self, path: &str, len: usize) -> Vec<u8> {
        let client = self.connect();
        client.write(&get(path));
        let mut got = Vec::new();
        self.until("an answer", || {
            got.extend(client.read());
            got.len() > len
        });
        got.split_off(got.len() - len)
    }

    pub(crate) fn connect(&self) -> Client {
        self.disk.connect(Listener(0)).expect("it listens")
    }

    /// Runs turns until a condition holds; returns how many milliseconds that took, or fails after
    /// a virtual minute.
    pub(crate) fn until(&mut self, what: &str, mut is_so: impl FnMut() -> bool) -> u64 {
        self.until_it(what, |_| is_so())
    }

    /// The same for a condition on the server itself.
    pub(crate) fn until_it(
        &mut self,
        what: &str,
        mut is_so: impl FnMut(&mut Driven<Sim>) -> bool,
    ) -> u64 {
        let start = self.disk.now().0;
        while !is_so(&mut self.driven) {
            let now = self.disk.now().0;
            assert!(now < start + 60_000 * MS, "in vain: {what}");
            self.disk.wake_at(Some(Nanos(now + 10 * MS)));
            self.driven.turn(None).unwrap();
            check_holdings(&self.driven, &self.disk).unwrap();
        }
        (self.disk.now().0 - start) / MS
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, ms: u64) {
        self.pass_while(ms, || {});
    }

    /// The same, with an action before each turn.
    pub(crate) fn pass_while(&mut self, ms: u64, mut what: impl FnMut()) {
        let (disk, end) = (self.disk.clone(), self.disk.now().plus_ms(ms));
        self.until("time passes", || {
            what();
            disk.now() >= end
        });
    }
}

/// Where clients may be.
pub(crate) const RECEIPTS: [Receipt; 3] = [Receipt::Acknowledged, Receipt::Read, Receipt::Unknown];

/// Waits for completions of the disk that have no waiter any more, after the worker's end.
pub(crate) fn await_disk(driven: &mut Driven<Sim>, disk: &SimHandle) -> Result<(), String> {
    let mut rest = Vec::new();
    for _ in 0..1_000 {
        if disk.leaks().operations_in_flight == 0 {
            break;
        }
        let driver = driven.driver();
        driver.wait(None, &mut rest).map_err(|e| e.to_string())?;
    }
    for completion in rest {
        // Meanwhile datagrams may arrive.
        if let Ok(Done::Datagram(datagram)) = completion.result {
            driven.driver().release(datagram.lease);
        }
    }
    Ok(())
}

pub(crate) fn get(path: &str) -> Vec<u8> {
    format!("GET /{path} HTTP/1.1\r\nhost: sim\r\n\r\n").into_bytes()
}

pub(crate) fn check_about(took_ms: u64, expected_ms: u64) {
    let expected = expected_ms..=expected_ms + LATE_MS;
    assert!(
        expected.contains(&took_ms),
        "{took_ms} ms, not within {expected:?}"
    );
}
