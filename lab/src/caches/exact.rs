//! Purges exactly what changed: caches with lifetimes of a day before a store, configured and purged by the
//! texts of the manual.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use xtask::answer::ask;
use xtask::process;
use xtask::running::{free_port, until};
use xtask::served::Served;

use super::{Setting, configuration, other_server, traffic_server, with_cache};

/// The page of the manual whose configurations and scripts are tested.
const PAGE: &str = "docs/manual/purging.md";

const RELEASES: usize = 30;

/// A cache: its name, its program, Debian's package, and the names of its texts.
type Cache = (&'static str, &'static str, &'static str, [&'static str; 2]);

const CACHES: [Cache; 3] = [
    (
        "nginx",
        "nginx",
        "nginx-light",
        ["exact-nginx.conf", "purge-nginx.sh"],
    ),
    (
        "Varnish",
        "varnishd",
        "varnish",
        ["exact.vcl", "purge-varnish.sh"],
    ),
    (
        "Traffic Server",
        "traffic_manager",
        "trafficserver",
        ["plugin.config", "purge-traffic-server.sh"],
    ),
];

/// Runs the trial with each cache that can be had, beside what `pages` say of it.
pub(super) fn all(pages: &str, gannet: &Path, folder: &Path) -> Result<()> {
    let page = pages.to_owned() + &fs::read_to_string(process::root().join(PAGE))?;
    for (name, program, package, texts) in CACHES {
        match process::find_or_install(program, package) {
            Ok(program) => {
                let folder = folder.join(format!("exact-{package}"));
                one(gannet, &page, &folder, (&program, texts)).context(name)?;
                println!(
                    "{name}: after {RELEASES} releases and purges no old byte, and no needless one"
                );
            }
            Err(error) => println!("{name}, purged exactly: skipped: {error:#}"),
        }
    }
    Ok(())
}

fn one(
    gannet: &Path,
    page: &str,
    folder: &Path,
    (program, [conf, script]): (&Path, [&'static str; 2]),
) -> Result<()> {
    let mut site = Site::start(gannet, folder)?;
    let port = site.server.port.clone();
    let setting = Setting {
        page,
        folder: &folder.join("cache-of-it"),
        port: free_port()?,
        upstream: &port,
    };
    let start = |program: &Path, setting: &Setting<'_>| {
        let own = configuration(setting, conf)?;
        match conf {
            "exact.vcl" => super::varnish_with(program, setting, &own),
            "plugin.config" => {
                let fields = configuration(setting, "exact.config")?;
                let more = [(conf, own), ("exact.config", fields)];
                traffic_server(program, setting, &more)
            }
            _ => other_server::nginx(program, setting.folder, &own),
        }
    };
    let own = setting.folder.join("etc");
    with_cache(start, program, &setting, || {
        site.compare(setting.port)?;
        let purge = configuration(&setting, script)?
            .replace("example.org", "localhost")
            .replace("/etc/trafficserver", &own.display().to_string());
        for release in 1..=RELEASES {
            site.change(release)?;
            let mut bash = Command::new("bash");
            bash.env("TS_RUNROOT", own.join("runroot.yaml"));
            process::run(bash.args(["-euc", &purge]).current_dir(folder))?;
            site.compare(setting.port)
                .with_context(|| format!("release {release}"))?;
        }
        Ok(())
    })
}

/// A site, its store and its server.
struct Site<'s> {
    gannet: &'s Path,
    folder: PathBuf,
    server: Served,
    /// What each URL answers: a body, or a location; nothing if it is missing.
    expected: BTreeMap<String, Option<String>>,
    /// Those that differ from what the cache had.
    touched: Vec<String>,
}

/// A page of more than a packet, so that it is stored in codings.
fn text(page: &str, version: usize) -> String {
    format!("<p>{page} {version}\n").repeat(300)
}

impl<'s> Site<'s> {
    fn start(gannet: &'s Path, folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder.join("site/blog/sp ace"))?;
        fs::write(
            folder.join("site/_headers"),
            "/*\n  CDN-Cache-Control: max-age=86400\n",
        )?;
        let mut server = Command::new(gannet);
        server.args(["serve", "--listen", "127.0.0.1:0", "--log", "off"]);
        server.args(["--workers", "1", "--metrics", "127.0.0.1:0"]);
        server.arg(folder.join("store"));
        let mut first = BTreeMap::new();
        for number in 0..10 {
            let name = format!("blog/sp ace/{number}");
            fs::write(folder.join(format!("site/{name}.html")), text(&name, 0))?;
            first.insert(format!("/blog/sp%20ace/{number}"), Some(text(&name, 0)));
        }
        redirect(folder, 0)?;
        first.insert("/old/a/b".into(), Some("/new-0/a/b".into()));
        first.insert("/missing".into(), None);
        publish(gannet, folder, &[])?;
        Ok(Self {
            gannet,
            folder: folder.to_path_buf(),
            server: Served::start(&mut server)?.context("gannet does not start")?,
            touched: first.keys().cloned().collect(),
            expected: first,
        })
    }

    /// Changes a page, has another come or go, and every fifth time a rule; publishes that.
    fn change(&mut self, release: usize) -> Result<()> {
        let changed = release % 10;
        let name = format!("blog/sp ace/{changed}");
        fs::write(
            self.folder.join(format!("site/{name}.html")),
            text(&name, release),
        )?;
        self.touched = vec![format!("/blog/sp%20ace/{changed}"), "/comes".into()];
        self.expected
            .insert(self.touched[0].clone(), Some(text(&name, release)));
        let comes = self.folder.join("site/comes.html");
        let has_it = release % 2 == 1;
        match has_it {
            true => fs::write(&comes, text("comes", release))?,
            false => fs::remove_file(&comes)?,
        }
        self.expected
            .insert("/comes".into(), has_it.then(|| text("comes", release)));
        if release.is_multiple_of(5) {
            redirect(&self.folder, release)?;
            self.touched.push("/old/a/b".into());
            self.expected
                .insert("/old/a/b".into(), Some(format!("/new-{release}/a/b")));
        }
        let metrics = self.server.metrics.as_ref().context("it has metrics")?;
        publish(
            self.gannet,
            &self.folder,
            &["--wait", &format!("http://{metrics}")],
        )
    }

    /// Asks the cache for everything, twice: what was not touched never reaches gannet, nor does
    /// anything the second time, but for what is missing.
    fn compare(&self, port: u16) -> Result<()> {
        for round in 0..2 {
            for (url, expected) in &self.expected {
                for target in [url.clone(), format!("{url}?a=1")] {
                    for coding in ["gzip", "identity"] {
                        let ask = || self.is_hit(port, &target, coding, expected.as_deref());
                        let is_hit = ask()?;
                        if expected.is_none() || is_hit {
                            continue;
                        }
                        let is_first = round == 0 && self.touched.contains(url);
                        ensure!(is_first, "{target} in {coding} is asked for, round {round}");
                        // Some store an answer after they have sent it, and only if nothing else is
                        // stored for the URL meanwhile.
                        until("it is stored", || ask().is_ok_and(|is_hit| is_hit))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Asks the cache, compares the answer, and tells whether gannet was not asked.
    fn is_hit(
        &self,
        port: u16,
        target: &str,
        coding: &str,
        expected: Option<&str>,
    ) -> Result<bool> {
        let before = self.requests()?;
        self.ask(port, target, coding, expected)?;
        Ok(self.requests()? == before)
    }

    fn ask(&self, port: u16, target: &str, coding: &str, expected: Option<&str>) -> Result<()> {
        let got = ask(
            port,
            "GET",
            target,
            &[&format!("Accept-Encoding: {coding}")],
        )?;
        let Some(expected) = expected else {
            ensure!(got.status == 404, "{target}: {}", got.head);
            return Ok(());
        };
        if got.status == 301 {
            let location = got.field("location").unwrap_or_default();
            let location = location.split('?').next().unwrap_or_default();
            ensure!(location == expected, "{target}: {}", got.head);
            return Ok(());
        }
        let body = match got.field("content-encoding") {
            Some("gzip") => unzip(&self.folder, &got.body)?,
            _ => got.body,
        };
        ensure!(got.status == 200, "{target}: {}", got.head);
        ensure!(
            body == expected.as_bytes(),
            "{target} in {coding} has other bytes"
        );
        Ok(())
    }

    fn requests(&self) -> Result<u64> {
        self.server
            .metric("gannet_worker_responses_total{worker=\"0\"}")
    }
}

/// A rule for many paths.
fn redirect(folder: &Path, release: usize) -> Result<()> {
    let rule = format!("/old/* /new-{release}/:splat 301\n");
    Ok(fs::write(folder.join("site/_redirects"), rule)?)
}

fn publish(gannet: &Path, folder: &Path, more: &[&str]) -> Result<()> {
    let mut command = Command::new(gannet);
    command.args([
        "publish",
        "site",
        "store",
        "--fast",
        "-q",
        "--changed",
        "changed",
    ]);
    process::run(command.args(more).current_dir(folder))
}

fn unzip(folder: &Path, coded: &[u8]) -> Result<Vec<u8>> {
    let path = folder.join("coded");
    fs::write(&path, coded)?;
    let output = Command::new("gzip")
        .arg("-dc")
        .stdin(fs::File::open(path)?)
        .output()?;
    ensure!(output.status.success(), "it is not gzip");
    Ok(output.stdout)
}
