//! Two network namespaces, connected only by a pair of TUN devices.
//!
//! ```text
//! the command ─▶ setpriv ─▶ unshare: network and processes ─▶ a holder of the server's namespace
//!                                      │
//!                                      └▶ tun (server's) ─▶ unshare: network ─▶ tun (client's) ─▶ lab
//! ```
//!
//! The measuring part of the lab runs as the first process of a PID namespace: however it ends, the
//! kernel then kills all processes that it has started, which removes devices and namespaces. It
//! also ends when the command does.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use xtask::process;

/// Environment variable with the process that holds the server's namespace.
const HOLDER: &str = "GANNET_LINK_HOLDER";

/// The devices.
const CLIENT: &str = "client0";
const SERVER: &str = "server0";

/// The client's address, and the servers' network.
const CLIENT_ADDRESS: &str = "10.99.0.1";
const SERVERS: &str = "10.99.1.0/24";

/// Compiles the program that opens the devices.
pub(crate) fn build_tun(folder: &Path) -> Result<PathBuf> {
    let program = folder.join("tun");
    let mut command = Command::new("cc");
    command.args(["-O2", "-Wall", "-o"]).arg(&program);
    command.arg(process::root().join("lab/link/tun.c"));
    process::capture(&mut command)?;
    Ok(program)
}

/// Runs this program again with these arguments, in its own namespaces. Its standard input is the
/// client's device, its standard output the server's.
pub(crate) fn command(tun: &Path, arguments: &[&str]) -> Result<Command> {
    let own = std::env::current_exe()?;
    // The shell's child holds the server's namespace; the shell replaces itself with the next
    // program.
    let script = "sleep infinity </dev/null >/dev/null 2>&1 & \
                  export GANNET_LINK_HOLDER=$!; \
                  exec \"$0\" server0 1 unshare --net -- \"$0\" client0 0 \"$@\"";
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "unshare", "--net", "--pid", "--fork"]);
    command.args(["--kill-child", "--mount-proc", "--", "sh", "-c", script]);
    command.arg(tun).arg(own).args(arguments);
    // The terminal's signals go to the command alone, which ends this process.
    command.process_group(0);
    Ok(command)
}

/// Configures addresses and routes of both devices. To be called in the client's namespace.
pub(crate) fn configure(addresses: &[String]) -> Result<()> {
    let quiet = |command: Command| -> Result<()> {
        let mut command = command;
        process::capture(command.stdin(Stdio::null())).map(drop)
    };
    let client = |arguments: &[&str]| {
        let mut command = Command::new("ip");
        command.args(arguments);
        quiet(command)
    };
    let server = |arguments: &[&str]| {
        let mut command = in_server(Path::new("ip"))?;
        command.args(arguments);
        quiet(command)
    };
    client(&["link", "set", "lo", "up"])?;
    server(&["link", "set", "lo", "up"])?;
    client(&["address", "add", CLIENT_ADDRESS, "dev", CLIENT])?;
    for address in addresses {
        server(&["address", "add", address, "dev", SERVER])?;
    }
    client(&["link", "set", CLIENT, "up"])?;
    server(&["link", "set", SERVER, "up"])?;
    client(&["route", "add", SERVERS, "dev", CLIENT])?;
    server(&["route", "add", CLIENT_ADDRESS, "dev", SERVER])?;
    // A load must not profit from cached TCP metrics of earlier ones.
    let settings = "echo 1 >/proc/sys/net/ipv4/tcp_no_metrics_save && \
                    echo cubic >/proc/sys/net/ipv4/tcp_congestion_control";
    let mut shell = in_server(Path::new("sh"))?;
    shell.args(["-c", settings]);
    quiet(shell)?;
    let mut shell = Command::new("sh");
    shell.args(["-c", settings]);
    quiet(shell)
}

/// A command that runs in the server's namespace.
pub(crate) fn in_server(program: &Path) -> Result<Command> {
    let holder = std::env::var(HOLDER).context("not started by the command")?;
    if holder.parse::<u32>().is_err() {
        bail!("{HOLDER} is '{holder}'");
    }
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/proc/{holder}/ns/net"));
    command.arg("--").arg(program);
    Ok(command)
}
