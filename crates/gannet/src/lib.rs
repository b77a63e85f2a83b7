//! The gannet program: its command line, configuration, commands and messages.
//!
//! `main` hands everything to [`run`]. The library exists so that tests can look at the tables from
//! which help, manual, completions, environment and configuration are made; it is no public API.
#![forbid(unsafe_code)]

pub mod archive_commands;
pub mod check;
pub mod command_line;
pub mod components;
pub mod documents;
pub mod explain;
pub mod get;
pub mod host_folders;
pub mod host_name;
pub mod import;
pub mod json;
pub mod keygen;
pub mod messages;
pub mod offline;
pub mod pack;
pub mod pack_command;
pub mod quantities;
mod removal;
pub mod serve;
pub mod target;

use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::ArgMatches;
use gannet_archive::Coding;
use signal_hook::consts::SIGXFSZ;
use signal_hook::flag;

use crate::archive_commands::{
    CatOptions, CommandError, DiffOptions, ExtractOptions, InspectOptions, LsOptions,
};
use crate::check::{CheckOptions, Format};
use crate::command_line::arguments::{self, Asked};
use crate::command_line::commands::{self, COMMANDS, PACK_SECTION, REFERENCE_COMMAND};
use crate::command_line::config_file::{self, ConfigFile};
use crate::command_line::flag::Flag;
use crate::command_line::layers::{self, CONFIG_VARIABLE, Origins};
use crate::command_line::nearest::nearest;
use crate::command_line::pack_flags::PACK_FLAGS;
use crate::command_line::serve_flags::SERVE_FLAGS;
use crate::command_line::{site_arguments, values};
use crate::explain::ExplainOptions;
use crate::get::GetOptions;
use crate::messages::{Exit, Failure};
use crate::pack::size;
use crate::quantities::counted;
use crate::removal::{RemovalOnSignal, Unpacking};

/// Does what the command line asks for and gives the exit status.
#[must_use]
pub fn run(typed: Vec<OsString>) -> u8 {
    messages::hide_panics();
    // A limit on the length of files is to be an error like a full disk, not the end of the
    // process. Where it cannot be handled, it stays that.
    let _ = flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    match dispatch(&typed) {
        Ok(status) => status,
        Err(failure) => {
            failure.report();
            failure.exit.code()
        }
    }
}

fn dispatch(typed: &[OsString]) -> Result<u8, Failure> {
    let matches = match arguments::parse(typed)? {
        Asked::Text(text) => return print(&text),
        Asked::Matches(matches) => matches,
    };
    match matches.subcommand() {
        None => serve(&matches),
        Some(("serve", matches)) => serve(matches),
        Some(("pack", matches)) => pack(matches),
        Some(("ls", matches)) => ls(matches),
        Some(("cat", matches)) => cat(matches),
        Some(("check", matches)) => check(matches),
        Some(("diff", matches)) => diff(matches),
        Some(("explain", matches)) => explain(matches),
        Some(("extract", matches)) => extract(matches),
        Some(("import", matches)) => import(matches),
        Some(("inspect", matches)) => inspect(matches),
        Some(("verify", matches)) => verify(matches),
        Some(("keygen", matches)) => print(&keygen::keygen(Path::new(text(matches, "name")))?),
        Some(("get", matches)) => get(matches),
        Some(("cert", _)) => print(&serve::tls::authority()?),
        Some(("help", matches)) => print(&help(matches)?),
        Some(("version", _)) => print(&arguments::version()),
        Some(("sbom", _)) => write(components::write_sbom),
        Some(("licenses", matches)) => {
            let brief = matches.get_flag("brief");
            write(|out| components::write_licenses(brief, out))
        }
        Some(("completions", matches)) => print(&documents::completions(text(matches, "shell"))?),
        Some(("man", _)) => print(&documents::manual_page::render()),
        Some((REFERENCE_COMMAND, _)) => print(&documents::reference::render()),
        Some((name, _)) => unreachable!("'{name}' is not a command"),
    }
}

fn help(matches: &ArgMatches) -> Result<String, Failure> {
    let Some(name) = matches.get_one::<OsString>("command") else {
        return Ok(documents::help::short());
    };
    let known = COMMANDS.iter().find(|command| name == command.name);
    known.map(documents::help::of_command).ok_or_else(|| {
        let shown = messages::printable(&name.to_string_lossy());
        let names = COMMANDS.iter().map(|command| command.name);
        let failure = Failure::usage(format!("'{shown}' is not a command"));
        match nearest(&shown, names) {
            Some(meant) => failure.help(format!("did you mean 'gannet help {meant}'?")),
            None => failure.help("'gannet --help-all' lists all of them"),
        }
    })
}

fn serve(matches: &ArgMatches) -> Result<u8, Failure> {
    let (settings, origins) = resolve(SERVE_FLAGS, "", matches)?;
    if matches.get_flag("check-config") {
        let notes = serve::check(&settings, &origins)?;
        return print(&format!("{notes}the configuration is valid\n"));
    }
    serve::run(&settings, &origins)
}

fn pack(matches: &ArgMatches) -> Result<u8, Failure> {
    let (settings, origins) = resolve(PACK_FLAGS, PACK_SECTION, matches)?;
    let directory = Path::new(text(matches, "directory"));
    if matches.get_flag("check-config") {
        pack_command::check(directory, settings, &origins)?;
        return print("the configuration is valid\n");
    }
    print(&pack_command::run(directory, settings, &origins)?)
}

fn ls(matches: &ArgMatches) -> Result<u8, Failure> {
    if matches.get_flag("long") && matches.get_flag("json") {
        return Err(
            Failure::usage("--long has no effect with --json, which has everything")
                .help("leave one of them out"),
        );
    }
    let options = LsOptions {
        archive: archive(matches),
        long: matches.get_flag("long"),
        json: matches.get_flag("json"),
    };
    stream(|out| archive_commands::ls(&options, out))
}

fn cat(matches: &ArgMatches) -> Result<u8, Failure> {
    let paths = matches.get_many::<OsString>("path").unwrap_or_default();
    let paths = paths
        .map(|path| path.to_string_lossy().into_owned())
        .collect();
    let options = CatOptions {
        archive: archive(matches),
        paths,
        coding: coding(matches)?,
    };
    stream(|out| archive_commands::cat(&options, out))
}

fn coding(matches: &ArgMatches) -> Result<Option<Coding>, Failure> {
    let Some(typed) = matches.get_one::<OsString>("coding") else {
        return Ok(None);
    };
    let known = Coding::ALL.into_iter().find(|it| typed == it.name());
    known.map(Some).ok_or_else(|| {
        let typed = messages::printable(&typed.to_string_lossy());
        Failure::usage(format!("unknown coding '{typed}'"))
            .help("the codings are identity, gzip, br and zstd")
    })
}

/// Like diff(1): 0 if there is no difference, 1 if there is, 2 if that cannot be determined.
fn diff(matches: &ArgMatches) -> Result<u8, Failure> {
    let options = DiffOptions {
        before: PathBuf::from(text(matches, "before")),
        after: PathBuf::from(text(matches, "after")),
        json: matches.get_flag("json"),
    };
    judge(|out| Ok(archive_commands::diff(&options, out)?))
}

/// 0 if nothing is wrong, 1 if something is, 2 if the site cannot be read.
fn check(matches: &ArgMatches) -> Result<u8, Failure> {
    let format = format(matches)?;
    let origins = matches.get_many::<OsString>("origin").unwrap_or_default();
    if let Some(bad) = origins
        .clone()
        .find(|it| host_of(&it.to_string_lossy()).is_empty())
    {
        let shown = messages::printable(&bad.to_string_lossy());
        return Err(Failure::usage(format!("--origin '{shown}' names no host"))
            .help("write it as https://HOST, or the host alone"));
    }
    let options = CheckOptions {
        site: site_arguments::options("check", matches, matches.get_flag("listing"))?,
        origins: origins.map(|it| host_of(&it.to_string_lossy())).collect(),
        format,
        strict: matches.get_flag("strict"),
    };
    judge(|out| Ok(check::check(&options, out)?))
}

/// How findings are written.
fn format(matches: &ArgMatches) -> Result<Format, Failure> {
    let set = [
        ("text", Format::Text),
        ("json", Format::Json),
        ("github", Format::Github),
    ];
    let is_json = matches.get_flag("json");
    let Some(typed) = matches.get_one::<OsString>("format") else {
        return Ok(if is_json { Format::Json } else { Format::Text });
    };
    let shown = messages::printable(&typed.to_string_lossy());
    let wrong = |cause: String| {
        Failure::usage(format!("cannot use '--format {shown}': {cause}"))
            .help("see 'gannet check --help'")
    };
    let format = values::choice(std::slice::from_ref(typed), &set).map_err(wrong)?;
    if is_json && format != Format::Json {
        return Err(Failure::usage(format!(
            "--json and '--format {shown}' contradict each other"
        ))
        .help("leave one of them out"));
    }
    Ok(format)
}

/// The host of an origin; a host alone is one, too.
fn host_of(origin: &str) -> String {
    let host = origin.split_once("://").map_or(origin, |(_, host)| host);
    host.split('/').next().unwrap_or_default().to_owned()
}

/// 0, or 1 if a running server answers otherwise than the site says.
fn explain(matches: &ArgMatches) -> Result<u8, Failure> {
    let fields = matches.get_many::<OsString>("field").unwrap_or_default();
    let server = matches.get_one::<OsString>("server");
    let cacert = matches.get_one::<OsString>("cacert").map(PathBuf::from);
    let is_insecure = matches.get_flag("insecure");
    for (name, is_given) in [("insecure", is_insecure), ("cacert", cacert.is_some())] {
        if is_given && server.is_none() {
            return Err(
                Failure::usage(format!("--{name} has no effect without --server"))
                    .help("add --server URL, or leave it out"),
            );
        }
    }
    check_trust(is_insecure, cacert.as_ref())?;
    let options = ExplainOptions {
        url: text(matches, "url").to_string_lossy().into_owned(),
        site: site_arguments::options("explain", matches, !matches.get_flag("no-listing"))?,
        fields: fields.map(|it| it.to_string_lossy().into_owned()).collect(),
        server: server.map(|it| explain::Server {
            address: it.to_string_lossy().into_owned(),
            is_insecure,
            cacert,
        }),
    };
    judge(|out| explain::explain(&options, out))
}

/// Accepting any certificate makes a list of trusted ones useless.
fn check_trust(is_insecure: bool, cacert: Option<&PathBuf>) -> Result<(), Failure> {
    match is_insecure && cacert.is_some() {
        false => Ok(()),
        true => {
            Err(Failure::usage("--cacert has no effect with --insecure")
                .help("leave one of them out"))
        }
    }
}

fn extract(matches: &ArgMatches) -> Result<u8, Failure> {
    let output = PathBuf::from(text(matches, "output"));
    let options = ExtractOptions {
        archive: archive(matches),
        output,
    };
    let report = archive_commands::extract(&options)?;
    let shown = messages::printable(&options.output.to_string_lossy());
    let bytes = size(report.bytes);
    print(&format!(
        "{shown}: {}, {bytes}\n",
        counted(report.file_count, "file")
    ))
}

fn import(matches: &ArgMatches) -> Result<u8, Failure> {
    let source = archive(matches);
    let output = PathBuf::from(text(matches, "output"));
    let refuse = |error: io::Error| Failure::of_system("import", source.display(), &error);
    let Some(kind) = import::kind_of(&source).map_err(refuse)? else {
        return Err(
            Failure::new("import", source.display(), "unknown kind of archive")
                .help("gannet imports zip, tar, tar.gz, tar.zst and kawipiko archives"),
        );
    };
    let unpacking = Unpacking::into(&output)?;
    let stopped = unpacking.clone();
    let _removal = RemovalOnSignal::by(move || stopped.undo())?;
    let unpacked = import::unpack(&source, kind, &output)
        .inspect_err(|_| unpacking.undo())
        .map_err(|error| error.failure(&source))?;
    for left_out in &unpacked.left_out {
        eprintln!("gannet: left out {}", messages::printable(left_out));
    }
    let shown = messages::printable(&output.to_string_lossy());
    let files = counted(unpacked.file_count, "file");
    let hint = match (kind, &unpacked.only_folder) {
        (import::Kind::Kawipiko, _) => "; pack it with '--compat kawipiko'".into(),
        (_, Some(folder)) => {
            let site = messages::printable(&output.join(folder).to_string_lossy());
            format!("; all in one folder: the site may be '{site}'")
        }
        (_, None) => String::new(),
    };
    let (kind, bytes) = (kind.name(), size(unpacked.bytes));
    print(&format!("{shown}: {files}, {bytes}, from {kind}{hint}\n"))
}

fn inspect(matches: &ArgMatches) -> Result<u8, Failure> {
    let options = InspectOptions {
        archive: archive(matches),
        json: matches.get_flag("json"),
    };
    stream(|out| archive_commands::inspect(&options, out))
}

fn verify(matches: &ArgMatches) -> Result<u8, Failure> {
    let archive = archive(matches);
    let key = matches.get_one::<OsString>("public-key");
    let signed = match key {
        Some(key) => {
            let wrong = |cause: String| {
                Failure::usage(format!("cannot use --public-key: {cause}"))
                    .help("give the line of Base64 in the .pub file, or the name of that file")
            };
            let key = key.to_str().ok_or_else(|| wrong("not UTF-8".into()))?;
            let key = values::public_key(key).map_err(wrong)?;
            archive_commands::verify_signature(&archive, &key)?;
            ", signed"
        }
        None => "",
    };
    let report = archive_commands::verify(&archive)?;
    let shown = messages::printable(&archive.to_string_lossy());
    let build: String = report.build_id[..8]
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    let (blobs, bytes) = (counted(report.blob_count, "blob"), size(report.bytes));
    print(&format!(
        "{shown}: whole{signed}, {blobs}, {bytes}, build {build}\n"
    ))
}

fn get(matches: &ArgMatches) -> Result<u8, Failure> {
    let path = |name: &str| matches.get_one::<OsString>(name).map(PathBuf::from);
    let urls = matches.get_many::<OsString>("url").unwrap_or_default();
    let connections = match matches.get_one::<OsString>("connections") {
        None => 1,
        Some(typed) => get::connections(&typed.to_string_lossy())?,
    };
    check_trust(matches.get_flag("insecure"), path("cacert").as_ref())?;
    let options = GetOptions {
        urls: urls.map(|url| url.to_string_lossy().into_owned()).collect(),
        connections,
        output: path("output"),
        resumes: matches.get_flag("continue"),
        is_insecure: matches.get_flag("insecure"),
        cacert: path("cacert"),
        http2: matches.get_flag("http2"),
        json: matches.get_flag("json"),
        quiet: matches.get_flag("quiet"),
    };
    print(&get::run(&options)?)
}

fn archive(matches: &ArgMatches) -> PathBuf {
    PathBuf::from(text(matches, "archive"))
}

/// Lets a command write to standard output.
fn stream(command: impl FnOnce(&mut dyn Write) -> Result<(), CommandError>) -> Result<u8, Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    command(&mut out)?;
    out.flush().map_err(Failure::from_output)?;
    Ok(0)
}

fn write(text: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<u8, Failure> {
    stream(|out| text(out).map_err(CommandError::Output))
}

/// Lets a command write to standard output that also judges: true ends with status 1, and a
/// command that could not be carried out with 2.
fn judge(command: impl FnOnce(&mut dyn Write) -> Result<bool, Failure>) -> Result<u8, Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    let trouble = |failure: Failure| match failure.exit {
        Exit::ReaderGone => failure,
        _ => failure.as_usage(),
    };
    let judgement = command(&mut out).map_err(trouble)?;
    out.flush()
        .map_err(|error| trouble(Failure::from_output(error)))?;
    Ok(u8::from(judgement))
}

/// The settings of a command from all layers.
fn resolve<S: Default>(
    flags: &'static [Flag<S>],
    section: &'static str,
    matches: &ArgMatches,
) -> Result<(S, Origins), Failure> {
    let known = commands::all_flags();
    let environment = layers::environment();
    for warning in layers::suspicious_variables(&environment, &known) {
        warning.report();
    }
    let named = matches.get_one::<OsString>("config");
    let file = match named.or_else(|| environment.get(CONFIG_VARIABLE)) {
        Some(path) if !path.is_empty() => config_file::read(Path::new(path), &known)?,
        _ => ConfigFile::default(),
    };
    layers::resolve(flags, section, matches, &environment, &file)
}

/// A required argument.
fn text<'a>(matches: &'a ArgMatches, name: &str) -> &'a OsString {
    matches
        .get_one::<OsString>(name)
        .expect("clap has refused a command line without it")
}

/// Writes to standard output; a closed pipe is success.
fn print(text: &str) -> Result<u8, Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(Failure::from_output)?;
    Ok(0)
}
