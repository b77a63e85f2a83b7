//! `gannet check`: finds dead links, missing assets and ineffective rules of a site.

mod report;

use std::ffi::OsString;
use std::path::Path;

use clap::ArgMatches;
use gannet_site::archive::SiteError;
use gannet_site::check::{self, CheckOptions};

use super::{host_entries, judge};
use crate::command_line::{site_arguments, values};
use crate::messages::{Failure, printable};

/// The output format.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// As annotations of GitHub Actions.
    Github,
}

/// Returns 0 if the site has no errors, 1 if it has, 2 if it cannot be read.
///
/// # Errors
/// The site cannot be read.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    let format = format(matches)?;
    let origins = matches.get_many::<OsString>("origin").unwrap_or_default();
    let (mut hosts, mut start) = (Vec::new(), String::new());
    for origin in origins {
        let origin = origin.to_string_lossy();
        let (host, path) = host_of(&origin);
        let shown = printable(&origin);
        if host.is_empty() {
            return Err(Failure::usage(format!("--origin '{shown}' names no host"))
                .help("write it as https://HOST, or the host alone"));
        }
        if origin.contains(['?', '#']) {
            return Err(
                Failure::usage(format!("--origin '{shown}' has a query or a fragment"))
                    .help("write it as https://HOST/PATH"),
            );
        }
        if !path.is_empty() && !start.is_empty() && path != start {
            return Err(Failure::usage(format!(
                "--origin names two paths in front: '{start}' and '{path}'"
            ))
            .help("a site has one; check it once for each"));
        }
        if start.is_empty() {
            start = path;
        }
        hosts.push(host);
    }
    let options = CheckOptions {
        site: site_arguments::options("check", matches, matches.get_flag("listing"))?,
        origins: hosts,
        prefix: start,
    };
    let is_strict = matches.get_flag("strict");
    let has_hosts = matches.get_flag("hosts");
    judge(|out| {
        let found = match has_hosts {
            true => host_entries::check(&options)?,
            false => check::check(&options)?,
        };
        let prefix = prefix(&options.site.path);
        report::write(&found, format, &prefix, out).map_err(SiteError::Output)?;
        Ok(found.error_count > 0 || (is_strict && found.warning_count > 0))
    })
}

/// Parses the output format.
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
    let shown = printable(&typed.to_string_lossy());
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

/// The host of an origin, or of a bare host, and the path behind it without a slash at the end.
fn host_of(origin: &str) -> (String, String) {
    let host = origin.split_once("://").map_or(origin, |(_, host)| host);
    let (host, path) = host.split_at(host.find('/').unwrap_or(host.len()));
    (host.to_owned(), path.trim_end_matches('/').to_owned())
}

/// The prefix of file names in findings: annotations name files by their paths in the repository,
/// and text output by paths that can be opened.
fn prefix(site: &Path) -> String {
    let path = site.to_string_lossy();
    let path = path.strip_prefix("./").unwrap_or(&path);
    match path.trim_end_matches('/') {
        "" | "." => String::new(),
        _ if !site.is_dir() => String::new(),
        path => format!("{path}/"),
    }
}
