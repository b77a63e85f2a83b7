//! Resolves a path as a directory with these files would.

use std::sync::Arc;

use gannet_content::directory::lookup::{AtPath, Found, Lookup, LookupOptions, Step};
use gannet_content::routing::Routing;

use super::folders::Folders;
use crate::pack::PackOptions;
use crate::pack::names::Names;
use crate::pack::sources::Source;

/// The folders of a site, and how it is served.
pub(super) struct AskedSite<'f> {
    pub(super) folders: &'f Folders<'f>,
    routing: Arc<Routing>,
    options: LookupOptions,
}

/// What an archive stores for a path.
pub(super) enum Answer {
    /// The content of the file with this number.
    File(usize),
    /// A redirect that adds a slash.
    AddsSlash,
    /// A listing of the folder.
    Listing,
    /// Nothing, or a decision of the server: redirects that remove a slash, rules, fallbacks.
    Nothing,
}

impl<'f> AskedSite<'f> {
    pub(super) fn new(options: &PackOptions, folders: &'f Folders<'f>) -> Self {
        Self {
            folders,
            routing: Arc::new(Routing {
                fallbacks: Vec::new(),
                ..options.routing.clone()
            }),
            options: LookupOptions {
                clean_urls: options.clean_urls,
                spa: false,
                listing: options.listing,
                // Dotfiles were already filtered.
                dotfiles: true,
            },
        }
    }

    /// The answer for a path. `names` has at least the files' own paths.
    pub(super) fn answer(&self, names: &Names, files: &[Source], path: &[u8]) -> Answer {
        let mut lookup = Lookup::new(path, self.options, &self.routing);
        let mut last = None;
        loop {
            let name = match lookup.step() {
                Step::Open(name) => name,
                // Rules are asked when the archive is served.
                Step::Done(Found::Unclaimed) => {
                    lookup.go_on();
                    continue;
                }
                Step::Done(_) => break,
            };
            let mut url = [b"/", name].concat();
            let named = names.get(&url).flatten();
            let at_path = match named.filter(|number| files[*number].file.url == url) {
                Some(number) => {
                    last = Some(number);
                    AtPath::Regular
                }
                None => {
                    if !url.ends_with(b"/") {
                        url.push(b'/');
                    }
                    match self.folders.contains_key(url.as_slice()) {
                        true => AtPath::Directory,
                        false => AtPath::Missing,
                    }
                }
            };
            lookup.found(at_path);
        }
        match (lookup.step(), last) {
            (Step::Done(Found::File { is_own: true, .. }), Some(number)) => Answer::File(number),
            (Step::Done(Found::Redirect { .. }), _) if !path.ends_with(b"/") => Answer::AddsSlash,
            (Step::Done(Found::Listing { .. }), _) => Answer::Listing,
            _ => Answer::Nothing,
        }
    }
}
