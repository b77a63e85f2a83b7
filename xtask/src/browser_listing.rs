//! Tests listings in headless Chromium: the script's order and rows are those of the server, under
//! the policy that the server sends; filter, keyboard and a folder of 100,000 entries; a folder of
//! more on a phone's screen; and axe-core finds nothing that keeps people out.
//!
//! Pages report by requests, which are read from the server's log.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::browser_site::{open, serve, wait_for};
use xtask::process;

/// Entries of the long listing, and as many as are listed.
const MANY: usize = 100_000;

/// Names that a page could get wrong.
const AWKWARD: [&[u8]; 21] = [
    b"<b>&\"'.txt",
    b"100%?#.txt",
    b"javascript:alert(1)",
    b"\" onclick=\"alert(1)",
    b"latin-\xe9.txt",
    "evil-\u{202e}fdp.exe".as_bytes(),
    "שלום.txt".as_bytes(),
    "日本語.txt".as_bytes(),
    // In the order of bytes, and not in that of UTF-16.
    "\u{1f426}.txt".as_bytes(),
    "\u{ff21}.txt".as_bytes(),
    "\u{e000}.txt".as_bytes(),
    // Shown as another character.
    "\u{85}.txt".as_bytes(),
    "\u{a0}.txt".as_bytes(),
    b"latin-\xfc.txt",
    b"app-1.2.9.tar.gz",
    b"app-1.2.10.tar.gz",
    b"App-1.2.010.tar.gz",
    b"b 2.txt",
    b"B 10.txt",
    b" two  spaces ",
    &[b'x'; 255],
];

/// The test of listings: opens them as windows and reports what it finds.
const HARNESS: &str = include_str!("browser_listing/test.js");

/// What that reports, each within the patience of a step.
const STEPS: [&str; 10] = [
    "few",
    "filtered",
    "sorted-size-desc",
    "sorted-size-asc",
    "sorted-modified-desc",
    "sorted-modified-asc",
    "sorted-name-asc",
    "sorted-name-desc",
    "many",
    "phone",
];

/// Runs axe-core on the page that it is added to.
const AXE: &str = include_str!("browser_listing/axe.js");

/// Tests a few entries, many, and what axe-core finds.
pub(crate) fn run_all(chromium: &Path, gannet: &Path, folder: &Path) -> Result<()> {
    let site = folder.join("site");
    write_site(&site)?;
    let log = folder.join("listing.log");
    let server = serve(gannet, &site, &log)?;
    let browser = open(chromium, &folder.join("profile"), &server)?;
    for step in STEPS {
        wait_for(&log, &[step]).with_context(|| reports(&log).join("; "))?;
    }
    drop(browser);
    let times: Vec<_> = reports(&log)
        .into_iter()
        .filter(|it| it.ends_with("ms"))
        .collect();
    println!(
        "listing: order, rows, filter and keys are right; {MANY} entries: {}",
        times.join("; ")
    );
    match axe_core() {
        Ok(axe) => {
            for (name, page) in pages(&server.port)? {
                check_with_axe(chromium, gannet, &folder.join(name), &page, &axe)
                    .with_context(|| format!("axe-core, {name}"))?;
            }
            println!("listing: axe-core has no objection");
        }
        Err(error) => println!("skipped: axe-core: {error:#}"),
    }
    Ok(())
}

fn write_site(site: &Path) -> Result<()> {
    for folder in [
        "few/folder",
        "few/another folder",
        "few/empty",
        "many",
        "more",
    ] {
        fs::create_dir_all(site.join(folder))?;
    }
    let few = site.join("few");
    for (number, name) in AWKWARD.iter().enumerate() {
        fs::write(
            few.join(OsStr::from_bytes(name)),
            "x".repeat(number / 3 * 700),
        )?;
        fs::write(site.join("many").join(OsStr::from_bytes(name)), "")?;
    }
    fs::write(
        few.join("a-page.html"),
        "<!doctype html><title>a page</title>",
    )?;
    for number in 0..=MANY {
        fs::write(site.join(format!("more/name-{number}")), "")?;
    }
    for number in 0..MANY - AWKWARD.len() {
        fs::write(site.join(format!("many/name-{number}")), "")?;
    }
    let page = "<!doctype html><title>test</title><script src=/test.js defer></script>";
    fs::write(site.join("index.html"), page)?;
    Ok(fs::write(site.join("test.js"), HARNESS)?)
}

/// What the pages have reported.
fn reports(log: &Path) -> Vec<String> {
    let text = fs::read_to_string(log).unwrap_or_default();
    let reports = text.split("/told-").skip(1);
    let words = reports.filter_map(|rest| rest.split(' ').next());
    words.map(decoded).collect()
}

fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at_checked(2).unwrap_or((part, ""));
        bytes.extend(u8::from_str_radix(code, 16));
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The script of axe-core, from npm.
fn axe_core() -> Result<PathBuf> {
    let npm = process::find_or_install("npm", "npm")?;
    let folder = process::target().join("axe-core");
    let script = folder.join("node_modules/axe-core/axe.min.js");
    if !script.exists() {
        fs::create_dir_all(&folder)?;
        let mut install = Command::new(npm);
        install.args([
            "install",
            "--silent",
            "--no-audit",
            "--no-fund",
            "axe-core@4",
        ]);
        process::run(install.current_dir(&folder))?;
    }
    ensure!(script.exists(), "its package has no axe.min.js");
    Ok(script)
}

/// Listings as they are, with a filter, and in the dark.
fn pages(port: &str) -> Result<Vec<(&'static str, String)>> {
    let url = format!("http://127.0.0.1:{port}/few/");
    let light = process::output("curl", &["-sf", &url])?;
    let dark = light.replace("(prefers-color-scheme: dark)", "all");
    ensure!(dark != light, "the page has no dark form");
    let empty = process::output("curl", &["-sf", &format!("{url}empty/")])?;
    Ok(vec![("light", light), ("dark", dark), ("empty", empty)])
}

fn check_with_axe(
    chromium: &Path,
    gannet: &Path,
    folder: &Path,
    page: &str,
    axe: &Path,
) -> Result<()> {
    let site = folder.join("site");
    fs::create_dir_all(&site)?;
    let scripts = "<script src=/axe.js></script><script src=/run.js></script>";
    fs::write(site.join("index.html"), [page, scripts].concat())?;
    fs::copy(axe, site.join("axe.js"))?;
    fs::write(site.join("run.js"), AXE)?;
    let log = folder.join("axe.log");
    let server = serve(gannet, &site, &log)?;
    let browser = open(chromium, &folder.join("profile"), &server)?;
    wait_for(&log, &["done"])?;
    drop(browser);
    let mut found = reports(&log);
    found.retain(|report| report != "done");
    ensure!(found.is_empty(), "{}", found.join("\n"));
    Ok(())
}
