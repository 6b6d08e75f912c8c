//! Sets of pods: the Workloads that a Deployment, a `StatefulSet` or a `LeaderWorkerSet` would get if it were created.

use anyhow::{Context, Result, bail};
use api::kueue::jobs::leader_worker_sets;
use api::kueue::jobs::pods::{DEPLOYMENT, SUSPENDED_BY, group_name};
use api::kueue::jobs::sets::replicas;
use api::kueue::jobs::{CopiedKeys, JobKind, Priority, annotation};
use api::kueue::webhooks::{ReviewedKind, pod_of_deployment};
use kube::Client;
use serde_json::Value;

use super::jobs::{about, as_planned, completed, name_of, pod_kind, priority, tell_unheld};
use crate::connection::resource;

/// So many Workloads of a set are planned. The others are alike.
const PLANNED_MAX: u32 = 50;

/// The Workloads of a set: one of a `StatefulSet`, and one of each group of a `LeaderWorkerSet`.
///
/// # Errors
///
/// The API server would refuse the set, or a Workload cannot hold it.
pub(super) async fn workloads(
    client: &Client,
    kind: &JobKind,
    manifest: &Value,
    namespace: &str,
) -> Result<Vec<Value>> {
    let of_kind = resource(kind.api_version, kind.kind, kind.plural);
    let set = completed(client, &of_kind, manifest, namespace).await?;
    let about = about(kind.kind, &set, namespace);
    let mut held = set.clone();
    kind.set_suspended(&mut held, true);
    if held != set {
        tell_unheld(&about, &set);
    }
    if is_empty(&about, &set) {
        return Ok(Vec::new());
    }
    let priority = priority(client, kind, &set).await.context(about.clone())?;
    of_set(kind, &set, &priority, &about).context(about)
}

/// The Workloads of the pods of a Deployment, one by one.
///
/// # Errors
///
/// The API server would refuse the Deployment, or its pods are not planned one by one.
pub(super) async fn of_deployment(client: &Client, manifest: &Value, namespace: &str) -> Result<Vec<Value>> {
    let kind = ReviewedKind::of_framework(DEPLOYMENT).expect("webhooks know Deployments");
    let of_kind = resource(kind.api_version, kind.kind, kind.plural);
    let deployment = completed(client, &of_kind, manifest, namespace).await?;
    let about = about(kind.kind, &deployment, namespace);
    if annotation(&deployment["spec"]["template"], SUSPENDED_BY).is_none() {
        tell_unheld(&about, &deployment);
    }
    if is_empty(&about, &deployment) {
        return Ok(Vec::new());
    }
    let pod = pod_of_deployment(&deployment);
    let priority = priority(client, pod_kind(), &pod).await.context(about.clone())?;
    of_pods(&pod, planned(&deployment, "pods", &about), &priority).context(about)
}

/// Says so if a set asks for no pods.
fn is_empty(about: &str, set: &Value) -> bool {
    let is_empty = replicas(set) == 0;
    if is_empty {
        eprintln!("muster: {about} has zero replicas: there is nothing to plan");
    }
    is_empty
}

/// How many Workloads of a set are planned. What is left out is said.
fn planned(set: &Value, parts: &str, about: &str) -> u32 {
    let all = replicas(set);
    if all > PLANNED_MAX {
        eprintln!(
            "muster: {about} has {all} {parts}, each with a Workload of its own: the first {PLANNED_MAX} are planned"
        );
    }
    all.min(PLANNED_MAX)
}

fn of_set(kind: &JobKind, set: &Value, priority: &Priority, about: &str) -> Result<Vec<Value>> {
    let name = format!("{}-{}", kind.kind.to_lowercase(), name_of(set).unwrap_or_default());
    if !kind.has_groups() {
        return Ok(vec![as_planned(kind.group_workload(set, &name, priority), &name, set)?]);
    }
    let groups = 0..planned(set, "groups", about);
    let of_group = |group: u32| {
        let workload = leader_worker_sets::workload(set, group, priority);
        as_planned(workload, &format!("{name}-{group}"), set)
    };
    groups.map(of_group).collect()
}

/// The Workloads of so many pods like this one. Nobody knows the names of the pods before; they are numbered.
fn of_pods(pod: &Value, count: u32, priority: &Priority) -> Result<Vec<Value>> {
    if let Some(group) = group_name(pod) {
        bail!("its pods are in the group {group}: a group is planned from the manifests of its pods");
    }
    let name = name_of(pod).unwrap_or_default();
    let of_pod = |number: u32| {
        let workload = pod_kind().workload(pod, priority, &CopiedKeys::default());
        as_planned(workload, &format!("pod-{name}-{number}"), pod)
    };
    (1..=count).map(of_pod).collect()
}

#[cfg(test)]
mod tests;
