//! One run: a server, its clients and the owner of its files, in one thread, from one seed.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use gannet_archive::{
    BlobId, Coding, Content, Key, Options, SUPERBLOCK_LEN, VariantDraft, Writer, digest,
};
use gannet_content::answer::{self, Resource};
use gannet_content::validators::hash_tag;
use gannet_http::semantics::coding::Coding as ContentCoding;
use gannet_io::driver::{Disk, File, Nanos, Receipt, Started, Token};
use gannet_io::ktls::TxKeys;
use gannet_io::options::EngineOptions;
use gannet_io::sim::{Faults, KernelTlsModel, Random, RecordEncryptor, Sim, SimHandle};
use gannet_server::config::{ContentOptions, Limits};
use gannet_server::driven::{Driven, DrivenContent, DrivenTls};
use gannet_server::ledger::{Account, AccountBound};
use gannet_server::tls::config::Options as TlsOptions;
use gannet_server::tls::kernel::KernelTls;
use gannet_server::tls::limits::ENCRYPTED_RECORDS_MAX;
use gannet_server::tls::record::ContentType;
use gannet_server::tls::record::aead::{Cipher, Secrets, TlsVersion};
use gannet_server::tls::record::encrypt::Encryptor;
use rustls::ClientConfig;
use zlib_rs::{Deflate, DeflateFlush, Status};

use crate::asks::{ask, asks, nonsense};
use crate::client::{Actor, Allowed, Ask, Client, Manners, Seen};
use crate::datagrams::{self, DatagramsClient};
use crate::files::Files;
use crate::link::BOUND;
use crate::server::await_disk;
use crate::streams::{self, StreamsClient};
use crate::tls_support::{Authority, Issued, KeyKind, store};

const MS: u64 = 1_000_000;

/// Records per key in half of the runs: few enough that the key is replaced, or the connection ends
/// because it cannot be; and twice as many suffice for any response.
const KEY_RECORDS: u64 = 40;

/// Timeouts short enough that runs reach them.
pub(crate) const LIMITS: Limits = Limits {
    head_timeout_ms: 3_000,
    idle_timeout_ms: 5_000,
    progress_timeout_ms: 4_000,
    send_rate_min: 500,
    connections_max: 0,
    grace_ms: 6_000,
    delay_ms: 0,
};

/// The same over networks that lose datagrams, some of them repeatedly.
pub(crate) const DATAGRAM_LIMITS: Limits = Limits {
    head_timeout_ms: 10_000,
    idle_timeout_ms: 15_000,
    progress_timeout_ms: 10_000,
    ..LIMITS
};

/// The events of a run, besides faults.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is varied on its own")]
pub(crate) struct Scenario {
    /// A live directory, or an archive.
    pub(crate) is_live: bool,
    pub(crate) clients: usize,
    /// Files are replaced by rename and deleted.
    pub(crate) has_changes: bool,
    /// They are also truncated and extended in place; an archive only once, as if by mistake.
    pub(crate) in_place: bool,
    /// Clients stall, reset, fall silent, send invalid requests.
    pub(crate) has_rude_clients: bool,
    /// For so many nanoseconds, new clients replace those that finish; unless 0, changes are rare.
    pub(crate) lasts: u64,
    /// The server is stopped at this time, done or not.
    pub(crate) stops_at: Option<u64>,
    /// Most clients speak HTTP/2.
    pub(crate) has_streams: bool,
    /// Most clients speak HTTP/3, over TLS.
    pub(crate) has_datagrams: bool,
    /// Whether TLS is used, and what the kernel does for it.
    pub(crate) tls: Tls,
    /// Received bytes are processed this much later.
    pub(crate) delay_ms: u64,
    /// Bytes a second that a client is sent; 0: no limit.
    pub(crate) rate: u64,
    /// Where clients are.
    pub(crate) receipt: Receipt,
}

/// Encryption of the connections.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Tls {
    /// In clear text.
    None,
    /// Encrypted by the server's own record layer.
    Own,
    /// Large bodies are encrypted by the kernel, which may support key updates.
    Kernel { can_update: bool },
    /// Encrypted by the server's own record layer, with early data accepted.
    Early,
    /// The kernel's probe succeeds, but it refuses connections.
    Refused,
}

impl Scenario {
    /// A random scenario.
    pub(crate) fn random(random: &mut Random) -> Self {
        let is_live = random.chance(700);
        let has_changes = is_live && random.chance(700);
        // Most runs are small: this allows more of them, and they are easier to read.
        let clients = if random.chance(850) { 6 } else { 40 };
        Self {
            is_live,
            clients: 1 + random.below(clients) as usize,
            has_changes,
            in_place: random.chance(if has_changes { 500 } else { 100 }),
            has_rude_clients: random.chance(500),
            lasts: 0,
            stops_at: random
                .chance(300)
                .then(|| 1_000 * MS + random.below(2_000 * MS)),
            has_streams: false,
            has_datagrams: false,
            tls: Tls::None,
            delay_ms: 0,
            rate: 0,
            receipt: match random.below(10) {
                0..3 => Receipt::Unknown,
                3..6 => Receipt::Read,
                _ => Receipt::Acknowledged,
            },
        }
    }
}

/// The result of a run.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Outcome {
    /// A hash of everything that clients received, with times.
    pub(crate) trace: u64,
    /// Complete responses.
    pub(crate) answered: u64,
    /// Responses counted by the server.
    pub(crate) counted: u64,
    /// Duration in virtual nanoseconds.
    pub(crate) lasted: u64,
}

/// Runs a scenario and checks it. The error describes what was wrong.
pub(crate) fn sim(seed: u64, faults: &Faults, scenario: Scenario) -> Result<Outcome, String> {
    let mut random = Random::new(!seed);
    let mut options = EngineOptions {
        buffers: 1 << random.below(5),
        buffer_len: 256 << random.below(4),
        ..EngineOptions::default()
    };
    if scenario.has_datagrams {
        // Datagrams that do not fit are lost; with a short queue, the server is slower than its
        // clients.
        (options.buffers, options.buffer_len) = (options.buffers.max(16), 2_048);
    }
    let driver = Sim::new(seed, 1, &options, Faults::none());
    let sockets = scenario
        .has_datagrams
        .then(|| BOUND.parse().expect("an address"));
    let mut driver = driver.with_datagrams(sockets.as_slice());
    let disk = driver.handle();
    let mut files = Files::new(disk.clone(), scenario.is_live);
    let content = content(&mut driver, &mut files, scenario, &mut random);
    // In some runs, no file has just been changed at the beginning.
    if random.chance(700) {
        // Or for so long that a file's bytes are known by its metadata.
        disk.age_files(if random.chance(500) { 10_000 } else { 100_000 });
    }
    disk.set_receipt(scenario.receipt);
    disk.set_faults(faults.clone());
    let options = ContentOptions {
        cache_memory: Some(1 << (12 + random.below(12))),
        // Some of the files are read whole, the longer ones are sent slice by slice.
        snapshot_max: 64 << 10,
        ..ContentOptions::default()
    };
    let limits = Limits {
        delay_ms: scenario.delay_ms,
        ..match scenario.has_datagrams {
            true => DATAGRAM_LIMITS,
            false => LIMITS,
        }
    };
    let allowed = Allowed {
        cuts: faults.may_cut() || scenario.in_place,
        // Pages may change after they were checked, until they leave or the kernel encrypts them;
        // in that case the response is never complete.
        parts: !scenario.in_place
            || match scenario.tls {
                Tls::None => scenario.receipt == Receipt::Unknown,
                Tls::Kernel { .. } => false,
                Tls::Own | Tls::Early | Tls::Refused => true,
            },
        failures: faults.io_error > 0 || scenario.in_place,
        quiet_ns: (limits.head_timeout_ms
            + limits.idle_timeout_ms
            + 2 * limits.progress_timeout_ms
            + 4_000)
            * MS,
    };
    // Clients with more requests than the key's limit allows would need another connection.
    let ends_early = scenario.tls == Tls::Kernel { can_update: false } && !allowed.cuts;
    let key_records = match random.below(2) {
        0 if !ends_early => KEY_RECORDS,
        _ => ENCRYPTED_RECORDS_MAX,
    };
    let (mut tls, config) = secure(scenario.tls, key_records, &disk).unzip();
    tls.iter_mut()
        .for_each(|it| it.datagram_sockets = scenario.has_datagrams.into());
    let with = (tls, crate::clients::at_rate(scenario.rate));
    let server = Driven::with_clients(driver, content, &options, limits, with);
    let crowd = Crowd {
        scenario,
        allowed,
        tls: config,
        count: 0,
    };
    let mut run = Run {
        disk,
        server: server.map_err(|e| e.to_string())?,
        files,
        clients: Vec::new(),
        crowd,
        random,
        scenario,
        allowed,
        limits,
        stopped_at: None,
        changes_at: 0,
        before: Before::default(),
    };
    for _ in 0..scenario.clients {
        let client = run.crowd.client(&run.files, 0, &mut run.random);
        run.clients.push(client);
    }
    run.run()
}

/// The TLS settings of the server and of its clients.
pub(crate) fn secure(
    tls: Tls,
    key_records_max: u64,
    disk: &SimHandle,
) -> Option<(DrivenTls, Arc<ClientConfig>)> {
    static ISSUED: OnceLock<(Authority, Issued)> = OnceLock::new();
    let model = |can_update| {
        let make = |keys: &TxKeys<'_>| -> Box<dyn RecordEncryptor> { Box::new(Kernel::new(keys)) };
        KernelTlsModel::new(make, can_update)
    };
    let kernel = match tls {
        Tls::None => return None,
        Tls::Own | Tls::Early => None,
        Tls::Kernel { can_update } => {
            disk.set_kernel_tls(Some(model(can_update)));
            Some(KernelTls::assumed(can_update))
        }
        Tls::Refused => Some(KernelTls::assumed(true)),
    };
    let (authority, issued) = ISSUED.get_or_init(|| {
        let authority = Authority::new();
        // Signatures have one length, so that a seed determines the run.
        let issued = authority.issued(KeyKind::Ed25519, &["localhost"]);
        (authority, issued)
    });
    let options = TlsOptions {
        early_data: tls == Tls::Early,
        ..TlsOptions::default()
    };
    let is_early = options.early_data;
    let tls = DrivenTls {
        certificates: store(issued, &options),
        kernel,
        key_records_max,
        datagram_sockets: 0,
    };
    Some((tls, crate::wire::config(authority, is_early)))
}

/// The kernel's record layer, simulated with ours.
struct Kernel(Encryptor);

impl Kernel {
    fn new(keys: &TxKeys<'_>) -> Self {
        let mut key = [0; 32];
        key[..keys.key.len()].copy_from_slice(keys.key);
        let secrets = Secrets {
            cipher: Cipher::Aes128Gcm,
            key,
            iv: keys.iv,
            sequence: keys.sequence,
        };
        Self(Encryptor::new(TlsVersion::Tls13, secrets))
    }
}

impl RecordEncryptor for Kernel {
    fn encrypt(&mut self, content_type: u8, content: &[u8], out: &mut Vec<u8>) {
        let kind = match content_type {
            21 => ContentType::Alert,
            22 => ContentType::Handshake,
            _ => ContentType::ApplicationData,
        };
        let encrypted = self.0.encrypt_control(kind, content, out);
        encrypted.expect("no run is that long");
    }
}

/// Checks after every turn that each account is within its bound, and that charges match memory:
/// the disk counts copies of files independently.
pub(crate) fn check_holdings(server: &Driven<Sim>, disk: &SimHandle) -> Result<(), String> {
    let holdings = server.holdings();
    for holding in &holdings {
        let (AccountBound::Connection(most) | AccountBound::Worker(most)) = holding.bound;
        if holding.bounded > most || holding.held < holding.bounded {
            return Err(format!("an account beyond its bound: {holding:?}"));
        }
    }
    let of = |account| {
        let mut found = holdings.iter().filter(|it| it.account == account);
        found.next().map_or(0, |holding| holding.held)
    };
    let copied = disk.copied_bytes() + of(Account::FirstReads);
    // The others are short files, which the server itself reads into memory.
    let charged = of(Account::Copies) + of(Account::LongCopies);
    let Some(short) = charged.checked_sub(copied) else {
        return Err(format!("{copied} bytes of copies, charged: {holdings:?}"));
    };
    // The bodies of an archive are not charged, because it contains them anyway.
    let has_archive = disk.file_len("site.gannet").is_some();
    let pinned = server.pinned_bytes();
    match has_archive || pinned <= short + of(Account::Listings) {
        true => Ok(()),
        false => Err(format!("{pinned} bytes pinned, charged: {holdings:?}")),
    }
}

/// Creates the clients of a run.
struct Crowd {
    scenario: Scenario,
    allowed: Allowed,
    tls: Option<Arc<ClientConfig>>,
    /// Number of clients created.
    count: u32,
}

impl Crowd {
    /// Creates the next client, which arrives `later_ns` later than the first ones.
    fn client(&mut self, files: &Files, later_ns: u64, random: &mut Random) -> Box<dyn Actor> {
        let (scenario, allowed) = (self.scenario, self.allowed);
        let number = (self.count % 60_000) as u16;
        self.count += 1;
        if scenario.has_datagrams && random.chance(900) {
            let tls = self.tls.clone().expect("QUIC has TLS");
            let (is_rude, asks) = asks_at_once(files, scenario, random);
            let mut manners = datagrams::Manners::random(is_rude, random);
            manners.arrives_at += later_ns;
            let random = Random::new(random.next_u64());
            let client = DatagramsClient::new(number, manners, asks, allowed, random, tls);
            return Box::new(client);
        }
        if scenario.has_streams && random.chance(800) {
            let (is_rude, asks) = asks_at_once(files, scenario, random);
            let mut manners = streams::Manners::random(is_rude, random);
            manners.arrives_at += later_ns;
            let random = Random::new(random.next_u64());
            let tls = self.tls.clone();
            return Box::new(StreamsClient::new(manners, asks, allowed, random, tls));
        }
        let mut client = client(files, scenario, allowed, self.tls.as_ref(), random);
        client.manners.arrives_at += later_ns;
        client.acts_at += later_ns;
        Box::new(client)
    }
}

struct Run {
    disk: SimHandle,
    server: Driven<Sim>,
    files: Files,
    clients: Vec<Box<dyn Actor>>,
    crowd: Crowd,
    random: Random,
    scenario: Scenario,
    allowed: Allowed,
    limits: Limits,
    stopped_at: Option<u64>,
    changes_at: u64,
    /// The results of clients that were replaced.
    before: Before,
}

/// See [`Run::before`].
#[derive(Default)]
struct Before {
    trace: u64,
    answered: u64,
    /// For some of them, the server's count is unknown.
    has_unread: bool,
}

impl Before {
    fn add(&mut self, seen: &Seen) {
        self.trace = self.trace.rotate_left(5) ^ seen.trace;
        self.answered += seen.answered;
        self.has_unread |= !seen.has_read_all;
    }
}

impl Run {
    fn run(mut self) -> Result<Outcome, String> {
        let started = self.disk.now().0;
        while !self.server.is_over() {
            self.act()?;
            // The thread that codes text gets the processor now and then.
            if self.random.chance(300) {
                self.server.code_next();
            }
            let now = self.disk.now().0;
            let seen = self.clients.iter().map(|client| client.seen());
            let all_done = seen.into_iter().all(|seen| seen.acts_at.is_none());
            if all_done || self.scenario.stops_at.is_some_and(|at| at <= now) {
                self.stop(now);
            }
            if self.server.is_over() {
                break;
            }
            let seen = self.clients.iter().map(|client| client.seen());
            let next = seen.filter_map(|seen| seen.acts_at).min();
            self.disk.wake_at(next.map(|at| Nanos(at.max(now + 1))));
            self.server
                .turn(None)
                .map_err(|errno| format!("the engine gave up: {errno}"))?;
            check_holdings(&self.server, &self.disk)?;
            self.check_end(started)?;
        }
        self.end(started)
    }

    fn act(&mut self) -> Result<(), String> {
        let now = self.disk.now().0;
        let has_mishap = !self.scenario.is_live && self.scenario.in_place;
        if has_mishap && self.changes_at == 0 && now > 1_500 * MS {
            self.changes_at = now;
            let len = self.disk.file_len("site.gannet").expect("it is there");
            self.disk
                .truncate_file("site.gannet", self.random.below(len));
        }
        if self.scenario.has_changes && now >= self.changes_at {
            self.files.change(&mut self.random, self.scenario.in_place);
            let most = match self.scenario.lasts {
                0 => 400,
                _ => 600_000,
            };
            self.changes_at = now + 1 + self.random.below(most * MS);
        }
        for (number, client) in self.clients.iter_mut().enumerate() {
            client
                .act(&self.disk, &mut self.files)
                .map_err(|why| format!("client {number}: {why}"))?;
            let seen = client.seen();
            if seen.acts_at.is_none() && now < self.scenario.lasts {
                self.before.add(&seen);
                let later_ns = now + self.random.below(20_000 * MS);
                *client = self.crowd.client(&self.files, later_ns, &mut self.random);
            }
        }
        Ok(())
    }

    fn stop(&mut self, now: u64) {
        if self.stopped_at.is_none() {
            self.stopped_at = Some(now);
            for client in &mut self.clients {
                if client.seen().acts_at.is_some() {
                    client.cut_by_stop();
                }
            }
            self.server.stop();
        }
    }

    fn check_end(&self, started: u64) -> Result<(), String> {
        let now = self.disk.now().0;
        if let Some(at) = self.stopped_at
            && now > at + (self.limits.grace_ms + 200) * MS
            && !self.server.is_over()
        {
            return Err(format!(
                "{} ms after the stop it is not over",
                (now - at) / MS
            ));
        }
        if now > started + self.scenario.lasts + 200_000 * MS {
            let seen = self.clients.iter().map(|client| client.seen()).enumerate();
            let left: Vec<_> = seen
                .filter(|(_, seen)| seen.acts_at.is_some())
                .map(|(number, seen)| (number, seen.answered))
                .collect();
            return Err(format!(
                "it never ends for these, after so many answers: {left:?}"
            ));
        }
        Ok(())
    }

    /// Checks the end of the server: no resource is left, and everything sent is correct to the
    /// last byte.
    fn end(mut self, started: u64) -> Result<Outcome, String> {
        await_disk(&mut self.server, &self.disk)?;
        let leaks = self.disk.leaks();
        if leaks.open_sockets + leaks.leases_out + leaks.operations_in_flight > 0 {
            return Err(format!("left behind: {leaks:?}"));
        }
        let counted = self.server.counters().responses_total();
        drop(self.server);
        let leaks = self.disk.leaks();
        if !leaks.is_clean() {
            return Err(format!("left behind by the worker: {leaks:?}"));
        }
        let now = self.disk.now().0;
        let mut outcome = Outcome {
            counted,
            lasted: now - started,
            trace: self.before.trace,
            answered: self.before.answered,
        };
        for (number, client) in self.clients.iter_mut().enumerate() {
            client
                .read_rest(now, &mut self.files)
                .map_err(|why| format!("client {number}, at the end: {why}"))?;
            let seen = client.seen();
            outcome.answered += seen.answered;
            outcome.trace = outcome.trace.rotate_left(5) ^ seen.trace;
        }
        outcome.trace ^= counted ^ now.rotate_left(32);
        let mut clients = self.clients.iter();
        let all_read = !self.before.has_unread && clients.all(|it| it.seen().has_read_all);
        if outcome.answered > counted || (all_read && outcome.answered != counted) {
            return Err(format!(
                "{} answers counted, {} read",
                counted, outcome.answered
            ));
        }
        if !self.allowed.cuts && self.scenario.stops_at.is_none() && outcome.answered == 0 {
            let patient = self.clients.iter().any(|client| client.seen().is_patient);
            if patient {
                return Err("nothing was answered".into());
            }
        }
        Ok(outcome)
    }
}

/// The files of a run, as a directory or packed.
fn content(
    driver: &mut Sim,
    files: &mut Files,
    scenario: Scenario,
    random: &mut Random,
) -> DrivenContent {
    let mut packing = Packing::new();
    let names = [
        ("a.txt", 2_000),
        ("about.html", 3_000),
        ("docs/index.html", 9_000),
        ("docs/page.html", 31_000),
        ("img/photo.jpg", 33_000),
        ("big.bin", 120_000),
        ("empty", 1),
        (".well-known/x", 100),
    ];
    for (name, most) in names {
        let len = random.below(most);
        let bytes = files.put(name, len, random);
        let coded = (name.ends_with(".html") && random.chance(500)).then(|| {
            let len = 1 + random.below(len + 1) / 2;
            files.put(&format!("{name}.gz"), len, random)
        });
        if !scenario.is_live {
            packing.add(name, &bytes, coded.as_deref());
        }
    }
    if random.chance(300) {
        let bytes = files.put("huge.bin", 270_000 + random.below(100_000), random);
        if !scenario.is_live {
            packing.add("huge.bin", &bytes, None);
        }
    }
    let disk = driver.handle();
    if scenario.is_live {
        return DrivenContent::Directory(disk.root());
    }
    let bytes = packing.finish();
    disk.put_file("site.gannet", bytes.clone());
    DrivenContent::Archive(bytes, open(driver, "site.gannet"))
}

/// Opens a file on a disk without faults.
pub(crate) fn open(driver: &mut Sim, path: &str) -> File {
    let root = driver.handle().root();
    match driver.open(&root, path.as_bytes(), Token(0)) {
        Started::Now(opened) => opened.expect("it was put there").file,
        Started::Pending => panic!("nothing is slow yet"),
    }
}

/// The gzip of content that it shortens.
pub(crate) fn gzip(content: &[u8]) -> Vec<u8> {
    let mut gzip = vec![0; content.len()];
    let mut deflate = Deflate::new(1, true, 15 + 16);
    let status = deflate.compress(content, &mut gzip, DeflateFlush::Finish);
    assert_eq!(status, Ok(Status::StreamEnd), "it becomes shorter");
    gzip.truncate(deflate.total_out() as usize);
    gzip
}

/// An archive being packed.
pub(crate) struct Packing {
    pub(crate) writer: Writer,
    bytes: Vec<u8>,
    /// The field of the files that follow.
    pub(crate) cache_control: Option<&'static str>,
}

impl Packing {
    pub(crate) fn new() -> Self {
        Self {
            writer: Writer::new(Options::default()),
            bytes: vec![0; SUPERBLOCK_LEN],
            cache_control: None,
        }
    }

    pub(crate) fn add(&mut self, name: &str, identity: &[u8], gzip: Option<&[u8]>) {
        let mut bodies = vec![(Coding::Identity, self.place(identity), identity)];
        bodies.extend(gzip.map(|gzip| (Coding::Gzip, self.place(gzip), gzip)));
        self.describe(name, &bodies);
    }

    /// Adds a body that is stored only as gzip.
    pub(crate) fn add_decoded(&mut self, name: &str, identity: &[u8]) {
        let gzip = gzip(identity);
        let placed = self.place(&gzip);
        let writer = &mut self.writer;
        let inflated = writer.add_decoded(
            digest(identity),
            identity.len() as u64,
            (Coding::Gzip, placed),
        );
        let bodies = [
            (Coding::Identity, inflated.expect("not too long"), identity),
            (Coding::Gzip, placed, &gzip),
        ];
        self.describe(name, &bodies);
    }

    fn place(&mut self, body: &[u8]) -> BlobId {
        let placed = self.writer.add_bytes(body);
        if let Some(offset) = placed.write_at {
            self.bytes.resize(offset as usize, 0);
            self.bytes.extend_from_slice(body);
        }
        placed.id
    }

    fn describe(&mut self, name: &str, bodies: &[(Coding, BlobId, &[u8])]) {
        let made: Vec<_> = bodies
            .iter()
            .map(|(stored, blob, body)| {
                let coding = match stored {
                    Coding::Gzip => ContentCoding::Gzip,
                    _ => ContentCoding::Identity,
                };
                let tag = hash_tag(&digest(body), coding);
                let ready = answer::ready_fields(&Resource {
                    content_type: "text/plain",
                    coding,
                    len: body.len() as u64,
                    entity_tag: &tag,
                    last_modified: Some(1_700_000_000),
                    vary: (bodies.len() > 1).then_some(answer::VARY_BY_CODING),
                    cache_control: self.cache_control,
                    fields: &[],
                    common: None,
                });
                (*stored, *blob, tag, ready.expect("fields that can be sent"))
            })
            .collect();
        let drafts: Vec<_> = made
            .iter()
            .map(|(coding, blob, tag, ready)| {
                let block = ready.as_block();
                VariantDraft {
                    coding: *coding,
                    blob: *blob,
                    entity_tag: tag.as_bytes(),
                    h1: block,
                    hpack: None,
                }
            })
            .collect();
        let variants = self.writer.add_variants(&drafts);
        let content = Content {
            content_type: b"text/plain",
            last_modified: Some(1_700_000_000),
            variants,
            ..Content::default()
        };
        let mut add = |name: &str| {
            let path = format!("/{name}");
            let key = Key::content(path.as_bytes());
            self.writer.add_content(key, &content);
        };
        add(name);
        if let Some(folder) = name.strip_suffix("index.html") {
            add(folder);
        }
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        let parts = self.writer.finish().expect("a sound archive");
        let mut bytes = self.bytes;
        bytes.resize(parts.metadata_offset as usize, 0);
        bytes.extend_from_slice(&parts.metadata);
        bytes[..SUPERBLOCK_LEN].copy_from_slice(&parts.superblock);
        bytes
    }
}

fn client(
    files: &Files,
    scenario: Scenario,
    allowed: Allowed,
    tls: Option<&Arc<ClientConfig>>,
    random: &mut Random,
) -> Client {
    let is_rude = scenario.has_rude_clients && random.chance(400);
    let asks = asks(files, scenario, is_rude, random);
    let sent: usize = asks.iter().map(|ask| ask.raw.len()).sum();
    let mut manners = Manners {
        arrives_at: 1_000 * MS + random.below(3_000) * random.below(1_000) * 1_000,
        pause_ns: match random.chance(500) {
            true => 0,
            false => random.below(1_500 * MS),
        },
        interval_ns: 1 + random.below(20 * MS),
        read_max: 1_000 + random.below(9_000) as usize,
        stalls_after: None,
        falls_silent_after: None,
        resets_after: None,
        half_closes: random.chance(200),
        stays: random.chance(200),
        updates_after: usize::MAX,
    };
    if is_rude {
        let some = |random: &mut Random, most: usize| Some(random.below(most as u64 + 1) as usize);
        match random.below(4) {
            0 => manners.stalls_after = some(random, 40_000),
            1 => manners.falls_silent_after = some(random, sent),
            2 => manners.resets_after = some(random, 40_000),
            _ => {
                manners.read_max = 1 + random.below(30) as usize;
                manners.interval_ns = 100 * MS + random.below(100 * MS);
            }
        }
    }
    // Before Linux 6.14 a connection ends when its key has to be updated.
    let may_update = !matches!(scenario.tls, Tls::None | Tls::Kernel { can_update: false });
    if may_update && random.chance(300) {
        manners.updates_after = random.below(150_000) as usize;
    }
    let random = Random::new(random.next_u64());
    Client::new(manners, asks, allowed, random, tls.cloned())
}

/// The requests of a client with several streams, and whether it is rude.
fn asks_at_once(files: &Files, scenario: Scenario, random: &mut Random) -> (bool, VecDeque<Ask>) {
    let is_rude = scenario.has_rude_clients && random.chance(400);
    let most = if random.chance(300) { 100 } else { 12 };
    let count = 1 + random.below(most);
    let paths = files.paths();
    let asks = (0..count).map(|_| {
        let path = paths[random.below(paths.len() as u64) as usize].clone();
        let ask = ask(path, files, scenario, random);
        match is_rude && random.chance(50) {
            true => nonsense(random),
            false => ask,
        }
    });
    (is_rude, asks.collect())
}
