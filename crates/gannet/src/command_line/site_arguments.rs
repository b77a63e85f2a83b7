//! The arguments of `check` and `explain` that describe how a site is served.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use clap::parser::ValueSource;
use gannet_content::directory::lookup::LookupOptions;
use gannet_content::rules::Compat;
use gannet_io::driver::Root;
use gannet_io::links::Outside;
use gannet_site::offline::SiteOptions;

use crate::command_line::site_settings::{self, SiteSettings};
use crate::command_line::values::{self, Compression};
use crate::commands::in_force;
use crate::messages::{Failure, printable};

/// Flags that apply to directories only: an archive has these decided when it is packed.
const OF_DIRECTORIES: [&str; 10] = [
    "compat",
    "no-rules",
    "index",
    "trailing-slash",
    "no-clean-urls",
    "listing",
    "no-listing",
    "dotfiles",
    "follow-links",
    "compress",
];

/// The site options of `command`.
///
/// # Errors
/// A value is invalid, or a flag has no effect on this site.
pub fn options(command: &str, matches: &ArgMatches, listing: bool) -> Result<SiteOptions, Failure> {
    let path = matches.get_one::<OsString>("site");
    let path = path.map_or_else(|| PathBuf::from("."), PathBuf::from);
    // The commands that take these options judge: 1 is a verdict of theirs.
    let path = in_force(path).map_err(Failure::as_usage)?;
    check_effects(matches, &path)?;
    // Not all of the commands have this one.
    let has_hosts = matches.try_get_one::<bool>("hosts");
    let has_hosts = has_hosts.is_ok_and(|it| it == Some(&true));
    if has_hosts && !path.is_dir() {
        let shown = printable(&path.to_string_lossy());
        return Err(
            Failure::usage(format!("'{shown}' is not a directory, which --hosts needs"))
                .help("leave --hosts out; an archive knows its hosts"),
        );
    }
    if matches.get_flag("spa") && !has_hosts && path.is_dir() && !path.join("index.html").is_file()
    {
        let shown = printable(&path.to_string_lossy());
        return Err(Failure::usage(format!(
            "--spa has no effect on '{shown}': there is no index.html to serve"
        ))
        .help("leave it out"));
    }
    let typed = |name: &'static str| {
        let values = matches.get_one::<OsString>(name);
        values.map(std::slice::from_ref)
    };
    let refuse = |name: &'static str| {
        move |cause: String| {
            Failure::usage(format!("cannot use --{name}: {cause}"))
                .help(format!("see 'gannet {command} --help'"))
        }
    };
    let mut settings = SiteSettings {
        no_rules: matches.get_flag("no-rules"),
        ..SiteSettings::default()
    };
    if let Some(values) = typed("compat") {
        settings.compat = Some(site_settings::compat(values).map_err(refuse("compat"))?);
    }
    if settings.no_rules && settings.compat == Some(Compat::Cloudflare) {
        return Err(
            Failure::usage("--compat has no effect with --no-rules").help("leave one of them out")
        );
    }
    if let Some(values) = typed("index") {
        settings.index = site_settings::index_names(values).map_err(refuse("index"))?;
    }
    if let Some(values) = typed("trailing-slash") {
        let slash = site_settings::trailing_slash(values);
        settings.trailing_slash = slash.map_err(refuse("trailing-slash"))?;
    }
    let outside = matches.get_many::<OsString>("follow-links");
    let outside = outside.into_iter().flatten();
    let outside = Outside::new(&outside.map(PathBuf::from).collect::<Vec<_>>());
    if let Err((path, error)) = outside.check() {
        return Err(Failure::of_system("open", path.display(), &error).as_usage());
    }
    Ok(SiteOptions {
        outside,
        path,
        routing: settings.routing(),
        lookup: LookupOptions {
            clean_urls: !matches.get_flag("no-clean-urls"),
            spa: matches.get_flag("spa"),
            listing,
            dotfiles: matches.get_flag("dotfiles"),
        },
        icon: !matches.get_flag("no-favicon"),
    })
}

/// The `--compress` of `command`, which describes a directory.
///
/// # Errors
/// The value is invalid, or its folder cannot be opened.
pub fn compression(command: &str, matches: &ArgMatches) -> Result<Compression, Failure> {
    let Some(value) = matches.get_one::<OsString>("compress") else {
        return Ok(Compression::default());
    };
    let compression = values::compression(std::slice::from_ref(value)).map_err(|cause| {
        Failure::usage(format!("cannot use --compress: {cause}"))
            .help(format!("see 'gannet {command} --help'"))
    })?;
    if let Some(folder) = &compression.copies
        && let Err(error) = Root::open_straight(folder)
    {
        return Err(Failure::of_system("open", folder.display(), &error)
            .as_usage()
            .help("'gannet compress DIR --into CACHE' makes and fills it"));
    }
    Ok(compression)
}

/// Rejects flags that an archive has decided itself.
fn check_effects(matches: &ArgMatches, path: &Path) -> Result<(), Failure> {
    if !path.is_file() {
        return Ok(());
    }
    let is_given = |name: &&&str| {
        let ids = matches.ids().any(|id| id == **name);
        ids && matches.value_source(name) == Some(ValueSource::CommandLine)
    };
    match OF_DIRECTORIES.iter().find(is_given) {
        None => Ok(()),
        Some(name) => Err(Failure::usage(format!(
            "--{name} has no effect on an archive: it is decided when packing"
        ))
        .help("leave it out")),
    }
}
