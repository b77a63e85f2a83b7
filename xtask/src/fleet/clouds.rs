//! Publishing to Google's and to Microsoft's storage, and following them, on doubles of both: one
//! publisher, several at the same time, and uploads in parts.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use xtask::process;
use xtask::running::{Running, free_port, until};

use super::go;

/// What fake-gcs-server lacks of the API that is used, in front of it.
const GOOGLE_GO: &str = include_str!("google.go");
const GOOGLE: &str = "github.com/fsouza/fake-gcs-server@latest";
/// An account that needs no tokens.
const GOOGLE_KEY: &str =
    r#"{"private_key": "", "private_key_id": "", "client_email": "", "disable_oauth": true}"#;
/// Makes a container.
const AZURE_JS: &str = include_str!("azure.js");
/// The account that the double has, whose key everybody knows.
const ACCOUNT: &str = "devstoreaccount1";
const ACCOUNT_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
/// Machines that publish at the same time.
const MACHINES: usize = 4;
/// More than one part, of bytes that cannot be compressed.
const LARGE: usize = 20 << 20;

/// A storage, and how the program finds it.
struct Double {
    _process: Running,
    url: &'static str,
    variables: Vec<(&'static str, String)>,
}

type Start = fn() -> Result<Double>;

/// Runs all that can be had; says which cannot.
pub(super) fn main(program: &Path, folder: &Path) -> Result<()> {
    let doubles: [(&str, Start); 2] = [("gs", google), ("az", azure)];
    for (name, start) in doubles {
        match start() {
            Ok(double) => {
                let folder = folder.join(name);
                let told = Cloud::new(&double, program, folder)?.exercise();
                told.with_context(|| double.url)?;
            }
            Err(error) if !process::is_ci() => println!("{name}:// skipped: {error:#}"),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn google() -> Result<Double> {
    let module = process::target().join("tools/google-double");
    let program = module.join("double");
    if !program.is_file() {
        println!(
            "building a double of Google's storage in '{}'",
            module.display()
        );
        fs::create_dir_all(&module)?;
        fs::write(module.join("main.go"), GOOGLE_GO)?;
        fs::write(module.join("go.mod"), "module double\n\ngo 1.24\n")?;
        let go = go()?;
        for arguments in [
            &["get", GOOGLE][..],
            &["mod", "tidy"],
            &["build", "-o", "double"],
        ] {
            process::capture(Command::new(&go).args(arguments).current_dir(&module))?;
        }
    }
    let mut command = Command::new(program);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut running = Running::start(&mut command)?;
    let mut address = String::new();
    let out = running.0.stdout.take().context("it was piped")?;
    BufReader::new(out).read_line(&mut address)?;
    Ok(Double {
        _process: running,
        url: "gs://bucket/site",
        variables: vec![
            ("GOOGLE_BASE_URL", format!("http://{}", address.trim())),
            ("GOOGLE_SERVICE_ACCOUNT_KEY", GOOGLE_KEY.to_owned()),
        ],
    })
}

fn azure() -> Result<Double> {
    let module = process::target().join("tools/azurite");
    let script = module.join("node_modules/azurite/dist/src/blob/main.js");
    let node = process::find("node").context("node is not installed")?;
    if !script.is_file() {
        let npm = process::find("npm").context("neither azurite nor npm is installed")?;
        println!("installing azurite by npm into '{}'", module.display());
        fs::create_dir_all(&module)?;
        fs::write(module.join("package.json"), "{}\n")?;
        let mut install = Command::new(npm);
        install.args(["install", "--no-audit", "--no-fund", "azurite"]);
        process::capture(install.current_dir(&module))?;
    }
    let port = free_port()?.to_string();
    let mut command = Command::new(&node);
    command.arg(script).args(["--blobPort", &port]);
    command.args(["--silent", "--disableTelemetry", "--inMemoryPersistence"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let running = Running::start(&mut command)?;
    until("azurite listens", || {
        TcpStream::connect(format!("127.0.0.1:{port}")).is_ok()
    })?;
    fs::write(module.join("container.js"), AZURE_JS)?;
    let mut make = Command::new(node);
    make.args(["container.js", &port, ACCOUNT, ACCOUNT_KEY, "bucket"]);
    make.current_dir(&module);
    process::capture(&mut make)?;
    let endpoint = format!("http://127.0.0.1:{port}/{ACCOUNT}");
    Ok(Double {
        _process: running,
        url: "az://bucket/site",
        variables: vec![
            ("AZURE_STORAGE_ENDPOINT", endpoint),
            ("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT.to_owned()),
            ("AZURE_STORAGE_ACCOUNT_KEY", ACCOUNT_KEY.to_owned()),
        ],
    })
}

/// A storage, and machines with sites.
struct Cloud<'d> {
    double: &'d Double,
    program: &'d Path,
    folder: PathBuf,
}

impl<'d> Cloud<'d> {
    fn new(double: &'d Double, program: &'d Path, folder: PathBuf) -> Result<Self> {
        fs::create_dir_all(&folder)?;
        Ok(Self {
            double,
            program,
            folder,
        })
    }

    /// A command on a machine, which has its own picture.
    fn gannet(&self, machine: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.program);
        command
            .args(arguments)
            .envs(
                self.double
                    .variables
                    .iter()
                    .map(|(name, value)| (name, value)),
            )
            .env_remove("CACHE_DIRECTORY")
            .env("XDG_CACHE_HOME", self.folder.join("cache").join(machine))
            .current_dir(&self.folder);
        command
    }

    /// The site of a machine, with one page and what else is given.
    fn write_site(&self, machine: &str, text: &str, large: Option<u8>) -> Result<()> {
        let site = self.folder.join("site").join(machine);
        fs::create_dir_all(&site)?;
        fs::write(
            site.join("index.html"),
            format!("<!DOCTYPE html><title>{text}</title>"),
        )?;
        let noise = site.join("noise.bin");
        match large {
            Some(seed) => fs::write(noise, bytes(seed))?,
            None if noise.exists() => fs::remove_file(noise)?,
            None => {}
        }
        Ok(())
    }

    fn publish(&self, machine: &str, more: &[&str]) -> Command {
        let site = format!("site/{machine}");
        let all = [&["publish", &site, self.double.url, "--fast", "-q"], more].concat();
        self.gannet(machine, &all)
    }

    fn exercise(&self) -> Result<()> {
        let url = self.double.url;
        self.write_site("a", "One", None)?;
        process::capture(&mut self.publish("a", &[]))?;
        // In parts, from a machine that has no picture yet; then back, and on with what is kept.
        self.write_site("b", "Two", Some(2))?;
        process::capture(&mut self.publish("b", &[]))?;
        let listed = process::capture(&mut self.gannet("c", &["releases", url]))?;
        ensure!(
            listed.contains("*      2") && listed.contains(" kept "),
            "{listed}"
        );
        process::capture(&mut self.gannet("a", &["rollback", url]))?;
        self.follows(3)?;
        self.race()?;
        self.race_in_parts()?;
        let keep = ["--keep", "1s 1..1"];
        self.write_site("a", "Last", Some(9))?;
        process::capture(&mut self.publish("a", &keep))?;
        let listed = self.gannet("c", &["releases", url, "--json"]);
        let listed = self.json(listed)?;
        let has_file = |it: &&serde_json::Value| {
            let state = it["state"].as_str().unwrap_or_default();
            !["gone", "repeated"].contains(&state)
        };
        let left = listed["releases"].as_array().context("a list")?;
        let left: BTreeSet<_> = left
            .iter()
            .filter(has_file)
            .map(|it| it["release"].to_string())
            .collect();
        ensure!(
            left.len() == 2,
            "{} releases are left of those not kept",
            left.len()
        );
        println!("{url}: published in one piece and in parts, rolled back, followed, tidied up");
        Ok(())
    }

    fn json(&self, mut command: Command) -> Result<serde_json::Value> {
        Ok(serde_json::from_str(&process::capture(&mut command)?)?)
    }

    /// A new copy has this serial, and what is in it is whole.
    fn follows(&self, serial: usize) -> Result<()> {
        let copy = format!("copy-{serial}");
        let follow = ["follow", self.double.url, &copy, "--once"];
        let told = process::capture(&mut self.gannet("c", &follow))?;
        ensure!(told.contains(&format!("serial {serial},")), "{told}");
        Ok(())
    }

    /// Several machines publish at the same time until each has: every serial is given once.
    fn race(&self) -> Result<()> {
        let machines: Vec<_> = (0..MACHINES).map(|it| format!("racer-{it}")).collect();
        for machine in &machines {
            self.write_site(machine, machine, None)?;
        }
        let mut left = machines.clone();
        let mut told = 0;
        while !left.is_empty() {
            let mut failed = Vec::new();
            for (machine, ended) in left.iter().zip(self.at_once(&left)?) {
                if !ended.status.success() {
                    let said = String::from_utf8_lossy(&ended.stderr);
                    let is_told = said.contains("another publisher has taken serial")
                        || said.contains("its pointer was replaced in the meantime");
                    ensure!(is_told, "{said}");
                    failed.push(machine.clone());
                    told += 1;
                }
            }
            ensure!(failed.len() < left.len(), "no publisher has succeeded");
            left = failed;
        }
        let listed = self.json(self.gannet("c", &["releases", self.double.url, "--json"]))?;
        let releases = listed["releases"].as_array().context("a list")?;
        let of_racers = releases
            .iter()
            .take_while(|it| it["serial"].as_u64() > Some(3));
        let in_force: BTreeSet<_> = of_racers.map(|it| it["release"].to_string()).collect();
        ensure!(
            in_force.len() == MACHINES,
            "{} of {MACHINES} releases",
            in_force.len()
        );
        let url = self.double.url;
        println!(
            "{url}: {MACHINES} machines published at once, and were told {told} times that another \
             was faster"
        );
        let last = releases[0]["serial"].as_u64().context("a number")?;
        self.follows(usize::try_from(last)?)
    }

    /// Two machines write the same large release at the same time: one takes over what the other has
    /// written.
    fn race_in_parts(&self) -> Result<()> {
        let machines = ["a", "b"].map(str::to_owned);
        for machine in &machines {
            self.write_site(machine, "Large", Some(9))?;
        }
        let ended = self.at_once(&machines)?;
        ensure!(
            ended.iter().any(|it| it.status.success()),
            "no publisher has succeeded"
        );
        let listed = self.json(self.gannet("c", &["releases", self.double.url, "--json"]))?;
        let last = listed["releases"][0]["serial"].as_u64();
        self.follows(usize::try_from(last.context("a number")?)?)
    }

    fn at_once(&self, machines: &[String]) -> Result<Vec<std::process::Output>> {
        let begin = |machine: &String| {
            let mut command = self.publish(machine, &[]);
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()
        };
        let begun: Vec<_> = machines.iter().map(begin).collect::<Result<_, _>>()?;
        let ended = begun.into_iter().map(|it| it.wait_with_output());
        Ok(ended.collect::<Result<_, _>>()?)
    }
}

fn bytes(seed: u8) -> Vec<u8> {
    let mut state = u64::from(seed) + 1;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as u8
    };
    (0..LARGE).map(|_| next()).collect()
}
