//! Passwords (RFC 7617): who may have which path.
//!
//! A hash of a password is slow to compute, so that nobody can try many. A worker never computes
//! one: the first request with a password waits for a thread, and what was right is remembered by a
//! fast hash with a secret key.
//!
//! ```text
//!   request ──▶ judge ──▶ remembered, or known in the clear: answered at once
//!                 └──▶ Guard (a worker's) ──▶ queue ──▶ thread ──▶ all workers remember
//! ```
//!
//! A wrong password is not remembered: it costs its own turn in the queue, and only those wait who
//! have a password that no worker has seen. When the queue is full, they get 503.

pub(crate) mod checker;
pub(crate) mod file;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use gannet_content::rules::users::{Credentials, PasswordHash, Secret, User};
use gannet_http::semantics::fields::KnownField;
use gannet_http::semantics::request::Request;
use gannet_io::driver::Token;

use self::checker::{Checker, Job};
use crate::limits::{PASSWORD_WAITERS_MAX, PASSWORDS_REMEMBERED_MAX};
use crate::release::Release;
use crate::release::rules::SiteRules;

/// Identifies a password and the hash that it was compared with.
pub(crate) type Key = [u8; 32];

/// A worker's memory of passwords.
pub(crate) struct Guard {
    checker: Arc<Checker>,
    worker: usize,
    /// Right ones, most recent first: when the young are many, they replace the old.
    young: HashSet<Key>,
    old: HashSet<Key>,
    /// Those that are being checked, each with the requests that wait for it.
    pending: HashMap<Key, Vec<Token>>,
    waiters: usize,
}

/// Whether a request may have what it asks for.
pub(crate) enum Verdict {
    /// It may.
    Granted,
    /// It names no user of those who may, or not with the right password.
    Denied,
    /// The password has to be compared with a hash first.
    Unproven(Box<Proof>),
}

/// A password to be compared with a hash.
pub(crate) struct Proof {
    key: Key,
    hash: PasswordHash,
    password: Vec<u8>,
    /// The hash is that of the named user; otherwise it only takes as long.
    is_real: bool,
}

/// Those who may have a path: a user of every one of these lists.
pub(crate) type Lists<'a> = Vec<&'a [User]>;

/// Whether any path may be protected.
#[inline]
pub(crate) fn are_used(release: &Release, rules: Option<&SiteRules>) -> bool {
    release.passwords.is_some() || rules.is_some_and(|rules| rules.users().is_some())
}

/// The lists for a path, if it is protected.
#[cold]
pub(crate) fn lists<'a>(
    release: &'a Release,
    rules: Option<&'a SiteRules>,
    path: &[u8],
) -> Option<Lists<'a>> {
    let file = release.passwords.as_deref();
    let table = rules.and_then(SiteRules::users);
    let mut lists = Vec::new();
    lists.extend(file.and_then(|file| file.protecting(path)));
    lists.extend(table.into_iter().flat_map(|table| table.users(path)));
    (!lists.is_empty()).then_some(lists)
}

/// Whether exactly the same users may have both paths.
pub(crate) fn are_for_the_same(
    release: &Release,
    rules: Option<&SiteRules>,
    paths: [&[u8]; 2],
) -> bool {
    let [one, other] = paths.map(|path| lists(release, rules, path).unwrap_or_default());
    one.len() == other.len() && one.iter().zip(&other).all(|(a, b)| std::ptr::eq(*a, *b))
}

impl Guard {
    pub(crate) fn new(checker: Arc<Checker>, worker: usize) -> Self {
        Self {
            checker,
            worker,
            young: HashSet::new(),
            old: HashSet::new(),
            pending: HashMap::new(),
            waiters: 0,
        }
    }

    /// Whether a request may have what these lists protect.
    #[cold]
    pub(crate) fn judge(&self, request: &Request<'_>, lists: &[&[User]]) -> Verdict {
        let mut lines = request.fields.lines(KnownField::Authorization);
        let credentials = match (lines.next(), lines.next()) {
            (Some(line), None) => Credentials::parse(line),
            _ => None,
        };
        let Some(Credentials { user, password }) = credentials else {
            return Verdict::Denied;
        };
        for list in lists {
            let named = list.iter().find(|it| it.name.as_bytes() == user);
            // An unknown user takes as long as a known one, so that time tells no names.
            let Some(compared) = named.or_else(|| list.first()) else {
                return Verdict::Denied;
            };
            let is_right = match &compared.secret {
                Secret::Clear(right) => {
                    let digest = |bytes: &[u8]| blake3::keyed_hash(self.checker.secret(), bytes);
                    // Takes the same time whatever differs.
                    digest(right.as_bytes()) == digest(&password)
                }
                Secret::Hash(hash) => {
                    let is_real = named.is_some();
                    let key = self.key(hash, &password, is_real);
                    if !self.remembers(&key) {
                        return Verdict::Unproven(Box::new(Proof {
                            key,
                            hash: hash.clone(),
                            password,
                            is_real,
                        }));
                    }
                    true
                }
            };
            if !is_right || named.is_none() {
                return Verdict::Denied;
            }
        }
        Verdict::Granted
    }

    /// The key of a password that is compared with a hash. A new hash has a new key, so that an old
    /// password is forgotten with it.
    fn key(&self, hash: &PasswordHash, password: &[u8], is_real: bool) -> Key {
        let mut hasher = blake3::Hasher::new_keyed(self.checker.secret());
        hasher.update(&[u8::from(is_real)]);
        hasher.update(hash.as_str().as_bytes());
        hasher.update(&[0]);
        hasher.update(password);
        *hasher.finalize().as_bytes()
    }

    fn remembers(&self, key: &Key) -> bool {
        self.young.contains(key) || self.old.contains(key)
    }

    /// Has a password checked, and `waiter` woken with the result. False if too many wait already.
    pub(crate) fn ask(&mut self, proof: Proof, waiter: Token) -> bool {
        if self.waiters >= PASSWORD_WAITERS_MAX {
            return false;
        }
        let key = proof.key;
        if !self.pending.contains_key(&key) {
            let job = Job {
                worker: self.worker,
                key,
                hash: proof.hash,
                password: proof.password,
                is_real: proof.is_real,
            };
            if !self.checker.ask(job) {
                return false;
            }
        }
        self.pending.entry(key).or_default().push(waiter);
        self.waiters += 1;
        true
    }

    /// Takes the result of a check: the requests to be woken with it.
    pub(crate) fn checked(&mut self, key: &Key, is_right: bool) -> Vec<Token> {
        if is_right {
            self.old.remove(key);
            self.young.insert(*key);
            if self.young.len() >= PASSWORDS_REMEMBERED_MAX / 2 {
                self.old = std::mem::take(&mut self.young);
            }
        }
        let woken = self.pending.remove(key).unwrap_or_default();
        self.waiters -= woken.len();
        woken
    }
}
