//! A connection whose other side has to hurry. Only the time counts for which it is waited for: what this
//! side does meanwhile costs it nothing.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::limits::{BODY_LEAST, BODY_WINDOW, CONVERSATION_TIMEOUT, GREETING_TIMEOUT};

/// How long a publisher is waited for.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Until it has shown a pointer with the signature of the key.
    pub greeting: Duration,
    /// After that, it has to bring or take `least` bytes within this time, again and again.
    pub window: Duration,
    /// See `window`.
    pub least: u64,
    /// The same, in all.
    pub whole: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            greeting: GREETING_TIMEOUT,
            window: BODY_WINDOW,
            least: BODY_LEAST,
            whole: CONVERSATION_TIMEOUT,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Paced {
    socket: TcpStream,
    bounds: Bounds,
    /// It has shown a pointer.
    is_known: bool,
    waited: Duration,
    /// Of that, and of the bytes, what belongs to the window.
    in_window: Duration,
    bytes: u64,
}

impl Paced {
    pub(crate) fn new(socket: TcpStream, bounds: Bounds) -> Self {
        Self {
            socket,
            bounds,
            is_known: false,
            waited: Duration::ZERO,
            in_window: Duration::ZERO,
            bytes: 0,
        }
    }

    /// From here on the bounds of an upload apply.
    pub(crate) fn know(&mut self) {
        self.is_known = true;
        self.waited = Duration::ZERO;
        (self.in_window, self.bytes) = (Duration::ZERO, 0);
    }

    /// How long it may be waited for now.
    fn left(&mut self) -> io::Result<Duration> {
        let Bounds {
            greeting,
            window,
            least,
            whole,
        } = self.bounds;
        if self.is_known && self.in_window >= window && self.bytes >= least {
            (self.in_window, self.bytes) = (Duration::ZERO, 0);
        }
        let left = match self.is_known {
            true => window
                .saturating_sub(self.in_window)
                .min(whole.saturating_sub(self.waited)),
            false => greeting.saturating_sub(self.waited),
        };
        match left.is_zero() {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(left),
        }
    }

    fn wait(
        &mut self,
        mut act: impl FnMut(&mut TcpStream) -> io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            let left = Some(self.left()?);
            self.socket.set_read_timeout(left)?;
            self.socket.set_write_timeout(left)?;
            let begun = Instant::now();
            let done = act(&mut self.socket);
            let spent = begun.elapsed();
            self.waited += spent;
            self.in_window += spent;
            match done {
                Ok(len) => {
                    self.bytes += len as u64;
                    return Ok(len);
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock
                    | io::ErrorKind::TimedOut
                    | io::ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
    }
}

impl Read for Paced {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.wait(|socket| socket.read(buffer))
    }
}

impl Write for Paced {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wait(|socket| socket.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
