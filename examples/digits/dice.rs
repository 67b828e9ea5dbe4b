//! Chance on the host.

/// A generator of its own (splitmix64), not the device's: what is drawn decides what the device is given next, and is the same for every
/// device.
pub struct Dice(pub u64);

impl Dice {
    /// The numbers below `count`, shuffled.
    pub fn order(&mut self, count: usize) -> Vec<i32> {
        let mut order: Vec<i32> = (0..count as i32).collect();
        for last in (1..count).rev() {
            order.swap(last, self.below(last as u64 + 1) as usize);
        }
        order
    }

    /// A number from 0 to `limit - 1`: the high half of a product, which is even enough for limits this small.
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
    use super::Dice;

    #[test]
    fn a_shuffle_keeps_every_number_and_follows_its_seed() {
        let first = Dice(1).order(100);
        assert_eq!(first, Dice(1).order(100));
        assert_ne!(first, Dice(2).order(100));
        let mut sorted = first;
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<i32>>());
        assert!(Dice(1).order(0).is_empty());
    }
}
