//! `gannet version --sbom` and `--licenses`: the components of the program and their licences.
//!
//! Both are made from files that `cargo xtask licenses` writes from `Cargo.lock` and the sources
//! of the dependencies, and that CI compares with them. Building needs neither network nor tools.

use std::io::{self, Write};

use crate::json;

/// One line for each crate: name, version, licence, SHA-256, repository, dependencies.
const COMPONENTS: &str = include_str!("components.tsv");
/// Every licence text once, with the crates that it covers.
const LICENSES: &str = include_str!("licenses.txt");
/// Marks the header of a licence text.
const MARK: &str = "==> ";

/// A crate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Component<'a> {
    name: &'a str,
    version: &'a str,
    license: &'a str,
    /// In hexadecimal; empty for the crates of this project.
    sha256: &'a str,
    repository: &'a str,
    /// `name@version`, separated by spaces.
    dependencies: &'a str,
}

fn components() -> impl Iterator<Item = Component<'static>> {
    COMPONENTS.lines().filter_map(|line| {
        let mut columns = line.split('\t');
        let mut next = || columns.next();
        Some(Component {
            name: next().filter(|name| !name.starts_with('#'))?,
            version: next()?,
            license: next()?,
            sha256: next()?,
            repository: next()?,
            dependencies: next()?,
        })
    })
}

/// Writes the bill of materials as CycloneDX 1.6 in JSON. It has neither date nor serial number, so
/// that the same program gives the same bytes.
///
/// # Errors
/// `out` cannot be written.
pub fn write_sbom(out: &mut dyn Write) -> io::Result<()> {
    let (own, others): (Vec<_>, Vec<_>) = components().partition(|it| it.name == "gannet");
    writeln!(out, "{{\n  \"bomFormat\": \"CycloneDX\",")?;
    writeln!(out, "  \"specVersion\": \"1.6\",\n  \"version\": 1,")?;
    for component in own {
        write!(out, "  \"metadata\": {{\"component\": ")?;
        write_component(&component, "application", out)?;
        writeln!(out, "}},")?;
    }
    write!(out, "  \"components\": [")?;
    for (number, component) in others.iter().enumerate() {
        let comma = if number > 0 { "," } else { "" };
        write!(out, "{comma}\n    ")?;
        write_component(component, "library", out)?;
    }
    write!(out, "\n  ],\n  \"dependencies\": [")?;
    for (number, component) in components().enumerate() {
        let comma = if number > 0 { "," } else { "" };
        let own = json::string(&reference(component.name, component.version));
        let on = component.dependencies.split_ascii_whitespace();
        let on = json::strings(on.filter_map(|it| {
            let (name, version) = it.split_once('@')?;
            Some(reference(name, version))
        }));
        write!(out, "{comma}\n    {{\"ref\": {own}, \"dependsOn\": {on}}}")?;
    }
    writeln!(out, "\n  ]\n}}")
}

/// A package URL.
fn reference(name: &str, version: &str) -> String {
    format!("pkg:cargo/{name}@{version}")
}

fn write_component(component: &Component<'_>, kind: &str, out: &mut dyn Write) -> io::Result<()> {
    let purl = json::string(&reference(component.name, component.version));
    write!(
        out,
        "{{\"type\": \"{kind}\", \"bom-ref\": {purl}, \"name\": {}, \"version\": {}, \
         \"licenses\": [{{\"expression\": {}}}], \"purl\": {purl}",
        json::string(component.name),
        json::string(component.version),
        json::string(component.license),
    )?;
    if !component.sha256.is_empty() {
        let sha256 = json::string(component.sha256);
        write!(
            out,
            ", \"hashes\": [{{\"alg\": \"SHA-256\", \"content\": {sha256}}}]"
        )?;
    }
    if !component.repository.is_empty() {
        let url = json::string(component.repository);
        write!(
            out,
            ", \"externalReferences\": [{{\"type\": \"vcs\", \"url\": {url}}}]"
        )?;
    }
    write!(out, "}}")
}

/// Writes the crates with their licences, and all texts unless `brief`.
///
/// # Errors
/// `out` cannot be written.
pub fn write_licenses(brief: bool, out: &mut dyn Write) -> io::Result<()> {
    for component in components() {
        let name = format!("{} {}", component.name, component.version);
        writeln!(out, "{name:<36}{}", component.license)?;
    }
    if brief {
        return Ok(());
    }
    for line in LICENSES.lines() {
        match line.strip_prefix(MARK) {
            Some(users) => writeln!(out, "\n{}\n{users}", "-".repeat(80))?,
            None => writeln!(out, "{line}")?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_component_is_read_and_every_text_has_a_user() {
        let lines = COMPONENTS.lines().filter(|line| !line.starts_with('#'));
        assert_eq!(components().count(), lines.count());
        let own = components()
            .find(|it| it.name == "gannet")
            .expect("it is one");
        assert_eq!(own.version, env!("CARGO_PKG_VERSION"));
        let is_known =
            |user: &str| components().any(|it| format!("{}@{}", it.name, it.version) == user);
        let users = LICENSES.lines().filter_map(|line| line.strip_prefix(MARK));
        for user in users.flat_map(|line| line.split(", ")) {
            let user = user.trim_start_matches("without a text of their own: ");
            assert!(user.is_empty() || is_known(user), "{user}");
        }
        for component in components() {
            let is_other = !component.name.starts_with("gannet");
            assert_eq!(component.sha256.len(), if is_other { 64 } else { 0 });
        }
    }

    #[test]
    fn dependencies_are_components() {
        let known: Vec<_> = components()
            .map(|it| format!("{}@{}", it.name, it.version))
            .collect();
        for component in components() {
            for on in component.dependencies.split_ascii_whitespace() {
                assert!(known.iter().any(|it| it == on), "{} {on}", component.name);
            }
        }
    }
}
