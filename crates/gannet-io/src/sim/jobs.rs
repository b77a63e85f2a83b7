//! Requests to the virtual disk, answered at once or later.

use std::ops::Range;
use std::sync::atomic::Ordering;

use rustix::io::Errno;

use crate::driver::{
    Completion, DirectoryEntry, Done, File, FileKind, KeepName, Listed, Meta, OpenedFile, Survey,
};
use crate::sim::disk::lock;
use crate::sim::world::{JobKind, World, sim_file};

impl World {
    pub(super) fn perform_job(&mut self, index: usize, out: &mut Vec<Completion>) {
        // The caller removes jobs from the last to the first.
        let job = self.jobs.swap_remove(index);
        let result = match job.what {
            JobKind::Open(path) => self.open(&path, 0).map(Done::Opened),
            JobKind::Read(file, offset, len) => self.read(&file, offset, len).map(Done::Read),
            JobKind::Survey(path, max, keep) => self.survey(&path, max, keep).map(Done::Surveyed),
            JobKind::List(path, max, render) => {
                let read = self.list(&path, max);
                read.map(|(meta, read)| {
                    let rendered = render.run(read);
                    Done::Listed(Listed { meta, rendered })
                })
            }
            JobKind::Copy(file, range) => self.copy(&file, range).map(Done::Copied),
        };
        out.push(Completion {
            token: job.token,
            result,
            more: false,
        });
    }

    /// The metadata at a path, unless that takes time: a coin decides.
    pub(super) fn peek(&mut self, path: &[u8]) -> Option<Meta> {
        if self.random.chance(500) {
            return None;
        }
        self.disk.meta(path).ok()
    }

    /// Opens a file; one of at most `ahead` bytes is read first, and then its metadata.
    pub(super) fn open(&mut self, path: &[u8], ahead: usize) -> Result<OpenedFile, Errno> {
        if self.random.chance(self.faults.io_error) {
            return Err(Errno::IO);
        }
        self.check_descriptors()?;
        let mut opened = self.disk.open(path)?;
        let mut start = Vec::new();
        if ahead > 0 && opened.meta.kind == FileKind::Regular {
            start = self.read(&opened.file, 0, ahead).unwrap_or_default();
        }
        opened.meta = self.query(&opened.file);
        if start.len() as u64 == opened.meta.len {
            opened.content = start;
        }
        Ok(opened)
    }

    /// The metadata of an open file.
    pub(super) fn query(&self, file: &File) -> Meta {
        let mut node = lock(&sim_file(file).node);
        let meta = node.query();
        node.seen(self.wall_ns());
        meta
    }

    /// Refuses to open a file beyond the limit.
    pub(super) fn check_descriptors(&self) -> Result<(), Errno> {
        let open_count = self.disk.open_count.load(Ordering::Relaxed);
        match self.faults.files_max {
            0 => Ok(()),
            max if open_count < max => Ok(()),
            _ => Err(Errno::MFILE),
        }
    }

    pub(super) fn read(&mut self, file: &File, offset: u64, len: usize) -> Result<Vec<u8>, Errno> {
        if self.random.chance(self.faults.io_error) {
            return Err(Errno::IO);
        }
        let mut node = lock(&sim_file(file).node);
        let bytes = node.read(offset, len as u64)?.to_vec();
        // Fewer bytes are an error unless they reach the end of the file.
        let is_whole = bytes.len() == len || offset + bytes.len() as u64 >= node.meta.len;
        node.seen(self.wall_ns());
        if is_whole { Ok(bytes) } else { Err(Errno::IO) }
    }

    fn survey(&mut self, path: &[u8], max: usize, keep: KeepName) -> Result<Survey, Errno> {
        if self.random.chance(self.faults.io_error) {
            return Err(Errno::IO);
        }
        let (meta, (entries, _)) = self.list(path, max + 1)?;
        let mut survey = Survey::new(meta);
        for entry in entries {
            let is_plain = entry.kind != FileKind::Other;
            survey.take(&entry.name, is_plain, max, keep);
        }
        Ok(survey)
    }

    fn list(&self, path: &[u8], max: usize) -> Result<(Meta, (Vec<DirectoryEntry>, bool)), Errno> {
        let path = path.strip_suffix(b"/").unwrap_or(path);
        let read = self.disk.list(path, max)?;
        Ok((self.disk.meta(path)?, read))
    }

    fn copy(&mut self, file: &File, range: Range<u64>) -> Result<File, Errno> {
        let len = (range.end - range.start) as usize;
        let bytes = self.read(file, range.start, len)?;
        if bytes.len() < len {
            return Err(Errno::NODATA);
        }
        self.check_descriptors()?;
        Ok(self.disk.snapshot(&bytes))
    }
}
