//! The content that settings name: one path, sites by host, or a folder of hosts.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use gannet_archive::{SUPERBLOCK_LEN, SectionKind, Superblock};
use gannet_io::driver::Root;
use gannet_io::links::Outside;
use gannet_io::named_file;
use gannet_server::config::{Content, Hosted, Many};
use gannet_server::however_long;
use gannet_server::notices::ERRORS;
use gannet_site::host_folders::{DEFAULT_FOLDER, HostFolders, Other, is_archive};

use super::content_kind;
use super::followed::Followed;
use crate::command_line::arguments::{self, mistyped_command};
use crate::command_line::serve_flags::needs::Kind;
use crate::command_line::settings::Settings;
use crate::commands::destination::is_url;
use crate::messages::{Failure, printable};

/// The content to serve.
pub(super) fn content(settings: &Settings) -> Result<Vec<Hosted>, Failure> {
    let mut contents = Vec::new();
    if settings.server.content.dummy.is_some() {
        return Ok(contents);
    }
    check_hosts_once(&settings.sites)?;
    for (hosts, path) in &settings.sites {
        contents.push(Hosted {
            hosts: hosts.clone(),
            content: look(path)?,
            entry: None,
        });
    }
    if settings.path.is_none() && !contents.is_empty() {
        return Ok(contents);
    }
    let content = main_content(settings)?;
    match &content {
        Content::Directory(path) if settings.hosts => {
            let entries = host_folders(path, settings)?;
            contents.extend(entries);
        }
        _ if settings.hosts => {
            let path = settings.path.as_deref().unwrap_or(Path::new("."));
            let cause = "not a directory, which --hosts needs";
            return Err(Failure::new("serve", path.display(), cause)
                .as_usage()
                .help("omit --hosts; an archive knows its hosts"));
        }
        _ => contents.push(Hosted {
            hosts: Vec::new(),
            content,
            entry: None,
        }),
    }
    Ok(contents)
}

/// Rejects a host that names two sites: the second would never be served.
fn check_hosts_once(sites: &[(Vec<String>, PathBuf)]) -> Result<(), Failure> {
    let mut known: BTreeMap<&str, &Path> = BTreeMap::new();
    for (hosts, path) in sites {
        for host in hosts {
            let Some(first) = known.insert(host, path) else {
                continue;
            };
            let shown = |path: &Path| printable(&path.to_string_lossy());
            let (first, second) = (shown(first), shown(path));
            return Err(Failure::usage(format!(
                "the host '{host}' is named twice: for '{first}' and for '{second}'"
            ))
            .help("leave it out of one --site; case and a dot at the end make no other host"));
        }
    }
    Ok(())
}

/// Whether a site may be for some hosts only. A folder of hosts has some, even where one entry of it is
/// served for all.
pub(super) fn have_hosts(settings: &Settings, contents: &[Hosted]) -> bool {
    settings.hosts || contents.iter().any(has_hosts)
}

/// Whether a site is for some hosts only, or an archive with several. Unreadable archives are
/// rejected elsewhere.
fn has_hosts(hosted: &Hosted) -> bool {
    let of_archive = |path: &Path| {
        let file = named_file::open(path)?;
        let len = file.metadata()?.len();
        let mut first = Vec::new();
        file.take(SUPERBLOCK_LEN as u64).read_to_end(&mut first)?;
        let superblock = Superblock::parse(&first, len).ok();
        let sections = superblock.iter().flat_map(Superblock::sections);
        let has_names = sections.into_iter().any(|it| it.kind == SectionKind::Hosts);
        io::Result::Ok(superblock.is_none() || has_names)
    };
    match &hosted.content {
        _ if !hosted.hosts.is_empty() => true,
        Content::Archive(path) => of_archive(path).unwrap_or(true),
        // A release of it may have hosts.
        Content::Store(_) | Content::Many(_) => true,
        Content::Directory(_) | Content::HostFolder(_) | Content::File(_) => false,
    }
}

/// The entries of a directory that are named after hosts. Few are opened at the start, the others when
/// they are requested.
fn host_folders(root: &Path, settings: &Settings) -> Result<Vec<Hosted>, Failure> {
    let is_for_one = settings.ignores_host();
    let outside = &settings.server.content.follow_links;
    let fail = |error: io::Error| Failure::of_system("read", root.display(), &error);
    let found = however_long(root, || HostFolders::to_serve(root)).map_err(fail)?;
    let is_hidden = |path: &Path| {
        let name = path.file_name().unwrap_or_default();
        name.as_encoded_bytes().starts_with(b".")
    };
    for Other { path, kind, cause } in &found.others {
        let what = match () {
            () if kind.is_dir() => Some("folder"),
            () if is_archive(path) => Some("archive"),
            () => kind.is_symlink().then_some("link"),
        };
        if let Some(what) = what.filter(|_| !is_hidden(path)) {
            let path = path.to_string_lossy();
            ERRORS.log(format_args!(
                "gannet: no site for the {what} '{}': {cause}",
                printable(&path)
            ));
        }
    }
    if found.folders.is_empty() {
        let cause = "no folder has the name of a host";
        return Err(Failure::new("serve", root.display(), cause)
            .help("make one such as 'example.org', or leave --hosts out"));
    }
    let mut hosted = hosted(found);
    if is_for_one {
        // That of no host comes first. An archive of several hosts has one site for it.
        hosted.truncate(1);
        for hosted in &mut hosted {
            serve_alone(hosted);
            hosted.content = of_one(root, outside, hosted.content.clone())?;
        }
    }
    let has_default = hosted.first().is_some_and(|it| it.hosts.is_empty());
    let many = Many {
        folder: root.to_owned(),
        found: hosted[usize::from(has_default)..].to_vec(),
        find: find_hosts,
        outside: outside.clone(),
    };
    hosted.retain(|it| is_for_one || !is_named(it, settings));
    if !is_for_one && !many.are_opened_at_start() {
        hosted.truncate(usize::from(has_default));
    }
    if !is_for_one {
        hosted.push(Hosted {
            hosts: Vec::new(),
            content: Content::Many(many),
            entry: None,
        });
    }
    Ok(hosted)
}

/// Whether `--site` names the host of an entry, whose problems are reported then.
fn is_named(entry: &Hosted, settings: &Settings) -> bool {
    let mut sites = settings.sites.iter();
    let named = entry.entry.as_ref().and_then(|host| {
        let (_, path) = sites.find(|(hosts, _)| hosts.contains(host))?;
        Some((host, path))
    });
    if let Some((host, path)) = named {
        let entry = entry.content.clone().into_path();
        ERRORS.log(format_args!(
            "gannet: '{}' is not served: '--site {host}={}' has its host",
            printable(&entry.to_string_lossy()),
            printable(&path.to_string_lossy())
        ));
    }
    named.is_some()
}

/// Other hosts that it may have get nothing of it.
fn serve_alone(hosted: &mut Hosted) {
    hosted.entry.get_or_insert_with(|| DEFAULT_FOLDER.into());
}

/// The hosts of a directory with their entries.
fn find_hosts(root: &Path) -> io::Result<Vec<Hosted>> {
    let mut hosted = hosted(HostFolders::to_serve(root)?);
    hosted.retain(|it| !it.hosts.is_empty());
    Ok(hosted)
}

fn hosted(found: HostFolders) -> Vec<Hosted> {
    let hosted = |(host, path): (Option<String>, PathBuf)| Hosted {
        hosts: host.iter().cloned().collect(),
        content: match is_archive(&path) {
            true => Content::Archive(path),
            false => Content::HostFolder(path),
        },
        entry: host,
    };
    found.folders.into_iter().map(hosted).collect()
}

/// What the only served entry of a directory of hosts is. One that leads out of it is refused; for folders,
/// opening sees to that. Of several, each is looked at when it is opened.
fn of_one(root: &Path, outside: &Outside, content: Content) -> Result<Content, Failure> {
    let content = match content {
        Content::HostFolder(path) if gannet_store::Store::is_store(&path) => Content::Store(path),
        content => content,
    };
    if let Content::Archive(path) | Content::Store(path) = &content {
        let name = path.file_name().unwrap_or_default();
        let found = Root::open_with(root, outside)
            .and_then(|root| named_file::metadata_below(&root, Path::new(name)));
        found.map_err(|error| {
            Failure::of_system("open", path.display(), &error)
                .help("a link has to stay in the folder; 'gannet serve --site HOST=PATH' serves a path elsewhere")
        })?;
    }
    Ok(content)
}

/// The content for hosts without a site of their own.
fn main_content(settings: &Settings) -> Result<Content, Failure> {
    if let Some(followed) = Followed::of(settings)? {
        return Ok(followed.content());
    }
    match &settings.path {
        Some(path) => look(path),
        None => {
            refuse_private(std::env::current_dir(), std::env::home_dir())?;
            look(Path::new("."))
        }
    }
}

/// Refuses to serve `/` or a home directory that is not named: a service that is configured wrongly, or a
/// user who has not changed the directory, would publish it.
fn refuse_private(current: io::Result<PathBuf>, home: Option<PathBuf>) -> Result<(), Failure> {
    let Ok(current) = current else {
        // It is gone, which `look` reports.
        return Ok(());
    };
    let own = home.and_then(|home| home.canonicalize().ok());
    let of_others = ["/home", "/root"].map(Path::new);
    // Container runtimes give a user without an entry in /etc/passwd the working directory for a home.
    let is_for_sites = ["/srv", "/var/www"]
        .iter()
        .any(|it| current.starts_with(it));
    let is_home = (own.as_ref() == Some(&current) && !is_for_sites)
        || of_others.contains(&&*current)
        || current.parent() == Some(of_others[0]);
    let what = match () {
        () if current.parent().is_none() => "is the root of the file system",
        () if is_home => "is a home directory",
        () => return Ok(()),
    };
    let shown = printable(&current.to_string_lossy());
    Err(Failure::usage(format!(
        "no path given, and the current directory '{shown}' {what}"
    ))
    .help("name what to serve: 'gannet PATH'; to serve this directory, 'gannet .'"))
}

fn look(path: &Path) -> Result<Content, Failure> {
    however_long(path, || content_kind::examine(path)).map_err(|failure| {
        let address = path.to_str().and_then(arguments::address);
        if let Some(help) = address.filter(|_| !path.exists()) {
            return failure.help(help);
        }
        match mistyped_command(Some(&path.as_os_str().to_owned())) {
            Some(meant) => failure.help(format!("did you mean the command 'gannet {meant}'?")),
            None if is_url(path.as_os_str()) => failure.help(
                "only the main path can be a URL; copy this one by 'gannet follow URL DIR', and \
                 serve DIR",
            ),
            None if failure.help.is_none() && !path.exists() => failure.help("check the path"),
            None => failure,
        }
    })
}

/// The kinds of it, for which flags have an effect. Hosts that come to a folder may have any.
pub(super) fn kinds(content: &Content) -> &'static [Kind] {
    match content {
        Content::Directory(_) | Content::HostFolder(_) => &[Kind::Directory],
        Content::File(_) => &[Kind::File],
        Content::Archive(_) => &[Kind::Archive],
        Content::Store(_) => &[Kind::Store],
        Content::Many(_) => &[Kind::Directory, Kind::Archive, Kind::Store],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_private_has_to_be_named() {
        let check = |current: &str, home: Option<&str>| {
            let failure = refuse_private(Ok(current.into()), home.map(PathBuf::from));
            failure.map_err(|it| it.message)
        };
        let refused = |current: &str, what: &str| {
            let start = "no path given, and the current directory";
            Err(format!("{start} '{current}' {what}"))
        };
        assert_eq!(
            check("/", None),
            refused("/", "is the root of the file system")
        );
        for home in ["/home", "/home/anna", "/root"] {
            assert_eq!(check(home, None), refused(home, "is a home directory"));
        }
        // A home elsewhere, as services have one.
        assert_eq!(
            check("/usr", Some("/usr")),
            refused("/usr", "is a home directory")
        );
        assert_eq!(check("/srv", Some("/srv")), Ok(()), "it is there for sites");
        for path in ["/srv/www", "/home/anna/site", "/tmp", "/usr"] {
            assert_eq!(check(path, Some("/nowhere")), Ok(()));
            assert_eq!(check(path, None), Ok(()));
        }
    }
}
