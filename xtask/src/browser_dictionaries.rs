//! A new release of a site in headless Chromium: of a script whose earlier version the browser has,
//! it loads the difference alone (RFC 9842), in both codings, and runs the whole.
//!
//! The page reports by requests, which are read from the server's log.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::browser_site::{open, serve, wait_for};
use xtask::process;

/// The paths of the versions of the script.
const VERSIONS: [&str; 2] = ["assets/app-BxY3k9Zq.js", "assets/app-CsGmk6Qp.js"];

/// The end of each version: it reports once the new release is there, which the page then loads.
const OLD_END: &str = "
const wait = async () => {
  if ((await fetch('/ready.txt')).ok) location.reload();
  else setTimeout(wait, 100);
};
fetch('/told-old').then(wait);
";

/// It says how many bytes came, and how many of them the page sees. A browser writes a dictionary to its
/// disk in its own time: until it has it, the script comes whole, and is asked for again.
const NEW_END: &str = "
const { src } = document.querySelector('script');
const tell = async () => {
  const { encodedBodySize, decodedBodySize } = performance.getEntriesByName(src).at(-1);
  if (encodedBodySize < decodedBodySize / 20) {
    fetch(`/told-new-${encodedBodySize}-${decodedBodySize}`);
    return;
  }
  await new Promise((done) => setTimeout(done, 200));
  await (await fetch(src, { cache: 'reload' })).arrayBuffer();
  tell();
};
tell();
";

/// Tests both codings.
pub(crate) fn run_all(chromium: &Path, gannet: &Path, folder: &Path) -> Result<()> {
    for (encoder, coding) in [("br", "dcb"), ("zstd", "dcz")] {
        let folder = folder.join(coding);
        let (coded, whole) = run(chromium, gannet, &folder, encoder).context(coding)?;
        println!("{coding}: a new release's script of {whole} bytes is loaded in {coded}");
    }
    Ok(())
}

/// Returns the length of the new script as it came, and as it is.
fn run(chromium: &Path, gannet: &Path, folder: &Path, encoder: &str) -> Result<(u64, u64)> {
    let pack = |version: usize, previous: Option<&Path>| {
        let site = folder.join(format!("site-{version}"));
        let end = [OLD_END, NEW_END][version];
        let script = format!("{}{end}", numbers());
        fs::create_dir_all(site.join("assets"))?;
        fs::write(site.join(VERSIONS[version]), &script)?;
        let page = format!(
            "<!doctype html><script src=/{}></script>",
            VERSIONS[version]
        );
        fs::write(site.join("index.html"), page)?;
        if previous.is_some() {
            fs::write(site.join("ready.txt"), "")?;
        }
        let archive = folder.join(format!("{version}.gannet"));
        let mut pack = Command::new(gannet);
        pack.args(["pack", "--quiet", "--fresh", "--compress", encoder]);
        if let Some(previous) = previous {
            pack.arg("--previous").arg(previous);
        }
        process::run(pack.arg(&site).arg("-o").arg(&archive))?;
        anyhow::Ok((archive, script.len() as u64))
    };
    let (old, _) = pack(0, None)?;
    let (new, whole) = pack(1, Some(&old))?;
    let served = folder.join("served.gannet");
    fs::copy(&old, &served)?;
    let log = folder.join("served.log");
    let server = serve(gannet, &served, &log)?;
    let browser = open(chromium, &folder.join("profile-of"), &server)?;
    wait_for(&log, &["old"])?;
    fs::rename(&new, &served)?;
    wait_for(&log, &["new"])?;
    drop(browser);
    let text = fs::read_to_string(&log)?;
    let told = text.split("/told-new-").nth(1).context("it was told")?;
    let told = told.split(' ').next().unwrap_or_default();
    let lengths = told.split_once('-').context("two lengths")?;
    let (coded, decoded): (u64, u64) = (lengths.0.parse()?, lengths.1.parse()?);
    ensure!(decoded == whole, "{decoded} of {whole} bytes");
    Ok((coded, whole))
}

/// A script that other codings cannot make much smaller.
fn numbers() -> String {
    let mut state = 7_u32;
    let mut text = String::from("const numbers = [");
    for _ in 0..10_000 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        text.push_str(&format!("{state},"));
    }
    text.push_str("];");
    text
}
