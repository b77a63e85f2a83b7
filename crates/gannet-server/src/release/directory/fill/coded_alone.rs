//! Files that exist only in a coding: `page.html.gz` or `page.html.br` without `page.html`.
//!
//! Clients that accept the coding get the coded bytes. For others they are decoded on demand, like
//! bodies of archives (`release/bodies`). The last bytes of gzip give the length of the content
//! (RFC 1952 section 2.3.1), so fields are rendered without decoding; content of another length is
//! an error. Brotli does not store it: each version is decoded once before its fields are rendered.
//! A file that cannot be decoded, or is too long for it, is sent coded to all clients.

use std::cell::OnceCell;
use std::rc::Rc;

use gannet_archive::limits::DECODED_LEN_MAX;
use gannet_content::directory::lookup::{AtPath, Step};
use gannet_content::directory::sidecars::may_have_sidecars;
use gannet_http::semantics::coding::Coding;
use gannet_http::semantics::status::Status;
use gannet_io::driver::{Driver, Errno, FileKind, OpenedFile, Started, Token};

use super::super::{Cached, CodedAlone, Draft};
use super::at_path::at_path;
use super::{DiskLookup, Filled, READS_MAX, State};
use crate::release::wakeup::Wakeup;

/// The codings to search, in this order, and their file name suffixes.
const ALONE: [(Coding, &[u8]); 2] = [(Coding::Gzip, b".gz"), (Coding::Brotli, b".br")];

/// Minimum length of gzip: its header and its trailer (RFC 1952 section 2.3).
const GZIP_LEN_MIN: u64 = 18;

/// Length of the trailer field that gives the content's length.
const CONTENT_LEN_LEN: u64 = 4;

/// A file found only in a coding.
pub(super) struct Alone {
    coding: Coding,
    /// The source to decode from and the length of the content, if it can be decoded.
    decoded: Option<(Rc<CodedAlone>, u64)>,
}

impl DiskLookup {
    /// Whether the file that the lookup opens may exist in a coding.
    pub(super) fn may_be_coded(&self) -> bool {
        let Step::Open(path) = self.lookup.step() else {
            return false;
        };
        self.site.options.compressed_only
            && !self.lookup.wants_folder()
            && !path.is_empty()
            && may_have_sidecars(path, 1)
    }

    /// The name of the missing file in a coding.
    pub(super) fn coded_name(&self, index: usize) -> Vec<u8> {
        match self.lookup.step() {
            Step::Open(path) => [path, ALONE[index].1].concat(),
            Step::Done(_) => unreachable!("it asks for what is missing"),
        }
    }

    /// Handles the result of opening the file in this coding.
    pub(super) fn coded_opened(
        &mut self,
        index: usize,
        result: Result<Wakeup, Errno>,
    ) -> Option<Filled> {
        let coded = match result {
            Ok(Wakeup::Opened(opened)) if opened.meta.kind == FileKind::Regular => opened,
            other => {
                if let Err(errno) = other
                    && at_path(&other) != AtPath::Missing
                {
                    self.failed(self.coded_name(index), errno);
                }
                let found = match at_path(&other) {
                    // Not a usable coded file; that says nothing about the name without the suffix.
                    AtPath::Missing | AtPath::Directory | AtPath::Other | AtPath::Escapes => {
                        AtPath::Missing
                    }
                    found => found,
                };
                if found == AtPath::Missing && index + 1 < ALONE.len() {
                    self.state = State::Alone(index + 1);
                    return None;
                }
                self.lookup.found(found);
                return self.looked();
            }
        };
        let coding = ALONE[index].0;
        let is_gzip = coding == Coding::Gzip;
        let len_min = if is_gzip { GZIP_LEN_MIN } else { 1 };
        if !(len_min..=DECODED_LEN_MAX).contains(&coded.meta.len) {
            return self.coded_found(coding, coded, None);
        }
        if is_gzip {
            self.state = State::GzipEnd(coded);
            return None;
        }
        let Some(alone) = self.site.coded_alone(&coded, coding, self.unix) else {
            return self.coded_found(coding, coded, None);
        };
        let alone = Rc::new(alone);
        if let Some(len) = alone.known_len() {
            return self.measured(coded, alone, len);
        }
        let Some(load) = alone.load() else {
            return self.coded_found(coding, coded, None);
        };
        self.state = State::Measuring(coded, alone);
        Some(Filled::Undecoded(load))
    }

    /// Reads the last bytes of gzip.
    pub(super) fn ask_end<D: Driver>(
        driver: &mut D,
        gzip: &OpenedFile,
        token: Token,
    ) -> Started<Wakeup> {
        let at = gzip.meta.len - CONTENT_LEN_LEN;
        match driver.read(&gzip.file, at, CONTENT_LEN_LEN as usize, token) {
            Started::Now(result) => Started::Now(result.map(Wakeup::Read)),
            Started::Pending => Started::Pending,
        }
    }

    /// Handles the last bytes of gzip. `None`, too, if the file has become shorter.
    pub(super) fn gzip_end(
        &mut self,
        gzip: OpenedFile,
        result: Result<Wakeup, Errno>,
    ) -> Option<Filled> {
        let Ok(Wakeup::Read(end)) = result else {
            return Some(Filled::Error(Status::INTERNAL_SERVER_ERROR));
        };
        let Ok(end) = <[u8; CONTENT_LEN_LEN as usize]>::try_from(end) else {
            return self.coded_changed();
        };
        let len = u64::from(u32::from_le_bytes(end));
        let alone = match len <= DECODED_LEN_MAX {
            true => self.site.coded_alone(&gzip, Coding::Gzip, self.unix),
            false => None,
        };
        let decoded = alone.map(|alone| (Rc::new(alone), len));
        self.coded_found(Coding::Gzip, gzip, decoded)
    }

    /// Handles the result of decoding content to determine its length.
    pub(super) fn coded_measured<D: Driver>(
        &mut self,
        driver: &D,
        (coded, alone): (OpenedFile, Rc<CodedAlone>),
        result: Result<Wakeup, Errno>,
    ) -> Option<Filled> {
        match (result, alone.body_len()) {
            (Ok(Wakeup::Loaded), Some(len)) => {
                alone.note_len(Some(len));
                self.measured(coded, alone, Some(len))
            }
            // Copies held by peers use up the limit.
            (Err(Errno::AGAIN | Errno::NOMEM), _) => Some(Filled::Short),
            _ if !alone.is_unchanged(driver) => self.coded_changed(),
            (Err(Errno::BADMSG), _) => {
                alone.note_len(None);
                self.measured(coded, alone, None)
            }
            // A disk failure says nothing about the content.
            _ => Some(Filled::Error(Status::INTERNAL_SERVER_ERROR)),
        }
    }

    fn measured(
        &mut self,
        coded: OpenedFile,
        alone: Rc<CodedAlone>,
        len: Option<u64>,
    ) -> Option<Filled> {
        let coding = alone.coding();
        let decoded = len.map(|len| (alone, len));
        self.coded_found(coding, coded, decoded)
    }

    fn coded_found(
        &mut self,
        coding: Coding,
        coded: OpenedFile,
        decoded: Option<(Rc<CodedAlone>, u64)>,
    ) -> Option<Filled> {
        self.findings.opened = Some(coded);
        self.findings.alone = Some(Alone { coding, decoded });
        self.lookup.found(AtPath::Regular);
        self.looked()
    }

    /// Takes a file as the representation in its coding, and its decoded content as identity.
    pub(super) fn take_alone(&mut self, coded: OpenedFile, alone: Alone) -> Option<Filled> {
        if let Some((decoded_from, len)) = alone.decoded {
            self.findings.drafts.push(Draft {
                path: self.variant_path(alone.coding),
                is_elsewhere: false,
                coding: Coding::Identity,
                meta: coded.meta,
                len,
                body: OnceCell::new(),
                is_long_copy: false,
                coded: Some(decoded_from),
            });
        }
        self.take(alone.coding, coded, 0)
    }

    /// Waits for content that is being decoded.
    pub(crate) fn await_load(&mut self, cached: Rc<Cached>) {
        self.state = State::Decoding(cached);
    }

    /// Handles the result of decoding content. `None` if the file has changed meanwhile and the
    /// lookup starts over.
    pub(super) fn decoded<D: Driver>(
        &mut self,
        driver: &D,
        cached: Rc<Cached>,
        result: Result<Wakeup, Errno>,
    ) -> Option<Filled> {
        let has_changed = || cached.files().any(|file| !file.is_unchanged(driver));
        match result {
            Ok(Wakeup::Loaded) => Some(Filled::File(cached, self.findings.status, None)),
            // Copies held by peers use up the limit.
            Err(Errno::AGAIN | Errno::NOMEM) => Some(Filled::Short),
            _ if has_changed() => self.coded_changed(),
            _ => Some(Filled::Error(Status::INTERNAL_SERVER_ERROR)),
        }
    }

    /// Starts over, up to a limit of [`READS_MAX`].
    fn coded_changed(&mut self) -> Option<Filled> {
        self.reads += 1;
        if self.reads >= READS_MAX {
            return Some(Filled::Error(Status::SERVICE_UNAVAILABLE));
        }
        self.start_over();
        None
    }
}
