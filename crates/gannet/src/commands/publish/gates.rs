//! What a release has to pass before it may come into force: paths that must answer, and a bound on
//! what may vanish.

use std::path::Path;

use gannet_content::rules::pattern::Scheme;
use gannet_server::notices::ERRORS;
use gannet_site::archive::{self, Change, SiteError, host_number};
use gannet_site::offline::{Located, Place, RequestUrl, Site};
use gannet_site::target::Target;

use crate::messages::{Failure, printable};

/// Checks that each of these URLs is answered with 200, not with a redirect.
pub(super) fn must_answer(draft: &Path, site: &Path, urls: &[String]) -> Result<(), Failure> {
    if urls.is_empty() {
        return Ok(());
    }
    let opened = Site::of_archive(draft, false)?;
    for typed in urls {
        let refuse = |cause: String| {
            let what = format!("{}' with '--must {typed}", site.display());
            Failure::new("publish", what, cause)
        };
        let target = Target::parse(typed).map_err(|why| refuse(why.into()).as_usage())?;
        let host_name = target.host_name();
        let host = match opened.place() {
            Place::Archive(archive) => host_number(archive.file().archive(), host_name.as_bytes()),
            Place::Directory(_) => 0,
        };
        let located = opened.locate(RequestUrl {
            host,
            host_name: &host_name,
            scheme: Scheme::Https,
            path: &target.path,
            query: target.query.as_deref(),
            is_navigation: false,
            language: "",
        });
        let cause = match located {
            Located::File(_, 200) | Located::Listing(200) => continue,
            Located::File(_, status) | Located::Listing(status) => {
                format!("it is answered with {status}")
            }
            Located::Redirect {
                status, location, ..
            } => format!("it is redirected to '{location}' ({status})"),
            Located::Icon | Located::Missing(..) => "it is not there (404)".into(),
            Located::Forbidden => "it is not served (403)".into(),
        };
        return Err(refuse(cause).help("nothing was published: the release before stays in force"));
    }
    Ok(())
}

/// Compares with the release in force. Names that vanish without a redirect are bounded, except
/// those that never change: these are kept, and no new page refers to them. A front page may vanish
/// only if a bound was given.
///
/// The default bound, a tenth of all such names and 10 at least, lets pages be deleted every day, and
/// holds up a build that lost a whole part of the site.
pub(super) fn removals(
    before: &Path,
    draft: &Path,
    site: &Path,
    bound: Option<u64>,
) -> Result<(), Failure> {
    let mut removed: Vec<String> = Vec::new();
    let (mut count, mut front_page) = (0, None);
    let mut changed: Vec<String> = Vec::new();
    let compared = archive::diff(before, draft, &mut |url, change| {
        match change {
            Change::Removed {
                was_immutable: false,
            } => {
                count += 1;
                if is_front_page(url) && front_page.is_none() {
                    front_page = Some(printable(url));
                }
                if removed.len() < SHOWN {
                    removed.push(printable(url));
                }
            }
            Change::Changed {
                was_immutable: true,
                ..
            } if changed.len() < SHOWN => changed.push(printable(url)),
            _ => {}
        }
        Ok(())
    });
    let compared = match compared {
        Ok(compared) => compared,
        // A damaged or missing file of the release before must not hold up the next one.
        Err(error @ (SiteError::Open(..) | SiteError::Io(_))) => {
            ERRORS.log(format_args!(
                "gannet: not checked for URLs that vanish: {error}"
            ));
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    if compared.immutable_changed > 0 {
        let names = list(&changed, compared.immutable_changed);
        ERRORS.log(format_args!(
            "gannet: sent as immutable and changed: browsers keep the old one: {names}"
        ));
    }
    let most = bound.unwrap_or_else(|| compared.lasting.div_ceil(10).max(LEAST));
    let front_page = front_page.filter(|_| bound.is_none());
    if count <= most && front_page.is_none() {
        return Ok(());
    }
    let names = list(&removed, count);
    let cause = match front_page {
        None => {
            format!("{count} URLs would vanish without a redirect, at most {most} may: {names}")
        }
        Some(page) => {
            format!("the front page '{page}' would vanish, of {count} URLs: {names}")
        }
    };
    Err(Failure::new("publish", site.display(), cause).help(format!(
        "redirect them in _redirects; if they are to vanish: --allow-removal {count}"
    )))
}

/// Whether a URL is `/`, or `//host/`.
fn is_front_page(url: &str) -> bool {
    let path = match url.strip_prefix("//") {
        Some(rest) => rest.find('/').map_or("", |at| &rest[at..]),
        None => url,
    };
    path == "/"
}

/// Some names of `count`.
fn list(names: &[String], count: u64) -> String {
    let more = count - names.len() as u64;
    let names = names.join(", ");
    match more {
        0 => names,
        more => format!("{names} and {more} more"),
    }
}

/// Names in a message.
const SHOWN: usize = 10;

/// So many URLs may always vanish.
const LEAST: u64 = 10;
