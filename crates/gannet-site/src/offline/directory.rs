//! A directory: its names, and how the server's lookup resolves them.

use gannet_content::rules::steps::Steps;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gannet_content::directory::lookup::{AtPath, Found, Lookup, LookupOptions, Step};
use gannet_content::mime;
use gannet_content::routing::{Routing, hidden_segment};
use gannet_io::driver::Root;
use gannet_io::named_file;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use super::{Located, RequestUrl, Rules, SiteFile, SiteOptions, folded, names_of};
use crate::archive::SiteError;

/// Maximum depth of folders, as for packing: bounds recursive symbolic links.
const DEPTH_MAX: usize = 128;

/// A directory with all its names read.
#[derive(Debug)]
pub struct DirectoryPlace {
    root: PathBuf,
    options: LookupOptions,
    routing: Arc<Routing>,
    files: Vec<SiteFile>,
    /// Items by path relative to the root, as the lookup requests them.
    items: HashMap<Vec<u8>, Item>,
    /// File numbers by path in lower case.
    folded: HashMap<Vec<u8>, usize>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Item {
    File(usize),
    Folder,
    /// A symbolic link that leads out of the root, and not to where it may lead.
    Escapes,
    /// A symbolic link that leads back to itself, perhaps by others.
    Loop,
    /// A symbolic link to a folder that it is in itself, which is so many folders below the root. The server
    /// follows it, time and again; here each file is looked at once.
    Cycle(usize),
    /// A folder below too many others.
    Deep,
    /// A symbolic link to nothing.
    Dangling,
    /// Neither file nor folder.
    Other,
    /// A folder that this user may not search, or a link into one: its contents are unknown.
    Closed,
}

impl DirectoryPlace {
    /// Reads all names below the root. Symbolic links are resolved beneath it, or where they may lead, as
    /// in the server's lookups.
    pub(super) fn scan(options: &SiteOptions) -> Result<Self, SiteError> {
        let root = options.path.as_path();
        let canonical = root.canonicalize().map_err(SiteError::io("open", root))?;
        let mut place = Self {
            root: root.to_path_buf(),
            options: options.lookup,
            routing: Arc::new(options.routing.clone()),
            files: Vec::new(),
            items: HashMap::from([(Vec::new(), Item::Folder)]),
            folded: HashMap::new(),
        };
        let beneath = Root::open_with(root, &options.outside);
        let beneath = beneath.map_err(SiteError::io("open", root))?;
        let mut chain = vec![canonical];
        place.folder(root, &beneath, b"", &mut chain)?;
        place.number();
        Ok(place)
    }

    fn folder(
        &mut self,
        path: &Path,
        beneath: &Root,
        url: &[u8],
        chain: &mut Vec<PathBuf>,
    ) -> Result<(), SiteError> {
        let items = match fs::read_dir(path) {
            // Names may be readable where files cannot be opened (`r` without `x`).
            Ok(items) if may(path, Access::EXEC_OK) => items,
            Err(error) if error.kind() != io::ErrorKind::PermissionDenied => {
                return Err(SiteError::io("read", path)(error));
            }
            _ => {
                self.items.insert(url.to_vec(), Item::Closed);
                return Ok(());
            }
        };
        for item in items {
            let item = item.map_err(SiteError::io("read", path))?;
            let path = item.path();
            let name = item.file_name();
            let url = match url {
                b"" => name.as_bytes().to_vec(),
                folder => [folder, b"/", name.as_bytes()].concat(),
            };
            let kind = item.file_type().map_err(SiteError::io("read", &path))?;
            let (kind, target) = if kind.is_symlink() {
                let relative = Path::new(OsStr::from_bytes(&url));
                match named_file::metadata_below(beneath, relative) {
                    Ok(metadata) => {
                        let target = path.canonicalize();
                        let target = target.map_err(SiteError::io("read", &path))?;
                        (metadata.file_type(), target)
                    }
                    Err(error) => {
                        self.items.insert(url, unfollowed(&error));
                        continue;
                    }
                }
            } else {
                let target = chain.last().map(|folder| folder.join(&name));
                (kind, target.unwrap_or_else(|| path.clone()))
            };
            if kind.is_dir() {
                if let Some(depth) = chain.iter().position(|it| *it == target) {
                    self.items.insert(url, Item::Cycle(depth));
                    continue;
                }
                if chain.len() > DEPTH_MAX {
                    self.items.insert(url, Item::Deep);
                    continue;
                }
                self.items.insert(url.clone(), Item::Folder);
                chain.push(target);
                self.folder(&path, beneath, &url, chain)?;
                chain.pop();
            } else if kind.is_file() {
                self.items.insert(url, Item::File(0));
            } else {
                self.items.insert(url, Item::Other);
            }
        }
        Ok(())
    }

    /// Numbers the files in the order of their paths, independent of the file system's order.
    fn number(&mut self) {
        let is_file = |item: &Item| matches!(item, Item::File(_));
        let files = self.items.iter().filter(|(_, item)| is_file(item));
        let mut names: Vec<Vec<u8>> = files.map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        for (number, name) in names.into_iter().enumerate() {
            let url = [b"/", name.as_slice()].concat();
            self.folded.entry(folded(&url)).or_insert(number);
            let content_type = mime::content_type(&name).to_owned();
            self.items.insert(name, Item::File(number));
            self.files.push(SiteFile {
                is_carried: false,
                host: 0,
                url,
                content_type,
            });
        }
    }

    /// Its path.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The files, by number.
    #[must_use]
    pub fn files(&self) -> &[SiteFile] {
        &self.files
    }

    /// The path of a file.
    #[must_use]
    pub fn path_of(&self, number: usize) -> Option<PathBuf> {
        let url = &self.files.get(number)?.url;
        let relative = std::ffi::OsString::from_vec(url.get(1..)?.to_vec());
        Some(self.root.join(relative))
    }

    pub(super) fn read(&self, number: usize, max: u64) -> io::Result<Option<Vec<u8>>> {
        let path = self.path_of(number).ok_or(io::ErrorKind::NotFound)?;
        let file = named_file::open(&path)?;
        if file.metadata()?.len() > max {
            return Ok(None);
        }
        let mut content = Vec::new();
        // The file may grow while it is being read.
        file.take(max).read_to_end(&mut content)?;
        Ok(Some(content))
    }

    pub(super) fn locate(
        &self,
        asked: &RequestUrl<'_>,
        rules: &Rules,
        report: &mut dyn FnMut(String),
    ) -> Located {
        let request = asked.rule_input();
        let steps = Steps::default();
        let redirects = rules.redirects();
        let mut lookup =
            Lookup::new(asked.path, self.options, &self.routing).of_navigation(asked.is_navigation);
        if let Some(ruled) = redirects.and_then(|table| table.before_files(&request, &steps)) {
            report(rules.verdict(Some(&ruled)));
            lookup.claim(ruled);
        }
        loop {
            let last = self.ask(&mut lookup, report);
            let Step::Done(found) = lookup.step() else {
                continue;
            };
            if found == Found::Unclaimed {
                match redirects.map(|table| table.for_missing(&request, &steps)) {
                    None => lookup.go_on(),
                    Some(ruled) => {
                        report(rules.verdict(ruled.as_ref()));
                        match ruled {
                            Some(ruled) => lookup.claim(ruled),
                            None => lookup.go_on(),
                        }
                    }
                }
                continue;
            }
            return located(found, last);
        }
    }

    /// Whether a path has content of its own.
    pub(super) fn has_content(&self, path: &[u8]) -> bool {
        let mut lookup = Lookup::new(path, self.options, &self.routing);
        self.ask(&mut lookup, &mut |_| {});
        match lookup.step() {
            Step::Done(Found::File { is_own, .. }) => is_own,
            Step::Done(found) => matches!(found, Found::Listing { .. }),
            Step::Open(_) => false,
        }
    }

    /// Runs a lookup to its end. Returns the number of the last file found.
    fn ask(&self, lookup: &mut Lookup, report: &mut dyn FnMut(String)) -> Option<usize> {
        let mut last = None;
        while let Step::Open(name) = lookup.step() {
            let (at_path, words) = match self.item(name) {
                Some(Item::File(_)) if !may(&self.at(name), Access::READ_OK) => {
                    (AtPath::Denied, "a file that this user may not read")
                }
                Some(Item::Closed) => (AtPath::Denied, "a folder that this user may not search"),
                Some(Item::File(number)) => {
                    last = Some(number);
                    (AtPath::Regular, "a file")
                }
                Some(Item::Folder) => (AtPath::Directory, "a folder"),
                Some(Item::Other) => (AtPath::Other, "neither a file nor a folder"),
                Some(Item::Escapes) => (AtPath::Escapes, "a link out of the site,"),
                Some(Item::Loop) => (AtPath::Escapes, "a link that leads back to itself"),
                Some(Item::Cycle(_) | Item::Deep) => (AtPath::Escapes, "a folder too deep"),
                Some(Item::Dangling) => (AtPath::Missing, "a link to nothing"),
                None => (AtPath::Missing, "nothing"),
            };
            let shown = String::from_utf8_lossy(name);
            report(format!("{words} at '{shown}'"));
            lookup.found(at_path);
        }
        last
    }

    /// The item at a path; everything below a closed folder is closed.
    fn item(&self, name: &[u8]) -> Option<Item> {
        if let Some(shorter) = self.without_cycle(name) {
            return self.item(&shorter);
        }
        if let Some(item) = self.items.get(name) {
            return Some(*item);
        }
        let mut above = name;
        while let Some(slash) = above.iter().rposition(|byte| *byte == b'/') {
            above = &above[..slash];
            if let Some(item) = self.items.get(above) {
                return Some(*item).filter(|item| *item == Item::Closed);
            }
        }
        None
    }

    /// A shorter path to the same item, if this one goes through a link to a folder that the link is in.
    fn without_cycle(&self, name: &[u8]) -> Option<Vec<u8>> {
        let slashes = name.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let mut ends = slashes.map(|(at, _)| at).chain([name.len()]);
        let (end, depth) = ends.find_map(|end| match self.items.get(&name[..end]) {
            Some(Item::Cycle(depth)) => Some((end, *depth)),
            _ => None,
        })?;
        let folders = name[..end].split(|byte| *byte == b'/').take(depth);
        let parts: Vec<_> = folders.chain(name[end..].strip_prefix(b"/")).collect();
        Some(parts.join(&b'/'))
    }

    fn at(&self, name: &[u8]) -> PathBuf {
        self.root.join(OsStr::from_bytes(name))
    }

    /// A folder whose names cannot be read, if there is one.
    pub(super) fn closed_folder(&self) -> Option<PathBuf> {
        let mut items = self.items.iter();
        let (name, _) = items.find(|(_, item)| **item == Item::Closed)?;
        Some(self.at(name))
    }

    /// The symbolic links that the server does not follow, by path relative to the root, in order. Those
    /// whose names it hides anyway are omitted.
    pub(super) fn unfollowed_links(&self) -> Vec<(&[u8], WhyNot)> {
        let links = self.items.iter().filter_map(|(name, item)| match item {
            Item::Escapes => Some((&**name, WhyNot::Escapes)),
            Item::Loop => Some((&**name, WhyNot::Loop)),
            Item::Dangling => Some((&**name, WhyNot::Dangling)),
            _ => None,
        });
        let shows_hidden = self.options.dotfiles;
        let mut links: Vec<_> = links
            .filter(|(name, _)| shows_hidden || hidden_segment(name).is_none())
            .collect();
        links.sort_unstable_by_key(|(name, _)| *name);
        links
    }

    pub(super) fn differently_spelled(&self, path: &[u8]) -> Option<Vec<u8>> {
        let found = names_of(path)
            .iter()
            .find_map(|name| self.folded.get(&folded(name)).copied())?;
        Some(self.files.get(found)?.url.clone())
    }

    pub(super) fn why_not(&self, path: &[u8]) -> Option<WhyNot> {
        let mut name = path.get(1..).unwrap_or_default();
        if name
            .split(|byte| *byte == b'/')
            .any(|it| it.starts_with(b"."))
        {
            return Some(WhyNot::Dotfile);
        }
        let copy = [".gz", ".br", ".zst"]
            .into_iter()
            .find(|suffix| self.items.contains_key(&[name, suffix.as_bytes()].concat()));
        match copy {
            _ if self.items.contains_key(name) => {}
            Some(".zst") => return Some(WhyNot::ZstdOnly),
            Some(_) => return Some(WhyNot::CompressedOnly),
            None => {}
        }
        loop {
            match self.items.get(name) {
                Some(Item::Escapes) => return Some(WhyNot::Escapes),
                Some(Item::Loop) => return Some(WhyNot::Loop),
                Some(Item::Dangling) => return Some(WhyNot::Dangling),
                _ => {}
            }
            let slash = name.iter().rposition(|byte| *byte == b'/')?;
            name = &name[..slash];
        }
    }
}

/// Why a path that exists is not served.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WhyNot {
    /// A name starts with a dot.
    Dotfile,
    /// Only a copy as gzip or brotli exists, which a server may decode.
    CompressedOnly,
    /// Only a copy as zstd exists, which packing may decompress.
    ZstdOnly,
    /// A symbolic link leads out of the site.
    Escapes,
    /// A symbolic link leads back to itself, perhaps by others.
    Loop,
    /// A symbolic link leads to nothing.
    Dangling,
}

impl fmt::Display for WhyNot {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Dotfile => "names that start with a dot are not served",
            Self::CompressedOnly => "only a compressed copy exists",
            Self::ZstdOnly => "only a copy as zstd exists",
            Self::Escapes => "a symbolic link leads out of the site",
            Self::Loop => "a symbolic link leads back to itself",
            Self::Dangling => "a symbolic link leads to nothing",
        })
    }
}

/// Whether this user has the permission for a path, following links.
#[must_use]
pub fn may(path: &Path, access: Access) -> bool {
    accessat(CWD, path, access, AtFlags::EACCESS).is_ok()
}

/// What a symbolic link is that cannot be followed beneath the root.
fn unfollowed(error: &io::Error) -> Item {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Item::Closed,
        io::ErrorKind::CrossesDevices => Item::Escapes,
        _ if Errno::from_io_error(error) == Some(Errno::LOOP) => Item::Loop,
        _ => Item::Dangling,
    }
}

fn located(found: Found<'_>, last: Option<usize>) -> Located {
    let text = |location: &[u8]| String::from_utf8_lossy(location).into_owned();
    match found {
        Found::File { status, .. } if status.0 >= 400 => Located::Missing(last, status.0),
        Found::File { status, .. } => match last {
            Some(number) => Located::File(number, status.0),
            None => Located::Missing(None, 404),
        },
        Found::Redirect { location } => Located::Redirect {
            status: 301,
            location: text(location),
            rule: None,
        },
        Found::Elsewhere {
            status,
            location,
            rule,
        } => Located::Redirect {
            status: status.0,
            location: text(location),
            rule: Some(rule),
        },
        Found::Listing { .. } => Located::Listing(200),
        Found::Forbidden => Located::Forbidden,
        Found::Missing(status) => Located::Missing(None, status.0),
        Found::Unclaimed | Found::Failed => Located::Missing(None, 404),
    }
}
