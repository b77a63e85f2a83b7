//! The Debian package of `cargo xtask dist`.

use std::path::Path;

use anyhow::{Result, ensure};

use super::clients::{Load, get};
use super::machine::{CONFIGURATION, Machine, Trial};

/// See the module documentation.
pub(super) const TRIALS: &[Trial] = &[
    ("package: install, start, request", starts),
    (
        "package: reload with a changed configuration, under load",
        reloads,
    ),
    ("package: update", is_updated),
    ("package: remove", is_removed),
    ("package: purge", is_purged),
];

fn starts(machine: &Machine) -> Result<()> {
    install(machine)?;
    machine.make_site()?;
    ensure!(get(80, "/").is_err(), "it is enabled");
    machine.run("systemctl enable --now gannet")?;
    machine.serves()
}

fn install(machine: &Machine) -> Result<()> {
    let package = machine.shared("gannet.deb");
    machine
        .run(&format!("dpkg --install {}", package.display()))
        .map(drop)
}

fn reloads(machine: &Machine) -> Result<()> {
    let load = Load::begin();
    machine.configure("metrics = \"127.0.0.1:9100\"")?;
    machine.run("systemctl reload gannet")?;
    get(9100, "/metrics")?;
    load.goes_on()?;
    load.end()
}

/// An update restarts the server, and leaves the configuration.
fn is_updated(machine: &Machine) -> Result<()> {
    let old = machine.main_process()?;
    install(machine)?;
    machine.is_replaced(old)?;
    get(9100, "/metrics")?;
    machine.serves()
}

fn is_removed(machine: &Machine) -> Result<()> {
    machine.run("dpkg --remove gannet")?;
    ensure!(get(80, "/").is_err(), "it still listens");
    machine.nothing_runs()?;
    ensure!(
        Path::new(CONFIGURATION).exists(),
        "the configuration is gone"
    );
    Ok(())
}

fn is_purged(machine: &Machine) -> Result<()> {
    machine.run("dpkg --purge gannet")?;
    for gone in [CONFIGURATION, "/etc/logrotate.d/gannet", "/var/log/gannet"] {
        ensure!(!Path::new(gone).exists(), "'{gone}' is left");
    }
    ensure!(
        Path::new("/srv/www/index.html").exists(),
        "the site is gone"
    );
    Ok(())
}
