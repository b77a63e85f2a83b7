//! `gannet follow`: keeps a copy of a store that is behind a URL.

use clap::ArgMatches;

use crate::messages::Failure;

/// The variable with the URL, if that has a password, which a command line shows to everybody.
pub(crate) const STORE_URL: &str = "GANNET_STORE_URL";

/// Follows until it is ended, or once.
///
/// # Errors
/// The command line or the folder cannot be used; with `--once`, the store cannot be read or what it
/// says cannot be used.
#[cfg(feature = "fleet")]
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    following::run(matches)
}

/// Says what is missing.
///
/// # Errors
/// Always.
#[cfg(not(feature = "fleet"))]
pub fn run(_: &ArgMatches) -> Result<u8, Failure> {
    Err(built_without())
}

/// The program lacks what following needs.
#[cfg(not(feature = "fleet"))]
pub(crate) fn built_without() -> Failure {
    let cause = "cannot follow a store: this program was built without the feature 'fleet'";
    Failure::usage(cause).help("build it with its default features")
}

#[cfg(feature = "fleet")]
mod following {
    use std::ffi::OsString;
    use std::path::Path;
    use std::time::Duration;

    use clap::ArgMatches;
    use gannet_fleet::limits::{DISK_DEFAULT, RATE_LEAST};
    use gannet_fleet::{FleetError, Follower, Patience, Remote, Round, Settings};
    use gannet_fleet::{back_off, jittered};
    use gannet_server::notices::ERRORS;
    use gannet_store::Store;

    use super::STORE_URL;
    use crate::command_line::values::ON_DEMAND_LEAST;
    use crate::commands::supply::Counter;
    use crate::commands::{print, public_key, stores, text};
    use crate::messages::{Exit, Failure, printable};
    use crate::quantities::{counted, parse_duration_ms, parse_size, size};

    pub(super) fn run(matches: &ArgMatches) -> Result<u8, Failure> {
        let interval = value(matches, "interval", parse_duration_ms, INTERVAL_LEAST_MS)?;
        let interval = Duration::from_millis(interval.unwrap_or(INTERVAL_DEFAULT_MS));
        let disk = value(matches, "disk", parse_size, 1)?;
        let room = value(matches, "on-demand", parse_size, ON_DEMAND_LEAST)?;
        let settings = Settings {
            disk_max: room.or(disk).unwrap_or(DISK_DEFAULT),
            rate_max: value(matches, "limit-rate", parse_size, RATE_LEAST)?,
            on_demand: room.is_some(),
        };
        let disk_max = settings.disk_max;
        let is_once = matches.get_flag("once");
        let counter = (settings.on_demand && !is_once)
            .then(Counter::open)
            .transpose()?;
        let key = public_key(matches)?;
        let url = std::env::var_os(STORE_URL).filter(|it| !it.is_empty());
        let url = url.as_deref().unwrap_or_else(|| text(matches, "url"));
        let url = url.to_string_lossy();
        let remote = Remote::open(&url, Patience::default())?;
        let folder = Path::new(text(matches, "store"));
        let name = stores::publisher_name();
        let now = stores::now();
        let key = key.as_deref();
        let mut follower = Follower::open(remote, folder, key, settings, &name, now)?;
        let shown = Shown {
            folder: printable(&folder.to_string_lossy()),
            url: printable(follower.remote().url()),
        };
        if is_once {
            let mut round = follower.only_round(now)?;
            for left_out in round.left_out.drain(..) {
                Failure::from(left_out).report();
            }
            return print(&format!("{}\n", shown.line(&round)));
        }
        // The server asks as soon as there is a pointer, which is before the end of the round that brings it.
        let fetcher = match counter {
            Some(it) => {
                Some(it.begin((folder, disk_max), Remote::open(&url, Patience::default())?)?)
            }
            None => None,
        };
        // Also of a round that has failed after the pointer was taken over.
        let in_force = || {
            let pointer = Store::open(folder, None).and_then(|it| it.pointer());
            if let (Some(fetcher), Ok(pointer)) = (&fetcher, pointer) {
                fetcher.in_force(pointer.release);
            }
        };
        in_force();
        follow(&mut follower, &shown, interval, in_force)
    }

    /// Says one line for each change, and calls `in_force` after each round.
    fn follow(
        follower: &mut Follower,
        shown: &Shown,
        interval: Duration,
        in_force: impl Fn(),
    ) -> Result<u8, Failure> {
        let mut is_first = true;
        let mut failures = 0;
        let mut last_failure = None;
        loop {
            let round = follower.round(stores::now());
            in_force();
            let pause = match round {
                Ok(mut round) => {
                    for left_out in round.left_out.drain(..) {
                        Failure::from(left_out).report();
                    }
                    let is_news = round.is_new || round.removed > 0;
                    if is_news || is_first || last_failure.is_some() {
                        ERRORS.log(format_args!("gannet: {}", shown.line(&round)));
                    }
                    (failures, last_failure, is_first) = (0, None, false);
                    jittered(interval)
                }
                Err(error) => {
                    let failure = Failure::from(error);
                    if last_failure.as_ref() != Some(&failure) {
                        failure.report();
                    }
                    last_failure = Some(failure);
                    failures += 1;
                    back_off(failures).max(jittered(interval))
                }
            };
            follower.sleep(pause);
        }
    }

    /// The value of a flag, at least so much.
    fn value(
        matches: &ArgMatches,
        name: &str,
        parse: impl FnOnce(&str) -> Result<u64, String>,
        least: u64,
    ) -> Result<Option<u64>, Failure> {
        let Some(typed) = matches.get_one::<OsString>(name) else {
            return Ok(None);
        };
        let typed = typed.to_string_lossy();
        let parsed = parse(&typed).and_then(|value| match value < least {
            true => Err("too little".to_owned()),
            false => Ok(value),
        });
        let parsed = parsed.map_err(|cause| {
            let typed = printable(&typed);
            Failure::usage(format!("cannot use '--{name} {typed}': {cause}"))
                .help("'gannet follow --help' has the least value")
        });
        parsed.map(Some)
    }

    /// What messages call the copy and the store.
    struct Shown {
        folder: String,
        url: String,
    }

    impl Shown {
        fn line(&self, round: &Round) -> String {
            let Self { folder, url } = self;
            let pointer = &round.pointer;
            let release = &pointer.release.to_string()[..16];
            let mut line = format!("'{folder}': serial {}, release {release}", pointer.serial);
            match round.is_new {
                true => {
                    let (fetched, of) = (size(round.fetched), size(pointer.size));
                    line += &format!(", copied from {url} ({fetched} fetched, it has {of})");
                }
                false => line += &format!(", as at {url}"),
            }
            if round.removed > 0 {
                let removed = counted(round.removed as u64, "earlier release");
                line += &format!("; {removed} removed");
            }
            line
        }
    }

    impl From<FleetError> for Failure {
        fn from(error: FleetError) -> Self {
            Self {
                message: printable(&error.to_string()),
                help: error.help(),
                exit: match error {
                    FleetError::Url { .. } => Exit::Usage,
                    _ => Exit::Failed,
                },
            }
        }
    }

    /// How often the store is looked at.
    const INTERVAL_DEFAULT_MS: u64 = 5_000;
    const INTERVAL_LEAST_MS: u64 = 1_000;
}
