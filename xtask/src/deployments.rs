//! Tries what is deployed elsewhere: images, packages, manifests for Kubernetes, a job for Nomad, units of systemd.
//!
//! Each check is made by the counterpart's own tool, or by its published schema. A tool that cannot be
//! had is named, and its check left out.

mod packages;
mod rooted;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use flate2::read::GzDecoder;
use serde_json::Value;
use xtask::process;

use self::rooted::{Rooted, USER};
use crate::dist::{self, Processor};
use crate::program::Program;

const HELP: &str = "\
cargo xtask deployments [--program FILE]

  Makes images with 'gannet bundle', has skopeo read them as OCI's and as Docker's, and starts one in a
  folder of its own as its user. Makes the packages of 'cargo xtask dist', unpacks the tarball and the
  Debian package, and starts the program of each in the same way. Checks deploy/kubernetes against Kubernetes' schemas, the form of
  deploy/nomad by hclfmt, and the units by systemd-analyze.

  --program FILE  a static gannet, instead of building one as 'cargo xtask dist' does
";

/// The versions of Kubernetes whose schemas the manifests have to satisfy: the first that serves image
/// volumes by default, and the newest that the checker knows.
const KUBERNETES: [&str; 2] = ["1.35", "1.36"];

/// The formatter of Nomad's language, through the machine's Go module proxy.
const HCLFMT: &str = "github.com/hashicorp/hcl/v2/cmd/hclfmt@latest";

/// The page of the sites that are served.
const HOME: &str = "<!DOCTYPE html><title>Home</title>\n";

pub(crate) fn main(parser: &mut lexopt::Parser) -> Result<()> {
    let Some(program) = Program::parse(parser, HELP)? else {
        return Ok(());
    };
    let program = program.path_or(|| dist::build(Processor::of_machine(), dist::date()?))?;
    let folder = process::target().join("deployments");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let folder = fs::canonicalize(folder)?;
    images(&program, &folder)?;
    checked("packages", packages::packages(&program, &folder))?;
    checked("Kubernetes", kubernetes())?;
    checked("Nomad", nomad())?;
    checked("systemd", systemd(&program, &folder))
}

/// What came of a check whose tool may be missing.
enum Checked {
    Passed(String),
    /// Why it was not made.
    LeftOut(anyhow::Error),
}

fn checked(name: &str, outcome: Result<Checked>) -> Result<()> {
    match outcome.with_context(|| name.to_owned())? {
        Checked::Passed(what) => println!("{name}: {what}"),
        Checked::LeftOut(why) => println!("{name}: left out: {why:#}"),
    }
    Ok(())
}

fn images(program: &Path, folder: &Path) -> Result<()> {
    let site = folder.join("site");
    fs::create_dir_all(&site)?;
    fs::write(site.join("index.html"), HOME)?;
    let gannet = |arguments: &[&str]| {
        process::capture(Command::new(program).current_dir(folder).args(arguments))
    };
    gannet(&["pack", "site", "--quiet", "--output", "site.gannet"])?;
    gannet(&["bundle", "--output", "program.tar"])?;
    gannet(&[
        "bundle",
        "site.gannet",
        "--output",
        "site.tar",
        "--name",
        "r.example/docs:1",
    ])?;
    gannet(&[
        "bundle",
        "site.gannet",
        "--no-program",
        "--output",
        "volume.tar",
    ])?;
    match process::find_or_install("skopeo", "skopeo") {
        Err(why) => println!("images: not read by skopeo: {why:#}"),
        Ok(skopeo) => {
            for image in ["program.tar", "site.tar", "volume.tar"] {
                for kind in ["oci-archive", "docker-archive"] {
                    read(&skopeo, folder, image, kind)
                        .with_context(|| format!("{kind}:{image}"))?;
                }
            }
            println!("images: skopeo reads all three as OCI's and as Docker's");
        }
    }
    start(folder, "site.tar")
}

/// Has skopeo read an image whole, which checks every digest.
fn read(skopeo: &Path, folder: &Path, image: &str, kind: &str) -> Result<()> {
    let source = format!("{kind}:{}", folder.join(image).display());
    let copy = folder.join(format!("{image}.{kind}"));
    let mut command = Command::new(skopeo);
    command.args(["--insecure-policy", "copy", "--quiet", &source]);
    command.arg(format!("dir:{}", copy.display()));
    process::capture(&mut command)?;
    ensure!(copy.join("manifest.json").is_file(), "nothing was copied");
    Ok(())
}

/// Unpacks an image as a runtime does, and starts it with its own command, variables and user.
fn start(folder: &Path, image: &str) -> Result<()> {
    if !Rooted::is_possible() {
        println!("images: none was started, which takes root for chroot");
        return Ok(());
    }
    let files = unpack(&fs::read(folder.join(image))?)?;
    let blob = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().unwrap_or_default();
        let name = digest.replace("sha256:", "blobs/sha256/");
        let found = files.iter().find(|(path, _)| *path == name);
        found.map(|(_, bytes)| bytes.as_slice()).context(name)
    };
    let index = files.iter().find(|(path, _)| path == "index.json");
    let index: Value = serde_json::from_slice(&index.context("no index")?.1)?;
    let manifest: Value = serde_json::from_slice(blob(&index["manifests"][0])?)?;
    let config: Value = serde_json::from_slice(blob(&manifest["config"])?)?;
    let root = folder.join("root");
    for layer in manifest["layers"].as_array().context("no layers")? {
        let bytes = blob(layer)?;
        let mut tar = Vec::new();
        match bytes.starts_with(&[0x1f, 0x8b]) {
            true => GzDecoder::new(bytes).read_to_end(&mut tar)?,
            false => Read::read_to_end(&mut &bytes[..], &mut tar)?,
        };
        let mut archive = tar::Archive::new(&tar[..]);
        archive.set_preserve_permissions(true);
        archive.unpack(&root)?;
    }
    let rooted = Rooted {
        root,
        variables: words(&config, "Env"),
    };
    let entry = [words(&config, "Entrypoint"), words(&config, "Cmd")].concat();
    let check = config["config"]["Healthcheck"]["Test"].as_array();
    let check = check.context("no health check")?.iter().skip(1);
    let check: Vec<_> = check.filter_map(Value::as_str).map(str::to_owned).collect();
    rooted.serves(&entry, &check).context("the image")?;
    println!("images: one was started as user {USER} in a folder of its own, serves and is well");
    Ok(())
}

fn words(config: &Value, name: &str) -> Vec<String> {
    let words = config["config"][name].as_array();
    let words = words.into_iter().flatten().filter_map(Value::as_str);
    words.map(str::to_owned).collect()
}

fn unpack(tar: &[u8]) -> Result<Vec<(String, Vec<u8>)>> {
    let mut archive = tar::Archive::new(tar);
    let mut files = Vec::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.display().to_string();
        let mut content = Vec::new();
        entry.read_to_end(&mut content)?;
        files.push((path, content));
    }
    Ok(files)
}

fn deploy(part: &str) -> Result<Vec<PathBuf>> {
    let folder = process::root().join("deploy").join(part);
    let entries = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut files = Vec::new();
    for entry in entries {
        files.push(entry?.path());
    }
    files.sort();
    ensure!(!files.is_empty(), "nothing in '{}'", folder.display());
    Ok(files)
}

/// The published schemas, which a package of Python's has.
fn kubernetes() -> Result<Checked> {
    let tools = process::target().join("tools/kubernetes");
    let checker = tools.join("bin/kubernetes-validate");
    if !checker.is_file() {
        let made = process::capture(Command::new("python3").args(["-m", "venv"]).arg(&tools));
        let mut install = Command::new(tools.join("bin/pip"));
        install.args(["install", "--quiet", "kubernetes-validate"]);
        if let Err(why) = made.and_then(|_| process::capture(&mut install)) {
            return Ok(Checked::LeftOut(why));
        }
    }
    let files = deploy("kubernetes")?;
    for version in KUBERNETES {
        let mut command = Command::new(&checker);
        command
            .args(["--kubernetes-version", version, "--strict"])
            .args(&files);
        process::capture(&mut command)?;
    }
    let versions = KUBERNETES.join(" and ");
    let count = files.len();
    Ok(Checked::Passed(format!(
        "{count} manifests satisfy {versions}"
    )))
}

fn nomad() -> Result<Checked> {
    let Ok(go) = process::output("go", &["env", "GOPATH"]) else {
        let why = anyhow::anyhow!("neither hclfmt nor Go, which would install it, is there");
        return Ok(Checked::LeftOut(why));
    };
    let hclfmt = Path::new(&go).join("bin/hclfmt");
    if !hclfmt.is_file()
        && let Err(why) = process::output("go", &["install", HCLFMT])
    {
        return Ok(Checked::LeftOut(why));
    }
    let files = deploy("nomad")?;
    for file in &files {
        let mut command = Command::new(&hclfmt);
        process::capture(command.arg("-check").arg(file))?;
    }
    let count = files.len();
    Ok(Checked::Passed(format!(
        "{count} job is well formed; a Nomad was not asked"
    )))
}

/// Units as they are, but for the path of the program, which systemd looks for: those for others to copy, and
/// those of an installation.
fn systemd(program: &Path, folder: &Path) -> Result<Checked> {
    let Some(analyze) = process::find("systemd-analyze") else {
        let why = anyhow::anyhow!("systemd-analyze is not installed");
        return Ok(Checked::LeftOut(why));
    };
    let units = folder.join("units");
    fs::create_dir_all(&units)?;
    let mut names = Vec::new();
    let shown = program.display().to_string();
    for (file, place) in deploy("systemd")?
        .into_iter()
        .map(|file| (file, "/usr/local/bin/gannet"))
        .chain(installed(program, folder)?.map(|file| (file, "/usr/bin/gannet")))
    {
        let text = fs::read_to_string(&file)?.replace(place, &shown);
        let name = file.file_name().context("a file")?.to_string_lossy();
        let name = name.replace("@.", "@site.");
        fs::write(units.join(&name), text)?;
        names.push(units.join(name));
    }
    let mut command = Command::new(analyze);
    let output = command.args(["verify", "--man=no"]).args(&names).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() || said.contains("gannet-") {
        bail!("systemd-analyze verify: {}\n{said}", output.status);
    }
    Ok(Checked::Passed(format!("{} units verified", names.len())))
}

/// The units that `gannet install` writes.
fn installed(program: &Path, folder: &Path) -> Result<impl Iterator<Item = PathBuf>> {
    let root = folder.join("root");
    let bin = root.join("usr/bin");
    fs::create_dir_all(&bin)?;
    let placed = bin.join("gannet");
    fs::copy(program, &placed)?;
    let mut command = Command::new(placed);
    process::capture(command.args(["install", "--socket", "--root"]).arg(&root))?;
    let entries = fs::read_dir(root.join("usr/lib/systemd/system"))?.flatten();
    Ok(entries.map(|entry| entry.path()))
}
