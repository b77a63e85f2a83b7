//! All content of a server, opened at its start.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::open::Followed;
use super::origins::Origins;
use super::releases;
use super::sites::Waiting;
use super::sites::at_start::{self, AtStart, Means};
use super::start_error::StartError;
use crate::config::{Config, Content, ContentOptions, Hosted};
use crate::passwords::file::PasswordFile;
use crate::release::directory::LongCopies;
use crate::release::on_demand::OnDemandHosts;
use crate::release::opened::{Generations, Opened, OpenedContent, Policy};
use crate::release::room::Room;
use crate::watch::in_time::however_long;

/// What was opened, and what follows it.
#[derive(Default)]
pub(super) struct Contents {
    /// All that is served, as it was found. Entries of a folder of hosts that did not answer are only in
    /// that folder's content.
    pub(super) hosted: Vec<Hosted>,
    pub(super) opened: BTreeMap<usize, Generations>,
    pub(super) origins: Origins,
    /// The hosts of sites that are opened on demand.
    pub(super) on_demand: Option<OnDemandHosts>,
    /// Content that lacks the page for the single-page application.
    pub(super) no_front_page: Vec<(PathBuf, Vec<String>)>,
}

impl Contents {
    /// Opens all `content`.
    ///
    /// # Errors
    /// Some of it cannot be served.
    pub(super) fn open(
        content: Vec<Hosted>,
        config: &Config,
        means: &Means,
    ) -> Result<Self, StartError> {
        let mut at_start = at_start::open(&content, config, means)?;
        let left = at_start.values().filter(|it| it.is_none()).count();
        let mut all = Self::default();
        all.origins.passwords.clone_from(&config.passwords.file);
        for (place, hosted) in content.into_iter().enumerate() {
            if let Content::Many(many) = &hosted.content {
                let ordered = config.tls.as_ref();
                let ordered = ordered.and_then(|it| it.source.ordered.as_ref());
                let on_demand = ordered.and_then(|ordered| ordered.on_demand.clone());
                let many = many.clone();
                let (waiting, hosts) = Waiting::new(many, (place, left), means.workers, on_demand);
                all.origins.sites = Some(waiting);
                all.on_demand = Some(hosts);
                all.hosted.push(hosted);
                continue;
            }
            let opened = match at_start.remove(&place) {
                Some(Some(opened)) => opened,
                Some(None) => continue,
                None => {
                    let opening = means.opening(&config.content, hosted.entry.as_deref());
                    let content = hosted.content.clone();
                    let opened = however_long(&hosted.content.clone().into_path(), || {
                        AtStart::open(&opening, content)
                    });
                    opened.map_err(StartError::Content)?
                }
            };
            all.add(place, hosted, opened);
        }
        Ok(all)
    }

    /// What workers serve first.
    pub(super) fn take_opened(
        &mut self,
        (options, policy): (&ContentOptions, Policy),
        passwords: Option<Arc<PasswordFile>>,
        room: Room,
        workers: usize,
    ) -> Arc<Opened> {
        Arc::new(Opened {
            room,
            long_copies: Arc::new(LongCopies::new(workers)),
            contents: std::mem::take(&mut self.opened),
            on_demand: self.on_demand.take(),
            uses: BTreeMap::new(),
            unknown_host: options.unknown_host,
            previews: options.previews.clone(),
            policy: Arc::new(policy),
            passwords,
        })
    }

    fn add(&mut self, place: usize, hosted: Hosted, opened: AtStart) {
        let AtStart {
            content,
            what,
            followed,
            no_front_page,
        } = opened;
        let Hosted { hosts, entry, .. } = hosted;
        self.no_front_page.extend(no_front_page);
        self.hosted.push(Hosted {
            hosts: hosts.clone(),
            content: content.clone(),
            entry: entry.clone(),
        });
        match followed {
            Followed::Directory(source) => self.origins.directories.push((place, source)),
            Followed::Releases(origin) => self.origins.archives.push(releases::ArchiveOrigin {
                place,
                name: content.into_path(),
                origin,
                host: entry,
            }),
        }
        let content = Generations::only(OpenedContent { hosts, what });
        self.opened.insert(place, content);
    }
}
