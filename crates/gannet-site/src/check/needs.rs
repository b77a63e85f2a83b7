//! The content types required by scripts and style sheets. Every answer has `nosniff`: browsers
//! neither run scripts nor apply style sheets of another type (Fetch, section 2.2.6).

use gannet_content::policy::page::SCRIPT_TYPES;

/// The type that a reference requires.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Needs {
    Script,
    Style,
}

impl Needs {
    /// The type that a `script` element with this `type` requires; `None` if it is not run.
    pub(super) fn of_script(kind: Option<&str>) -> Option<Self> {
        let kind = kind.unwrap_or_default().trim_ascii();
        let is_run = kind.is_empty() || kind.eq_ignore_ascii_case("module") || is_script(kind);
        is_run.then_some(Self::Script)
    }

    /// The type that a `link` with these relations requires, if any.
    pub(super) fn of_link(relations: &str) -> Option<Self> {
        let mut relations = relations.split_ascii_whitespace();
        let is_style = relations.any(|it| it.eq_ignore_ascii_case("stylesheet"));
        is_style.then_some(Self::Style)
    }

    /// Whether this content type is accepted.
    pub(super) fn takes(self, essence: &str) -> bool {
        match self {
            Self::Script => is_script(essence),
            Self::Style => essence.eq_ignore_ascii_case("text/css"),
        }
    }

    /// What browsers refuse to do otherwise, and the suffix that avoids it.
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
