//! Renders a page with hundreds of assets in headless Chromium: every one of them must be visible.
//!
//! Each asset sets the colour of one tile, as an image, a style sheet or a script. The screenshot
//! is compared with the expected colours: with HTTP/2 and HTTP/1.1 over TLS, from a directory and
//! an archive.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::{browser_dev, browser_dictionaries, browser_listing, browser_site};
use xtask::process;
use xtask::served::Served;

/// Tiles per row and per column.
const COLUMNS: u32 = 24;
const ROWS: u32 = 16;
const TILES: u32 = COLUMNS * ROWS;

/// Side of a tile in pixels.
const SIDE: u32 = 20;

/// One image in this many is long, so that it takes many frames.
const LONG_EVERY: u32 = 30;
const LONG: usize = 300_000;

/// Runs all tests; if that is impossible here, prints why.
pub(crate) fn main() -> Result<()> {
    let chromium = match process::find_or_install("chromium", "chromium") {
        Ok(path) => path,
        Err(error) => {
            println!("skipped: {error:#}");
            return Ok(());
        }
    };
    let gannet = process::build(&["-p", "gannet"], "dev")?;
    let folder = std::env::temp_dir().join(format!("gannet-browser-{}", std::process::id()));
    let result = show_all(&chromium, &gannet, &folder)
        .and_then(|()| browser_site::run_all(&chromium, &gannet, &folder.join("site-2")))
        .and_then(|()| browser_dictionaries::run_all(&chromium, &gannet, &folder.join("coded")))
        .and_then(|()| browser_listing::run_all(&chromium, &gannet, &folder.join("listing")))
        .and_then(|()| browser_dev::run_all(&chromium, &gannet, &folder.join("dev")));
    fs::remove_dir_all(&folder)?;
    result
}

fn show_all(chromium: &Path, gannet: &Path, folder: &Path) -> Result<()> {
    let site = folder.join("site");
    write_site(&site)?;
    let archive = folder.join("site.gannet");
    let mut pack = Command::new(gannet);
    pack.args(["pack", "--quiet", "--fast"]).arg(&site);
    process::run(pack.arg("-o").arg(&archive))?;
    for content in [&site, &archive] {
        for is_h2 in [true, false] {
            let protocol = if is_h2 { "HTTP/2" } else { "HTTP/1.1" };
            let kind = if content == &site {
                "directory"
            } else {
                "archive"
            };
            let requests = show(chromium, gannet, folder, content, is_h2)
                .with_context(|| format!("{protocol}, {kind}"))?;
            println!("{protocol}, {kind}: {TILES} tiles are right, {requests} requests");
        }
    }
    Ok(())
}

/// Renders the page and compares it. Returns the number of requests.
fn show(chromium: &Path, gannet: &Path, folder: &Path, content: &Path, is_h2: bool) -> Result<u64> {
    let mut command = Command::new(gannet);
    command.args(["serve", "--tls", "--listen", "127.0.0.1:0", "--log", "off"]);
    command.args(["--workers", "1", "--metrics", "127.0.0.1:0", "--http=1,2"]);
    // Keeps the development certificate of this run inside the folder.
    command.env("XDG_DATA_HOME", folder.join("data"));
    let server = Served::start(command.arg(content))?.context("the server does not start")?;
    let screenshot = folder.join("screenshot.png");
    // A stale screenshot must not be compared.
    let _ = fs::remove_file(&screenshot);
    let mut browser = headless(chromium, folder);
    browser.args(["--hide-scrollbars", "--force-color-profile=srgb"]);
    browser.arg("--force-device-scale-factor=1");
    if !is_h2 {
        browser.arg("--disable-http2");
    }
    let (width, height) = (COLUMNS * SIDE, ROWS * SIDE);
    // A window is taller than its page: the part below is ignored.
    browser.arg(format!("--window-size={width},{}", height + 200));
    browser.arg(format!("--screenshot={}", screenshot.display()));
    browser.arg(format!("https://127.0.0.1:{}/", server.port));
    let output = browser.stdin(Stdio::null()).output()?;
    ensure!(
        screenshot.exists(),
        "no screenshot was made: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    compare(&screenshot)?;
    let by_h2 = server.metric("gannet_h2_requests_total")?;
    let requests = server.metric("gannet_worker_responses_total{worker=\"0\"}")?;
    ensure!(requests > u64::from(TILES), "only {requests} requests");
    let expected = if is_h2 { requests } else { 0 };
    ensure!(
        by_h2 == expected,
        "{by_h2} of {requests} requests by HTTP/2"
    );
    Ok(requests)
}

/// A headless browser that writes only to the folder.
pub(crate) fn headless(chromium: &Path, folder: &Path) -> Command {
    let mut browser = Command::new(chromium);
    browser.args(["--headless", "--no-sandbox", "--disable-gpu"]);
    browser.args([
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-extensions",
    ]);
    browser.args([
        "--disable-background-networking",
        "--ignore-certificate-errors",
    ]);
    let profile = folder.join("profile");
    browser.arg(format!("--user-data-dir={}", profile.display()));
    browser
}

/// The colour of an asset's tile. Neighbours differ, and none is the page's own.
fn colour(tile: u32) -> [u8; 3] {
    let mixed = tile.wrapping_mul(0x9e37_79b1) >> 8;
    let [_, red, green, blue] = mixed.to_be_bytes();
    [red / 2 + 16, green / 2 + 16, blue / 2 + 16]
}

fn write_site(site: &Path) -> Result<()> {
    for kind in ["images", "styles", "scripts"] {
        fs::create_dir_all(site.join(kind))?;
    }
    let (mut head, mut body) = (String::new(), String::new());
    for tile in 0..TILES {
        let [red, green, blue] = colour(tile);
        let value = format!("rgb({red},{green},{blue})");
        let name = match tile % 3 {
            0 => format!("images/{tile}.png"),
            1 => format!("styles/{tile}.css"),
            _ => format!("scripts/{tile}.js"),
        };
        let path = site.join(&name);
        match tile % 3 {
            0 => {
                write_image(&path, tile)?;
                body.push_str(&format!("<i><img src={name} alt=''></i>\n"));
                continue;
            }
            1 => {
                fs::write(&path, format!("#t{tile} {{ background: {value} }}\n"))?;
                head.push_str(&format!("<link rel=stylesheet href={name}>\n"));
            }
            _ => {
                let set = format!("document.getElementById('t{tile}').style.background");
                fs::write(&path, format!("{set} = '{value}';\n"))?;
                head.push_str(&format!("<script defer src={name}></script>\n"));
            }
        }
        body.push_str(&format!("<i id=t{tile}></i>\n"));
    }
    let style = format!(
        "body {{ margin: 0; background: #fff; width: {}px; font-size: 0 }}\n\
         i, img {{ display: block; float: left; width: {SIDE}px; height: {SIDE}px }}\n",
        COLUMNS * SIDE
    );
    fs::write(site.join("styles/page.css"), style)?;
    let page = format!(
        "<!doctype html><meta charset=utf-8><title>tiles</title>\n\
         <link rel=icon href='data:,'><link rel=stylesheet href=styles/page.css>\n{head}{body}"
    );
    fs::write(site.join("index.html"), page)?;
    Ok(())
}

fn write_image(path: &PathBuf, tile: u32) -> Result<()> {
    let file = std::io::BufWriter::new(fs::File::create(path)?);
    let mut encoder = png::Encoder::new(file, SIDE, SIDE);
    encoder.set_color(png::ColorType::Rgb);
    if tile.is_multiple_of(LONG_EVERY) {
        encoder.add_text_chunk("Comment".to_owned(), "x".repeat(LONG))?;
    }
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&colour(tile).repeat((SIDE * SIDE) as usize))?;
    Ok(writer.finish()?)
}

/// Checks the centre of each tile.
fn compare(screenshot: &Path) -> Result<()> {
    let file = std::io::BufReader::new(fs::File::open(screenshot)?);
    let mut decoder = png::Decoder::new(file);
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info()?;
    let size = reader.output_buffer_size().context("a small picture")?;
    let mut pixels = vec![0; size];
    let info = reader.next_frame(&mut pixels)?;
    let depth = info.color_type.samples();
    ensure!(
        info.width >= COLUMNS * SIDE && info.height >= ROWS * SIDE && depth >= 3,
        "a screenshot of {} by {}, {:?}",
        info.width,
        info.height,
        info.color_type
    );
    let wrong: Vec<String> = (0..TILES)
        .filter_map(|tile| {
            let x = (tile % COLUMNS * SIDE + SIDE / 2) as usize;
            let y = (tile / COLUMNS * SIDE + SIDE / 2) as usize;
            let found = &pixels[y * info.line_size + x * depth..][..3];
            let expected = colour(tile);
            (found != expected).then(|| format!("tile {tile}: {found:?} is not {expected:?}"))
        })
        .collect();
    if let Some(first) = wrong.first() {
        bail!("{} of {TILES} tiles are wrong; {first}", wrong.len());
    }
    Ok(())
}
