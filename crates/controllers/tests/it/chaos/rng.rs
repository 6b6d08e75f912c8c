//! A random generator with a seed: the same numbers in every build.

/// `SplitMix64`.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// True in so many of a hundred cases.
    pub(crate) fn percent(&mut self, share: u64) -> bool {
        self.next() % 100 < share
    }

    /// One of the values.
    pub(crate) fn pick<T: Clone>(&mut self, values: &[T]) -> T {
        let count = u64::try_from(values.len()).unwrap();
        values[usize::try_from(self.next() % count).unwrap()].clone()
    }
}
