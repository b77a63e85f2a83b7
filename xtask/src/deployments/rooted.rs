//! Programs in a folder of their own, which they take for the root, as a container's do.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use xtask::process;
use xtask::served::Served;

/// The user of images, who owns nothing.
pub(super) const USER: u32 = 65_532;

/// Such a folder, and the environment of what runs there: `NAME=VALUE`.
pub(super) struct Rooted {
    pub(super) root: PathBuf,
    pub(super) variables: Vec<String>,
}

impl Rooted {
    /// Whether this process may start anything there.
    pub(super) fn is_possible() -> bool {
        rustix::process::geteuid().is_root()
    }

    /// A command there, as [`USER`].
    pub(super) fn command(&self, typed: &[String]) -> Result<Command> {
        let chroot = process::find("chroot").context("chroot is not installed")?;
        let (program, arguments) = typed.split_first().context("no command")?;
        let mut command = Command::new(chroot);
        command.arg(format!("--userspec={USER}:{USER}"));
        command.arg(&self.root).arg(program).args(arguments);
        command.env_clear();
        for variable in &self.variables {
            let (name, value) = variable.split_once('=').context("not NAME=VALUE")?;
            command.env(name, value);
        }
        // Any free ports, of this machine only.
        command
            .env("GANNET_PORT", "0")
            .env("GANNET_EXPOSE", "false");
        command.env("GANNET_METRICS", "127.0.0.1:0");
        Ok(command)
    }

    /// Starts a server there that has a page with the title Home, and asks it for that and for its health.
    pub(super) fn serves(&self, server: &[String], health: &[String]) -> Result<()> {
        let server = Served::start(self.command(server)?.process_group(0))?;
        let server = server.context("it does not start")?;
        let mut client = TcpStream::connect(format!("127.0.0.1:{}", server.port))?;
        client.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        client.read_to_string(&mut answer)?;
        ensure!(
            answer.starts_with("HTTP/1.1 200") && answer.contains("<title>Home"),
            "it answers {answer}"
        );
        let metrics = server.metrics.as_deref().context("no metrics")?;
        process::capture(self.command(health)?.env("GANNET_METRICS", metrics))?;
        Ok(())
    }
}
