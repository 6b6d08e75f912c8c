//! Reviews that the API server sends: `AdmissionReview` of `admission.k8s.io/v1`, `ConversionReview` of
//! `apiextensions.k8s.io/v1`.

use api::kueue;
use api::kueue::webhooks::{self, Context, JobDefaults, Operation};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

/// A body that is no review of the expected kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the body is not a {kind} with {field}")]
pub struct Malformed {
    kind: &'static str,
    field: &'static str,
}

const ADMISSION: &str = "AdmissionReview";
const CONVERSION: &str = "ConversionReview";

/// Defaults an object of Kueue: allows it with a patch.
pub(super) fn default(
    resource: &str,
    review: &Value,
    of_jobs: &JobDefaults,
    context: &Context,
) -> Result<Value, Malformed> {
    let request = Request::of(review)?;
    let mut response = request.allowed();
    let Some(operation) = request.operation() else { return Ok(admitted(response)) };
    let mut object = request.object()?.clone();
    webhooks::default(resource, operation, &mut object, of_jobs, context);
    let patch = json_patch::diff(request.object()?, &object);
    if !patch.is_empty() {
        let patch = serde_json::to_vec(&patch).unwrap_or_default();
        response.insert("patchType".into(), "JSONPatch".into());
        response.insert("patch".into(), STANDARD.encode(patch).into());
    }
    Ok(admitted(response))
}

/// Validates an object of Kueue. The denial has the code and the text that Kueue's has.
pub(super) fn validate(
    resource: &str,
    review: &Value,
    of_jobs: &JobDefaults,
    context: &Context,
) -> Result<Value, Malformed> {
    let request = Request::of(review)?;
    let mut response = request.allowed();
    let Some(operation) = request.operation() else { return Ok(admitted(response)) };
    let object = request.object()?;
    let errors = webhooks::validate(resource, operation, object, request.old(), of_jobs, context);
    if !errors.is_empty() {
        let message = webhooks::aggregate(&errors);
        response.insert("allowed".into(), false.into());
        response.insert("status".into(), json!({"code": 403, "reason": "Forbidden", "message": message}));
    }
    let warnings = webhooks::warnings(resource, operation, object, context);
    if !warnings.is_empty() {
        response.insert("warnings".into(), warnings.into());
    }
    Ok(admitted(response))
}

/// Converts the objects of a review: all of them, or none.
pub(super) fn convert(mut review: Value) -> Result<Value, Malformed> {
    let malformed = |field| Malformed { kind: CONVERSION, field };
    let request = review.get_mut("request").ok_or_else(|| malformed("a request"))?;
    let uid = request.get("uid").filter(|uid| uid.is_string()).cloned().ok_or_else(|| malformed("a uid"))?;
    let version = request.get("desiredAPIVersion").and_then(Value::as_str).map(str::to_owned);
    let version = version.ok_or_else(|| malformed("a desiredAPIVersion"))?;
    let objects = request.get_mut("objects").and_then(Value::as_array_mut).map(std::mem::take);
    let mut objects = objects.ok_or_else(|| malformed("objects"))?;
    let converted = objects.iter_mut().try_for_each(|object| {
        kueue::convert(object, &version).map_err(|error| format!("{}: {error}", described(object)))
    });
    let response = match converted {
        Ok(()) => json!({"uid": uid, "result": {"status": "Success"}, "convertedObjects": objects}),
        Err(message) => json!({"uid": uid, "result": {"status": "Failure", "message": message}}),
    };
    Ok(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": CONVERSION, "response": response}))
}

/// The request of an `AdmissionReview`.
struct Request<'a> {
    fields: &'a Map<String, Value>,
    uid: &'a Value,
}

impl<'a> Request<'a> {
    fn of(review: &'a Value) -> Result<Self, Malformed> {
        let malformed = |field| Malformed { kind: ADMISSION, field };
        let fields =
            review.get("request").and_then(Value::as_object).ok_or_else(|| malformed("a request"))?;
        let uid = fields.get("uid").filter(|uid| uid.is_string()).ok_or_else(|| malformed("a uid"))?;
        Ok(Self { fields, uid })
    }

    /// `None` if there is nothing to default or to validate: a deletion, or a connection.
    fn operation(&self) -> Option<Operation> {
        match self.fields.get("operation").and_then(Value::as_str) {
            Some("CREATE") => Some(Operation::Create),
            Some("UPDATE") => Some(Operation::Update),
            _ => None,
        }
    }

    fn object(&self) -> Result<&'a Value, Malformed> {
        let object = self.fields.get("object").filter(|object| object.is_object());
        object.ok_or(Malformed { kind: ADMISSION, field: "an object" })
    }

    fn old(&self) -> Option<&'a Value> {
        self.fields.get("oldObject").filter(|object| object.is_object())
    }

    fn allowed(&self) -> Map<String, Value> {
        Map::from_iter([("uid".to_owned(), self.uid.clone()), ("allowed".to_owned(), true.into())])
    }
}

fn admitted(response: impl Into<Value>) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": ADMISSION, "response": response.into()})
}

/// Kind and name of an object.
fn described(object: &Value) -> String {
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    format!("{} {}", text(object, "kind"), text(&object["metadata"], "name")).trim().to_owned()
}
