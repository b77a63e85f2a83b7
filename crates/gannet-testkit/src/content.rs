//! Content in which every byte depends on its offset, so that any wrong byte is detected.

/// `len` bytes, none of them zero; files with another `seed` differ.
pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| pattern_byte(at, seed)).collect()
}

fn pattern_byte(at: usize, seed: u8) -> u8 {
    // The page number is included, so that swapped pages are detected.
    let mixed = at.wrapping_mul(31) ^ (at >> 12).wrapping_mul(97) ^ usize::from(seed);
    (mixed % 251) as u8 + 1
}

/// Asserts that bytes are the beginning of the pattern; names the first difference.
pub fn assert_pattern(got: &[u8], seed: u8) {
    if let Some(wrong) = unlike_pattern(got, seed) {
        panic!("{wrong}");
    }
}

/// Describes the first difference from the beginning of the pattern.
pub fn unlike_pattern(got: &[u8], seed: u8) -> Option<String> {
    let mut bytes = got.iter().enumerate();
    let (at, byte) = bytes.find(|(at, byte)| **byte != pattern_byte(*at, seed))?;
    let expect = pattern_byte(at, seed);
    Some(format!(
        "byte {at} of {} is {byte}, not {expect}",
        got.len()
    ))
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
