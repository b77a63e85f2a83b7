//! Records what a run could not test, and why: a test that returns early silently looks like a
//! pass.

use std::env;
use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Names a file to which each skip appends a line.
const RECORD: &str = "GANNET_TESTS_LEFT_OUT";

/// Lists the needs that this machine may lack, separated by commas. If it is set, all others must
/// be met.
const MAY_LACK: &str = "GANNET_TESTS_MAY_LACK";

/// Reports that the running test, or a part of it, is skipped because the machine lacks something:
/// `need` names it in the same words in every test (`openssl`, `kernel TLS`), `why` gives details.
///
/// Writes `TEST left out: NEED: WHY` to standard error, bypassing the test harness, which hides the
/// output of passing tests, and to the file named by `GANNET_TESTS_LEFT_OUT`.
///
/// # Panics
///
/// If `GANNET_TESTS_MAY_LACK` is set and does not list the need: the test must run on this machine.
#[track_caller]
pub fn left_out(need: &str, why: impl Display) {
    let may_lack = env::var(MAY_LACK).ok();
    assert!(
        is_allowed(may_lack.as_deref(), need),
        "left out: {need}: {why}; {MAY_LACK} does not list it"
    );
    let line = format!("{} left out: {need}: {why}\n", test_name());
    // In a single write, since threads and processes share the file.
    if let Some(path) = env::var_os(RECORD) {
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
    }
    io::stderr()
        .write_all(line.as_bytes())
        .expect("standard error is open");
}

/// Whether a program can be run; if not, calls [`left_out()`]. With `arguments`, such as
/// `--version`, it must exit successfully at once.
#[track_caller]
pub fn tool(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    match command.output() {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            left_out(program, output.status);
            false
        }
        Err(error) => {
            left_out(program, error);
            false
        }
    }
}

fn is_allowed(may_lack: Option<&str>, need: &str) -> bool {
    may_lack.is_none_or(|list| list.split(',').any(|one| one.trim() == need))
}

/// The name of the test binary without its digest, and of the test, if the thread has one.
fn test_name() -> String {
    let binary = env::args_os().next().unwrap_or_default();
    let stem = Path::new(&binary).file_stem().unwrap_or_default();
    let stem = stem.to_string_lossy();
    let binary = stem.rsplit_once('-').map_or(&*stem, |(name, _)| name);
    match std::thread::current().name() {
        Some(test) if test != "main" => format!("{binary}::{test}"),
        _ => binary.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_allows_what_it_names() {
        let check = |list, need, expect| assert_eq!(is_allowed(list, need), expect, "{list:?}");
        check(None, "openssl", true);
        check(Some(""), "openssl", false);
        check(Some("kernel TLS, openssl"), "openssl", true);
        check(Some("kernel TLS"), "TLS", false);
    }

    #[test]
    fn a_test_is_named() {
        assert_eq!(
            test_name(),
            "gannet_testkit::left_out::tests::a_test_is_named"
        );
    }
}
