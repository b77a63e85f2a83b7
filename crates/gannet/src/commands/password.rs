//! `gannet password`: a line for a password file.

use std::io::{self, IsTerminal};

use clap::ArgMatches;
use gannet_server::hash_password;

use super::{print, text};
use crate::messages::Failure;

/// Prints `USER:HASH` for a password that is asked for at the terminal, twice, or is the first line
/// of the input.
///
/// # Errors
/// The name or the password cannot be one, or there is no password.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    let user = text(matches, "user").to_string_lossy();
    let is_name = !user.is_empty()
        && !user.starts_with('#')
        && !user.contains(|it: char| it == ':' || it.is_control() || it.is_whitespace());
    if !is_name {
        let failure = Failure::usage("a user has a name without colon and space".to_owned());
        return Err(failure.help("choose another name"));
    }
    let failed = |error: io::Error| Failure::of_system("read", "the password", &error);
    let password = match io::stdin().is_terminal() {
        true => {
            let ask = |prompt: String| rpassword::prompt_password(prompt).map_err(failed);
            let password = ask(format!("password for {user}: "))?;
            if ask("again: ".to_owned())? != password {
                return Err(wrong("the two passwords differ"));
            }
            password
        }
        false => {
            let mut line = String::new();
            io::stdin().read_line(&mut line).map_err(failed)?;
            let end = line.trim_end_matches(['\r', '\n']).len();
            line.truncate(end);
            line
        }
    };
    if password.is_empty() {
        return Err(wrong("it is empty"));
    }
    print(&format!("{user}:{}\n", hash_password(password.as_bytes())))
}

fn wrong(why: &str) -> Failure {
    Failure::new("use", "the password", why).help("type it again")
}
