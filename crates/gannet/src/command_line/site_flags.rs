//! The flags that `serve` and `pack` share: how paths are resolved, and which fields answers have.
//!
//! Each is declared once. The command chooses the heading, whether the flag is in the help that
//! fits one screen, and texts that differ.

use clap::ValueHint;

use crate::command_line::flag::{Flag, Group, Value, one, one_of};
use crate::command_line::site_settings::{
    COMPATS, SiteSettings, TRAILING_SLASHES, compat as parse_compat, cors as parse_cors,
    index_names, trailing_slash as parse_trailing_slash,
};
use crate::command_line::values::{content_type, switch};

/// The settings of a command with site flags.
pub trait OfSite: 'static {
    /// How paths are resolved, and which fields answers have.
    fn site(&mut self) -> &mut SiteSettings;
    /// Unknown paths are answered with the front page.
    fn spa(&mut self) -> &mut bool;
    /// `/about` answers `about.html`.
    fn clean_urls(&mut self) -> &mut bool;
    /// The directory has a folder for each host.
    fn hosts(&mut self) -> &mut bool;
    /// Names that start with a dot are included.
    fn dotfiles(&mut self) -> &mut bool;
    /// Content types by suffix.
    fn types(&mut self) -> &mut Vec<(String, String)>;
}

/// Where help shows a flag.
#[derive(Clone, Copy)]
pub struct HelpPlace {
    /// The heading.
    pub group: Group,
    /// Belongs to the help that fits one screen.
    pub is_common: bool,
}

impl HelpPlace {
    /// Also in the help that fits one screen.
    #[must_use]
    pub const fn common(group: Group) -> Self {
        Self {
            group,
            is_common: true,
        }
    }

    /// In the complete help only.
    #[must_use]
    pub const fn further(group: Group) -> Self {
        Self {
            group,
            is_common: false,
        }
    }
}

/// `--spa`: unknown paths are answered with the front page.
#[must_use]
pub const fn spa<S: OfSite>(shown: HelpPlace, details: &'static str) -> Flag<S> {
    Flag {
        name: "spa",
        short: None,
        value: Value::Switch,
        group: shown.group,
        default: "false",
        brief: "answer unknown paths with /index.html",
        details,
        is_common: shown.is_common,
        apply: |settings, values| {
            *settings.spa() = switch(values)?;
            Ok(())
        },
    }
}

/// `--no-clean-urls`: pages answer under their full names only.
#[must_use]
pub const fn no_clean_urls<S: OfSite>(shown: HelpPlace) -> Flag<S> {
    Flag {
        name: "no-clean-urls",
        short: None,
        value: Value::Switch,
        group: shown.group,
        default: "false",
        brief: "do not answer /about with about.html",
        details: "",
        is_common: shown.is_common,
        apply: |settings, values| {
            *settings.clean_urls() = !switch(values)?;
            Ok(())
        },
    }
}

/// `--compat`: the dialect of the rules files.
#[must_use]
pub const fn compat<S: OfSite>(shown: HelpPlace) -> Flag<S> {
    Flag {
        name: "compat",
        short: None,
        value: one_of("HOST", COMPATS),
        group: shown.group,
        default: "netlify",
        brief: "rules: netlify, cloudflare or kawipiko",
        details: "The dialect of _redirects and _headers. kawipiko also brings its fourteen index names, its clean URLs (.html, .htm, \
            .xhtml, .xht, .txt) and its fallback pages for a folder (_wildcard.*, _200.*, _404.*). \
            Packing a kawipiko archive implies it.",
        is_common: shown.is_common,
        apply: |settings, values| {
            settings.site().compat = Some(parse_compat(values)?);
            Ok(())
        },
    }
}

/// `--no-rules`: rules files are ordinary files.
#[must_use]
pub const fn no_rules<S: OfSite>(shown: HelpPlace) -> Flag<S> {
    Flag {
        name: "no-rules",
        short: None,
        value: Value::Switch,
        group: shown.group,
        default: "false",
        brief: "_redirects and _headers are ordinary files",
        details: "",
        is_common: shown.is_common,
        apply: |settings, values| {
            settings.site().no_rules = switch(values)?;
            Ok(())
        },
    }
}

/// `--index`: the names of index pages.
#[must_use]
pub const fn index<S: OfSite>(shown: HelpPlace) -> Flag<S> {
    Flag {
        name: "index",
        short: None,
        value: one("NAMES"),
        group: shown.group,
        default: "",
        brief: "names of index pages, separated by commas",
        details: "In the order in which they are tried. Without it index.html, or the names that \
            --compat sets.",
        is_common: shown.is_common,
        apply: |settings, values| {
            settings.site().index = index_names(values)?;
            Ok(())
        },
    }
}

/// `--trailing-slash`: how slashes at the end of a path are treated.
#[must_use]
pub const fn trailing_slash<S: OfSite>(shown: HelpPlace) -> Flag<S> {
    Flag {
        name: "trailing-slash",
        short: None,
        value: one_of("WHAT", TRAILING_SLASHES),
        group: shown.group,
        default: "auto",
        brief: "slashes at the end of a path: auto, always, never or off",
        details: "auto redirects /folder to /folder/ and /page/ to /page; always redirects to \
            the form with a slash, never to the one without; off redirects nothing.",
        is_common: shown.is_common,
        apply: |settings, values| {
            settings.site().trailing_slash = parse_trailing_slash(values)?;
            Ok(())
        },
    }
}

/// `--no-security-fields`: omits the default security fields.
#[must_use]
pub const fn no_security_fields<S: OfSite>(shown: HelpPlace, details: &'static str) -> Flag<S> {
    Flag {
        name: "no-security-fields",
        short: None,
        value: Value::Switch,
        group: shown.group,
        default: "false",
        brief: "no Referrer-Policy",
        details,
        is_common: shown.is_common,
        apply: |settings, values| {
            settings.site().no_security_fields = switch(values)?;
            Ok(())
        },
    }
}

/// `--cors`: the origins whose scripts may read answers.
#[must_use]
pub const fn cors<S: OfSite>(shown: HelpPlace, details: &'static str) -> Flag<S> {
    Flag {
        name: "cors",
        short: None,
        value: one("WHO"),
        group: shown.group,
        default: "off",
        brief: "origins whose scripts may read answers: off, any, or one origin",
        details,
        is_common: shown.is_common,
        apply: |settings, values| {
            settings.site().cors = parse_cors(values)?;
            Ok(())
        },
    }
}

/// `--hosts`: the directory has a folder for each host.
#[must_use]
pub const fn hosts<S: OfSite>(shown: HelpPlace, details: &'static str) -> Flag<S> {
    Flag {
        name: "hosts",
        short: None,
        value: Value::Switch,
        group: shown.group,
        default: "false",
        brief: "the directory has a folder for each host",
        details,
        is_common: shown.is_common,
        apply: |settings, values| {
            *settings.hosts() = switch(values)?;
            Ok(())
        },
    }
}

/// `--dotfiles`: names that start with a dot are included.
#[must_use]
pub const fn dotfiles<S: OfSite>(
    shown: HelpPlace,
    brief: &'static str,
    details: &'static str,
) -> Flag<S> {
    Flag {
        name: "dotfiles",
        short: None,
        value: Value::Switch,
        group: shown.group,
        default: "false",
        brief,
        details,
        is_common: shown.is_common,
        apply: |settings, values| {
            *settings.dotfiles() = switch(values)?;
            Ok(())
        },
    }
}

/// `--type`: content types by suffix.
#[must_use]
pub const fn content_types<S: OfSite>(
    shown: HelpPlace,
    brief: &'static str,
    details: &'static str,
) -> Flag<S> {
    Flag {
        name: "type",
        short: None,
        value: Value::Many {
            name: "SUFFIX=TYPE",
            separator: ',',
            joint: Some("="),
            hint: ValueHint::Other,
        },
        group: shown.group,
        default: "",
        brief,
        details,
        is_common: shown.is_common,
        apply: |settings, values| {
            *settings.types() = values.iter().map(content_type).collect::<Result<_, _>>()?;
            Ok(())
        },
    }
}
