//! Files that are there in a coding alone: `page.html.gz` or `page.html.br` without `page.html`.
//!
//! The coded bytes are sent to who accepts them. For others they are decoded when that is needed, as
//! bodies of archives are (`release/bodies`). How long the content is the last bytes of gzip say (RFC
//! 1952 section 2.3.1), so fields are made without decoding; content of another length is an error.
//! Brotli does not say it: each version is decoded once before there are fields. What cannot be
//! decoded, or is too long for it, is sent in its coding to everybody.

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
use super::{Fill, Filled, READS_MAX, State};
use crate::exchange::Wakeup;

/// The codings that are looked for, in this order, and the suffixes of their names.
const ALONE: [(Coding, &[u8]); 2] = [(Coding::Gzip, b".gz"), (Coding::Brotli, b".br")];

/// The fewest bytes of gzip: its header and its trailer (RFC 1952 section 2.3).
const GZIP_LEN_MIN: u64 = 18;

/// The length of the content, at the end of gzip.
const CONTENT_LEN_LEN: u64 = 4;

/// What a lookup has found in a coding alone.
pub(super) struct Alone {
    coding: Coding,
    /// What it is decoded from, and how long the content is, if that can be.
    decoded: Option<(Rc<CodedAlone>, u64)>,
}

impl Fill {
    /// Whether what the lookup asks for may be there in a coding.
    pub(super) fn may_be_coded(&self) -> bool {
        let Step::Open(path) = self.lookup.step() else {
            return false;
        };
        self.site.options.compressed_only
            && !self.lookup.wants_folder()
            && !path.is_empty()
            && may_have_sidecars(path, 1)
    }

    /// The name under which it would be there.
    pub(super) fn coded_name(&self, index: usize) -> Vec<u8> {
        match self.lookup.step() {
            Step::Open(path) => [path, ALONE[index].1].concat(),
            Step::Done(_) => unreachable!("it asks for what is missing"),
        }
    }

    /// Takes the answer to whether it is there in this coding.
    pub(super) fn coded_opened(
        &mut self,
        index: usize,
        result: Result<Wakeup, Errno>,
    ) -> Option<Filled> {
        let coded = match result {
            Ok(Wakeup::Opened(opened)) if opened.meta.kind == FileKind::Regular => opened,
            other => {
                let found = match at_path(&other) {
                    // That is none, which says nothing of the name without the suffix.
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

    /// Asks for the last bytes of gzip.
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

    /// Takes the last bytes of gzip. `None`, too, if it has become shorter.
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

    /// Content was decoded to know how long it is, or cannot be.
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
            // Peers hold as many copies as there may be.
            (Err(Errno::AGAIN | Errno::NOMEM), _) => Some(Filled::Short),
            _ if !alone.is_unchanged(driver) => self.coded_changed(),
            (Err(Errno::BADMSG), _) => {
                alone.note_len(None);
                self.measured(coded, alone, None)
            }
            // The disk fails, which says nothing of the content.
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
        self.opened = Some(coded);
        self.alone = Some(Alone { coding, decoded });
        self.lookup.found(AtPath::Regular);
        self.looked()
    }

    /// Takes a file as the representation in its coding, and what it comes to as the one without.
    pub(super) fn take_alone(&mut self, coded: OpenedFile, alone: Alone) -> Option<Filled> {
        if let Some((decoded_from, len)) = alone.decoded {
            self.drafts.push(Draft {
                path: self.variant_path(alone.coding),
                coding: Coding::Identity,
                meta: coded.meta,
                len,
                body: OnceCell::new(),
                coded: Some(decoded_from),
            });
        }
        self.take(alone.coding, coded, 0)
    }

    /// Content is to be decoded; it will be woken for that.
    pub(crate) fn await_load(&mut self, cached: Rc<Cached>) {
        self.state = State::Decoding(cached);
    }

    /// Content has been decoded, or cannot be. `None` if the file has changed meanwhile: then all
    /// is to be asked again.
    pub(super) fn decoded<D: Driver>(
        &mut self,
        driver: &D,
        cached: Rc<Cached>,
        result: Result<Wakeup, Errno>,
    ) -> Option<Filled> {
        let has_changed = || cached.files().any(|file| !file.is_unchanged(driver));
        match result {
            Ok(Wakeup::Loaded) => Some(Filled::File(cached, self.status, None)),
            // Peers hold as many copies as there may be.
            Err(Errno::AGAIN | Errno::NOMEM) => Some(Filled::Short),
            _ if has_changed() => self.coded_changed(),
            _ => Some(Filled::Error(Status::INTERNAL_SERVER_ERROR)),
        }
    }

    /// Asks for everything again, unless that was done often.
    fn coded_changed(&mut self) -> Option<Filled> {
        self.reads += 1;
        if self.reads >= READS_MAX {
            return Some(Filled::Error(Status::SERVICE_UNAVAILABLE));
        }
        self.start_over();
        None
    }
}
