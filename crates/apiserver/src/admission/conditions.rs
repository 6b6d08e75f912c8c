//! Match conditions: CEL expressions over `object`, `oldObject` and `request`. There is no `authorizer`.

use serde_json::{Value, json};

use super::calls;
use super::matching::Attributes;
use crate::object;
use crate::registry::Resource;
use crate::schema::cel;
use crate::status::Status;
use crate::user::User;

/// Whether all conditions hold. One that does not hold counts more than one that cannot be evaluated.
///
/// # Errors
/// Why a condition cannot be evaluated.
pub(super) fn all_hold(
    conditions: &[Value],
    variables: impl FnOnce() -> Result<Vec<(&'static str, Value)>, Status>,
) -> Result<bool, String> {
    if conditions.is_empty() {
        return Ok(true);
    }
    let variables = variables().map_err(|status| status.message().to_owned())?;
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

/// The variables of the conditions of a write.
pub(super) fn variables(
    write: &Attributes<'_>,
    version: &Resource,
    object: Option<Value>,
    old: Option<Value>,
    user: Option<&User>,
) -> Vec<(&'static str, Value)> {
    let request = user.map_or(json!({}), |user| calls::request(write, version, user));
    vec![("object", object.unwrap_or_default()), ("oldObject", old.unwrap_or_default()), ("request", request)]
}
