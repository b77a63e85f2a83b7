//! Files of a partial release on a disk that loses power.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use gannet_store::SparseFile;

use crate::Numbers;

/// A file on a disk that loses power: what was not synced survives in part.
#[derive(Clone, Default)]
pub(crate) struct Platter {
    pub(crate) seen: Vec<u8>,
    durable: Vec<u8>,
    /// What was written since, in order; zeros for holes.
    pending: Vec<(u64, Vec<u8>)>,
}

/// Such a file, for as many changes as there is power for.
pub(crate) struct SimFile {
    pub(crate) platter: Arc<Mutex<Platter>>,
    /// Changes until the power goes.
    left: Arc<Mutex<u64>>,
}

impl SimFile {
    pub(crate) fn new(bytes: &[u8], left: &Arc<Mutex<u64>>) -> Self {
        let platter = Platter {
            seen: bytes.to_vec(),
            durable: bytes.to_vec(),
            pending: Vec::new(),
        };
        Self {
            platter: Arc::new(Mutex::new(platter)),
            left: Arc::clone(left),
        }
    }

    fn spend(&self) -> io::Result<()> {
        let mut left = self.left.lock().unwrap();
        *left = left.checked_sub(1).ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(())
    }
}

impl Platter {
    /// What is found when the power is back.
    pub(crate) fn survivor(&self, numbers: &mut Numbers) -> Vec<u8> {
        let mut file = self.durable.clone();
        for (at, bytes) in &self.pending {
            let len = match numbers.below(3) {
                0 => 0,
                1 => bytes.len(),
                _ => numbers.below(bytes.len() as u64 + 1) as usize,
            };
            file[*at as usize..][..len].copy_from_slice(&bytes[..len]);
        }
        file
    }
}

impl SparseFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        let platter = self.platter.lock().unwrap();
        let found = platter.seen.get(at as usize..at as usize + buffer.len());
        buffer.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.spend()?;
        let platter = &mut *self.platter.lock().unwrap();
        platter.seen[at as usize..][..bytes.len()].copy_from_slice(bytes);
        platter.pending.push((at, bytes.to_vec()));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.spend()?;
        let platter = &mut *self.platter.lock().unwrap();
        for (at, bytes) in platter.pending.drain(..) {
            platter.durable[at as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        Ok(())
    }

    fn identity(&self) -> io::Result<[u8; 24]> {
        Ok([0; 24])
    }

    fn punch(&self, range: Range<u64>) -> io::Result<()> {
        let zeros = vec![0; (range.end - range.start) as usize];
        self.write_at(&zeros, range.start)
    }

    fn allocated(&self) -> io::Result<u64> {
        Ok(0)
    }
}
