//! Layers the command line over the environment, the configuration file and the defaults.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use clap::ArgMatches;

use crate::command_line::config_file::ConfigFile;
use crate::command_line::flag::{Description, Flag, Value};
use crate::command_line::nearest::nearest;
use crate::command_line::other_names::retired;
use crate::messages::Failure;

/// The layer that set a value; later ones win.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Origin {
    /// The configuration file.
    File,
    /// An environment variable.
    Environment,
    /// The command line.
    CommandLine,
}

impl Origin {
    /// How messages name the flag: `--port`, `GANNET_PORT`, `'port' in the configuration`.
    #[must_use]
    pub fn shown(self, flag: &Description) -> String {
        match (self, flag.value) {
            (Self::CommandLine, Value::Positional { name }) => name.to_owned(),
            (Self::CommandLine, _) => format!("--{}", flag.name),
            (Self::Environment, _) => flag.variable(),
            (Self::File, _) => format!("'{}' in the configuration", flag.key()),
        }
    }
}

/// The layer of each flag that was set.
pub type Origins = BTreeMap<&'static str, Origin>;

/// Environment variables: of the process, or of a test.
pub type Environment = BTreeMap<String, OsString>;

/// The environment variables that start with `GANNET_`.
#[must_use]
pub fn environment() -> Environment {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .filter(|(name, _)| name.starts_with("GANNET_"))
        .collect()
}

/// Merges all layers; returns the settings and the layer that set each.
///
/// # Errors
/// A value is invalid for its flag; the message names the flag, the variable, or file and line.
pub fn resolve<S: Default>(
    flags: &'static [Flag<S>],
    section: &'static str,
    matches: &ArgMatches,
    environment: &Environment,
    file: &ConfigFile,
) -> Result<(S, Origins), Failure> {
    let mut settings = S::default();
    let mut origins = Origins::new();
    for flag in flags {
        let description = flag.describe(section);
        let Some(given) = given(&description, matches, environment, file) else {
            continue;
        };
        (flag.apply)(&mut settings, &given.values).map_err(|cause| given.failure(&cause))?;
        origins.insert(flag.name, given.origin);
    }
    Ok((settings, origins))
}

/// Refuses a variable of a flag that gannet had: what it asked for would not happen.
///
/// # Errors
/// Names the first such variable, one that the same flag replaces, and what to do instead.
pub fn refuse_retired(environment: &Environment) -> Result<(), Failure> {
    let set = environment.iter().filter(|(_, value)| !value.is_empty());
    let mut names = set.map(|(name, _)| name.as_str());
    let all = names.clone();
    match names.find_map(|name| retired(name, Origin::Environment, all.clone())) {
        None => Ok(()),
        Some((what, help)) => Err(Failure::usage(what).help(help)),
    }
}

/// Warns of each `GANNET_` variable that is not a flag's but nearly so.
///
/// Others are ignored: an orchestrator sets `GANNET_SERVICE_HOST` and the like for a service named
/// gannet.
#[must_use]
pub fn suspicious_variables(environment: &Environment, known: &[Description]) -> Vec<Failure> {
    let flags = known.iter().filter(|flag| !flag.is_key());
    let mut names: Vec<String> = flags.map(Description::variable).collect();
    names.push(CONFIG_VARIABLE.to_owned());
    environment
        .keys()
        .filter(|name| !names.contains(name))
        .filter_map(|name| {
            let short = |name: &str| name.trim_start_matches("GANNET_").to_owned();
            let shorts: Vec<String> = names.iter().map(|name| short(name)).collect();
            let meant = nearest(&short(name), shorts.iter().map(String::as_str))?;
            Some(
                Failure::usage(format!("unknown environment variable '{name}' is ignored"))
                    .help(format!("did you mean 'GANNET_{meant}'?")),
            )
        })
        .collect()
}

/// Names the configuration file.
pub const CONFIG_VARIABLE: &str = "GANNET_CONFIG";

/// What one layer gives for a flag, and where it stands there.
struct LayerValue {
    origin: Origin,
    values: Vec<OsString>,
    /// What the message quotes: `--port 80`, `GANNET_PORT=80`, `site.toml`.
    object: String,
    /// The position in the object: `line 3: port: `.
    place: String,
}

impl LayerValue {
    fn failure(&self, cause: &str) -> Failure {
        let cause = format!("{}{cause}", self.place);
        let failure = Failure::new("use", &self.object, cause).as_usage();
        match self.origin {
            Origin::CommandLine => failure.help("see 'gannet --help-all'"),
            Origin::Environment => failure.help("correct the variable, or unset it"),
            Origin::File => failure.help("'gannet --help-all' lists the values of each key"),
        }
    }
}

fn given(
    flag: &Description,
    matches: &ArgMatches,
    environment: &Environment,
    file: &ConfigFile,
) -> Option<LayerValue> {
    if let Ok(Some(values)) = matches.try_get_many::<OsString>(flag.name) {
        let values: Vec<OsString> = values.cloned().collect();
        let shown = values
            .last()
            .map(|v| v.to_string_lossy().into_owned())
            .unwrap_or_default();
        let object = match flag.value {
            Value::Positional { .. } => shown,
            Value::Switch => format!("--{}={shown}", flag.name),
            Value::One { .. } | Value::Many { .. } => format!("--{} {shown}", flag.name),
        };
        return Some(LayerValue {
            origin: Origin::CommandLine,
            values,
            object,
            place: String::new(),
        });
    }
    let variable = flag.variable();
    let value = environment.get(&variable).filter(|_| !flag.is_key());
    if let Some(value) = value.filter(|v| is_meant(flag, v)) {
        let object = format!("{variable}={}", value.to_string_lossy());
        let values = split(flag, value);
        return Some(LayerValue {
            origin: Origin::Environment,
            values,
            object,
            place: String::new(),
        });
    }
    let key = flag.key();
    let entry = file.entries.iter().find(|entry| entry.key == key)?;
    Some(LayerValue {
        origin: Origin::File,
        values: entry.values.clone(),
        object: file.name.clone(),
        place: format!("line {}: {key}: ", entry.line),
    })
}

/// An empty variable counts as unset. Kubernetes sets `GANNET_PORT=tcp://10.0.0.1:8080` in every
/// container beside a service named gannet; that is ignored, too.
fn is_meant(flag: &Description, value: &OsStr) -> bool {
    let is_service_link = flag.name == "port" && value.as_bytes().windows(3).any(|w| w == b"://");
    !value.is_empty() && !is_service_link
}

fn split(flag: &Description, value: &OsStr) -> Vec<OsString> {
    let Value::Many { separator, .. } = flag.value else {
        return vec![value.to_owned()];
    };
    let mut buffer = [0; 4];
    let separator = separator.encode_utf8(&mut buffer).as_bytes();
    value
        .as_bytes()
        .split(|b| separator == [*b])
        .map(<[u8]>::trim_ascii)
        .filter(|part| !part.is_empty())
        .map(|part| OsString::from_vec(part.to_vec()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::arguments::{Form, command};
    use crate::command_line::commands::all_flags;
    use crate::command_line::config_file::parse;
    use crate::command_line::serve_flags::SERVE_FLAGS;
    use crate::command_line::settings::{LogChoice, Settings};

    fn layered(
        typed: &[&str],
        variables: &[(&str, &str)],
        file: &str,
    ) -> Result<(Settings, Origins), Failure> {
        let typed = std::iter::once("gannet").chain(typed.iter().copied());
        let matches = command(Form::Parsing)
            .try_get_matches_from(typed)
            .expect("parses");
        let environment = variables
            .iter()
            .map(|(name, value)| ((*name).into(), value.into()))
            .collect();
        let file = parse("site.toml", file, &all_flags())?;
        resolve(SERVE_FLAGS, "", &matches, &environment, &file)
    }

    #[test]
    fn the_command_line_beats_the_environment_beats_the_file() {
        let port = |typed: &[&str], variables: &[(&str, &str)], file: &str| {
            layered(typed, variables, file).expect("valid").0.port
        };
        assert_eq!(port(&[], &[], ""), None);
        assert_eq!(port(&[], &[], "port = 1"), Some(1));
        assert_eq!(port(&[], &[("GANNET_PORT", "2")], "port = 1"), Some(2));
        assert_eq!(
            port(&["--port", "3"], &[("GANNET_PORT", "2")], "port = 1"),
            Some(3)
        );
        assert_eq!(port(&["--port", "3", "-p4"], &[], ""), Some(4));
        assert_eq!(port(&[], &[("GANNET_PORT", "")], "port = 1"), Some(1));
        assert_eq!(port(&[], &[("GANNET_PORT", "tcp://10.0.0.1:80")], ""), None);
    }

    #[test]
    fn a_switch_can_be_switched_back_by_a_higher_layer() {
        let spa = |typed: &[&str], file: &str| {
            layered(typed, &[], file)
                .expect("valid")
                .0
                .server
                .content
                .spa
        };
        assert!(spa(&["--spa"], ""));
        assert!(spa(&[], "spa = true"));
        assert!(!spa(&["--spa=false"], "spa = true"));
    }

    #[test]
    fn lists_replace_the_lower_layers_list() {
        let listen = |typed: &[&str], variables: &[(&str, &str)]| {
            let file = "listen = [':1', ':2', ':3']";
            layered(typed, variables, file)
                .expect("valid")
                .0
                .listen
                .len()
        };
        assert_eq!(listen(&[], &[]), 3);
        assert_eq!(
            listen(&[], &[("GANNET_LISTEN", "127.0.0.1:80, [::1]:80")]),
            2
        );
        assert_eq!(listen(&["-l", ":9"], &[("GANNET_LISTEN", ":80,:81")]), 1);
        assert_eq!(
            listen(&["-l", ":9", "-l:10", "--listen=:11", "-l", ":12"], &[]),
            4
        );
    }

    #[test]
    fn keys_of_tables_have_no_variable() {
        let masked = |variables: &[(&str, &str)], file: &str| {
            let (settings, _) = layered(&[], variables, file).expect("valid");
            (settings.server.log_lines.is_masked, settings.log)
        };
        let file = "[log]\nmask = true\nformat = 'json'";
        assert_eq!(masked(&[], file), (true, LogChoice::Json));
        assert_eq!(masked(&[], "log.mask = true"), (true, LogChoice::Auto));
        assert_eq!(masked(&[], "log = 'json'"), (false, LogChoice::Json));
        let variable = [("GANNET_LOG.MASK", "true"), ("GANNET_LOG", "off")];
        assert_eq!(masked(&variable, "log = 'json'"), (false, LogChoice::Off));
        assert_eq!(masked(&variable, file), (true, LogChoice::Off));
    }

    #[test]
    fn a_wrong_value_is_told_with_its_origin() {
        let check = |typed: &[&str], variables: &[(&str, &str)], file: &str, expect: &str| {
            let failure = layered(typed, variables, file).expect_err(expect);
            assert_eq!(failure.to_string(), expect);
        };
        let cause = "not a whole number from 0 to 65535";
        check(
            &["--port", "x"],
            &[],
            "",
            &format!("gannet: cannot use '--port x': {cause}\nhelp: see 'gannet --help-all'"),
        );
        check(
            &[],
            &[("GANNET_PORT", "x")],
            "",
            &format!(
                "gannet: cannot use 'GANNET_PORT=x': {cause}\n\
                 help: correct the variable, or unset it"
            ),
        );
        check(
            &[],
            &[],
            "\nport = 70000",
            &format!(
                "gannet: cannot use 'site.toml': line 2: port: {cause}\n\
                 help: 'gannet --help-all' lists the values of each key"
            ),
        );
    }

    #[test]
    fn variables_of_retired_flags_are_refused() {
        let refuse = |name: &str, value: &str| {
            let environment = [(name.to_owned(), value.into())].into_iter().collect();
            refuse_retired(&environment).map_err(|failure| failure.to_string())
        };
        let expect = "gannet: 'GANNET_NO_HTTP3' is no longer an environment variable\n\
            help: unset it, and give '--http 1,2' if it was true";
        assert_eq!(refuse("GANNET_NO_HTTP3", "1"), Err(expect.into()));
        let both = [
            ("GANNET_NO_HTTP2".to_owned(), "1".into()),
            ("GANNET_NO_HTTP3".to_owned(), "1".into()),
        ];
        let failure = refuse_retired(&both.into_iter().collect()).expect_err("both are retired");
        let expect_both = "gannet: 'GANNET_NO_HTTP2' and 'GANNET_NO_HTTP3' are no longer environment \
            variables\nhelp: unset both, and give '--http 1' if both were true";
        assert_eq!(failure.to_string(), expect_both);
        let expect = "gannet: 'GANNET_CLIENT_REQUESTS' is no longer an environment variable\n\
            help: unset it, and write 'client.requests = ...' into the file of --config";
        assert_eq!(refuse("GANNET_CLIENT_REQUESTS", "1/s"), Err(expect.into()));
        assert_eq!(refuse("GANNET_NO_HTTP3", ""), Ok(()));
        assert_eq!(refuse("GANNET_NO_LISTING", "1"), Ok(()));
    }

    #[test]
    fn only_near_misses_among_variables_are_mentioned() {
        let names = [
            "GANNET_PROT",
            "GANNET_PORT",
            "GANNET_CONFIG",
            "GANNET_SERVICE_HOST",
        ];
        let environment = names
            .iter()
            .map(|name| ((*name).into(), "1".into()))
            .collect();
        let found = suspicious_variables(&environment, &all_flags());
        let expect = "gannet: unknown environment variable 'GANNET_PROT' is ignored\n\
            help: did you mean 'GANNET_PORT'?";
        assert_eq!(
            found.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [expect]
        );
    }
}
