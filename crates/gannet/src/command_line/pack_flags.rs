//! The table of `gannet pack`: every flag with its texts and what it sets.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::ValueHint;
use gannet_archive::Coding;

use crate::command_line::flag::{FILE, Flag, Group, Value, one, one_of};
use crate::command_line::settings::ColourChoice;
use crate::command_line::values::{choice, colour, content_type, number, path, switch, text};
use crate::pack::Effort;

/// The settings of `pack`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PackSettings {
    /// The archive to write; `None` takes the directory's name.
    pub output: Option<PathBuf>,
    /// How hard to compress.
    pub effort: Effort,
    /// Codings to try.
    pub codings: Vec<Coding>,
    /// Unknown paths are answered with `/index.html`.
    pub spa: bool,
    /// Folders without an index page get a listing.
    pub listing: bool,
    /// `/about` answers `about.html`.
    pub clean_urls: bool,
    /// Dotfiles are packed.
    pub dotfiles: bool,
    /// Content types by suffix.
    pub types: Vec<(String, String)>,
    /// Threads; 0 means one per core.
    pub threads: usize,
    /// Say nothing but errors.
    pub quiet: bool,
    /// Whether colours are used.
    pub colour: ColourChoice,
}

impl Default for PackSettings {
    fn default() -> Self {
        Self {
            output: None,
            effort: Effort::default(),
            codings: vec![Coding::Gzip, Coding::Brotli, Coding::Zstd],
            spa: false,
            listing: false,
            clean_urls: true,
            dotfiles: false,
            types: Vec::new(),
            threads: 0,
            quiet: false,
            colour: ColourChoice::Auto,
        }
    }
}

/// Every flag of `gannet pack`.
pub static PACK_FLAGS: &[Flag<PackSettings>] = &[
    Flag {
        name: "output",
        short: Some('o'),
        value: FILE,
        group: Group::Packing,
        default: "",
        brief: "the archive; the directory's name with .gannet if absent",
        details: "One that is there is replaced when the new one is complete.",
        is_common: true,
        apply: |settings, values| {
            settings.output = Some(path(values)?);
            Ok(())
        },
    },
    Flag {
        name: "fast",
        short: None,
        value: Value::Switch,
        group: Group::Packing,
        default: "false",
        brief: "compress quickly instead of well",
        details: "For trying things out: packing is paid once, each saved byte at every request.",
        is_common: true,
        apply: |settings, values| {
            settings.effort = if switch(values)? {
                Effort::Fast
            } else {
                Effort::Best
            };
            Ok(())
        },
    },
    Flag {
        name: "codings",
        short: None,
        value: one("LIST"),
        group: Group::Packing,
        default: "gzip,br,zstd",
        brief: "codings to try, with commas between, or none",
        details: "A coding is stored where it makes a file enough smaller. The plain form always \
            is.",
        is_common: true,
        apply: |settings, values| {
            settings.codings = codings(values)?;
            Ok(())
        },
    },
    Flag {
        name: "spa",
        short: None,
        value: Value::Switch,
        group: Group::Packing,
        default: "false",
        brief: "answer unknown paths with /index.html",
        details: "For single-page applications.",
        is_common: true,
        apply: |settings, values| {
            settings.spa = switch(values)?;
            Ok(())
        },
    },
    Flag {
        name: "listing",
        short: None,
        value: Value::Switch,
        group: Group::Packing,
        default: "false",
        brief: "pack lists of directories without index.html",
        details: "",
        is_common: true,
        apply: |settings, values| {
            settings.listing = switch(values)?;
            Ok(())
        },
    },
    Flag {
        name: "no-clean-urls",
        short: None,
        value: Value::Switch,
        group: Group::Packing,
        default: "false",
        brief: "/about does not answer about.html",
        details: "",
        is_common: true,
        apply: |settings, values| {
            settings.clean_urls = !switch(values)?;
            Ok(())
        },
    },
    Flag {
        name: "dotfiles",
        short: None,
        value: Value::Switch,
        group: Group::Packing,
        default: "false",
        brief: "pack names that begin with a dot, too",
        details: ".well-known is always packed.",
        is_common: true,
        apply: |settings, values| {
            settings.dotfiles = switch(values)?;
            Ok(())
        },
    },
    Flag {
        name: "type",
        short: None,
        value: Value::Many {
            name: "SUFFIX=TYPE",
            separator: ',',
            joint: Some("="),
            hint: ValueHint::Other,
        },
        group: Group::Packing,
        default: "",
        brief: "the content type of a suffix; repeatable",
        details: "Such as md=text/markdown. In the configuration it may be a table.",
        is_common: true,
        apply: |settings, values| {
            settings.types = values.iter().map(content_type).collect::<Result<_, _>>()?;
            Ok(())
        },
    },
    Flag {
        name: "threads",
        short: None,
        value: one("N"),
        group: Group::Packing,
        default: "0",
        brief: "threads that compress; 0: one for each core",
        details: "The archive is the same whatever their number.",
        is_common: true,
        apply: |settings, values| {
            let count: u16 = number(values, "from 0 to 1024")?;
            if count > 1024 {
                return Err("not a whole number from 0 to 1024".into());
            }
            settings.threads = usize::from(count);
            Ok(())
        },
    },
    Flag {
        name: "quiet",
        short: Some('q'),
        value: Value::Switch,
        group: Group::Packing,
        default: "false",
        brief: "no progress and no table, errors only",
        details: "",
        is_common: true,
        apply: |settings, values| {
            settings.quiet = switch(values)?;
            Ok(())
        },
    },
    Flag {
        name: "color",
        short: None,
        value: one_of("WHEN", &["auto", "always", "never"]),
        group: Group::Packing,
        default: "auto",
        brief: "auto, always or never",
        details: "",
        is_common: false,
        apply: |settings, values| {
            settings.colour = colour(values)?;
            Ok(())
        },
    },
];

/// `gzip,br,zstd`, or `none`.
fn codings(values: &[OsString]) -> Result<Vec<Coding>, String> {
    let list = text(values)?;
    if list == "none" {
        return Ok(Vec::new());
    }
    let set = [
        ("gzip", Coding::Gzip),
        ("br", Coding::Brotli),
        ("zstd", Coding::Zstd),
    ];
    list.split(',')
        .map(|name| choice(&[OsString::from(name.trim())], &set))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_that_is_described_is_the_default_that_holds() {
        for flag in PACK_FLAGS.iter().filter(|flag| !flag.default.is_empty()) {
            let mut settings = PackSettings::default();
            (flag.apply)(&mut settings, &[OsString::from(flag.default)]).expect(flag.name);
            assert_eq!(settings, PackSettings::default(), "--{}", flag.name);
        }
    }

    #[test]
    fn codings_are_a_list_or_none() {
        let check = |text: &str, expect: Option<&[Coding]>| {
            let got = codings(&[OsString::from(text)]).ok();
            assert_eq!(got.as_deref(), expect, "{text:?}");
        };
        check("none", Some(&[]));
        check("br", Some(&[Coding::Brotli]));
        check("zstd, gzip", Some(&[Coding::Zstd, Coding::Gzip]));
        check("", None);
        check("deflate", None);
        check("br,", None);
    }
}
