//! Kueue's webhooks: the paths that its webhook configurations and definitions name, and what answers there.
//!
//! [`Webhooks::answer`] is a pure function. Objects of Kueue's own kinds are defaulted, validated and converted by
//! `api::kueue`, and so are managed jobs. Other jobs are allowed without a patch, as by a Kueue whose integrations are off.

mod configurations;
mod namespaces;
mod paths;
pub(crate) mod registration;
mod remote_queues;
mod reviews;

use api::kueue::feature_gates::FeatureGates;
use api::kueue::jobs::queue_name;
use api::kueue::webhooks::{Context, JobDefaults, JobRules};
use axum::Json;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing};
use serde_json::Value;

pub use configurations::RegisteredJobs;
pub use namespaces::{NamespaceWatches, Namespaces};
use paths::Hook;
pub use registration::remove_registration;
pub use reviews::Malformed;

/// Largest review. A conversion of a list has many objects: kube-apiserver converts up to 500 at once.
const BODY_BYTES_MAX: usize = 1 << 30;

/// Kueue's webhooks.
#[derive(Debug, Clone)]
pub struct Webhooks {
    context: Context,
    /// What is known of the namespaces. Without it, jobs get no queue by default.
    namespaces: Option<Namespaces>,
}

impl Webhooks {
    /// Webhooks with these feature gates, for these jobs.
    pub fn new(gates: &FeatureGates, jobs: JobRules) -> Self {
        Self { context: Context { gates: gates.into(), jobs }, namespaces: None }
    }

    /// The same webhooks, which complete jobs by what is known of their namespaces.
    #[must_use]
    pub fn knowing(self, namespaces: Namespaces) -> Self {
        Self { namespaces: Some(namespaces), ..self }
    }

    /// What is known beside a job in a review.
    fn defaults(&self, review: &Value) -> JobDefaults {
        let namespace = review["request"]["namespace"].as_str().unwrap_or_default();
        self.namespaces.as_ref().map(|known| known.defaults(namespace)).unwrap_or_default()
    }

    /// Answers a review that the API server posts to a path; `None` if Kueue has no such webhook.
    pub fn answer(&self, path: &str, review: Value) -> Option<Result<Value, Malformed>> {
        self.answer_knowing(path, review, false)
    }

    /// The same, about an object that names a controller which is not there, or none or another one.
    fn answer_knowing(
        &self,
        path: &str,
        review: Value,
        is_ownerless: bool,
    ) -> Option<Result<Value, Malformed>> {
        let of_job = || JobDefaults { is_ownerless, ..self.defaults(&review) };
        Some(match paths::hook(path)? {
            Hook::Convert => reviews::convert(review),
            Hook::Default(resource) => {
                reviews::default(resource, &review, &JobDefaults::default(), &self.context)
            }
            Hook::DefaultJob(resource) => reviews::default(resource, &review, &of_job(), &self.context),
            Hook::Validate(resource) => {
                reviews::validate(resource, &review, &JobDefaults::default(), &self.context)
            }
            Hook::ValidateJob(resource) => reviews::validate(resource, &review, &of_job(), &self.context),
        })
    }

    /// The same, with what the API server says about the namespace and the controller of a new job. It is asked about the controller
    /// only if the job has a queue or may get one.
    pub async fn review(&self, path: &str, review: Value) -> Option<Result<Value, Malformed>> {
        let mut is_ownerless = false;
        if let (Some(Hook::DefaultJob(_)), Some(namespaces)) = (paths::hook(path), &self.namespaces) {
            namespaces.first().await;
            let request = &review["request"];
            let (job, namespace) = (&request["object"], request["namespace"].as_str().unwrap_or_default());
            let may_queue = !queue_name(job).is_empty()
                || self.context.jobs.manages_unnamed
                || self.defaults(&review).has_queue;
            is_ownerless = may_queue && namespaces.is_ownerless(namespace, job).await;
        }
        self.answer_knowing(path, review, is_ownerless)
    }

    /// Serves the webhooks.
    pub fn router(self) -> Router {
        Router::new()
            .fallback_service(routing::post(answer).with_state(self))
            .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
    }
}

async fn answer(State(webhooks): State<Webhooks>, uri: Uri, Json(review): Json<Value>) -> Response {
    match webhooks.review(uri.path(), review).await {
        None => (StatusCode::NOT_FOUND, format!("there is no webhook at {}\n", uri.path())).into_response(),
        Some(Ok(answer)) => Json(answer).into_response(),
        Some(Err(malformed)) => (StatusCode::BAD_REQUEST, format!("{malformed}\n")).into_response(),
    }
}
