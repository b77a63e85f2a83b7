//! Numbers that depend on a seed alone.

/// The SplitMix64 generator, by Sebastiano Vigna: small, seeded, good enough for sizes, bytes and choices.
pub struct SplitMix(pub u64);

impl SplitMix {
    /// The next number.
    #[expect(
        clippy::should_implement_trait,
        reason = "it never ends, so that an iterator's Option would be noise"
    )]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of the generator's published code.
    #[test]
    fn the_first_numbers_of_a_seed() {
        let mut random = SplitMix(1_234_567);
        let found = [0; 3].map(|_| random.next());
        let expect = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!(found, expect);
    }
}
