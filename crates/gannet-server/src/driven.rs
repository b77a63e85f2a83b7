//! A worker that its caller drives turn by turn, so that the simulator can run the whole server.

use std::sync::Arc;
use std::sync::mpsc;

use gannet_archive::{Archive, ArchiveError, SUPERBLOCK_LEN, Superblock};
use gannet_content::rules::{Compat, SourceFile};
use gannet_io::driver::{Driver, Errno, File, Nanos, Root};

use crate::config::{ContentOptions, Limits, LogFormat, Scheme};
use crate::exchange::redirect::Redirect;
use crate::observe::log::LogWriter;
use crate::observe::metrics::Counters;
use crate::quic::QuicSettings;
use crate::quic::settings::Secrets;
use crate::release::Release;
use crate::release::directory::DirectoryOptions;
use crate::release::opened::{
    Generations, Opened, OpenedArchive, OpenedContent, OpenedDirectory, What,
};
use crate::release::rules::SiteRules;
use crate::start::published::Published;
use crate::start::running::Remote;
use crate::tls::certificates::CertificateStore;
use crate::tls::kernel::KernelTls;
use crate::tls::limits::ENCRYPTED_RECORDS_MAX;
use crate::worker::ledger::Holding;
use crate::worker::{Message, Worker, WorkerSettings};

/// The content of a driven worker.
pub enum DrivenContent {
    /// A live directory.
    Directory(Root),
    /// A live directory with this text as `_headers`.
    Ruled(Root, &'static [u8]),
    /// A live directory with this text as `_redirects`.
    Redirected(Root, &'static [u8]),
    /// An archive: its bytes, and the same bytes as a file of the engine.
    Archive(Vec<u8>, File),
}

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

/// One worker without a thread.
pub struct Driven<D: Driver> {
    worker: Worker<D>,
    options: ContentOptions,
    published: Published,
    remote: Remote,
}

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
        mut driver: D,
        content: DrivenContent,
        options: &ContentOptions,
        limits: Limits,
        tls: Option<DrivenTls>,
    ) -> Result<Self, ArchiveError> {
        let scheme = match tls {
            Some(_) => Scheme::Https,
            None => Scheme::Http,
        };
        let sockets = tls.as_ref().map_or(0, |tls| tls.datagram_sockets);
        let quic = (sockets > 0).then(|| QuicSettings {
            secrets: Secrets::fixed(),
            sockets,
        });
        let (certificates, kernel_tls, key_records_max) = match tls {
            Some(tls) => (Some(tls.certificates), tls.kernel, tls.key_records_max),
            None => (None, None, ENCRYPTED_RECORDS_MAX),
        };
        let opened = Arc::new(Opened::one(opened(content, &driver, options)?, options));
        let release = Release::new(&opened, 0, None);
        let settings = WorkerSettings {
            number: 0,
            limits,
            connections_max: match limits.connections_max {
                0 => usize::MAX,
                n => n as usize,
            },
            listeners: vec![scheme],
            redirect: Redirect::default(),
            certificates,
            quic,
            kernel_tls,
            tail_len: options.tail_len(),
            key_records_max,
            archive_copied: 0,
            secret: [0; 32],
        };
        let (messages, inbox) = mpsc::channel();
        let (_, factory) = LogWriter::start(LogFormat::Off, None).expect("no log is opened");
        let waker = driver.waker(Worker::<D>::wake_token());
        let remote = Remote::new(messages, waker);
        let worker = Worker::new(driver, settings, release, factory.sink(), inbox);
        Ok(Self {
            worker,
            options: options.clone(),
            published: Published::new(opened, vec![remote.clone()]),
            remote,
        })
    }

    /// Serves this content from the next turn on.
    ///
    /// # Errors
    /// The archive is not valid.
    ///
    /// # Panics
    /// A rule is not valid.
    pub fn replace(&mut self, content: DrivenContent) -> Result<(), ArchiveError> {
        let what = opened(content, self.worker.driver(), &self.options)?;
        let content = OpenedContent {
            hosts: Vec::new(),
            what,
        };
        self.published.replace(0, |_| Generations::only(content));
        Ok(())
    }

    /// Runs one turn of the loop; waits until `until` at the latest.
    ///
    /// # Errors
    /// The engine failed and cannot continue.
    pub fn turn(&mut self, until: Option<Nanos>) -> Result<(), Errno> {
        self.worker.turn(until)
    }

    /// The engine.
    pub fn driver(&mut self) -> &mut D {
        self.worker.driver()
    }

    /// Stops the worker gracefully, as SIGTERM does. The worker reads the request at once.
    pub fn stop(&mut self) {
        self.remote.tell(Message::Stop);
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

    /// The worker's counters.
    pub fn counters(&mut self) -> Counters {
        self.worker.snapshot()
    }
}

/// Content for one worker.
fn opened<D: Driver>(
    content: DrivenContent,
    driver: &D,
    options: &ContentOptions,
) -> Result<What, ArchiveError> {
    let (bytes, file) = match content {
        DrivenContent::Directory(root) => return Ok(directory(root, None, None, options)),
        DrivenContent::Ruled(root, headers) => {
            return Ok(directory(root, None, Some(headers), options));
        }
        DrivenContent::Redirected(root, redirects) => {
            return Ok(directory(root, Some(redirects), None, options));
        }
        DrivenContent::Archive(bytes, file) => (bytes, file),
    };
    let first = &bytes[..SUPERBLOCK_LEN.min(bytes.len())];
    let superblock = Superblock::parse(first, bytes.len() as u64)?;
    let range = superblock.metadata_range();
    let metadata = bytes[range.start as usize..range.end as usize].to_vec();
    let archive = Archive::new(superblock, metadata)?;
    let meta = driver.meta(&file).expect("it is open");
    let rules = SiteRules::of_archive(&archive, 0).ok().flatten();
    Ok(What::Archive(Arc::new(OpenedArchive {
        spa: archive.options().spa,
        archive: Arc::new(archive),
        files: vec![(file, None)],
        len: bytes.len() as u64,
        is_copied: false,
        _room: None,
        meta,
        origin: None,
        hosts: vec![(0, Vec::new(), rules.map(Arc::new))],
        kept_answers: Arc::default(),
    })))
}

fn directory(
    root: Root,
    redirects: Option<&[u8]>,
    headers: Option<&[u8]>,
    options: &ContentOptions,
) -> What {
    let options = DirectoryOptions::new(options, None);
    let redirects = redirects.map(|text| SourceFile {
        path: "_redirects",
        text,
    });
    let rules = SiteRules::parse(redirects.as_slice(), headers, Compat::Netlify);
    What::Directory(OpenedDirectory {
        roots: vec![root],
        others: Vec::new(),
        rules: rules.expect("the rules were checked").map(Arc::new),
        options: Arc::new(options.expect("the types were checked")),
        kept: Arc::default(),
    })
}
