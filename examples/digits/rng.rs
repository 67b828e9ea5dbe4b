//! A random number generator on the host.

/// A splitmix64 random number generator. Holds the seed, then the state.
///
/// The host draws the order of the training images, so the order is the same on every device.
pub struct Rng(pub u64);

impl Rng {
    /// Returns a random permutation of the numbers from 0 to `count - 1`.
    pub fn permutation(&mut self, count: usize) -> Vec<i32> {
        let mut permutation: Vec<i32> = (0..count as i32).collect();
        for last in (1..count).rev() {
            permutation.swap(last, self.below(last as u64 + 1) as usize);
        }
        permutation
    }

    /// Returns a random number from 0 to `limit - 1`.
    ///
    /// The number is the high half of a 128-bit product. Its bias is negligible for small limits.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        ((u128::from(z) * u128::from(limit)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::Rng;

    #[test]
    fn permutation_contains_every_number_and_depends_on_the_seed() {
        let first = Rng(1).permutation(100);
        assert_eq!(first, Rng(1).permutation(100));
        assert_ne!(first, Rng(2).permutation(100));
        let mut sorted = first;
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<i32>>());
        assert!(Rng(1).permutation(0).is_empty());
    }
}
