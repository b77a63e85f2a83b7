//! A running peer: started in a process group of its own, monitored, and always stopped.

use std::{
    fs::{self, File},
    io::Write,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};

use super::peers::{Found, Launch, Task};

/// Maximum time until a peer accepts connections.
const START_MAX: Duration = Duration::from_secs(30);
/// Time for a peer to end after SIGTERM.
const STOP_MAX: Duration = Duration::from_secs(3);
/// Lines of a peer's output shown when it dies.
const OUTPUT_LINES: usize = 8;

/// A running peer; dropping it kills its whole process group.
pub(crate) struct Server {
    child: Child,
    output: PathBuf,
    /// The address it listens on.
    pub(crate) address: SocketAddr,
    /// Its configuration.
    pub(crate) configuration: String,
}

impl Server {
    /// Starts `found` for `task` and waits until it accepts a connection.
    pub(crate) fn start(found: &Found, task: &Task<'_>, interrupt: &AtomicBool) -> Result<Self> {
        Self::start_launch(
            found.launch(task)?,
            task.work.join("output"),
            task.port,
            interrupt,
        )
        .with_context(|| format!("cannot start {}", found.name))
    }

    fn start_launch(
        launch: Launch,
        output: PathBuf,
        port: u16,
        interrupt: &AtomicBool,
    ) -> Result<Self> {
        let Launch {
            mut command,
            input,
            configuration,
        } = launch;
        let log = File::create(&output)?;
        command.stdout(log.try_clone()?).stderr(log);
        command.stdin(if input.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        });
        // A separate group: Ctrl-C reaches the runner only, and one signal reaches all of the peer.
        let mut child = command.process_group(0).spawn().context("spawn")?;
        let stdin = child.stdin.take();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut server = Self {
            child,
            output,
            address,
            configuration,
        };
        if let (Some(mut stdin), Some(text)) = (stdin, input) {
            stdin
                .write_all(text.as_bytes())
                .context("cannot write its input")?;
        }
        let start = Instant::now();
        while TcpStream::connect(address).is_err() {
            server.check_alive()?;
            if interrupt.load(Ordering::Relaxed) {
                bail!("interrupted");
            }
            if start.elapsed() > START_MAX {
                bail!("it accepts no connection after {} s", START_MAX.as_secs());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }

    /// The root of its process tree.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Fails if the process has ended, with its last output.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        let Some(status) = self.child.try_wait().context("wait")? else {
            return Ok(());
        };
        bail!("the server died ({status}){}", self.last_words());
    }

    /// What it has printed.
    pub(crate) fn text(&self) -> String {
        let text = fs::read(&self.output).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }

    fn last_words(&self) -> String {
        let text = self.text();
        let lines: Vec<&str> = text.lines().collect();
        let last = lines[lines.len().saturating_sub(OUTPUT_LINES)..].join("\n  ");
        if last.is_empty() {
            String::new()
        } else {
            format!(":\n  {last}")
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // Fails if the group is empty, which is fine.
            let _ = kill_process_group(pid, signal);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.signal(Signal::TERM);
        let start = Instant::now();
        while start.elapsed() < STOP_MAX {
            if !matches!(self.child.try_wait(), Ok(None)) {
                break;
            }
            thread::sleep(Duration::from_millis(2));
        }
        // Kills its remaining children as well.
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::process::Command;

    use xtask::running::free_port;

    use super::*;

    fn launch(script: &str) -> Launch {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Launch {
            command,
            input: None,
            configuration: String::new(),
        }
    }

    fn start(script: &str, name: &str) -> Result<Server> {
        let output = std::env::temp_dir().join(format!("gannet-{name}-{}", std::process::id()));
        let port = free_port()?;
        Server::start_launch(launch(script), output, port, &AtomicBool::new(false))
    }

    #[test]
    fn a_server_that_dies_at_start_fails_with_its_words() {
        let error = start("echo cannot listen >&2; exit 3", "dies").map(|_| ());
        let error = format!("{:#}", error.expect_err("it died"));
        assert!(
            error.contains("exit status: 3") && error.contains("cannot listen"),
            "{error}"
        );
    }

    #[test]
    fn a_server_that_dies_later_is_noticed() {
        // The listener is ours: the script is "up" at once and ends on request.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback is available");
        let port = listener.local_addr().expect("bound").port();
        let output = std::env::temp_dir().join(format!("gannet-later-{}", std::process::id()));
        let interrupt = AtomicBool::new(false);
        let launch = launch("kill -9 $$");
        let mut server = match Server::start_launch(launch, output, port, &interrupt) {
            Ok(server) => server,
            Err(error) => panic!("{error:#}"),
        };
        server.child.wait().expect("it ends by itself");
        let error = server.check_alive().expect_err("it is dead").to_string();
        assert!(error.contains("signal: 9"), "{error}");
    }
}
