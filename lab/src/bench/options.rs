//! The flags of `cargo xtask bench`.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use lexopt::prelude::*;

use super::{
    host, peers,
    plan::Pace,
    run::{Client, Cpus, Method},
};

/// Help for the flags.
pub(crate) const HELP: &str = "\
cargo xtask bench: measure gannet and its peers side by side

  --list                list what can be measured, and exit
  --plan                list every cell with its expected time, and exit; with --resume the missing
                        ones
  --only NAME[,NAME]    scenarios (plaintext) or cells (plaintext-c64); those marked 'on demand' by
                        --list are measured only if named here
  --preset NAME         scenarios, peers, rounds and times from lab/presets/NAME.toml; other flags
                        override it ('reference' is the source of the project's own figures)
  --peers NAME[,NAME]   peers (default: those marked by --list); nginx is the base of ratios;
                        'all' for every available one
  --peer-binary NAME=PATH
                        the program of kawipiko, ianic-httpd or faf (repeatable), which takes part
  --rounds N            rounds in which every peer runs once (default 5)
  --duration SECS       counted time of a run (default 4)
  --warm-up SECS        warm-up before it, not counted (default 1)
  --quick               one round of 1 s, one cell of each scenario unless --only names them, small
                        content: proves that it runs, gives no figures
  --cpus SERVER,CLIENT  CPUs to pin to (default: the first two)
  --workers N[,N]       each cell with N workers of every server, on the first N CPUs; the client, wrk or
                        h2load, has the others, a thread on each
  --nice N              priority of both sides, -20 to 19 (default: unchanged)
  --client own|wrk      the load client (default own)
  --gannet PATH         measure this binary instead of building a release
  --work DIR            directory for files (default: memory, in /dev/shm)
  --save NAME           write lab/results/NAME (default: DATE-HOST; nothing for a quick run)
  --no-save             write nothing
  --resume              keep the cells that --save NAME has and measure the others
  --budget MINUTES      begin only cells that are expected to end in that time
  --ktls                kernel TLS for every server that has it, in every scenario with TLS

  --compare [NAME]      compare the newest result, or NAME, with earlier ones, and exit
  --render NAME         generate tables and picture of a result from its data, and exit
  --readme NAME[,NAME]  update the README's figures from these results, and exit

The expected time is printed before a run, and the data (report.json.gz) are written after every cell:
an interrupted run keeps its results. A run with a wrong response, an error or a dead server gives no
figure and fails the command. TCP's congestion control is set to cubic for the runs, and the range of
local ports is widened for thousands of connections, and a preset may set the MTU of loopback; all are
restored afterwards.
";

/// A task for existing results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Compare the newest result, or the named one, with earlier ones.
    Compare(Option<String>),
    /// Generate tables and picture of a result from its data.
    Render(String),
    /// Update the README's figures from these results.
    Readme(Vec<String>),
}

/// The parsed flags.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct Options {
    /// Names of scenarios or cells; empty for all.
    pub(crate) only: Vec<String>,
    /// Names of peers.
    pub(crate) peers: Vec<String>,
    /// Whether the user named peers, so that a missing one is an error.
    pub(crate) peers_given: bool,
    /// Name of a preset.
    pub(crate) preset: Option<String>,
    /// Rounds.
    pub(crate) rounds: usize,
    /// Rounds, duration and warm-up if given; they override a preset's.
    given: (Option<usize>, Option<f64>, Option<f64>),
    /// The method of the runs.
    pub(crate) method: Method,
    /// Small files and one round.
    pub(crate) quick: bool,
    /// Only list scenarios and peers.
    pub(crate) list: bool,
    /// Only estimate how long it will take.
    pub(crate) plan: bool,
    /// Whether to resume a partial result.
    pub(crate) resume: bool,
    /// Time in minutes after which no cell should be running.
    pub(crate) budget: Option<f64>,
    /// Numbers of workers, each to be measured; none for one worker, pinned to one CPU.
    pub(crate) workers: Vec<usize>,
    /// Priority of both sides.
    pub(crate) nice: Option<i32>,
    /// The gannet binary to measure.
    pub(crate) gannet: Option<PathBuf>,
    /// Programs of peers built by the user, by peer name.
    pub(crate) peer_binaries: Vec<(String, PathBuf)>,
    /// The directory for files.
    pub(crate) work: Option<PathBuf>,
    /// Name of the result; `None` for DATE-HOST.
    pub(crate) save: Option<String>,
    /// Whether to write no result.
    pub(crate) no_save: bool,
    /// A task for existing results, instead of measuring.
    pub(crate) task: Option<Task>,
}

impl Options {
    /// Parses the flags; returns `None` if help was printed.
    pub(crate) fn parse(parser: &mut lexopt::Parser) -> Result<Option<Self>> {
        let allowed = host::allowed_cpus();
        let cpus = Cpus {
            server: allowed[0],
            client: allowed[allowed.len().min(2) - 1],
        };
        let method = Method {
            duration_s: 4.0,
            warm_up_s: 1.0,
            cpus,
            client: Client::Own,
            ktls: false,
        };
        let mut options = Self {
            only: Vec::new(),
            peers: peers::DEFAULT.map(str::to_owned).to_vec(),
            peers_given: false,
            preset: None,
            rounds: 5,
            given: (None, None, None),
            method,
            quick: false,
            list: false,
            plan: false,
            resume: false,
            budget: None,
            workers: Vec::new(),
            nice: None,
            gannet: None,
            peer_binaries: Vec::new(),
            work: None,
            save: None,
            no_save: false,
            task: None,
        };
        let mut client = None;
        while let Some(argument) = parser.next()? {
            match argument {
                Long("list") => options.list = true,
                Long("plan") => options.plan = true,
                Long("preset") => options.preset = Some(parser.value()?.string()?),
                Long("resume") => options.resume = true,
                Long("budget") => options.budget = Some(parser.value()?.parse()?),
                Long("quick") => options.quick = true,
                Long("only") => options.only = list(&parser.value()?.string()?),
                Long("peers") => options.choose_peers(list(&parser.value()?.string()?)),
                Long("peer-binary") => {
                    let pair = peer_binary(&parser.value()?.string()?)?;
                    options.peer_binaries.push(pair);
                }
                Long("rounds") => options.given.0 = Some(parser.value()?.parse()?),
                Long("duration") => options.given.1 = Some(parser.value()?.parse()?),
                Long("warm-up") => options.given.2 = Some(parser.value()?.parse()?),
                Long("cpus") => options.method.cpus = cpus_of(&parser.value()?.string()?)?,
                Long("workers") => options.workers = workers_of(&parser.value()?.string()?)?,
                Long("nice") => options.nice = Some(parser.value()?.parse()?),
                Long("client") => {
                    client = Some(match parser.value()?.string()?.as_str() {
                        "own" => Client::Own,
                        "wrk" => Client::Wrk,
                        other => bail!("--client {other}: neither own nor wrk"),
                    });
                }
                Long("gannet") => options.gannet = Some(parser.value()?.into()),
                Long("work") => options.work = Some(parser.value()?.into()),
                Long("save") => options.save = Some(parser.value()?.string()?),
                Long("no-save") => options.no_save = true,
                Long("ktls") => options.method.ktls = true,
                Long("compare") => {
                    let name = parser.optional_value().or_else(|| next_value(parser));
                    let name = name.map(ValueExt::string).transpose()?;
                    options.task = Some(Task::Compare(name));
                }
                Long("render") => options.task = Some(Task::Render(parser.value()?.string()?)),
                Long("readme") => {
                    options.task = Some(Task::Readme(list(&parser.value()?.string()?)));
                }
                Short('h') | Long("help") => {
                    print!("{HELP}");
                    return Ok(None);
                }
                _ => return Err(argument.unexpected().into()),
            }
        }
        let all_peers = options.peers.len() == peers::names().count();
        if options.quick {
            (
                options.rounds,
                options.method.duration_s,
                options.method.warm_up_s,
            ) = (1, 1.0, 0.2);
        }
        if options.quick && !options.peers_given && !all_peers {
            options.peers = peers::QUICK.map(str::to_owned).to_vec();
        }
        for (name, _) in &options.peer_binaries {
            if !options.peers.contains(name) {
                options.peers.push(name.clone());
            }
        }
        ensure!(
            options.workers.is_empty() || client != Some(Client::Own),
            "--client own has one thread: --workers needs wrk, or h2load"
        );
        options.method.client = match options.workers.as_slice() {
            [] => client.unwrap_or(Client::Own),
            _ => Client::Wrk,
        };
        let (rounds, duration, warm_up) = options.given;
        options.rounds = rounds.unwrap_or(options.rounds);
        options.method.duration_s = duration.unwrap_or(options.method.duration_s);
        options.method.warm_up_s = warm_up.unwrap_or(options.method.warm_up_s);
        options.check()?;
        Ok(Some(options))
    }

    /// The pace of a cell, given that of the preset.
    pub(crate) fn pace(&self, pace: Option<Pace>) -> Pace {
        let (rounds, duration, warm_up) = self.given;
        let pace = pace.filter(|_| !self.quick).unwrap_or(Pace {
            rounds: self.rounds,
            duration_s: self.method.duration_s,
            warm_up_s: self.method.warm_up_s,
        });
        Pace {
            rounds: rounds.unwrap_or(pace.rounds),
            duration_s: duration.unwrap_or(pace.duration_s),
            warm_up_s: warm_up.unwrap_or(pace.warm_up_s),
        }
    }

    /// Selects `names`; a missing peer is an error unless all were selected.
    fn choose_peers(&mut self, names: Vec<String>) {
        self.peers_given = names != ["all"];
        self.peers = match self.peers_given {
            true => names,
            false => peers::names().map(str::to_owned).collect(),
        };
    }

    fn check(&self) -> Result<()> {
        ensure!(self.rounds > 0, "--rounds must be at least 1");
        let duration = self.method.duration_s;
        ensure!(
            (0.01..=3600.0).contains(&duration),
            "--duration must be 0.01 to 3600 seconds"
        );
        let warm_up = self.method.warm_up_s;
        ensure!(
            (0.0..=600.0).contains(&warm_up),
            "--warm-up must be 0 to 600 seconds"
        );
        ensure!(
            self.budget.is_none_or(|minutes| minutes > 0.0),
            "--budget must be above 0 minutes"
        );
        ensure!(
            !self.resume || self.save.is_some(),
            "--resume needs --save NAME: the result to resume"
        );
        for name in &self.peers {
            let known = || peers::names().collect::<Vec<_>>().join(", ");
            ensure!(
                peers::by_name(name).is_some(),
                "--peers {name}: not one of {}",
                known()
            );
        }
        let names = match &self.task {
            Some(Task::Readme(names)) => names.iter().collect(),
            Some(Task::Render(name) | Task::Compare(Some(name))) => vec![name],
            _ => Vec::new(),
        };
        for name in self.save.iter().chain(&self.preset).chain(names) {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            let good = !name.is_empty() && !name.starts_with('.') && name.chars().all(plain);
            ensure!(good, "name '{name}': use letters, digits, '-', '_' and '.'");
        }
        Ok(())
    }
}

/// The next argument, unless it is a flag.
fn next_value(parser: &mut lexopt::Parser) -> Option<std::ffi::OsString> {
    parser
        .try_raw_args()?
        .next_if(|argument| !argument.to_string_lossy().starts_with('-'))
}

fn list(text: &str) -> Vec<String> {
    text.split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

fn peer_binary(text: &str) -> Result<(String, PathBuf)> {
    let (name, path) = text
        .split_once('=')
        .context("--peer-binary takes NAME=PATH")?;
    ensure!(
        peers::takes_binary(name),
        "--peer-binary {name}: not one of kawipiko, ianic-httpd and faf"
    );
    Ok((name.to_owned(), path.into()))
}

fn workers_of(text: &str) -> Result<Vec<usize>> {
    let most = host::allowed_cpus().len();
    let number = |text: String| {
        let number = text
            .parse()
            .ok()
            .filter(|number| (1..=most).contains(number));
        number.with_context(|| {
            format!("--workers {text}: not a number from 1 to {most}, that of the CPUs")
        })
    };
    list(text).into_iter().map(number).collect()
}

fn cpus_of(text: &str) -> Result<Cpus> {
    let (server, client) = text
        .split_once(',')
        .context("--cpus takes two numbers, as 0,1")?;
    let number = |text: &str| {
        text.trim()
            .parse()
            .with_context(|| format!("--cpus: '{text}' is not a number"))
    };
    Ok(Cpus {
        server: number(server)?,
        client: number(client)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Options> {
        let mut parser = lexopt::Parser::from_args(arguments);
        Options::parse(&mut parser).map(|options| options.expect("no --help"))
    }

    #[test]
    fn quick_is_short_unless_told_otherwise() {
        let options = parse(&["--quick", "--rounds", "2"]).expect("good");
        assert_eq!((options.rounds, options.method.duration_s), (2, 1.0));
    }

    #[test]
    fn peers_that_are_given_take_part_and_all_are_all() {
        let options = parse(&["--quick", "--peer-binary", "faf=/x/faf"]).expect("good");
        assert!(options.peers.iter().any(|name| name == "faf"));
        assert!(options.peers.len() > 1 && !options.peers_given);
        let options = parse(&["--quick", "--peers", "all"]).expect("good");
        assert_eq!(options.peers.len(), peers::names().count());
        assert!(!options.peers_given);
    }

    #[test]
    fn the_client_has_a_thread_for_each_worker() {
        let client = |arguments: &[&str]| parse(arguments).map(|it| it.method.client).ok();
        assert_eq!(client(&[]), Some(Client::Own));
        assert_eq!(client(&["--workers", "1"]), Some(Client::Wrk));
        for own in [
            ["--client", "own", "--workers", "1"],
            ["--workers", "1", "--client", "own"],
        ] {
            assert_eq!(client(&own), None, "{own:?}");
        }
    }

    #[test]
    fn mistakes_are_refused() {
        for arguments in [
            ["--peers", "apache"],
            ["--rounds", "0"],
            ["--duration", "0"],
            ["--cpus", "0"],
            ["--workers", "0"],
            ["--workers", "100000"],
            ["--client", "curl"],
            ["--peer-binary", "faf"],
            ["--peer-binary", "nginx=/x"],
            ["--save", "../x"],
            ["--preset", "../x"],
            ["--budget", "0"],
        ] {
            assert!(parse(&arguments).is_err(), "{arguments:?}");
        }
    }
}
