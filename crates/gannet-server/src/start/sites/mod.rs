//! Sites that are opened at the first request: the entries of a folder with one for each of many hosts.
//!
//! ```text
//!   named ──request──▶ opening ──▶ open ──idle, or too many──▶ named
//!                         └──▶ failed, for some seconds ──▶ named
//! ```
//!
//! Workers have the table of names. For a host in it without an open site they queue a question, and
//! the request waits. One thread takes the questions, and never waits for a disk: it sees to it that each
//! is answered in time. Others open sites, publish releases that have them, and notify the workers.
//! Another thread looks for changes: of the folder, by its own metadata, and of each open site, by
//! the followers that every site has. It closes what was not asked for.

pub(crate) mod at_start;
pub(crate) mod entries;
mod looks;
mod openings;
pub(crate) mod set;

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use gannet_io::descriptors;
use gannet_io::process::lower_priority;

use self::entries::{OnDisk, table};
use self::looks::Looks;
use self::set::{Beginning, Sites};
use crate::bounds::limits::{
    LOOKS_PART, OPEN_SITES_MAX, OPEN_SITES_MIN, SITE_DESCRIPTORS, SITE_DESCRIPTORS_PART,
    SITE_OPENERS, SITE_QUEUE_MAX, SITE_WAITS_LOOK_MS, SITES_LOOK_MS,
};
use crate::coder::Coder;
use crate::config::Many;
use crate::ground::inbox::Remote;
use crate::release::on_demand::{Ask, HostTable, OnDemandHosts};
use crate::start::releases::Surroundings;
use crate::start::sandbox::Readable;
use crate::tls::on_demand::OnDemand;
use crate::watch::lookout::Lookout;

/// Sites whose opening has not begun.
pub(crate) struct Waiting {
    many: Many,
    table: Arc<HostTable>,
    asked: Receiver<Ask>,
    next_place: usize,
    open_max: usize,
    /// Receives the hosts.
    on_demand: Option<OnDemand>,
}

/// How many of these sites may be open at a time besides those that are opened at the start: all of
/// them, or some that may come and those that were `left` out, within the descriptors of the process.
fn open_max(many: &Many, workers: usize, left: usize) -> usize {
    let each = workers as u64 + SITE_DESCRIPTORS;
    let fit = descriptors::limit() / SITE_DESCRIPTORS_PART / each;
    let fit = usize::try_from(fit).unwrap_or(OPEN_SITES_MAX);
    let fit = fit.clamp(OPEN_SITES_MIN, OPEN_SITES_MAX);
    match many.are_opened_at_start() {
        true => OPEN_SITES_MIN + left,
        false => many.found.len().min(fit),
    }
}

impl Waiting {
    /// The sites of a folder; contents from `next_place` on are theirs. Of few, so many were `left` out at
    /// the start.
    pub(crate) fn new(
        many: Many,
        (next_place, left): (usize, usize),
        workers: usize,
        on_demand: Option<OnDemand>,
    ) -> (Self, OnDemandHosts) {
        let table = Arc::new(table(&many.found));
        let (hosts, asked) = OnDemandHosts::new(Arc::clone(&table));
        let waiting = Self {
            table,
            open_max: open_max(&many, workers, left),
            many,
            asked,
            next_place,
            on_demand,
        };
        (waiting, hosts)
    }

    /// How many may be open at a time.
    pub(crate) fn open_max(&self) -> usize {
        self.open_max
    }

    /// Starts the threads, which live as long as the process: one may hang in a file system.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub(crate) fn start(
        self,
        surroundings: &Surroundings,
        coder: &Arc<Coder>,
        remotes: &[Remote],
        readable: Option<Readable>,
    ) -> io::Result<Lookout> {
        let beginning = Beginning {
            table: self.table,
            next_place: self.next_place,
            open_max: self.open_max,
            on_demand: self.on_demand,
            patience: surroundings.patience,
        };
        let entries = OnDisk {
            many: self.many,
            surroundings: surroundings.clone(),
            coder: Arc::clone(coder),
            readable,
        };
        let sites = Arc::new(Sites::new(
            Box::new(entries),
            Arc::clone(&surroundings.published),
            (remotes.to_vec(), surroundings.messages),
            beginning,
        ));
        for _ in 0..SITE_OPENERS {
            sites.hired();
            start_opener(&sites)?;
        }
        let answering = Arc::clone(&sites);
        let asked = self.asked;
        thread::Builder::new()
            .name("gannet-asked".into())
            .spawn(move || answer(&answering, &asked))?;
        let every = Duration::from_millis(SITES_LOOK_MS);
        let mut looks = Looks::new(Arc::clone(&sites));
        Lookout::start("gannet-sites", every, LOOKS_PART, move |is_asked| {
            looks.look(is_asked);
            sites.close(Instant::now());
        })
    }
}

/// Sees to it that each question is answered, and that there are threads to open sites.
fn answer(sites: &Arc<Sites>, asked: &Receiver<Ask>) {
    let every = Duration::from_millis(SITE_WAITS_LOOK_MS);
    loop {
        let ask = match sites.are_waited_for() {
            true => asked.recv_timeout(every),
            false => asked.recv().map_err(RecvTimeoutError::from),
        };
        if matches!(ask, Err(RecvTimeoutError::Disconnected)) {
            return;
        }
        let now = Instant::now();
        for ask in ask.into_iter().chain(asked.try_iter()).take(SITE_QUEUE_MAX) {
            sites.ask(&ask, now);
        }
        sites.give_up(now);
        while sites.hires(now) {
            if start_opener(sites).is_err() {
                // The next look tries again.
                sites.not_hired();
                break;
            }
        }
    }
}

fn start_opener(sites: &Arc<Sites>) -> io::Result<()> {
    let sites = Arc::clone(sites);
    let work = move || {
        // Opening must not delay answers.
        let _ = lower_priority();
        while let Some(begun) = sites.wait_for_work() {
            let opened = sites.open(&begun);
            sites.end(begun, opened, Instant::now());
        }
    };
    let thread = thread::Builder::new().name("gannet-opener".into());
    thread.spawn(work).map(drop)
}
