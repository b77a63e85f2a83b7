//! Servers of others beside gannet: nginx, caches, proxies.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use crate::running::PATIENCE;

/// A running server, ended on drop.
pub struct OtherServer(Child);

impl OtherServer {
    /// Starts it, and waits until it listens on this port of loopback.
    ///
    /// # Errors
    ///
    /// It cannot be started, ends, or does not listen within [`PATIENCE`].
    pub fn start(command: &mut Command, port: u16) -> Result<Self> {
        let mut server = Self(command.spawn()?);
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if let Some(status) = server.0.try_wait()? {
                bail!("it ended: {status}");
            }
            ensure!(begun.elapsed() < PATIENCE, "it does not listen");
            thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }
}

impl Drop for OtherServer {
    fn drop(&mut self) {
        // This signal lets it end its own workers.
        if let Some(pid) = rustix::process::Pid::from_raw(self.0.id() as i32) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.0.wait();
    }
}

/// nginx in the foreground, with all its files in a folder, and `servers` in its `http` block.
///
/// # Errors
///
/// Its configuration cannot be written.
pub fn nginx(program: &Path, folder: &Path, servers: &str) -> Result<Command> {
    let path = folder.join("nginx.conf");
    let folder = folder.display();
    let user = match rustix::process::geteuid().is_root() {
        true => "user root;",
        false => "",
    };
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary = temporary
        .map(|it| format!("{it}_temp_path {folder}/{it};\n"))
        .concat();
    let text = format!(
        "{user}\ndaemon off;\nworker_processes 1;\npid {folder}/pid;\nerror_log {folder}/error;\n\
         events {{}}\nhttp {{\naccess_log off;\n{temporary}{servers}\n}}\n"
    );
    fs::write(&path, text)?;
    let mut command = Command::new(program);
    command.arg("-c").arg(path);
    Ok(command)
}
