//! Maps of labels and annotations, wherever in an object they stand.

use serde_json::Value;

use crate::names;
use crate::schema::{FieldError, Path};

/// Most bytes that all annotations of an object may have together.
const ANNOTATIONS_BYTES_MAX: usize = 256 << 10;

/// Checks a map of labels (or of what must match them).
pub(crate) fn check_labels(map: &Value, path: Path<'_>, errors: &mut Vec<FieldError>) {
    for (key, value) in map.as_object().into_iter().flatten() {
        if let Err(reason) = names::qualified(key) {
            errors.push(FieldError::invalid(path, key.as_str(), &reason));
        }
        let text = value.as_str().unwrap_or_default();
        if let Err(reason) = names::label_value(text) {
            errors.push(FieldError::invalid(path, text, &reason));
        }
    }
}

/// Checks a map of annotations; their keys may have upper case letters in front of the slash as well.
pub(crate) fn check_annotations(map: &Value, path: Path<'_>, errors: &mut Vec<FieldError>) {
    let mut size = 0;
    for (key, value) in map.as_object().into_iter().flatten() {
        if let Err(reason) = names::qualified(&key.to_lowercase()) {
            errors.push(FieldError::invalid(path, key.as_str(), &reason));
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS_BYTES_MAX {
        errors.push(FieldError::too_long(path, ANNOTATIONS_BYTES_MAX as u64));
    }
}
