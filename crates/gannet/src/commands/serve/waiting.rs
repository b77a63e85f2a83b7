//! The main thread of a running server: what it does for signals, until the workers have ended.

use std::io::{self, IsTerminal};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use gannet_server::Running;
use gannet_server::notices::ERRORS;
use signal_hook::consts::SIGHUP;

use super::output::People;
use super::signals::{Command, Commands};
use super::tls;

/// How often the main thread checks whether the workers have ended by themselves.
const LOOK: Duration = Duration::from_secs(1);
/// The same during shutdown.
const LOOK_STOPPING: Duration = Duration::from_millis(10);
/// Checks after which a slow shutdown is announced.
const LOOKS_UNTIL_TOLD: u32 = 20;

/// Waits until the workers have ended; returns the exit status.
pub(super) fn wait(running: Running, commands: &Commands, people: People) -> u8 {
    let mut stopping = None;
    let mut looks = 0;
    let mut killed_by = None;
    let has_terminal = io::stdin().is_terminal();
    while !running.is_finished() {
        let patience = if stopping.is_some() {
            LOOK_STOPPING
        } else {
            LOOK
        };
        match commands.inbox.recv_timeout(patience) {
            Ok(Command::Stop(signal)) if stopping.is_none() => {
                stopping = Some(signal);
                running.stop();
            }
            Ok(Command::Stop(signal)) => {
                killed_by = Some(signal);
                running.stop_now();
            }
            // The terminal was closed: Ctrl-C is no longer possible.
            Ok(Command::ReadAgain) if has_terminal && !io::stdin().is_terminal() => {
                stopping = Some(SIGHUP);
                running.stop();
            }
            Ok(Command::ReadAgain) => {
                running.reopen_logs();
                running.read_again();
            }
            // Requested explicitly, so printed even with --quiet; never among logged requests.
            Ok(Command::Summary) => {
                ERRORS.write(running.summary());
            }
            Ok(Command::Signals) => ERRORS.tell(
                "gannet: SIGUSR2 does nothing; SIGUSR1 prints a summary, SIGHUP reloads \
                 certificates and rules and reopens the log, SIGTERM stops",
            ),
            Ok(Command::Certificates(reload)) => match tls::reloaded(&reload) {
                Ok(text) => people.say(text),
                Err(failure) => failure.report(),
            },
            Err(RecvTimeoutError::Timeout) if stopping.is_some() => {
                looks += 1;
                if looks == LOOKS_UNTIL_TOLD {
                    people.say(
                        "stopping when running answers have finished; a second signal stops \
                        at once\n",
                    );
                }
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
    }
    let is_clean = running.wait();
    match (killed_by, stopping) {
        (Some(signal), _) => 128 + u8::try_from(signal).unwrap_or(0),
        (None, Some(_)) if is_clean => 0,
        // The grace period ended, or the workers ended without a stop.
        _ => 1,
    }
}
