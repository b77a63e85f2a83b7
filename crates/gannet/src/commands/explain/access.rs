//! What passwords make of an answer.

use gannet_content::answer::protected_cache_control;
use gannet_content::rules::steps::Steps;
use gannet_site::offline::{RequestUrl, Site};

use super::{Answer, describe, line};

/// Whether rules have users for the path.
pub(super) fn is_protected(site: &Site, asked: &RequestUrl<'_>) -> bool {
    let table = site.rules(asked.host).headers();
    table.is_some_and(|table| table.users(asked.path, &Steps::default()).next().is_some())
}

/// The answer to a request without a password for a path that only some may have.
pub(super) fn challenge(
    site: &Site,
    asked: &RequestUrl<'_>,
    request: &[(String, String)],
    text: &mut String,
) -> Option<Answer> {
    if !is_protected(site, asked) {
        return None;
    }
    if request.iter().any(|(name, _)| name == "authorization") {
        line(
            text,
            "  only users of its rule may have it: the password is taken for right",
        );
        return None;
    }
    line(
        text,
        "  only users of its rule may have it, and the request names none",
    );
    let mut answer = Answer {
        status: 401,
        ..Answer::default()
    };
    let origin = "'Basic-Auth' in _headers";
    let value = "Basic realm=\"restricted\", charset=\"UTF-8\"";
    answer.set("www-authenticate", value, origin);
    describe(&answer, text);
    Some(answer)
}

/// No shared cache may keep the answer.
pub(super) fn protect(answer: &mut Answer) {
    let mut fields = answer.fields.iter();
    let value = fields.find(|field| field.name == "cache-control");
    let value = value.map_or(&b""[..], |field| field.value.as_bytes());
    if answer.status < 300
        && let Some(value) = protected_cache_control(value)
    {
        let why = "'Basic-Auth' in _headers: no shared cache may keep it";
        answer.set("cache-control", &String::from_utf8_lossy(&value), why);
    }
}
