//! The contents of a run's files over time: the oracle of response bodies.
//!
//! Every incarnation of a file (created, put in place by rename, or overwritten in place) has
//! unique bytes; other changes in place only move its end. A body therefore identifies its
//! incarnation, and any slice of it can be checked on its own.

use std::collections::BTreeMap;
use std::io::Read;

use gannet_io::sim::{Random, SimHandle};

/// How long a change may go unnoticed, nanoseconds: one second as promised, and a margin for late
/// operations.
const NOTICED_NS: u64 = 1_100_000_000;

/// A file of a run.
#[derive(Default)]
struct Tracked {
    /// The bytes of each incarnation, up to its maximum length.
    incarnations: Vec<Vec<u8>>,
    spells: Vec<Spell>,
    is_sidecar: bool,
}

/// A period during which a path had one content.
struct Spell {
    from: u64,
    to: u64,
    /// Incarnation and length; `None` while there was no file.
    what: Option<(usize, u64)>,
}

/// The content that an entity tag identifies.
struct Bound {
    len: u64,
    incarnations: Vec<usize>,
    modified: Option<String>,
}

/// All files of a run.
pub(crate) struct Files {
    disk: SimHandle,
    files: BTreeMap<String, Tracked>,
    tags: BTreeMap<(String, String), Bound>,
    /// Codings that the server has made, by tag.
    coded: BTreeMap<String, Vec<u8>>,
    is_live: bool,
}

/// A slice of a representation in a response.
pub(crate) struct Slice<'a> {
    pub(crate) path: &'a str,
    /// When it was requested, and when the response head was read.
    pub(crate) window: (u64, u64),
    /// Length of the whole representation.
    pub(crate) total: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: &'a [u8],
    pub(crate) tag: &'a str,
    pub(crate) modified: Option<&'a str>,
}

impl Files {
    /// No files yet; in an archive (`!is_live`) they never change.
    pub(crate) fn new(disk: SimHandle, is_live: bool) -> Self {
        Self {
            disk,
            files: BTreeMap::new(),
            tags: BTreeMap::new(),
            coded: BTreeMap::new(),
            is_live,
        }
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        let is_asked = |file: &Tracked| !file.is_sidecar;
        let named = self.files.iter().filter(|(_, file)| is_asked(file));
        named.map(|(path, _)| path.clone()).collect()
    }

    /// Creates a new incarnation of a file; returns its bytes.
    pub(crate) fn put(&mut self, path: &str, len: u64, random: &mut Random) -> Vec<u8> {
        let bytes = self.incarnate(path, len, random);
        if self.is_live {
            self.disk.put_file(path, bytes.clone());
        }
        bytes
    }

    fn incarnate(&mut self, path: &str, len: u64, random: &mut Random) -> Vec<u8> {
        let now = self.disk.now().0;
        let file = self.files.entry(path.into()).or_default();
        file.is_sidecar = path.ends_with(".gz");
        let key = random.next_u64();
        let is_text = path.ends_with(".html") || path.ends_with(".txt");
        let bytes = pattern(key, len * 2 + 64);
        file.incarnations.push(match is_text {
            true => text(&bytes),
            false => bytes,
        });
        file.turn(now, Some((file.incarnations.len() - 1, len)));
        file.incarnations.last().unwrap()[..len as usize].to_vec()
    }

    /// Changes a random file: it is replaced by rename, deleted, slow, and if `in_place` truncated,
    /// extended, overwritten or broken.
    pub(crate) fn change(&mut self, random: &mut Random, in_place: bool) {
        let now = self.disk.now().0;
        let paths: Vec<_> = self.files.keys().cloned().collect();
        let path = &paths[random.below(paths.len() as u64) as usize];
        let file = self.files.get_mut(path).unwrap();
        let current = file.spells.last().unwrap().what;
        let Some((incarnation, len)) = current else {
            let len = file.incarnations.last().unwrap().len() as u64 / 2;
            self.put(path, len, random);
            return;
        };
        match random.below(if in_place { 14 } else { 5 }) {
            0 => {
                file.turn(now, None);
                self.disk.remove_file(path);
            }
            1..4 => {
                let len = if random.chance(500) {
                    len
                } else {
                    random.below(len * 2 + 2)
                };
                self.put(path, len.min(400_000), random);
            }
            4 => self.disk.slow_file(path, random.below(800_000_000)),
            5 => self.disk.break_file(path, Some(random.below(len + 1))),
            6..9 => {
                let len = random.below(len + 1);
                self.disk.truncate_file(path, len);
                file.turn(now, Some((incarnation, len)));
            }
            9 => {
                let longest = file.incarnations[incarnation].len() as u64;
                let len = len + random.below(longest - len + 1);
                let bytes = &file.incarnations[incarnation][..len as usize];
                self.disk.overwrite_file(path, bytes);
                file.turn(now, Some((incarnation, len)));
            }
            how => {
                // As `cp` does: other bytes in the same file, fewer, more, or as many.
                let len = match how {
                    10 => random.below(len + 1),
                    11 => len + 1 + random.below(len + 1),
                    _ => len,
                };
                let bytes = self.incarnate(path, len.min(400_000), random);
                self.disk.overwrite_file(path, bytes);
            }
        }
    }

    /// Whether the file may have been missing for a request in this window.
    pub(crate) fn may_be_missing(&self, path: &str, window: (u64, u64)) -> bool {
        let Some(file) = self.files.get(path) else {
            return true;
        };
        file.seen(window).any(|spell| spell.what.is_none())
    }

    /// An entity tag seen for the path, if any.
    pub(crate) fn some_tag(&self, path: &str, random: &mut Random) -> Option<String> {
        let of_path: Vec<_> = self.tags.keys().filter(|(p, _)| p == path).collect();
        let index = random.below(of_path.len() as u64) as usize;
        of_path.get(index).map(|(_, tag)| tag.clone())
    }

    /// Checks a slice: it must belong to one version of the file, the same one that its tag
    /// identified before, and one that existed around the time of the request.
    pub(crate) fn judge(&mut self, slice: &Slice<'_>) -> Result<(), String> {
        let Slice {
            path, total, tag, ..
        } = *slice;
        let file = self.files.get(path).ok_or("no such file was ever there")?;
        let range = slice.offset as usize..slice.offset as usize + slice.bytes.len();
        if range.end as u64 > total {
            return Err(format!("{range:?} of {total} bytes"));
        }
        let mut incarnations: Vec<usize> = file
            .seen(slice.window)
            .filter_map(|spell| spell.what)
            .filter(|&(k, len)| len == total && file.incarnations[k][range.clone()] == *slice.bytes)
            .map(|(k, _)| k)
            .collect();
        incarnations.dedup();
        if incarnations.is_empty() {
            return Err(file.explain(slice));
        }
        let key = (path.to_owned(), tag.to_owned());
        let bound = self.tags.entry(key).or_insert_with(|| Bound {
            len: total,
            incarnations: incarnations.clone(),
            modified: None,
        });
        bound.incarnations.retain(|k| incarnations.contains(k));
        if bound.len != total || bound.incarnations.is_empty() {
            return Err(format!(
                "the tag {tag} has stood for another content of {path}"
            ));
        }
        if let Some(modified) = slice.modified {
            let before = bound.modified.get_or_insert_with(|| modified.to_owned());
            if before != modified {
                return Err(format!("{tag} has two dates: {before}, {modified}"));
            }
        }
        Ok(())
    }
}

impl Files {
    /// Checks a slice of a coding that the server has made: decoded, it must be a version of the
    /// file; and its tag stands for these coded bytes alone.
    pub(crate) fn judge_coded(&mut self, slice: &Slice<'_>, coding: &str) -> Result<(), String> {
        let range = slice.offset as usize..slice.offset as usize + slice.bytes.len();
        if let Some(whole) = self.coded.get(slice.tag) {
            let is_same =
                whole.len() as u64 == slice.total && whole.get(range) == Some(slice.bytes);
            if !is_same {
                return Err(format!("the tag {} has stood for other bytes", slice.tag));
            }
        }
        if slice.bytes.len() as u64 != slice.total {
            return Ok(());
        }
        let decoded = decode(coding, slice.bytes)?;
        self.judge(&Slice {
            total: decoded.len() as u64,
            offset: 0,
            bytes: &decoded,
            ..*slice
        })?;
        self.coded
            .insert(slice.tag.to_owned(), slice.bytes.to_vec());
        Ok(())
    }
}

/// The content of a coding.
pub(crate) fn decode(coding: &str, coded: &[u8]) -> Result<Vec<u8>, String> {
    let mut decoded = Vec::new();
    match coding {
        "br" => {
            let mut decoder = brotli::Decompressor::new(coded, 4_096);
            let read = decoder.read_to_end(&mut decoded);
            read.map_err(|error| format!("br: {error}"))?;
        }
        "zstd" => decoded = zstd::decode_all(coded).map_err(|error| format!("zstd: {error}"))?,
        _ => {
            decoded.resize(1 << 20, 0);
            let mut decoder = libdeflater::Decompressor::new();
            let len = decoder.gzip_decompress(coded, &mut decoded);
            decoded.truncate(len.map_err(|error| format!("gzip: {error}"))?);
        }
    }
    Ok(decoded)
}

/// As unique, and it can be compressed.
fn text(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|byte| b'a' + byte % 16).collect()
}

impl Tracked {
    fn turn(&mut self, now: u64, what: Option<(usize, u64)>) {
        if let Some(last) = self.spells.last_mut() {
            last.to = now;
        }
        let to = u64::MAX;
        self.spells.push(Spell {
            from: now,
            to,
            what,
        });
    }

    /// Contents that a request in this window may see.
    fn seen(&self, (asked, answered): (u64, u64)) -> impl Iterator<Item = &Spell> {
        self.spells.iter().filter(move |spell| {
            spell.from <= answered && spell.to.saturating_add(NOTICED_NS) >= asked
        })
    }

    fn explain(&self, slice: &Slice<'_>) -> String {
        let Slice {
            path,
            offset,
            bytes,
            total,
            ..
        } = slice;
        let start = *offset as usize;
        let known: Vec<_> = self
            .spells
            .iter()
            .filter_map(|spell| {
                let (k, len) = spell.what?;
                let known = self.incarnations[k].get(start..).unwrap_or_default();
                let same = known.iter().zip(*bytes).take_while(|(a, b)| a == b).count();
                Some((k, len, spell.from, spell.to, same))
            })
            .collect();
        format!(
            "{path}: bytes {offset}..+{} of {total} belong to no version of the time {:?}; \
             (incarnation, length, from, to, bytes in common): {known:?}; zeros: {}",
            bytes.len(),
            slice.window,
            bytes.iter().filter(|&&byte| byte == 0).count(),
        )
    }
}

/// Unique bytes.
fn pattern(key: u64, len: u64) -> Vec<u8> {
    let mut random = Random::new(key);
    let mut bytes = Vec::with_capacity(len as usize + 8);
    while (bytes.len() as u64) < len {
        bytes.extend(random.next_u64().to_le_bytes());
    }
    bytes.truncate(len as usize);
    bytes
}
