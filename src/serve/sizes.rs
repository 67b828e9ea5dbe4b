//! The sizes of batches.

/// The sizes to which batches are padded: powers of two, and the largest batch. A kernel is compiled, and products are
/// tuned, for few shapes, before the first request arrives.
///
/// ```
/// use burn_wgsl::serve::PaddedSizes;
///
/// let sizes = PaddedSizes::up_to(12);
/// assert_eq!(sizes.iter().collect::<Vec<_>>(), [1, 2, 4, 8, 12]);
/// assert_eq!((sizes.padded(1), sizes.padded(5), sizes.padded(12)), (1, 8, 12));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaddedSizes {
    largest: usize,
}

impl PaddedSizes {
    /// Creates the sizes of batches of up to `largest` requests.
    ///
    /// # Panics
    ///
    /// Panics if `largest` is 0.
    pub fn up_to(largest: usize) -> Self {
        assert!(largest > 0, "a batch has a request");
        Self { largest }
    }

    /// Returns the largest size.
    pub fn largest(self) -> usize {
        self.largest
    }

    /// Returns all sizes, in ascending order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let powers = std::iter::successors(Some(1usize), |size| size.checked_mul(2));
        powers.take_while(move |size| *size < self.largest).chain([self.largest])
    }

    /// Returns the size for so many requests.
    ///
    /// # Panics
    ///
    /// Panics if there are more than [`largest`](Self::largest).
    pub fn padded(self, requests: usize) -> usize {
        assert!(requests <= self.largest, "{requests} requests, and batches of {}", self.largest);
        requests.next_power_of_two().min(self.largest)
    }
}
