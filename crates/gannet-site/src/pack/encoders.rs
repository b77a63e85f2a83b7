//! Encoders: the library for each coding, and its level.

use std::fmt;

use gannet_archive::Coding;

use super::limits::PACKED_LEVEL;

/// The compression effort where no level is given.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Effort {
    /// Fast, for trial builds.
    Fast,
    /// Within three percent of the smallest, in a third of the time.
    #[default]
    Standard,
    /// Small: a cost paid once, saved at every request.
    Best,
}

/// An encoder with its level.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Encoder {
    /// `gzip` by libdeflate, levels 1 to 12.
    Libdeflate(u8),
    /// `gzip` by Zopfli: a few percent smaller than libdeflate's best, a hundred times slower.
    Zopfli,
    /// `gzip` by miniz_oxide, without matches: bytes in codes of their frequencies alone. Larger than any
    /// other, and the least work to decode.
    Huffman,
    /// `br`, levels 0 to 11.
    Brotli(u8),
    /// `zstd`, levels 1 to 22; the window stays within 8 MiB (RFC 9659) at every level.
    Zstd(u8),
}

/// A coding with an explicit encoder, or with the one of the chosen effort.
pub type CodingChoice = (Coding, Option<Encoder>);

impl Encoder {
    /// The encoder of a coding at an effort; `None` for identity.
    #[must_use]
    pub fn of(coding: Coding, effort: Effort) -> Option<Self> {
        let (gzip, brotli, zstd) = match effort {
            Effort::Fast => (Self::Libdeflate(6), 5, 6),
            Effort::Standard => (Self::Libdeflate(8), 10, 9),
            Effort::Best => (Self::Libdeflate(12), 11, 19),
        };
        match coding {
            Coding::Identity | Coding::DictionaryBrotli | Coding::DictionaryZstd => None,
            Coding::Gzip => Some(gzip),
            Coding::Brotli => Some(Self::Brotli(brotli)),
            Coding::Zstd => Some(Self::Zstd(zstd)),
        }
    }

    /// One encoder per coding, at an effort.
    #[must_use]
    pub fn all(effort: Effort) -> Vec<Self> {
        Coding::ALL
            .into_iter()
            .filter_map(|coding| Self::of(coding, effort))
            .collect()
    }

    /// The encoders of `choices`, sorted by coding, so that the order of the choices makes no
    /// difference.
    #[must_use]
    pub fn chosen(choices: &[CodingChoice], effort: Effort) -> Vec<Self> {
        let mut chosen: Vec<_> = choices
            .iter()
            .filter_map(|(coding, encoder)| encoder.or_else(|| Self::of(*coding, effort)))
            .collect();
        chosen.sort_by_key(|encoder| encoder.coding());
        chosen
    }

    /// The coding it produces.
    #[must_use]
    pub fn coding(self) -> Coding {
        match self {
            Self::Libdeflate(_) | Self::Zopfli | Self::Huffman => Coding::Gzip,
            Self::Brotli(_) => Coding::Brotli,
            Self::Zstd(_) => Coding::Zstd,
        }
    }

    /// About how many nanoseconds it takes for a byte of text, to estimate how much is left.
    pub(super) fn work_per_byte(self) -> u64 {
        match self {
            Self::Libdeflate(..=9) | Self::Huffman => 20,
            Self::Libdeflate(10) => 110,
            Self::Libdeflate(11) => 220,
            Self::Libdeflate(_) => 270,
            Self::Zopfli => 8000,
            Self::Brotli(..=4) => 20,
            Self::Brotli(5..=6) => 60,
            Self::Brotli(7..=9) => 200,
            Self::Brotli(10) => 640,
            Self::Brotli(_) => 1400,
            Self::Zstd(..=6) => 10,
            Self::Zstd(7..=12) => 40,
            Self::Zstd(13..=16) => 200,
            Self::Zstd(17..=18) => 350,
            Self::Zstd(_) => 540,
        }
    }

    /// The library and its version, since another version may produce other bytes.
    fn library(self) -> &'static str {
        match self {
            Self::Libdeflate(_) => LIBDEFLATER,
            Self::Zopfli => ZOPFLI,
            Self::Huffman => MINIZ,
            Self::Brotli(_) => BROTLI,
            Self::Zstd(_) => ZSTD,
        }
    }

    /// Identifies everything its output depends on besides the input: `br=11 brotli-9.1.1`.
    #[must_use]
    pub fn recipe(self) -> String {
        // See `brotli_window_bits`, and `compress` of gannet-brotli.
        let further = match self {
            Self::Brotli(5..=9) => " window 17-24",
            Self::Brotli(10) => " words to 512 KiB",
            _ => "",
        };
        format!("{self} {}{further}", self.library())
    }
}

/// The same for the packed metadata, which is no part of the build id: files of one release must not differ in it.
pub(super) fn packed_recipe() -> String {
    format!("index=zstd {PACKED_LEVEL} {ZSTD}")
}

/// Formats it as typed: `gzip=12`.
impl fmt::Display for Encoder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.coding().name();
        match self {
            Self::Libdeflate(level) | Self::Brotli(level) | Self::Zstd(level) => {
                write!(out, "{name}={level}")
            }
            Self::Zopfli => write!(out, "{name}=zopfli"),
            Self::Huffman => write!(out, "{name}=huffman"),
        }
    }
}

/// Parses `gzip=12,br,zstd=19`, or `none`.
///
/// # Errors
/// A coding or level is unknown, or a coding is given twice; the message says which.
pub fn parse_list(list: &str) -> Result<Vec<CodingChoice>, String> {
    if list == "none" {
        return Ok(Vec::new());
    }
    let mut choices: Vec<CodingChoice> = Vec::new();
    for part in list.split(',') {
        let choice = parse_one(part.trim())?;
        if choices.iter().any(|(coding, _)| *coding == choice.0) {
            return Err(format!("'{}' is given twice", choice.0.name()));
        }
        choices.push(choice);
    }
    Ok(choices)
}

fn parse_one(text: &str) -> Result<CodingChoice, String> {
    let (name, level) = match text.split_once('=') {
        Some((name, level)) => (name, Some(level)),
        None => (text, None),
    };
    let coding = match name {
        "gzip" => Coding::Gzip,
        "br" | "brotli" => Coding::Brotli,
        "zstd" => Coding::Zstd,
        _ => return Err(format!("'{name}' is not one of gzip, br, zstd; or none")),
    };
    let Some(level) = level else {
        return Ok((coding, None));
    };
    match (coding, level) {
        (Coding::Gzip, "zopfli") => return Ok((coding, Some(Encoder::Zopfli))),
        (Coding::Gzip, "huffman") => return Ok((coding, Some(Encoder::Huffman))),
        _ => {}
    }
    let number = |range: std::ops::RangeInclusive<u8>, further: &str| {
        let parsed = level.parse().ok().filter(|level| range.contains(level));
        let (start, end) = (range.start(), range.end());
        parsed.ok_or_else(|| {
            format!("'{text}': the level of {name} is a number from {start} to {end}{further}")
        })
    };
    let encoder = match coding {
        Coding::Gzip => Encoder::Libdeflate(number(1..=12, ", zopfli or huffman")?),
        Coding::Brotli => Encoder::Brotli(number(0..=11, "")?),
        _ => Encoder::Zstd(number(1..=22, "")?),
    };
    Ok((coding, Some(encoder)))
}

// A test compares these with the lock file.
const LIBDEFLATER: &str = "libdeflater-1.26.1";
const ZOPFLI: &str = "zopfli-0.8.4";
const MINIZ: &str = "miniz_oxide-0.9.1";
const BROTLI: &str = "brotli-9.1.1";
const ZSTD: &str = "zstd-0.14.3";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_parsed_and_faults_named() {
        let check = |text: &str, expect: Result<&str, &str>| {
            let got = parse_list(text).map(|choices| {
                let encoders = Encoder::chosen(&choices, Effort::Standard);
                let names: Vec<_> = encoders.iter().map(ToString::to_string).collect();
                names.join(",")
            });
            assert_eq!(got.as_deref().map_err(String::as_str), expect, "{text:?}");
        };
        check("none", Ok(""));
        check("br", Ok("br=10"));
        check("zstd=22, gzip=zopfli", Ok("gzip=zopfli,zstd=22"));
        check("gzip=huffman", Ok("gzip=huffman"));
        check("gzip,br,zstd", Ok("gzip=8,br=10,zstd=9"));
        let bad = "'gzip=13': the level of gzip is a number from 1 to 12, zopfli or huffman";
        check("gzip=13", Err(bad));
        check(
            "br=zopfli",
            Err("'br=zopfli': the level of br is a number from 0 to 11"),
        );
        check("", Err("'' is not one of gzip, br, zstd; or none"));
        check(
            "deflate",
            Err("'deflate' is not one of gzip, br, zstd; or none"),
        );
        check("br,br=4", Err("'br' is given twice"));
    }

    #[test]
    fn recipes_name_the_libraries_that_are_linked() {
        let lock = include_str!("../../../../Cargo.lock");
        for library in [LIBDEFLATER, ZOPFLI, MINIZ, BROTLI, ZSTD] {
            let (name, version) = library.split_once('-').expect("name and version");
            let package = format!("name = \"{name}\"\nversion = \"{version}\"\n");
            assert!(lock.contains(&package), "Cargo.lock has no {library}");
        }
    }
}
