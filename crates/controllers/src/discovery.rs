//! Which resource serves a kind: asked once for each group and version, and again when definitions change.

use std::time::Duration;

use index::{Kind, KindState};
use kube::Client;
use serde::Deserialize;

use crate::api_calls;
use crate::error::Error;

/// First pause after a failed question.
const RETRY_FIRST: Duration = Duration::from_millis(100);
/// Longest pause.
const RETRY_LAST: Duration = Duration::from_secs(30);

/// What a group and version serves.
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
    /// Asks the API server until it answers. A group or version that it does not know serves nothing.
    pub(crate) async fn of(client: Client, api_version: String) -> Self {
        let root = if api_version.contains('/') { "/apis" } else { "/api" };
        let mut pause = RETRY_FIRST;
        loop {
            match api_calls::get(&client, &format!("{root}/{api_version}")).await {
                Ok(resources) => return resources,
                Err(Error::NotFound(_)) => return Self::default(),
                Err(error) => {
                    tracing::warn!(api_version, %error, "cannot learn what is served, asking again");
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY_LAST);
        }
    }

    /// What is known about a kind of this group and version.
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
