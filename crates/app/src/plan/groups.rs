//! Groups of pods: one Workload for all pods of a group, those in the files and those that the cluster has already.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use api::kueue::jobs::pods::{MANAGED, group_name, group_total};
use api::kueue::jobs::{CopiedKeys, Incomplete, PodGroup, prebuilt_workload};
use kube::api::{DynamicObject, ListParams};
use kube::{Api, Client};
use serde_json::Value;

use super::jobs::{as_planned, completed, leave_to, name_of, pod_kind, priority, tell_unheld};
use super::{Planned, namespace_of};
use crate::connection::resource;

/// What is planned as one.
#[derive(Debug)]
pub(super) enum Unit {
    Object(Planned, Value),
    /// The pods of a group, in this namespace.
    Group(String, Vec<Value>),
}

/// Puts the pods of each group together, in the place of the first one.
pub(super) fn gathered(manifests: Vec<(Planned, Value)>, default: &str) -> Vec<Unit> {
    let mut units = Vec::new();
    let mut places = BTreeMap::new();
    for (planned, object) in manifests {
        let is_pod = matches!(planned, Planned::Job(kind) if kind.is_pod());
        let Some(group) = group_name(&object).filter(|_| is_pod).map(str::to_owned) else {
            units.push(Unit::Object(planned, object));
            continue;
        };
        let namespace = namespace_of(&object, default).to_owned();
        let at = *places.entry((namespace.clone(), group)).or_insert(units.len());
        match units.get_mut(at) {
            Some(Unit::Group(_, pods)) => pods.push(object),
            _ => units.push(Unit::Group(namespace, vec![object])),
        }
    }
    units
}

/// The Workload of a group, as the controller composes it. None if the group uses that of another author.
///
/// # Errors
///
/// The API server would refuse a pod, or the controller would make no Workload of the group.
pub(super) async fn workloads(client: &Client, namespace: &str, manifests: &[Value]) -> Result<Vec<Value>> {
    let Some(name) = manifests.first().and_then(group_name) else { return Ok(Vec::new()) };
    let about = format!("the group of pods {namespace}/{name}");
    if manifests.iter().all(|pod| prebuilt_workload(pod).is_some()) {
        leave_to(&about, name);
        return Ok(Vec::new());
    }
    let mut pods = Vec::new();
    for manifest in manifests {
        pods.push(completed(client, &resource("v1", "Pod", "pods"), manifest, namespace).await?);
    }
    if let Some(free) = pods.iter().find(|pod| !pod_kind().is_suspended(pod)) {
        tell_unheld(&about, free);
    }
    let in_files = pods.len();
    if group_total(&pods[0]).is_ok_and(|total| in_files < total as usize) {
        pods.extend(existing(client, namespace, name, &pods).await?);
    }
    let composed = composed(client, &group_of(name, &pods), in_files).await;
    // It is made when the last of its pods is.
    let last = pods[..in_files].iter().max_by_key(|pod| pod["metadata"]["creationTimestamp"].to_string());
    let planned = composed.and_then(|workload| as_planned(workload, name, last.unwrap_or(&pods[0])));
    Ok(vec![planned.context(about)?])
}

async fn composed(client: &Client, group: &PodGroup<'_>, in_files: usize) -> Result<Value> {
    let sets = compose(group, in_files)?;
    let priority = priority(client, pod_kind(), group.first()).await?;
    Ok(group.workload(sets, &priority, &CopiedKeys::default())?)
}

/// The pods of a group in the cluster that are not among these.
async fn existing(client: &Client, namespace: &str, group: &str, known: &[Value]) -> Result<Vec<Value>> {
    let pods: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), namespace, &resource("v1", "Pod", "pods"));
    let found = match pods.list(&ListParams::default().labels(&format!("{MANAGED}=true"))).await {
        Ok(list) => list.items,
        Err(kube::Error::Api(status)) if status.code == 403 => {
            eprintln!("muster: pods of the group that exist already are left out: {}", status.message);
            Vec::new()
        }
        Err(error) => return Err(error).with_context(|| format!("cannot list the pods of {namespace}")),
    };
    let found: Vec<Value> = found.iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
    let is_known = |pod: &Value| known.iter().any(|other| name_of(other) == name_of(pod));
    Ok(found.into_iter().filter(|pod| group_name(pod) == Some(group) && !is_known(pod)).collect())
}

/// The group of these pods, ordered by name as the controller has them.
fn group_of<'a>(name: &'a str, pods: &'a [Value]) -> PodGroup<'a> {
    let mut pods: Vec<&Value> = pods.iter().collect();
    pods.sort_by_key(|pod| name_of(pod));
    PodGroup { name, pods }
}

/// The pod sets of a group. Pods that are too many are named: the controller deletes them.
fn compose(group: &PodGroup<'_>, in_files: usize) -> Result<Vec<Value>> {
    let names: Vec<&str> = group.pods.iter().filter_map(|pod| name_of(pod)).collect();
    if let Some([twice, ..]) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        bail!("two of its pods are called {twice}");
    }
    let (sets, excess) = match group.compose() {
        Ok(composed) => composed,
        Err(Incomplete::Pods(_)) => bail!(missing(group, in_files)),
        Err(Incomplete::Invalid(why)) => bail!(why),
    };
    if !excess.is_empty() {
        let names: Vec<_> = excess.iter().filter_map(|pod| name_of(pod)).collect();
        eprintln!(
            "muster: the controller would delete pods that are too many in their group: {}",
            names.join(", ")
        );
    }
    Ok(sets)
}

/// How many pods of a group are there, and where.
fn missing(group: &PodGroup<'_>, in_files: usize) -> String {
    let total = group_total(group.first()).unwrap_or_default();
    let in_cluster = match group.partition().0.len().saturating_sub(in_files) {
        0 => String::new(),
        more => format!(" and the cluster {more} more"),
    };
    format!(
        "the files have {in_files} of its {total} pods{in_cluster}: a group gets its Workload when all its pods are there, so add the others"
    )
}

#[cfg(test)]
mod tests;
