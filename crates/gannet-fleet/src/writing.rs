//! Writes to a store in an object store: never over what another publisher has written meanwhile.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use futures_util::{StreamExt, TryStreamExt, stream};
use gannet_store::{ReleaseId, StoreError};
use object_store::multipart::MultipartStore;
use object_store::path::Path as ObjectPath;
use object_store::{
    Error as Objects, ObjectStoreExt, PutMode, PutOptions, PutPayload, UpdateVersion,
};
use tokio::time::{sleep, timeout};

use crate::error::{Cause, FleetError};
use crate::journal::Journal;
use crate::limits::{
    ATTEMPTS_MAX, COMPLETE_TIMEOUT, LISTED_MAX, PART_LEN, PARTS_AT_ONCE, PARTS_MAX, WRITE_LEAST,
};
use crate::remote::{CURRENT, LOG, Remote, Text, release_name};

/// An object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Listed {
    pub(crate) size: u64,
    /// When it was written, in whole seconds: not every answer has more.
    pub(crate) modified: SystemTime,
}

/// A whole release that is written.
pub(crate) struct Upload<'u> {
    pub(crate) id: ReleaseId,
    pub(crate) file: &'u Path,
    pub(crate) size: u64,
    pub(crate) digest: [u8; 32],
    /// Where it is noted how far it has come, so that the next one goes on from there.
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
        match self.text(CURRENT, None).await {
            Ok(text) => Ok(Some(text)),
            Err(Cause::Objects(Objects::NotFound { .. })) => Ok(None),
            Err(cause) => Err(self.refuse(CURRENT, cause)),
        }
    }

    /// The objects in one of the store's folders.
    pub(crate) async fn list(&self, folder: &str) -> Result<Vec<(String, Listed)>, FleetError> {
        let path = self.at(folder);
        let mut listed = Vec::new();
        let mut count = 0;
        let mut objects = self.objects.list(Some(&path));
        loop {
            let next = timeout(self.patience.answer, objects.next()).await;
            let next = next.map_err(|_| self.refuse(folder, Cause::NoAnswer))?;
            let Some(object) = next else {
                return Ok(listed);
            };
            let object = object.map_err(|error| self.refuse(folder, Cause::Objects(error)))?;
            if count == LISTED_MAX {
                return Err(self.refuse(folder, Cause::Crowded));
            }
            count += 1;
            let Some(mut below) = object.location.prefix_match(&path) else {
                continue;
            };
            if let (Some(name), None) = (below.next(), below.next()) {
                let is = Listed {
                    size: object.size,
                    modified: whole_seconds(object.last_modified.timestamp()),
                };
                listed.push((name.as_ref().to_owned(), is));
            }
        }
    }

    /// A release as the store has it now.
    pub(crate) async fn look(&self, id: ReleaseId) -> Result<Listed, FleetError> {
        let object = release_name(id);
        let found = timeout(self.patience.answer, self.objects.head(&self.at(&object))).await;
        let found = found.unwrap_or_else(|_| Err(no_answer()));
        let found = found.map_err(|error| self.refuse(&object, Cause::Objects(error)))?;
        Ok(Listed {
            size: found.size,
            modified: whole_seconds(found.last_modified.timestamp()),
        })
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

    /// Adds an entry to the log, whose name nobody else can take after that. That the store keeps to
    /// conditions is tried out on it, as the pointer will need them.
    ///
    /// # Errors
    /// Another publisher has taken the serial, or the store cannot be written.
    pub(crate) async fn create_entry(&self, serial: u64, text: &str) -> Result<(), FleetError> {
        let object = format!("{LOG}/{serial}");
        let taken = || self.overtaken(format!("another publisher has taken serial {serial}"));
        self.put_text(&object, text, || PutMode::Create, &taken)
            .await?;
        // An entity tag, and a generation at Google's, that the entry does not have.
        let never = PutMode::Update(UpdateVersion {
            e_tag: Some(format!("\"{:032}\"", 0)),
            version: Some("1".into()),
        });
        for mode in [PutMode::Create, never] {
            match self.put(&object, payload(text), mode).await {
                Err(Cause::Objects(
                    Objects::AlreadyExists { .. } | Objects::Precondition { .. },
                )) => {}
                Ok(()) => return Err(self.refuse_write(&object, Cause::Unconditional)),
                Err(cause) => return Err(self.refuse_write(&object, cause)),
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
        let changed = || self.overtaken("its pointer was replaced in the meantime".into());
        self.put_text(CURRENT, text, mode, &changed).await
    }

    /// Writes a text. One that is there already may be ours, written by an attempt of which we have
    /// not heard; if it is not, `taken` is the error.
    async fn put_text(
        &self,
        object: &str,
        text: &str,
        mode: impl Fn() -> PutMode,
        taken: &dyn Fn() -> FleetError,
    ) -> Result<(), FleetError> {
        let mut attempts = 1;
        loop {
            let cause = match self.put(object, payload(text), mode()).await {
                Ok(()) => return Ok(()),
                Err(cause) => cause,
            };
            let is_refused = matches!(
                cause,
                Cause::Objects(
                    Objects::AlreadyExists { .. }
                        | Objects::Precondition { .. }
                        | Objects::NotFound { .. }
                )
            );
            if !is_refused && !cause.is_passing() {
                return Err(self.refuse_write(object, cause));
            }
            let found = self.text(object, None).await;
            if found.is_ok_and(|found| found.text == text.as_bytes()) {
                return Ok(());
            }
            if is_refused {
                return Err(taken());
            }
            if attempts == ATTEMPTS_MAX {
                return Err(self.refuse_write(object, cause));
            }
            sleep(self.patience.pause * attempts).await;
            attempts += 1;
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
        let found = self.text(CURRENT, None).await.map_err(refuse)?;
        if found.text != in_force.as_bytes() {
            return Err(refuse(Cause::Replaced));
        }
        let path = self.at(&object);
        let removed = timeout(self.patience.answer, self.objects.delete(&path)).await;
        match removed.unwrap_or_else(|_| Err(no_answer())) {
            Ok(()) | Err(Objects::NotFound { .. }) => Ok(()),
            Err(error) => Err(refuse(Cause::Objects(error))),
        }
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
        let mut attempts = 1;
        loop {
            match self.put(&object, content.clone(), PutMode::Create).await {
                Ok(()) => return Ok(true),
                Err(Cause::Objects(
                    Objects::AlreadyExists { .. } | Objects::Precondition { .. },
                )) => return Ok(false),
                Err(cause) if cause.is_passing() && attempts < ATTEMPTS_MAX => {
                    sleep(self.patience.pause * attempts).await;
                    attempts += 1;
                }
                Err(cause) => return Err(self.refuse_write(&object, cause)),
            }
        }
    }

    async fn upload_in_parts(&self, upload: &Upload<'_>, file: &File) -> Result<bool, FleetError> {
        let parts = self.writable()?;
        let object = release_name(upload.id);
        let path = self.at(&object);
        let refuse = |error| self.refuse_write(&object, Cause::Objects(error));
        let mut begun = Journal::read(upload.journal);
        if let Some(journal) = begun.take_if(|it| !it.is_of(upload)) {
            let path = self.at(&release_name(journal.id));
            // It may be gone there; if not, the storage removes what nobody completes.
            let _ = self
                .within(0, parts.abort_multipart(&path, &journal.multipart))
                .await;
        }
        let is_begun = begun.is_some();
        let journal = match begun {
            Some(journal) => journal,
            None => {
                let multipart = self.within(0, parts.create_multipart(&path)).await;
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
        match completed {
            // The storage has thrown away what an earlier attempt had written.
            Err(FleetError::Remote {
                cause: Cause::Objects(Objects::NotFound { .. }),
                ..
            }) if is_begun => {
                Journal::remove(upload.journal);
                Box::pin(self.upload_in_parts(upload, file)).await
            }
            Ok(is_ours) => {
                Journal::remove(upload.journal);
                Ok(is_ours)
            }
            Err(error) => Err(error),
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
                Err(Objects::AlreadyExists { .. } | Objects::Precondition { .. }) => break,
                Err(Objects::Generic { .. }) if attempts < ATTEMPTS_MAX => {
                    sleep(self.patience.pause * attempts).await;
                    attempts += 1;
                }
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
            Err(FleetError::Remote {
                cause: Cause::Objects(Objects::NotFound { .. }),
                ..
            }) => Ok(false),
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
            let mut attempts = 1;
            loop {
                let put = parts.put_part(path, &multipart, index, content.clone());
                match self.within(len, put).await {
                    Ok(part) => return Ok((index, part)),
                    Err(Objects::Generic { .. }) if attempts < ATTEMPTS_MAX => {
                        sleep(self.patience.pause * attempts).await;
                        attempts += 1;
                    }
                    Err(error) => return Err(self.refuse_write(&object, Cause::Objects(error))),
                }
            }
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
fn part_len(size: u64) -> u64 {
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

fn whole_seconds(timestamp: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(timestamp.try_into().unwrap_or(0))
}
