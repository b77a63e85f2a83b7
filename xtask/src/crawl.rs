//! Crawls sites of generators, served from the same folder by nginx with its default configuration
//! and by gannet, from the directory and from an archive: every path is requested from all three,
//! and each difference must be one that the manual lists.
//!
//! Generators are installed if possible; those that are unavailable are skipped with the reason.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use xtask::answer::{Answer, ask};
use xtask::other_server::{self, OtherServer};
use xtask::process;
use xtask::running::free_port;
use xtask::served::Served;

use self::generators::{GENERATORS, Generator, Origin};

mod generators;

/// `cache-control` of a file without evidence about its name.
const REVALIDATED: &str = "max-age=1";
/// `cache-control` of a file whose name is proven to depend on its content.
const IMMUTABLE: &str = "max-age=31536000, immutable";

/// Crawls all generators.
pub(crate) fn main() -> Result<()> {
    let nginx = match process::find_or_install("nginx", "nginx-light") {
        Ok(nginx) => nginx,
        Err(error) => {
            println!("skipped: {error:#}");
            return Ok(());
        }
    };
    let gannet = process::build(&["-p", "gannet"], "dev")?;
    let folder = std::env::temp_dir().join(format!("gannet-crawl-{}", std::process::id()));
    let result = crawl_all(&nginx, &gannet, &folder);
    fs::remove_dir_all(&folder)?;
    result
}

fn crawl_all(nginx: &Path, gannet: &Path, folder: &Path) -> Result<()> {
    let (mut crawled, mut differing) = (0, Vec::new());
    for generator in &GENERATORS {
        let name = generator.program;
        let installed = match install(generator) {
            Ok(installed) => installed,
            Err(error) => {
                println!("{name}: skipped: {error:#}");
                continue;
            }
        };
        let folder = folder.join(name);
        let site = generate(generator, &installed, &folder).context(name)?;
        if let Err(error) = crawl(nginx, gannet, &folder, &site) {
            println!("{name}: {error:#}");
            differing.push(name);
        }
        crawled += 1;
    }
    println!("{crawled} of {} generators", GENERATORS.len());
    ensure!(
        differing.is_empty(),
        "differences: {}",
        differing.join(", ")
    );
    Ok(())
}

/// A generator's program, and the folder of its packages if it comes from npm.
struct Installed {
    program: PathBuf,
    packages: Option<PathBuf>,
}

/// Finds a generator or installs it; npm packages go into a folder that is kept.
fn install(generator: &Generator) -> Result<Installed> {
    let packages = match generator.origin {
        Origin::Debian(package) => {
            let program = process::find_or_install(generator.program, package)?;
            return Ok(Installed {
                program,
                packages: None,
            });
        }
        Origin::Npm(packages) => packages,
    };
    let folder = process::target().join("crawl").join(generator.program);
    let program = folder.join("node_modules/.bin").join(generator.program);
    if !program.exists() {
        let npm = process::find_or_install("npm", "npm")?;
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("package.json"), "{\"private\": true}\n")?;
        let mut install = Command::new(npm);
        install.current_dir(&folder).stdin(Stdio::null());
        install.args(["install", "--no-audit", "--no-fund", "--loglevel=error"]);
        process::capture(install.args(packages))?;
    }
    Ok(Installed {
        program,
        packages: Some(folder.join("node_modules")),
    })
}

/// Writes the input and builds the site. Returns its folder.
fn generate(generator: &Generator, installed: &Installed, folder: &Path) -> Result<PathBuf> {
    let input = folder.join("input");
    for (path, text) in generator.input {
        let path = input.join(path);
        fs::create_dir_all(path.parent().context("it is below the folder")?)?;
        fs::write(path, text)?;
    }
    if let Some(packages) = &installed.packages {
        std::os::unix::fs::symlink(packages, input.join("node_modules"))?;
    }
    let mut command = Command::new(&installed.program);
    command.current_dir(&input).stdin(Stdio::null());
    // Disables telemetry.
    command.envs([("CI", "1"), ("DO_NOT_TRACK", "1")]);
    command.envs([
        ("ASTRO_TELEMETRY_DISABLED", "1"),
        ("NEXT_TELEMETRY_DISABLED", "1"),
    ]);
    process::capture(command.args(generator.arguments))?;
    let site = input.join(generator.output);
    ensure!(
        site.join("index.html").is_file(),
        "it has made no index.html"
    );
    Ok(site)
}

/// The source that a server serves the site from.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum From {
    Directory,
    Archive,
}

fn crawl(nginx: &Path, gannet: &Path, folder: &Path, site: &Path) -> Result<()> {
    let (_nginx, before_port) = start_nginx(nginx, folder, site)?;
    let archive = folder.join("site.gannet");
    let mut pack = Command::new(gannet);
    pack.args(["pack", "--quiet", "--fast", "--fresh"])
        .arg(site);
    process::run(pack.arg("-o").arg(&archive))?;
    let serve = |content: &Path| -> Result<Served> {
        let mut server = Command::new(gannet);
        server.args(["serve", "--listen", "127.0.0.1:0", "--log", "off"]);
        server.args(["--workers", "1"]).arg(content);
        Served::start(&mut server)?.context("gannet does not start")
    };
    let servers = [
        (From::Directory, serve(site)?),
        (From::Archive, serve(&archive)?),
    ];
    let mut seen = BTreeMap::new();
    let paths = paths(site)?;
    for path in &paths {
        let before = ask(before_port, "GET", &encoded(path), &[])?;
        for (from, server) in &servers {
            let now = ask(&server.port, "GET", &encoded(path), &[])?;
            let what = judge(*from, site, path, &before, &now);
            let what =
                what.with_context(|| format!("{from:?}: '{path}'\n{}\n{}", before.head, now.head))?;
            *seen.entry((*from, what)).or_insert(0) += 1;
        }
    }
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    println!("{name}: {} paths", paths.len());
    for ((from, what), count) in seen {
        println!("  {from:?}: {count} {what}");
    }
    Ok(())
}

/// All files and folders, the latter with and without a slash; pages with and without their suffix;
/// and some missing paths.
fn paths(site: &Path) -> Result<BTreeSet<String>> {
    let missing = [
        "/none",
        "/none/",
        "/none.js",
        "/a/b/none.html",
        "/.git/config",
    ];
    let mut paths: BTreeSet<String> = missing.into_iter().map(str::to_owned).collect();
    let mut folders = vec![(site.to_owned(), "/".to_owned())];
    while let Some((folder, path)) = folders.pop() {
        paths.insert(path.clone());
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let below = format!("{path}{}", name.to_str().context("a name in UTF-8")?);
            paths.insert(below.clone());
            if entry.file_type()?.is_dir() {
                folders.push((entry.path(), format!("{below}/")));
            } else if let Some(page) = below.strip_suffix(".html") {
                paths.insert(page.to_owned());
                paths.insert(format!("{page}/"));
            }
        }
    }
    Ok(paths)
}

/// Names the difference between two answers. An error is a difference that the manual does not
/// list.
fn judge(
    from: From,
    site: &Path,
    path: &str,
    before: &Answer,
    now: &Answer,
) -> Result<&'static str> {
    let is_hidden = path.split('/').any(|segment| segment.starts_with('.'));
    let page = || fs::read(site.join(format!("{}.html", &path[1..])));
    Ok(match (before.status, now.status) {
        (200 | 301 | 403 | 404, 404) if is_hidden => "dotfiles are not served",
        (200, 200) => {
            same_content(from, before, now)?;
            match now.field("cache-control") {
                Some(IMMUTABLE) => "with the same content, kept for a year",
                _ => "with the same content",
            }
        }
        (301, 301) => {
            let location = before.field("location").unwrap_or_default();
            let same = location.ends_with(now.field("location").context("a location")?);
            ensure!(same, "another location");
            "301 to the same place"
        }
        // There is `name/` as well as `name.html`.
        (301 | 404, 200) => {
            ensure!(page()? == now.body, "not the page");
            "pages without their suffix"
        }
        (404, 301) => {
            let expected = encoded(path.trim_end_matches('/'));
            ensure!(now.field("location") == Some(&expected), "another location");
            "pages without their suffix, with a slash that is taken away"
        }
        (403, 200) if from == From::Directory => {
            ensure!(now.field("cache-control") == Some("no-store"), "no listing");
            "listings"
        }
        (301 | 403, 404) if from == From::Archive => "folders without a page, not in an archive",
        (404, 404) => {
            let own = fs::read(site.join("404.html")).ok();
            ensure!(own.is_none_or(|own| own == now.body), "not the site's page");
            "not found"
        }
        _ => bail!("another status"),
    })
}

fn same_content(from: From, before: &Answer, now: &Answer) -> Result<()> {
    ensure!(before.body == now.body, "other bytes");
    if from == From::Directory {
        let modified = before.field("last-modified") == now.field("last-modified");
        ensure!(modified, "another time of modification");
    }
    let lifetime = now.field("cache-control").unwrap_or_default();
    ensure!(
        [REVALIDATED, IMMUTABLE].contains(&lifetime),
        "another lifetime"
    );
    let of = |got: &Answer| got.field("content-type").unwrap_or_default().to_owned();
    let (known, found) = (of(before), of(now));
    let essence = found.split(';').next().unwrap_or_default();
    let is_same = match known.as_str() {
        // Suffixes for which nginx has no type.
        "application/octet-stream" => true,
        "application/javascript" => essence == "text/javascript",
        "text/xml" => essence == "application/xml",
        "image/x-icon" => essence == "image/vnd.microsoft.icon",
        known => essence == known,
    };
    ensure!(is_same, "another type");
    Ok(())
}

/// nginx with its default configuration, as far as it concerns files.
fn start_nginx(program: &Path, folder: &Path, site: &Path) -> Result<(OtherServer, u16)> {
    let port = free_port()?;
    let site = site.display();
    let own = format!(
        "include /etc/nginx/mime.types;\ndefault_type application/octet-stream;\n\
         server {{ listen 127.0.0.1:{port}; root {site}; index index.html; }}"
    );
    let mut command = other_server::nginx(program, folder, &own)?;
    let nginx = OtherServer::start(command.stderr(Stdio::null()), port).context("nginx")?;
    Ok((nginx, port))
}

/// Percent-encodes a path, except for slashes and unreserved characters.
fn encoded(path: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    path.bytes().map(encode).collect()
}
