//! Passwords (RFC 7617): who may have which path.
//!
//! A hash of a password is slow to compute, so that an attacker cannot try many. A worker never computes
//! one: the first request with a password waits for a thread, and what was right is remembered by a
//! fast hash with a secret key.
//!
//! ```text
//!   request ──▶ judge ──▶ remembered, or known in the clear: answered at once
//!                 └──▶ PasswordCache (a worker's) ──▶ queue ──▶ thread ──▶ all workers remember
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
pub(crate) use self::file::forms_of_archive;
use crate::bounds::limits::{PASSWORD_WAITERS_MAX, PASSWORDS_REMEMBERED_MAX};

/// Identifies a user with a password, and the hash that it was compared with.
pub(crate) type Key = [u8; 32];

/// A worker's memory of passwords.
pub(crate) struct PasswordCache {
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
pub(crate) enum PasswordVerdict {
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

impl PasswordCache {
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
    pub(crate) fn judge(&self, request: &Request<'_>, lists: &[&[User]]) -> PasswordVerdict {
        let mut lines = request.fields.lines(KnownField::Authorization);
        let credentials = match (lines.next(), lines.next()) {
            (Some(line), None) => Credentials::parse(line),
            _ => None,
        };
        match credentials {
            Some(credentials) => self.judge_credentials(credentials, lists),
            None => PasswordVerdict::Denied,
        }
    }

    fn judge_credentials(&self, credentials: Credentials, lists: &[&[User]]) -> PasswordVerdict {
        let Credentials { user, password } = credentials;
        for list in lists {
            let named = list.iter().find(|it| it.name.as_bytes() == user);
            // An unknown user takes as long as a known one, so that time reveals no names.
            let Some(compared) = named.or_else(|| list.first()) else {
                return PasswordVerdict::Denied;
            };
            let is_right = match &compared.secret {
                Secret::Clear(right) => {
                    let digest = |bytes: &[u8]| blake3::keyed_hash(self.checker.secret(), bytes);
                    // Takes the same time whatever differs.
                    digest(right.as_bytes()) == digest(&password)
                }
                Secret::Hash(hash) => {
                    let is_real = named.is_some();
                    let key = self.key((&user, is_real), hash, &password);
                    if !self.remembers(&key) {
                        return PasswordVerdict::Unproven(Box::new(Proof {
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
                return PasswordVerdict::Denied;
            }
        }
        PasswordVerdict::Granted
    }

    /// The key of a user's password that is compared with a hash. A new hash has a new key, so that an
    /// old password is forgotten with it. Unknown users share none, either, so that each of them takes a
    /// place in the queue and a turn of its own, as those do who are known.
    fn key(&self, (user, is_real): (&[u8], bool), hash: &PasswordHash, password: &[u8]) -> Key {
        let mut hasher = blake3::Hasher::new_keyed(self.checker.secret());
        hasher.update(&[u8::from(is_real)]);
        hasher.update(&(user.len() as u64).to_le_bytes());
        hasher.update(user);
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

#[cfg(test)]
mod tests {
    use gannet_content::rules::SourceFile;
    use gannet_content::rules::users::parse_file;

    use super::*;
    use crate::bounds::limits::PASSWORD_QUEUE_MAX;

    fn proof(passwords: &PasswordCache, users: &[User], user: &str, password: &str) -> Box<Proof> {
        let credentials = Credentials {
            user: user.into(),
            password: password.into(),
        };
        match passwords.judge_credentials(credentials, &[users]) {
            PasswordVerdict::Unproven(proof) => proof,
            PasswordVerdict::Granted | PasswordVerdict::Denied => {
                panic!("{user} has to be checked")
            }
        }
    }

    /// The queue does not show which users exist: each name takes a place of its own, and once there is none,
    /// known and unknown ones are refused alike.
    #[test]
    fn unknown_users_share_no_place_in_the_queue() {
        let hash = "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW";
        let text = format!("anna:{hash}\nbob:{hash}\n");
        let file = SourceFile {
            path: "users",
            text: text.as_bytes(),
        };
        let users = parse_file(&file).expect("users");
        let (checker, _jobs) = Checker::new();
        let mut passwords = PasswordCache::new(Arc::new(checker), 0);
        let mut ask = |user: &str, password: &str| {
            let proof = proof(&passwords, &users, user, password);
            passwords.ask(*proof, Token(0))
        };
        for number in 0..PASSWORD_QUEUE_MAX / 2 {
            assert!(ask(&format!("nobody{number}"), "guess"));
            assert!(ask("anna", &format!("guess{number}")));
        }
        for user in ["anna", "bob", "carl", "nobody"] {
            assert!(!ask(user, "guess"), "{user}: the queue is full");
        }
        assert!(ask("nobody0", "guess"), "it waits with the one before");
        assert!(ask("anna", "guess0"), "it waits with the one before");
    }
}
