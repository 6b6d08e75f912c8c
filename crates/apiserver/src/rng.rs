//! A seeded random number generator: the same seed and calls give the same uids and generated names.

/// `SplitMix64` (Steele, Lea and Flood 2014); sufficient for identifiers.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

/// The alphabet of generated name suffixes of Kubernetes: no vowels, so that no words appear, and no look-alikes.
const SUFFIX_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`. The modulo bias is acceptable for names.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// A random (version 4) UUID.
    pub(crate) fn uid(&mut self) -> String {
        let bits = (u128::from(self.next()) << 64) | u128::from(self.next());
        uuid::Builder::from_u128(bits)
            .with_variant(uuid::Variant::RFC4122)
            .with_version(uuid::Version::Random)
            .into_uuid()
            .to_string()
    }

    /// The five-character suffix of a generated name.
    pub(crate) fn suffix(&mut self) -> String {
        (0..5)
            .map(|_| {
                let pick = usize::try_from(self.below(27)).expect("below 27 fits any usize");
                char::from(SUFFIX_ALPHABET[pick])
            })
            .collect()
    }
}
