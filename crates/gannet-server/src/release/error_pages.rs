//! A site's own pages for errors. They are in memory, because the disk may be what failed.

use std::io;
use std::path::Path;
use std::sync::Arc;

use gannet_archive::{Archive, Body, Coding, Entry, Stored, decode};
use gannet_content::archive::{Entries, Host, Space};
use gannet_content::error_page::{OWN_NAMES, own_name};
use gannet_content::limits::OWN_ERROR_PAGE_MAX;
use gannet_http::semantics::status::Status;
use gannet_io::cause::cause;
use gannet_io::driver::Root;
use gannet_io::memory::Memory;
use gannet_io::named_file;

use crate::watch::notices::ERRORS;

/// The pages of a site.
#[derive(Debug)]
pub(crate) struct ErrorPages(Vec<(&'static str, ErrorPage)>);

/// A page of a site.
#[derive(Debug)]
pub(crate) struct ErrorPage {
    /// HTML.
    pub(crate) content: Arc<Memory>,
    /// Its content security policy, if the packer made one.
    pub(crate) policy: Option<(&'static str, String)>,
}

impl ErrorPages {
    /// The pages at the root of a directory, if any. One that cannot be used is reported, and the
    /// built-in one is sent; `path` names the directory.
    pub(crate) fn of_directory(root: &Root, path: &Path) -> Option<Self> {
        let read = |name: &str| {
            let read = named_file::read_below(root, Path::new(name), OWN_ERROR_PAGE_MAX);
            match read {
                Ok(content) => Some(ErrorPage::new(content, None)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => {
                    let name = path.join(name);
                    ERRORS.log(format_args!(
                        "gannet: cannot use the error page '{}': {}; the built-in one is sent\n\
                         help: it is a file of at most {OWN_ERROR_PAGE_MAX} bytes that gannet's \
                         user may read",
                        name.display(),
                        cause(&error)
                    ));
                    None
                }
            }
        };
        Self::collect(read)
    }

    /// The pages of a host of an archive, if any. `read` returns so many bytes from an offset of the
    /// archive, or `None` if they cannot be read.
    pub(crate) fn of_archive(
        archive: &Archive<Vec<u8>>,
        number: u16,
        read: impl Fn(u64, usize) -> Option<Vec<u8>>,
    ) -> Option<Self> {
        let host = Host::of(archive, number);
        Self::collect(|name| {
            let path = [b"/", name.as_bytes()].concat();
            let find = |space| host.find(space, &path);
            let entry = find(Space::Unruled).or_else(|| find(Space::Content))?;
            ErrorPage::of_entry(&entry, &read)
        })
    }

    /// These pages, by name.
    pub(crate) fn of_texts(pages: &[(&str, &[u8])]) -> Option<Self> {
        Self::collect(|name| {
            let (_, text) = pages.iter().find(|(it, _)| *it == name)?;
            Some(ErrorPage::new(text.to_vec(), None))
        })
    }

    fn collect(page: impl Fn(&'static str) -> Option<ErrorPage>) -> Option<Self> {
        let pages = OWN_NAMES
            .iter()
            .filter_map(|(name, _)| Some((*name, page(name)?)));
        let pages: Vec<_> = pages.collect();
        (!pages.is_empty()).then_some(Self(pages))
    }

    /// The page for a status.
    pub(crate) fn of(&self, status: Status) -> Option<&ErrorPage> {
        let find = |wanted: &str| self.0.iter().find(|(name, _)| *name == wanted);
        let name = own_name(status, |name| find(name).is_some())?;
        find(name).map(|(_, page)| page)
    }
}

impl ErrorPage {
    fn new(content: Vec<u8>, policy: Option<(&'static str, String)>) -> Self {
        Self {
            content: Arc::new(Memory::from_vec(content)),
            policy,
        }
    }

    fn of_entry(entry: &Entry<'_>, read: &impl Fn(u64, usize) -> Option<Vec<u8>>) -> Option<Self> {
        let variant = entry.select(Coding::Identity.into())?;
        let is_short = |len: u64| len <= OWN_ERROR_PAGE_MAX;
        let stored = |stored: Stored<'_>| match stored {
            Stored::Tiny(bytes) => Some(bytes.to_vec()),
            Stored::Blob { offset, len } if is_short(len) => {
                read(offset, usize::try_from(len).ok()?)
            }
            Stored::Blob { .. } => None,
        };
        let content = match variant.body() {
            Body::Plain(body) => stored(body)?,
            Body::Decoded {
                stored: body,
                coding,
                len,
            } if is_short(len) => decode(coding, &stored(body)?, len).ok()?,
            Body::Decoded { .. } => return None,
        };
        let block = variant.h1();
        let policy = POLICIES.into_iter().find_map(|name| {
            let value = block.get(name)?;
            Some((name, String::from_utf8_lossy(value).into_owned()))
        });
        Some(Self::new(content, policy))
    }
}

const POLICIES: [&str; 2] = [
    "content-security-policy",
    "content-security-policy-report-only",
];
