//! The fields that responses have without any rule of the site, except those of the content itself.

use super::cache::{CACHE_NOTHING, Lifetime};
use super::csp::Policy;
use super::security::{Cors, cors_fields, fields};
use crate::answer::{LISTING_POLICY, PAGE_POLICY};

/// The fields that responses have by default.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DefaultFields {
    /// The security fields. `x-content-type-options` is always sent: without it a browser may
    /// execute content that is not a script.
    pub security: bool,
    /// Which other sites' scripts may read responses.
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

/// The path at which browsers request a site's icon by default.
pub const ICON_PATH: &[u8] = b"/favicon.ico";

/// How long the default icon is stored: short enough that an icon added to the site later is seen.
const ICON_CACHE: &str = "max-age=3600";

/// `x-content-type-options`, which ready fields already contain.
const NOSNIFF: &str = "x-content-type-options";

impl DefaultFields {
    /// For content, in addition to those of [`ready_fields`](crate::answer::ready_fields).
    #[must_use]
    pub fn of_content(&self, policy: Option<&Policy>) -> Vec<(&'static str, String)> {
        let mut all = self.security(policy);
        all.extend(cors_fields(&self.cors));
        all
    }

    /// For an error page. It must not be stored, and is allowed nothing.
    #[must_use]
    pub fn of_page(&self) -> Vec<(&'static str, String)> {
        self.generated(PAGE_POLICY)
    }

    /// For a site's own error page. It must not be stored.
    #[must_use]
    pub fn of_own_page(&self) -> Vec<(&'static str, String)> {
        let mut all = vec![
            ("cache-control", CACHE_NOTHING.to_owned()),
            (NOSNIFF, "nosniff".to_owned()),
        ];
        all.extend(self.of_content(None));
        all
    }

    /// For a listing. It must not be stored, and is allowed its own script only.
    #[must_use]
    pub fn of_listing(&self) -> Vec<(&'static str, String)> {
        self.generated(LISTING_POLICY)
    }

    /// For the default icon of sites without one.
    #[must_use]
    pub fn of_icon(&self) -> Vec<(&'static str, String)> {
        let mut all = self.of_page();
        all.retain(|(name, _)| *name != "cache-control");
        all.push(("cache-control", ICON_CACHE.to_owned()));
        all
    }

    /// For a redirect. It is revalidated, even a permanent one.
    #[must_use]
    pub fn of_redirect(&self) -> Vec<(&'static str, String)> {
        let cache_control = Lifetime::NoCache.cache_control().to_owned();
        let mut all = vec![
            ("cache-control", cache_control),
            (NOSNIFF, "nosniff".to_owned()),
        ];
        all.extend(self.security(None));
        all.extend(cors_fields(&self.cors));
        all
    }

    fn generated(&self, policy: &str) -> Vec<(&'static str, String)> {
        let mut all = vec![
            ("cache-control", CACHE_NOTHING.to_owned()),
            ("content-security-policy", policy.to_owned()),
            (NOSNIFF, "nosniff".to_owned()),
        ];
        all.extend(self.security(None));
        all.extend(cors_fields(&self.cors));
        all
    }

    fn security(&self, policy: Option<&Policy>) -> Vec<(&'static str, String)> {
        let mut all = fields(policy);
        // The policy of a page was requested explicitly, whatever else is sent.
        all.retain(|(name, _)| {
            *name != NOSNIFF && (self.security || name.starts_with("content-security-policy"))
        });
        all
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
            on.of_content(None),
            on.of_page(),
            on.of_own_page(),
            on.of_listing(),
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
        assert_eq!(names(&off.of_content(None)), [""; 0]);
        assert_eq!(names(&off.of_redirect()), ["cache-control", NOSNIFF]);
        let policy = Policy {
            value: "script-src 'self'".into(),
            is_enforced: true,
        };
        let fields = off.of_content(Some(&policy));
        assert_eq!(names(&fields), ["content-security-policy"]);
    }
}
