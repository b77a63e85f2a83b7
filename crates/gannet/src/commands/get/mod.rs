//! `gannet get`: downloads URLs and measures the transfer.

mod bar;
mod report;

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::fd::RawFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::ArgMatches;
use gannet_get::limits::CONNECTIONS_MAX;
use gannet_get::{Client, Download, GetError, Options, Url, Version};
use gannet_io::clock::processor_time;
use gannet_io::inherited;

use self::bar::Meter;
use self::report::Report;
use super::{check_trust, print, texts};
use crate::messages::{Failure, printable};

/// The number of standard output.
const STANDARD_OUTPUT: RawFd = 1;

/// Downloads and prints the report; prints nothing if the content goes to a stream.
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
    let descriptor = output.as_deref().and_then(descriptor);
    let streamed = match &output {
        Some(path) if descriptor.is_some() || is_device(path)? => Some(path),
        _ => None,
    };
    if let Some(path) = streamed {
        check_stream(path, connections, resumes, is_json)?;
    }
    if resumes && output.is_none() {
        return Err(Failure::usage("--continue needs --output FILE")
            .help("name the file that an earlier download started"));
    }
    let client = Client::new(options);
    if let Some(path) = streamed {
        return stream(&client, &urls[0], path, descriptor).map(|()| 0);
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

/// The descriptor of standard output, or that a path names.
fn descriptor(path: &Path) -> Option<RawFd> {
    match path.as_os_str() == "-" {
        true => Some(STANDARD_OUTPUT),
        false => inherited::of_path(path),
    }
}

/// Whether a content is written there as it arrives: to a device or a FIFO. Files get it when it is complete.
///
/// # Errors
/// It is a block device: it may be in use, and what the system has not yet written there may be lost.
fn is_device(path: &Path) -> Result<bool, Failure> {
    let Ok(found) = fs::metadata(path).map(|found| found.file_type()) else {
        return Ok(false);
    };
    match found.is_block_device() {
        true => Err(
            Failure::new("write", path.display(), "it is a block device")
                .help("pipe the content: 'gannet get URL -o - | dd of=DEVICE bs=1M conv=fsync'"),
        ),
        false => Ok(found.is_char_device() || found.is_fifo()),
    }
}

/// Downloads to a descriptor, or else to a device or a FIFO.
fn stream(
    client: &Client,
    url: &Url,
    path: &Path,
    descriptor: Option<RawFd>,
) -> Result<(), Failure> {
    let unwritten = |error| Failure::of_system("write", path.display(), &error);
    let out = match descriptor {
        Some(raw) => inherited::copy_of(raw),
        None => File::options().write(true).open(path),
    };
    match client.print(url, &mut out.map_err(unwritten)?) {
        Err(GetError::Output(error)) if descriptor != Some(STANDARD_OUTPUT) => {
            Err(unwritten(error))
        }
        printed => Ok(printed?),
    }
}

/// Rejects options that do not work with a stream.
fn check_stream(
    path: &Path,
    connections: usize,
    resumes: bool,
    is_json: bool,
) -> Result<(), Failure> {
    let (what, help) = if connections > 1 {
        (
            "a stream is written in order, over one connection",
            "leave --connections out, or name a file; without --output it measures",
        )
    } else if resumes {
        (
            "a stream cannot be resumed",
            "leave --continue out, or name a file",
        )
    } else if is_json {
        (
            "there is no report of a stream",
            "leave --json out, or name a file; without --output it measures",
        )
    } else {
        return Ok(());
    };
    let shown = printable(&path.to_string_lossy());
    Err(Failure::usage(format!("--output {shown}: {what}")).help(help))
}
