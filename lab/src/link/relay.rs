//! Relays packets between two TUN devices, each direction through a [`Pipe`].

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::pipe::{Counts, Pipe, Shape};

/// Maximum length of a packet read from a device.
const PACKET_MAX: usize = 65_536;

/// Maximum time between two checks of the pipes, in nanoseconds: they may have been replaced.
const LOOK: u64 = 20_000_000;

/// The two directions: to the server, and to the client.
struct Pipes {
    pipes: [Pipe; 2],
    /// Why the relay has ended.
    failure: Option<String>,
}

/// A handle of the running relay.
#[derive(Clone)]
pub(crate) struct Relay(Arc<Mutex<Pipes>>);

impl Relay {
    /// Starts relaying between these non-blocking devices, until the process ends.
    pub(crate) fn start(
        client: BorrowedFd<'static>,
        server: BorrowedFd<'static>,
        shape: Shape,
    ) -> Result<Self> {
        let pipes = [1, 2].map(|seed| Pipe::new(shape, seed));
        let relay = Self(Arc::new(Mutex::new(Pipes {
            pipes,
            failure: None,
        })));
        let carrying = relay.clone();
        std::thread::Builder::new()
            .name("relay".into())
            .spawn(move || {
                // Other processes of this machine must not delay packets.
                let _ = rustix::process::setpriority_process(None, -20);
                if let Err(error) = carrying.carry([client, server]) {
                    carrying.lock().failure = Some(format!("{error:#}"));
                }
            })
            .context("cannot start the relay")?;
        Ok(relay)
    }

    /// Replaces both pipes with empty ones of this shape; each has its own seed for losses.
    pub(crate) fn reset(&self, shape: Shape, seed: u64) {
        let seeds = [seed, !seed];
        self.lock().pipes = seeds.map(|seed| Pipe::new(shape, seed));
    }

    /// The counts since the last reset: to the server, and to the client.
    ///
    /// # Errors
    ///
    /// If the relay has ended.
    pub(crate) fn counts(&self) -> Result<[Counts; 2]> {
        let pipes = self.lock();
        let failure = pipes.failure.as_deref();
        ensure!(
            failure.is_none(),
            "the relay has ended: {}",
            failure.unwrap_or_default()
        );
        Ok([pipes.pipes[0].counts(), pipes.pipes[1].counts()])
    }

    fn lock(&self) -> MutexGuard<'_, Pipes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn carry(&self, devices: [BorrowedFd<'static>; 2]) -> Result<()> {
        let mut buffer = vec![0; PACKET_MAX];
        loop {
            let next = {
                let mut pipes = self.lock();
                for (from, device) in devices.iter().enumerate() {
                    while let Some(len) = read(*device, &mut buffer)? {
                        pipes.pipes[from].offer(now(), &buffer[..len]);
                    }
                }
                let mut next = u64::MAX;
                for (from, pipe) in pipes.pipes.iter_mut().enumerate() {
                    while let Some(packet) = pipe.take(now()) {
                        write(devices[1 - from], &packet)?;
                    }
                    next = next.min(pipe.next().unwrap_or(u64::MAX));
                }
                next
            };
            let time = next.saturating_sub(now()).min(LOOK);
            let timeout = Timespec {
                tv_sec: 0,
                tv_nsec: time as _,
            };
            let mut fds = devices.map(|device| PollFd::from_borrowed_fd(device, PollFlags::IN));
            match poll(&mut fds, Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("poll"),
            }
        }
    }
}

/// The monotonic clock, in nanoseconds.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn read(device: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<Option<usize>> {
    match rustix::io::read(device, buffer) {
        Ok(len) => Ok(Some(len)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        // The interface is not configured yet.
        Err(Errno::IO) => Ok(None),
        Err(error) => Err(error).context("cannot read a packet"),
    }
}

fn write(device: BorrowedFd<'_>, packet: &[u8]) -> Result<()> {
    match rustix::io::write(device, packet) {
        Ok(_) => Ok(()),
        // The kernel has no memory, or the interface is not configured: the packet is lost.
        Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM | Errno::IO | Errno::INVAL) => Ok(()),
        Err(error) => Err(error).context("cannot write a packet"),
    }
}
