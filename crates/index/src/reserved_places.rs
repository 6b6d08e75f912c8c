//! The record of the places of an admitted gang, in its status.
//!
//! The places themselves are in an annotation of the wrapped objects, because they can be long. An author can change the
//! annotation, but not the status. So the status has a digest of the places, and other places are not believed.

use std::fmt;

use sha2::{Digest, Sha256};

const PREFIX: &str = "places sha256:";

/// The digest of the places of an admitted gang: the first 128 bits of their SHA-256. Other places have another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReservedPlaces(u128);

impl ReservedPlaces {
    /// The digest of an assignment, as [`crate::assignment_to_json`] formats it.
    pub fn of(assignment: &str) -> Self {
        let hash = Sha256::digest(assignment.as_bytes());
        Self(hash.iter().take(16).fold(0, |digest, byte| digest << 8 | u128::from(*byte)))
    }

    /// Parses the message of the condition `PlacesReserved`; `None` for other text.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        u128::from_str_radix(text.strip_prefix(PREFIX)?, 16).ok().map(Self)
    }
}

/// The message of the condition `PlacesReserved`. Exact, because it is read back.
impl fmt::Display for ReservedPlaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_read_back_exactly_and_differs_for_other_places() {
        let reserved = ReservedPlaces::of(r#"[{"a":1}]"#);
        assert_eq!(reserved.to_string(), "places sha256:b713f6d2a989e907c58516a7c8bb4877");
        assert_eq!(ReservedPlaces::parse(&reserved.to_string()), Some(reserved));
        assert_ne!(ReservedPlaces::of(r#"[{"b":1}]"#), reserved);
        assert_eq!(ReservedPlaces::parse("2 places"), None);
    }
}
