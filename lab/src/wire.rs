//! Measures how much of a directory's text goes over the wire once gannet compresses it.
//!
//! One visitor fetches every text file of a directory over one connection, one after the other, in
//! several passes with pauses between them. What counts is the bytes of content, as a share of the
//! files' own. After that, nginx and Caddy send the same files, compressed, in turns with gannet.

mod peers;

use std::collections::BTreeMap;
use std::fs;
use std::io::BufReader;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lexopt::prelude::*;
use xtask::process;
use xtask::served::Served;

use self::peers::fetch_all;

const HELP: &str = "\
cargo xtask wire [FLAGS] [DIR]

  DIR              default: the documentation of Rust's standard library and tools, with rustc
  --files N        at most so many files, spread over the directory; default: 1000
  --passes N       default: 3
  --pause SECONDS  between passes, for the threads that compress; default: 5
  --accept CODINGS what the visitor accepts; default: gzip, deflate, br, zstd
  --rounds N       against nginx and Caddy, after one that warms them; default: 5, 0: none
  --gannet PATH    measure this binary instead of building a release
";

/// The bound on the content of the last pass, as a share of the files' own bytes.
const SHARE_MAX: f64 = 0.25;

/// What counts as text.
const EXTENSIONS: [&str; 8] = ["css", "html", "js", "json", "md", "svg", "txt", "xml"];

struct Setting {
    directory: PathBuf,
    files: usize,
    passes: usize,
    pause: Duration,
    accept: String,
    rounds: usize,
    gannet: Option<PathBuf>,
}

/// `cargo xtask wire`.
pub(crate) fn main(parser: &mut lexopt::Parser) -> Result<()> {
    let Some(setting) = parse(parser)? else {
        print!("{HELP}");
        return Ok(());
    };
    let targets = targets(&setting.directory, setting.files)?;
    ensure!(
        !targets.is_empty(),
        "no text below '{}'",
        setting.directory.display()
    );
    let gannet = match &setting.gannet {
        Some(path) => path.clone(),
        None => process::build(&["-p", "gannet"], "dist")?,
    };
    let mut command = Command::new(gannet);
    command.args(["serve", "--listen", "127.0.0.1:0", "--log", "off"]);
    command.args(["--workers", "1", "--metrics", "127.0.0.1:0"]);
    command.stderr(Stdio::inherit()).arg(&setting.directory);
    let server = Served::start(&mut command)?.context("the server does not start")?;
    let share = passes(&setting, &targets, &server)?;
    for result in ["made", "useless", "dropped", "refused"] {
        let name = format!("gannet_codings_total{{result=\"{result}\"}}");
        println!("codings {result}: {}", server.metric(&name)?);
    }
    if setting.rounds > 0 {
        let (accept, rounds) = (&setting.accept, setting.rounds);
        peers::compare(&setting.directory, &targets, accept, (&server, rounds))?;
    }
    ensure!(
        share <= SHARE_MAX,
        "the last pass was {share:.3} of the files, and the bound is {SHARE_MAX}"
    );
    println!("bound {SHARE_MAX}: met");
    Ok(())
}

/// `None` if only help is wanted.
fn parse(parser: &mut lexopt::Parser) -> Result<Option<Setting>> {
    let mut directory = None;
    let mut setting = Setting {
        directory: PathBuf::new(),
        files: 1_000,
        passes: 3,
        pause: Duration::from_secs(5),
        accept: "gzip, deflate, br, zstd".into(),
        rounds: 5,
        gannet: None,
    };
    while let Some(argument) = parser.next()? {
        match argument {
            Long("files") => setting.files = parser.value()?.parse()?,
            Long("passes") => setting.passes = parser.value()?.parse()?,
            Long("pause") => setting.pause = Duration::from_secs(parser.value()?.parse()?),
            Long("accept") => setting.accept = parser.value()?.string()?,
            Long("rounds") => setting.rounds = parser.value()?.parse()?,
            Long("gannet") => setting.gannet = Some(PathBuf::from(parser.value()?)),
            Short('h') | Long("help") => return Ok(None),
            Value(path) if directory.is_none() => directory = Some(PathBuf::from(path)),
            _ => return Err(argument.unexpected().into()),
        }
    }
    ensure!(setting.passes > 0, "--passes must be at least 1");
    setting.directory = match directory {
        Some(directory) => directory,
        None => {
            let root = process::output("rustc", &["--print", "sysroot"])?;
            Path::new(root.trim()).join("share/doc/rust/html")
        }
    };
    Ok(Some(setting))
}

/// The target and the length of every text file, at most `most` of them.
fn targets(directory: &Path, most: usize) -> Result<Vec<(String, u64)>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![directory.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder);
        for entry in entries.with_context(|| format!("'{}'", folder.display()))? {
            let path = entry?.path();
            let extension = path.extension().and_then(|it| it.to_str());
            if path.is_symlink() {
                continue;
            } else if path.is_dir() {
                folders.push(path);
            } else if extension.is_some_and(|it| EXTENSIONS.contains(&it))
                && let Some(name) = path.strip_prefix(directory)?.to_str()
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_graphic() && !b"%?#".contains(&byte))
            {
                found.insert(format!("/{name}"), fs::metadata(&path)?.len());
            }
        }
    }
    let step = found.len().div_ceil(most.max(1)).max(1);
    Ok(found.into_iter().step_by(step).collect())
}

/// Runs all passes; returns the share of the last one.
fn passes(setting: &Setting, targets: &[(String, u64)], server: &Served) -> Result<f64> {
    let all: u64 = targets.iter().map(|(_, len)| len).sum();
    println!("{} files of {all} bytes in all", targets.len());
    let mut stream = BufReader::new(TcpStream::connect(format!("127.0.0.1:{}", server.port))?);
    let begin = Instant::now();
    let mut share = 1.0;
    for pass in 1..=setting.passes {
        let began = begin.elapsed().as_secs_f64();
        let fetched = fetch_all(&mut stream, targets, &setting.accept)?;
        share = fetched.bytes as f64 / all as f64;
        let coded = fetched.coded;
        let end = begin.elapsed().as_secs_f64();
        println!("pass {pass}, {began:.1} to {end:.1} s: {share:.3} of the files, {coded} coded");
        if pass < setting.passes {
            std::thread::sleep(setting.pause);
        }
    }
    Ok(share)
}
