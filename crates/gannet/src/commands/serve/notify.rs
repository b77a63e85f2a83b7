//! Tells the service manager about this server's state, as sd_notify(3) describes.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use gannet_io::clock;

/// The connection to the service manager, if there is one.
pub(super) struct Notify {
    socket: Option<UnixDatagram>,
    watchdog: Option<Watchdog>,
}

impl Notify {
    /// Connects by `NOTIFY_SOCKET`: a path, or a name of the abstract namespace after `@`. The
    /// server works without a receiver, too.
    pub(super) fn connect() -> Self {
        let socket = std::env::var_os("NOTIFY_SOCKET").and_then(|name| {
            let address = match name.as_bytes() {
                [b'@', abstract_name @ ..] => SocketAddr::from_abstract_name(abstract_name),
                _ => SocketAddr::from_pathname(&name),
            };
            let socket = UnixDatagram::unbound().ok()?;
            socket.connect_addr(&address.ok()?).ok()?;
            socket.set_nonblocking(true).ok()?;
            Some(socket)
        });
        let number = |name| std::env::var(name).ok()?.parse().ok();
        let is_own = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|it| is_own && *it > 0);
        Self {
            watchdog: watchdog
                .filter(|_| socket.is_some())
                .map(|limit_us| Watchdog::new(Duration::from_micros(limit_us), Instant::now())),
            socket,
        }
    }

    /// It serves.
    pub(super) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}\n"));
    }

    /// It reads its configuration again, as from now.
    pub(super) fn reloading(&self) {
        let now_us = clock::monotonic().as_micros();
        self.send(&format!(
            "RELOADING=1\nMONOTONIC_USEC={now_us}\nSTATUS=reloading\n"
        ));
    }

    /// It finishes running answers, and ends.
    pub(super) fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=finishing running answers\n");
    }

    /// This process is the server from now on. Waits for a service manager that is slow: if it does
    /// not know, it takes the service for ended with this process.
    ///
    /// # Errors
    /// The message could not be sent.
    pub(super) fn main_process(&self, pid: u32) -> io::Result<()> {
        let Some(socket) = &self.socket else {
            return Ok(());
        };
        socket.set_nonblocking(false)?;
        socket.set_write_timeout(Some(TELL_MAX))?;
        let sent = socket.send(format!("MAINPID={pid}\n").as_bytes());
        socket.set_nonblocking(true)?;
        sent.map(drop)
    }

    /// Leaves everything else to the main process.
    pub(super) fn leave(&mut self) {
        self.socket = None;
        self.watchdog = None;
    }

    /// Resets the service manager's watchdog if that is due, and if `works` confirms it.
    pub(super) fn watch(&mut self, works: impl FnOnce() -> bool) {
        let now = Instant::now();
        if let Some(watchdog) = &mut self.watchdog
            && now >= watchdog.next
        {
            let does_work = works();
            watchdog.looked(does_work, now);
            if does_work {
                self.send("WATCHDOG=1\n");
            }
        }
    }

    /// The time until [`watch`](Self::watch) must be called next, at most `most`.
    pub(super) fn patience(&self, most: Duration) -> Duration {
        let next = self.watchdog.as_ref().map(|watchdog| watchdog.next);
        let left = next.map(|next| next.saturating_duration_since(Instant::now()));
        left.map_or(most, |left| left.min(most))
    }

    fn send(&self, text: &str) {
        if let Some(socket) = &self.socket {
            // Nothing depends on it here, and no log could take the error.
            let _ = socket.send(text.as_bytes());
        }
    }
}

/// How long a message that must arrive waits for room.
const TELL_MAX: Duration = Duration::from_secs(5);

/// How soon the workers are looked at again if they did not answer.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// When the service manager expects the next sign of life.
struct Watchdog {
    every: Duration,
    next: Instant,
}

impl Watchdog {
    /// A quarter of the limit: sd_watchdog_enabled(3) recommends half of it, and that is still kept
    /// if a worker is late once.
    fn new(limit: Duration, now: Instant) -> Self {
        Self {
            every: limit / 4,
            next: now,
        }
    }

    /// Notes a look at the workers. If they do not work, another one follows soon.
    fn looked(&mut self, does_work: bool, now: Instant) {
        let pause = match does_work {
            true => self.every,
            false => self.every.min(LOOK_AGAIN),
        };
        self.next = now + pause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server whose workers do not work gives no sign of life, and is asked again in time.
    #[test]
    fn only_a_server_that_works_resets_the_watchdog() {
        let (ours, theirs) = UnixDatagram::pair().expect("a pair");
        theirs.set_nonblocking(true).expect("a socket");
        let limit = Duration::from_secs(3_600);
        let mut notify = Notify {
            socket: Some(ours),
            watchdog: Some(Watchdog::new(limit, Instant::now())),
        };
        let got = || {
            let mut room = [0; 64];
            let len = theirs.recv(&mut room).ok()?;
            Some(String::from_utf8_lossy(&room[..len]).into_owned())
        };
        notify.watch(|| true);
        assert_eq!(got().as_deref(), Some("WATCHDOG=1\n"));
        notify.watch(|| true);
        assert_eq!(got(), None, "not due");
        assert!(notify.patience(limit) <= limit / 4);
        let watchdog = notify.watchdog.as_mut().expect("set");
        watchdog.next = Instant::now();
        notify.watch(|| false);
        assert_eq!(got(), None);
        assert!(notify.patience(limit) <= LOOK_AGAIN, "it is asked again");
    }
}
