//! Users and their passwords (RFC 7617): in the file of an operator, and in `_headers`.
//!
//! ```text
//! # an operator's file
//! anna:$argon2id$v=19$m=19456,t=2,p=1$c29tZSBzYWx0$...
//! bob:$2y$10$...
//! ```

use base64::Engine;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD_NO_PAD};
use base64::{alphabet, engine::DecodePaddingMode};

use super::SourceFile;
use super::limits::{
    ARGON2_LANES_MAX, ARGON2_MEMORY_MAX, ARGON2_PASSES_MAX, ARGON2_WORK_MAX, BCRYPT_COST_MAX,
    CREDENTIALS_MAX, LINE_MAX, PASSWORD_HASH_MAX, USERS_MAX,
};
use super::lines::{Report, Wrong, lines};
use super::problem::Problem;

/// Someone who may read what is protected.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct User {
    /// Without a colon, which would end it.
    pub name: String,
    /// How the password is known.
    pub secret: Secret,
}

/// How a password is known.
#[derive(Clone, Eq, PartialEq)]
pub enum Secret {
    /// The password itself.
    Clear(String),
    /// A hash of it.
    Hash(PasswordHash),
}

impl std::fmt::Debug for Secret {
    /// Shows no password.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Clear(_) => "Clear(..)",
            Self::Hash(_) => "Hash(..)",
        })
    }
}

/// A hash that is slow to compute, in the form that files have it in.
#[derive(Clone, Eq, PartialEq)]
pub struct PasswordHash {
    text: String,
    algorithm: HashParameters,
}

/// The parameters of a hash.
#[derive(Clone, Eq, PartialEq)]
pub enum HashParameters {
    /// `$2a$`, `$2b$` or `$2y$`, which are the same for passwords of less than 256 bytes.
    Bcrypt,
    /// Argon2id, version 19 (RFC 9106).
    Argon2id {
        /// KiB of memory.
        memory: u32,
        /// Passes over it.
        passes: u32,
        /// Lanes of it.
        lanes: u32,
        /// At least 8 bytes.
        salt: Vec<u8>,
        /// 16 to 64 bytes.
        hash: Vec<u8>,
    },
}

impl PasswordHash {
    /// The text that it was parsed from.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Its parameters.
    #[must_use]
    pub fn algorithm(&self) -> &HashParameters {
        &self.algorithm
    }

    /// Whether a text is meant to be a hash by one of the algorithms that are taken.
    fn is_meant(text: &str) -> bool {
        ["$2a$", "$2b$", "$2y$", "$argon2id$"]
            .iter()
            .any(|prefix| text.starts_with(prefix))
    }

    /// Parses a hash.
    pub(crate) fn parse(text: &str) -> Result<Self, Wrong> {
        let wrong = |expected: &str| Wrong::words(kind(text), expected).help(MAKE);
        if text.len() > PASSWORD_HASH_MAX || !Self::is_meant(text) {
            return Err(wrong("a hash by argon2id or bcrypt"));
        }
        let algorithm = match text.strip_prefix("$argon2id$") {
            Some(rest) => {
                let limits = format!(
                    "a hash by argon2id version 19 with m up to {ARGON2_MEMORY_MAX}, t up to \
                     {ARGON2_PASSES_MAX}, m times t up to {ARGON2_WORK_MAX} and p up to \
                     {ARGON2_LANES_MAX}"
                );
                parse_argon2id(rest).ok_or_else(|| wrong(&limits))?
            }
            None => {
                let form = format!("a hash by bcrypt with a cost of 4 to {BCRYPT_COST_MAX}");
                parse_bcrypt(&text[4..]).ok_or_else(|| wrong(&form))?
            }
        };
        let text = text.to_owned();
        Ok(Self { text, algorithm })
    }
}

/// What a text is instead of a hash that is taken; it may be a password, so it is not quoted.
fn kind(text: &str) -> &'static str {
    let is_hash = PasswordHash::is_meant(text);
    let kinds = [
        ("$apr1$", "a hash by MD5 (apr1)"),
        ("$1$", "a hash by MD5"),
        ("$5$", "a hash by SHA-256"),
        ("$6$", "a hash by SHA-512"),
        ("{SHA}", "a hash by SHA-1"),
        ("{SSHA}", "a hash by SHA-1"),
        ("{PLAIN}", "a password in the clear"),
        ("$argon2i$", "a hash by argon2i"),
        ("$argon2d$", "a hash by argon2d"),
        ("$y$", "a hash by yescrypt"),
    ];
    let known = kinds.iter().find(|(prefix, _)| text.starts_with(prefix));
    match known {
        Some((_, kind)) => kind,
        None if is_hash => "a hash in another form",
        None => "no such hash",
    }
}

/// What follows `$2y$`: the cost, and salt and hash in 53 characters.
fn parse_bcrypt(rest: &str) -> Option<HashParameters> {
    let (cost, hash) = rest.split_once('$')?;
    let is_cost = cost.len() == 2 && cost.bytes().all(|byte| byte.is_ascii_digit());
    let cost: u32 = cost.parse().ok().filter(|_| is_cost)?;
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'/');
    let is_hash = hash.len() == 53 && hash.bytes().all(is_digit);
    (is_hash && (4..=BCRYPT_COST_MAX).contains(&cost)).then_some(HashParameters::Bcrypt)
}

/// What follows `$argon2id$`: `v=19$m=19456,t=2,p=1$salt$hash`.
fn parse_argon2id(rest: &str) -> Option<HashParameters> {
    let mut parts = rest.split('$');
    let mut next = || parts.next();
    let (version, numbers, salt, hash) = (next()?, next()?, next()?, next()?);
    if version != "v=19" || next().is_some() {
        return None;
    }
    let mut numbers = numbers.split(',');
    let mut number = |name: &str, range: std::ops::RangeInclusive<u32>| {
        let text = numbers.next()?.strip_prefix(name)?.strip_prefix('=')?;
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse()
            .ok()
            .filter(|it| is_number && range.contains(it))
    };
    let memory = number("m", 8..=ARGON2_MEMORY_MAX)?;
    let passes = number("t", 1..=ARGON2_PASSES_MAX)?;
    let lanes = number("p", 1..=ARGON2_LANES_MAX)?;
    let is_end = numbers.next().is_none();
    let salt = STANDARD_NO_PAD.decode(salt).ok()?;
    let hash = STANDARD_NO_PAD.decode(hash).ok()?;
    let is_whole = (8..=64).contains(&salt.len()) && (16..=64).contains(&hash.len());
    // RFC 9106 section 3.1.
    let is_quick = memory * passes <= ARGON2_WORK_MAX;
    (is_end && is_whole && is_quick && memory >= 8 * lanes).then_some(HashParameters::Argon2id {
        memory,
        passes,
        lanes,
        salt,
        hash,
    })
}

/// Parses an operator's file: lines `user:hash`. Finds all problems, not only the first. A file without
/// users is valid, so that the last one can be revoked.
///
/// # Errors
/// The problems.
pub fn parse_file(file: &SourceFile<'_>) -> Result<Vec<User>, Vec<Problem>> {
    let mut users: Vec<User> = Vec::new();
    let mut problems = Vec::new();
    let mut report = Report::new(file.path, &mut problems);
    for line in lines(file, LINE_MAX, &mut report) {
        let text = line.text.trim();
        let start = line.text.len() - line.text.trim_start().len();
        let user = match text.split_once(':') {
            Some(("", _)) => Err((0, Wrong::words("no name", USER))),
            Some((name, hash)) => match PasswordHash::parse(hash) {
                Ok(hash) => Ok(User {
                    name: name.to_owned(),
                    secret: Secret::Hash(hash),
                }),
                Err(wrong) => Err((name.len() + 1, wrong)),
            },
            None => Err((0, Wrong::words("no colon", USER).help(MAKE))),
        };
        match user {
            Ok(user) if users.iter().any(|it| it.name == user.name) => {
                let wrong = Wrong::words("the same user again", "each user once");
                report.error(line.number, line.column(start), wrong);
            }
            Ok(_) if users.len() >= USERS_MAX => {
                let wrong = Wrong::words("more users", format!("at most {USERS_MAX}"));
                report.error(line.number, 1, wrong);
                break;
            }
            Ok(user) => users.push(user),
            Err((offset, wrong)) => {
                report.error(line.number, line.column(start + offset), wrong);
            }
        }
    }
    report.finish();
    match problems.is_empty() {
        true => Ok(users),
        false => Err(problems),
    }
}

/// Parses the value of a `Basic-Auth` line: `user:password`, several separated by spaces. In place
/// of a password there may be a hash.
pub(crate) fn parse_value(value: &str) -> Result<Vec<User>, (usize, Wrong)> {
    let mut users: Vec<User> = Vec::new();
    let mut offset = 0;
    for word in value.split([' ', '\t']) {
        let at = offset;
        offset += word.len() + 1;
        if word.is_empty() {
            continue;
        }
        let fail = |found: &str, expected: &str| Err((at, Wrong::words(found, expected)));
        let Some((name, secret)) = word.split_once(':') else {
            return fail("no colon", "'user:password'");
        };
        if name.is_empty() || secret.is_empty() {
            return fail("no name or no password", "'user:password'");
        }
        if users.iter().any(|it| it.name == name) {
            return fail("the same user again", "each user once");
        }
        if users.len() >= USERS_MAX {
            return fail("more users", "fewer: use --password-file");
        }
        let secret = match is_some_hash(secret) {
            true => Secret::Hash(PasswordHash::parse(secret).map_err(|wrong| (at, wrong))?),
            false => Secret::Clear(secret.to_owned()),
        };
        users.push(User {
            name: name.to_owned(),
            secret,
        });
    }
    match users.is_empty() {
        true => Err((0, Wrong::words("no user", "'user:password'"))),
        false => Ok(users),
    }
}

/// Whether a secret is a hash, also one that is refused: no password in the clear.
fn is_some_hash(secret: &str) -> bool {
    let id = secret.strip_prefix('$').and_then(|it| it.split_once('$'));
    let is_id = |id: &str| !id.is_empty() && id.bytes().all(|it| it.is_ascii_alphanumeric());
    id.is_some_and(|(id, _)| is_id(id)) || secret.starts_with("{S")
}

/// The text of a hash by argon2id: KiB of memory, passes over it, in one lane.
#[must_use]
pub fn argon2id_text((memory, passes): (u32, u32), salt: &[u8], hash: &[u8]) -> String {
    let (salt, hash) = (STANDARD_NO_PAD.encode(salt), STANDARD_NO_PAD.encode(hash));
    format!("$argon2id$v=19$m={memory},t={passes},p=1${salt}${hash}")
}

impl User {
    /// `user:password` or `user:hash`.
    #[must_use]
    pub fn text(&self) -> String {
        let secret = match &self.secret {
            Secret::Clear(password) => password.as_str(),
            Secret::Hash(hash) => hash.as_str(),
        };
        format!("{}:{secret}", self.name)
    }
}

/// What a client says of itself.
#[derive(Clone, Eq, PartialEq)]
pub struct Credentials {
    /// The name of the user.
    pub user: Vec<u8>,
    /// The password.
    pub password: Vec<u8>,
}

impl Credentials {
    /// Parses the value of `authorization` (RFC 7617 section 2); `None` if it is of another scheme or
    /// malformed.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (scheme, rest) = value.split_at_checked(b"Basic ".len())?;
        if !scheme.eq_ignore_ascii_case(b"Basic ") || rest.len() > CREDENTIALS_MAX {
            return None;
        }
        let mut pair = BASE64.decode(rest.trim_ascii()).ok()?;
        let colon = pair.iter().position(|byte| *byte == b':')?;
        let password = pair.split_off(colon + 1);
        pair.truncate(colon);
        Some(Self {
            user: pair,
            password,
        })
    }
}

/// Some clients leave out the padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

const USER: &str = "'user:hash'";
const MAKE: &str = "'gannet password USER' prints a line with one, as 'htpasswd -nB USER' does";

#[cfg(test)]
mod tests {
    use super::*;

    const BCRYPT: &str = "$2y$04$abcdefghijklmnopqrstuu5Lov2AhDWvVYYyvLdBpTVQmXsXHUeOu";
    const ARGON2: &str = "$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHQ$\
        MDEyMzQ1Njc4OWFiY2RlZg";

    fn problems(text: &str) -> Vec<String> {
        let file = SourceFile {
            path: "users",
            text: text.as_bytes(),
        };
        match parse_file(&file) {
            Ok(users) => users.iter().map(|user| user.name.clone()).collect(),
            Err(problems) => problems.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn files_have_users_with_slow_hashes() {
        let text = format!("# people\nanna:{BCRYPT}\r\n\n  bob:{ARGON2}\n");
        assert_eq!(problems(&text), ["anna", "bob"]);
        let check = |line: &str, expect: &str| {
            let found = problems(&format!("anna:{BCRYPT}\n{line}\n"));
            assert_eq!(found, [format!("users:2:{expect}")], "{line}");
        };
        let hash = "expected a hash by argon2id or bcrypt";
        check(
            "b:$apr1$x$y",
            &format!("3: found a hash by MD5 (apr1), {hash}"),
        );
        check("b:{SHA}x", &format!("3: found a hash by SHA-1, {hash}"));
        check("b:secret", &format!("3: found no such hash, {hash}"));
        check(
            "b:$argon2i$v=19$",
            &format!("3: found a hash by argon2i, {hash}"),
        );
        check("b", "1: found no colon, expected 'user:hash'");
        check(":x", "1: found no name, expected 'user:hash'");
        let again = format!("anna:{ARGON2}");
        check(
            &again,
            "1: found the same user again, expected each user once",
        );
        let cost = format!(
            "3: found a hash in another form, expected a hash by bcrypt with a cost of 4 to \
             {BCRYPT_COST_MAX}"
        );
        check(&format!("b:{}", BCRYPT.replace("$04$", "$31$")), &cost);
        check(&format!("b:{}", &BCRYPT[..40]), &cost);
        for (from, to) in [
            ("m=64", "m=999999999"),
            ("m=64,t=1", "m=262144,t=3"),
            ("t=1", "t=0"),
            ("v=19", "v=16"),
            ("p=1", "p=9"),
            ("$MD", "$!!"),
        ] {
            let found = problems(&format!("b:{}", ARGON2.replace(from, to)));
            assert!(
                found[0].starts_with("users:1:3: found a hash in another form"),
                "{to}: {found:?}"
            );
        }
        // The last user was removed.
        for text in ["", "# nobody\n"] {
            let file = SourceFile {
                path: "users",
                text: text.as_bytes(),
            };
            assert!(parse_file(&file).is_ok_and(|users| users.is_empty()));
        }
    }

    #[test]
    fn values_have_passwords_or_hashes() {
        let users = parse_value(&format!("anna:a:b  bob:{BCRYPT}")).expect("two users");
        assert_eq!(users[0].secret, Secret::Clear("a:b".into()));
        let money = parse_value("a:$1.50").expect("a password");
        assert_eq!(money[0].secret, Secret::Clear("$1.50".into()));
        assert_eq!(users[1].text(), format!("bob:{BCRYPT}"));
        assert!(!format!("{users:?}").contains("a:b"), "it may be logged");
        for (value, at) in [
            ("anna", 0),
            (":x", 0),
            ("a:b :", 4),
            ("a:b a:c", 4),
            ("a:b c:$2y$99$x", 4),
            ("a:b c:$apr1$abc$def", 4),
            ("a:$6$abc$def", 0),
            ("a:{SHA}abc", 0),
            ("", 0),
        ] {
            assert_eq!(parse_value(value).map_err(|(at, _)| at), Err(at), "{value}");
        }
    }

    #[test]
    fn credentials_are_read_as_clients_send_them() {
        let parse = |value: &str| {
            let pair = Credentials::parse(value.as_bytes())?;
            let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
            Some((text(pair.user), text(pair.password)))
        };
        let some = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        assert_eq!(parse("Basic YTpiOmM="), some("a", "b:c"));
        assert_eq!(parse("basic  YTpiOmM"), some("a", "b:c"));
        assert_eq!(parse("Basic Og=="), some("", ""));
        for value in [
            "Basic",
            "Basic ",
            "Bearer YTpi",
            "Basic YWI=",
            "Basic Y!pi",
            "BasicYTpi",
        ] {
            assert_eq!(parse(value), None, "{value}");
        }
        let long = format!("Basic {}", "YTpi".repeat(CREDENTIALS_MAX));
        assert_eq!(parse(&long), None);
    }
}
