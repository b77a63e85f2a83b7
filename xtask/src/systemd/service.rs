//! The service that `gannet install` writes.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Result, ensure};
use xtask::process;
use xtask::running::until;

use super::clients::{Load, get};
use super::machine::{Machine, PROGRAM, SITE, Trial};

/// The unit, where an administrator has it.
const UNIT: &str = "/etc/systemd/system/gannet.service";
const LOG: &str = "/var/log/gannet/access.log";

/// A service as the first versions have written it, which does not start on Debian 12.
const OLDER: &str = include_str!("older.service");

/// See the module documentation.
pub(super) const TRIALS: &[Trial] = &[
    ("service: install, start, request", starts),
    ("service: the sandbox is whole", is_confined),
    (
        "service: the page that it documents itself by",
        is_documented,
    ),
    ("service: a file added later", serves_what_is_new),
    ("service: the access log, rotated", logs),
    (
        "service: reload with a changed configuration, under load",
        reloads,
    ),
    ("service: reload without a change", stays),
    ("service: a bad configuration changes nothing", refuses),
    (
        "service: a configuration that cannot be served changes nothing",
        refuses_addresses,
    ),
    ("service: restart", restarts),
    (
        "service: a start with a bad configuration fails once, and says why",
        stays_down,
    ),
    ("service: killed seven times", comes_back),
    ("service: upgrade, under load", is_upgraded),
    ("service: stop, start", stops),
    (
        "service: install over an older unit",
        replaces_an_older_unit,
    ),
    ("service: install over an edited unit", keeps_an_edited_unit),
    ("service: remove", is_removed),
];

fn starts(machine: &Machine) -> Result<()> {
    machine.make_site()?;
    machine.run(&format!("{PROGRAM} install && systemctl daemon-reload"))?;
    machine.run("systemctl enable --now gannet")?;
    machine.serves()
}

/// Under the unit, the server gets everything that it confines itself by, unless the kernel lacks it.
fn is_confined(machine: &Machine) -> Result<()> {
    let journal = machine.journal("gannet.service", 30)?;
    let mut lines = journal.lines();
    let sandbox = lines.find(|line| line.starts_with("sandbox"));
    let sandbox = sandbox.unwrap_or("no line about the sandbox");
    println!("        {sandbox}");
    ensure!(
        sandbox.contains("seccomp") && !sandbox.contains("without"),
        "{journal}"
    );
    ensure!(!journal.contains("openat2"), "{journal}");
    Ok(())
}

fn is_documented(machine: &Machine) -> Result<()> {
    let named = machine.property("gannet.service", "Documentation")?;
    ensure!(named.contains("man:gannet(1)"), "it names {named}");
    let page = "/usr/local/share/man/man1/gannet.1";
    ensure!(Path::new(page).is_file(), "no {page}");
    if process::find("man").is_some() {
        let found = machine.run("man --where gannet")?;
        // By a link, perhaps.
        ensure!(
            fs::canonicalize(&found)? == Path::new(page),
            "man finds {found}"
        );
    }
    Ok(())
}

fn serves_what_is_new(_machine: &Machine) -> Result<()> {
    fs::create_dir_all(Path::new(SITE).join("later"))?;
    fs::write(Path::new(SITE).join("later/page.txt"), "later")?;
    until("the new file is served", || {
        get(80, "/later/page.txt").is_ok_and(|answer| answer.ends_with("later"))
    })
}

fn logs(machine: &Machine) -> Result<()> {
    let has = |file: &str, target: &str| {
        fs::read_to_string(file)
            .is_ok_and(|log| log.contains(&format!("\"GET {target} HTTP/1.1\" 200")))
    };
    get(80, "/?first")?;
    until("the request is logged", || has(LOG, "/?first"))?;
    let folder = fs::metadata("/var/log/gannet")?;
    ensure!(folder.mode() & 0o7777 == 0o750, "{:o}", folder.mode());
    match process::find_or_install("logrotate", "logrotate") {
        Ok(_) => drop(machine.run("logrotate --force /etc/logrotate.d/gannet")?),
        // Without a network; what it does then, step by step.
        Err(why) => {
            println!("        by hand: {why:#}");
            fs::rename(LOG, format!("{LOG}.1"))?;
            machine.run(&format!(
                "install -o gannet -g gannet -m 640 /dev/null {LOG}"
            ))?;
            machine.run("systemctl kill --kill-who=main --signal=USR1 gannet.service")?;
        }
    }
    until("the new file is used", || {
        get(80, "/?second").is_ok() && has(LOG, "/?second")
    })?;
    ensure!(has(&format!("{LOG}.1"), "/?first"), "the old log is gone");
    ensure!(!has(LOG, "/?first"), "the old log is the new one");
    Ok(())
}

/// The next request after a reload has the new configuration, and clients notice nothing.
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
    ensure!(
        get(9100, "/metrics").is_err(),
        "the old address is still served"
    );
    machine.serves()
}

fn stays(machine: &Machine) -> Result<()> {
    let old = machine.main_process()?;
    machine.run("systemctl reload gannet")?;
    machine.serves()?;
    ensure!(machine.main_process()? == old, "another process");
    Ok(())
}

fn refuses(machine: &Machine) -> Result<()> {
    let old = machine.main_process()?;
    machine.configure("workers = \"many\"")?;
    machine.fails("systemctl reload gannet")?;
    machine.says("gannet.service", "nothing has changed")?;
    machine.says("gannet.service", "workers: not a whole number")?;
    // Messages have priorities there.
    let errors = machine.run("journalctl -p err -o cat -u gannet.service")?;
    let is_one = errors
        .lines()
        .any(|line| line.starts_with("gannet: cannot "));
    ensure!(is_one, "no error in the journal: {errors}");
    ensure!(machine.main_process()? == old, "another process");
    machine.serves()?;
    get(9102, "/metrics")?;
    machine.configure("metrics = \"127.0.0.1:9103\"")?;
    machine.run("systemctl reload gannet")?;
    get(9103, "/metrics")?;
    machine.serves()
}

/// What the check cannot know, the server finds out: the status of the unit says so.
fn refuses_addresses(machine: &Machine) -> Result<()> {
    let old = machine.main_process()?;
    // An address of documentation.
    machine.configure("metrics = \"192.0.2.1:9100\"")?;
    machine.fails("systemctl reload gannet")?;
    machine.says("gannet.service", "192.0.2.1:9100")?;
    machine.says("gannet.service", "nothing has changed")?;
    ensure!(machine.main_process()? == old, "another process");
    machine.serves()?;
    let status = machine.property("gannet.service", "StatusText")?;
    ensure!(
        status.contains("without the new configuration"),
        "status: {status}"
    );
    machine.configure("")?;
    machine.run("systemctl reload gannet")?;
    ensure!(machine.property("gannet.service", "StatusText")? == "serving");
    machine.serves()
}

fn restarts(machine: &Machine) -> Result<()> {
    machine.run("systemctl restart gannet")?;
    machine.serves()
}

/// What `systemctl status` shows is the mistake, not the next of many attempts.
fn stays_down(machine: &Machine) -> Result<()> {
    machine.configure("workers = \"many\"")?;
    machine.fails("systemctl restart gannet")?;
    ensure!(machine.property("gannet.service", "ActiveState")? == "failed");
    machine.run("journalctl --sync")?;
    let shown = machine.fails("systemctl status --no-pager --full gannet")?;
    ensure!(shown.contains("workers: not a whole number"), "{shown}");
    machine.configure("")?;
    machine.run("systemctl restart gannet")?;
    machine.serves()
}

/// As by the kernel when memory is short, more often than systemd starts a service by default. One
/// signal of them is that of `kill` without a number.
pub(super) fn comes_back(machine: &Machine) -> Result<()> {
    // A process that systemd has not started itself.
    machine.configure("metrics = \"127.0.0.1:9100\"")?;
    machine.run("systemctl reload gannet")?;
    for round in 0..7 {
        let old = machine.main_process()?;
        let signal = if round == 3 { "TERM" } else { "KILL" };
        machine.run(&format!("kill -{signal} {old}"))?;
        machine.is_replaced(old)?;
    }
    machine.serves()
}

pub(super) fn is_upgraded(machine: &Machine) -> Result<()> {
    let load = Load::begin();
    for _ in 0..3 {
        let old = machine.main_process()?;
        load.goes_on()?;
        machine.put_program()?;
        machine.run("systemctl kill --signal=USR2 --kill-who=main gannet")?;
        machine.is_replaced(old)?;
        let running = fs::metadata(format!("/proc/{}/exe", machine.main_process()?))?;
        ensure!(
            running.ino() == fs::metadata(PROGRAM)?.ino(),
            "the old program"
        );
        load.goes_on()?;
    }
    load.end()?;
    machine.serves()
}

fn stops(machine: &Machine) -> Result<()> {
    machine.run("systemctl stop gannet")?;
    ensure!(machine.property("gannet.service", "Result")? == "success");
    ensure!(get(80, "/").is_err(), "it still listens");
    machine.nothing_runs()?;
    machine.run("systemctl start gannet")?;
    machine.serves()
}

fn replaces_an_older_unit(machine: &Machine) -> Result<()> {
    machine.run("systemctl stop gannet")?;
    fs::write(UNIT, OLDER)?;
    let said = machine.run(&format!("{PROGRAM} install"))?;
    ensure!(said.contains(&format!("replace {UNIT}\n")), "{said}");
    machine.run("systemctl daemon-reload && systemctl restart gannet")?;
    machine.serves()
}

fn keeps_an_edited_unit(machine: &Machine) -> Result<()> {
    let own = fs::read_to_string(UNIT)?;
    let edited = own.replace("WatchdogSec=30", "WatchdogSec=60");
    ensure!(edited != own);
    fs::write(UNIT, &edited)?;
    let said = machine.run(&format!("{PROGRAM} install"))?;
    ensure!(said.contains(&format!("keep    {UNIT}: ")), "{said}");
    ensure!(fs::read_to_string(UNIT)? == edited, "it was replaced");
    machine.run("systemctl daemon-reload && systemctl restart gannet")?;
    machine.serves()?;
    fs::write(UNIT, own)?;
    machine.run("systemctl daemon-reload").map(drop)
}

fn is_removed(machine: &Machine) -> Result<()> {
    let said = machine.fails(&format!("{PROGRAM} install --remove"))?;
    ensure!(
        said.contains("systemctl disable --now gannet.service"),
        "{said}"
    );
    machine.run("systemctl disable --now gannet")?;
    machine.is_removed()
}
