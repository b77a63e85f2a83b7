//! Opens an archive: reads its metadata, copies it into memory where it fits, and verifies it.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use gannet_archive::signature::{self, PublicKey, SignatureError};
use gannet_archive::{Archive, Namespace, SUPERBLOCK_LEN, SectionKind, Superblock};
use gannet_content::rules::memory::{Replaced, SitesMemory};
use gannet_content::rules::table::TableError;
use gannet_io::driver::{File, Meta};
use gannet_io::fixed::Fixed;
use gannet_io::memory::{self, Memory};
use gannet_io::named_file;
use gannet_store::{Pointer, ReleaseId};

use crate::bounds::limits::ARCHIVE_COPY_MAX;
use crate::config::ContentOptions;
use crate::release::archive::has_forms;
use crate::release::archive_room::{ArchiveRoom, MemoryReservation, rules_room};
use crate::release::error_pages::ErrorPages;
use crate::release::files::OpenArchive;
use crate::release::opened::{ArchiveHost, OpenedArchive};
use crate::release::rules::SiteRules;
use crate::start::open::{OpenError, Opening};
use crate::start::partial::is_partial;

/// What has to hold of an archive before it is served, besides a required signature.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ArchiveProof<'a> {
    /// That its metadata is valid: opening it, at the start or for the first request for a host, would
    /// otherwise take as long as reading it. What is copied into memory anyway, and short, is verified as well.
    Valid,
    /// The same, and that it is the release that this pointer names. The rest is verified later.
    Named(&'a Pointer),
    /// That everything in it matches its digest.
    Digests,
    /// That the whole file is what this pointer says. If the pointer is signed, so is the file.
    Pointer(&'a Pointer),
}

impl Opening<'_> {
    /// Opens and verifies an archive.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub(crate) fn open_archive(
        &self,
        path: &Path,
        proof: ArchiveProof<'_>,
    ) -> Result<OpenedArchive, OpenError> {
        if let ArchiveProof::Named(pointer) | ArchiveProof::Pointer(pointer) = proof
            && is_partial(path)
        {
            return self.open_partial(path, pointer);
        }
        let options = self.options;
        let io_error = |e| OpenError::Io("archive", path.to_owned(), e);
        let file = named_file::open(path).map_err(io_error)?;
        let meta = Meta::of(&file).map_err(io_error)?;
        let len = meta.len;
        if let ArchiveProof::Named(pointer) | ArchiveProof::Pointer(pointer) = proof
            && len != pointer.size
        {
            // Before anything is read or copied: the length may be any.
            return Err(OpenError::Other(path.to_owned()));
        }
        let (first, archive) = read_metadata(&file, path, len)?;
        let archive = Arc::new(archive);
        let mut hosts = self.hosts_of(&archive, path)?;
        // Without what follows the archive.
        let copied_len = archive.superblock().archive_len();
        let copy = copy_of(&file, path, copied_len, options, self.room)?;
        if Meta::of(&file).map_err(io_error)? != meta {
            let error = io::Error::other("it was changed while it was read");
            return Err(io_error(error));
        }
        let origin = OpenArchive {
            path: path.to_owned(),
            file: file.try_clone().map_err(io_error)?,
            start: first,
            is_reported: AtomicBool::new(false),
        };
        let is_copied = copy.is_some();
        let (file, room) = match copy {
            Some((copy, room)) => (fs::File::from(copy), room),
            None => (file, None),
        };
        // From here on, a copied archive is read from the sealed copy from which it will be sent.
        let opened = (path, origin.start.as_slice(), is_copied);
        verify(&archive, &file, opened, proof, options)?;
        add_error_pages(&mut hosts, &archive, |bytes, at| {
            file.read_exact_at(bytes, at).is_ok()
        });
        Ok(OpenedArchive {
            room: room.map(Arc::new),
            origin: Some(Arc::new(origin)),
            ..self.opened_in(archive, hosts, (&file, meta, is_copied), path)?
        })
    }

    /// The hosts of an archive, or only the one that is opened.
    pub(super) fn hosts_of(
        &self,
        archive: &Arc<Archive<Vec<u8>>>,
        path: &Path,
    ) -> Result<Vec<ArchiveHost>, OpenError> {
        let bad_rules = |e| OpenError::ArchiveRules(path.to_owned(), e);
        let memory = (&self.room.rules, self.replaced);
        let mut hosts = hosts_with_rules(archive, memory).map_err(bad_rules)?;
        if let Some(host) = self.host {
            hosts = vec![only_for(host, hosts, path)?];
        }
        Ok(hosts)
    }

    /// An archive that each worker reads by a descriptor of its own.
    pub(super) fn opened_in(
        &self,
        archive: Arc<Archive<Vec<u8>>>,
        hosts: Vec<ArchiveHost>,
        (file, meta, is_copied): (&fs::File, Meta, bool),
        path: &Path,
    ) -> Result<OpenedArchive, OpenError> {
        let own = || {
            let file = reopen(file)?;
            let memory = match is_copied {
                false => None,
                true => Some(Arc::new(Memory::map_sealed(&file)?)),
            };
            Ok((File::from(file), memory))
        };
        let files = (0..self.workers).map(|_| own()).collect::<Result<_, _>>();
        Ok(OpenedArchive {
            files: files.map_err(|e| OpenError::Io("archive", path.to_owned(), e))?,
            len: archive.superblock().archive_len(),
            is_copied,
            room: None,
            meta,
            origin: None,
            partial: None,
            hosts,
            spa: self.options.spa || archive.options().spa,
            has_forms: has_forms(&archive),
            archive,
            kept_answers: Arc::default(),
        })
    }
}

/// Reads the superblock and the metadata of an archive of `len` bytes.
fn read_metadata(
    file: &fs::File,
    path: &Path,
    len: u64,
) -> Result<(Vec<u8>, Archive<Vec<u8>>), OpenError> {
    let io_error = |e| OpenError::Io("archive", path.to_owned(), e);
    let bad = |e| OpenError::Archive(path.to_owned(), e);
    let mut first = vec![0; SUPERBLOCK_LEN.min(usize::try_from(len).unwrap_or(usize::MAX))];
    file.read_exact_at(&mut first, 0).map_err(io_error)?;
    let superblock = Superblock::parse(&first, len).map_err(bad)?;
    Ok((first, metadata(file, superblock, path)?))
}

/// Reads the metadata of an archive.
pub(super) fn metadata(
    file: &fs::File,
    superblock: Superblock,
    path: &Path,
) -> Result<Archive<Vec<u8>>, OpenError> {
    let io_error = |e| OpenError::Io("archive", path.to_owned(), e);
    let range = superblock.metadata_range();
    let size = usize::try_from(range.end - range.start).map_err(|_| {
        let cause = "its index is too large";
        io_error(io::Error::new(io::ErrorKind::OutOfMemory, cause))
    })?;
    let metadata = memory::read_large(file, range.start, size).map_err(io_error)?;
    let bad = |e| OpenError::Archive(path.to_owned(), e);
    Archive::new(superblock, metadata).map_err(bad)
}

/// Verifies an opened archive in `file`, which is a copy or not; `start` are the first bytes that it was
/// opened with.
fn verify(
    archive: &Archive<Vec<u8>>,
    file: &fs::File,
    (path, start, is_copied): (&Path, &[u8], bool),
    proof: ArchiveProof<'_>,
    options: &ContentOptions,
) -> Result<(), OpenError> {
    let io_error = |e| OpenError::Io("archive", path.to_owned(), e);
    match (proof, &options.require_signature) {
        (ArchiveProof::Pointer(pointer), _) => {
            let whole = WholeFile::read(file).map_err(io_error)?;
            let is_right = whole.len == pointer.size
                && whole.digest == pointer.digest
                && whole.start == start
                && signature::check_build_id(archive).is_ok();
            if !is_right {
                return Err(OpenError::Other(path.to_owned()));
            }
        }
        (ArchiveProof::Named(pointer), _) => {
            let id = ReleaseId::of_build_id(archive.superblock().build_id());
            if id != pointer.release {
                return Err(OpenError::Other(path.to_owned()));
            }
        }
        (_, Some(key)) => {
            let unsigned = |error| OpenError::Signature(path.to_owned(), error);
            PublicKey::parse(key)
                .ok_or(SignatureError::Key)
                .and_then(|key| signature::check(archive, &key))
                .map_err(unsigned)?;
            signature::check_bodies(archive, |chunk, at| file.read_exact_at(chunk, at))
                .map_err(io_error)?
                .map_err(unsigned)?;
        }
        (ArchiveProof::Digests, None) => {
            let damaged = |error| OpenError::Damaged(path.to_owned(), error);
            signature::check_build_id(archive).map_err(damaged)?;
            signature::check_bodies(archive, |chunk, at| file.read_exact_at(chunk, at))
                .map_err(io_error)?
                .map_err(damaged)?;
        }
        // Some tens of milliseconds at most, with the bytes still in the processor's caches.
        (ArchiveProof::Valid, None)
            if is_copied && archive.superblock().archive_len() <= ARCHIVE_COPY_MAX =>
        {
            let damaged = |error| OpenError::Damaged(path.to_owned(), error);
            signature::check_build_id(archive).map_err(damaged)?;
            signature::check_stored_bodies(archive, |chunk, at| file.read_exact_at(chunk, at))
                .map_err(io_error)?
                .map_err(damaged)?;
        }
        (ArchiveProof::Valid, None) => {}
    }
    Ok(())
}

/// An unalterable copy of an archive, if it fits the budget or is required: what is verified is to stay as it is.
fn copy_of(
    file: &fs::File,
    path: &Path,
    len: u64,
    options: &ContentOptions,
    room: &Arc<ArchiveRoom>,
) -> Result<Option<(OwnedFd, Option<MemoryReservation>)>, OpenError> {
    let copy = || memory::sealed_copy(file, len);
    if options.copies_archives() && Fixed::of(file) != Some(Fixed::Verity) {
        let refuse = |error| OpenError::Copy(path.to_owned(), error);
        let copy = copy().map_err(refuse)?;
        return Ok(Some((copy, None)));
    }
    let Some(taken) = room.take(len) else {
        return Ok(None);
    };
    // Without a copy the file is read: slower, but no reason not to serve.
    Ok(copy().ok().map(|copy| (copy, Some(taken))))
}

/// The hosts of an archive with their names; the default host comes first, if it has content.
pub(crate) fn hosts(archive: &Archive<Vec<u8>>) -> Vec<(u16, Vec<String>)> {
    let name = |name| vec![String::from_utf8_lossy(name).into_owned()];
    let mut hosts: Vec<_> = (1..).zip(archive.hosts().map(name)).collect();
    if hosts.is_empty() || archive.has_namespace(0, Namespace::Content) {
        hosts.insert(0, (0, Vec::new()));
    }
    hosts
}

/// The same with the rules of each; rules common to all hosts are shared.
fn hosts_with_rules(
    archive: &Archive<Vec<u8>>,
    memory: (&Arc<SitesMemory>, Replaced),
) -> Result<Vec<ArchiveHost>, TableError> {
    let hosts = hosts(archive);
    let ruled = match archive.section(SectionKind::HostRules) {
        Some(_) => hosts.iter().map(|(host, _)| *host).collect(),
        None => vec![0],
    };
    let lens = ruled.iter().map(|host| archive.rules(*host));
    let len = lens.map(|rules| rules.redirects.len() + rules.fields.len());
    let mut room = rules_room(len.sum(), memory).map_err(|_| TableError::MemoryOfSites)?;
    let mut read = |host: &u16| SiteRules::of_archive(archive, *host, &mut room);
    let rules = ruled.iter().map(&mut read).collect::<Result<Vec<_>, _>>()?;
    let room = Arc::new(room);
    let rules = rules
        .into_iter()
        .map(|it| Some(Arc::new(it?.holding(&room))));
    let rules: Vec<_> = rules.collect();
    // Those of the only entry are for all hosts.
    let rules = rules.iter().cycle().cloned();
    let with_rules = hosts.into_iter().zip(rules);
    Ok(with_rules
        .map(|((host, names), rules)| (host, names, rules))
        .collect())
}

/// The site that answers for the host of an archive's entry, for which the archive's own names no longer
/// count: the one for that host, else the one for all hosts.
fn only_for(host: &str, hosts: Vec<ArchiveHost>, path: &Path) -> Result<ArchiveHost, OpenError> {
    let is_for = |(_, names, _): &ArchiveHost| names.iter().any(|name| name == host);
    let is_for_all = |(_, names, _): &ArchiveHost| names.is_empty();
    let found = hosts.iter().position(is_for);
    match found.or_else(|| hosts.iter().position(is_for_all)) {
        Some(at) => {
            let (number, _, rules) = hosts[at].clone();
            Ok((number, Vec::new(), rules))
        }
        None => {
            let others = hosts.into_iter().flat_map(|(_, names, _)| names);
            let (path, host) = (path.to_owned(), host.to_owned());
            Err(OpenError::OtherHosts(path, host, others.collect()))
        }
    }
}

/// Reads the error pages of each host; those that cannot be read are left out.
pub(super) fn add_error_pages(
    hosts: &mut [ArchiveHost],
    archive: &Archive<Vec<u8>>,
    read: impl Fn(&mut [u8], u64) -> bool,
) {
    for (host, _, rules) in hosts {
        let pages = ErrorPages::of_archive(archive, *host, |offset, len| {
            let mut bytes = vec![0; len];
            read(&mut bytes, offset).then_some(bytes)
        });
        if pages.is_some() {
            let own = rules.as_deref().cloned().unwrap_or_default();
            *rules = own.with_pages(pages).map(Arc::new);
        }
    }
}

impl OpenedArchive {
    /// Whether what is served is what this pointer says. Reads all of it.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn is_proven_by(&self, pointer: &Pointer) -> io::Result<bool> {
        let copy = self.files.first().and_then(|(_, memory)| memory.as_ref());
        let digest = match (copy, &self.origin) {
            (Some(memory), _) => *blake3::hash(memory.bytes()).as_bytes(),
            (None, Some(origin)) => WholeFile::read(&origin.file)?.digest,
            (None, None) => return Ok(true),
        };
        Ok(self.len == pointer.size && digest == pointer.digest)
    }
}

/// What reading a whole file shows.
struct WholeFile {
    len: u64,
    /// BLAKE3.
    digest: [u8; 32],
    /// Its first [`SUPERBLOCK_LEN`] bytes.
    start: Vec<u8>,
}

impl WholeFile {
    fn read(file: &fs::File) -> io::Result<Self> {
        let mut hasher = blake3::Hasher::new();
        let mut chunk = vec![0; CHUNK];
        let mut start = Vec::new();
        let mut len = 0;
        loop {
            match file.read_at(&mut chunk, len) {
                Ok(0) => break,
                Ok(count) => {
                    let rest = SUPERBLOCK_LEN.saturating_sub(start.len());
                    start.extend_from_slice(&chunk[..count.min(rest)]);
                    hasher.update(&chunk[..count]);
                    len += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let digest = *hasher.finalize().as_bytes();
        Ok(Self { len, digest, start })
    }
}

/// Bytes read at one time.
const CHUNK: usize = 1 << 20;

/// The same file, not another file of the same name, with a new open file description.
fn reopen(file: &fs::File) -> io::Result<fs::File> {
    use std::os::fd::AsRawFd;
    fs::File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).or_else(|_| file.try_clone())
}
