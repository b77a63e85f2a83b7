//! `gannet acme`: certificates from an ACME server, ordered and renewed.

use std::path::Path;

use clap::ArgMatches;

use crate::messages::Failure;

/// Orders and renews until it is ended, or once.
///
/// # Errors
/// The command line or the folder cannot be used; with `--once`, a certificate is lacking.
#[cfg(feature = "fleet")]
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    ordering::run(matches)
}

/// Says what is missing.
///
/// # Errors
/// Always.
#[cfg(not(feature = "fleet"))]
pub fn run(_: &ArgMatches) -> Result<u8, Failure> {
    let cause = "cannot order certificates: this program was built without the feature 'fleet'";
    Err(Failure::usage(cause).help("build it with its default features"))
}

/// Reads the key of an account elsewhere.
///
/// # Errors
/// The file cannot be read, or has no such key.
#[cfg(feature = "fleet")]
pub fn check_key(file: &Path) -> Result<(), Failure> {
    ordering::binding(String::new(), file).map(drop)
}

/// Without the feature, nothing is ordered, which is reported instead.
///
/// # Errors
/// There are none.
#[cfg(not(feature = "fleet"))]
pub fn check_key(_: &Path) -> Result<(), Failure> {
    Ok(())
}

#[cfg(feature = "fleet")]
mod ordering {
    use std::collections::{HashMap, HashSet};
    use std::ffi::OsString;
    use std::io::{self, BufRead, Read};
    use std::path::Path;
    use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
    use std::thread;
    use std::time::Duration;

    use clap::ArgMatches;
    use gannet_fleet::acme::{
        AcmeError, Binding, Challenge, Event, LETS_ENCRYPT, OrderSettings, Orderer, STAGING,
    };
    use gannet_fleet::limits::ON_DEMAND_HOSTS_MAX;
    use gannet_io::named_file;
    use gannet_server::notices::ERRORS;
    use gannet_server::tls::certificates::now_unix;

    use crate::command_line::public_hosts::check_public;
    use crate::command_line::values::acme_hosts;
    use crate::commands::text;
    use crate::messages::{Exit, Failure, printable};
    use crate::quantities::lasting;

    pub(super) fn run(matches: &ArgMatches) -> Result<u8, Failure> {
        let named = matches.get_many::<OsString>("host").unwrap_or_default();
        let named: Vec<OsString> = named.cloned().collect();
        let hosts = acme_hosts(&named).map_err(|why| {
            Failure::usage(why).help("name hosts such as example.org, or IP addresses")
        })?;
        let folder = Path::new(text(matches, "dir"));
        let settings = settings(matches)?;
        if matches.get_one::<OsString>("server").is_none() {
            check_public(&hosts).map_err(|why| {
                Failure::usage(why).help("name an ACME server of your own with --server URL")
            })?;
        }
        let is_http = settings.challenge == Challenge::Http;
        let shown = printable(&folder.to_string_lossy());
        let is_busy = |process: Option<u32>| {
            let process = process.map_or(String::new(), |it| format!(", process {it},"));
            ERRORS.log(format_args!(
                "gannet: waiting: another 'gannet acme'{process} uses '{shown}'\n\
                 help: if both are to stay, give each a folder of its own"
            ));
        };
        let mut orderer = Orderer::open(folder, &hosts, settings, is_busy)?;
        let is_once = matches.get_flag("once");
        let mut journal = Journal {
            is_http,
            is_once,
            ..Journal::default()
        };
        let names = matches
            .get_flag("names-from-stdin")
            .then(names)
            .transpose()?;
        if hosts.is_empty() && names.is_none() {
            let thumbprint = orderer.thumbprint(now_unix());
            for warning in orderer.warnings() {
                journal.log(Event::Warned(warning));
            }
            return crate::commands::print(&format!("{}\n", thumbprint?));
        }
        if is_http {
            // Without an account, the first order says why.
            if let Ok(thumbprint) = orderer.thumbprint(now_unix()) {
                log_thumbprint(&thumbprint);
            }
        }
        loop {
            let renewals = orderer.round(&now_unix, &mut |event| journal.log(event));
            if is_once && renewals.waiting == 0 {
                return Ok(u8::from(renewals.failing > 0));
            }
            // The clock may be set meanwhile, or the machine may sleep.
            wait(renewals.next.min(SLEEP_MOST), names.as_ref(), &mut orderer);
        }
    }

    /// Waits, or notes hosts that are named meanwhile.
    fn wait(most: Duration, names: Option<&Receiver<String>>, orderer: &mut Orderer) {
        let named = match names.map(|names| (names, names.recv_timeout(most))) {
            Some((names, Ok(first))) => noted(first, names),
            Some((_, Err(RecvTimeoutError::Timeout))) => return,
            // No server names hosts any more.
            Some((_, Err(RecvTimeoutError::Disconnected))) | None => return thread::sleep(most),
        };
        for line in named {
            let (name, is_gone) = match line.strip_prefix('-') {
                Some(name) => (name, true),
                None => (line.as_str(), false),
            };
            match acme_hosts(&[name.into()]).as_deref() {
                Ok([host]) if is_gone => orderer.forget(host),
                Ok([host]) => orderer.add(host, now_unix()),
                // A server names only its own sites, whose names are checked.
                _ => {}
            }
        }
    }

    /// The first name and those that were read after it, as many as fit: who writes without a pause keeps no order
    /// from being made.
    fn noted(first: String, names: &Receiver<String>) -> impl Iterator<Item = String> {
        let more = names.try_iter().take(NAMES_MAX);
        std::iter::once(first).chain(more)
    }

    /// Reads the lines of the standard input, on a thread: `NAME` orders for a host, `-NAME` does not any
    /// more. While none is taken, the writer has to wait.
    fn names() -> Result<Receiver<String>, Failure> {
        let (sender, names) = sync_channel(NAMES_MAX);
        let read = move || {
            let mut input = io::stdin().lock();
            let mut line = String::new();
            loop {
                line.clear();
                let read = input.by_ref().take(NAME_LEN_MAX).read_line(&mut line);
                let is_over = !read.is_ok_and(|len| len > 0);
                if is_over || sender.send(line.trim().to_owned()).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("gannet-names".into());
        match thread.spawn(read) {
            Ok(_) => Ok(names),
            Err(error) => Err(Failure::of_system("start", "a thread", &error)),
        }
    }

    fn settings(matches: &ArgMatches) -> Result<OrderSettings, Failure> {
        let of = |name: &str| {
            let value = matches.get_one::<OsString>(name);
            value.map(|it| it.to_string_lossy().into_owned())
        };
        let server = match (of("server"), matches.get_flag("staging")) {
            (Some(_), true) => {
                return Err(
                    Failure::usage("--staging and --server contradict each other")
                        .help("leave one of them out"),
                );
            }
            (Some(server), false) => server,
            (None, true) => STAGING.to_owned(),
            (None, false) => LETS_ENCRYPT.to_owned(),
        };
        let binding = match (of("eab-kid"), matches.get_one::<OsString>("eab-key")) {
            (None, None) => None,
            (Some(key_id), Some(file)) => Some(binding(key_id, Path::new(file))?),
            _ => {
                return Err(Failure::usage("--eab-kid and --eab-key belong together")
                    .help("give both, or none"));
            }
        };
        let challenge = match of("challenge").as_deref() {
            None | Some("http-01") => Challenge::Http,
            Some("tls-alpn-01") => Challenge::Tls,
            Some(other) => {
                let message = format!("cannot use '--challenge {}'", printable(other));
                return Err(Failure::usage(message).help("give http-01 or tls-alpn-01"));
            }
        };
        Ok(OrderSettings {
            server,
            email: of("email"),
            profile: of("profile"),
            binding,
            challenge,
            ..OrderSettings::default()
        })
    }

    /// The key of an account elsewhere is in a file.
    pub(super) fn binding(key_id: String, file: &Path) -> Result<Binding, Failure> {
        let file_shown = printable(&file.to_string_lossy());
        // A path that comes with the configuration: a FIFO must not keep the start waiting.
        let text = named_file::read_text(file, KEY_LEN_MAX)
            .map_err(|error| Failure::of_system("read", &file_shown, &error))?;
        Binding::new(key_id, text.trim()).ok_or_else(|| {
            Failure::usage(format!("cannot use '{file_shown}': not a key in Base64"))
                .help("it has the key of an account, as the ACME server's operator shows it")
        })
    }

    /// The messages that were printed already.
    #[derive(Default)]
    struct Journal {
        /// Of each host, the last failure; that of all has no name.
        failures: HashMap<String, Failure>,
        /// Certificates that end soon, and when that was reported.
        late: HashMap<i64, i64>,
        /// The texts of warnings: of each object, there are only a few.
        warnings: HashSet<String>,
        /// The server that answers challenges has to know the thumbprint.
        is_http: bool,
        /// This process does not try again.
        is_once: bool,
    }

    /// The account, and files that are kept for all.
    const OF_ALL: &str = "";
    /// A disk that takes no file.
    const OF_DISK: &str = " disk";

    /// The object of a failure that is printed once.
    #[derive(Clone, Copy)]
    struct Once<'h> {
        /// Or what all hosts have in common; no host has such a name.
        host: &'h str,
        /// Whatever file it names.
        is_of_disk: bool,
    }

    impl<'h> Once<'h> {
        fn of(host: &'h str, error: &AcmeError) -> Self {
            Self {
                host: match (error.is_of_disk(), error.is_of_all()) {
                    (true, _) => OF_DISK,
                    (_, true) => OF_ALL,
                    _ => host,
                },
                is_of_disk: error.is_of_disk(),
            }
        }
    }

    impl Journal {
        fn log(&mut self, event: Event<'_>) {
            match event {
                Event::Ordered {
                    host,
                    file,
                    not_after,
                } => {
                    self.ordered(host);
                    let file = printable(&file.to_string_lossy());
                    // Why, the next message says.
                    let rest = left(not_after - now_unix(), "for", "that has ended");
                    ERRORS.log(format_args!(
                        "gannet: '{host}' has a new certificate {rest}: '{file}'"
                    ));
                }
                Event::Failed {
                    host,
                    error,
                    again,
                    until,
                } => self.report_failure(host, error, again, until),
                Event::Replaced { aside } => {
                    let aside = printable(&aside.to_string_lossy());
                    ERRORS.log(format_args!(
                        "gannet: the ACME server no longer knew the account: there is a new one, \
                         and the earlier one is in '{aside}'"
                    ));
                }
                Event::Account { thumbprint } if self.is_http => log_thumbprint(&thumbprint),
                Event::Account { .. } => {}
                Event::Warned(error) => {
                    let failure = Failure::from(error);
                    if self.warnings.insert(failure.message.clone()) {
                        failure.report();
                    }
                }
            }
        }

        /// A host has its certificate, and so there is an account.
        fn ordered(&mut self, host: &str) {
            self.failures.remove(host);
            self.failures.remove(OF_ALL);
            self.failures.remove(OF_DISK);
        }

        /// Notes a failure; returns whether it is another one than the last of its host.
        fn is_new(&mut self, once: Once<'_>, failure: &Failure) -> bool {
            let mut failure = failure.clone();
            if once.is_of_disk {
                // It names the file of one host.
                failure.message.clear();
            }
            if self.failures.get(once.host) == Some(&failure) {
                return false;
            }
            if self.failures.len() >= FAILURES_MAX {
                self.failures.clear();
            }
            self.failures.insert(once.host.to_owned(), failure);
            true
        }

        fn report_failure(
            &mut self,
            host: &str,
            error: AcmeError,
            again: Duration,
            until: Option<i64>,
        ) {
            let once = Once::of(host, &error);
            let mut failure = Failure::from(error);
            if self.is_new(once, &failure) {
                let tried = if self.is_once { "try" } else { "tried" };
                let again = lasting(again.as_secs());
                failure.message += &format!("; {tried} again in {again}");
                failure.report();
            }
            let now = now_unix();
            let Some(until) = until else { return };
            let said = self.late.get(&until).copied();
            if said.is_none_or(|said| now - said >= DAY) {
                self.late.insert(until, now);
                let ends = left(until - now, "ends in", "has ended");
                ERRORS.log(format_args!(
                    "gannet: a certificate that cannot be renewed {ends}"
                ));
            }
        }
    }

    /// How long a certificate is still valid, after `words`, or that it is not any more.
    fn left(seconds: i64, words: &str, over: &str) -> String {
        match u64::try_from(seconds) {
            Ok(seconds @ 1..) => format!("{words} {}", lasting(seconds)),
            _ => over.to_owned(),
        }
    }

    /// Servers need it before the first order.
    fn log_thumbprint(thumbprint: &str) {
        ERRORS.log(format_args!(
            "gannet: servers of these hosts need acme.thumbprint = \"{thumbprint}\" in their configuration"
        ));
    }

    impl From<AcmeError> for Failure {
        fn from(error: AcmeError) -> Self {
            Self {
                message: printable(&error.to_string()),
                help: error.help(),
                exit: match error.is_usage() {
                    true => Exit::Usage,
                    false => Exit::Failed,
                },
            }
        }
    }

    /// Seconds.
    const DAY: i64 = 86_400;

    /// Hosts whose last failure is known: as many as can be named, and as many again on the command line.
    /// Of more, all are reported once more.
    const FAILURES_MAX: usize = 2 * ON_DEMAND_HOSTS_MAX;

    /// Bytes of the file of a key of an account: of 64, and somewhat more.
    const KEY_LEN_MAX: u64 = 4096;

    /// Names that were read and not noted yet.
    const NAMES_MAX: usize = 1024;

    /// Bytes of a line with a name.
    const NAME_LEN_MAX: u64 = 512;

    const SLEEP_MOST: Duration = Duration::from_secs(600);

    #[cfg(test)]
    mod tests {
        use gannet_io::cause::FileError;
        use rustix::io::Errno;

        use super::*;

        fn is_new(journal: &mut Journal, host: &str, error: AcmeError) -> bool {
            let once = Once::of(host, &error);
            journal.is_new(once, &Failure::from(error))
        }

        fn damaged(path: &str) -> AcmeError {
            AcmeError::Damaged(path.into(), "longer than 1 bytes".into())
        }

        #[test]
        fn a_certificate_of_minutes_is_none_of_0_days_and_one_that_has_ended_has_no_time_left() {
            let said = |seconds| left(seconds, "for", "that has ended");
            assert_eq!(said(300), "for 5 minutes");
            assert_eq!(said(89 * DAY + 5), "for 89 days");
            assert_eq!(
                (said(0), said(-10 * DAY)),
                (said(-1), "that has ended".into())
            );
        }

        #[test]
        fn names_without_an_end_are_noted_in_parts() {
            let (sender, names) = sync_channel(3 * NAMES_MAX);
            for number in 0..3 * NAMES_MAX {
                sender.send(format!("{number}.test")).expect("room");
            }
            assert_eq!(noted("first.test".into(), &names).count(), NAMES_MAX + 1);
            assert_eq!(
                names.recv(),
                Ok(format!("{NAMES_MAX}.test")),
                "none is lost"
            );
        }

        #[test]
        fn a_failure_of_a_host_is_said_once_whatever_comes_of_others() {
            let mut journal = Journal::default();
            let [a, b] = ["a", "b"].map(|host| format!("certificates/{host}.test.pem"));
            assert!(is_new(&mut journal, "a.test", damaged(&a)));
            assert!(is_new(&mut journal, "b.test", damaged(&b)));
            for _ in 0..2 {
                journal.ordered("c.test");
                assert!(!is_new(&mut journal, "a.test", damaged(&a)));
                assert!(!is_new(&mut journal, "b.test", damaged(&b)));
            }
            // Another one is, and so is the same after a success.
            assert!(is_new(&mut journal, "a.test", damaged(&b)));
            assert!(is_new(&mut journal, "a.test", damaged(&a)));
            journal.ordered("a.test");
            assert!(is_new(&mut journal, "a.test", damaged(&a)));
        }

        #[test]
        fn what_concerns_every_host_is_said_once() {
            let mut journal = Journal::default();
            let of_all = ["account-ca.json", "account-ca.json.draft", "history-ca"];
            let mut count = 0;
            for path in of_all {
                let paths = (0..100).map(|number| (path.to_owned(), format!("{number}.test")));
                count += paths
                    .filter(|(path, host)| is_new(&mut journal, host, damaged(path)))
                    .count();
            }
            assert_eq!(count, of_all.len());
            for code in [Errno::NOSPC, Errno::DQUOT, Errno::ROFS] {
                let mut journal = Journal::default();
                let said = (0..100).filter(|number| {
                    let host = format!("{number}.test");
                    let error = AcmeError::Io(FileError {
                        doing: "write",
                        path: format!("certificates/.{host}.order").into(),
                        error: code.into(),
                    });
                    is_new(&mut journal, &host, error)
                });
                assert_eq!(said.count(), 1, "{code}");
            }
        }

        #[test]
        fn a_full_disk_does_not_hide_that_the_account_was_said() {
            let mut journal = Journal::default();
            let full = || {
                AcmeError::Io(FileError {
                    doing: "write",
                    path: "certificates/.a.test.order".into(),
                    error: Errno::NOSPC.into(),
                })
            };
            let mut said = |host: &str, error| is_new(&mut journal, host, error);
            assert!(said("a.test", full()) && said("b.test", damaged("account-ca.json")));
            assert!(!said("a.test", full()) && !said("b.test", damaged("account-ca.json")));
        }

        #[test]
        fn failures_are_known_of_as_many_hosts_as_can_be_named() {
            let mut journal = Journal::default();
            let mut said = |count: usize| {
                let hosts = (0..count).map(|number| format!("{number}.test"));
                let said = hosts.filter(|host| is_new(&mut journal, host, damaged("a.pem")));
                let said = said.count();
                assert!(journal.failures.len() <= FAILURES_MAX);
                said
            };
            assert_eq!(
                (said(ON_DEMAND_HOSTS_MAX), said(ON_DEMAND_HOSTS_MAX)),
                (ON_DEMAND_HOSTS_MAX, 0)
            );
            said(FAILURES_MAX + 1);
        }
    }
}
