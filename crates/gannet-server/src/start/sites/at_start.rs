//! Opens the entries of a folder of few hosts at the start, where a mistake in one is reported.
//!
//! An entry on a file system that does not answer is left to requests, as are those of many hosts.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gannet_content::rules::memory::Replaced;
use gannet_io::links::Outside;
use gannet_io::named_file;

use super::entries::{inside, real};
use crate::bounds::limits::{SITE_SLOW_MS, SITE_WAIT_S};
use crate::coder::Coder;
use crate::config::{Config, Content, ContentOptions, Hosted, Many};
use crate::release::archive_room::ArchiveRoom;
use crate::release::opened::CheckedContent;
use crate::start::follow::Location;
use crate::start::open::{Followed, OpenError, Opening, no_front_page};
use crate::start::start_error::StartError;
use crate::watch::in_time::{self, Patience};
use crate::watch::notices::ERRORS;

/// Content that was opened.
pub(crate) struct AtStart {
    /// What it was found to be.
    pub(crate) content: Content,
    pub(crate) what: CheckedContent,
    pub(crate) followed: Followed,
    pub(crate) no_front_page: Option<(PathBuf, Vec<String>)>,
}

impl AtStart {
    /// Opens content.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub(crate) fn open(opening: &Opening<'_>, content: Content) -> Result<Self, OpenError> {
        let (what, followed) = opening.open(&content)?;
        Ok(Self {
            no_front_page: no_front_page(&content, &what),
            content,
            what,
            followed,
        })
    }
}

/// What opening content takes.
#[derive(Clone)]
pub(crate) struct Means {
    pub(crate) workers: usize,
    pub(crate) room: Arc<ArchiveRoom>,
    pub(crate) coder: Arc<Coder>,
}

impl Means {
    pub(crate) fn new(options: &ContentOptions, has_live: bool, workers: usize) -> Self {
        Self {
            workers,
            room: Arc::new(ArchiveRoom::of(options)),
            coder: Arc::new(Coder::start(options, has_live)),
        }
    }

    /// Opens content, or the site of `host` in its entry.
    pub(crate) fn opening<'a>(
        &'a self,
        options: &'a ContentOptions,
        host: Option<&'a str>,
    ) -> Opening<'a> {
        Opening {
            options,
            workers: self.workers,
            room: &self.room,
            coder: Some(&self.coder),
            host,
            replaced: Replaced::default(),
        }
    }
}

/// Opens the entries of a folder of hosts that are among `contents`, by their places there. Those that
/// requests are to open are `None`; a line names each.
///
/// # Errors
/// What prevents the start: an entry has a mistake; that for all other hosts does not answer; or another
/// one does not, and the server is to change its user.
pub(crate) fn open(
    contents: &[Hosted],
    config: &Config,
    means: &Means,
) -> Result<BTreeMap<usize, Option<AtStart>>, StartError> {
    let (options, means) = (config.content.clone(), means.clone());
    let open = move |content: Content, host: Option<&str>| {
        AtStart::open(&means.opening(&options, host), content)
    };
    each_entry(contents, config.run_as.is_some(), open)
}

/// What a start opens of `contents`, each entry of a folder of hosts as what it is: those that it leaves to
/// requests are left out, and a line names each, as at a start. Nothing in an entry is looked at.
/// `changes_user` if the server is to change its user.
///
/// # Errors
/// As at the start, as far as they are seen without a look at what is in an entry.
pub fn opened_at_start(
    contents: Vec<Hosted>,
    changes_user: bool,
) -> Result<Vec<Hosted>, StartError> {
    let many = contents.iter().find_map(many_of);
    let outside = many.map_or_else(Outside::default, |many| many.outside.clone());
    let mut found = each_entry(&contents, changes_user, move |content, _| {
        reach(&content, &outside).map(|()| content)
    })?;
    let places = contents.into_iter().enumerate();
    let opened = places.filter_map(|(place, hosted)| {
        let content = match found.remove(&place) {
            Some(found) => found?,
            None => hosted.content,
        };
        Some(Hosted { content, ..hosted })
    });
    Ok(opened.collect())
}

/// Opens an entry itself.
fn reach(content: &Content, outside: &Outside) -> Result<(), OpenError> {
    let (what, tried) = match content {
        Content::HostFolder(path) => {
            let opened = Location::new(path, true, outside).and_then(|place| place.open());
            ("directory", opened.map(drop))
        }
        Content::Archive(path) => ("archive", named_file::open(path).map(drop)),
        // It was read just now.
        _ => return Ok(()),
    };
    tried.map_err(|error| OpenError::Io(what, content.clone().into_path(), error))
}

/// Does `work` with each entry of a folder of hosts that is among `contents`, and with its host. The results
/// are by the places among the contents; those that are left to requests are `None`, and a line names each.
fn each_entry<R: Send + 'static>(
    contents: &[Hosted],
    changes_user: bool,
    work: impl Fn(Content, Option<&str>) -> Result<R, OpenError> + Send + Sync + 'static,
) -> Result<BTreeMap<usize, Option<R>>, StartError> {
    let mut all = BTreeMap::new();
    let Some(many) = contents.iter().find_map(many_of) else {
        return Ok(all);
    };
    let places = contents.iter().enumerate();
    let places = places.filter(|(_, it)| is_entry(it, many));
    let places: Vec<_> = places.map(|(place, it)| (place, it.clone())).collect();
    let entries: Vec<Hosted> = places.iter().map(|(_, it)| it.clone()).collect();
    let many = many.clone();
    let open = move |hosted: &Hosted| {
        let content = &hosted.content;
        let opened = inside(&many, content)
            .and_then(|()| work(real(content.clone()), hosted.entry.as_deref()));
        opened.map_err(|error| Refused {
            is_reported_only: leads_nowhere(content, &error),
            error,
        })
    };
    let opened = in_time::each(entries, PATIENCE, open).map_err(StartError::Resource)?;
    for ((place, hosted), opened) in places.into_iter().zip(opened) {
        let host = hosted.entry.clone();
        let path = hosted.content.into_path();
        let opened = match (opened, host) {
            (Some(Ok(opened)), _) => Some(opened),
            (Some(Err(refused)), Some(host)) if refused.is_reported_only => {
                let error = refused.error;
                // That nothing is there says it all.
                let kind = error.of_system().map(io::Error::kind);
                let help = error.help().filter(|_| kind != Some(ErrorKind::NotFound));
                let help = help.map_or_else(String::new, |help| format!("\nhelp: {help}"));
                ERRORS.log(format_args!("gannet: no site for '{host}': {error}{help}"));
                None
            }
            (Some(Err(refused)), _) => return Err(StartError::Content(refused.error)),
            // The C library changes the user of all threads, and would wait for the one that hangs.
            (None, Some(host)) if !changes_user => {
                ERRORS.log(format_args!("gannet: {}", unanswered(&host)));
                None
            }
            (None, _) => return Err(StartError::Unanswered(path)),
        };
        all.insert(place, opened);
    }
    Ok(all)
}

/// As requests have with a site.
const PATIENCE: Patience = Patience {
    slow: Duration::from_millis(SITE_SLOW_MS),
    most: Duration::from_secs(SITE_WAIT_S),
};

/// How a host whose site hangs is reported.
pub(super) fn unanswered(host: &str) -> String {
    format!(
        "no site for '{host}': not open after {SITE_WAIT_S} s, since its file system does not answer or \
         its rules take long; answering 503 until it is"
    )
}

fn many_of(hosted: &Hosted) -> Option<&Many> {
    match &hosted.content {
        Content::Many(many) => Some(many),
        _ => None,
    }
}

/// Whether content is an entry of the folder: of a host, or for all other hosts.
fn is_entry(hosted: &Hosted, many: &Many) -> bool {
    let is_many = many_of(hosted).is_some();
    !is_many && (hosted.hosts.is_empty() || many.found.contains(hosted))
}

/// Why an entry has no site.
struct Refused {
    error: OpenError,
    /// That prevents no start.
    is_reported_only: bool,
}

/// Whether an entry is a link to nothing, to nothing that is served, or out of the folder. It may be in the
/// middle of a change, or be no site at all; and a user who may write one entry is not to keep the others down.
fn leads_nowhere(content: &Content, error: &OpenError) -> bool {
    use ErrorKind::{CrossesDevices, IsADirectory, NotADirectory, NotFound};
    let path = content.clone().into_path();
    let is_link = path.symlink_metadata().is_ok_and(|it| it.is_symlink());
    let kind = error.of_system().map(io::Error::kind);
    is_link
        && kind.is_some_and(|it| {
            matches!(it, CrossesDevices | IsADirectory | NotADirectory | NotFound)
        })
}
