//! Turns signals into messages to the main thread, and ends the process where that is not listening.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use gannet_server::tls::watch::Reload;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

/// What the main thread is to do.
#[derive(Debug)]
pub(crate) enum Command {
    /// To stop (SIGINT, SIGTERM, SIGQUIT); the number is the signal's.
    Stop(i32),
    /// Reopen the log file, and reload certificates and rules (SIGHUP).
    ReadAgain,
    /// To print a summary (SIGUSR1).
    Summary,
    /// To say what signals there are (SIGUSR2).
    Signals,
    /// To say what came of reading certificates again.
    Certificates(Reload),
}

/// The main thread's end of the messages.
pub(crate) struct Commands {
    pub(crate) inbox: Receiver<Command>,
    pub(crate) sender: Sender<Command>,
    is_serving: Arc<AtomicBool>,
}

impl Commands {
    /// From now on the main thread listens: the first signal lets it finish running answers.
    pub(crate) fn serve(&self) {
        self.is_serving.store(true, Ordering::Release);
    }
}

/// How long the main thread has for an end that was asked for "at once": to flush the log and to
/// remove the files of sockets. It may hang in a file system that does.
const END_AT_ONCE: Duration = Duration::from_millis(1_500);

/// Listens for signals from now on. Called before any other thread starts, so that none is lost.
///
/// # Errors
/// The handlers cannot be installed, or the thread cannot be started.
pub(crate) fn listen() -> io::Result<Commands> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2])?;
    let (sender, inbox) = mpsc::channel();
    let commands = Commands {
        inbox,
        sender: sender.clone(),
        is_serving: Arc::default(),
    };
    let is_serving = Arc::clone(&commands.is_serving);
    thread::Builder::new()
        .name("gannet-signals".into())
        .spawn(move || {
            let mut stops = 0;
            for signal in signals.forever() {
                let command = match signal {
                    SIGHUP => Command::ReadAgain,
                    SIGUSR1 => Command::Summary,
                    SIGUSR2 => Command::Signals,
                    stop => {
                        stops += 1;
                        if stops > 1 || !is_serving.load(Ordering::Acquire) {
                            end_soon(stop, stops);
                        }
                        Command::Stop(stop)
                    }
                };
                if sender.send(command).is_err() {
                    return;
                }
            }
        })?;
    Ok(commands)
}

/// Ends the process if the main thread does not, whatever it hangs in; the third time at once.
fn end_soon(signal: i32, stops: u32) {
    let status = 128 + signal;
    let end = move || {
        thread::sleep(END_AT_ONCE);
        std::process::exit(status);
    };
    let waits = stops < 3
        && thread::Builder::new()
            .name("gannet-end".into())
            .spawn(end)
            .is_ok();
    if !waits {
        std::process::exit(status);
    }
}
