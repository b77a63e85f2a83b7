//! A content security policy for each page, from the hashes of its inline scripts and styles.
//!
//! Pages of a static site are the same for all visitors, so nonces are impossible; hashes are
//! possible if they are recomputed with every change. See [`page::read`](super::page::read) for
//! what is extracted from a page.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use super::limits::POLICY_MAX;
use super::page::PageParts;

/// How to make the policy of a page.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PolicyOptions {
    /// Violations are blocked, not only reported.
    pub is_enforced: bool,
    /// Event handlers and style attributes are allowed by their hashes (`'unsafe-hashes'`): an
    /// attacker could put those attributes elsewhere, but no others.
    pub allows_attributes: bool,
    /// Further sources of scripts: `https://cdn.example.org`, `'wasm-unsafe-eval'`.
    pub script_sources: Vec<String>,
    /// Further sources of styles.
    pub style_sources: Vec<String>,
    /// What the site's scripts need, which no page shows.
    pub scripts: ScriptNeeds,
    /// Further directives: `connect-src 'self' https://api.example.org`, `report-uri /csp`.
    pub directives: Vec<String>,
}

/// What the scripts of a site need to be allowed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ScriptNeeds {
    /// There is WebAssembly, which browsers compile only if the policy allows it.
    pub has_wasm: bool,
    /// Scripts create workers from generated text, under `blob:` URLs.
    pub has_blob_workers: bool,
    /// Scripts execute text as a script (`eval`): that stays forbidden, and is reported.
    pub has_eval: bool,
}

impl ScriptNeeds {
    /// What a script needs, as far as its text shows. A script that names a function is assumed to
    /// use it.
    #[must_use]
    pub fn of_script(text: &[u8]) -> Self {
        let has = |needle: &[u8]| text.windows(needle.len()).any(|window| window == needle);
        Self {
            has_wasm: has(b"WebAssembly."),
            has_blob_workers: has(b"createObjectURL(") && has(b"Worker("),
            has_eval: has(b"new Function(") || has_word(text, b"eval("),
        }
    }

    /// The needs of both.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            has_wasm: self.has_wasm || other.has_wasm,
            has_blob_workers: self.has_blob_workers || other.has_blob_workers,
            has_eval: self.has_eval || other.has_eval,
        }
    }
}

/// Whether `needle` occurs, and not as the end of a longer name.
fn has_word(text: &[u8], needle: &[u8]) -> bool {
    let mut places = text.windows(needle.len()).enumerate();
    places.any(|(at, window)| {
        let before = at.checked_sub(1).map_or(b' ', |at| text[at]);
        let is_name = before.is_ascii_alphanumeric() || matches!(before, b'_' | b'$' | b'.');
        window == needle && !is_name
    })
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
/// It restricts scripts, styles, plugins and base URLs. Images, fonts and connections are
/// unrestricted, because a page does not show which it will need.
#[must_use]
pub fn policy(page: &PageParts, options: &PolicyOptions) -> Option<Policy> {
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
    let inline = page.scripts.iter();
    let inline = inline.map(|text| ScriptNeeds::of_script(text.as_bytes()));
    let needs = inline.fold(options.scripts, ScriptNeeds::or);
    if needs.has_wasm {
        scripts.add("'wasm-unsafe-eval'".to_owned());
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
    let has_workers = options
        .directives
        .iter()
        .any(|it| it.starts_with("worker-src"));
    if needs.has_blob_workers && !has_workers {
        directives.push("worker-src 'self' blob:".to_owned());
    }
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
