//! Waits until servers have what was published, for `--wait`.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use gannet_store::Pointer;

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

/// Returns when each of these servers, named by its address of `--metrics`, serves the release of a
/// pointer.
///
/// # Errors
/// One does not within [`LATE_MAX_S`] after the moment at which it should.
pub(super) fn all(servers: &[String], pointer: &Pointer) -> Result<(), Failure> {
    if servers.is_empty() {
        return Ok(());
    }
    // Packing has left SIGINT and SIGTERM without effect.
    let _ends_at_once = RemovalOnSignal::by(|| ())?;
    let until = stores::now().max(pointer.settled()) + LATE_MAX_S;
    all_until(servers, &pointer.release.to_string(), until)
}

/// Asks each at least once.
fn all_until(servers: &[String], release: &str, until: u64) -> Result<(), Failure> {
    for server in servers {
        loop {
            let cause = match ask(server) {
                Ok(served) if served.iter().any(|it| it.has_current(release)) => break,
                Ok(_) => format!("it does not serve release {release}"),
                Err(cause) => cause,
            };
            if stores::now() >= until {
                let server = printable(server);
                return Err(Failure::new("wait for", server, cause).help(
                    "the release is in force nevertheless; look at 'gannet releases' with this URL",
                ));
            }
            thread::sleep(INTERVAL);
        }
    }
    Ok(())
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
    fn a_server_that_never_has_it_is_named() {
        let servers = ["http://127.0.0.1:1".to_owned()];
        let late = all_until(&servers, "00", 0).expect_err("nothing listens there");
        let expect = "cannot wait for 'http://127.0.0.1:1': cannot download \
            'http://127.0.0.1:1/metrics': connection refused (ECONNREFUSED)";
        assert_eq!(late.message, expect);
    }

    #[test]
    fn only_the_address_of_metrics_is_waited_for() {
        assert!(check("http://127.0.0.1:9090").is_ok());
        for bad in ["", "127.0.0.1:9090", "https://127.0.0.1:9090", "http://"] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
