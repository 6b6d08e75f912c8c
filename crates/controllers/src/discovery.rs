//! Discovery: which resource serves a kind. One request for each group and version, repeated as long as kinds of it
//! have no resource.

use std::sync::Arc;
use std::time::Duration;

use index::{Kind, KindState};
use kube::Client;
use serde::Deserialize;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedSender;

use crate::api_calls;
use crate::backoff::ExponentialBackoff;
use crate::error::Error;
use crate::observations::Observation;

/// Backoff of requests that fail.
const RETRY: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_millis(100), Duration::from_secs(30));
/// Backoff after an answer without the kinds that are looked for: what serves them may be installed later.
const REPEAT: ExponentialBackoff = ExponentialBackoff::new(Duration::from_secs(5), Duration::from_mins(1));
/// Timeout of one request. A group may be served by an aggregated API server that does not answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The verbs that a wrapped kind needs: without them its objects cannot be created, observed or removed.
const VERBS: [&str; 5] = ["create", "delete", "get", "list", "watch"];

/// The resources of a group and version: an `APIResourceList`.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Resources {
    #[serde(deserialize_with = "api::meta::null_is_default")]
    resources: Vec<Resource>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Resource {
    name: String,
    kind: String,
    namespaced: bool,
    verbs: Vec<String>,
}

impl Resources {
    /// Reads the resources of a group and version. An unknown group or version has no resources.
    pub(crate) async fn read(client: &Client, api_version: &str) -> Result<Self, Error> {
        let root = if api_version.contains('/') { "/apis" } else { "/api" };
        let path = format!("{root}/{api_version}");
        match tokio::time::timeout(TIMEOUT, api_calls::get(client, &path)).await {
            Ok(Err(Error::NotFound(_))) => Ok(Self::default()),
            Ok(answer) => answer,
            Err(_) => Err(Error::Unreachable(format!("no answer within {} s", TIMEOUT.as_secs()))),
        }
    }

    /// The plural of a kind of this group and version, and whether it is namespaced.
    pub(crate) fn resource(&self, kind: &Kind) -> Option<(&str, bool)> {
        let mut resources = self.resources.iter();
        let found = resources.find(|resource| resource.kind == kind.kind && !resource.name.contains('/'))?;
        Some((&found.name, found.namespaced))
    }

    /// The state of a kind of this group and version.
    pub(crate) fn state(&self, kind: &Kind) -> KindState {
        let of_kind = self
            .resources
            .iter()
            .filter(|resource| resource.kind == kind.kind && !resource.name.contains('/'));
        match of_kind.min_by_key(|resource| resource.missing_verbs().len()) {
            None => KindState::Missing,
            Some(resource) if !resource.missing_verbs().is_empty() => {
                KindState::WithoutVerbs(resource.missing_verbs())
            }
            Some(resource) if !resource.namespaced => KindState::ClusterScoped,
            Some(resource) => KindState::Served { plural: resource.name.clone(), listed: false },
        }
    }
}

impl Resource {
    fn missing_verbs(&self) -> Vec<String> {
        let missing = VERBS.into_iter().filter(|verb| self.verbs.iter().all(|own| own != verb));
        missing.map(str::to_owned).collect()
    }
}

/// Pause before the first request when the resource that discovery named does not exist (404).
pub(crate) const AFTER_NOT_FOUND: Duration = Duration::from_secs(5);

/// Asks for the resources of a group and version until the task is aborted, and reports each answer. A failure is
/// reported when it repeats: an API server that has just started may fail for a moment.
pub(crate) async fn discover(
    client: Client,
    api_version: String,
    first_pause: Duration,
    requests: Arc<Semaphore>,
    observations: UnboundedSender<Observation>,
) {
    let (mut retry, mut repeat) = (RETRY, REPEAT);
    let mut has_failed = false;
    tokio::time::sleep(first_pause).await;
    loop {
        // The semaphore is never closed.
        let permit = requests.acquire().await.ok();
        let answer = Resources::read(&client, &api_version).await;
        drop(permit);
        let (report, pause) = match answer {
            Ok(resources) => {
                (retry, has_failed) = (RETRY, false);
                (Some(Observation::Discovered(api_version.clone(), resources)), repeat.next())
            }
            Err(error) => {
                let is_repeated = std::mem::replace(&mut has_failed, true);
                if !is_repeated {
                    tracing::warn!(api_version, %error, "discovery failed, retrying");
                }
                let report = Observation::DiscoveryFailed(api_version.clone(), error.to_string());
                (is_repeated.then_some(report), retry.next())
            }
        };
        // The receiver is gone when the controller has ended.
        if report.is_some_and(|report| observations.send(report).is_err()) {
            return;
        }
        tokio::time::sleep(pause.unwrap_or(TIMEOUT)).await;
    }
}
