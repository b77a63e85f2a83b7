//! Turns signals into messages to the main thread, and ends the process if that thread does not.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use gannet_server::config::SandboxChoice;
use gannet_server::tls::watch::Reload;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use super::confinement::confine;
use crate::commands::serve::upgrade::SuccessorAnswer;

/// A command for the main thread.
#[derive(Debug)]
pub(crate) enum SignalCommand {
    /// Stop (SIGINT, SIGTERM, SIGQUIT); carries the signal number.
    Stop(i32),
    /// Reopen the log file, and reload certificates, rules and the configuration (SIGHUP).
    ReadAgain,
    /// Reopen the log file, and print a summary (SIGUSR1).
    Summary,
    /// Have a new process of the program take this one's place (SIGUSR2).
    Upgrade,
    /// The new process has answered.
    Successor(SuccessorAnswer),
    /// Certificates and rules are read, as SIGHUP has requested.
    ReadAll,
    /// Report the outcome of reloading certificates.
    Certificates(Reload),
}

/// The main thread's end of the messages.
pub(crate) struct Commands {
    pub(crate) inbox: Receiver<SignalCommand>,
    pub(crate) sender: Sender<SignalCommand>,
    is_serving: Arc<AtomicBool>,
}

impl Commands {
    /// The main thread now handles signals: the first one lets running answers finish.
    pub(crate) fn serve(&self) {
        self.is_serving.store(true, Ordering::Release);
    }
}

/// How long the main thread may take to exit at once: it flushes the log and removes socket files,
/// and may hang in a file system.
const END_AT_ONCE: Duration = Duration::from_millis(1_500);

/// Handles signals from now on. Called before any other thread starts, so that none is lost.
///
/// `becomes_user`: the process changes its user later. The thread that listens is confined when this
/// returns.
///
/// # Errors
/// The handlers cannot be installed, or the thread cannot be started.
pub(crate) fn listen(sandbox: SandboxChoice, becomes_user: bool) -> io::Result<Commands> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2])?;
    let (sender, inbox) = mpsc::channel();
    let commands = Commands {
        inbox,
        sender: sender.clone(),
        is_serving: Arc::default(),
    };
    let is_serving = Arc::clone(&commands.is_serving);
    let (confined, is_confined) = mpsc::channel();
    thread::Builder::new()
        .name("gannet-signals".into())
        .spawn(move || {
            confine(sandbox, becomes_user);
            // The main thread waits for it.
            let _ = confined.send(());
            let mut stops = 0;
            for signal in signals.forever() {
                let command = match signal {
                    SIGHUP => SignalCommand::ReadAgain,
                    SIGUSR1 => SignalCommand::Summary,
                    SIGUSR2 => SignalCommand::Upgrade,
                    stop => {
                        stops += 1;
                        if stops > 1 || !is_serving.load(Ordering::Acquire) {
                            end_soon(stop, stops);
                        }
                        SignalCommand::Stop(stop)
                    }
                };
                if sender.send(command).is_err() {
                    return;
                }
            }
        })?;
    // Nothing is served while a thread could still do all that root can. A thread that has ended
    // instead has panicked, and said so.
    let _ = is_confined.recv();
    Ok(commands)
}

/// Ends the process after [`END_AT_ONCE`] if the main thread does not; a third signal ends it at
/// once.
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
