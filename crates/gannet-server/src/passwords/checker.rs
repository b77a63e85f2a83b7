//! The thread that compares passwords with hashes, and its queue.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use gannet_content::rules::users::{HashParameters, PasswordHash, argon2id_text};
use gannet_io::process::{lower_priority, random_bytes};
use zeroize::Zeroize;

use super::Key;
use crate::bounds::limits::PASSWORD_QUEUE_MAX;

/// The workers' end of the queue.
pub(crate) struct Checker {
    /// Of this process: makes the keys of passwords.
    secret: [u8; 32],
    queue: SyncSender<Job>,
}

/// A password to be compared with a hash.
pub(crate) struct Job {
    /// The worker that asks.
    pub(super) worker: usize,
    pub(super) key: Key,
    pub(super) hash: PasswordHash,
    pub(super) password: Vec<u8>,
    /// If not, the result is that it is wrong.
    pub(super) is_real: bool,
}

/// The result of a comparison.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Checked {
    /// It is the right password.
    Right,
    /// It is not.
    Wrong,
    /// There was no memory to find out.
    Failed,
}

/// The result for a password, and the worker that gets it.
pub(crate) struct Answer {
    /// `None` for all of them: the next request may come to any.
    pub(crate) worker: Option<usize>,
    pub(crate) key: Key,
    pub(crate) checked: Checked,
}

/// The thread's end of the queue.
pub(crate) struct Jobs(Receiver<Job>);

impl Checker {
    /// A queue without a thread.
    pub(crate) fn new() -> (Self, Jobs) {
        let (queue, jobs) = sync_channel(PASSWORD_QUEUE_MAX);
        let secret = random_bytes();
        (Self { secret, queue }, Jobs(jobs))
    }

    pub(super) fn secret(&self) -> &[u8; 32] {
        &self.secret
    }

    /// Queues a comparison; false if the queue is full.
    pub(super) fn ask(&self, job: Job) -> bool {
        self.queue.try_send(job).is_ok()
    }
}

impl Jobs {
    /// Starts the thread, which ends with the last worker; it has the results delivered.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub(crate) fn start(self, deliver: impl Fn(Answer) + Send + 'static) -> io::Result<()> {
        let work = move || {
            // Guessing passwords must not cost others the processor.
            let _ = lower_priority();
            while let Ok(job) = self.0.recv() {
                deliver(job.run());
            }
        };
        thread::Builder::new()
            .name("passwords".into())
            .spawn(work)
            .map(|_| ())
    }

    /// Does the first comparison of the queue; false if there is none.
    pub(crate) fn run_next(&self, deliver: impl FnOnce(Answer)) -> bool {
        let job = self.0.try_recv();
        job.is_ok_and(|job| {
            deliver(job.run());
            true
        })
    }
}

impl Job {
    fn run(self) -> Answer {
        let checked = match compare(&self.hash, &self.password) {
            Checked::Right if !self.is_real => Checked::Wrong,
            checked => checked,
        };
        Answer {
            worker: (checked != Checked::Right).then_some(self.worker),
            key: self.key,
            checked,
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.password.zeroize();
    }
}

/// Compares a password with a hash, in the same time for any password.
fn compare(hash: &PasswordHash, password: &[u8]) -> Checked {
    let is_right = match hash.algorithm() {
        HashParameters::Bcrypt => bcrypt::verify(password, hash.as_str()).unwrap_or(false),
        HashParameters::Argon2id {
            memory,
            passes,
            lanes,
            salt,
            hash,
        } => {
            let params = argon2::Params::new(*memory, *passes, *lanes, Some(hash.len()));
            let Ok(params) = params else {
                return Checked::Wrong;
            };
            let mut blocks: Vec<argon2::Block> = Vec::new();
            if blocks.try_reserve_exact(params.block_count()).is_err() {
                return Checked::Failed;
            }
            blocks.resize(params.block_count(), argon2::Block::default());
            let argon2 =
                argon2::Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, params);
            let mut out = vec![0; hash.len()];
            let made =
                argon2.hash_password_into_with_memory(password, salt, &mut out, &mut blocks[..]);
            made.is_ok() && aws_lc_rs::constant_time::verify_slices_are_equal(&out, hash).is_ok()
        }
    };
    match is_right {
        true => Checked::Right,
        false => Checked::Wrong,
    }
}

/// A hash of a password for a password file: by argon2id with 19 MiB of memory and two passes, the
/// least that is recommended for servers.
///
/// # Panics
/// There is no memory for it.
#[must_use]
pub fn hash_password(password: &[u8]) -> String {
    const MEMORY: u32 = 19 << 10;
    const PASSES: u32 = 2;
    let random = random_bytes();
    let salt = &random[..16];
    let params = argon2::Params::new(MEMORY, PASSES, 1, Some(32)).expect("constants in range");
    let argon2 = argon2::Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, params);
    let mut hash = [0; 32];
    let made = argon2.hash_password_into(password, salt, &mut hash);
    made.expect("salt and hash have lengths in range");
    argon2id_text((MEMORY, PASSES), salt, &hash)
}

#[cfg(test)]
mod tests {
    use gannet_content::rules::SourceFile;
    use gannet_content::rules::users::{Secret, parse_file};

    use super::*;

    fn hash(text: &str) -> PasswordHash {
        let line = format!("u:{text}");
        let file = SourceFile {
            path: "users",
            text: line.as_bytes(),
        };
        let users = parse_file(&file).expect("a user");
        match &users[0].secret {
            Secret::Hash(hash) => hash.clone(),
            Secret::Clear(_) => panic!("a file has hashes"),
        }
    }

    /// The example of bcrypt's own test vectors, and a hash that this program makes.
    #[test]
    fn the_right_password_is_told_from_a_wrong_one() {
        let bcrypt = "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW";
        let own = hash_password("ünïcode".as_bytes());
        assert!(own.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{own}");
        assert_ne!(own, hash_password("ünïcode".as_bytes()), "the salt differs");
        for (text, right) in [(bcrypt, "U*U"), (&own, "ünïcode")] {
            let hash = hash(text);
            assert_eq!(compare(&hash, right.as_bytes()), Checked::Right);
            for wrong in ["", "U*U*", "unicode", "\0"] {
                assert_eq!(compare(&hash, wrong.as_bytes()), Checked::Wrong, "{wrong}");
            }
        }
    }
}
