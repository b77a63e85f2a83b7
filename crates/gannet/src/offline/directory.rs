//! A directory: its names, and what the server's lookup makes of them.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gannet_content::directory::lookup::{Ask, Found, Lookup, LookupOptions, Told};
use gannet_content::mime;
use gannet_content::routing::Routing;
use gannet_http::semantics::status::Status;

use super::{Located, SiteFile, folded, names_of};
use crate::archive_commands::CommandError;

/// Folders within folders, as for packing: symbolic links that multiply come to an end here.
const DEPTH_MAX: usize = 128;

/// A directory whose names are known.
#[derive(Debug)]
pub struct DirectoryPlace {
    root: PathBuf,
    options: LookupOptions,
    files: Vec<SiteFile>,
    /// By the path relative to the root, as the lookup asks.
    items: HashMap<Vec<u8>, Item>,
    /// By names in lower case: a file.
    folded: HashMap<Vec<u8>, usize>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Item {
    File(usize),
    Folder,
    /// A symbolic link out of the root, in a circle, or to nothing.
    Escapes,
    /// Neither file nor folder.
    Other,
}

impl DirectoryPlace {
    /// Reads all names below `root`. Symbolic links are followed where a server follows them.
    pub(super) fn scan(root: &Path, options: LookupOptions) -> Result<Self, CommandError> {
        let canonical = root
            .canonicalize()
            .map_err(CommandError::io("open", root))?;
        let mut place = Self {
            root: root.to_path_buf(),
            options,
            files: Vec::new(),
            items: HashMap::from([(Vec::new(), Item::Folder)]),
            folded: HashMap::new(),
        };
        let mut chain = vec![canonical.clone()];
        place.folder(root, &canonical, b"", &mut chain)?;
        place.number();
        Ok(place)
    }

    fn folder(
        &mut self,
        path: &Path,
        root: &Path,
        url: &[u8],
        chain: &mut Vec<PathBuf>,
    ) -> Result<(), CommandError> {
        for item in fs::read_dir(path).map_err(CommandError::io("read", path))? {
            let item = item.map_err(CommandError::io("read", path))?;
            let path = item.path();
            let name = item.file_name();
            let url = match url {
                b"" => name.as_bytes().to_vec(),
                folder => [folder, b"/", name.as_bytes()].concat(),
            };
            let kind = item.file_type().map_err(CommandError::io("read", &path))?;
            let target = if kind.is_symlink() {
                match path.canonicalize() {
                    Ok(target) if target.starts_with(root) => target,
                    _ => {
                        self.items.insert(url, Item::Escapes);
                        continue;
                    }
                }
            } else {
                chain
                    .last()
                    .map_or(path.clone(), |folder| folder.join(&name))
            };
            let kind = if kind.is_symlink() {
                match fs::metadata(&path) {
                    Ok(metadata) => metadata.file_type(),
                    Err(error) => return Err(CommandError::io("read", &path)(error)),
                }
            } else {
                kind
            };
            if kind.is_dir() {
                if chain.contains(&target) || chain.len() > DEPTH_MAX {
                    self.items.insert(url, Item::Escapes);
                    continue;
                }
                self.items.insert(url.clone(), Item::Folder);
                chain.push(target);
                self.folder(&path, root, &url, chain)?;
                chain.pop();
            } else if kind.is_file() {
                self.items.insert(url, Item::File(0));
            } else {
                self.items.insert(url, Item::Other);
            }
        }
        Ok(())
    }

    /// Numbers the files in the order of their paths, whatever the file system's is.
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
                host: 0,
                url,
                content_type,
            });
        }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Its files, by their numbers.
    #[must_use]
    pub fn files(&self) -> &[SiteFile] {
        &self.files
    }

    /// Where a file is.
    #[must_use]
    pub fn path_of(&self, number: usize) -> Option<PathBuf> {
        let url = &self.files.get(number)?.url;
        let relative = std::ffi::OsString::from_vec(url.get(1..)?.to_vec());
        Some(self.root.join(relative))
    }

    pub(super) fn read(&self, number: usize, max: u64) -> io::Result<Option<Vec<u8>>> {
        let path = self.path_of(number).ok_or(io::ErrorKind::NotFound)?;
        let file = File::open(path)?;
        if file.metadata()?.len() > max {
            return Ok(None);
        }
        let mut content = Vec::new();
        // The file may grow while it is read.
        file.take(max).read_to_end(&mut content)?;
        Ok(Some(content))
    }

    pub(super) fn locate(
        &self,
        path: &[u8],
        with_pages: bool,
        tell: &mut dyn FnMut(String),
    ) -> Located {
        let options = LookupOptions {
            spa: self.options.spa && with_pages,
            ..self.options
        };
        // Who asks has the rules, and asks them.
        let routing = Arc::new(Routing {
            rules: None,
            ..Routing::default()
        });
        let mut lookup = Lookup::new(path, options, &routing);
        let mut last = None;
        loop {
            match lookup.step() {
                Ask::Open(name) => {
                    let item = self.items.get(name).copied();
                    let (told, words) = match item {
                        Some(Item::File(number)) => {
                            last = Some(number);
                            (Told::Regular, "a file")
                        }
                        Some(Item::Folder) => (Told::Directory, "a folder"),
                        Some(Item::Other) => (Told::Other, "neither file nor folder"),
                        Some(Item::Escapes) => (Told::Escapes, "a link out of the site"),
                        None => (Told::Missing, "nothing"),
                    };
                    let shown = String::from_utf8_lossy(name);
                    tell(format!("{words} at '{shown}'"));
                    lookup.told(told);
                }
                Ask::Done(found) => {
                    return match found {
                        Found::File { status, .. } if status == Status::NOT_FOUND => {
                            Located::Missing(last)
                        }
                        Found::File { .. } => match last {
                            Some(number) => Located::File(number, 200),
                            None => Located::Missing(None),
                        },
                        Found::Redirect { location } => Located::Redirect {
                            status: 308,
                            location: String::from_utf8_lossy(location).into_owned(),
                            rule: None,
                        },
                        Found::Listing { .. } => Located::Listing,
                        Found::Forbidden => Located::Forbidden,
                        Found::Unclaimed | Found::Missing | Found::Failed => Located::Missing(None),
                    };
                }
            }
        }
    }

    pub(super) fn differently_spelled(&self, path: &[u8]) -> Option<Vec<u8>> {
        let found = names_of(path)
            .iter()
            .find_map(|name| self.folded.get(&folded(name)).copied())?;
        Some(self.files.get(found)?.url.clone())
    }

    pub(super) fn why_not(&self, path: &[u8]) -> Option<&'static str> {
        let mut name = path.get(1..).unwrap_or_default();
        if name
            .split(|byte| *byte == b'/')
            .any(|it| it.starts_with(b"."))
        {
            return Some("names that begin with a dot are not served");
        }
        let has_copy = [".gz", ".br", ".zst"]
            .iter()
            .any(|suffix| self.items.contains_key(&[name, suffix.as_bytes()].concat()));
        if has_copy && !self.items.contains_key(name) {
            return Some("only a compressed copy of it is there");
        }
        loop {
            if self.items.get(name) == Some(&Item::Escapes) {
                return Some("a symbolic link leads out of the site");
            }
            let slash = name.iter().rposition(|byte| *byte == b'/')?;
            name = &name[..slash];
        }
    }
}
