//! What the content of a file has to be where it is used. Every answer says `nosniff`: browsers run no
//! script and apply no style sheet that has another type (Fetch, section 2.2.6).

use gannet_content::policy::page::SCRIPT_TYPES;

/// What a reference loads.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Needs {
    Script,
    Style,
}

impl Needs {
    /// What a `script` of this `type` loads; nothing if it is not run.
    pub(super) fn of_script(kind: Option<&str>) -> Option<Self> {
        let kind = kind.unwrap_or_default().trim_ascii();
        let is_run = kind.is_empty() || kind.eq_ignore_ascii_case("module") || is_script(kind);
        is_run.then_some(Self::Script)
    }

    /// What a `link` with these relations loads, if it has to be of one type.
    pub(super) fn of_link(relations: &str) -> Option<Self> {
        let mut relations = relations.split_ascii_whitespace();
        let is_style = relations.any(|it| it.eq_ignore_ascii_case("stylesheet"));
        is_style.then_some(Self::Style)
    }

    /// Whether content of this type is taken.
    pub(super) fn takes(self, essence: &str) -> bool {
        match self {
            Self::Script => is_script(essence),
            Self::Style => essence.eq_ignore_ascii_case("text/css"),
        }
    }

    /// What browsers refuse otherwise, and the suffix that avoids it.
    pub(super) fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Script => ("run it as a script", ".js"),
            Self::Style => ("apply it as a style sheet", ".css"),
        }
    }
}

fn is_script(essence: &str) -> bool {
    SCRIPT_TYPES
        .iter()
        .any(|it| it.eq_ignore_ascii_case(essence))
}
