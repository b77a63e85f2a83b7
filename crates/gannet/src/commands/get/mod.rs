//! `gannet get`: downloads URLs and measures the transfer.

mod bar;
mod report;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Instant;

use clap::ArgMatches;
use gannet_get::limits::CONNECTIONS_MAX;
use gannet_get::{Client, Download, Options, Url, Version};
use gannet_io::clock::processor_time;

use self::bar::Meter;
use self::report::Report;
use super::{check_trust, print, texts};
use crate::messages::{Failure, printable};

/// Downloads and prints the report; prints nothing if the content goes to standard output.
///
/// # Errors
/// A flag has no effect, or the download failed.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    let path = |name: &str| matches.get_one::<OsString>(name).map(PathBuf::from);
    let connections = match matches.get_one::<OsString>("connections") {
        None => 1,
        Some(typed) => connections(&typed.to_string_lossy())?,
    };
    let options = Options {
        connections,
        is_insecure: matches.get_flag("insecure"),
        cacert: path("cacert"),
        version: version(matches)?,
    };
    check_trust(options.is_insecure, options.cacert.as_ref())?;
    let urls = urls(&texts(matches, "url"))?;
    if let Some(clear) = urls.iter().find(|url| !url.is_https)
        && options.version == Version::Http3
    {
        let typed = printable(clear.typed());
        return Err(
            Failure::usage(format!("--http3 makes no sense with '{typed}'"))
                .help("HTTP/3 is always encrypted: write it as https://HOST/PATH"),
        );
    }
    let output = path("output");
    if output.is_some() && urls.len() > 1 {
        return Err(Failure::usage("--output takes one URL")
            .help("download the others one by one, or omit --output to measure"));
    }
    let (resumes, is_json) = (matches.get_flag("continue"), matches.get_flag("json"));
    let to_standard_output = output.as_ref().is_some_and(|path| path.as_os_str() == "-");
    if to_standard_output {
        check_standard_output(connections, resumes, is_json)?;
    }
    if resumes && output.is_none() {
        return Err(Failure::usage("--continue needs --output FILE")
            .help("name the file that an earlier download started"));
    }
    let client = Client::new(options);
    if to_standard_output {
        client.print(&urls[0], &mut io::stdout().lock())?;
        return Ok(0);
    }
    let mut shown = Meter::new(!matches.get_flag("quiet") && !is_json);
    let (started, cpu) = (Instant::now(), processor_time());
    let download = match &output {
        None => client.measure(&urls, &mut shown).map(|transfers| Download {
            transfers,
            digest: None,
        }),
        Some(path) => client.download(&urls[0], path, resumes, &mut shown),
    };
    shown.clear();
    let report = Report {
        download: download?,
        elapsed: started.elapsed(),
        cpu: processor_time().saturating_sub(cpu),
        output,
    };
    print(&match is_json {
        true => report.json(),
        false => report.text(),
    })
}

/// The requested version.
fn version(matches: &ArgMatches) -> Result<Version, Failure> {
    match (matches.get_flag("http2"), matches.get_flag("http3")) {
        (false, false) => Ok(Version::Http1),
        (true, false) => Ok(Version::Http2),
        (false, true) => Ok(Version::Http3),
        (true, true) => Err(Failure::usage("--http2 and --http3 contradict each other")
            .help("leave one of them out")),
    }
}

/// Parses a number of connections.
fn connections(typed: &str) -> Result<usize, Failure> {
    let count = typed
        .parse()
        .ok()
        .filter(|count| (1..=CONNECTIONS_MAX).contains(count));
    count.ok_or_else(|| {
        Failure::usage(format!(
            "--connections {}: not a number from 1 to {CONNECTIONS_MAX}",
            printable(typed)
        ))
        .help("the default is one; a few saturate a fast link")
    })
}

fn urls(typed: &[String]) -> Result<Vec<Url>, Failure> {
    let parse = |typed: &String| {
        Url::parse(typed).map_err(|cause| {
            let typed = printable(typed);
            Failure::usage(format!("the URL '{typed}' cannot be used: {cause}"))
                .help("write it as http://HOST/PATH or https://HOST:PORT/PATH")
        })
    };
    typed.iter().map(parse).collect()
}

/// Rejects options that do not work with standard output.
fn check_standard_output(connections: usize, resumes: bool, is_json: bool) -> Result<(), Failure> {
    let (what, help) = if connections > 1 {
        (
            "is in order, over one connection",
            "leave --connections out, or name a file",
        )
    } else if resumes {
        ("cannot be resumed", "leave --continue out, or name a file")
    } else if is_json {
        (
            "is for the content, not for a report",
            "leave --json out, or name a file",
        )
    } else {
        return Ok(());
    };
    Err(Failure::usage(format!("--output -: standard output {what}")).help(help))
}
