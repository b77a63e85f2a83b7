//! The fields that answers have without any rule of the site, but for those of the content itself.

use super::cache::{CACHE_NOTHING, Lifetime};
use super::csp::Policy;
use super::security::{AnswerKind, Cors, SecurityOptions, cors_fields, fields};
use crate::answer::PAGE_POLICY;

/// Which fields answers have by default.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DefaultFields {
    /// The security fields. `x-content-type-options` is always sent: without it a browser may run
    /// what is no script.
    pub security: bool,
    /// Who may read answers from scripts of other sites.
    pub cors: Cors,
}

impl Default for DefaultFields {
    fn default() -> Self {
        Self {
            security: true,
            cors: Cors::Off,
        }
    }
}

/// `x-content-type-options`, which ready fields have by themselves.
const NOSNIFF: &str = "x-content-type-options";

impl DefaultFields {
    /// Of content of a type, beside those of [`ready_fields`](crate::answer::ready_fields).
    #[must_use]
    pub fn of_content(
        &self,
        content_type: &str,
        policy: Option<&Policy>,
    ) -> Vec<(&'static str, String)> {
        let mut all = self.security(AnswerKind::of_content_type(content_type), policy);
        all.extend(cors_fields(&self.cors));
        all
    }

    /// Of a page that the server makes for one moment: an error or a listing. It is not to be
    /// kept, and it may do nothing.
    #[must_use]
    pub fn of_page(&self) -> Vec<(&'static str, String)> {
        let mut all = vec![
            ("cache-control", CACHE_NOTHING.to_owned()),
            ("content-security-policy", PAGE_POLICY.to_owned()),
            (NOSNIFF, "nosniff".to_owned()),
        ];
        let security = self.security(AnswerKind::Document, None);
        all.extend(
            security
                .into_iter()
                .filter(|(name, _)| *name != "content-security-policy"),
        );
        all.extend(cors_fields(&self.cors));
        all
    }

    /// Of a redirect. It is asked for again, even a permanent one.
    #[must_use]
    pub fn of_redirect(&self) -> Vec<(&'static str, String)> {
        let cache_control = Lifetime::Revalidate.cache_control().to_owned();
        let mut all = vec![
            ("cache-control", cache_control),
            (NOSNIFF, "nosniff".to_owned()),
        ];
        all.extend(self.security(AnswerKind::Redirect, None));
        all.extend(cors_fields(&self.cors));
        all
    }

    fn security(&self, kind: AnswerKind, policy: Option<&Policy>) -> Vec<(&'static str, String)> {
        if !self.security {
            let name = |policy: &Policy| match policy.is_enforced {
                true => "content-security-policy",
                false => "content-security-policy-report-only",
            };
            return policy
                .map(|it| (name(it), it.value.clone()))
                .into_iter()
                .collect();
        }
        let all = fields(kind, &SecurityOptions::default(), policy);
        all.into_iter()
            .filter(|(name, _)| *name != NOSNIFF)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(fields: &[(&'static str, String)]) -> Vec<&'static str> {
        fields.iter().map(|(name, _)| *name).collect()
    }

    #[test]
    fn no_field_is_there_twice_and_the_switches_switch() {
        let on = DefaultFields {
            cors: Cors::Any,
            ..DefaultFields::default()
        };
        for fields in [
            on.of_content("text/html", None),
            on.of_content("text/css", None),
            on.of_page(),
            on.of_redirect(),
        ] {
            let mut sorted = names(&fields);
            sorted.sort_unstable();
            let count = sorted.len();
            sorted.dedup();
            assert_eq!(sorted.len(), count, "{fields:?}");
            assert!(sorted.contains(&"referrer-policy"));
            assert!(sorted.contains(&"access-control-allow-origin"));
        }
        let off = DefaultFields {
            security: false,
            cors: Cors::Off,
        };
        assert_eq!(names(&off.of_content("text/html", None)), [""; 0]);
        assert_eq!(names(&off.of_redirect()), ["cache-control", NOSNIFF]);
        let policy = Policy {
            value: "script-src 'self'".into(),
            is_enforced: true,
        };
        let fields = off.of_content("text/html", Some(&policy));
        assert_eq!(names(&fields), ["content-security-policy"]);
    }
}
