//! The `LocalQueue` objects whose Workloads run in other clusters: their `ClusterQueue` has an admission check of `MultiKueue`.

use std::collections::BTreeSet;

use api::kueue::jobs::remote::CONTROLLER;
use api::kueue::{GROUP, V1BETA2};
use futures::future::{BoxFuture, join3};
use futures::{FutureExt as _, future};
use kube::Client;
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::Config;
use serde_json::Value;

use super::namespaces::{queues, reflected};
use crate::registration::resource;

/// What watches have shown. Clones share it.
#[derive(Clone)]
pub(super) struct RemoteQueues {
    local: Store<DynamicObject>,
    cluster: Store<DynamicObject>,
    checks: Store<DynamicObject>,
}

impl RemoteQueues {
    /// What `client` may read; and the watches, which run with the future and retry forever.
    pub(super) fn watch(client: &Client) -> (Self, BoxFuture<'static, ()>) {
        let (local, of_local) = reflected(client, queues(), Config::default());
        let (cluster, of_cluster) = reflected(client, cluster_queues(), Config::default());
        let (checks, of_checks) = reflected(client, checks(), Config::default());
        let watches = Box::pin(join3(of_local, of_cluster, of_checks).map(|_| ()));
        (Self { local, cluster, checks }, watches)
    }

    /// Completes when everything has been read once.
    pub(super) async fn first(&self) {
        let all = [&self.local, &self.cluster, &self.checks].map(Store::wait_until_ready);
        future::join_all(all).await;
    }

    /// Those of a namespace.
    pub(super) fn of(&self, namespace: &str) -> BTreeSet<String> {
        let queues = self.local.state();
        let here = queues.iter().filter(|queue| queue.metadata.namespace.as_deref() == Some(namespace));
        let remote = here.filter(|queue| {
            let name = queue.data["spec"]["clusterQueue"].as_str().unwrap_or_default();
            let found = self.cluster.get(&ObjectRef::new_with(name, cluster_queues()));
            found.is_some_and(|queue| self.is_remote(&queue.data["spec"]))
        });
        remote.filter_map(|queue| queue.metadata.name.clone()).collect()
    }

    /// Whether a check of a `ClusterQueue` sends Workloads to other clusters.
    fn is_remote(&self, spec: &Value) -> bool {
        let checks = spec["admissionChecksStrategy"]["admissionChecks"].as_array();
        let mut names = checks.into_iter().flatten().filter_map(|check| check["name"].as_str());
        names.any(|name| {
            let found = self.checks.get(&ObjectRef::new_with(name, self::checks()));
            found.is_some_and(|check| check.data["spec"]["controllerName"] == CONTROLLER)
        })
    }
}

fn cluster_queues() -> ApiResource {
    resource(GROUP, V1BETA2, "ClusterQueue", "clusterqueues")
}

fn checks() -> ApiResource {
    resource(GROUP, V1BETA2, "AdmissionCheck", "admissionchecks")
}
