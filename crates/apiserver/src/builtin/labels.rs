//! Maps of labels and annotations, wherever in an object they stand.

use serde_json::Value;

use crate::names;
use crate::schema::{FieldError, Path};

/// Most bytes that all annotations of an object may have together.
const ANNOTATIONS_BYTES_MAX: i64 = 256 << 10;

/// Checks one key of labels. A key without a name part is wrong in two ways, as on a real server.
pub(crate) fn check_key(key: &str, shown: &str, path: Path<'_>, errors: &mut Vec<FieldError>) {
    if let Err(reason) = names::qualified(key) {
        errors.push(FieldError::invalid(path, shown, &reason));
        if key.rsplit('/').next() == Some("")
            && let Err(malformed) = names::qualified("-")
        {
            errors.push(FieldError::invalid(path, shown, &malformed));
        }
    }
}

/// Checks a map of labels (or of what must match them).
pub(crate) fn check_labels(map: &Value, path: Path<'_>, errors: &mut Vec<FieldError>) {
    for (key, value) in map.as_object().into_iter().flatten() {
        check_key(key, key, path, errors);
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
        check_key(&key.to_lowercase(), key, path, errors);
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if i64::try_from(size).unwrap_or(i64::MAX) > ANNOTATIONS_BYTES_MAX {
        errors.push(FieldError::too_long(path, ANNOTATIONS_BYTES_MAX));
    }
}
