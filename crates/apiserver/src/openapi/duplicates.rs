//! Duplicate fields in JSON text, which are lost once the text is parsed.

use std::collections::BTreeSet;
use std::fmt;

use super::push_index;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// Paths of the fields that occur more than once in the same JSON object, in the order of the text: `spec.replicas`.
///
/// Empty for malformed JSON, which the parser reports.
pub fn duplicate_fields(body: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let mut path = String::new();
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let scanned = Scan { path: &mut path, found: &mut found }.deserialize(&mut deserializer);
    if scanned.is_err() {
        found.clear();
    }
    found
}

struct Scan<'a> {
    path: &'a mut String,
    found: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Scan<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Scan<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = BTreeSet::new();
        while let Some(name) = map.next_key::<String>()? {
            let mark = self.path.len();
            if mark > 0 {
                self.path.push('.');
            }
            self.path.push_str(&name);
            if !seen.insert(name) && !self.found.contains(self.path) {
                self.found.push(self.path.clone());
            }
            map.next_value_seed(Scan { path: self.path, found: self.found })?;
            self.path.truncate(mark);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        for index in 0usize.. {
            let mark = self.path.len();
            push_index(self.path, index);
            let item = items.next_element_seed(Scan { path: self.path, found: self.found })?;
            self.path.truncate(mark);
            if item.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_fields_are_reported_with_their_paths() {
        let body = br#"{"a": 1, "spec": {"x": [{"y": 1, "y": 2}], "z": null, "z": 3}, "a": 2}"#;
        assert_eq!(duplicate_fields(body), ["spec.x[0].y", "spec.z", "a"]);
        assert!(duplicate_fields(br#"{"a": 1, "a": "#).is_empty());
    }
}
