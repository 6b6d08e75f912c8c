//! Discovery: which resource serves a kind. One request for each group and version, repeated when CRDs change.

use std::time::Duration;

use index::{Kind, KindState};
use kube::Client;
use serde::Deserialize;

use crate::api_calls;
use crate::error::Error;

/// Delay before the first retry.
const RETRY_FIRST: Duration = Duration::from_millis(100);
/// Maximum delay between retries.
const RETRY_LAST: Duration = Duration::from_secs(30);

/// The resources of a group and version: an `APIResourceList`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Resources {
    resources: Vec<Resource>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Resource {
    name: String,
    kind: String,
    namespaced: bool,
}

impl Resources {
    /// Reads the resources of a group and version, and retries until the API server answers. An unknown group or
    /// version has no resources.
    pub(crate) async fn of(client: Client, api_version: String) -> Self {
        let root = if api_version.contains('/') { "/apis" } else { "/api" };
        let mut delay = RETRY_FIRST;
        loop {
            match api_calls::get(&client, &format!("{root}/{api_version}")).await {
                Ok(resources) => return resources,
                Err(Error::NotFound(_)) => return Self::default(),
                Err(error) => {
                    tracing::warn!(api_version, %error, "discovery failed, retrying");
                }
            }
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(RETRY_LAST);
        }
    }

    /// The state of a kind of this group and version.
    pub(crate) fn state(&self, kind: &Kind) -> KindState {
        let mut of_kind = self
            .resources
            .iter()
            .filter(|resource| resource.kind == kind.kind && !resource.name.contains('/'));
        match of_kind.next() {
            None => KindState::Missing,
            Some(resource) if !resource.namespaced => KindState::ClusterScoped,
            Some(resource) => KindState::Served { plural: resource.name.clone(), listed: false },
        }
    }
}
