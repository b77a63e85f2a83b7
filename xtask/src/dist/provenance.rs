//! What the packages were made from, and by what: an in-toto statement with SLSA's provenance, for those
//! who collect them. It is not signed: whoever publishes the packages signs it with their own key.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::process;

use super::Release;

/// Where the kind of build is described.
const BUILD_TYPE: &str = "urn:gannet:xtask-dist:1";

/// Writes the statement about these files, of which `digest` is the SHA-256.
pub(super) fn write(
    release: &Release,
    made: &[(String, String)],
    is_given: bool,
) -> Result<PathBuf> {
    let name = format!("{}.intoto.json", release.name("provenance"));
    let statement = statement(release, made, &source(is_given)?);
    let mut text = serde_json::to_string_pretty(&statement)?;
    text.push('\n');
    super::write(release, &name, text.as_bytes())
}

/// What a build read.
struct Source {
    /// The commit, and whether files differ from it.
    commit: String,
    is_changed: bool,
    /// SHA-256 of the list of dependencies.
    lock: String,
    compiler: String,
    /// The program was given: nothing is known of its build.
    is_given: bool,
}

fn source(is_given: bool) -> Result<Source> {
    let root = process::root();
    let path = root.display().to_string();
    let git = |arguments: &[&str]| {
        let all = [&["-C", &path][..], arguments].concat();
        process::output("git", &all).map(|text| text.trim().to_owned())
    };
    let lock = std::fs::read(root.join("Cargo.lock")).context("Cargo.lock")?;
    Ok(Source {
        commit: git(&["rev-parse", "HEAD"])?,
        is_changed: !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty(),
        lock: super::digest(&lock),
        compiler: process::output("rustc", &["--version"])?.trim().to_owned(),
        is_given,
    })
}

fn statement(release: &Release, made: &[(String, String)], source: &Source) -> Value {
    let subjects: Vec<_> = made
        .iter()
        .map(|(name, digest)| json!({ "name": name, "digest": { "sha256": digest } }))
        .collect();
    // A given program may be of any sources, by any compiler.
    let (read, compiler) = match source.is_given {
        true => (json!([]), Value::Null),
        false => (
            json!([
                { "name": "sources", "digest": { "gitCommit": source.commit } },
                { "name": "Cargo.lock", "digest": { "sha256": source.lock } },
            ]),
            json!(source.compiler),
        ),
    };
    json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects,
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {
                    "target": release.processor.target(),
                    "programWasGiven": source.is_given,
                },
                "internalParameters": {
                    "SOURCE_DATE_EPOCH": release.date,
                    "compiler": compiler,
                    "sourcesAreChanged": source.is_changed,
                },
                "resolvedDependencies": read,
            },
            "runDetails": { "builder": { "id": "urn:gannet:xtask-dist" } },
        },
    })
}

/// The name and the SHA-256 of a file.
pub(super) fn named(path: &Path) -> Result<(String, String)> {
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Ok((name.into_owned(), super::digest(&bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::Processor;

    /// Every file is a subject with its digest, and nothing is claimed of a build that was not made here.
    #[test]
    fn the_statement_names_what_was_made() {
        let release = Release {
            version: "1.2.3".into(),
            processor: Processor::of_machine(),
            date: 7,
            out: PathBuf::new(),
        };
        let mut source = Source {
            commit: "c0ffee".into(),
            is_changed: true,
            lock: "l0c4".into(),
            compiler: "rustc 1".into(),
            is_given: false,
        };
        let made = [("a.deb".to_owned(), "aa".to_owned())];
        let found = statement(&release, &made, &source);
        assert_eq!(found["subject"][0]["name"], "a.deb");
        assert_eq!(found["subject"][0]["digest"]["sha256"], "aa");
        let build = &found["predicate"]["buildDefinition"];
        assert_eq!(
            build["resolvedDependencies"][0]["digest"]["gitCommit"],
            "c0ffee"
        );
        assert_eq!(build["internalParameters"]["sourcesAreChanged"], true);
        assert_eq!(build["internalParameters"]["compiler"], "rustc 1");
        source.is_given = true;
        let found = statement(&release, &made, &source);
        let build = &found["predicate"]["buildDefinition"];
        assert_eq!(build["externalParameters"]["programWasGiven"], true);
        assert_eq!(build["resolvedDependencies"], json!([]));
        assert!(build["internalParameters"]["compiler"].is_null());
    }
}
