//! The main thread of a running server: what it does for signals, until the workers have ended.

use std::fmt;
use std::io::{self, IsTerminal};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use gannet_server::Running;
use gannet_server::notices::ERRORS;
use signal_hook::consts::SIGHUP;

use super::companions::Companions;
use super::configured::Configured;
use super::notify::Notify;
use super::output::People;
use super::signals::{Commands, SignalCommand};
use super::tls;
use super::upgrade::{SuccessorAnswer, Upgrades};
use crate::messages::{cause, printable};
use crate::quantities::counted;

/// How often the main thread checks whether the workers have ended by themselves.
const LOOK: Duration = Duration::from_secs(1);
/// The same during shutdown.
const LOOK_STOPPING: Duration = Duration::from_millis(10);
/// Checks after which a slow shutdown is announced.
const LOOKS_UNTIL_TOLD: u32 = 20;

/// A server that runs.
pub(super) struct Waiting {
    pub(super) running: Running,
    pub(super) people: People,
    pub(super) notify: Notify,
    pub(super) upgrades: Upgrades,
    pub(super) companions: Companions,
    /// The configuration file, if there is one.
    pub(super) configured: Option<Configured>,
    pub(super) reloads: Reloads,
    /// How long running answers may take after a stop.
    pub(super) grace_ms: u64,
}

/// What SIGHUP has requested and is not done yet.
#[derive(Default)]
pub(super) struct Reloads {
    /// How often certificates, rules and contents are being read.
    reading: u32,
    /// The new process that gets ready is to have the configuration as it is now.
    is_configuring: bool,
    /// That one may have read it before it was changed: another one is needed.
    again: bool,
    /// The last one was refused.
    is_refused: bool,
}

/// Why a server finishes its running answers.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Stopping {
    /// A signal.
    Signal(i32),
    /// Another process has taken its place.
    Replaced,
}

/// What has happened to a server.
#[derive(Default)]
struct Fate {
    stopping: Option<Stopping>,
    /// The process that serves in its place.
    successor: Option<u32>,
    /// The signal that ended it at once.
    killed_by: Option<i32>,
}

impl Waiting {
    /// Waits until the workers have ended; returns the exit status.
    pub(super) fn wait(mut self, commands: &Commands) -> u8 {
        let mut fate = Fate::default();
        let mut looks = 0;
        let has_terminal = io::stdin().is_terminal();
        while !self.running.is_finished() {
            let patience = match fate.stopping {
                Some(_) => LOOK_STOPPING,
                None => LOOK,
            };
            match commands.inbox.recv_timeout(self.notify.patience(patience)) {
                // The terminal was closed: Ctrl-C is no longer possible.
                Ok(SignalCommand::ReadAgain) if has_terminal && !io::stdin().is_terminal() => {
                    self.stop(SIGHUP, &mut fate);
                }
                Ok(command) => self.obey(command, commands, &mut fate),
                Err(RecvTimeoutError::Timeout) if fate.stopping.is_some() => {
                    looks += 1;
                    if looks == LOOKS_UNTIL_TOLD && fate.stopping != Some(Stopping::Replaced) {
                        self.people.say(
                            "stopping when running answers have finished; a second signal stops \
                             at once\n",
                        );
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            if self.running.gives_up_lost_workers() {
                self.upgrades
                    .forbid("a worker has ended: restart this server");
            }
            if let Some(name) = self.companions.lost() {
                ERRORS.log(format_args!(
                    "gannet: {name} has ended, and what would start it again was killed\n\
                     help: restart the server, or upgrade it by SIGUSR2"
                ));
            }
            let running = &self.running;
            self.notify.watch(|| running.makes_turns());
        }
        let stopped = self.running.wait();
        if let Some(signal) = fate.killed_by {
            return 128 + u8::try_from(signal).unwrap_or(0);
        }
        if stopped.cut > 0 {
            ERRORS.log(CutOff(stopped.cut, self.grace_ms));
        }
        // A stop that takes no longer than it may is none that failed.
        match fate.stopping {
            Some(_) if !stopped.has_failed => 0,
            _ => 1,
        }
    }

    fn obey(&mut self, command: SignalCommand, commands: &Commands, fate: &mut Fate) {
        match command {
            SignalCommand::Stop(signal) => self.stop(signal, fate),
            SignalCommand::ReadAgain => self.reload(commands, fate),
            SignalCommand::ReadAll => {
                self.reloads.reading -= 1;
                self.settle(fate);
            }
            // Requested explicitly, so printed even with --quiet; never among logged requests.
            SignalCommand::Summary => {
                self.running.reopen_logs();
                ERRORS.write(self.running.summary());
            }
            SignalCommand::Upgrade if fate.stopping.is_some() => {
                ERRORS.log(Refused(fate.successor));
            }
            SignalCommand::Upgrade if self.upgrades.is_under_way() => {
                not_upgraded("another upgrade is under way");
            }
            SignalCommand::Upgrade => self.begin(false, commands),
            SignalCommand::Successor(answer) => {
                // Otherwise a stop has come first.
                if self.upgrades.is_under_way() {
                    self.successor(answer, commands, fate);
                }
                self.settle(fate);
            }
            SignalCommand::Certificates(reload) => match tls::reloaded(&reload) {
                Ok(text) => self.people.say(text),
                Err(failure) => failure.report(),
            },
        }
    }

    fn stop(&mut self, signal: i32, fate: &mut Fate) {
        match fate.stopping {
            None => {
                self.upgrades.end();
                self.companions.end();
                self.notify.stopping();
                self.running.stop();
                fate.stopping = Some(Stopping::Signal(signal));
            }
            // It is stopping already; the next signal ends it at once.
            Some(Stopping::Replaced) => fate.stopping = Some(Stopping::Signal(signal)),
            Some(Stopping::Signal(_)) => {
                fate.killed_by = Some(signal);
                self.running.stop_now();
            }
        }
    }

    /// Reads everything again that can be read while it is served, and has a new process take this
    /// one's place if the configuration may have changed.
    fn reload(&mut self, commands: &Commands, fate: &Fate) {
        self.notify.reloading();
        self.running.reopen_logs();
        let done = self.running.read_again();
        let sender = commands.sender.clone();
        let wait = move || {
            // Disconnected when all is read; the server may have ended by then.
            let _ = done.recv();
            let _ = sender.send(SignalCommand::ReadAll);
        };
        let thread = std::thread::Builder::new().name("gannet-reload".into());
        self.reloads.reading += u32::from(thread.spawn(wait).is_ok());
        let may_differ = |it: &Configured| it.may_have_changed();
        if fate.stopping.is_none() && self.configured.as_ref().is_some_and(may_differ) {
            match self.upgrades.is_under_way() {
                true => {
                    self.reloads.again = true;
                    self.upgrades.interrupt();
                }
                false => self.begin(true, commands),
            }
        }
        self.settle(fate);
    }

    /// Reports to the service manager that everything requested is done, once it is.
    fn settle(&self, fate: &Fate) {
        let is_done = self.reloads.reading == 0 && !self.upgrades.is_under_way();
        if is_done && fate.stopping.is_none() {
            self.notify.ready(match self.reloads.is_refused {
                true => "serving, without the new configuration: see the log",
                false => "serving",
            });
        }
    }

    /// Starts a new process: for the configuration, or for the program.
    fn begin(&mut self, is_configuring: bool, commands: &Commands) {
        self.reloads.is_configuring = is_configuring;
        self.reloads.is_refused = false;
        if let Err(why) = self.upgrades.begin(&self.running, &commands.sender) {
            self.refuse(&why);
        }
    }

    /// Reports why no new process takes this one's place.
    fn refuse(&mut self, why: &str) {
        self.reloads.is_refused = self.reloads.is_configuring;
        match self
            .configured
            .as_ref()
            .filter(|_| self.reloads.is_configuring)
        {
            Some(file) => ERRORS.log(format_args!(
                "gannet: cannot reload '{}', nothing has changed: {why}",
                printable(&file.path().display().to_string())
            )),
            None => not_upgraded(why),
        }
    }

    /// The new process of an upgrade has answered.
    fn successor(&mut self, answer: SuccessorAnswer, commands: &Commands, fate: &mut Fate) {
        if std::mem::take(&mut self.reloads.again) {
            self.upgrades.end();
            return self.begin(true, commands);
        }
        let (pid, taken) = match answer {
            SuccessorAnswer::Ready(pid, taken) => (pid, taken),
            SuccessorAnswer::Failed(why) => {
                self.upgrades.end();
                return self.refuse(&why);
            }
        };
        // Before it serves: the service manager listens to the main process alone.
        if let Err(error) = self.notify.main_process(pid) {
            self.upgrades.end();
            let cause = cause(&error);
            return self.refuse(&format!("cannot notify the service manager of it: {cause}"));
        }
        match self.upgrades.finish(&mut self.running, &taken) {
            Ok(()) => {
                self.companions.end();
                self.notify.leave();
                fate.stopping = Some(Stopping::Replaced);
                fate.successor = Some(pid);
                self.people.answer(format!(
                    "process {pid} serves now; this one finishes running answers\n"
                ));
            }
            Err(why) => {
                // It is the server as before; nothing else can be done.
                let _ = self.notify.main_process(std::process::id());
                self.refuse(&why);
            }
        }
    }
}

/// Why a server that stops is not upgraded: another process has taken its place, or none.
struct Refused(Option<u32>);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(pid) => write!(
                f,
                "gannet: not upgraded: process {pid} has taken the place of this one, which finishes \
                 running answers\nhelp: send SIGUSR2 to process {pid}"
            ),
            None => f.write_str("gannet: not upgraded: this server stops"),
        }
    }
}

fn not_upgraded(why: &str) {
    ERRORS.log(format_args!(
        "gannet: not upgraded, this process continues: {why}"
    ));
}

/// So many connections were cut off after so many milliseconds.
struct CutOff(u64, u64);

impl fmt::Display for CutOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(count, grace_ms) = *self;
        let connections = counted(count, "connection");
        let seconds = grace_ms as f64 / 1e3;
        write!(
            f,
            "gannet: {connections} cut off in the middle of an answer: --grace ({seconds} s) \
             is over\nhelp: a longer --grace lets slower clients finish"
        )
    }
}
