//! Wire vectors for reuse, so that a response costs no allocation.

use crate::limits;

/// Empty vectors with capacity.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    kept: Vec<Vec<u8>>,
    /// Long ones, with whatever was in them: clearing costs as much as filling.
    large: Vec<Vec<u8>>,
}

impl Outputs {
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.kept
            .pop()
            .unwrap_or_else(|| Vec::with_capacity(limits::OUTPUT_CAPACITY))
    }

    /// A vector of this length, with any content.
    pub(crate) fn take_of(&mut self, len: usize) -> Vec<u8> {
        let mut vec = if len <= limits::OUTPUT_KEPT_CAPACITY_MAX {
            self.take()
        } else {
            self.large.pop().unwrap_or_default()
        };
        if vec.len() > len {
            vec.truncate(len);
        } else {
            vec.resize(len, 0);
        }
        vec
    }

    pub(crate) fn give_back(&mut self, mut vec: Vec<u8>) {
        let large = limits::OUTPUT_KEPT_CAPACITY_MAX + 1..=limits::OUTPUT_LARGE_MAX;
        if large.contains(&vec.capacity()) && self.large.len() < limits::OUTPUTS_LARGE_KEPT_MAX {
            self.large.push(vec);
            return;
        }
        let fits = (1..=limits::OUTPUT_KEPT_CAPACITY_MAX).contains(&vec.capacity());
        if fits && self.kept.len() < limits::OUTPUTS_KEPT_MAX {
            vec.clear();
            self.kept.push(vec);
        }
    }
}
