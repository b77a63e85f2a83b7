//! Makes sidecars: compressed copies beside the files of a folder (`app.js.br`), for any server
//! that sends such copies.
//!
//! Which files are compressed, and which results are worth keeping, is decided as for archives. A
//! copy gets owner, permissions and modification time of its file, and appears under its name when it is
//! complete. It is *current* if it decodes to the bytes of its file, whichever program made it; times prove
//! nothing, since a build may give all its files the same.
//!
//! A copy that is not current is replaced if it was made here. Its extended attribute says so, with
//! the digest of its bytes, so that neither another program's file of that name nor one that was
//! changed later is taken for it. Nothing tells an outdated copy from `data.csv.gz` with all the
//! data beside `data.csv` with a sample of it, so other copies are left alone.
//!
//! Copies of a site that is only read go into a folder elsewhere, under the resolved paths of their files.
//! That folder does not move with the site, so servers take a copy there only with the time of its file.
//!
//! Folders are those below the given one, whatever their owners put in their place meanwhile: a copy is
//! never written, and nothing is read, behind a link that leads elsewhere.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gannet_archive::Coding;
use gannet_content::directory::sidecars::{SIDECARS, may_have_sidecars};
use gannet_content::mime::Types;
use gannet_content::stored_coding;
use gannet_io::cause::FileError;
use gannet_io::driver::Root;
use gannet_io::folder::Folder;
use gannet_io::named_file;
use gannet_io::user;
use rustix::fs::{XattrFlags, fgetxattr, fsetxattr};

use super::compress::{compress, decoder};
use super::encoders::Encoder;
use super::limits::{COPY_CHUNK, IN_FLIGHT_MAX, IN_FLIGHT_MIN, STREAMED_FROM};
use super::output::hidden_beside;
use super::parallel::{Work, in_order};
use super::progress::{Phase, Progress};
use super::stamps::Stamp;
use super::walk::{SourceFile, walk_what_can_be};
use super::{Compressible, PackError, PackOptions, READ};

/// The action in [`PackError::Io`] for a copy.
pub const WRITE_COPY: &str = "write compressed copy";

/// What to compress, and how.
#[derive(Clone, Debug)]
pub struct SidecarOptions {
    /// The folder with the files, beside which the copies are written.
    pub folder: PathBuf,
    /// Writes them into this folder instead, where each has its file's resolved path.
    pub into: Option<PathBuf>,
    /// An encoder for each coding to make.
    pub encoders: Vec<Encoder>,
    /// Makes current copies again, and replaces those that were not made here.
    pub is_forced: bool,
}

/// The outcome. Lengths are in bytes.
#[derive(Debug, Default)]
pub struct SidecarReport {
    /// Files of the folder that are no copies.
    pub file_count: u64,
    /// Their total length.
    pub bytes: u64,
    /// Files that have a copy in at least one of the codings.
    pub compressed_count: u64,
    /// Their total length.
    pub compressed_bytes: u64,
    /// The total length of the smallest copy of each of them.
    pub best_bytes: u64,
    /// Copies that were made, or made again.
    pub made_count: u64,
    /// Copies that were current.
    pub current_count: u64,
    /// Copies that were out of date, were made here, and would save too little now.
    pub removed_count: u64,
    /// Files named as copies that hold something else and were not made here: left alone.
    pub foreign: Vec<PathBuf>,
    /// Files that changed while they were read: they have no new copies.
    pub changed: Vec<PathBuf>,
    /// Links to folders and out of the given folder: what is elsewhere has no copies. A server that
    /// refuses such a link would send a copy, which is no link.
    pub linked: BTreeSet<PathBuf>,
    /// Files and folders that could not be read, and copies that could not be written: the others
    /// were done nevertheless.
    pub failed: Vec<PackError>,
    /// Compressible files that are too long for it.
    pub too_long: Vec<PathBuf>,
}

/// The files being written, which a program that is stopped removes.
#[derive(Clone, Debug, Default)]
pub struct Unfinished(Arc<Mutex<BTreeSet<PathBuf>>>);

impl Unfinished {
    /// Removes them, and keeps others from being written: call it before the process ends.
    pub fn remove_all(&self) {
        let paths = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for path in paths.iter() {
            // One that has its name by now is whole.
            let _ = fs::remove_file(path);
        }
        std::mem::forget(paths);
    }

    fn begin(&self, path: &Path) {
        let mut paths = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        paths.insert(path.to_path_buf());
    }

    fn end(&self, path: &Path) {
        let mut paths = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        paths.remove(path);
    }
}

/// Makes the copies that are missing or out of date.
///
/// # Errors
/// The folder is none, or has no room for more copies; copies made before remain, and are complete.
pub fn make(
    options: &SidecarOptions,
    unfinished: &Unfinished,
    progress: &mut dyn Progress,
) -> Result<SidecarReport, PackError> {
    let walked = PackOptions::new(&options.folder, "");
    let mut tree = walk_what_can_be(&options.folder, &walked, |count, bytes| {
        progress.found(count, bytes);
    })?;
    let root = Root::open(&options.folder).map_err(PackError::io(READ, &options.folder))?;
    let into = options
        .into
        .as_deref()
        .map(|into| Elsewhere::new(into, &options.folder));
    let into = into.transpose()?;
    let mut report = SidecarReport {
        failed: std::mem::take(&mut tree.failed),
        linked: std::mem::take(&mut tree.outside).into_iter().collect(),
        ..SidecarReport::default()
    };
    let types = Types::default();
    let mut files = Vec::new();
    for (number, file) in tree.files.iter().enumerate() {
        if walked.routing.is_rules_file(&file.url[1..]) || is_copy(&tree.files, number) {
            continue;
        }
        report.file_count += 1;
        report.bytes += file.len;
        let is_compressible = may_have_sidecars(&file.url, file.len)
            && !stored_coding::is_possible(&file.url)
            && Compressible::default().fits(&types.content_type(&file.url), file.len);
        if !is_compressible {
            continue;
        }
        if file.len >= STREAMED_FROM {
            report.too_long.push(file.path.clone());
        } else {
            files.push(file);
        }
    }
    progress.begin(
        Phase::Compressing,
        files.iter().map(|file| file.len).sum::<u64>(),
    );
    let work = Work {
        items: &files,
        threads: 0,
        cost_max: IN_FLIGHT_MAX,
    };
    in_order(
        &work,
        |file| file.len.max(IN_FLIGHT_MIN),
        |file| copies_of(file, (&root, into.as_ref()), options, unfinished),
        |file, copies| {
            match copies {
                Ok(copies) => report.add(file, copies),
                Err(error) if is_general(&error) => return Err(error),
                Err(error) => report.failed.push(error),
            }
            progress.advance(file.len);
            Ok(())
        },
        || {},
    )?;
    progress.end();
    Ok(report)
}

/// Whether an error is one of the disk, which would only come again.
fn is_general(error: &PackError) -> bool {
    use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    let PackError::Io(FileError { error, .. }) = error else {
        return false;
    };
    matches!(
        error.kind(),
        StorageFull | QuotaExceeded | ReadOnlyFilesystem
    )
}

impl SidecarReport {
    fn add(&mut self, file: &SourceFile, copies: Copies) {
        if copies.has_changed {
            self.changed.push(file.path.clone());
        }
        self.made_count += copies.made;
        self.current_count += copies.current;
        self.removed_count += copies.removed;
        self.foreign.extend(copies.foreign);
        self.linked.extend(copies.linked);
        if let Some(len) = copies.best_len {
            self.compressed_count += 1;
            self.compressed_bytes += file.len;
            self.best_bytes += len;
        }
    }
}

/// The copies of one file.
#[derive(Debug, Default)]
struct Copies {
    made: u64,
    current: u64,
    removed: u64,
    foreign: Vec<PathBuf>,
    /// The link to a folder or a file that keeps it from having copies.
    linked: Option<PathBuf>,
    best_len: Option<u64>,
    has_changed: bool,
}

impl Copies {
    fn has(&mut self, len: u64) {
        self.best_len = Some(self.best_len.map_or(len, |best| best.min(len)));
    }
}

fn copies_of(
    file: &SourceFile,
    (root, into): (&Root, Option<&Elsewhere>),
    options: &SidecarOptions,
    unfinished: &Unfinished,
) -> Result<Copies, PackError> {
    let read = |error| PackError::io(READ, &file.path)(error);
    let mut copies = Copies::default();
    let inner = file.path.strip_prefix(&options.folder);
    let inner = inner.unwrap_or(&file.path);
    let parent = inner.parent().unwrap_or(Path::new(""));
    let Some(folder) = Folder::open(root, parent).map_err(read)? else {
        copies.linked = file.path.parent().map(Path::to_path_buf);
        return Ok(copies);
    };
    let (folder, shown) = match into {
        Some(into) => into.place_of(inner)?,
        None => (folder, file.path.clone()),
    };
    let source = match named_file::open_below(root, inner) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
            copies.linked = Some(file.path.clone());
            return Ok(copies);
        }
        opened => opened.map_err(read)?,
    };
    let Some((metadata, body)) = one_version(&source, file.len).map_err(read)? else {
        copies.has_changed = true;
        return Ok(copies);
    };
    if into.is_some() {
        await_next_tick(&metadata);
    }
    let mut wanted = Vec::new();
    let mut outdated = Vec::new();
    for encoder in &options.encoders {
        let place = CopyPlace::new(&folder, &shown, encoder.coding());
        let found = FoundCopy::look(&place, encoder.coding(), &body)
            .map_err(|error| PackError::io(READ, &place.path)(error))?;
        match found {
            FoundCopy::Current(copy, len)
                if !options.is_forced
                    && keep(&copy, &metadata, into.is_some())
                        .map_err(PackError::io(WRITE_COPY, &place.path))? =>
            {
                copies.current += 1;
                copies.has(len);
            }
            FoundCopy::Foreign if !options.is_forced => copies.foreign.push(place.path),
            FoundCopy::NoFile => copies.foreign.push(place.path),
            FoundCopy::Outdated => {
                outdated.push(place);
                wanted.push(*encoder);
            }
            FoundCopy::Nothing | FoundCopy::Current(..) | FoundCopy::Foreign => {
                wanted.push(*encoder)
            }
        }
    }
    let coded = compress(&body, &wanted, &|_| {}).map_err(read)?;
    for one in &coded {
        let place = CopyPlace::new(&folder, &shown, one.coding);
        place
            .write(&one.bytes, &metadata, unfinished)
            .map_err(PackError::io(WRITE_COPY, &place.path))?;
        outdated.retain(|it| it.name != place.name);
        copies.made += 1;
        copies.has(one.bytes.len() as u64);
    }
    for place in outdated {
        // It may be sent in place of the file, which it no longer holds.
        let removed = folder.remove(&place.name);
        removed.map_err(PackError::io("remove", &place.path))?;
        copies.removed += 1;
    }
    Ok(copies)
}

/// The content of a file; `None` if that changes meanwhile. Copies of half a write would be sent in place of
/// the whole.
fn one_version(source: &File, len: u64) -> io::Result<Option<(Metadata, Vec<u8>)>> {
    let metadata = source.metadata()?;
    let mut body = Vec::with_capacity(len as usize);
    source.take(STREAMED_FROM).read_to_end(&mut body)?;
    let is_same = Stamp::of(&metadata) == Stamp::of(&source.metadata()?);
    Ok((is_same && body.len() as u64 == metadata.len()).then_some((metadata, body)))
}

/// The folder of copies that are not beside their files.
struct Elsewhere {
    path: PathBuf,
    root: Root,
    /// The path below it of what holds the copies of one site.
    site: PathBuf,
    /// Folders below it that have the permissions of those of the originals by now.
    given: Mutex<BTreeSet<PathBuf>>,
}

impl Elsewhere {
    fn new(path: &Path, site: &Path) -> Result<Self, PackError> {
        let failed = PackError::io(WRITE_COPY, path);
        let open = || {
            let site = fs::canonicalize(site)?;
            let below = site.strip_prefix("/").unwrap_or(&site).to_path_buf();
            // What is there of the way to the copies: nothing is made in the site, not even an empty folder.
            let copies = std::path::absolute(path.join(&below))?;
            let is_there = copies.ancestors().find_map(|it| fs::canonicalize(it).ok());
            if is_there.is_some_and(|it| it.starts_with(&site)) {
                let cause = "it is in the folder that is compressed";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, cause));
            }
            fs::create_dir_all(path)?;
            Ok((Root::open(path)?, below))
        };
        let (root, site) = open().map_err(failed)?;
        let path = path.to_path_buf();
        Ok(Self {
            path,
            root,
            site,
            given: Mutex::default(),
        })
    }

    /// The folder for the copies of a file of the site, and the path that the file would have there.
    fn place_of(&self, file: &Path) -> Result<(Folder, PathBuf), PackError> {
        let inner = self.site.join(file);
        let shown = self.path.join(&inner);
        let folder = self.folder_of(inner.parent().unwrap_or(Path::new("")));
        Ok((folder.map_err(PackError::io(WRITE_COPY, &shown))?, shown))
    }

    /// Opens the folder of the copies for a folder `below` the root of the file system, which is made if it is
    /// missing, and gets its permissions, like those above. They may belong to others, who may put links in
    /// their place.
    fn folder_of(&self, below: &Path) -> io::Result<Folder> {
        let given = || self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let is_given = given().contains(below);
        if let (false, Some(above), Some(name)) = (is_given, below.parent(), below.file_name()) {
            let folder = self.folder_of(above)?.make(name)?;
            match give_folder(&folder, &fs::metadata(Path::new("/").join(below))?) {
                // Another user has made it, whose matter its permissions are.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                given => given?,
            }
            given().insert(below.to_path_buf());
        }
        Folder::open(&self.root, below)?.ok_or(io::ErrorKind::NotADirectory.into())
    }
}

/// Where a copy is.
struct CopyPlace<'f> {
    folder: &'f Folder,
    name: OsString,
    /// For messages.
    path: PathBuf,
}

/// What has the name of a copy.
enum FoundCopy {
    Nothing,
    /// It decodes to the file; with its length.
    Current(File, u64),
    /// Made here, from another version of the file.
    Outdated,
    /// Something that was not made here.
    Foreign,
    /// A folder, a link or another thing that is not replaced.
    NoFile,
}

impl FoundCopy {
    fn look(place: &CopyPlace<'_>, coding: Coding, body: &[u8]) -> io::Result<Self> {
        let mut file = match place.folder.read(&place.name) {
            Ok(Some(file)) => file,
            Ok(None) => return Ok(Self::NoFile),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::Nothing),
            Err(error) => return Err(error),
        };
        let len = file.metadata()?.len();
        if len >= STREAMED_FROM {
            return Ok(Self::Foreign);
        }
        let mut coded = Vec::new();
        (&mut file).take(STREAMED_FROM).read_to_end(&mut coded)?;
        Ok(if decodes_to(coding, &coded, body) {
            Self::Current(file, len)
        } else if is_made_here(&file, &coded) {
            Self::Outdated
        } else {
            Self::Foreign
        })
    }
}

/// Whether `coded` is `body` in a coding. Damage is a difference.
fn decodes_to(coding: Coding, coded: &[u8], mut body: &[u8]) -> bool {
    let Ok(mut decoded) = decoder(coding, coded) else {
        return false;
    };
    let mut chunk = vec![0; COPY_CHUNK.min(body.len() + 1)];
    loop {
        match decoded.read(&mut chunk) {
            Ok(0) => return body.is_empty(),
            Ok(count) => match body.strip_prefix(&chunk[..count]) {
                Some(rest) => body = rest,
                None => return false,
            },
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
}

fn is_made_here(file: &File, bytes: &[u8]) -> bool {
    let mut digest = [0; 32];
    let len = fgetxattr(file, MADE_HERE, &mut digest);
    len == Ok(digest.len()) && digest == *blake3::hash(bytes).as_bytes()
}

impl<'f> CopyPlace<'f> {
    fn new(folder: &'f Folder, file: &Path, coding: Coding) -> Self {
        let path = path_of(file, coding);
        Self {
            folder,
            name: path.file_name().unwrap_or_default().to_owned(),
            path,
        }
    }

    /// Writes a copy, replacing the one before when it is complete. Where the file system allows,
    /// nothing is left of it if the process is killed.
    fn write(&self, bytes: &[u8], of: &Metadata, unfinished: &Unfinished) -> io::Result<()> {
        let mut unnamed = self.folder.create_unnamed()?;
        if let Some(file) = &unnamed {
            fill(file, bytes, of)?;
            match self.folder.link(file, &self.name) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                // Without /proc, and on some file systems, it cannot get a name.
                Err(_) => unnamed = None,
            }
        }
        let temporary = hidden_beside(&self.path, &self.name);
        let name = temporary.file_name().unwrap_or_default();
        unfinished.begin(&temporary);
        let written = self.replace_by(name, unnamed.as_ref(), bytes, of);
        if written.is_err() {
            // The first error is reported.
            let _ = self.folder.remove(name);
        }
        unfinished.end(&temporary);
        written
    }

    /// Gives a file that is complete, or else is made, a name and then the name of the copy.
    fn replace_by(
        &self,
        name: &OsStr,
        complete: Option<&File>,
        bytes: &[u8],
        of: &Metadata,
    ) -> io::Result<()> {
        // Left by a process with this number that was killed.
        let _ = self.folder.remove(name);
        match complete {
            Some(file) => self.folder.link(file, name)?,
            None => fill(&self.folder.create(name)?, bytes, of)?,
        }
        self.folder.rename(name, &self.name)
    }
}

fn fill(mut file: &File, bytes: &[u8], of: &Metadata) -> io::Result<()> {
    file.write_all(bytes)?;
    // Without it, a later run takes the copy for another program's, and leaves it alone.
    let digest = blake3::hash(bytes);
    let _ = fsetxattr(file, MADE_HERE, digest.as_bytes(), XattrFlags::empty());
    give(file, of)?;
    file.set_modified(of.modified()?)?;
    file.sync_all()
}

/// Gives a copy owner and permissions of the original.
fn give(file: &File, of: &Metadata) -> io::Result<()> {
    give_with(file, of, of.permissions().mode() & 0o777)
}

/// Gives a folder of copies owner and permissions of that of the originals. Its owner alone writes there, also
/// if no process writes into the site.
fn give_folder(folder: &File, of: &Metadata) -> io::Result<()> {
    let mode = of.permissions().mode() & 0o755 | 0o700;
    give_with(folder, of, mode)
}

fn give_with(file: &File, of: &Metadata, mut mode: u32) -> io::Result<()> {
    let found = file.metadata()?;
    if (found.uid(), found.gid(), found.mode() & 0o777) == (of.uid(), of.gid(), mode) {
        return Ok(());
    }
    // The permissions are meant for the owner and the group of the file.
    let is_given = fchown(file, Some(of.uid()), Some(of.gid())).is_ok()
        || fchown(file, None, Some(of.gid())).is_ok();
    if !is_given {
        mode = of_another_group(mode);
    }
    file.set_permissions(Permissions::from_mode(mode))
}

/// Another group than the file's gets what everybody gets.
fn of_another_group(mode: u32) -> u32 {
    mode & !0o070 | (mode & 0o007) << 3
}

/// Two of the longest ticks of the clock that file systems take their times from, of a kernel with 100 a second.
const TICKS: Duration = Duration::from_millis(20);

/// Waits until what is written from now on has a later time of change than this file: servers take no copy
/// elsewhere whose time is the same, as the file may have been changed after the copy was made.
fn await_next_tick(of: &Metadata) {
    let (seconds, rest) = (of.ctime(), of.ctime_nsec());
    let since_epoch = Duration::new(
        u64::try_from(seconds).unwrap_or(0),
        u32::try_from(rest).unwrap_or(0),
    );
    let age = SystemTime::now().duration_since(UNIX_EPOCH + since_epoch);
    if let Ok(age) = age
        && age < TICKS
    {
        thread::sleep(TICKS - age);
    }
}

/// Gives a current copy the permissions that its file has by now, so that no copy shows who may no longer read
/// it what it says; and its time, since servers ignore an older copy, and elsewhere any other. False if it has
/// to be made again: what has another owner may be any file of theirs, linked there by who may write to the folder.
fn keep(copy: &File, of: &Metadata, is_elsewhere: bool) -> io::Result<bool> {
    let time = of.modified()?;
    let status = |it: &Metadata| (it.ctime(), it.ctime_nsec());
    let is_dated = |found: &Metadata| {
        Ok::<_, io::Error>(match is_elsewhere {
            // Servers take none there whose status changed before its file's, or in the same tick of the clock.
            true => found.modified()? == time && status(found) > status(of),
            false => found.modified()? >= time,
        })
    };
    let found = copy.metadata()?;
    if user::is_root() && found.uid() != of.uid() {
        return Ok(is_dated(&found)? && is_as_made(&found, of) && !user::may_give_files());
    }
    match give(copy, of) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(false),
        given => given?,
    }
    if !is_dated(&copy.metadata()?)? {
        copy.set_modified(time)?;
    }
    Ok(true)
}

/// Whether a copy is as root makes it that may not give files to others, as in a container without `CAP_CHOWN`.
fn is_as_made(found: &Metadata, of: &Metadata) -> bool {
    let mode = of.mode() & 0o777;
    let mode = match found.gid() == of.gid() {
        true => mode,
        false => of_another_group(mode),
    };
    found.uid() == user::effective() && found.mode() & 0o777 == mode
}

/// The extended attribute of copies made here: the BLAKE3 digest of their bytes.
const MADE_HERE: &str = "user.gannet.sidecar";

fn path_of(file: &Path, coding: Coding) -> PathBuf {
    let mut path = OsString::from(file);
    let sidecar = SIDECARS.iter().find(|it| it.coding == coding);
    let suffix = sidecar.map_or(&b""[..], |it| it.suffix);
    path.push(String::from_utf8_lossy(suffix).as_ref());
    path.into()
}

/// Whether a file has the name of another one's copy.
fn is_copy(files: &[SourceFile], number: usize) -> bool {
    let url = &files[number].url;
    let original = SIDECARS.iter().find_map(|it| url.strip_suffix(it.suffix));
    original.is_some_and(|original| {
        let by_url = |it: &SourceFile| it.url.as_slice().cmp(original);
        files.binary_search_by(by_url).is_ok()
    })
}
