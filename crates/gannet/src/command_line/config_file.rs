//! Reads a TOML configuration whose keys are the flags' names.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use gannet_io::named_file;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::command_line::flag::{Description, Value};
use crate::command_line::layers::Origin;
use crate::command_line::nearest::nearest;
use crate::command_line::other_names::retired;
use crate::messages::Failure;

/// Maximum length of a configuration in bytes; real ones have a few hundred.
pub const CONFIG_LEN_MAX: u64 = 1 << 20;

/// The key of a flag in the table of its name: TOML has no room for a value and a table.
const IN_TABLES: &[(&str, &str)] = &[("acme.hosts", "acme"), ("log.format", "log")];

/// A configuration whose keys all exist and whose values have the right kind.
#[derive(Debug, Default)]
pub struct ConfigFile {
    /// As the user typed it.
    pub name: String,
    /// In the order of the file.
    pub entries: Vec<Entry>,
    /// The file that it was read from, if there is one.
    pub source: Option<Source>,
}

/// A file that was read.
#[derive(Debug)]
pub struct Source {
    /// As the user typed it.
    pub path: PathBuf,
    /// Its content.
    pub text: String,
    /// What it was just before that.
    pub before: Metadata,
    /// The file itself, which remains open.
    pub file: File,
}

/// One key with its value.
#[derive(Debug)]
pub struct Entry {
    /// `listen`, `pack.output`: as [`Description::key`].
    pub key: String,
    /// Its line, from 1.
    pub line: usize,
    /// The values as they would be typed after the flag.
    pub values: Vec<OsString>,
}

/// Reads and checks the file against all commands' flags.
///
/// # Errors
/// The file cannot be read, is not TOML, or has an unknown key or a value of the wrong type.
pub fn read(path: &Path, known: &[Description]) -> Result<ConfigFile, Failure> {
    use io::ErrorKind::{IsADirectory, NotFound, PermissionDenied};
    let name = path.display().to_string();
    let fail = |error: io::Error| {
        let failure = Failure::of_system("read configuration", &name, &error);
        match error.kind() {
            NotFound | PermissionDenied | IsADirectory => failure.as_usage(),
            // Not a mistake of anyone: another attempt may succeed.
            _ if error.raw_os_error().is_some() => failure,
            // It is no text.
            _ => failure.as_usage(),
        }
    };
    let file = named_file::open(path).map_err(fail)?;
    let before = file.metadata().map_err(fail)?;
    let text = named_file::read_text_of(&file, CONFIG_LEN_MAX).map_err(fail)?;
    let parsed = parse(&name, &text, known)?;
    let source = Source {
        path: path.to_owned(),
        text,
        before,
        file,
    };
    Ok(ConfigFile {
        source: Some(source),
        ..parsed
    })
}

/// Checks the text of a configuration against all commands' flags.
///
/// # Errors
/// The text is not TOML, or has an unknown key or a value of the wrong type.
pub fn parse(name: &str, text: &str, known: &[Description]) -> Result<ConfigFile, Failure> {
    let mut reader = Reader {
        name,
        text,
        known,
        top_level: Vec::new(),
    };
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().unwrap_or(0..0);
        let failure = reader.fail(&at, error.message().lines().next().unwrap_or("not TOML"));
        let typed = text.get(at).unwrap_or_default();
        match IN_TABLES.iter().find(|(_, key)| typed == *key) {
            Some((full, key)) => failure.help(format!(
                "have one table [{key}], and '{full}' in place of '{key}'"
            )),
            None if !name.ends_with(".toml") => failure.help(
                "it has to be TOML; what other servers' lines are here, docs/manual/migrating.md says",
            ),
            None => failure,
        }
    })?;
    reader.top_level = table.get_ref().keys().map(|key| &**key.get_ref()).collect();
    let mut entries = Vec::new();
    for (key, value) in table.get_ref() {
        let is_of_table = |it: &Description| {
            let key_of_it = it.key();
            let table = key_of_it.split_once('.').map(|(table, _)| table);
            table == Some(key.get_ref().as_ref())
        };
        let section = known.iter().any(is_of_table);
        match value.get_ref() {
            DeValue::Table(inner) if section => {
                for (inner_key, inner_value) in inner {
                    let full = format!("{}.{}", key.get_ref(), inner_key.get_ref());
                    let own = IN_TABLES.iter().find(|(inside, _)| *inside == full);
                    let full = own.map_or(full, |(_, key)| (*key).to_owned());
                    entries.push(reader.entry(full, &inner_key.span(), inner_value)?);
                }
            }
            _ => entries.push(reader.entry(key.get_ref().to_string(), &key.span(), value)?),
        }
    }
    entries.sort_by_key(|entry| entry.line);
    Ok(ConfigFile {
        name: name.to_owned(),
        entries,
        source: None,
    })
}

struct Reader<'a> {
    name: &'a str,
    text: &'a str,
    known: &'a [Description],
    /// Those of the file that are in no table.
    top_level: Vec<&'a str>,
}

impl Reader<'_> {
    fn line(&self, at: &Range<usize>) -> usize {
        let before = &self.text.as_bytes()[..at.start.min(self.text.len())];
        1 + before.iter().filter(|b| **b == b'\n').count()
    }

    fn fail(&self, at: &Range<usize>, cause: &str) -> Failure {
        let cause = format!("line {}: {cause}", self.line(at));
        Failure::new("read configuration", self.name, cause).as_usage()
    }

    fn entry(
        &self,
        key: String,
        at: &Range<usize>,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<Entry, Failure> {
        let Some(flag) = self.known.iter().find(|flag| flag.key() == key) else {
            return Err(self.unknown(&key, at));
        };
        let values = plain_values(flag, value.get_ref())
            .map_err(|expected| self.fail(at, &format!("'{key}' takes {expected}")))?;
        Ok(Entry {
            key,
            line: self.line(at),
            values,
        })
    }

    fn unknown(&self, key: &str, at: &Range<usize>) -> Failure {
        let keys: Vec<String> = self.known.iter().map(Description::key).collect();
        let names = keys.iter().map(String::as_str);
        let names = names.chain(IN_TABLES.iter().map(|(inside, _)| *inside));
        let meant = nearest(&key.replace('_', "-"), names);
        if let Some((what, help)) = retired(key, Origin::File, self.top_level.iter().copied()) {
            return self.fail(at, &what).help(help);
        }
        let is_table = |it: &String| {
            it.strip_prefix(key)
                .is_some_and(|rest| rest.starts_with('.'))
        };
        if keys.iter().any(is_table) {
            let failure = self.fail(at, &format!("'{key}' takes a table"));
            return failure.help("see 'gannet --help-all' for its keys");
        }
        let failure = self.fail(at, &format!("unknown key '{key}'"));
        // What follows a table belongs to it: a key that was added at the end of the file.
        let (table, inner) = key.split_once('.').unwrap_or_default();
        let is_of_file =
            keys.iter().any(|it| it == inner) && !IN_TABLES.iter().any(|(_, own)| *own == inner);
        if is_of_file {
            let help = format!("'{inner}' is in no table: write it above '[{table}]'");
            return failure.help(help);
        }
        match meant {
            Some(meant) => failure.help(format!("did you mean '{meant}'?")),
            None => failure.help("see 'gannet --help-all' for the keys"),
        }
    }
}

/// The value as it would be typed, or a description of what was expected.
fn plain_values(flag: &Description, value: &DeValue<'_>) -> Result<Vec<OsString>, String> {
    match (flag.value, value) {
        (Value::Switch, DeValue::Boolean(on)) => Ok(vec![on.to_string().into()]),
        (Value::Switch, _) => Err("true or false".into()),
        (
            Value::Many {
                joint: Some(joint), ..
            },
            DeValue::Table(table),
        ) => table
            .iter()
            .map(|(key, value)| match scalar(value.get_ref()) {
                Some(text) => Ok(format!("{}{joint}{text}", key.get_ref()).into()),
                None => Err("a string for each key of its table".into()),
            })
            .collect(),
        (Value::Many { .. }, DeValue::Array(array)) => array
            .iter()
            .map(|item| scalar(item.get_ref()).map(OsString::from))
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| "a string or a list of strings".into()),
        (Value::Many { .. }, value) => scalar(value)
            .map(|text| vec![text.into()])
            .ok_or_else(|| "a string or a list of strings".into()),
        (Value::One { .. } | Value::Positional { .. }, value) => scalar(value)
            .map(|text| vec![text.into()])
            .ok_or_else(|| "a string or a number".into()),
    }
}

fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().replace('_', "")),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .ok()
            .map(|n| n.to_string()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(_) | DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::commands::all_flags;

    /// `expect` is one `line key = values` for each entry, or the failure.
    fn check(text: &str, expect: Result<&[&str], &str>) {
        let got = parse("site.toml", text, &all_flags());
        let got = got.map_err(|failure| failure.to_string()).map(|file| {
            let shown =
                |entry: &Entry| format!("{} {} = {:?}", entry.line, entry.key, entry.values);
            file.entries.iter().map(shown).collect::<Vec<_>>()
        });
        assert_eq!(got, expect.map(own).map_err(ToString::to_string), "{text}");
    }

    fn own(expect: &[&str]) -> Vec<String> {
        expect.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_kind_of_value_is_read() {
        check(
            "port = 9_000\nspa = true\nlisten = [\":80\", 'unix:/s']\n\
             head-timeout = \"5s\"\ngrace = 1.5\n",
            Ok(&[
                "1 port = [\"9000\"]",
                "2 spa = [\"true\"]",
                "3 listen = [\":80\", \"unix:/s\"]",
                "4 head-timeout = [\"5s\"]",
                "5 grace = [\"1.5\"]",
            ]),
        );
        check(
            "[header]\nX-A = \"1\"\n[type]\nmd = 'text/markdown'\n[pack]\noutput = 'a.gannet'\n",
            Ok(&[
                "1 header = [\"X-A: 1\"]",
                "3 type = [\"md=text/markdown\"]",
                "6 pack.output = [\"a.gannet\"]",
            ]),
        );
        check("listen = 8080", Ok(&["1 listen = [\"8080\"]"]));
        check(
            "client.rate = '1M'\n[acme]\nhosts = ['a.test']\nemail = 'a@a.test'\n[log]\nformat = 'json'",
            Ok(&[
                "1 client.rate = [\"1M\"]",
                "3 acme = [\"a.test\"]",
                "4 acme.email = [\"a@a.test\"]",
                "6 log = [\"json\"]",
            ]),
        );
    }

    #[test]
    fn mistakes_are_named_with_file_and_line() {
        check(
            "# a comment\nprot = 80\n",
            Err(
                "gannet: cannot read configuration 'site.toml': line 2: unknown key 'prot'\n\
                 help: did you mean 'port'?",
            ),
        );
        check(
            "no-http2 = true",
            Err(
                "gannet: cannot read configuration 'site.toml': line 1: 'no-http2' is no \
                 longer a key\nhelp: write 'http = \"1,3\"'",
            ),
        );
        check(
            "head_timeout = 1",
            Err(
                "gannet: cannot read configuration 'site.toml': line 1: unknown key \
                 'head_timeout'\nhelp: did you mean 'head-timeout'?",
            ),
        );
        check(
            "[pack]\n\noutputt = 'x'",
            Err(
                "gannet: cannot read configuration 'site.toml': line 3: unknown key \
                 'pack.outputt'\nhelp: did you mean 'pack.output'?",
            ),
        );
        check(
            "spa = 'yes'",
            Err("gannet: cannot read configuration 'site.toml': line 1: 'spa' takes true or false"),
        );
        check(
            "\n\nport = [1]",
            Err(
                "gannet: cannot read configuration 'site.toml': line 3: 'port' takes a string or \
                 a number",
            ),
        );
        check(
            "[client]\nrequest = '1/s'",
            Err(
                "gannet: cannot read configuration 'site.toml': line 2: unknown key \
                 'client.request'\nhelp: did you mean 'client.requests'?",
            ),
        );
        check(
            "client-requests = '1/s'",
            Err(
                "gannet: cannot read configuration 'site.toml': line 1: 'client-requests' \
                 is no longer a key\nhelp: write 'client.requests'",
            ),
        );
        for both in [
            "log = 'json'\nlog.mask = true",
            "log = 'json'\n[log]\nmask = true",
        ] {
            let failure = parse("c", both, &all_flags()).expect_err("TOML forbids it");
            let help = "help: have one table [log], and 'log.format' in place of 'log'";
            assert!(failure.to_string().ends_with(help), "{failure}");
        }
        check(
            "no-sidecars = true\nno-compress = true\nport = 80",
            Err(
                "gannet: cannot read configuration 'site.toml': line 2: 'no-compress' and \
                 'no-sidecars' are no longer keys\nhelp: write 'compress = \"off\"'",
            ),
        );
        let failure = parse("nginx.conf", "worker_processes 4;", &all_flags());
        let failure = failure.expect_err("another server's").to_string();
        assert!(failure.contains("\nhelp: it has to be TOML; "), "{failure}");
        let twice = "log-file = 'a'\nlog-file = 'b'";
        let failure = parse("c.toml", twice, &all_flags()).expect_err("TOML forbids it");
        assert!(
            failure.to_string().ends_with("line 2: duplicate key"),
            "{failure}"
        );
        for (text, end) in [
            (
                "[log]\nmask = true\nport = 9000",
                "line 3: unknown key 'log.port'\nhelp: 'port' is in no table: write it above '[log]'",
            ),
            (
                "[acme]\nacme-server = 'staging'",
                "line 2: unknown key 'acme.acme-server'\nhelp: 'acme-server' is in no table: write it \
                 above '[acme]'",
            ),
            (
                "client = 5",
                "line 1: 'client' takes a table\nhelp: see 'gannet --help-all' for its keys",
            ),
        ] {
            let failure = parse("c", text, &all_flags()).expect_err(text).to_string();
            assert!(failure.ends_with(end), "{failure}");
        }
        assert!(parse("c", "port = ", &all_flags()).is_err());
        assert!(parse("c", "port = 1\nport = 2", &all_flags()).is_err());
    }
}
