//! Follows the operator's file of users.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::passwords::file::{NO_USER, PasswordFile, read};
use crate::start::published::Published;
use crate::watch::lookout::{Lookout, Quiet, Stamp};
use crate::watch::notices::ERRORS;

/// Reads the file again when it changes, or when asked. If it cannot be used, the old users stay.
///
/// # Errors
/// A thread cannot be started.
pub(crate) fn follow(
    path: PathBuf,
    current: Arc<PasswordFile>,
    published: Arc<Published>,
) -> io::Result<Lookout> {
    let paths = Arc::clone(&current.paths);
    // Taken before the thread starts, so that any later change is noticed.
    let mut quiet = Quiet::new(Stamp::of(&path));
    let look = move |is_asked: bool| {
        let stamp = Stamp::of(&path);
        if !quiet.is_due(&stamp) && !is_asked {
            return;
        }
        quiet.acted(stamp);
        let shown = path.display();
        match read(&path) {
            Ok(users) => {
                let paths = Arc::clone(&paths);
                let is_empty = users.is_empty();
                published.replace_passwords(Arc::new(PasswordFile { users, paths }));
                ERRORS.log(match is_empty {
                    true => format!("gannet: reloaded the passwords: the file '{shown}' {NO_USER}"),
                    false => format!("gannet: reloaded the passwords of '{shown}'"),
                });
            }
            Err(error) => ERRORS.log(format_args!(
                "gannet: cannot use the new passwords; keeping the old ones:\n  {error}"
            )),
        }
    };
    Lookout::start(
        "gannet-passwords",
        crate::tls::watch::LOOK_EVERY,
        crate::bounds::limits::LOOKS_PART,
        look,
    )
}
