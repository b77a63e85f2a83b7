//! The service whose addresses systemd binds: `gannet install --socket`.

use anyhow::{Result, ensure};

use super::clients::{Load, get};
use super::machine::{Machine, PROGRAM, Trial};
use super::service::{comes_back, is_upgraded};

/// See the module documentation.
pub(super) const TRIALS: &[Trial] = &[
    ("socket: install, start by the first request", starts),
    (
        "socket: reload with a changed configuration, under load",
        reloads,
    ),
    ("socket: a bad configuration changes nothing", refuses),
    (
        "socket: an address that the unit does not allow is named",
        refuses_addresses,
    ),
    ("socket: restart, under load", restarts),
    ("socket: killed seven times", comes_back),
    ("socket: upgrade, under load", is_upgraded),
    ("socket: install again", stays),
    ("socket: stop, remove", is_removed),
];

fn starts(machine: &Machine) -> Result<()> {
    machine.make_site()?;
    machine.run(&format!(
        "{PROGRAM} install --socket && systemctl daemon-reload"
    ))?;
    machine.run("systemctl enable --now gannet.socket")?;
    ensure!(
        machine.main_process().is_err(),
        "it was started before the first request"
    );
    get(80, "/")?;
    machine.serves()?;
    let user = machine.property("gannet.service", "AmbientCapabilities")?;
    ensure!(user.is_empty(), "it has {user}");
    Ok(())
}

fn reloads(machine: &Machine) -> Result<()> {
    let load = Load::begin();
    for port in [9100, 9101, 9102] {
        let old = machine.main_process()?;
        machine.configure(&format!("metrics = \"127.0.0.1:{port}\""))?;
        load.goes_on()?;
        machine.run("systemctl reload gannet")?;
        get(port, "/metrics")?;
        ensure!(machine.main_process()? != old, "the same process");
        load.goes_on()?;
    }
    load.end()?;
    machine.serves()
}

fn refuses(machine: &Machine) -> Result<()> {
    let old = machine.main_process()?;
    machine.configure("grace = \"soon\"")?;
    machine.fails("systemctl reload gannet")?;
    machine.says("gannet.service", "nothing has changed")?;
    machine.says("gannet.service", "grace: ")?;
    ensure!(machine.main_process()? == old, "another process");
    machine.serves()
}

/// A service without capabilities cannot bind another port below 1024, and may not leave a socket
/// of systemd's alone.
fn refuses_addresses(machine: &Machine) -> Result<()> {
    let old = machine.main_process()?;
    machine.configure("listen = [\"0.0.0.0:8080\"]")?;
    // The check has no sockets of systemd's, and finds nothing.
    machine.run("systemctl reload gannet")?;
    machine.says(
        "gannet.service",
        "nothing uses the service manager's socket '0.0.0.0:80'",
    )?;
    machine.says("gannet.service", "nothing has changed")?;
    ensure!(machine.main_process()? == old, "another process");
    machine.configure("")?;
    machine.run("systemctl reload gannet")?;
    machine.serves()
}

/// Clients wait in the socket's queue.
fn restarts(machine: &Machine) -> Result<()> {
    let load = Load::newcomers();
    for _ in 0..2 {
        load.goes_on()?;
        machine.run("systemctl restart gannet")?;
        load.goes_on()?;
    }
    load.end()?;
    machine.serves()
}

/// An update does not make it a service that binds by itself.
fn stays(machine: &Machine) -> Result<()> {
    let said = machine.run(&format!("{PROGRAM} install"))?;
    ensure!(
        !said.contains("write ") && !said.contains("replace "),
        "{said}"
    );
    Ok(())
}

fn is_removed(machine: &Machine) -> Result<()> {
    machine.run("systemctl disable --now gannet.socket gannet.service")?;
    machine.nothing_runs()?;
    ensure!(get(80, "/").is_err(), "something still listens");
    machine.is_removed()
}
