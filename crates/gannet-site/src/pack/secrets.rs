//! Detects files that look like secrets, by name.
//!
//! This is a warning, not a guarantee: a secret under another name is not found. Contents are
//! examined only if the name is ambiguous, and then only their beginning.

use std::io::Read;

use super::limits::{SECRET_LOOKED_AT, SECRETS_NAMED};
use super::sources::Source;
use super::walk::SourceFile;
use super::warning::{Remedy, Warning};

/// Complete file names.
const NAMES: [&[u8]; 6] = [
    b".htpasswd",
    b".env",
    b"id_dsa",
    b"id_ecdsa",
    b"id_ed25519",
    b"id_rsa",
];
/// Certificates with their keys (PKCS #12).
const SUFFIXES: [&[u8]; 2] = [b".p12", b".pfx"];
/// Keys, but also certificates, public keys, and documents of some programs: the content decides.
const MAYBE: [&[u8]; 2] = [b".key", b".pem"];
/// Environments for one purpose, such as `.env.production`; templates hold no secrets.
const ENVIRONMENT: &[u8] = b".env.";
const FOR_COPYING: [&[u8]; 4] = [b".dist", b".example", b".sample", b".template"];
/// The end of the first line of a private key in PEM (RFC 7468), of any type.
const PRIVATE_KEY: &[u8] = b"PRIVATE KEY-----";

/// Warns about files that look like secrets, if there are any. `shown` returns the URL of a file.
pub(super) fn warning(files: &[Source], shown: impl Fn(&Source) -> String) -> Option<Warning> {
    let found: Vec<&Source> = files
        .iter()
        .filter(|source| is_secret(&source.file))
        .collect();
    let first = &found[..found.len().min(SECRETS_NAMED)];
    let named: Vec<String> = first.iter().map(|it| format!("'{}'", shown(it))).collect();
    let named = named.join(", ");
    let text = match found.len() {
        0 => return None,
        1 => format!("{named} looks like a secret, and would be public; leave it out"),
        count => format!(
            "{count} files look like secrets, and would be public, such as {named}; leave them out"
        ),
    };
    // Patterns are relative to each host's folder.
    let patterns = first.iter();
    let patterns = patterns.map(|it| String::from_utf8_lossy(&it.file.url).into_owned());
    Some(Warning::with(text, Remedy::Exclude(patterns.collect())))
}

fn is_secret(file: &SourceFile) -> bool {
    let name = file
        .url
        .rsplit(|byte| *byte == b'/')
        .next()
        .unwrap_or_default();
    let name = name.to_ascii_lowercase();
    let ends_with = |suffixes: &[&[u8]]| suffixes.iter().any(|suffix| name.ends_with(suffix));
    NAMES.contains(&&*name)
        || (name.starts_with(ENVIRONMENT) && !ends_with(&FOR_COPYING))
        || ends_with(&SUFFIXES)
        || (ends_with(&MAYBE) && begins_with_key(file))
}

/// Whether a file starts with a private key. It has been read before, or by an earlier build: if it
/// cannot be read now, there is no warning.
fn begins_with_key(file: &SourceFile) -> bool {
    let mut first = Vec::new();
    let read = |content: Box<dyn Read>| {
        content
            .take(SECRET_LOOKED_AT)
            .read_to_end(&mut first)
            .is_ok()
    };
    let is_read = file.content().is_ok_and(read);
    let mut windows = first.windows(PRIVATE_KEY.len());
    is_read && windows.any(|window| window == PRIVATE_KEY)
}
