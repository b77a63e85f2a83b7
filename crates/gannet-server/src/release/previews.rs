//! Releases that answer by themselves, under names below a domain that the operator chose.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;

use gannet_http::semantics::response::Status;

use super::archive::ArchiveSite;
use super::bodies::Bodies;
use super::opened::Opened;
use super::{Archived, Site, prefix_of};

/// The previews of all contents.
pub(super) struct Previews {
    /// In lower case, after a dot.
    suffix: Box<[u8]>,
    /// Sites by the id of their release.
    sites: BTreeMap<Box<[u8]>, usize>,
}

impl Previews {
    /// Adds a site for each release that has a preview to a worker's `sites`, and the prefix of its paths.
    pub(super) fn new(
        domain: &str,
        opened: &Opened,
        (sites, prefixes): (&mut Vec<Site>, &mut Vec<Box<[u8]>>),
        worker: usize,
    ) -> Self {
        let mut of_ids = BTreeMap::new();
        let contents = opened.contents.values();
        let previews = contents.flat_map(|it| it.previews.iter().map(move |preview| (it, preview)));
        for (content, preview) in previews {
            // Few look at previews: their bodies are not cached.
            let site = ArchiveSite::all(&preview.archive, worker, Bodies::uncached()).next();
            sites.extend(site.map(|site| {
                of_ids.insert(preview.id.as_bytes().into(), sites.len());
                prefixes.push(prefix_of(&content.current.hosts).as_bytes().into());
                Site::Archive(Archived {
                    current: Rc::new(site),
                    others: Rc::default(),
                })
            }));
        }
        Self {
            suffix: format!(".{domain}").into_bytes().into(),
            sites: of_ids,
        }
    }

    /// The site of a host below the domain, whose name starts with as many digits of the id as tell
    /// releases apart by eye; 404 for every other name there. `None`: the host is not below it.
    #[cold]
    pub(super) fn named(&self, host: &[u8]) -> Option<Result<usize, Status>> {
        let id = host.strip_suffix(&*self.suffix)?;
        let is_long = id.len() >= ID_DIGITS_MIN;
        let mut from = self
            .sites
            .range::<[u8], _>((Bound::Included(id), Bound::Unbounded));
        let found = from
            .next()
            .filter(|(found, _)| is_long && found.starts_with(id));
        Some(found.map_or(Err(Status::NOT_FOUND), |(_, site)| Ok(*site)))
    }
}

/// Digits of an id that suffice in the name of a preview.
const ID_DIGITS_MIN: usize = 8;
