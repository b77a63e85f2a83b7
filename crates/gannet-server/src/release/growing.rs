//! Files that may grow while they are sent: logs, uploads in progress.
//!
//! Bytes that were appended after a version was announced are none of it, and leave those before as they were.
//! Metadata do not distinguish an append from an overwrite, so what was sent is read once more:
//!
//! ```text
//!   a slice is read ──▶ metadata ── as at opening ───────▶ sent
//!         ▲              ▲ │ └───── longer ──▶ the end of the version ── as at opening ──▶ sent
//!         └── next ──────┼─┘
//!                        └───────── written, as long as before: for a while
//!   the last slice, if it became longer: the end, and all slices again ── the same ──▶ it is sent
//!   anything else ──▶ reset
//! ```
//! The end of the version was read with its metadata when the file was opened: an overwrite that leaves it as it
//! was is unlikely. And all bytes were read before the first of them is read again: if they are the same, the
//! file had all of them at one moment in between.
//!
//! A write sets the times first, and then the length. In between it may be either, so the slice is kept until
//! more is known, and nothing is sent.
//!
//! A response is read again once at most, and only after all but its last slice was taken by its peer.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use blake3::{Hash, Hasher};
use gannet_io::driver::{Meta, Nanos};

use super::ServedFile;
use crate::bounds::limits::{GROWING_END_LEN, GROWING_WAIT_MS, REREAD_SLICE_MAX};

/// The last bytes of a version of a file, read while its metadata were those of the version.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) struct VersionEnd(Hash);

impl VersionEnd {
    /// Where they are, in a version of `len` bytes.
    pub(crate) fn range(len: u64) -> Range<u64> {
        len.saturating_sub(GROWING_END_LEN)..len
    }

    /// That of a version which ends with these bytes.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(blake3::hash(bytes))
    }
}

/// A response from a file that may grow meanwhile.
pub(crate) struct Growing {
    /// The file, for all responses: open as long as this one.
    _of: Rc<ServedFile>,
    /// The version's length and end.
    len: u64,
    end: VersionEnd,
    state: RefCell<GrowingState>,
}

struct GrowingState {
    /// All that the response has of the file, in order; not empty.
    ranges: Vec<Range<u64>>,
    /// Bytes of it that were not read yet.
    left: u64,
    /// Those that were.
    sent: Box<Hasher>,
    /// It has grown, or its metadata would not show a change.
    is_doubtful: bool,
    /// Its metadata before its end was found to be as at opening.
    checked: Option<Meta>,
    /// What was read, since when, and the time that a write had set, if the file is not longer yet.
    held: Option<(Vec<u8>, Nanos, i128)>,
    step: GrowingStep,
}

/// A file's metadata after a read, compared with those at opening.
#[derive(Clone, Copy)]
pub(super) enum MetaNow {
    /// As they were, or longer.
    Whole(Meta),
    /// This other time and the same length: a write may be about to set that.
    Written(i128),
    /// Neither.
    Other,
}

/// What is being read.
enum GrowingStep {
    /// The next slice.
    Slice,
    /// The end of the version, before this slice is sent.
    End(Vec<u8>),
    /// The same after the last slice, which begins here.
    LastEnd(u64),
    Again(Box<Rereading>),
}

/// What was sent is being read again.
struct Rereading {
    read: Hasher,
    /// The slice, and the range that it is in.
    slice: Range<u64>,
    index: usize,
    /// Where the last slice begins.
    last: u64,
}

/// What follows a slice that was read.
pub(crate) enum SliceTaken {
    /// This is to be sent.
    Send(Vec<u8>),
    /// Another read comes first: [`Growing::next`]. These bytes are not needed.
    ReadAgain(Vec<u8>),
    /// The metadata are to be asked for again later: [`Growing::held`].
    Wait,
    /// The response cannot be completed.
    Changed,
}

impl Growing {
    /// For a response that has these ranges of the file, of a version with this length and end. Unless it is
    /// settled, it was written so recently that a further write may leave its metadata as they are.
    pub(super) fn new(
        of: Rc<ServedFile>,
        (len, end): (u64, VersionEnd),
        ranges: Vec<Range<u64>>,
        is_settled: bool,
    ) -> Self {
        let state = GrowingState {
            left: ranges.iter().map(|range| range.end - range.start).sum(),
            ranges,
            sent: Box::default(),
            is_doubtful: !is_settled,
            checked: None,
            held: None,
            step: GrowingStep::Slice,
        };
        Self {
            _of: of,
            len,
            end,
            state: RefCell::new(state),
        }
    }

    /// What to read after [`SliceTaken::ReadAgain`].
    pub(crate) fn next(&self) -> Option<Range<u64>> {
        match &self.state.borrow().step {
            GrowingStep::Slice => None,
            GrowingStep::End(_) | GrowingStep::LastEnd(_) => Some(VersionEnd::range(self.len)),
            GrowingStep::Again(again) => Some(again.slice.clone()),
        }
    }

    /// The bytes to take again after [`SliceTaken::Wait`].
    pub(crate) fn held(&self) -> Option<Vec<u8>> {
        let held = &mut self.state.borrow_mut().held;
        held.as_mut().map(|(bytes, ..)| std::mem::take(bytes))
    }

    /// Takes `len` bytes, or those that [`next`](Self::next) has named, that were read from the file before its
    /// metadata, which are these at this time.
    pub(super) fn take(
        &self,
        (bytes, len): (Vec<u8>, usize),
        (meta, now): (MetaNow, Nanos),
    ) -> SliceTaken {
        let next = self.next();
        let len = next.map_or(len, |next| (next.end - next.start) as usize);
        let state = &mut *self.state.borrow_mut();
        let before = state.held.take().map(|(_, since, at)| (since, at));
        let now = match meta {
            MetaNow::Whole(meta) if bytes.len() == len => meta,
            MetaNow::Written(at) if bytes.len() == len => {
                let (since, first) = before.unwrap_or((now, at));
                // A further write sets the times only after the one before has set the length: that was an
                // overwrite.
                if at != first || now >= since.plus_ms(GROWING_WAIT_MS) {
                    return SliceTaken::Changed;
                }
                state.held = Some((bytes, since, at));
                return SliceTaken::Wait;
            }
            _ => return SliceTaken::Changed,
        };
        match std::mem::replace(&mut state.step, GrowingStep::Slice) {
            GrowingStep::Slice => state.slice_read(bytes, now, self.len),
            GrowingStep::End(_) | GrowingStep::LastEnd(_) if VersionEnd::of(&bytes) != self.end => {
                SliceTaken::Changed
            }
            GrowingStep::End(slice) => SliceTaken::Send(slice),
            GrowingStep::LastEnd(last) => {
                state.step = GrowingStep::Again(Rereading::first(&state.ranges, last));
                SliceTaken::ReadAgain(bytes)
            }
            GrowingStep::Again(mut again) => {
                again.read.update(&bytes);
                if again.advance(&state.ranges) {
                    state.step = GrowingStep::Again(again);
                    return SliceTaken::ReadAgain(bytes);
                }
                match again.read.finalize() == state.sent.finalize() {
                    true => SliceTaken::Send(bytes),
                    false => SliceTaken::Changed,
                }
            }
        }
    }

    /// Bytes of memory that it takes.
    pub(crate) fn held_bytes(&self) -> usize {
        let state = self.state.borrow();
        let reading = match &state.step {
            GrowingStep::Slice | GrowingStep::LastEnd(_) => 0,
            GrowingStep::End(slice) => slice.capacity(),
            GrowingStep::Again(_) => size_of::<Rereading>(),
        };
        let held = state
            .held
            .as_ref()
            .map_or(0, |(bytes, ..)| bytes.capacity());
        let ranges = state.ranges.capacity() * size_of::<Range<u64>>();
        size_of::<ServedFile>() + size_of::<Self>() + size_of::<Hasher>() + ranges + reading + held
    }
}

impl GrowingState {
    /// Takes the next slice, of a version of `len` bytes.
    fn slice_read(&mut self, bytes: Vec<u8>, now: Meta, len: u64) -> SliceTaken {
        let has_grown = now.len > len;
        self.is_doubtful |= has_grown;
        self.sent.update(&bytes);
        self.left = self.left.saturating_sub(bytes.len() as u64);
        if self.left == 0 && self.is_doubtful {
            let end = self.ranges.last().map_or(0, |range| range.end);
            self.step = GrowingStep::LastEnd(end.saturating_sub(bytes.len() as u64));
            return SliceTaken::ReadAgain(bytes);
        }
        if !has_grown || self.checked == Some(now) {
            return SliceTaken::Send(bytes);
        }
        self.checked = Some(now);
        self.step = GrowingStep::End(bytes);
        SliceTaken::ReadAgain(Vec::new())
    }
}

impl Rereading {
    /// Starts with the first slice; the last one begins at `last`.
    fn first(ranges: &[Range<u64>], last: u64) -> Box<Self> {
        let mut again = Self {
            read: Hasher::new(),
            slice: 0..0,
            index: 0,
            last,
        };
        again.turn_to(ranges, 0, ranges.first().map_or(0, |range| range.start));
        Box::new(again)
    }

    /// Turns to the next slice; false if there is none.
    fn advance(&mut self, ranges: &[Range<u64>]) -> bool {
        let at = self.slice.end;
        if at < ranges[self.index].end {
            self.turn_to(ranges, self.index, at);
            return true;
        }
        let next = ranges.get(self.index + 1).map(|range| range.start);
        if let Some(start) = next {
            self.turn_to(ranges, self.index + 1, start);
        }
        next.is_some()
    }

    fn turn_to(&mut self, ranges: &[Range<u64>], index: usize, start: u64) {
        let most = start + REREAD_SLICE_MAX;
        let is_last = index + 1 == ranges.len();
        let end = match ranges[index].end {
            // In one piece, as it was read before: it is sent then.
            end if is_last && start == self.last => end,
            _ if is_last => self.last.min(most),
            end => end.min(most),
        };
        (self.index, self.slice) = (index, start..end);
    }
}

#[cfg(test)]
mod tests {
    use gannet_io::driver::{File, FileKind};

    use super::*;

    const LEN: u64 = 1_000_000;

    /// All of the version; and the last of three parts, as it is sent.
    const ALL: Range<u64> = 0..LEN;
    const LAST: Range<u64> = 900_000..950_000;

    fn meta(len: u64) -> Meta {
        Meta {
            kind: FileKind::Regular,
            len,
            mtime_ns: 0,
            ctime_ns: 0,
            identity: (1, 2),
            links: 1,
        }
    }

    fn bytes(range: &Range<u64>) -> Vec<u8> {
        range.clone().map(|at| (at / 100) as u8).collect()
    }

    /// Sends a response of these ranges in slices of at most 300,000 bytes, of a file with these lengths after
    /// one slice after the other, and the last of them from then on. Returns what was read besides, and
    /// whether the response was completed. Reads at `wrong` find another byte once the file has been read once.
    fn send(
        ranges: &[Range<u64>],
        lens: &[u64],
        is_settled: bool,
        wrong: Option<u64>,
    ) -> (Vec<Range<u64>>, bool) {
        let null = std::fs::File::open("/dev/null").expect("it is there");
        let file = Rc::new(ServedFile::constant(File::from(null)));
        let end = VersionEnd::of(&bytes(&VersionEnd::range(LEN)));
        let growing = Growing::new(file, (LEN, end), ranges.to_vec(), is_settled);
        let mut lens = lens.iter();
        let mut len = LEN;
        let mut more = Vec::new();
        for range in ranges {
            for start in range.clone().step_by(300_000) {
                let slice = start..range.end.min(start + 300_000);
                len = *lens.next().unwrap_or(&len);
                let now = match len >= LEN {
                    true => MetaNow::Whole(meta(len)),
                    false => MetaNow::Other,
                };
                let now = (now, Nanos(0));
                let read = (bytes(&slice), (slice.end - slice.start) as usize);
                let mut taken = growing.take(read, now);
                while let SliceTaken::ReadAgain(_) = taken {
                    let next = growing.next().expect("it is named");
                    let mut read = bytes(&next);
                    if let Some(wrong) = wrong.filter(|wrong| next.contains(wrong)) {
                        read[(wrong - next.start) as usize] ^= 1;
                    }
                    more.push(next);
                    taken = growing.take((read, 0), now);
                }
                match taken {
                    SliceTaken::Send(sent) => assert!(sent == bytes(&slice)),
                    _ => return (more, false),
                }
            }
        }
        (more, true)
    }

    #[test]
    fn what_was_sent_is_read_again_if_the_file_grew() {
        let all = [ALL];
        let end = || VersionEnd::range(LEN);
        let again = [
            end(),
            0..262_144,
            262_144..524_288,
            524_288..786_432,
            786_432..900_000,
            900_000..LEN,
        ];
        assert_eq!(send(&all, &[], true, None), (vec![], true));
        assert_eq!(send(&all, &[], false, None), (again.to_vec(), true));
        // Its end is compared after each slice after which it is longer than before.
        let lens = [LEN, LEN + 1, LEN + 1, LEN + 2];
        let expect = [&[end()], again.as_slice()].concat();
        assert_eq!(send(&all, &lens, true, None), (expect, true));
        let parts = [10..20, 500_000..500_100, 600_000..950_000];
        let expect = [
            end(),
            10..20,
            500_000..500_100,
            600_000..862_144,
            862_144..900_000,
        ];
        let expect = [expect.as_slice(), &[LAST]].concat();
        let lens = [LEN, LEN, LEN, LEN + 1];
        assert_eq!(send(&parts, &lens, true, None), (expect, true));
    }

    #[test]
    fn what_is_not_the_same_is_not_completed() {
        let all = [ALL];
        let grows = [LEN, LEN, LEN, LEN + 1];
        for (at, reads) in [
            (0, 6),
            (262_144, 6),
            (899_999, 6),
            (900_000, 6),
            (LEN - 1, 1),
        ] {
            let (more, is_whole) = send(&all, &grows, true, Some(at));
            assert_eq!((more.len(), is_whole), (reads, false), "{at}");
        }
        // Its end shows it before the slice is sent.
        let (more, is_whole) = send(&all, &[LEN + 1], true, Some(LEN - 5));
        assert_eq!((more, is_whole), (vec![VersionEnd::range(LEN)], false));
        assert_eq!(send(&all, &[LEN, LEN - 1], true, None), (vec![], false));
        assert!(
            send(&all, &[LEN, LEN], true, Some(5)).1,
            "nothing is read again"
        );
    }

    /// A read that is shorter than it should be is one of a file that was cut.
    #[test]
    fn short_reads_end_a_response() {
        let null = std::fs::File::open("/dev/null").expect("it is there");
        let file = Rc::new(ServedFile::constant(File::from(null)));
        let end = VersionEnd::of(&bytes(&VersionEnd::range(LEN)));
        let growing = Growing::new(file, (LEN, end), vec![ALL], true);
        for now in [MetaNow::Whole(meta(LEN)), MetaNow::Written(1)] {
            let taken = growing.take((vec![0; 99], 100), (now, Nanos(0)));
            assert!(matches!(taken, SliceTaken::Changed));
        }
    }

    #[test]
    fn a_slice_waits_for_the_length_of_a_write_and_not_for_ever() {
        let null = std::fs::File::open("/dev/null").expect("it is there");
        let file = Rc::new(ServedFile::constant(File::from(null)));
        let end = VersionEnd::of(&bytes(&VersionEnd::range(LEN)));
        let slice = || bytes(&(0..300_000));
        for (is_longer, waits) in [(true, true), (false, true), (false, false)] {
            let growing = Growing::new(Rc::clone(&file), (LEN, end), vec![ALL], true);
            let began = Nanos(0).plus_ms(7);
            let taken = growing.take((slice(), 300_000), (MetaNow::Written(1), began));
            assert!(matches!(taken, SliceTaken::Wait));
            assert!(growing.held_bytes() > 300_000, "it is charged");
            let held = growing.held().expect("it waits");
            assert!(held == slice());
            let now = match is_longer {
                true => MetaNow::Whole(meta(LEN + 1)),
                false => MetaNow::Written(1),
            };
            let at = began.plus_ms(if waits {
                GROWING_WAIT_MS - 1
            } else {
                GROWING_WAIT_MS
            });
            match growing.take((held, 300_000), (now, at)) {
                SliceTaken::ReadAgain(_) => assert!(is_longer),
                SliceTaken::Wait => assert!(waits && !is_longer),
                SliceTaken::Changed => assert!(!waits),
                SliceTaken::Send(_) => panic!("its end was not compared"),
            }
        }
    }

    /// Two times and one length: the first write has set no length, so it was an overwrite.
    #[test]
    fn a_second_write_that_finds_the_length_as_before_ends_a_response() {
        let null = std::fs::File::open("/dev/null").expect("it is there");
        let file = Rc::new(ServedFile::constant(File::from(null)));
        let end = VersionEnd::of(&bytes(&VersionEnd::range(LEN)));
        let growing = Growing::new(file, (LEN, end), vec![ALL], true);
        let slice = bytes(&(0..300_000));
        let taken = growing.take((slice, 300_000), (MetaNow::Written(1), Nanos(0)));
        assert!(matches!(taken, SliceTaken::Wait));
        let held = growing.held().expect("it waits");
        let taken = growing.take((held, 300_000), (MetaNow::Written(2), Nanos(1)));
        assert!(matches!(taken, SliceTaken::Changed));
    }
}
