//! Generates the bill of materials and the licence texts embedded in the program, from `Cargo.lock`
//! and the sources of its dependencies.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use lexopt::prelude::*;
use serde_json::Value;

use xtask::process;

/// gannet's targets: dependencies of other systems are excluded.
const TARGETS: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];
/// Where the program reads them.
const DIRECTORY: &str = "crates/gannet/src/components";

/// A crate in the program, or needed to build it.
#[derive(Debug, Default)]
struct Component {
    name: String,
    version: String,
    license: String,
    repository: String,
    checksum: String,
    manifest: PathBuf,
    dependencies: BTreeSet<String>,
}

/// `cargo xtask licenses [--check]`.
pub(crate) fn main(parser: &mut lexopt::Parser) -> Result<()> {
    let mut is_check = false;
    while let Some(argument) = parser.next()? {
        match argument {
            Long("check") => is_check = true,
            _ => return Err(argument.unexpected().into()),
        }
    }
    run(is_check)
}

/// Writes the files, or checks that they are up to date.
pub(crate) fn run(is_check: bool) -> Result<()> {
    let components = components()?;
    let files = [
        ("components.tsv", table(&components)),
        ("licenses.txt", texts(&components)?),
    ];
    for (name, content) in files {
        let path = process::root().join(DIRECTORY).join(name);
        if is_check {
            let found = fs::read_to_string(&path).unwrap_or_default();
            ensure!(
                found == content,
                "{DIRECTORY}/{name} is not that of Cargo.lock: run 'cargo xtask licenses'"
            );
        } else {
            fs::write(&path, content).with_context(|| path.display().to_string())?;
        }
    }
    println!("licenses: {} components", components.len());
    Ok(())
}

/// All crates that `gannet` needs at run time or build time, by name and version.
fn components() -> Result<BTreeMap<String, Component>> {
    let checksums = checksums()?;
    let mut components: BTreeMap<String, Component> = BTreeMap::new();
    for target in TARGETS {
        let mut command = process::cargo();
        command.args([
            "metadata",
            "--format-version=1",
            "--locked",
            "--filter-platform",
        ]);
        let text = process::capture(command.arg(target))?;
        let metadata: Value = serde_json::from_str(&text)?;
        collect(&metadata, &checksums, &mut components)?;
    }
    Ok(components)
}

fn collect(
    metadata: &Value,
    checksums: &BTreeMap<String, String>,
    components: &mut BTreeMap<String, Component>,
) -> Result<()> {
    let packages: BTreeMap<&str, &Value> = items(&metadata["packages"])
        .map(|package| (text(&package["id"]), package))
        .collect();
    let nodes: BTreeMap<&str, &Value> = items(&metadata["resolve"]["nodes"])
        .map(|node| (text(&node["id"]), node))
        .collect();
    let is_root = |package: &&Value| text(&package["name"]) == "gannet";
    let root = items(&metadata["packages"]).find(is_root);
    let mut open = vec![text(&root.context("no package gannet")?["id"])];
    let mut seen = BTreeSet::new();
    while let Some(id) = open.pop() {
        if !seen.insert(id) {
            continue;
        }
        let (Some(package), Some(node)) = (packages.get(id), nodes.get(id)) else {
            bail!("cargo metadata does not know {id}");
        };
        let key = key(package);
        let component = components.entry(key.clone()).or_default();
        component.name = text(&package["name"]).to_owned();
        component.version = text(&package["version"]).to_owned();
        component.license = text(&package["license"]).replace('/', " OR ");
        ensure!(!component.license.is_empty(), "{key} names no licence");
        component.repository = text(&package["repository"]).to_owned();
        component.manifest = text(&package["manifest_path"]).into();
        component.checksum = checksums.get(&key).cloned().unwrap_or_default();
        for dependency in items(&node["deps"]) {
            // Tests are not shipped.
            let is_shipped = items(&dependency["dep_kinds"]).any(|it| it["kind"] != "dev");
            let id = text(&dependency["pkg"]);
            if let Some(package) = packages.get(id).filter(|_| is_shipped) {
                component.dependencies.insert(self::key(package));
                open.push(id);
            }
        }
    }
    Ok(())
}

fn key(package: &Value) -> String {
    format!("{}@{}", text(&package["name"]), text(&package["version"]))
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The checksums in `Cargo.lock` by name and version.
fn checksums() -> Result<BTreeMap<String, String>> {
    let lock = fs::read_to_string(process::root().join("Cargo.lock"))?;
    let mut checksums = BTreeMap::new();
    let mut key = String::new();
    for line in lock.lines() {
        let Some((name, value)) = line.split_once(" = ") else {
            continue;
        };
        let value = value.trim_matches('"');
        match name {
            "name" => key = value.to_owned(),
            "version" => key = format!("{key}@{value}"),
            "checksum" => {
                checksums.insert(key.clone(), value.to_owned());
            }
            _ => {}
        }
    }
    Ok(checksums)
}

/// One line per component.
fn table(components: &BTreeMap<String, Component>) -> String {
    let mut table = String::from(
        "# Made by 'cargo xtask licenses': name, version, licence, SHA-256 of the crate, \
         repository, dependencies.\n",
    );
    for component in components.values() {
        let dependencies: Vec<_> = component.dependencies.iter().map(String::as_str).collect();
        let _ = writeln!(
            table,
            "{}\t{}\t{}\t{}\t{}\t{}",
            component.name,
            component.version,
            component.license,
            component.checksum,
            component.repository,
            dependencies.join(" ")
        );
    }
    table
}

/// Every text once, after the components that it covers.
fn texts(components: &BTreeMap<String, Component>) -> Result<String> {
    let mut users: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    let mut without: BTreeSet<&str> = BTreeSet::new();
    for (key, component) in components {
        let found = texts_of(component)?;
        if found.is_empty() {
            without.insert(key);
        }
        for text in found {
            users.entry(text).or_default().insert(key);
        }
    }
    let mut by_user: Vec<_> = users.into_iter().collect();
    by_user.sort_by(|a, b| (&a.1, &a.0).cmp(&(&b.1, &b.0)));
    let mut all = String::new();
    for (text, users) in by_user {
        let users: Vec<_> = users.into_iter().collect();
        let _ = write!(all, "==> {}\n\n{text}\n\n", users.join(", "));
    }
    let without: Vec<_> = without.into_iter().collect();
    let _ = writeln!(
        all,
        "==> without a text of their own: {}",
        without.join(", ")
    );
    Ok(all)
}

/// The licence texts of a crate. If MIT is an option it is chosen, since it is the shortest.
fn texts_of(component: &Component) -> Result<Vec<String>> {
    let own = component.checksum.is_empty();
    let folder = match own {
        // Members of this workspace have their licence at its root.
        true => process::root(),
        false => component
            .manifest
            .parent()
            .map(Path::to_path_buf)
            .unwrap_or_default(),
    };
    let mut names = Vec::new();
    for item in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let name = item?.file_name().to_string_lossy().into_owned();
        let upper = name.to_ascii_uppercase();
        let is_text = ["LICENSE", "LICENCE", "COPYING", "UNLICENSE", "NOTICE"]
            .iter()
            .any(|start| upper.starts_with(start));
        if is_text && folder.join(&name).is_file() {
            names.push((upper, name));
        }
    }
    names.sort();
    let is_choice = component.license.contains(" OR ") && component.license.contains("MIT");
    let has_mit = names.iter().any(|(upper, _)| upper.contains("MIT"));
    if is_choice && has_mit {
        names.retain(|(upper, _)| upper.contains("MIT") || upper.starts_with("NOTICE"));
    }
    let mut texts = Vec::new();
    for (_, name) in names {
        let bytes = fs::read(folder.join(&name))?;
        let text = String::from_utf8_lossy(&bytes).replace('\r', "");
        let lines: Vec<_> = text.lines().map(str::trim_end).collect();
        texts.push(lines.join("\n").trim_matches('\n').to_owned());
    }
    Ok(texts)
}
