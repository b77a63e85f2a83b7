//! A worker in the hands of its caller, turn by turn: how the simulator drives the whole server.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};

use gannet_archive::{Archive, ArchiveError, SUPERBLOCK_LEN, Superblock};
use gannet_io::driver::{Driver, Errno, File, Nanos, Root};

use crate::config::{ContentOptions, Limits, LogFormat, Scheme};
use crate::exchange::own_fields::OwnFields;
use crate::exchange::redirect::Redirect;
use crate::limits::OPEN_FILES_MAX;
use crate::observe::log::LogWriter;
use crate::observe::metrics::Counters;
use crate::release::archive::ArchiveSite;
use crate::release::directory::{DirectorySite, Room};
use crate::release::inflated::Inflated;
use crate::release::rules::SiteRules;
use crate::release::sites::Sites;
use crate::release::{ServedFile, Site};
use crate::tls::certificates::CertificateStore;
use crate::tls::kernel::KernelTls;
use crate::tls::limits::SEALED_RECORDS_MAX;
use crate::worker::ledger::Holding;
use crate::worker::{Message, Worker, WorkerSettings};

/// What a driven worker serves.
pub enum DrivenContent {
    /// A live directory.
    Directory(Root),
    /// An archive: its bytes, and the same bytes as a file of the engine.
    Archive(Vec<u8>, File),
}

/// What a driven worker needs to speak TLS at its listener.
pub struct DrivenTls {
    /// The certificates.
    pub certificates: Arc<CertificateStore>,
    /// What the engine's kernel does.
    pub kernel: Option<KernelTls>,
    /// Records that a key of a connection seals before it is replaced.
    pub key_records_max: u64,
}

/// One worker without a thread.
pub struct Driven<D: Driver> {
    worker: Worker<D>,
    messages: Sender<Message>,
}

impl<D: Driver> Driven<D> {
    /// A worker on `driver`, which has one listener, with fixed secrets. It speaks TLS there if
    /// `tls` is given.
    ///
    /// # Errors
    /// When the archive is not valid.
    ///
    /// # Panics
    /// When a configured content type is none.
    pub fn new(
        driver: D,
        content: DrivenContent,
        options: &ContentOptions,
        limits: Limits,
        tls: Option<DrivenTls>,
    ) -> Result<Self, ArchiveError> {
        let scheme = match tls {
            Some(_) => Scheme::Https,
            None => Scheme::Http,
        };
        let (certificates, kernel_tls, key_records_max) = match tls {
            Some(tls) => (Some(tls.certificates), tls.kernel, tls.key_records_max),
            None => (None, None, SEALED_RECORDS_MAX),
        };
        let site = match content {
            DrivenContent::Directory(root) => {
                let room = Room {
                    memory: options.cache_memory,
                    descriptors: OPEN_FILES_MAX,
                };
                let site = DirectorySite::new(root, options, None, room);
                Site::Directory(site.expect("the types were checked"))
            }
            DrivenContent::Archive(bytes, file) => {
                Site::Archive(archive(bytes, &driver, file, options)?)
            }
        };
        let settings = WorkerSettings {
            limits,
            connections_max: match limits.connections_max {
                0 => usize::MAX,
                n => n as usize,
            },
            listeners: vec![scheme],
            fields: Arc::new(options.fields.clone()),
            secure_fields: Arc::new(options.fields.clone()),
            redirect: Redirect::default(),
            certificates,
            defaults: Arc::new(OwnFields::new(options)),
            kernel_tls,
            tail_len: options.tail_len(),
            key_records_max,
            archive_copied: 0,
            secret: [0; 32],
        };
        let (messages, inbox) = mpsc::channel();
        let (_, factory) = LogWriter::start(LogFormat::Off, None).expect("no log is opened");
        let worker = Worker::new(driver, settings, Sites::one(site), factory.sink(), inbox);
        Ok(Self { worker, messages })
    }

    /// One turn of the loop; waits until `until` at the latest.
    ///
    /// # Errors
    /// When the engine cannot go on.
    pub fn turn(&mut self, until: Option<Nanos>) -> Result<(), Errno> {
        self.worker.turn(until)
    }

    /// The engine.
    pub fn driver(&mut self) -> &mut D {
        self.worker.driver()
    }

    /// Asks the worker to stop, as SIGTERM does. It is told in its next turn.
    pub fn stop(&mut self) {
        // The inbox lives as long as the worker.
        let _ = self.messages.send(Message::Stop);
        self.worker.read_inbox();
    }

    /// Whether it has stopped for good.
    pub fn is_over(&self) -> bool {
        self.worker.is_over()
    }

    /// What it holds for its clients.
    #[must_use]
    pub fn holdings(&self) -> Vec<Holding> {
        self.worker.holdings()
    }

    /// Bytes of the shared bodies that connections hold, counted without charges.
    #[must_use]
    pub fn pinned_bytes(&self) -> u64 {
        self.worker.pinned_bytes()
    }

    /// What it has counted.
    pub fn counters(&mut self) -> Counters {
        self.worker.snapshot()
    }
}

fn archive<D: Driver>(
    bytes: Vec<u8>,
    driver: &D,
    file: File,
    options: &ContentOptions,
) -> Result<ArchiveSite, ArchiveError> {
    let first = &bytes[..SUPERBLOCK_LEN.min(bytes.len())];
    let superblock = Superblock::parse(first, bytes.len() as u64)?;
    let range = superblock.metadata_range();
    let metadata = bytes[range.start as usize..range.end as usize].to_vec();
    let archive = Archive::new(superblock, metadata)?;
    let meta = driver.meta(&file).expect("it is open");
    let spa = archive.options().spa;
    let fallbacks = ArchiveSite::fallbacks(&archive, 0);
    let rules = SiteRules::of_archive(&archive, 0).ok().flatten();
    Ok(ArchiveSite {
        archive: Arc::new(archive),
        memory: None,
        file: Rc::new(ServedFile::live(file, meta)),
        inflated: Inflated::new(options.cache_memory),
        spa,
        host: 0,
        fallbacks,
        rules: rules.map(|rules| Rc::new(Arc::new(rules))),
    })
}
