//! Servers that receive what was published.

use clap::ArgMatches;
use gannet_store::Pointer;

use crate::commands::destination::Destination;
use crate::commands::texts;
use crate::messages::Failure;

#[cfg(feature = "fleet")]
pub(super) use bringing::Targets;

/// None: the program lacks what it takes.
#[cfg(not(feature = "fleet"))]
pub(super) struct Targets;

#[cfg(not(feature = "fleet"))]
impl Targets {
    pub(super) fn of(matches: &ArgMatches, _: bool) -> Result<Self, Failure> {
        match texts(matches, "target").is_empty() {
            true => Ok(Self),
            false => crate::commands::receive::check().map(|()| Self),
        }
    }

    pub(super) fn bring(
        &self,
        _: &Destination,
        _: &Pointer,
    ) -> Result<(String, Vec<Failure>), Failure> {
        Ok((String::new(), Vec::new()))
    }
}

#[cfg(feature = "fleet")]
mod bringing {
    use std::fs::{self, File};
    use std::thread;

    use gannet_fleet::{PushError, Target};

    use super::{ArgMatches, Destination, Failure, Pointer, texts};
    use crate::commands::removal::RemovalOnSignal;
    use crate::messages::printable;
    use crate::quantities::size;

    /// The addresses of servers.
    pub(crate) struct Targets(Vec<Target>);

    impl Targets {
        /// Those that the command line names.
        ///
        /// # Errors
        /// One is no address, or nothing would be signed.
        pub(crate) fn of(matches: &ArgMatches, is_signed: bool) -> Result<Self, Failure> {
            let read = |typed: String| {
                Target::parse(&typed).map_err(|why| {
                    let typed = printable(&typed);
                    Failure::usage(format!("cannot publish to '{typed}': {why}"))
                        .help("name the address of --receive of a server: https://HOST:PORT")
                })
            };
            let targets = texts(matches, "target").into_iter().map(read);
            let targets: Vec<_> = targets.collect::<Result<_, _>>()?;
            match targets.first() {
                Some(target) if !is_signed => {
                    let cause = "servers take only what is signed";
                    let failure = Failure::new("publish to", target, cause).as_usage();
                    Err(failure.help("add --sign KEY"))
                }
                _ => Ok(Self(targets)),
            }
        }

        /// Brings a pointer and its release to all, and once that is done, has those that have the release
        /// put it into force. Returns a line for each that has, and failures of the others.
        ///
        /// # Errors
        /// The store does not have it.
        pub(crate) fn bring(
            &self,
            destination: &Destination,
            pointer: &Pointer,
        ) -> Result<(String, Vec<Failure>), Failure> {
            if self.0.is_empty() {
                return Ok((String::new(), Vec::new()));
            }
            destination.bring(pointer.release)?;
            let store = destination.publisher().store();
            let path = store.release_file(pointer)?;
            let read = |error| Failure::of_system("read", path.display(), &error);
            let file = File::open(&path).map_err(read)?;
            let log = store.log_path(pointer.serial);
            let text = fs::read_to_string(&log);
            let text = text.map_err(|error| Failure::of_system("read", log.display(), &error))?;
            // Packing has left SIGINT and SIGTERM without effect.
            let _ends_at_once = RemovalOnSignal::by(|| ())?;
            let release = (&file, pointer.size);
            let all = self.0.iter();
            let brought = each(all, |it| it.push(&text, release, false).map(|it| it.bytes));
            let there = brought.iter().filter(|(_, done)| done.is_ok());
            let there = there.map(|(target, _)| *target);
            let activated = each(there, |it| it.push(&text, release, true).map(|_| 0));
            let refused = brought.iter().chain(&activated);
            let refused = refused.filter_map(|(target, done)| Some((target, done.as_ref().err()?)));
            let failures = refused.map(|(target, error)| Failure {
                help: error.help(),
                ..Failure::new("publish to", target, printable(&error.to_string()))
            });
            let failures = failures.collect();
            let lines = activated.iter().filter(|(_, done)| done.is_ok());
            let lines = lines.map(|(target, _)| {
                let mut all = brought.iter();
                let sent = all.find(|(other, _)| std::ptr::eq(*other, *target));
                let sent = sent.and_then(|(_, sent)| sent.as_ref().ok().copied());
                let sent = size(sent.unwrap_or_default());
                let target = printable(&target.to_string());
                format!("  {:<9} {target}, {sent} sent\n", "brought")
            });
            Ok((lines.collect(), failures))
        }
    }

    /// Does this with each of them at the same time.
    fn each<'t>(
        targets: impl Iterator<Item = &'t Target>,
        act: impl Fn(&Target) -> Result<u64, PushError> + Sync,
    ) -> Vec<(&'t Target, Result<u64, PushError>)> {
        let act = &act;
        thread::scope(|scope| {
            let threads = targets.map(|target| (target, scope.spawn(move || act(target))));
            let threads: Vec<_> = threads.collect();
            let ended = threads.into_iter();
            let ended =
                ended.map(|(target, it)| (target, it.join().expect("nothing in it panics")));
            ended.collect()
        })
    }
}
