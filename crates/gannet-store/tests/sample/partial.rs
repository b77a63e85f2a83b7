//! Partial releases to try, and what must hold for any bytes: shared with the fuzz target.

use std::io;
use std::ops::Range;
use std::sync::Mutex;

use gannet_archive::SUPERBLOCK_LEN;
use gannet_archive::limits::{GROUP_LEN, UNIT_LEN_MAX};
use gannet_store::{PartialWriter, SparseFile};
use xxhash_rust::xxh3::xxh3_64;

/// A file of any length, of which few bytes are known: the first, and those from some offset on. Others are zeros,
/// and what is written there is forgotten.
struct Sparse {
    len: u64,
    first: Mutex<Vec<u8>>,
    rest_at: u64,
    rest: Vec<u8>,
    /// Where something may be written, or a hole be made.
    changed: Range<u64>,
}

impl SparseFile for Sparse {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        let end = at.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let first = self.first.lock().unwrap();
        for (at, byte) in (at..).zip(buffer) {
            let known = first.get(at as usize);
            let rest = at.checked_sub(self.rest_at);
            let rest = rest.and_then(|at| self.rest.get(at as usize));
            *byte = known.or(rest).copied().unwrap_or(0);
        }
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let end = at + bytes.len() as u64;
        assert!(
            self.changed.start <= at && end <= self.changed.end,
            "{at}..{end}"
        );
        if let Some(known) = self
            .first
            .lock()
            .unwrap()
            .get_mut(at as usize..end as usize)
        {
            known.copy_from_slice(bytes);
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn identity(&self) -> io::Result<[u8; 24]> {
        Ok([0; 24])
    }

    fn punch(&self, hole: Range<u64>) -> io::Result<()> {
        assert!(
            self.changed.start <= hole.start && hole.end <= self.changed.end,
            "{hole:?}"
        );
        Ok(())
    }

    fn allocated(&self) -> io::Result<u64> {
        Ok(0)
    }
}

/// Whatever two files say, blobs alone are written and made holes of, and each unit is found by its blob.
///
/// The bytes are two for the length of the file with what is present, that file, a superblock, and the
/// metadata region.
pub(crate) fn change(bytes: &[u8]) {
    let Some((len, rest)) = bytes.split_first_chunk() else {
        return;
    };
    let len = usize::from(u16::from_le_bytes(*len));
    let Some((present, archive)) = rest.split_at_checked(len) else {
        return;
    };
    let Some((first, rest)) = archive.split_at_checked(SUPERBLOCK_LEN) else {
        return;
    };
    let mut first = first.to_vec();
    first[..12].copy_from_slice(b"\x89gannet\r\n\x1a\n\0");
    let checksum = xxh3_64(&first[..4088]);
    first[4088..].copy_from_slice(&checksum.to_le_bytes());
    first[..12].copy_from_slice(b"\x89gnpart\r\n\x1a\n\0");
    let number = |at: usize| u64::from_le_bytes(*first[at..].first_chunk().unwrap());
    let (file_len, metadata) = (number(32), number(40));
    let data = Sparse {
        len: file_len,
        first: Mutex::new(first),
        rest_at: metadata,
        rest: rest.to_vec(),
        changed: SUPERBLOCK_LEN as u64..metadata,
    };
    let presence = Sparse {
        len: len as u64,
        first: Mutex::new(present.to_vec()),
        rest_at: u64::MAX,
        rest: Vec::new(),
        changed: 4096..len as u64,
    };
    let Ok(mut writer) = PartialWriter::of(data, file_len, presence, len as u64) else {
        return;
    };
    let count = writer.units().count();
    for number in (0..count.min(20)).chain(count.saturating_sub(5)..count) {
        let was_there = writer.has(number);
        let Ok(unit) = writer.unit(number) else {
            continue;
        };
        assert!(unit.len <= UNIT_LEN_MAX);
        assert!(unit.group.is_none() || unit.len <= GROUP_LEN);
        let start = unit.group.unwrap_or(0) * GROUP_LEN;
        let found = writer.units().in_blob(unit.blob, start..start + 1);
        assert_eq!(found, number..number + 1);
        let _ = writer.verify(&unit, b"not these");
        if !was_there {
            writer.set([number]).unwrap();
        }
        assert!(writer.has(number));
        if writer.remove(&[number]).is_ok() {
            assert!(!writer.has(number));
        }
    }
}
