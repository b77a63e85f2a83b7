//! A worker that its caller drives turn by turn, so that the simulator can run the whole server.

mod sites;

use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gannet_archive::{Archive, ArchiveError, SUPERBLOCK_LEN, Superblock};
use gannet_content::rules::memory::MemoryRoom;
use gannet_content::rules::{Compat, SourceFile};
use gannet_io::driver::{Driver, Errno, File, Nanos, Root};
use gannet_store::ReleaseId;

use crate::bounds::ledger::Holding;
use crate::bounds::tls::ENCRYPTED_RECORDS_MAX;
use crate::clients::Clients;
use crate::coder::{Coder, CoderCounts};
use crate::config::supply::{Supply, SupplyReply};
use crate::config::{ClientRules, ContentOptions, Limits, LogFormat, LogLines, Scheme};
use crate::ground::inbox::Message;
use crate::ground::inbox::Remote;
use crate::ground::settings::{ListenerKind, WorkerSettings};
use crate::observe::incidents::Incidents;
use crate::observe::log::LogWriter;
use crate::observe::measures::Measures;
use crate::observe::metrics::Counters;
use crate::passwords::checker::{Checker, Jobs};
use crate::quic::elders::Elders;
use crate::quic::settings::TokenSecrets;
use crate::quic::{QuicSettings, SocketOf};
use crate::release::Release;
use crate::release::archive::has_forms;
use crate::release::archive_room::ArchiveRoom;
use crate::release::directory::DirectoryOptions;
use crate::release::error_pages::ErrorPages;
use crate::release::opened::{
    CheckedContent, Generations, Opened, OpenedArchive, OpenedContent, OpenedDirectory,
};
use crate::release::partial::PartialRelease;
use crate::release::redirect::Redirect;
use crate::release::rules::SiteRules;
use crate::start::published::Published;
use crate::start::releases::origin::{AtPath, Origin};
use crate::start::releases::{ArchiveOrigin, ReleaseFollower, Surroundings};
use crate::tls::certificates::CertificateStore;
use crate::tls::kernel::KernelTls;
use crate::watch::notices::Channel;
use crate::worker::Worker;

pub use self::sites::{DrivenOpening, DrivenSite, DrivenSites};

/// The content of a driven worker.
pub enum DrivenContent {
    /// A live directory.
    Directory(Root),
    /// A live directory with this text as `_headers`.
    Ruled(Root, &'static [u8]),
    /// A live directory with this text as `_redirects`.
    Redirected(Root, &'static [u8]),
    /// A live directory with these texts as `_redirects` and `_headers`.
    RuledInAll(Root, [Arc<[u8]>; 2]),
    /// A live directory with these error pages, by name.
    Paged(Root, &'static [(&'static str, &'static [u8])]),
    /// An archive: its bytes, and the same bytes as a file of the engine.
    Archive(Vec<u8>, File),
    /// The same of an archive only a part of which is in the file, as this says: see
    /// [`DrivenPresence`].
    Partial(Vec<u8>, File, Box<DrivenPresence>),
}

/// Says for bytes of a blob whether they are in the file; if so, a number that changes once any of them was
/// dropped.
pub type DrivenPresence = dyn Fn(u32, Range<u64>) -> Option<u64> + Send + Sync;

/// TLS settings for a driven worker's listener.
pub struct DrivenTls {
    /// The certificates.
    pub certificates: Arc<CertificateStore>,
    /// Kernel TLS, if the engine supports it.
    pub kernel: Option<KernelTls>,
    /// Records that one key of a connection may encrypt before it is replaced.
    pub key_records_max: u64,
    /// Number of datagram sockets of its driver, for HTTP/3.
    pub datagram_sockets: u32,
}

/// Rules about the clients of a driven worker.
#[derive(Clone, Debug, Default)]
pub struct DrivenClients {
    /// The rules.
    pub rules: ClientRules,
    /// Connections start with a header of the PROXY protocol.
    pub is_proxied: bool,
    /// Who fetches parts of releases on demand.
    pub supply: Option<Supply>,
}

/// One worker without a thread.
pub struct Driven<D: Driver> {
    worker: Worker<D>,
    options: ContentOptions,
    published: Arc<Published>,
    remote: Remote,
    coder: Arc<Coder>,
    password_jobs: Jobs,
}

/// A release of an archive for several driven workers: its bytes, and the same bytes as a file of the
/// engine of each.
pub type DrivenRelease = (Vec<u8>, Vec<File>);

/// Follows the releases of an archive for several driven workers, as a running server does.
pub struct DrivenReleases {
    follower: ReleaseFollower,
}

impl DrivenReleases {
    /// Workers that serve an archive, each on its driver, which has one listener.
    ///
    /// # Errors
    /// The archive is not valid.
    pub fn start<D: Driver>(
        mut drivers: Vec<D>,
        release: DrivenRelease,
        options: &ContentOptions,
        limits: Limits,
    ) -> Result<(Self, Vec<Driven<D>>), ArchiveError> {
        let workers = drivers.len();
        let archive = Arc::new(archive(release, &drivers[0])?);
        let opened = Arc::new(Opened::one(CheckedContent::Archive(archive), options));
        let current = Arc::clone(&opened.contents[&0].current);
        let mut inboxes = Vec::new();
        let mut remotes = Vec::new();
        for driver in &mut drivers {
            let (messages, inbox) = mpsc::channel();
            let waker = driver.waker(Worker::<D>::wake_token());
            remotes.push(Remote::new(messages, waker));
            inboxes.push(inbox);
        }
        let published = Arc::new(Published::new(Arc::clone(&opened), remotes.clone()));
        let parts = drivers.into_iter().zip(inboxes).zip(remotes).enumerate();
        let driven = parts.map(|(number, ((driver, inbox), remote))| {
            let (checker, password_jobs) = Checker::new();
            Driven {
                worker: worker(
                    driver,
                    (inbox, checker),
                    (number, &opened),
                    (options, limits),
                    (None, &DrivenClients::default()),
                ),
                options: options.clone(),
                published: Arc::clone(&published),
                remote,
                coder: Arc::default(),
                password_jobs,
            }
        });
        let driven = driven.collect();
        let source = ArchiveOrigin {
            place: 0,
            name: "site".into(),
            origin: Origin::Path(AtPath::new(Path::new("site")).expect("a working directory")),
            host: None,
        };
        let surroundings = Surroundings {
            options: Arc::new(options.clone()),
            workers,
            room: Arc::new(ArchiveRoom::new(0)),
            published,
            board: Arc::default(),
            patience: Duration::ZERO,
            clock: || 0,
            messages: &SILENT,
        };
        let follower = ReleaseFollower::new(source, current, surroundings);
        Ok((Self { follower }, driven))
    }

    /// Another release is there; `driver` is that of any worker.
    ///
    /// # Errors
    /// The archive is not valid.
    pub fn stage<D: Driver>(
        &mut self,
        release: DrivenRelease,
        driver: &D,
    ) -> Result<(), ArchiveError> {
        self.follower.found(archive(release, driver)?, 0);
        Ok(())
    }

    /// Serves the staged release if all workers answer for its assets.
    pub fn go_on(&mut self) {
        self.follower.go_on(0);
    }

    /// The release with this build ID answers nothing any more, unless it is the current one.
    pub fn void(&mut self, build_id: &[u8; 32]) {
        let id = ReleaseId::of_build_id(build_id);
        self.follower.drop_void(&[id]);
    }
}

static SILENT: Channel = Channel::new(|_| Ok(()));

impl<D: Driver> Driven<D> {
    /// A worker on `driver`, which has one listener, with fixed secrets. With `tls` the listener
    /// speaks TLS.
    ///
    /// # Errors
    /// The archive is not valid.
    ///
    /// # Panics
    /// A configured content type or a rule is not valid.
    pub fn new(
        driver: D,
        content: DrivenContent,
        options: &ContentOptions,
        limits: Limits,
        tls: Option<DrivenTls>,
    ) -> Result<Self, ArchiveError> {
        let clients = DrivenClients::default();
        Self::with_clients(driver, content, options, limits, (tls, clients))
    }

    /// The same, with rules about clients.
    ///
    /// # Errors
    /// The archive is not valid.
    ///
    /// # Panics
    /// A configured content type or a rule is not valid.
    pub fn with_clients(
        driver: D,
        content: DrivenContent,
        options: &ContentOptions,
        limits: Limits,
        (tls, clients): (Option<DrivenTls>, DrivenClients),
    ) -> Result<Self, ArchiveError> {
        let coder = Arc::default();
        let what = opened(content, &driver, options, &coder)?;
        let opened = Opened::one(what, options);
        Ok(Self::of(
            driver,
            (opened, coder),
            options,
            limits,
            (tls, &clients),
        ))
    }

    /// A worker of several sites that are open, each the content for the host with its number:
    /// `h0.example`, `h1.example` and so on.
    ///
    /// # Errors
    /// An archive is not valid.
    ///
    /// # Panics
    /// A configured content type or a rule is not valid.
    pub fn with_sites(
        driver: D,
        sites: Vec<DrivenContent>,
        options: &ContentOptions,
        limits: Limits,
    ) -> Result<Self, ArchiveError> {
        let coder = Arc::default();
        let mut all = Opened::none(options);
        for (place, content) in sites.into_iter().enumerate() {
            let what = opened(content, &driver, options, &coder)?;
            let hosts = vec![format!("h{place}.example")];
            let content = Generations::only(OpenedContent { hosts, what });
            all.contents.insert(place, content);
        }
        let plain = (None, &DrivenClients::default());
        Ok(Self::of(driver, (all, coder), options, limits, plain))
    }

    fn of(
        mut driver: D,
        (opened, coder): (Opened, Arc<Coder>),
        options: &ContentOptions,
        limits: Limits,
        (tls, clients): (Option<DrivenTls>, &DrivenClients),
    ) -> Self {
        let opened = Arc::new(opened);
        let (messages, inbox) = mpsc::channel();
        let waker = driver.waker(Worker::<D>::wake_token());
        let remote = Remote::new(messages, waker);
        let (checker, password_jobs) = Checker::new();
        Self {
            worker: worker(
                driver,
                (inbox, checker),
                (0, &opened),
                (options, limits),
                (tls, clients),
            ),
            options: options.clone(),
            published: Arc::new(Published::new(opened, vec![remote.clone()])),
            remote,
            coder,
            password_jobs,
        }
    }

    /// Closes the site of the host with this number from the next turn on.
    pub fn close_site(&self, number: usize) {
        self.published
            .publish(|opened| drop(opened.contents.remove(&number)));
    }

    /// Serves this content from the next turn on.
    ///
    /// # Errors
    /// The archive is not valid.
    ///
    /// # Panics
    /// A rule is not valid.
    pub fn replace(&mut self, content: DrivenContent) -> Result<(), ArchiveError> {
        let what = opened(content, self.worker.driver(), &self.options, &self.coder)?;
        let content = OpenedContent {
            hosts: Vec::new(),
            what,
        };
        self.published.replace(0, |_| Generations::only(content));
        Ok(())
    }

    /// Reports to the worker what has become of a part of a release that it has asked for.
    pub fn supply(&self, reply: SupplyReply) {
        self.remote.send(Message::Supplied(reply));
    }

    /// Runs one turn of the loop; waits until `until` at the latest.
    ///
    /// # Errors
    /// The engine failed and cannot continue.
    pub fn turn(&mut self, until: Option<Nanos>) -> Result<(), Errno> {
        self.worker.turn(until)
    }

    /// Codes the next file that is queued for it, as another thread would; false if there is none.
    pub fn code_next(&mut self) -> bool {
        self.coder.code_next()
    }

    /// Compares the next password that is queued for it, as another thread would; false if there is
    /// none. The worker learns of it in its next turn.
    pub fn check_password(&mut self) -> bool {
        let workers = std::slice::from_ref(&self.remote);
        self.password_jobs
            .run_next(|answer| Remote::deliver(workers, answer))
    }

    /// What was coded so far.
    pub fn coder_counts(&self) -> CoderCounts {
        self.coder.counts()
    }

    /// The engine.
    pub fn driver(&mut self) -> &mut D {
        self.worker.driver()
    }

    /// Stops the worker gracefully, as SIGTERM does. The worker reads the request at once.
    pub fn stop(&mut self) {
        self.remote.send(Message::Stop);
        self.worker.read_inbox();
    }

    /// Whether the worker has stopped for good.
    pub fn is_over(&self) -> bool {
        self.worker.is_over()
    }

    /// Memory held for clients, by account.
    #[must_use]
    pub fn holdings(&self) -> Vec<Holding> {
        self.worker.holdings()
    }

    /// Bytes of shared bodies that connections hold, counted independently of the ledger's charges.
    #[must_use]
    pub fn pinned_bytes(&self) -> u64 {
        self.worker.pinned_bytes()
    }

    /// The number of sites that it has open.
    #[must_use]
    pub fn site_count(&self) -> usize {
        self.worker.shared.release.site_count()
    }

    /// The worker's counters.
    pub fn counters(&mut self) -> Counters {
        self.worker.snapshot()
    }
}

/// The worker with this number, which serves this release.
fn worker<D: Driver>(
    driver: D,
    (inbox, checker): (Receiver<Message>, Checker),
    (number, opened): (usize, &Opened),
    (options, limits): (&ContentOptions, Limits),
    (tls, clients): (Option<DrivenTls>, &DrivenClients),
) -> Worker<D> {
    let scheme = match tls {
        Some(_) => Scheme::Https,
        None => Scheme::Http,
    };
    let sockets = tls.as_ref().map_or(0, |tls| tls.datagram_sockets);
    let quic = (sockets > 0).then(|| QuicSettings {
        secrets: TokenSecrets::fixed(),
        generation: 0,
        addresses: vec![SocketAddr::from(([192, 0, 2, 1], 443)); sockets as usize].into(),
        sockets: (0..sockets)
            .map(|address| SocketOf {
                address,
                receives: true,
            })
            .collect(),
        spread: None,
        elders: Elders::default(),
    });
    let (certificates, kernel_tls, key_records_max) = match tls {
        Some(tls) => (Some(tls.certificates), tls.kernel, tls.key_records_max),
        None => (None, None, ENCRYPTED_RECORDS_MAX),
    };
    let settings = WorkerSettings {
        number,
        workers: 1,
        limits,
        connections_max: match limits.connections_max {
            0 => usize::MAX,
            n => n as usize,
        },
        listeners: vec![ListenerKind {
            scheme,
            is_proxied: clients.is_proxied,
            address: 0,
        }],
        addresses: vec!["192.0.2.1:443".into()],
        incidents: Arc::new(Incidents::new(&SILENT)),
        has_clear_http2: true,
        clients: Clients::new(&clients.rules),
        checker: Arc::new(checker),
        supply: clients.supply.clone(),
        redirect: Redirect::default(),
        certificates,
        quic,
        kernel_tls,
        tail_len: options.tail_len(),
        key_records_max,
        archive_copied: 0,
        secret: [0; 32],
        is_measuring: true,
    };
    let (_, factory) = LogWriter::start((&LogFormat::Off, LogLines::default()), None, None)
        .expect("no log is opened");
    let mut measures = Some(Box::<Measures>::default());
    let release = Release::new(opened, number, None, measures.as_deref_mut());
    let log = factory.sink();
    Worker::new(driver, settings, release, measures, log, inbox)
}

/// Content for one worker.
fn opened<D: Driver>(
    content: DrivenContent,
    driver: &D,
    options: &ContentOptions,
    coder: &Arc<Coder>,
) -> Result<CheckedContent, ArchiveError> {
    let directory = |root, redirects, headers| {
        let options = DirectoryOptions::new(options, None, Some(coder));
        directory(
            root,
            redirects,
            headers,
            options.expect("the types were checked"),
        )
    };
    Ok(match content {
        DrivenContent::Directory(root) => directory(root, None, None),
        DrivenContent::Ruled(root, headers) => directory(root, None, Some(headers)),
        DrivenContent::Redirected(root, redirects) => directory(root, Some(redirects), None),
        DrivenContent::RuledInAll(root, [redirects, headers]) => {
            directory(root, Some(&redirects), Some(&headers))
        }
        DrivenContent::Paged(root, pages) => {
            let mut what = directory(root, None, None);
            if let CheckedContent::Directory(directory) = &mut what {
                let pages = ErrorPages::of_texts(pages);
                directory.rules = SiteRules::default().with_pages(pages).map(Arc::new);
            }
            what
        }
        DrivenContent::Archive(bytes, file) => {
            CheckedContent::Archive(Arc::new(archive((bytes, vec![file]), driver)?))
        }
        DrivenContent::Partial(bytes, file, presence) => {
            let opened = archive((bytes, vec![file]), driver)?;
            let partial = PartialRelease {
                id: [7; 16],
                archive: Arc::clone(&opened.archive),
                presence,
                file: None,
                pages: OnceLock::new(),
            };
            CheckedContent::Archive(Arc::new(OpenedArchive {
                partial: Some(Arc::new(partial)),
                ..opened
            }))
        }
    })
}

/// An archive with a file for each worker; `driver` is that of any of them.
fn archive<D: Driver>(
    (bytes, files): DrivenRelease,
    driver: &D,
) -> Result<OpenedArchive, ArchiveError> {
    let first = &bytes[..SUPERBLOCK_LEN.min(bytes.len())];
    let superblock = Superblock::parse(first, bytes.len() as u64)?;
    let range = superblock.metadata_range();
    let metadata = bytes[range.start as usize..range.end as usize].to_vec();
    let archive = Archive::new(superblock, metadata)?;
    let meta = driver.meta(&files[0]).expect("it is open");
    let rules = SiteRules::of_archive(&archive, 0, &mut MemoryRoom::default())
        .ok()
        .flatten();
    Ok(OpenedArchive {
        spa: archive.options().spa,
        has_forms: has_forms(&archive),
        archive: Arc::new(archive),
        files: files.into_iter().map(|file| (file, None)).collect(),
        len: bytes.len() as u64,
        is_copied: false,
        room: None,
        meta,
        origin: None,
        partial: None,
        hosts: vec![(0, Vec::new(), rules.map(Arc::new))],
        kept_answers: Arc::default(),
    })
}

fn directory(
    root: Root,
    redirects: Option<&[u8]>,
    headers: Option<&[u8]>,
    options: DirectoryOptions,
) -> CheckedContent {
    let redirects = redirects.map(|text| SourceFile {
        path: "_redirects",
        text,
    });
    let rules = SiteRules::parse(
        redirects.as_slice(),
        headers,
        (Compat::Netlify, MemoryRoom::default()),
    );
    CheckedContent::Directory(OpenedDirectory {
        roots: vec![root],
        others: Vec::new(),
        copies: None,
        rules: rules.expect("the rules were checked").map(Arc::new),
        options: Arc::new(options),
        kept: Arc::default(),
    })
}
