//! Turns signals into messages to the main thread.

use std::io;
use std::sync::mpsc::{self, Receiver};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

/// What a signal asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Wish {
    /// To stop (SIGINT, SIGTERM); the number is the signal's.
    Stop(i32),
    /// To open the log file anew, and to read certificates again (SIGHUP).
    ReadAgain,
    /// To print a summary (SIGUSR1).
    Summary,
}

/// Listens for signals from now on. Called before any other thread starts, so that none is lost.
///
/// # Errors
/// The handlers cannot be installed, or the thread cannot be started.
pub(crate) fn listen() -> io::Result<Receiver<Wish>> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGUSR1])?;
    let (sender, wishes) = mpsc::channel();
    std::thread::Builder::new()
        .name("gannet-signals".into())
        .spawn(move || {
            for signal in signals.forever() {
                let wish = match signal {
                    SIGHUP => Wish::ReadAgain,
                    SIGUSR1 => Wish::Summary,
                    stop => Wish::Stop(stop),
                };
                if sender.send(wish).is_err() {
                    return;
                }
            }
        })?;
    Ok(wishes)
}
