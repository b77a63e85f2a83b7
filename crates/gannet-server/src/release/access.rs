//! Which paths of a release are for users alone, and for which.

use gannet_content::rules::steps::Steps;
use gannet_content::rules::users::User;

use crate::release::Release;
use crate::release::rules::SiteRules;

/// Those who may have a path: a user of every one of these lists.
pub(crate) type Lists<'a> = Vec<&'a [User]>;

/// Whether any path may be protected.
#[inline]
pub(crate) fn are_used(release: &Release, rules: Option<&SiteRules>) -> bool {
    release.passwords.is_some() || rules.is_some_and(|rules| rules.users().is_some())
}

/// The lists for a path of the site with this number, if it is protected; of the request's steps the rules
/// take theirs. The operator's paths are those that clients ask for, the site's are its own.
#[cold]
pub(crate) fn lists<'a>(
    (release, site): (&'a Release, usize),
    rules: Option<&'a SiteRules>,
    path: &[u8],
    steps: &Steps,
) -> Option<Lists<'a>> {
    let file = release.passwords.as_deref();
    let table = rules.and_then(SiteRules::users);
    let mut lists = Vec::new();
    let forms = rules.and_then(SiteRules::forms);
    lists.extend(file.and_then(|file| match release.prefix(site) {
        b"" => file.protecting(path, forms),
        prefix => file.protecting(&[prefix, path].concat(), forms),
    }));
    lists.extend(table.into_iter().flat_map(|table| table.users(path, steps)));
    if let Some(rules) = rules {
        rules.note_overruns();
    }
    (!lists.is_empty()).then_some(lists)
}

/// Whether exactly the same users may have both paths.
pub(crate) fn are_for_the_same(
    of: (&Release, usize),
    rules: Option<&SiteRules>,
    paths: [&[u8]; 2],
    steps: Option<&Steps>,
) -> bool {
    // Without rules there are none to take.
    let none = Steps::new(0);
    let steps = steps.unwrap_or(&none);
    let [one, other] = paths.map(|path| lists(of, rules, path, steps).unwrap_or_default());
    one.len() == other.len() && one.iter().zip(&other).all(|(a, b)| std::ptr::eq(*a, *b))
}
