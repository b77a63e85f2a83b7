//! Programs beside the one under test: a process that ends with its owner, a port for it, and waiting for it.

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

/// How long anything may take to happen.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A process that is killed on drop.
pub struct Running(pub Child);

impl Running {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// The program cannot be started.
    pub fn start(command: &mut Command) -> Result<Self> {
        Ok(Self(command.spawn()?))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may already have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port of loopback that is free now.
///
/// # Errors
///
/// There is none.
pub fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}

/// Waits until `is_so`.
///
/// # Errors
///
/// It is not within [`PATIENCE`].
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) -> Result<()> {
    let begun = Instant::now();
    while !is_so() {
        ensure!(begun.elapsed() < PATIENCE, "not in {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
