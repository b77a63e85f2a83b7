//! Wire vectors for reuse, so that a response costs no allocation.

use crate::limits;

/// Empty vectors with capacity.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    kept: Vec<Vec<u8>>,
}

impl Outputs {
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.kept
            .pop()
            .unwrap_or_else(|| Vec::with_capacity(limits::OUTPUT_CAPACITY))
    }

    pub(crate) fn give_back(&mut self, mut vec: Vec<u8>) {
        let fits = (1..=limits::OUTPUT_KEPT_CAPACITY_MAX).contains(&vec.capacity());
        if fits && self.kept.len() < limits::OUTPUTS_KEPT_MAX {
            vec.clear();
            self.kept.push(vec);
        }
    }
}
