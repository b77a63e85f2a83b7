//! `gannet dev`: serves a folder while someone works at it.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::ArgMatches;
use gannet_server::config::ContentOptions;

use crate::command_line::site_arguments;
use crate::dev::{self, Options};
use crate::messages::{Failure, printable};

/// Serves until a signal ends it.
///
/// # Errors
/// The folder cannot be served, or no port is free.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    let listing = !matches.get_flag("no-listing");
    let site = site_arguments::options("dev", matches, listing)?;
    let build = matches.get_one::<OsString>("build");
    let build = build.map(|it| it.to_string_lossy().into_owned());
    let watch = matches.get_many::<OsString>("watch").unwrap_or_default();
    let watch: Vec<_> = watch.map(PathBuf::from).collect();
    if build.is_none() && !watch.is_empty() {
        return Err(Failure::usage("--watch has no effect without --build")
            .help("the folder that is served is watched anyway"));
    }
    dev::run(&Options {
        content: ContentOptions {
            listing: site.lookup.listing,
            spa: site.lookup.spa,
            clean_urls: site.lookup.clean_urls,
            dotfiles: site.lookup.dotfiles,
            follow_links: site.outside,
            routing: site.routing,
            favicon: site.icon,
            // Nothing is worth coding that changes in a moment, nor are its old copies.
            compress: false,
            sidecars: false,
            ..ContentOptions::default()
        },
        folder: site.path,
        build,
        watch,
        port: port(matches)?,
        is_exposed: matches.get_flag("expose"),
        opens: matches.get_flag("open"),
    })
}

fn port(matches: &ArgMatches) -> Result<Option<u16>, Failure> {
    let Some(typed) = matches.get_one::<OsString>("port") else {
        return Ok(None);
    };
    let typed = typed.to_string_lossy();
    typed.parse().map(Some).map_err(|_| {
        Failure::usage(format!(
            "cannot use '--port {}': not a number from 0 to 65535",
            printable(&typed)
        ))
        .help("see 'gannet dev --help'")
    })
}
