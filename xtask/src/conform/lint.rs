//! httplint: contradictory and useless fields, over answers of every kind.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use xtask::process;
use xtask::served::Served;

use super::{Inputs, Outcome, Passed, packages};

/// Its requests, and its notes that are no defect.
const SCRIPT: &str = include_str!("lint.py");

/// The checked version.
const PACKAGE: &str = "httplint==2026.10.4";

/// The files of the site: paths and contents.
const SITE: [(&str, &str); 10] = [
    ("index.html", "<!doctype html><title>Site</title><p>Hello"),
    (
        "404.html",
        "<!doctype html><title>Not here</title><p>Nothing",
    ),
    ("app-B2c3D4e5.css", "body { color: red }"),
    ("app-C3d4E5f6.css", "body { color: green }"),
    ("app.js", "console.log(1);"),
    ("list/a.txt", "a"),
    ("list/\u{fc} b.txt", "b"),
    ("empty.txt", ""),
    (
        "_redirects",
        "/old /docs/ 301\n/gone /x 410\n/proxy /docs/page 200\n/lang/* /docs/:splat 302\n",
    ),
    (
        "_headers",
        "/docs/*\n  X-Frame-Options: DENY\n  Cache-Control: max-age=60\n/*.js\n  Access-Control-Allow-Origin: *\n",
    ),
];

/// Lints the answers for a directory, and for an archive of it.
pub(super) fn run(inputs: &Inputs) -> Result<Outcome> {
    let folder = process::target().join("conform/lint");
    let packages = match packages(inputs, PACKAGE, "httplint") {
        Ok(packages) => packages,
        Err(why) => return Ok(Outcome::Skipped(why)),
    };
    let gannet = inputs.gannet()?;
    let site = folder.join("site");
    make_site(&site)?;
    let archive = folder.join("site.gannet");
    process::capture(
        Command::new(&gannet)
            .arg("pack")
            .arg(&site)
            .arg("-o")
            .arg(&archive),
    )?;
    let (mut cases, mut known) = (0, 0);
    for path in [&site, &archive] {
        let mut serve = Command::new(&gannet);
        serve.arg("serve").arg(path).args(["-p", "0"]);
        let server = Served::start(&mut serve)?.context("the server needs a port")?;
        let mut lint = Command::new("python3");
        lint.args(["-c", SCRIPT]).arg(&server.port);
        let output = process::capture(lint.env("PYTHONPATH", &packages))?;
        let mut numbers = output
            .split_whitespace()
            .filter_map(|word| word.parse::<usize>().ok());
        cases += numbers.next().context("no count")?;
        known = known.max(numbers.next().context("no count")?);
    }
    Ok(Outcome::Passed(Passed {
        version: PACKAGE.replace("==", " "),
        cases,
        table: String::new(),
        differences: format!("{known} notes are no defect, with reasons in lint.py"),
    }))
}

fn make_site(site: &Path) -> Result<()> {
    let long = "<!doctype html><title>Page</title>\n".to_owned() + &"<p>Some text.\n".repeat(400);
    let big = "0123456789abcdef\n".repeat(20_000);
    let long = [
        ("docs/index.html", &long),
        ("docs/page.html", &long),
        ("big.txt", &big),
    ];
    let files = SITE
        .into_iter()
        .chain(long.map(|(path, text)| (path, text.as_str())));
    for (path, text) in files {
        let path = site.join(path);
        fs::create_dir_all(path.parent().context("a folder")?)?;
        fs::write(&path, text)?;
    }
    Ok(())
}
