//! httplint and REDbot: contradictory and useless fields, over answers of every kind.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use xtask::process;
use xtask::served::Served;

use super::{Inputs, Outcome, Passed, packages};

/// The checked versions.
const HTTPLINT: &str = "httplint==2026.10.4";
const REDBOT: &str = "redbot==2.7.1";

/// What is asked for.
const PATHS: [&str; 24] = [
    "/",
    "/docs/",
    "/docs",
    "/docs/page",
    "/docs/page.html",
    "/big.txt",
    "/app-B2c3D4e5.css",
    "/app.js",
    "/missing",
    "/old",
    "/gone",
    "/proxy",
    "/lang/x",
    "/list/",
    "/list",
    "/list/%C3%BC%20b.txt",
    "/empty.txt",
    "/_headers",
    "/%00",
    "/..%2f..",
    "/list/?sort=size",
    "/data.sqlite",
    "/v2/app/manifests/latest",
    "/sub%2F..%2Ftext.txt",
];

/// The files of the site: paths and contents.
const SITE: [(&str, &str); 12] = [
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
    ("text.txt", "Some text.\n"),
    ("v2/app/manifests/latest", "{\"schemaVersion\": 2}\n"),
    (
        "_redirects",
        "/old /docs/ 301\n/gone /x 410\n/proxy /docs/page 200\n/lang/* /docs/:splat 302\n",
    ),
    (
        "_headers",
        "/docs/*\n  X-Frame-Options: DENY\n  Cache-Control: max-age=60\n/*.js\n  Access-Control-Allow-Origin: *\n\
        /v2/app/manifests/*\n  Content-Type: application/vnd.oci.image.manifest.v1+json\n",
    ),
];

/// Requests of all methods, each with its answer through httplint.
pub(super) fn httplint(inputs: &Inputs) -> Result<Outcome> {
    run(inputs, HTTPLINT, ("lint.py", include_str!("lint.py")))
}

/// What REDbot itself asks for.
pub(super) fn redbot(inputs: &Inputs) -> Result<Outcome> {
    run(inputs, REDBOT, ("redbot.py", include_str!("redbot.py")))
}

/// Runs a script over a directory, and over an archive of it: it has the notes that are no defect.
fn run(inputs: &Inputs, package: &str, (name, script): (&str, &str)) -> Result<Outcome> {
    let folder = process::target().join("conform").join(name);
    // One folder for both: REDbot needs httplint.
    let packages = match packages(inputs, &[REDBOT, HTTPLINT]) {
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
        // Each worker has codings of its own.
        serve.arg("serve").arg(path);
        serve.args(["-p", "0", "--workers", "1"]);
        let server = Served::start(&mut serve)?.context("the server needs a port")?;
        let mut lint = Command::new("python3");
        lint.args(["-c", script]).arg(&server.port).args(PATHS);
        let output = process::capture(lint.env("PYTHONPATH", &packages))?;
        let mut numbers = output
            .split_whitespace()
            .filter_map(|word| word.parse::<usize>().ok());
        cases += numbers.next().context("no count")?;
        known = known.max(numbers.next().context("no count")?);
    }
    Ok(Outcome::Passed(Passed {
        version: package.replace("==", " "),
        cases,
        table: String::new(),
        differences: format!("{known} notes are no defect, with reasons in {name}"),
    }))
}

fn make_site(site: &Path) -> Result<()> {
    let long = "<!doctype html><title>Page</title>\n".to_owned() + &"<p>Some text.\n".repeat(400);
    let big = "0123456789abcdef\n".repeat(20_000);
    let database = "SQLite format 3\0".repeat(1000);
    let long = [
        ("data.sqlite", &database),
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
