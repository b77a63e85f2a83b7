//! Vectors that implementations share: field compression by other encoders.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use gannet_http::binary::CodingError;
use gannet_http::h2::hpack::Decoder;
use gannet_http::h3::qpack::decode_each;
use serde_json::Value as Json;

use super::{Inputs, Outcome, Passed, cloned, commit, without};

/// The stories of HPACK: each a connection, by one encoder.
pub(super) const HPACK: &str = "https://github.com/http2jp/hpack-test-case";

/// The files of QPACK: each a connection, by one encoder with one size of its table.
pub(super) const QPACK: &str = "https://github.com/qpackers/qifs";

/// Fields of a section.
type Section = Vec<(Vec<u8>, Vec<u8>)>;

/// Decodes the stories.
pub(super) fn hpack(inputs: &Inputs) -> Result<Outcome> {
    let Some(source) = cloned(inputs, HPACK, "hpack-test-case") else {
        return Ok(without(HPACK));
    };
    let (mut stories, mut sections) = (0, 0);
    for path in files(&source, |path| has_extension(path, "json"))? {
        let story: Json = serde_json::from_slice(&fs::read(&path)?)?;
        let cases = story["cases"].as_array().context("no cases")?;
        // The sources of the encoders have no encoded form.
        if cases.iter().all(|case| case["wire"].is_null()) {
            continue;
        }
        sections += decode_story(cases).with_context(|| path.display().to_string())?;
        stories += 1;
    }
    ensure!(stories > 0, "there are no stories in {}", source.display());
    Ok(Outcome::Passed(Passed {
        version: commit(&source),
        cases: stories,
        table: String::new(),
        differences: format!("{sections} sections"),
    }))
}

/// Decodes a story; returns its number of sections.
fn decode_story(cases: &[Json]) -> Result<usize> {
    let mut decoder = Decoder::new();
    for case in cases {
        let wire = hex(case["wire"].as_str().context("no wire")?)?;
        let mut fields = Section::new();
        decoder
            .decode_each(&wire, |name, value| fields.push(owned(name, value)))
            .map_err(|why| anyhow::anyhow!("section {}: {why:?}", case["seqno"]))?;
        let expect: Option<Section> = (case["headers"].as_array().context("no fields")?.iter())
            .map(|field| {
                let (name, value) = field.as_object()?.iter().next()?;
                Some(owned(name.as_bytes(), value.as_str()?.as_bytes()))
            })
            .collect();
        ensure!(Some(fields) == expect, "section {} differs", case["seqno"]);
    }
    Ok(cases.len())
}

/// Decodes the sections of all encoders: those without a dynamic table, which gannet does not offer, have to be
/// right; of the others, those that refer to it have to be refused.
pub(super) fn qpack(inputs: &Inputs) -> Result<Outcome> {
    let Some(source) = cloned(inputs, QPACK, "qifs") else {
        return Ok(without(QPACK));
    };
    let mut lists = BTreeMap::new();
    for path in files(&source.join("qifs"), |path| has_extension(path, "qif"))? {
        let name = path.file_stem().unwrap_or_default().to_os_string();
        lists.insert(name, sections_of(&fs::read_to_string(&path)?));
    }
    let (mut encoded, mut sections, mut refused) = (0, 0, 0);
    for path in files(&source.join("encoded/qpack-06"), |_| true)? {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        let Some((of, parameters)) = name.split_once(".out.") else {
            continue;
        };
        let Some(expect) = lists.get(std::ffi::OsStr::new(of)) else {
            continue;
        };
        let counts =
            decode_file(&fs::read(&path)?, expect).with_context(|| path.display().to_string())?;
        let is_plain = parameters.starts_with("0.");
        ensure!(
            !is_plain || counts.1 == 0,
            "{}: {} sections are refused",
            path.display(),
            counts.1
        );
        (encoded, sections, refused) = (encoded + 1, sections + counts.0, refused + counts.1);
    }
    ensure!(encoded > 0, "there are no files in {}", source.display());
    Ok(Outcome::Passed(Passed {
        version: commit(&source),
        cases: encoded,
        table: String::new(),
        differences: format!(
            "{sections} sections; {refused} refer to a dynamic table, which gannet does not offer, and are refused"
        ),
    }))
}

/// The sections of a list in text form: a field a line, an empty line after each.
fn sections_of(text: &str) -> Vec<Section> {
    let mut sections = vec![Section::new()];
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match line.split_once('\t') {
            Some((name, value)) => {
                let last = sections.last_mut().expect("there is one");
                last.push(owned(name.as_bytes(), value.as_bytes()));
            }
            None => sections.push(Section::new()),
        }
    }
    sections.retain(|section| !section.is_empty());
    sections
}

/// Decodes a file: numbers of streams with their bytes. Returns how many sections were right, and how many refused.
fn decode_file(mut file: &[u8], expect: &[Section]) -> Result<(usize, usize)> {
    let (mut right, mut refused) = (0, 0);
    while let Some((stream, rest)) = file.split_first_chunk::<8>() {
        let (len, rest) = rest.split_first_chunk::<4>().context("no length")?;
        let len = u32::from_be_bytes(*len) as usize;
        let (bytes, rest) = rest.split_at_checked(len).context("too short")?;
        file = rest;
        let stream = u64::from_be_bytes(*stream);
        // Stream 0 is that of the encoder.
        let Some(index) = stream.checked_sub(1) else {
            continue;
        };
        let mut fields = Section::new();
        match decode_each(bytes, |name, value| fields.push(owned(name, value))) {
            Ok(()) => {
                ensure!(
                    expect.get(index as usize) == Some(&fields),
                    "stream {stream} differs"
                );
                right += 1;
            }
            Err(CodingError::Dynamic) => refused += 1,
            Err(why) => anyhow::bail!("stream {stream}: {why:?}"),
        }
    }
    Ok((right, refused))
}

/// All files below a folder that are wanted, in order.
pub(super) fn files(folder: &Path, is_wanted: fn(&Path) -> bool) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            match path.is_dir() {
                true => folders.push(path),
                false if is_wanted(&path) => found.push(path),
                false => {}
            }
        }
    }
    found.sort();
    Ok(found)
}

pub(super) fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|it| it == extension)
}

fn owned(name: &[u8], value: &[u8]) -> (Vec<u8>, Vec<u8>) {
    (name.to_vec(), value.to_vec())
}

fn hex(text: &str) -> Result<Vec<u8>> {
    (0..text.len())
        .step_by(2)
        .map(|at| {
            Ok(u8::from_str_radix(
                text.get(at..at + 2).context("an odd length")?,
                16,
            )?)
        })
        .collect()
}
