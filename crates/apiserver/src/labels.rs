//! Validation of labels and annotations, at any path of an object.

use serde_json::Value;

use crate::field_error::{FieldError, Path};
use crate::names;

/// Maximum total size of the annotations of an object.
const ANNOTATIONS_BYTES_MAX: i64 = 256 << 10;

/// Validates a label key. A key without a name part gives two errors, as in kube-apiserver.
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

/// Validates a map of labels, such as `metadata.labels` or `matchLabels`.
pub(crate) fn check_labels(map: &Value, path: Path<'_>, errors: &mut Vec<FieldError>) {
    for (key, value) in map.as_object().into_iter().flatten() {
        check_key(key, key, path, errors);
        let text = value.as_str().unwrap_or_default();
        if let Err(reason) = names::label_value(text) {
            errors.push(FieldError::invalid(path, text, &reason));
        }
    }
}

/// Validates a map of annotations. Unlike label keys, their keys may have upper case letters in the prefix.
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
