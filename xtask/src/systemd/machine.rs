//! The booted machine, seen from within.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use xtask::process;
use xtask::running::until;

use super::clients::get;

/// What a trial is called, and what it does. It begins where the one before has ended.
pub(super) type Trial = (&'static str, fn(&Machine) -> Result<()>);

/// See the module documentation.
pub(super) struct Machine {
    shared: PathBuf,
}

/// The program, where an administrator has it.
pub(super) const PROGRAM: &str = "/usr/local/bin/gannet";
/// The configuration.
pub(super) const CONFIGURATION: &str = "/etc/gannet/gannet.toml";
/// What is served.
pub(super) const SITE: &str = "/srv/www";
/// What the page of the site is.
pub(super) const PAGE: &str = "<!DOCTYPE html><title>Home</title>\n";

impl Machine {
    /// Puts the program in its place.
    pub(super) fn new(shared: PathBuf) -> Result<Self> {
        let machine = Self { shared };
        machine.put_program()?;
        Ok(machine)
    }

    /// Reports each trial, and the journal of one that fails. Returns how many have. Those that follow
    /// begin where it has ended, and may fail with it.
    pub(super) fn try_all(&self, trials: &[Trial]) -> usize {
        let mut failed = 0;
        for (name, trial) in trials {
            let begun = Instant::now();
            let result = trial(self);
            let took = begun.elapsed().as_secs_f32();
            match result {
                Ok(()) => println!("passed  {name} ({took:.1} s)"),
                Err(error) => {
                    println!("FAILED  {name}: {error:#}");
                    println!("{}", self.journal("gannet*", 40).unwrap_or_default());
                    failed += 1;
                }
            }
        }
        failed
    }

    /// A file of the folder that is shared with the host.
    pub(super) fn shared(&self, name: &str) -> PathBuf {
        self.shared.join(name)
    }

    /// Installs the program as another file than the one before, if there is one.
    pub(super) fn put_program(&self) -> Result<()> {
        let new = format!("{PROGRAM}.new");
        fs::copy(self.shared("gannet"), &new)?;
        Ok(fs::rename(new, PROGRAM)?)
    }

    /// Runs a command line, which has to succeed; returns its output.
    pub(super) fn run(&self, line: &str) -> Result<String> {
        process::capture(Command::new("sh").args(["-c", line]))
    }

    /// Runs a command line, which has to fail; returns what it says.
    pub(super) fn fails(&self, line: &str) -> Result<String> {
        let output = Command::new("sh").args(["-c", line]).output()?;
        ensure!(!output.status.success(), "'{line}' succeeds");
        let said = [output.stdout, output.stderr].concat();
        Ok(String::from_utf8_lossy(&said).into_owned())
    }

    /// What a unit has written last.
    pub(super) fn journal(&self, unit: &str, lines: usize) -> Result<String> {
        self.run(&format!(
            "journalctl --sync; journalctl --no-pager --output=cat --lines={lines} --unit='{unit}'"
        ))
    }

    /// Waits until a unit writes this.
    pub(super) fn says(&self, unit: &str, text: &str) -> Result<()> {
        until(&format!("{unit} says '{text}'"), || {
            self.journal(unit, 30)
                .is_ok_and(|journal| journal.contains(text))
        })
    }

    /// A property of a unit.
    pub(super) fn property(&self, unit: &str, name: &str) -> Result<String> {
        let value = self.run(&format!("systemctl show --value --property={name} {unit}"))?;
        Ok(value.trim().to_owned())
    }

    /// The process that systemd takes for the server.
    pub(super) fn main_process(&self) -> Result<u32> {
        let pid = self.property("gannet.service", "MainPID")?;
        let pid = pid.parse().with_context(|| format!("MainPID={pid}"))?;
        ensure!(pid != 0, "no server runs");
        Ok(pid)
    }

    /// Waits until another process than this one is the server, and serves.
    pub(super) fn is_replaced(&self, old: u32) -> Result<()> {
        until("another process is the server", || {
            self.main_process().is_ok_and(|new| new != old)
                && self.is_active("gannet.service")
                && get(80, "/").is_ok()
        })
    }

    fn is_active(&self, unit: &str) -> bool {
        self.property(unit, "ActiveState")
            .is_ok_and(|it| it == "active")
    }

    /// Requires that the server serves its page.
    pub(super) fn serves(&self) -> Result<()> {
        ensure!(
            self.is_active("gannet.service"),
            "the service is not active"
        );
        let page = get(80, "/")?;
        ensure!(page.ends_with(PAGE), "it answers {page}");
        Ok(())
    }

    /// The site, and nothing else that it serves.
    pub(super) fn make_site(&self) -> Result<()> {
        fs::create_dir_all(SITE)?;
        Ok(fs::write(Path::new(SITE).join("index.html"), PAGE)?)
    }

    /// Adds this to the configuration as it is installed, in place of what was added before.
    pub(super) fn configure(&self, more: &str) -> Result<()> {
        let installed = format!("{CONFIGURATION}.installed");
        if !Path::new(&installed).exists() {
            fs::copy(CONFIGURATION, &installed)?;
        }
        let text = fs::read_to_string(&installed)?;
        // As editors do.
        let new = format!("{CONFIGURATION}.new");
        fs::write(&new, format!("{text}\n{more}\n"))?;
        Ok(fs::rename(new, CONFIGURATION)?)
    }

    /// Requires that no process of gannet's user is left.
    pub(super) fn nothing_runs(&self) -> Result<()> {
        let left = self.run("ps -u gannet -o pid=,args= || true")?;
        match left.trim() {
            "" => Ok(()),
            left => bail!("left: {left}"),
        }
    }

    /// Removes an installation, and requires that it is gone.
    pub(super) fn is_removed(&self) -> Result<()> {
        // As it was written: what someone has changed stays.
        let _ = fs::rename(format!("{CONFIGURATION}.installed"), CONFIGURATION);
        let said = self.run(&format!(
            "{PROGRAM} install --remove && systemctl daemon-reload"
        ))?;
        let left = self.run("systemctl list-unit-files --no-legend 'gannet*' || true")?;
        ensure!(left.trim().is_empty(), "left: {left}\n{said}");
        self.fails("id gannet")?;
        ensure!(
            Path::new(SITE).join("index.html").exists(),
            "the site is gone"
        );
        Ok(())
    }
}
