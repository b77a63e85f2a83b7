//! A content security policy for each page, from the hashes of its inline scripts and styles.
//!
//! Pages of a static site are the same for everybody, so they can have no nonces; hashes they can
//! have, as long as something computes them again with every change. See
//! [`page::read`](super::page::read) for what is found in a page.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use super::limits::POLICY_MAX;
use super::page::Page;

/// How the policy of a page is made.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PolicyOptions {
    /// Violations are stopped, not only reported.
    pub is_enforced: bool,
    /// Event handlers and style attributes are allowed by their hashes (`'unsafe-hashes'`): an
    /// attacker could put those attributes elsewhere, but no others.
    pub allows_attributes: bool,
    /// Further sources of scripts: `https://cdn.example.org`, `'wasm-unsafe-eval'`.
    pub script_sources: Vec<String>,
    /// Further sources of styles.
    pub style_sources: Vec<String>,
    /// Further directives: `connect-src 'self' https://api.example.org`, `report-uri /csp`.
    pub directives: Vec<String>,
}

/// The policy of a page.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Policy {
    /// The value of the field.
    pub value: String,
    /// Whether it goes into `content-security-policy`, not into
    /// `content-security-policy-report-only`.
    pub is_enforced: bool,
}

/// Makes the policy of a page; `None` if it would be longer than [`POLICY_MAX`].
///
/// It limits scripts, styles, plugins and the base of URLs. Images, fonts and connections are
/// free, because a page does not tell which it will need.
#[must_use]
pub fn policy(page: &Page, options: &PolicyOptions) -> Option<Policy> {
    let mut scripts = Sources::new(&options.script_sources);
    let mut styles = Sources::new(&options.style_sources);
    page.scripts.iter().for_each(|text| scripts.hash(text));
    page.styles.iter().for_each(|text| styles.hash(text));
    for source in &page.script_origins {
        scripts.add(source.clone());
    }
    for source in &page.style_origins {
        styles.add(source.clone());
    }
    if options.allows_attributes {
        scripts.hash_attributes(&page.event_handlers);
        styles.hash_attributes(&page.style_attributes);
    }
    let mut base = Sources::new(&[]);
    for source in &page.base_origins {
        base.add(source.clone());
    }
    let mut directives = vec![
        format!("script-src {}", scripts.0.join(" ")),
        format!("style-src {}", styles.0.join(" ")),
        "object-src 'none'".to_owned(),
        format!("base-uri {}", base.0.join(" ")),
    ];
    directives.extend(options.directives.iter().cloned());
    let value = directives.join("; ");
    (value.len() <= POLICY_MAX).then_some(Policy {
        value,
        is_enforced: options.is_enforced,
    })
}

/// A hash source: `'sha256-...'`.
#[must_use]
pub fn hash_source(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)))
}

/// Sources of a directive, each once.
struct Sources(Vec<String>);

impl Sources {
    fn new(further: &[String]) -> Self {
        let mut sources = Self(vec!["'self'".to_owned()]);
        for source in further {
            sources.add(source.clone());
        }
        sources
    }

    fn add(&mut self, source: String) {
        if !self.0.contains(&source) {
            self.0.push(source);
        }
    }

    fn hash(&mut self, text: &str) {
        self.add(hash_source(text));
    }

    fn hash_attributes(&mut self, attributes: &[String]) {
        if !attributes.is_empty() {
            self.add("'unsafe-hashes'".to_owned());
        }
        attributes.iter().for_each(|text| self.hash(text));
    }
}
