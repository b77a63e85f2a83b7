//! Waits until servers have what was published, for `--wait`.

use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use gannet_server::notices::ERRORS;
use gannet_store::{Pointer, time_text};

use crate::commands::releases::node::{self, Served};
use crate::commands::removal::RemovalOnSignal;
use crate::commands::stores;
use crate::messages::{Failure, printable};

/// How long servers may take after the last stage, in seconds: followers look every few seconds, and
/// copy what is new, at a slow line some minutes.
const LATE_MAX_S: u64 = 600;

/// How often a server is asked: it looks at its store five times a second.
const INTERVAL: Duration = Duration::from_millis(200);

/// How long a server may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// A server that has not got it for so long is worth a line.
const UNSAID: Duration = Duration::from_secs(2);

/// Returns when each of these servers, named by its address of `--metrics`, serves the release of a
/// pointer, or when that is too late: then with what is wrong with each that does not.
///
/// # Errors
/// The system refuses a signal handler.
pub(super) fn all(
    servers: &[String],
    pointer: &Pointer,
    is_quiet: bool,
) -> Result<Vec<Failure>, Failure> {
    if servers.is_empty() {
        return Ok(Vec::new());
    }
    // Packing has left SIGINT and SIGTERM without effect.
    let _ends_at_once = RemovalOnSignal::by(|| ())?;
    let release = pointer.release.to_string();
    let until = stores::now().max(pointer.settled()) + LATE_MAX_S;
    let told = |server: &str, cause: &str| {
        if !is_quiet {
            ERRORS.write(waiting_line(server, cause, until));
        }
    };
    let late = servers.iter().filter_map(|server| {
        let cause = late(server, &release, until, told)?;
        const HELP: &str = "the release is in force nevertheless; look at 'gannet releases' with this URL, and \
            wait again by the same command";
        Some(Failure::new("wait for", server, cause).help(HELP))
    });
    Ok(late.collect())
}

/// Asks a server until it serves the release, at least once; returns why it does not by then. What keeps it
/// is told once, if that takes a while.
fn late(server: &str, release: &str, until: u64, told: impl Fn(&str, &str)) -> Option<String> {
    let begun = Instant::now();
    let mut is_told = false;
    loop {
        let cause = match ask(server) {
            Ok(served) if served.iter().any(|it| it.has_current(release)) => return None,
            Ok(_) => format!("it does not serve release {release}"),
            Err(cause) => cause,
        };
        if stores::now() >= until {
            return Some(cause);
        }
        if !is_told && begun.elapsed() >= UNSAID {
            told(server, &cause);
            is_told = true;
        }
        thread::sleep(INTERVAL);
    }
}

fn waiting_line(server: &str, cause: &str, until: u64) -> String {
    let (server, until) = (printable(server), time_text(until));
    format!("waiting for '{server}' until {until}: {cause}\n")
}

/// Refuses what cannot be the address of a server's metrics.
pub(super) fn check(server: &str) -> Result<(), Failure> {
    match server.starts_with("http://") && gannet_get::Url::parse(server).is_ok() {
        true => Ok(()),
        false => {
            let refused = format!(
                "cannot use '--wait {}': not http://HOST:PORT",
                printable(server)
            );
            Err(Failure::usage(refused)
                .help("name the address of --metrics of a server, such as http://127.0.0.1:9090"))
        }
    }
}

fn ask(server: &str) -> Result<Vec<Served>, String> {
    let (sender, answer) = channel();
    let address = server.to_owned();
    thread::spawn(move || {
        let answer = node::ask(&address).map_err(|failure| failure.message);
        // The receiver is gone if it took too long.
        let _ = sender.send(answer);
    });
    let late = || format!("no answer within {} s", ANSWER_MAX.as_secs());
    answer
        .recv_timeout(ANSWER_MAX)
        .unwrap_or_else(|_| Err(late()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_that_never_has_it_lacks_is_named() {
        let refused =
            "cannot download 'http://127.0.0.1:1/metrics': connection refused (ECONNREFUSED)";
        let at_once = late("http://127.0.0.1:1", "00", 0, |_, _| {
            panic!("there is no wait")
        });
        assert_eq!(at_once.expect("nothing listens there"), refused);
        assert_eq!(
            waiting_line("http://web\n1:9090", "no answer", 1_795_422_600),
            "waiting for 'http://web\\n1:9090' until 2026-11-23T08:30:00Z: no answer\n"
        );
    }

    #[test]
    fn only_the_address_of_metrics_is_waited_for() {
        assert!(check("http://127.0.0.1:9090").is_ok());
        for bad in ["", "127.0.0.1:9090", "https://127.0.0.1:9090", "http://"] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
