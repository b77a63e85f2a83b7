//! Redirects and fields defined by a site, in the files `_redirects` and `_headers`.
//!
//! The files are parsed when a site is packed or loaded: [`redirects::parse`] and
//! [`headers::parse`] return rules and *all* their [problems](problem::Problem). The server uses a
//! [`RedirectTable`](table::RedirectTable) and a [`HeaderTable`](table::HeaderTable), which an
//! archive can carry as bytes. They hold an index over the rules' sources: a request is looked up
//! by one walk over its path, never by trying the rules one after the other.
//!
//! ```text
//! _redirects ──redirects::parse──▶ Redirects ──lint──▶ warnings
//!                                      │
//!                                  RedirectTable ──compile──▶ bytes ──parse──▶ RedirectTable
//!                                                                                   │
//! request ─────────────────────────────────────────────────────────────────────▶ decide
//! ```
//!
//! Rules never access files. Whether a file exists at the path of a request is an argument.

pub mod evaluation;
pub mod files;
pub mod headers;
pub mod language;
pub mod limits;
pub mod lint;
pub mod matcher;
pub mod pattern;
pub mod problem;
pub mod protection;
pub mod redirects;
pub mod steps;
pub mod table;
pub mod target;
pub mod users;

mod basic_auth;
mod index;
mod kawipiko;
mod lines;
pub mod memory;
mod percent;
mod text;

mod wire;

/// The dialect of the files, where hosts differ. The manual's pages on redirects and on headers
/// list the differences in a table.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Compat {
    /// A file wins over a rule unless `!` forces the rule; 301 unless the rule names a status; a
    /// trailing slash makes no difference.
    #[default]
    Netlify,
    /// A rule wins over a file; 302 unless the rule names a status; slashes count.
    Cloudflare,
    /// Exactly three columns and no wildcards; a file wins; slashes count; files below the root
    /// may have relative sources.
    Kawipiko,
}

impl Compat {
    /// Its name, as used in flags.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Netlify => "netlify",
            Self::Cloudflare => "cloudflare",
            Self::Kawipiko => "kawipiko",
        }
    }

    /// Whether `/page` and `/page/` are the same path.
    #[must_use]
    pub const fn ignores_trailing_slash(self) -> bool {
        matches!(self, Self::Netlify)
    }

    /// The status of a redirect that names none; `None` if it must name one.
    #[must_use]
    pub const fn default_status(self) -> Option<u16> {
        match self {
            Self::Netlify => Some(301),
            Self::Cloudflare => Some(302),
            Self::Kawipiko => None,
        }
    }

    /// The statuses that a rule may have.
    #[must_use]
    pub const fn statuses(self) -> &'static [u16] {
        match self {
            // 410 and 451 come from the IPFS specification of the file.
            Self::Netlify => &[200, 301, 302, 303, 307, 308, 404, 410, 451],
            Self::Cloudflare => &[200, 301, 302, 303, 307, 308],
            Self::Kawipiko => &[301, 302, 303, 307, 308],
        }
    }
}

/// One rules file of a site.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SourceFile<'a> {
    /// Its path relative to the root of the site, without leading slash: `_redirects`,
    /// `docs/_redirects`.
    pub path: &'a str,
    /// Its content.
    pub text: &'a [u8],
}

impl SourceFile<'_> {
    /// The URL path of its folder: `/`, `/docs/`.
    pub(crate) fn folder(&self) -> String {
        match self.path.rfind('/') {
            Some(slash) => format!("/{}/", &self.path[..slash]),
            None => "/".to_owned(),
        }
    }
}

/// The location of a rule.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Place {
    /// The position of its file in the list that was parsed.
    pub file: u16,
    /// Its line, from 1.
    pub line: u32,
}
