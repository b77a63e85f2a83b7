//! The table of `gannet pack`: every flag with its texts and what it sets.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::ValueHint;
use gannet_archive::Coding;
use gannet_site::pack::encoders::{CodingChoice, parse_list};

use crate::command_line::flag::{FILE, FILES, Flag, Group, Value, one, one_of};
use crate::command_line::settings::ColourChoice;
use crate::command_line::site_flags::{self, HelpPlace, OfSite};
use crate::command_line::site_settings::SiteSettings;
use crate::command_line::values::{choice, colour, number, path, paths, switch, text};
use crate::quantities::parse_duration_ms;

/// The settings of `pack`.
#[derive(Clone, Debug, Eq, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub struct PackSettings {
    /// The archive to write; `None` takes the directory's name.
    pub output: Option<PathBuf>,
    /// The directory has a folder for each host.
    pub hosts: bool,
    /// Compress quickly.
    pub fast: bool,
    /// Spend more time on compression for smaller files.
    pub best: bool,
    /// Codings to try.
    pub compress: Vec<CodingChoice>,
    /// Bodies that are stored as gzip or Brotli are not stored uncoded.
    pub drop_identity: bool,
    /// Files that exist only compressed are also packed decompressed.
    pub compressed_only: bool,
    /// Content types to compress, or not, overriding the built-in rule.
    pub compress_types: Vec<(String, bool)>,
    /// Unknown paths are answered with `/index.html`.
    pub spa: bool,
    /// Folders without an index page get a listing.
    pub listing: bool,
    /// `/about` answers `about.html`.
    pub clean_urls: bool,
    /// How paths are resolved, and which fields answers have.
    pub site: SiteSettings,
    /// Every answer has a digest of its representation.
    pub repr_digest: bool,
    /// Pages get a content security policy, which is enforced or not.
    pub csp: Option<bool>,
    /// Dotfiles are packed.
    pub dotfiles: bool,
    /// Links out of the site are followed.
    pub follow_links: bool,
    /// Patterns to exclude.
    pub exclude: Vec<String>,
    /// Patterns to include, overriding exclusions.
    pub include: Vec<String>,
    /// List all skipped files.
    pub list_skipped: bool,
    /// A directory for state that later builds can reuse.
    pub cache: Option<PathBuf>,
    /// Files are read even if they look unchanged.
    pub verify_sources: bool,
    /// Nothing from earlier builds is reused.
    pub fresh: bool,
    /// The secret key to sign with.
    pub sign: Option<PathBuf>,
    /// The archive of an earlier release.
    pub previous: Vec<PathBuf>,
    /// For how many seconds files that the site no longer has are packed.
    pub carry: Option<u64>,
    /// Content types by suffix.
    pub types: Vec<(String, String)>,
    /// Threads; 0 means one per core.
    pub threads: usize,
    /// Print errors only.
    pub quiet: bool,
    /// Whether colours are used.
    pub colour: ColourChoice,
}

impl Default for PackSettings {
    fn default() -> Self {
        Self {
            output: None,
            hosts: false,
            fast: false,
            best: false,
            compress: [Coding::Gzip, Coding::Brotli, Coding::Zstd]
                .map(|coding| (coding, None))
                .to_vec(),
            drop_identity: false,
            compressed_only: false,
            compress_types: Vec::new(),
            spa: false,
            listing: false,
            clean_urls: true,
            site: SiteSettings::default(),
            repr_digest: false,
            csp: None,
            dotfiles: false,
            follow_links: false,
            exclude: Vec::new(),
            include: Vec::new(),
            list_skipped: false,
            cache: None,
            verify_sources: false,
            fresh: false,
            sign: None,
            previous: Vec::new(),
            carry: None,
            types: Vec::new(),
            threads: 0,
            quiet: false,
            colour: ColourChoice::Auto,
        }
    }
}

impl OfSite for PackSettings {
    fn site(&mut self) -> &mut SiteSettings {
        &mut self.site
    }

    fn spa(&mut self) -> &mut bool {
        &mut self.spa
    }

    fn clean_urls(&mut self) -> &mut bool {
        &mut self.clean_urls
    }

    fn hosts(&mut self) -> &mut bool {
        &mut self.hosts
    }

    fn dotfiles(&mut self) -> &mut bool {
        &mut self.dotfiles
    }

    fn types(&mut self) -> &mut Vec<(String, String)> {
        &mut self.types
    }
}

/// Visibility and heading of most flags that `serve` and `pack` share.
const COMMON: HelpPlace = HelpPlace::common(Group::Answers);
const FURTHER: HelpPlace = HelpPlace::further(Group::Answers);

/// Every flag of `gannet pack`.
pub static PACK_FLAGS: &[Flag<PackSettings>] = &[
    Flag {
        name: "output",
        short: Some('o'),
        value: FILE,
        group: Group::Archive,
        default: "",
        brief: "the archive; by default the site's NAME.gannet",
        details: "An existing one is replaced when the new one is complete.",
        is_common: true,
        apply: |settings, values| {
            settings.output = Some(path(values)?);
            Ok(())
        },
    },
    site_flags::hosts(
        HelpPlace::further(Group::Archive),
        "A folder named like a host is its site; _default serves all other hosts.",
    ),
    Flag {
        name: "fast",
        short: None,
        value: Value::Switch,
        group: Group::Compression,
        default: "false",
        brief: "compress quickly: gzip=6,br=5,zstd=6",
        details: "For trying things out: you pack once, but save bytes on every request.",
        is_common: true,
        apply: |settings, values| {
            settings.fast = switch(values)?;
            Ok(())
        },
    },
    Flag {
        name: "best",
        short: None,
        value: Value::Switch,
        group: Group::Compression,
        default: "false",
        brief: "compress better: gzip=12,br=11,zstd=19",
        details: "Takes about three times as long as the default, to save three percent.",
        is_common: true,
        apply: |settings, values| {
            settings.best = switch(values)?;
            Ok(())
        },
    },
    Flag {
        name: "compress",
        short: None,
        value: one("LIST"),
        group: Group::Compression,
        default: "gzip,br,zstd",
        brief: "codings to try: gzip=9,br, or none",
        details: "A coding is stored where it makes a file sufficiently smaller. Levels (gzip=9) are 1 to \
            12, zopfli or huffman for gzip, 0 to 11 for br, 1 to 22 for zstd; without one, \
            --fast and --best decide.",
        is_common: true,
        apply: |settings, values| {
            settings.compress = parse_list(text(values)?)?;
            Ok(())
        },
    },
    Flag {
        name: "drop-identity",
        short: None,
        value: Value::Switch,
        group: Group::Compression,
        default: "false",
        brief: "where gzip or brotli is stored, omit the uncoded file",
        details: "Makes the archive smaller; for a client that accepts no stored coding the \
            server decompresses the body. Files above 1 MiB are stored uncoded nevertheless.",
        is_common: false,
        apply: |settings, values| {
            settings.drop_identity = switch(values)?;
            Ok(())
        },
    },
    Flag {
        name: "compressed-only",
        short: None,
        value: Value::Switch,
        group: Group::Compression,
        default: "false",
        brief: "if only NAME.gz, .br or .zst exists, also pack NAME",
        details: "It is decompressed and then packed like any other file: with --drop-identity \
            only its compressed form is stored.",
        is_common: false,
        apply: |settings, values| {
            settings.compressed_only = switch(values)?;
            Ok(())
        },
    },
    Flag {
        name: "compress-type",
        short: None,
        value: Value::Many {
            name: "TYPE=yes|no",
            separator: ',',
            joint: Some("="),
            hint: ValueHint::Other,
        },
        group: Group::Compression,
        default: "",
        brief: "whether to compress a content type; repeatable",
        details: "Such as application/x-tar=yes or font/*=yes. Images, audio, video, web fonts \
            and archives are not compressed otherwise.",
        is_common: false,
        apply: |settings, values| {
            settings.compress_types = values.iter().map(compress_type).collect::<Result<_, _>>()?;
            Ok(())
        },
    },
    site_flags::spa(COMMON, "For single-page applications."),
    Flag {
        name: "listing",
        short: None,
        value: Value::Switch,
        group: Group::Answers,
        default: "false",
        brief: "pack listings of folders without an index page",
        details: "",
        is_common: true,
        apply: |settings, values| {
            settings.listing = switch(values)?;
            Ok(())
        },
    },
    site_flags::no_clean_urls(FURTHER),
    site_flags::compat(COMMON),
    site_flags::no_rules(FURTHER),
    site_flags::index(FURTHER),
    site_flags::trailing_slash(FURTHER),
    site_flags::no_security_fields(
        FURTHER,
        "X-Content-Type-Options stays. Change single fields with _headers.",
    ),
    site_flags::cors(
        FURTHER,
        "Such as https://app.example.org. Preflight requests for packed paths are answered \
            accordingly, without this flag on gannet serve.",
    ),
    Flag {
        name: "csp",
        short: None,
        value: one_of("HOW", &["off", "report", "enforce"]),
        group: Group::Answers,
        default: "off",
        brief: "a content security policy for each page: off, report or enforce",
        details: "Made from the hashes of the page's inline scripts and styles, and from the hosts \
            that it names. report logs what it would block to the browser's console.",
        is_common: false,
        apply: |settings, values| {
            let set = [
                ("off", None),
                ("report", Some(false)),
                ("enforce", Some(true)),
            ];
            settings.csp = choice(values, &set)?;
            Ok(())
        },
    },
    Flag {
        name: "digest",
        short: None,
        value: one_of("ALGORITHM", &["off", "sha-256"]),
        group: Group::Answers,
        default: "off",
        brief: "a digest in every answer (Repr-Digest): off or sha-256",
        details: "Covers the whole representation in the coding sent (RFC 9530). Content-Digest is \
            sent on request (Want-Content-Digest).",
        is_common: false,
        apply: |settings, values| {
            settings.repr_digest = choice(values, &[("off", false), ("sha-256", true)])?;
            Ok(())
        },
    },
    site_flags::dotfiles(
        HelpPlace::common(Group::Files),
        "also pack names that start with a dot",
        ".well-known is always packed.",
    ),
    Flag {
        name: "exclude",
        short: None,
        value: PATTERNS,
        group: Group::Files,
        default: "",
        brief: "leave out by a .gitignore pattern; repeatable",
        details: "Overrides the patterns in .gannetignore files, which override the default \
            exclusions.",
        is_common: true,
        apply: |settings, values| {
            settings.exclude = patterns(values)?;
            Ok(())
        },
    },
    Flag {
        name: "include",
        short: None,
        value: PATTERNS,
        group: Group::Files,
        default: "",
        brief: "pack by a pattern, over exclusions; repeatable",
        details: "An excluded folder is not searched: include the folder too.",
        is_common: true,
        apply: |settings, values| {
            settings.include = patterns(values)?;
            Ok(())
        },
    },
    Flag {
        name: "list-skipped",
        short: None,
        value: Value::Switch,
        group: Group::Files,
        default: "false",
        brief: "list everything that was left out, and the rule responsible",
        details: "Without it the table is cut short.",
        is_common: false,
        apply: |settings, values| {
            settings.list_skipped = switch(values)?;
            Ok(())
        },
    },
    Flag {
        name: "cache",
        short: None,
        value: Value::One {
            name: "DIR",
            choices: &[],
            hint: ValueHint::DirPath,
        },
        group: Group::Builds,
        default: "",
        brief: "keep what later builds can reuse in this directory",
        details: "It also keeps the last two archives. Without it, gannet uses the archive being \
            replaced and a list of files in the user's cache directory.",
        is_common: false,
        apply: |settings, values| {
            settings.cache = Some(path(values)?);
            Ok(())
        },
    },
    Flag {
        name: "follow-links",
        short: None,
        value: Value::Switch,
        group: Group::Files,
        default: "false",
        brief: "pack what symbolic links out of the site lead to",
        details: "Without this, such a link is an error: who writes a site could otherwise \
            publish files of the machine that packs it.",
        is_common: false,
        apply: |settings, values| {
            settings.follow_links = switch(values)?;
            Ok(())
        },
    },
    Flag {
        name: "verify-sources",
        short: None,
        value: Value::Switch,
        group: Group::Builds,
        default: "false",
        brief: "read every file, even if it looks unchanged",
        details: "A file looks unchanged if its inode, length and times are the same as in the \
            last build.",
        is_common: false,
        apply: |settings, values| {
            settings.verify_sources = switch(values)?;
            Ok(())
        },
    },
    Flag {
        name: "fresh",
        short: None,
        value: Value::Switch,
        group: Group::Builds,
        default: "false",
        brief: "reuse nothing from earlier builds",
        details: "The archive is the same, except that names whose content changed are forgotten and \
            may be kept for a year again. It takes longer.",
        is_common: false,
        apply: |settings, values| {
            settings.fresh = switch(values)?;
            Ok(())
        },
    },
    Flag {
        name: "previous",
        short: None,
        value: FILES,
        group: Group::Builds,
        default: "",
        brief: "an earlier release, besides the archive being replaced; repeatable, newest first",
        details: "Of a store, the release in force. A name whose content has changed since is no \
            longer sent as immutable. New versions of its hashed scripts and styles are also \
            coded with the old ones as dictionaries (RFC 9842).",
        is_common: false,
        apply: |settings, values| {
            settings.previous = paths(values)?;
            Ok(())
        },
    },
    Flag {
        name: "carry",
        short: None,
        value: one("TIME"),
        group: Group::Builds,
        default: "",
        brief: "keep files of --previous that are gone from the site for so long, such as 7d",
        details: "Only immutable files, and no pages: what open pages may still request. The \
            time since they were part of a site counts by SOURCE_DATE_EPOCH, or else by the \
            newest file of each release.",
        is_common: false,
        apply: |settings, values| {
            settings.carry = Some(parse_duration_ms(text(values)?)? / 1000);
            Ok(())
        },
    },
    Flag {
        name: "sign",
        short: None,
        value: FILE,
        group: Group::Archive,
        default: "",
        brief: "sign the archive with this minisign secret key",
        details: "The signature is stored in the archive. 'gannet keygen' makes keys; a key's \
            password is taken from GANNET_KEY_PASSWORD, or prompted for.",
        is_common: true,
        apply: |settings, values| {
            settings.sign = Some(path(values)?);
            Ok(())
        },
    },
    site_flags::content_types(
        COMMON,
        "the content type for a suffix; repeatable",
        "Such as md=text/markdown. A suffix is also the whole name of a file without one: \
            README=text/plain. In the configuration it may be a table.",
    ),
    Flag {
        name: "threads",
        short: None,
        value: one("N"),
        group: Group::Compression,
        default: "0",
        brief: "compression threads; 0: one per core",
        details: "The archive does not depend on their number.",
        is_common: false,
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
        group: Group::Archive,
        default: "false",
        brief: "print errors only, no progress and no table",
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
        group: Group::Archive,
        default: "auto",
        brief: "colours in the output: auto, always or never",
        details: "",
        is_common: false,
        apply: |settings, values| {
            settings.colour = colour(values)?;
            Ok(())
        },
    },
];

const PATTERNS: Value = Value::Many {
    name: "PATTERN",
    separator: ',',
    joint: None,
    hint: ValueHint::Other,
};

fn patterns(values: &[OsString]) -> Result<Vec<String>, String> {
    let pattern = |value: &OsString| {
        let text = value.to_str().ok_or("not UTF-8")?;
        match text.trim_end() {
            "" => Err("an empty pattern, which matches nothing".to_owned()),
            text if text.starts_with('#') => Err(format!(
                "'{text}' is a comment; for a name that starts so write '\\{text}'"
            )),
            _ => Ok(text.to_owned()),
        }
    };
    values.iter().map(pattern).collect()
}

/// `TYPE=yes` or `TYPE=no`, where the type may be `font/*`.
fn compress_type(value: &OsString) -> Result<(String, bool), String> {
    let text = value.to_str().ok_or("not UTF-8")?;
    let form = || format!("'{text}' is not of the form TYPE=yes or TYPE=no");
    let (media_type, answer) = text.split_once('=').ok_or_else(form)?;
    let is_type = media_type
        .split_once('/')
        .is_some_and(|(top, sub)| !top.is_empty() && !sub.is_empty());
    let answer = switch(&[OsString::from(answer.trim())]).map_err(|_| form())?;
    if !is_type {
        return Err(form());
    }
    Ok((media_type.trim().to_ascii_lowercase(), answer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::flag::check_choices;

    #[test]
    fn the_default_that_is_described_is_the_default_that_holds() {
        for flag in PACK_FLAGS.iter().filter(|flag| !flag.default.is_empty()) {
            let mut settings = PackSettings::default();
            (flag.apply)(&mut settings, &[OsString::from(flag.default)]).expect(flag.name);
            // Left unset, the dialect is chosen later, so that unset differs from every value.
            if flag.name == "compat" {
                assert_eq!(
                    settings.site.compat,
                    Some(gannet_content::rules::Compat::default())
                );
                continue;
            }
            assert_eq!(settings, PackSettings::default(), "--{}", flag.name);
        }
    }

    #[test]
    fn every_choice_is_taken_and_a_near_one_is_named() {
        check_choices(PACK_FLAGS);
    }

    #[test]
    fn types_are_compressed_or_not() {
        let check = |text: &str, expect: Option<(&str, bool)>| {
            let got = compress_type(&OsString::from(text)).ok();
            let got = got.as_ref().map(|(name, answer)| (name.as_str(), *answer));
            assert_eq!(got, expect, "{text:?}");
        };
        check("Font/*=yes", Some(("font/*", true)));
        check("text/csv=no", Some(("text/csv", false)));
        check("text/csv", None);
        check("csv=yes", None);
        check("/=yes", None);
        check("a/b=perhaps", None);
    }
}
