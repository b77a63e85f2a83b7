//! Writes to a store in an object store: never over what another publisher has written meanwhile.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use futures_util::{StreamExt, TryStreamExt, stream};
use gannet_store::{Pointer, ReleaseId, StoreError};
use object_store::multipart::MultipartStore;
use object_store::path::Path as ObjectPath;
use object_store::{
    Error as Objects, ObjectMeta, ObjectStoreExt, PutMode, PutOptions, PutPayload, UpdateVersion,
};
use tokio::time::{sleep, timeout};

use crate::error::{Cause, FleetError, is_passing};
use crate::journal::Journal;
use crate::limits::{
    ATTEMPTS_MAX, COMPLETE_TIMEOUT, PART_LEN, PARTS_AT_ONCE, PARTS_MAX, WRITE_LEAST,
};
use crate::remote::{CURRENT, LOG, Remote, Text, release_name};

/// An object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Listed {
    pub(crate) size: u64,
    /// When it was written: whole seconds, as not every answer has more, and in place of their parts
    /// what tells two states of one second apart, a digest of its entity tag.
    pub(crate) modified: SystemTime,
}

impl From<&ObjectMeta> for Listed {
    fn from(object: &ObjectMeta) -> Self {
        let seconds = object.last_modified.timestamp().try_into().unwrap_or(0);
        let tag = object.e_tag.as_deref().map_or(0, |tag| {
            // Microsoft's lists have it without quotes.
            let digest = blake3::hash(tag.trim_matches('"').as_bytes());
            let [a, b, c, d, ..] = *digest.as_bytes();
            u32::from_be_bytes([a, b, c, d]) % 1_000_000_000
        });
        Self {
            size: object.size,
            modified: SystemTime::UNIX_EPOCH + Duration::new(seconds, tag),
        }
    }
}

/// A whole release that is written.
pub(crate) struct Upload<'u> {
    pub(crate) id: ReleaseId,
    pub(crate) file: &'u Path,
    pub(crate) size: u64,
    pub(crate) digest: [u8; 32],
    /// Where it is noted how far it has come, so that the next one continues from there.
    pub(crate) journal: &'u Path,
}

impl Remote {
    /// Refuses a store that can only be read: a folder, or one behind HTTPS.
    ///
    /// # Errors
    /// It is such a one.
    pub fn must_be_writable(&self) -> Result<(), FleetError> {
        self.writable().map(drop)
    }

    fn writable(&self) -> Result<&dyn MultipartStore, FleetError> {
        let refuse = || FleetError::ReadOnly(self.url().to_owned());
        self.parts.as_deref().ok_or_else(refuse)
    }

    fn refuse_write(&self, object: &str, cause: Cause) -> FleetError {
        FleetError::Remote {
            doing: "write",
            object: self.name(object),
            cause,
        }
    }

    /// A release has more bytes than may be fetched, perhaps for want of room here.
    pub(crate) fn refuse_to_fetch(
        &self,
        pointer: &Pointer,
        most: u64,
        is_disk: bool,
    ) -> FleetError {
        FleetError::Remote {
            doing: "fetch",
            object: self.name(&release_name(pointer.release)),
            cause: Cause::Large {
                bytes: pointer.size,
                most,
                is_disk,
            },
        }
    }

    pub(crate) fn refuse_to_take_over(&self, id: ReleaseId) -> FleetError {
        FleetError::Remote {
            doing: "take over",
            object: self.name(&release_name(id)),
            cause: Cause::Damaged,
        }
    }

    fn overtaken(&self, what: String) -> FleetError {
        FleetError::Store(StoreError::Overtaken {
            store: PathBuf::from(self.url()),
            what,
        })
    }

    /// The pointer in force; `None` if there is none.
    pub(crate) async fn pointer_to_replace(&self) -> Result<Option<Text>, FleetError> {
        let found = self.found(CURRENT).await;
        found.map_err(|cause| self.refuse(CURRENT, cause))
    }

    /// Passes on the names of the objects in one of the store's folders, of which there may be so many. A
    /// list that breaks off is begun anew, so that a name may be passed on again.
    pub(crate) async fn list(
        &self,
        folder: &str,
        most: usize,
        pass: &mut dyn FnMut(&str, Listed),
    ) -> Result<(), FleetError> {
        let patience = self.patience;
        let attempt = async || self.list_once(folder, most, pass).await;
        let listed = patience.attempts(attempt).await;
        listed.map_err(|cause| self.refuse(folder, cause))
    }

    async fn list_once(
        &self,
        folder: &str,
        most: usize,
        pass: &mut dyn FnMut(&str, Listed),
    ) -> Result<(), Cause> {
        let path = self.at(folder);
        let mut count = 0;
        let mut objects = self.objects.list(Some(&path));
        loop {
            let next = timeout(self.patience.answer, objects.next()).await;
            let next = next.map_err(|_| Cause::NoAnswer)?;
            let Some(object) = next else {
                return Ok(());
            };
            let object = object.map_err(Cause::Objects)?;
            if count == most {
                return Err(Cause::Crowded);
            }
            count += 1;
            let Some(mut below) = object.location.prefix_match(&path) else {
                continue;
            };
            if let (Some(name), None) = (below.next(), below.next()) {
                pass(name.as_ref(), Listed::from(&object));
            }
        }
    }

    /// A release as the store has it now.
    pub(crate) async fn look(&self, id: ReleaseId) -> Result<Listed, FleetError> {
        let object = release_name(id);
        let path = self.at(&object);
        let patience = self.patience;
        let attempt = async || {
            let found = self.within(0, self.objects.head(&path)).await;
            found.map_err(Cause::Objects)
        };
        let found = patience.attempts(attempt).await;
        let found = found.map_err(|cause| self.refuse(&object, cause))?;
        Ok(Listed::from(&found))
    }

    /// Writes an object under a condition.
    async fn put(&self, object: &str, content: PutPayload, mode: PutMode) -> Result<(), Cause> {
        let allowed = self.patience.answer + time_for(content.content_length() as u64);
        let options = PutOptions::from(mode);
        let path = self.at(object);
        let put = timeout(allowed, self.objects.put_opts(&path, content, options)).await;
        match put {
            Ok(written) => written.map(drop).map_err(Cause::Objects),
            Err(_) => Err(Cause::NoAnswer),
        }
    }

    /// Writes an object under a condition, in several attempts if need be; returns whether it was met.
    async fn attempts_at(
        &self,
        object: &str,
        content: &PutPayload,
        mode: &PutMode,
    ) -> Result<bool, Cause> {
        let patience = self.patience;
        let attempt = async || self.put(object, content.clone(), mode.clone()).await;
        match patience.attempts(attempt).await {
            Ok(()) => Ok(true),
            Err(Cause::Objects(Objects::AlreadyExists { .. } | Objects::Precondition { .. })) => {
                Ok(false)
            }
            Err(cause) => Err(cause),
        }
    }

    /// Adds an entry to the log, whose name is taken from then on. That the store keeps to
    /// conditions is tried out on it, as the pointer will need them.
    ///
    /// # Errors
    /// Another publisher has taken the serial, or the store cannot be written.
    pub(crate) async fn create_entry(&self, serial: u64, text: &str) -> Result<(), FleetError> {
        let object = format!("{LOG}/{serial}");
        let taken = |is_there: bool| {
            self.overtaken(match is_there {
                true => format!("another publisher has taken serial {serial}"),
                false => {
                    format!("serial {serial} was taken in the meantime, and its entry removed")
                }
            })
        };
        self.put_text(&object, text, || PutMode::Create, &taken)
            .await?;
        // An entity tag, and a generation at Google's, that the entry does not have.
        let never = PutMode::Update(UpdateVersion {
            e_tag: Some(format!("\"{:032}\"", 0)),
            version: Some("1".into()),
        });
        for mode in [PutMode::Create, never] {
            let tried = self.attempts_at(&object, &payload(text), &mode).await;
            if tried.map_err(|cause| self.refuse_write(&object, cause))? {
                return Err(self.refuse_write(&object, Cause::Unconditional));
            }
        }
        Ok(())
    }

    /// Replaces the pointer in force, if it still is the one that was read.
    ///
    /// # Errors
    /// It no longer is, or the store cannot be written.
    pub(crate) async fn replace_pointer(
        &self,
        known: Option<&UpdateVersion>,
        text: &str,
    ) -> Result<(), FleetError> {
        let mode = || match known {
            Some(version) => PutMode::Update(version.clone()),
            None => PutMode::Create,
        };
        let changed = |is_there: bool| {
            let what = if is_there { "replaced" } else { "removed" };
            self.overtaken(format!("its pointer was {what} in the meantime"))
        };
        self.put_text(CURRENT, text, mode, &changed).await
    }

    /// Writes a text. One that is there already may be ours, written by an attempt of which we have
    /// not heard; if it is not, `taken` makes the error; its argument is whether there is one.
    async fn put_text(
        &self,
        object: &str,
        text: &str,
        mode: impl Fn() -> PutMode,
        taken: &dyn Fn(bool) -> FleetError,
    ) -> Result<(), FleetError> {
        let unknown = |cause| self.refuse_write(object, Cause::Unknown(Box::new(cause)));
        // Nothing has replaced what our condition names.
        let is_known =
            |it: &Text| matches!(mode(), PutMode::Update(known) if known == it.version());
        let mut attempts = 1;
        // One of them may take effect after the last one has ended.
        let mut is_open = false;
        loop {
            let cause = match self.put(object, payload(text), mode()).await {
                Ok(()) => return Ok(()),
                Err(cause) => cause,
            };
            is_open |= cause.leaves_open();
            let is_passing = cause.is_passing();
            // A write that meets another one is refused in the same words, but may be taken a moment later.
            let is_unmet = !is_passing && cause.is_unmet();
            let is_last = !is_passing || attempts == ATTEMPTS_MAX;
            if is_last && !is_unmet && !is_open {
                return Err(self.refuse_write(object, cause));
            }
            match self.found(object).await {
                Ok(Some(found)) if found.text == text.as_bytes() => return Ok(()),
                // Another one is there: no condition of ours is met any more.
                Ok(Some(found)) if is_unmet && !is_known(&found) => return Err(taken(true)),
                Ok(Some(_)) if is_unmet && !is_open => {
                    return Err(self.refuse_write(object, cause));
                }
                Ok(None) if is_unmet && !is_open => return Err(taken(false)),
                Ok(_) if is_last => return Err(unknown(cause)),
                Err(cause) if is_last => return Err(unknown(cause)),
                _ => {}
            }
            sleep(self.patience.pause * attempts).await;
            attempts += 1;
        }
    }

    /// A text that may be there, in several attempts if need be.
    async fn found(&self, object: &str) -> Result<Option<Text>, Cause> {
        match self.text_in_attempts(object).await {
            Ok(text) => Ok(Some(text)),
            Err(cause) if cause.is_none() => Ok(None),
            Err(cause) => Err(cause),
        }
    }

    /// Removes a release that nothing keeps, if the pointer that says so still is in force.
    pub(crate) async fn remove(&self, id: ReleaseId, in_force: &str) -> Result<(), FleetError> {
        let object = release_name(id);
        let refuse = |cause| FleetError::Remote {
            doing: "remove",
            object: self.name(&object),
            cause,
        };
        let found = self.found(CURRENT).await;
        match found.map_err(|cause| self.refuse(CURRENT, cause))? {
            Some(found) if found.text == in_force.as_bytes() => {}
            Some(_) => return Err(refuse(Cause::Replaced)),
            None => return Err(refuse(Cause::NoPointer)),
        }
        let path = self.at(&object);
        let removed = timeout(self.patience.answer, self.objects.delete(&path)).await;
        match removed.unwrap_or_else(|_| Err(no_answer())) {
            Ok(()) | Err(Objects::NotFound { .. }) => Ok(()),
            Err(error) => Err(refuse(Cause::Objects(error))),
        }
    }

    /// Whether releases that were [removed](Self::remove) as long as the pointer with this text was in
    /// force are still not needed. No condition ties a removal to the pointer: another one may have come
    /// into force between the look and the removal. Its publisher looks for its release after that, and
    /// writes it again if it was removed by then; if it was removed later, it is found here.
    ///
    /// # Errors
    /// One of them is needed, or the pointer cannot be read.
    pub(crate) async fn see_whether_needed(
        &self,
        removed: &[ReleaseId],
        in_force: &str,
    ) -> Result<(), FleetError> {
        if removed.is_empty() {
            return Ok(());
        }
        let found = self.text_in_attempts(CURRENT).await;
        let found = found.map_err(|cause| self.refuse(CURRENT, cause))?;
        if found.text == in_force.as_bytes() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&found.text);
        let (pointer, _) = gannet_store::split_signature(&text);
        let Ok(pointer) = Pointer::parse(pointer.as_bytes()) else {
            return Ok(());
        };
        if !removed.contains(&pointer.release) || self.has(pointer.release).await? {
            return Ok(());
        }
        Err(FleetError::Remote {
            doing: "keep",
            object: self.name(&release_name(pointer.release)),
            cause: Cause::Needed,
        })
    }

    /// Creates a release. A large one is written in parts, and is there when the last one is. Returns
    /// `false` if something is there, which may be ours, written by an attempt of which we have not
    /// heard.
    pub(crate) async fn upload(&self, upload: &Upload<'_>) -> Result<bool, FleetError> {
        let file = File::open(upload.file).map_err(FleetError::io("read", upload.file))?;
        match upload.size <= PART_LEN {
            true => self.upload_whole(upload, &file).await,
            false => self.upload_in_parts(upload, &file).await,
        }
    }

    async fn upload_whole(&self, upload: &Upload<'_>, file: &File) -> Result<bool, FleetError> {
        let object = release_name(upload.id);
        let content = read(file, 0, upload.size).map_err(FleetError::io("read", upload.file))?;
        let content = PutPayload::from(content);
        let created = self.attempts_at(&object, &content, &PutMode::Create).await;
        created.map_err(|cause| self.refuse_write(&object, cause))
    }

    async fn upload_in_parts(&self, upload: &Upload<'_>, file: &File) -> Result<bool, FleetError> {
        let parts = self.writable()?;
        let object = release_name(upload.id);
        let path = self.at(&object);
        let mut begun = Journal::read(upload.journal);
        if let Some(journal) = begun.take_if(|it| !it.is_of(upload)) {
            let path = self.at(&release_name(journal.id));
            // It may be gone there; if not, the storage removes what is never completed.
            let _ = self
                .within(0, parts.abort_multipart(&path, &journal.multipart))
                .await;
        }
        let earlier = begun.as_ref().map(|it| it.multipart.clone());
        let journal = match begun {
            Some(journal) => journal,
            None => {
                let begin = async || {
                    let begun = self.within(0, parts.create_multipart(&path)).await;
                    begun.map_err(Cause::Objects)
                };
                let patience = self.patience;
                let multipart = patience.attempts(begin).await;
                let refuse = |cause| self.refuse_write(&object, cause);
                Journal::begin(upload, multipart.map_err(refuse)?)?
            }
        };
        let written = self
            .write_parts(upload, file, (parts, &path), journal)
            .await;
        let completed = match written {
            Ok(journal) => self.complete(upload.id, (parts, &path), journal).await,
            Err(error) => Err(error),
        };
        match (completed, earlier) {
            // The storage has thrown away what an earlier attempt had written, or has other parts.
            (Err(error), Some(earlier)) if error.is_of_upload() => {
                Journal::remove(upload.journal);
                let _ = self.within(0, parts.abort_multipart(&path, &earlier)).await;
                Box::pin(self.upload_in_parts(upload, file)).await
            }
            (Ok(is_ours), _) => {
                Journal::remove(upload.journal);
                Ok(is_ours)
            }
            (Err(error), _) => Err(error),
        }
    }

    /// Makes an object of the parts, or throws them away if there is one. An answer that is lost says
    /// nothing about whether there is.
    async fn complete(
        &self,
        id: ReleaseId,
        (parts, path): (&dyn MultipartStore, &ObjectPath),
        journal: Journal,
    ) -> Result<bool, FleetError> {
        let multipart = journal.multipart;
        let ids: Vec<_> = journal.parts.into_values().collect();
        let mut attempts = 1;
        // Not every storage takes a condition here.
        while !self.has(id).await? {
            let complete = parts.complete_multipart(path, &multipart, ids.clone());
            let completed = timeout(COMPLETE_TIMEOUT, complete).await;
            match completed.unwrap_or_else(|_| Err(no_answer())) {
                Ok(_) => return Ok(true),
                Err(error) if is_passing(&error) && attempts < ATTEMPTS_MAX => {
                    sleep(self.patience.pause * attempts).await;
                    attempts += 1;
                }
                Err(Objects::AlreadyExists { .. } | Objects::Precondition { .. }) => break,
                Err(error) => {
                    return Err(self.refuse_write(&release_name(id), Cause::Objects(error)));
                }
            }
        }
        let _ = self
            .within(0, parts.abort_multipart(path, &multipart))
            .await;
        Ok(false)
    }

    /// Whether something has the name of a release.
    pub(crate) async fn has(&self, id: ReleaseId) -> Result<bool, FleetError> {
        match self.look(id).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_absence() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Writes the parts that the journal lacks.
    async fn write_parts(
        &self,
        upload: &Upload<'_>,
        file: &File,
        (parts, path): (&dyn MultipartStore, &ObjectPath),
        mut journal: Journal,
    ) -> Result<Journal, FleetError> {
        let object = release_name(upload.id);
        let part_len = part_len(upload.size);
        let count = usize::try_from(upload.size.div_ceil(part_len)).unwrap_or(usize::MAX);
        let lacking: Vec<_> = (0..count)
            .filter(|it| !journal.parts.contains_key(it))
            .collect();
        let multipart = journal.multipart.clone();
        let write = async |index: usize| {
            let at = index as u64 * part_len;
            let len = part_len.min(upload.size - at);
            let content = read(file, at, len).map_err(FleetError::io("read", upload.file))?;
            let content = PutPayload::from(content);
            let attempt = async || {
                let put = parts.put_part(path, &multipart, index, content.clone());
                self.within(len, put).await.map_err(Cause::Objects)
            };
            let patience = self.patience;
            let written = patience.attempts(attempt).await;
            let part = written.map_err(|cause| self.refuse_write(&object, cause))?;
            Ok::<_, FleetError>((index, part))
        };
        let mut written = stream::iter(lacking)
            .map(write)
            .buffer_unordered(PARTS_AT_ONCE);
        while let Some((index, part)) = written.try_next().await? {
            journal.add(upload.journal, index, part)?;
        }
        drop(written);
        Ok(journal)
    }

    /// Waits no longer than it takes to send so many bytes.
    async fn within<T>(
        &self,
        len: u64,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> object_store::Result<T> {
        let ended = timeout(self.patience.answer + time_for(len), request).await;
        ended.unwrap_or_else(|_| Err(no_answer()))
    }
}

/// The parts of a release have this length, but the last one.
pub(crate) fn part_len(size: u64) -> u64 {
    PART_LEN.max(size.div_ceil(PARTS_MAX))
}

/// How long it may take to write so many bytes.
fn time_for(len: u64) -> Duration {
    Duration::from_secs(len / WRITE_LEAST)
}

fn no_answer() -> Objects {
    Objects::Generic {
        store: "store",
        source: Box::new(io::Error::from(io::ErrorKind::TimedOut)),
    }
}

fn payload(text: &str) -> PutPayload {
    PutPayload::from(text.as_bytes().to_vec())
}

fn read(file: &File, at: u64, len: u64) -> io::Result<Vec<u8>> {
    let mut content = vec![0; usize::try_from(len).map_err(io::Error::other)?];
    file.read_exact_at(&mut content, at)?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;
    use tokio::runtime::Builder;

    use super::*;
    use crate::pace::Patience;

    #[test]
    fn a_folder_of_too_many_names_is_refused() {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let objects = Arc::new(InMemory::new());
        let remote = Remote::of(objects.clone(), Patience::default());
        runtime.block_on(async {
            for serial in 1..=4 {
                let path = remote.at(&format!("log/{serial}"));
                objects.put(&path, payload("a pointer")).await.unwrap();
            }
            let mut names = Vec::new();
            let mut pass = |name: &str, _: Listed| names.push(name.to_owned());
            remote.list(LOG, 4, &mut pass).await.unwrap();
            let error = remote.list(LOG, 3, &mut pass).await.unwrap_err();
            let FleetError::Remote { cause, .. } = error else {
                panic!("{error}");
            };
            assert!(matches!(cause, Cause::Crowded));
            assert_eq!(names, ["1", "2", "3", "4", "1", "2", "3"]);
        });
    }
}
