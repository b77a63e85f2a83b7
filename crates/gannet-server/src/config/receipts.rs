//! What the process beside the server that receives releases has counted, in memory that both have.
//!
//! That process writes the whole record after each change, and one that is started after it continues with it.
//! The server reads it when it is asked for its metrics, and takes nothing but numbers from it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// The memory of both; equal only to itself.
#[derive(Clone, Debug)]
pub struct Receipts(Arc<File>);

/// What was counted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ReceiverCounts {
    /// Connections.
    pub connections: u64,
    /// Bytes that publishers have sent whose pointers were good.
    pub bytes: u64,
    /// Releases that came into force.
    pub releases: u64,
    /// The serial of the last one.
    pub serial: u64,
    /// When it came into force, in Unix seconds.
    pub activated: u64,
    /// Connections that brought nothing, by reason.
    pub refused: [u64; ReceiverRefusal::ALL.len()],
}

/// Why a connection brought nothing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReceiverRefusal {
    /// There was no place for it.
    Crowded,
    /// The handshake of TLS failed.
    Tls,
    /// The certificate cannot be used.
    Certificate,
    /// It asked for something else, or for nothing.
    Protocol,
    /// What it said is not what publishers say, or it showed no pointer.
    Malformed,
    /// The key has not signed the pointer.
    Signature,
    /// The pointer has expired.
    Expired,
    /// The pointer is older than the one in force.
    Older,
    /// Another publisher was at work.
    Busy,
    /// The release has no room.
    Room,
    /// The release is not what the pointer names.
    Damaged,
    /// The store cannot be read or written.
    Store,
    /// It ended early, or was too slow.
    Left,
}

impl ReceiverRefusal {
    /// All of them, with their names in the metrics.
    pub(crate) const ALL: [(Self, &'static str); 13] = [
        (Self::Crowded, "crowded"),
        (Self::Tls, "tls"),
        (Self::Certificate, "certificate"),
        (Self::Protocol, "protocol"),
        (Self::Malformed, "malformed"),
        (Self::Signature, "signature"),
        (Self::Expired, "expired"),
        (Self::Older, "older"),
        (Self::Busy, "busy"),
        (Self::Room, "room"),
        (Self::Damaged, "damaged"),
        (Self::Store, "store"),
        (Self::Left, "left"),
    ];
}

/// Numbers in a record, of eight bytes each.
const NUMBERS: usize = 5 + ReceiverRefusal::ALL.len();

/// How often a record is read that changes meanwhile.
const READ_MAX: usize = 8;

impl Receipts {
    /// The length in bytes of a record.
    pub const LEN: u64 = 8 * NUMBERS as u64;

    /// A file in memory, which may be empty, or have zeros.
    #[must_use]
    pub fn new(memory: File) -> Self {
        Self(Arc::new(memory))
    }

    /// Writes a record.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn write(&self, counts: &ReceiverCounts) -> io::Result<()> {
        let ReceiverCounts {
            connections,
            bytes,
            releases,
            serial,
            activated,
            refused,
        } = counts;
        let first = [connections, bytes, releases, serial, activated];
        let numbers = first.into_iter().chain(refused);
        let record: Vec<u8> = numbers.flat_map(|it| it.to_le_bytes()).collect();
        self.0.write_all_at(&record, 0)
    }

    /// Reads the last record. One that is being written is read again.
    #[must_use]
    pub fn read(&self) -> ReceiverCounts {
        let mut record = self.bytes();
        for _ in 0..READ_MAX {
            let before = std::mem::replace(&mut record, self.bytes());
            if record == before {
                break;
            }
        }
        let at = |at: usize| {
            let bytes = record[8 * at..].first_chunk();
            u64::from_le_bytes(*bytes.expect("the record has NUMBERS"))
        };
        ReceiverCounts {
            connections: at(0),
            bytes: at(1),
            releases: at(2),
            serial: at(3),
            activated: at(4),
            refused: std::array::from_fn(|reason| at(5 + reason)),
        }
    }

    fn bytes(&self) -> [u8; 8 * NUMBERS] {
        let mut record = [0; 8 * NUMBERS];
        // Nothing was written yet.
        let _ = self.0.read_exact_at(&mut record, 0);
        record
    }
}

impl PartialEq for Receipts {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Receipts {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_as_they_were_written() {
        let folder = gannet_testkit::Folder::new();
        let path = folder.write("memory", "");
        let open = || {
            let file = File::options().read(true).write(true).open(&path);
            Receipts::new(file.expect("it is there"))
        };
        assert_eq!(open().read(), ReceiverCounts::default());
        let mut counts = ReceiverCounts {
            connections: 1,
            bytes: 2,
            releases: 3,
            serial: 4,
            activated: 5,
            ..ReceiverCounts::default()
        };
        for (number, (reason, _)) in ReceiverRefusal::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, number);
            counts.refused[number] = u64::MAX - number as u64;
        }
        open().write(&counts).expect("there is room");
        assert_eq!(open().read(), counts);
    }
}
