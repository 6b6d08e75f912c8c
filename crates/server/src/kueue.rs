//! Kueue's webhooks: the paths that its webhook configurations and definitions name, and what answers there.
//!
//! [`Webhooks::answer`] is a pure function. Objects of Kueue's own kinds are defaulted, validated and converted by
//! `api::kueue`, and so are managed jobs. Other jobs are allowed without a patch, as by a Kueue whose integrations are off.

mod paths;
pub(crate) mod registration;
mod reviews;

use api::kueue::feature_gates::FeatureGates;
use api::kueue::webhooks::{Context, JobRules};
use axum::Json;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing};
use serde_json::Value;

use paths::Hook;
pub use registration::remove_registration;
pub use reviews::Malformed;

/// Largest review. A conversion of a list has many objects: kube-apiserver converts up to 500 at once.
const BODY_BYTES_MAX: usize = 1 << 30;

/// Kueue's webhooks.
#[derive(Debug, Clone)]
pub struct Webhooks {
    context: Context,
}

impl Webhooks {
    /// Webhooks with these feature gates, for these jobs.
    pub fn new(gates: &FeatureGates, jobs: JobRules) -> Self {
        Self { context: Context { gates: gates.into(), jobs } }
    }

    /// Answers a review that the API server posts to a path; `None` if Kueue has no such webhook.
    pub fn answer(&self, path: &str, review: Value) -> Option<Result<Value, Malformed>> {
        Some(match paths::hook(path)? {
            Hook::Convert => reviews::convert(review),
            Hook::Default(resource) | Hook::DefaultJob(resource) => {
                reviews::default(resource, &review, &self.context)
            }
            Hook::Validate(resource) | Hook::ValidateJob(resource) => {
                reviews::validate(resource, &review, &self.context)
            }
            Hook::Allow => reviews::allow(&review),
        })
    }

    /// Serves the webhooks.
    pub fn router(self) -> Router {
        Router::new()
            .fallback_service(routing::post(answer).with_state(self))
            .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
    }
}

async fn answer(State(webhooks): State<Webhooks>, uri: Uri, Json(review): Json<Value>) -> Response {
    match webhooks.answer(uri.path(), review) {
        None => (StatusCode::NOT_FOUND, format!("there is no webhook at {}\n", uri.path())).into_response(),
        Some(Ok(answer)) => Json(answer).into_response(),
        Some(Err(malformed)) => (StatusCode::BAD_REQUEST, format!("{malformed}\n")).into_response(),
    }
}
