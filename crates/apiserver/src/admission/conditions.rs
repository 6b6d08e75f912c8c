//! Match conditions: CEL expressions over `object`, `oldObject` and `request`. There is no `authorizer`.

use serde_json::Value;

use crate::object;
use crate::schema::cel;

/// Whether all conditions hold for the `request` of a review. One that does not hold counts more than one that cannot be
/// evaluated.
///
/// # Errors
/// Why a condition cannot be evaluated.
pub(super) fn all_hold(conditions: &[Value], request: &Value) -> Result<bool, String> {
    if conditions.is_empty() {
        return Ok(true);
    }
    let mut request = request.clone();
    let [object, old] =
        ["object", "oldObject"].map(|field| object::remove(&mut request, &[field]).unwrap_or_default());
    let variables = [("object", object), ("oldObject", old), ("request", request)];
    let expressions: Vec<&str> =
        conditions.iter().map(|condition| object::text(condition, &["expression"])).collect();
    let mut failed = None;
    for (condition, result) in conditions.iter().zip(cel::evaluate_all(&expressions, &variables)) {
        match result {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(why) => {
                let name = object::text(condition, &["name"]);
                failed = failed.or(Some(format!("match condition {name:?}: {why}")));
            }
        }
    }
    failed.map_or(Ok(true), Err)
}
