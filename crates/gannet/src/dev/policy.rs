//! Adjusts the content security policy of a page so that the script of `gannet dev` runs and hears
//! about changes, and nothing else does that did not before.

/// A policy that allows, in addition, a script with this nonce, and connections to the page's own
/// origin. Several policies, separated by commas, all get the same.
///
/// `upgrade-insecure-requests` is left out: there is no TLS here to upgrade to.
pub(super) fn allow(policies: &str, nonce: &str) -> String {
    let adjusted: Vec<_> = policies.split(',').map(|it| one(it, nonce)).collect();
    adjusted.join(",")
}

fn one(policy: &str, nonce: &str) -> String {
    let mut directives: Vec<(String, Vec<&str>)> = Vec::new();
    for directive in policy.split(';') {
        let mut words = directive.split_ascii_whitespace();
        let Some(name) = words.next().map(str::to_ascii_lowercase) else {
            continue;
        };
        // Of several directives with one name, the first counts (CSP3 section 2.2.1).
        if name != "upgrade-insecure-requests" && !directives.iter().any(|(it, _)| *it == name) {
            directives.push((name, words.collect()));
        }
    }
    let nonce = format!("'nonce-{nonce}'");
    // Where 'unsafe-inline' counts, a nonce would end that.
    let for_script = |sources: &[&str]| {
        let is = |start: &'static str| move |it: &&str| it.to_ascii_lowercase().starts_with(start);
        let has_exact = ["'nonce-", "'sha256-", "'sha384-", "'sha512-"]
            .into_iter()
            .any(|start| sources.iter().any(|it| is(start)(it)));
        let is_open = sources.iter().any(|it| is("'unsafe-inline'")(it)) && !has_exact;
        if is_open {
            "'self'".to_owned()
        } else {
            nonce.clone()
        }
    };
    let script = effective(
        &directives,
        &["script-src-elem", "script-src", "default-src"],
    );
    let connect = effective(&directives, &["connect-src", "default-src"]);
    let mut text: Vec<(String, String)> = directives
        .iter()
        .map(|(name, sources)| (name.clone(), sources.join(" ")))
        .collect();
    let mut allow = |name: &str, found: Option<(String, Vec<&str>)>, more: String| {
        let Some((from, sources)) = found else {
            return;
        };
        let rest = sources
            .iter()
            .filter(|it| !it.eq_ignore_ascii_case("'none'"));
        let mut sources: Vec<&str> = rest.copied().collect();
        if !sources.contains(&more.as_str()) {
            sources.push(&more);
        }
        let sources = sources.join(" ");
        // What falls back to `default-src` gets a directive of its own.
        let name = if from == "default-src" {
            name.to_owned()
        } else {
            from
        };
        text.retain(|(it, _)| *it != name);
        text.push((name, sources));
    };
    let more = script.as_ref().map(|(_, sources)| for_script(sources));
    allow("script-src", script, more.unwrap_or_default());
    allow("connect-src", connect, "'self'".into());
    let parts: Vec<_> = text
        .iter()
        .map(|(name, sources)| format!("{name} {sources}").trim_end().to_owned())
        .collect();
    parts.join("; ")
}

/// The first of these directives that a policy has.
fn effective<'a>(
    directives: &[(String, Vec<&'a str>)],
    names: &[&str],
) -> Option<(String, Vec<&'a str>)> {
    let mut names = names.iter();
    names.find_map(|name| directives.iter().find(|(it, _)| it == name).cloned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_is_allowed_and_nothing_else() {
        let check = |policy: &str, expect: &str| assert_eq!(allow(policy, "N"), expect);
        check(
            "default-src 'none'; style-src 'sha256-x'",
            "default-src 'none'; style-src 'sha256-x'; script-src 'nonce-N'; connect-src 'self'",
        );
        check(
            "script-src 'self' 'unsafe-inline'; connect-src https://api.example",
            "script-src 'self' 'unsafe-inline'; connect-src https://api.example 'self'",
        );
        check(
            "script-src 'nonce-a' 'unsafe-inline' 'strict-dynamic'; script-src x",
            "script-src 'nonce-a' 'unsafe-inline' 'strict-dynamic' 'nonce-N'",
        );
        check(
            "script-src a; script-src-elem b; upgrade-insecure-requests",
            "script-src a; script-src-elem b 'nonce-N'",
        );
        check("frame-ancestors 'none'", "frame-ancestors 'none'");
        check(
            "default-src 'self', img-src *",
            "default-src 'self'; script-src 'self' 'nonce-N'; connect-src 'self',img-src *",
        );
        check("", "");
    }
}
