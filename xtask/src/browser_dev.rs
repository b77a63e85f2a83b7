//! Tests `gannet dev` in headless Chromium: style sheets are loaded again without the page, the page is
//! loaded again when it changes, and what is wrong is shown until it is fixed.
//!
//! The page reports by requests to another server, which are read from its log.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::browser::headless;
use crate::browser_site::{open, serve, wait_for};
use xtask::served::Served;

/// The page; `OTHER` is the port of the server that logs, `NAME` differs from version to version. It
/// counts how often it was loaded.
const PAGE: &str = "<!doctype html><html lang=en><head><title>dev</title>
<link rel=stylesheet href=style.css><script>
const loads = Number(sessionStorage.loads ?? 0) + 1;
sessionStorage.loads = loads;
const told = new Set();
const tell = what => {
  if (told.has(what)) return;
  told.add(what);
  fetch('http://localhost:OTHER/told-' + what, {mode: 'no-cors'});
};
tell('NAME-' + loads);
setInterval(() => {
  const colour = getComputedStyle(document.body).color.replace(/[^0-9,]/g, '').replaceAll(',', '.');
  tell('colour.' + colour + '-' + loads);
  const overlay = document.querySelector('gannet-overlay');
  const text = overlay ? overlay.shadowRoot.textContent : '';
  if (text.includes('_redirects:1')) tell('overlay');
  // Each version is loaded again, and has a moment for the message to come up.
  else if (!overlay && performance.now() > 2000) tell('clear.NAME');
}, 50);
</script></head><body>at work</body></html>";

/// A page that is not loaded until the slow server has answered, so that a screenshot shows what has
/// come up by then.
const SLOW: &str = "<!doctype html><html lang=en><title>overlay</title>
<h1>A page</h1><p>behind what is wrong.</p><img alt='' src='http://localhost:SLOW/x.png'>";

/// The policy of the page: scripts in it, and what it reports.
const POLICY: &str = "/*\n  Content-Security-Policy: default-src 'self'; script-src 'unsafe-inline'; \
    connect-src http://localhost:OTHER; img-src *\n";

/// A page with more frames than a browser has connections for a host; once they are there, it asks for
/// something.
const FRAMES: &str = "<!doctype html><title>frames</title><body><script>
for (let i = 0; i < 8; i++) document.body.append(Object.assign(document.createElement('iframe'), {src: 'frame.html'}));
onload = () => setTimeout(() => fetch('frame.html').then(() =>
  fetch('http://localhost:OTHER/told-answered', {mode: 'no-cors'})), 500);
</script>";

/// A page that its service worker keeps for good.
const KEPT: &str = "<!doctype html><title>kept</title><script>
navigator.serviceWorker.register('worker.js').then(() => navigator.serviceWorker.ready).then(() =>
  fetch('http://localhost:OTHER/told-ready', {mode: 'no-cors'}));
setInterval(() => {
  const overlay = document.querySelector('gannet-overlay');
  if (overlay && overlay.shadowRoot.textContent.includes('service worker'))
    fetch('http://localhost:OTHER/told-kept', {mode: 'no-cors'});
}, 200);
</script>";

const WORKER: &str = "addEventListener('fetch', event => {
  if (event.request.mode === 'navigate') event.respondWith(caches.open('kept').then(async cache => {
    const kept = await cache.match(event.request);
    if (kept) return kept;
    const fresh = await fetch(event.request);
    await cache.put(event.request, fresh.clone());
    return fresh;
  }));
});
addEventListener('install', () => skipWaiting());
addEventListener('activate', event => event.waitUntil(clients.claim()));";

/// The colour of the line above the message.
const LINE: [u8; 3] = [0xe5, 0x48, 0x4d];

/// Runs all tests.
pub(crate) fn run_all(chromium: &Path, gannet: &Path, folder: &Path) -> Result<()> {
    let (site, other) = (folder.join("site"), folder.join("other"));
    fs::create_dir_all(&site)?;
    fs::create_dir_all(&other)?;
    let log = folder.join("told.log");
    let other_server = serve(gannet, &other, &log)?;
    let page = |name: &str| {
        let page = PAGE.replace("OTHER", &other_server.port);
        fs::write(site.join("index.html"), page.replace("NAME", name))
    };
    page("first")?;
    fs::write(site.join("style.css"), "body { color: rgb(1, 2, 3) }")?;
    fs::write(
        site.join("_headers"),
        POLICY.replace("OTHER", &other_server.port),
    )?;
    let server = dev(gannet, &site)?;
    let browser = open(chromium, &folder.join("profile"), &server)?;
    wait_for(&log, &["first-1", "colour.1.2.3-1"]).context("the page")?;
    fs::write(site.join("style.css"), "body { color: rgb(4, 5, 6) }")?;
    wait_for(&log, &["colour.4.5.6-1"]).context("the style sheet, without loading the page")?;
    page("second")?;
    wait_for(&log, &["second-2"]).context("the page, again")?;
    fs::write(site.join("_redirects"), "/old /new 999\n")?;
    wait_for(&log, &["overlay"]).context("rules that cannot be used")?;
    let screenshot = folder.join("overlay.png");
    show(chromium, gannet, folder, &screenshot)?;
    fs::remove_file(site.join("_redirects"))?;
    page("third")?;
    wait_for(&log, &["clear.third"]).context("rules that are mended")?;
    drop(browser);
    let site = folder.join("framed");
    fs::create_dir_all(&site)?;
    let with_port = |page: &str| page.replace("OTHER", &other_server.port);
    fs::write(site.join("index.html"), with_port(FRAMES))?;
    fs::write(site.join("frame.html"), "a frame")?;
    let server = dev(gannet, &site)?;
    let browser = open(chromium, &folder.join("framed-profile"), &server)?;
    wait_for(&log, &["answered"]).context("a page with many frames")?;
    drop(browser);
    let site = folder.join("kept");
    fs::create_dir_all(&site)?;
    fs::write(site.join("index.html"), with_port(KEPT))?;
    fs::write(site.join("worker.js"), WORKER)?;
    let server = dev(gannet, &site)?;
    let browser = open(chromium, &folder.join("kept-profile"), &server)?;
    wait_for(&log, &["ready"]).context("a service worker")?;
    // The first change has the worker keep the page, the second finds it kept.
    for text in ["one", "two"] {
        fs::write(site.join("new.txt"), text)?;
        std::thread::sleep(std::time::Duration::from_secs(2));
    }
    wait_for(&log, &["kept"]).context("a page that its service worker keeps")?;
    drop(browser);
    println!("dev: styles and page are loaded again; what is wrong is shown until it is mended");
    Ok(())
}

/// Serves a folder; what a killed server leaves behind is beside it.
fn dev(gannet: &Path, site: &Path) -> Result<Served> {
    let mut command = Command::new(gannet);
    command.args(["dev", "--port", "0"]).stderr(Stdio::null());
    command.env("TMPDIR", site.parent().unwrap_or(site));
    Served::start(command.arg(site))?.context("the server does not start")
}

/// Makes a screenshot of a message, and looks for it in there.
fn show(chromium: &Path, gannet: &Path, folder: &Path, screenshot: &Path) -> Result<()> {
    let mut slow = Command::new(gannet);
    slow.args(["serve", "--port", "0", "--log", "off", "--delay", "2s"]);
    let slow =
        Served::start(slow.arg(folder.join("other")))?.context("the server does not start")?;
    let site = folder.join("broken");
    fs::create_dir_all(&site)?;
    fs::write(site.join("index.html"), SLOW.replace("SLOW", &slow.port))?;
    let rules = "/blog/*  /news/:splat  301\n/old     /new          999\n/shop    shop.html\n";
    fs::write(site.join("_redirects"), rules)?;
    let server = dev(gannet, &site)?;
    let mut browser = headless(chromium, &folder.join("shown"));
    browser.args(["--hide-scrollbars", "--force-color-profile=srgb"]);
    browser.args(["--force-device-scale-factor=1", "--window-size=1000,700"]);
    browser.arg(format!("--screenshot={}", screenshot.display()));
    browser.arg(format!("http://127.0.0.1:{}/", server.port));
    let output = browser.stdin(Stdio::null()).output()?;
    let file = fs::File::open(screenshot).with_context(|| format!("no screenshot: {output:?}"))?;
    let mut decoder = png::Decoder::new(std::io::BufReader::new(file));
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info()?;
    let size = reader.output_buffer_size().context("a small picture")?;
    let mut pixels = vec![0; size];
    let info = reader.next_frame(&mut pixels)?;
    let depth = info.color_type.samples();
    let found = pixels
        .chunks_exact(depth)
        .filter(|pixel| pixel.starts_with(&LINE));
    let count = found.count();
    ensure!(
        count > 1000,
        "the message is not shown: {count} pixels of its line"
    );
    Ok(())
}
