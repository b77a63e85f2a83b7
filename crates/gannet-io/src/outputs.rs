//! Wire vectors for reuse, so that a response costs no allocation.

use crate::limits;

/// Empty vectors with capacity.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    kept: Vec<Vec<u8>>,
    /// Long ones, with stale content: clearing costs as much as filling.
    large: Vec<Vec<u8>>,
}

impl Outputs {
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.kept
            .pop()
            .unwrap_or_else(|| Vec::with_capacity(limits::OUTPUT_CAPACITY))
    }

    /// A long vector with room for this many bytes and not for far more, if one is kept.
    pub(crate) fn take_spare(&mut self, len: usize) -> Option<Vec<u8>> {
        let fits = |vec: &Vec<u8>| (len..=2 * len).contains(&vec.capacity());
        let at = self.large.iter().rposition(fits)?;
        Some(self.large.remove(at))
    }

    /// A vector of at least this length, with arbitrary content. Long ones keep their length:
    /// truncating one would mean clearing it when it grows again, only to be overwritten.
    pub(crate) fn take_of(&mut self, len: usize) -> Vec<u8> {
        let mut vec = if len <= limits::OUTPUT_KEPT_CAPACITY_MAX {
            self.take()
        } else {
            // Not a far longer one: a sender that waits for its peer holds all of it.
            self.take_spare(len).unwrap_or_default()
        };
        if vec.len() < len {
            vec.resize(len, 0);
        }
        vec
    }

    pub(crate) fn give_back(&mut self, mut vec: Vec<u8>) {
        let large = limits::OUTPUT_KEPT_CAPACITY_MAX + 1..=limits::OUTPUT_LARGE_MAX;
        if large.contains(&vec.capacity()) {
            if self.large.len() >= limits::OUTPUTS_LARGE_KEPT_MAX {
                // The least recently used length.
                self.large.remove(0);
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_vectors_stay_as_long_as_they_were() {
        let mut outputs = Outputs::default();
        let long = limits::OUTPUT_KEPT_CAPACITY_MAX + 1;
        let mut vec = outputs.take_of(2 * long);
        vec.fill(7);
        let memory = vec.as_ptr();
        outputs.give_back(vec);
        let vec = outputs.take_of(long);
        assert_eq!((vec.as_ptr(), vec.len()), (memory, 2 * long));
        assert!(vec.iter().all(|byte| *byte == 7), "nothing was cleared");
        outputs.give_back(vec);
        assert!(outputs.take_of(3 * long).len() >= 3 * long);
        // A far longer one stays for a caller that needs it.
        outputs.give_back(vec![0; 5 * long]);
        assert!(outputs.take_of(2 * long).capacity() <= 4 * long);
        assert_eq!(outputs.take_of(4 * long).len(), 5 * long);
        // Recent lengths are kept, not those requested once.
        for len in [3 * long; limits::OUTPUTS_LARGE_KEPT_MAX] {
            outputs.give_back(vec![0; len]);
        }
        outputs.give_back(vec![9; 7 * long]);
        assert_eq!(outputs.take_of(7 * long)[0], 9);
        // Short ones have the requested length; elsewhere they begin empty.
        outputs.give_back(vec![1; 100]);
        assert_eq!(outputs.take_of(50).len(), 50);
        outputs.give_back(vec![1; 100]);
        assert!(outputs.take().is_empty());
    }
}
