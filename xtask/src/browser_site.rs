//! Tests gannet's own additions in headless Chromium: a window of another site that reports back, a
//! worker made from text, WebAssembly, a script that is missing during a deploy, and a page that
//! stays open while another release goes live.
//!
//! The page reports success by requests, which are read from the server's log.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::browser::headless;
use xtask::process;
use xtask::served::Served;

/// Maximum time for a step of the browser; CI machines are slow.
const PATIENCE: Duration = Duration::from_secs(60);

/// The script of the page; `OTHER` is the other site.
const SCRIPT: &str = "
const tell = what => fetch('/told-' + what);
addEventListener('message', e => tell(e.data));
window.open('http://localhost:OTHER/popup.html');
const worker = new Worker(URL.createObjectURL(new Blob(['postMessage(1)'])));
worker.onmessage = () => tell('worker');
WebAssembly.instantiate(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0])).then(() => tell('wasm'));
import('./assets/chunk-BxY3k9Zq.js').catch(() => tell('missing'));
const wait = async () => {
  if ((await fetch('/ready.txt')).ok) location = '/again.html';
  else setTimeout(wait, 100);
};
wait();
";

/// The window of the other site, such as a login.
const POPUP: &str = "opener.postMessage('popup', '*');";

/// The page after the deploy.
const AGAIN: &str = "import('./assets/chunk-BxY3k9Zq.js').then(() => fetch('/told-chunk'));";

/// The page of the first release: once the second one is live, a click imports a script that only
/// the first one has, and that imports another.
const OPEN: &str = "
const tell = what => fetch('/told-' + what);
const button = document.body.appendChild(document.createElement('button'));
button.onclick = () => import('./_astro/lazy.Bx3kY9Zq.js').catch(() => tell('broken'));
const wait = async () => {
  const text = await (await fetch('/release.txt', {cache: 'no-store'})).text();
  if (text === '2') button.click();
  else setTimeout(wait, 100);
};
wait();
tell('open');
";

/// The scripts that are imported.
const LAZY: &str = "import {what} from './shared.Cq81LmTx.js'; fetch('/told-' + what);";
const SHARED: &str = "export const what = 'lazy';";

/// Tests a directory, an archive whose pages have a policy, and a store.
pub(crate) fn run_all(chromium: &Path, gannet: &Path, folder: &Path) -> Result<()> {
    let other = folder.join("other");
    write_page(&other, "popup", POPUP)?;
    let other = serve(gannet, &other, &folder.join("other.log"))?;
    let site = folder.join("site");
    write_page(&site, "index", &SCRIPT.replace("OTHER", &other.port))?;
    write_page(&site, "again", AGAIN)?;
    // A year for every asset, as many sites set it: the 404 must not be cached.
    let rule = "/assets/*\n  Cache-Control: public, max-age=31536000, immutable\n";
    fs::write(site.join("_headers"), rule)?;
    let archive = folder.join("site.gannet");
    let mut pack = Command::new(gannet);
    pack.args(["pack", "--quiet", "--fast", "--csp", "enforce"]);
    process::run(pack.arg(&site).arg("-o").arg(&archive))?;

    let wants = ["popup", "worker", "wasm", "missing"];
    let log = folder.join("archive.log");
    let server = serve(gannet, &archive, &log)?;
    let browser = open(chromium, &folder.join("packed"), &server)?;
    wait_for(&log, &wants).context("archive with a policy")?;
    drop(browser);
    println!("archive with a policy: popup, worker and WebAssembly work");

    let log = folder.join("directory.log");
    let server = serve(gannet, &site, &log)?;
    let browser = open(chromium, &folder.join("live"), &server)?;
    wait_for(&log, &wants).context("directory")?;
    // The deploy continues.
    fs::create_dir_all(site.join("assets"))?;
    fs::write(site.join("assets/chunk-BxY3k9Zq.js"), "export default 1;")?;
    fs::write(site.join("ready.txt"), "")?;
    wait_for(&log, &["chunk"]).context("the script that was missing")?;
    drop(browser);
    println!("directory: popup, worker and WebAssembly work; a script that was missing is loaded");
    stay_open(chromium, gannet, &folder.join("releases"))
}

/// A page stays open while another release goes live, and then imports a script of its own.
fn stay_open(chromium: &Path, gannet: &Path, folder: &Path) -> Result<()> {
    let (first, second) = (folder.join("1"), folder.join("2"));
    write_page(&first, "index", OPEN)?;
    write_page(&second, "index", "fetch('/told-second');")?;
    fs::write(first.join("release.txt"), "1")?;
    fs::write(second.join("release.txt"), "2")?;
    fs::create_dir_all(first.join("_astro"))?;
    fs::write(first.join("_astro/lazy.Bx3kY9Zq.js"), LAZY)?;
    fs::write(first.join("_astro/shared.Cq81LmTx.js"), SHARED)?;
    let store = folder.join("store");
    let publish = |site: &Path| {
        let mut publish = Command::new(gannet);
        publish.args(["publish", "--quiet", "--fast"]);
        process::run(publish.arg(site).arg(&store))
    };
    publish(&first)?;
    let log = folder.join("store.log");
    let server = serve(gannet, &store, &log)?;
    let browser = open(chromium, &folder.join("profile"), &server)?;
    wait_for(&log, &["open"])?;
    publish(&second)?;
    wait_for(&log, &["lazy"]).context("a script of the release before")?;
    drop(browser);
    let text = fs::read_to_string(&log)?;
    ensure!(!text.contains("/told-second "), "it was loaded again");
    println!("store: an open page imports a script of its own release after another went live");
    Ok(())
}

fn write_page(site: &Path, name: &str, script: &str) -> Result<()> {
    fs::create_dir_all(site)?;
    let page = format!("<!doctype html><title>{name}</title><script src={name}.js defer></script>");
    fs::write(site.join(format!("{name}.html")), page)?;
    Ok(fs::write(site.join(format!("{name}.js")), script)?)
}

pub(crate) fn serve(gannet: &Path, content: &Path, log: &Path) -> Result<Served> {
    let mut command = Command::new(gannet);
    command.args(["serve", "--listen", "127.0.0.1:0", "--workers", "1"]);
    command.args(["--log", "combined", "--log-file"]).arg(log);
    Served::start(command.arg(content))?.context("the server does not start")
}

/// A browser, killed on drop.
pub(crate) struct Browser(Child);

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn open(chromium: &Path, folder: &Path, server: &Served) -> Result<Browser> {
    let mut browser = headless(chromium, folder);
    // A user would have clicked.
    browser.args(["--disable-popup-blocking", "--remote-debugging-port=0"]);
    // Windows behind others would wait a second for each timer.
    browser.arg("--disable-background-timer-throttling");
    browser.arg(format!("http://127.0.0.1:{}/", server.port));
    browser
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Ok(Browser(browser.spawn()?))
}

/// Waits until the page has reported all of these, alone or with a `-` and more.
pub(crate) fn wait_for(log: &Path, wants: &[&str]) -> Result<()> {
    let start = Instant::now();
    loop {
        let text = fs::read_to_string(log).unwrap_or_default();
        let is_missing = |what: &&&str| {
            let mut told = text.split("/told-").skip(1);
            !told.any(|rest| {
                rest.starts_with(&[what, " "].concat()) || rest.starts_with(&[what, "-"].concat())
            })
        };
        let missing: Vec<_> = wants.iter().filter(is_missing).collect();
        if missing.is_empty() {
            return Ok(());
        }
        ensure!(start.elapsed() < PATIENCE, "not told: {missing:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
