//! Content whose every byte is known by its place, so that a wrong one is found at once.

/// `len` bytes, none of them zero; `seed` makes them different from those of another file.
pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| pattern_byte(at, seed)).collect()
}

fn pattern_byte(at: usize, seed: u8) -> u8 {
    // The page's number takes part, so that pages cannot be exchanged unnoticed.
    let mixed = at.wrapping_mul(31) ^ (at >> 12).wrapping_mul(97) ^ usize::from(seed);
    (mixed % 251) as u8 + 1
}

/// Fails with the first place at which bytes differ from the pattern's beginning.
pub fn assert_pattern(got: &[u8], seed: u8) {
    let wrong = got
        .iter()
        .enumerate()
        .find(|(at, byte)| **byte != pattern_byte(*at, seed));
    if let Some((at, byte)) = wrong {
        panic!(
            "byte {at} of {} is {byte}, not {}",
            got.len(),
            pattern_byte(at, seed)
        );
    }
}

/// A deterministic source of numbers (xorshift).
pub struct Numbers(pub u64);

impl Numbers {
    /// The next number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}
