//! Other forms of a file, from which `accept` chooses.

use gannet_content::rules::steps::Steps;
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
    let find = |path: &[u8]| {
        let is_it = |it: &gannet_site::offline::SiteFile| it.host == asked.host && it.url == path;
        files.iter().position(is_it)
    };
    let is_page = || {
        let is_html = files[number].content_type.starts_with("text/html");
        let with_suffix = || find(&[asked.path, b".html"].concat());
        is_html && (asked.path.ends_with(b"/") || with_suffix().is_some())
    };
    let paths = match site.place() {
        Place::Archive(_) => negotiation::paths_of(asked.path, is_page),
        Place::Directory(_) => negotiation::paths_of(&files[number].url, || false),
    };
    let forms = paths.into_iter().filter_map(|(form, path)| {
        let number = find(&path).filter(|number| len(site, *number) > 0)?;
        Some(OtherForm { form, number, path })
    });
    forms.collect()
}

/// Whether the same users may have both paths, and no rule answers that of the form with something
/// else.
fn may_stand_for(site: &Site, asked: &RequestUrl<'_>, path: &[u8]) -> bool {
    let rules = site.rules(asked.host);
    let users = |path| {
        let users = rules
            .headers()
            .into_iter()
            .flat_map(|it| it.users(path, &Steps::default()));
        users.map(<[_]>::as_ptr).collect::<Vec<_>>()
    };
    let input = RequestUrl { path, ..*asked };
    let input = input.rule_input();
    let redirects = rules.redirects();
    users(asked.path) == users(path)
        && redirects.is_none_or(|table| table.before_files(&input, &Steps::default()).is_none())
}

/// The number of the file that is sent: that of a form that the request prefers, or `own`.
pub(super) fn choose(
    site: &Site,
    (asked, own): (&RequestUrl<'_>, usize),
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
    if !may_stand_for(site, asked, &chosen.path) {
        let why = "its own path has other users, or a rule";
        line(text, format!("  the request prefers '{shown}', but {why}"));
        return own;
    }
    line(text, format!("  the request prefers '{shown}'"));
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
