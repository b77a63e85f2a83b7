//! Other forms of a file, from which `accept` chooses.

use std::fs;

use gannet_archive::{Body, Stored};
use gannet_content::negotiation::{self, Form};
use gannet_http::semantics::fields::Fields;
use gannet_site::offline::{Place, RequestUrl, Site};

use super::{line, section_of};

/// Another form of a file.
pub(super) struct OtherForm {
    form: Form,
    /// The number of its file.
    pub(super) number: usize,
    /// Its own path.
    pub(super) path: Vec<u8>,
}

/// The forms beside the file that answers the path.
pub(super) fn of(site: &Site, asked: &RequestUrl<'_>, number: usize) -> Vec<OtherForm> {
    let files = site.files();
    let paths = match site.place() {
        Place::Archive(_) => negotiation::paths_of(asked.path),
        Place::Directory(_) => negotiation::paths_of(&files[number].url),
    };
    let forms = paths.into_iter().filter_map(|(form, path)| {
        let is_it = |it: &gannet_site::offline::SiteFile| it.host == asked.host && it.url == path;
        let number = files.iter().position(is_it)?;
        (len(site, number) > 0).then_some(OtherForm { form, number, path })
    });
    forms.collect()
}

/// The number of the file that is sent: that of a form which the request wants rather, or `own`.
pub(super) fn choose(
    site: &Site,
    own: usize,
    forms: &[OtherForm],
    request: &[(String, String)],
    text: &mut String,
) -> usize {
    let section = section_of(request);
    let Ok(fields) = Fields::parse(section.as_bytes()) else {
        return own;
    };
    let others = forms.iter().map(|it| (it.form, len(site, it.number)));
    let content_type = &site.files()[own].content_type;
    let chosen = negotiation::choose(&fields, (content_type, len(site, own)), others);
    let Some(chosen) = chosen.map(|position| &forms[position]) else {
        return own;
    };
    let shown = site.shown(chosen.number);
    line(text, format!("  the request wants '{shown}' rather"));
    chosen.number
}

/// The length of a file without coding; 0 if it cannot be read.
fn len(site: &Site, number: usize) -> u64 {
    match site.place() {
        Place::Directory(directory) => directory
            .path_of(number)
            .and_then(|path| fs::metadata(path).ok())
            .map_or(0, |it| it.len()),
        Place::Archive(archive) => {
            let entry = archive.entry(number);
            let variants = entry.iter().flat_map(|entry| entry.variants());
            let lens = variants.map(|variant| match variant.body() {
                Body::Plain(Stored::Tiny(bytes)) => bytes.len() as u64,
                Body::Plain(Stored::Blob { len, .. }) | Body::Decoded { len, .. } => len,
            });
            lens.max().unwrap_or(0)
        }
    }
}
