//! What the rules of `_headers` do to the fields of the expected answer.

use gannet_content::rules::headers::FieldChanges;
use gannet_content::rules::matcher::RuleInput;
use gannet_content::rules::steps::Steps;

use super::{Answer, Field, Site, Target, host_number, line, scheme};

/// Applies the rules for fields. An archive without rules for single hosts has them applied
/// already.
pub(super) fn rules(
    site: &Site,
    (target, host): (&Target, &str),
    may_cache: bool,
    answer: &mut Answer,
    text: &mut String,
) {
    let own = site.rules(host_number(site, host));
    let Some(table) = own.headers() else {
        return;
    };
    let request = RuleInput {
        prefix: b"",
        scheme: scheme(target),
        host: host.as_bytes(),
        path: &target.path,
        query: target.query.as_deref().map(str::as_bytes),
        language: b"",
    };
    let found = table.find(&request);
    let mut changes = match table.changes(&request, &Steps::default()) {
        Ok(changes) => changes,
        Err(excess) => {
            let problem = excess.problem("_headers");
            line(
                text,
                format!("a built-in answer instead, such as 500: {problem}"),
            );
            return;
        }
    };
    if !may_cache {
        changes = changes.without_caching();
    }
    apply(&changes, answer, |name| own.places_of_field(&found, name));
}

/// Changes the fields as rules do, which have those of `places`.
fn apply(changes: &FieldChanges, answer: &mut Answer, places: impl Fn(&str) -> Vec<String>) {
    let before = std::mem::take(&mut answer.fields);
    let owned = |field: &Field| (field.name.clone(), field.value.clone().into_bytes());
    let mut fields: Vec<_> = before.iter().map(owned).collect();
    changes.apply_to(&mut fields);
    for (name, value) in fields {
        let known = before.iter().find(|field| field.name == name);
        // A coding of the server's replaces the rule's.
        let is_sent = |rule: &[u8]| name != "content-encoding" || rule == value;
        let mut sets = changes.set.iter();
        let set = sets.find(|(set, rule)| *set == name && is_sent(rule));
        let mut places = set.map_or_else(Vec::new, |_| places(&name));
        if name == "set-cookie" {
            // Each has a line of its own.
            let others = answer.fields.iter().filter(|field| field.name == name);
            places = places.into_iter().skip(others.count()).take(1).collect();
        }
        places.dedup();
        let origin = known.filter(|_| set.is_none() || name == "vary");
        let origin = origin.map(|field| field.origin.clone());
        let origin: Vec<_> = origin.into_iter().chain(places).collect();
        let mut value = String::from_utf8_lossy(&value).into_owned();
        if let (Some(known), Some((_, more)), "vary") = (known, set, name.as_str())
            && known.value.as_bytes().ends_with(more)
        {
            // The block of an archive has it already.
            value.clone_from(&known.value);
        }
        answer.fields.push(Field {
            name,
            value,
            origin: origin.join(", "),
        });
    }
}
