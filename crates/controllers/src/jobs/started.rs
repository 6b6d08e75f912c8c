//! The pods that run with the quota of Workloads, or may start. As long as a Workload has one, it keeps its quota, whatever has become
//! of its job. A job that goes on without the job that owned it may start pods.

use std::collections::{BTreeMap, BTreeSet};

use api::kueue::jobs::pods::{active_until, is_ended};
use api::kueue::jobs::{JobKind, POD_SET, SLICE_NAME, WORKLOAD, annotation, queue_name};
use api::kueue::workload::{PodSet, Workload};
use api::{Meta, MicroTime};
use index::remove_from;
use serde_json::{Value, json};

use crate::watched::{Change, Whole};

/// Namespace and name of a Workload, or of the first of its slices.
pub(super) type Chain = (String, String);

/// The pods by the Workload that they name.
#[derive(Debug, Default)]
pub(super) struct StartedPods {
    rows: BTreeMap<String, (Chain, Whole)>,
    by_chain: BTreeMap<Chain, BTreeSet<String>>,
}

/// Namespace and name of a Workload, or of the first of its slices.
pub(super) fn chain_of(workload: &Whole) -> Chain {
    let name = annotation(&workload.value, SLICE_NAME).unwrap_or(&workload.metadata.name);
    (workload.metadata.namespace.clone(), name.to_owned())
}

/// The Workload with the quota of which a job goes on that nothing owns any more and no queue knows, such as one of a deleted set of jobs:
/// its pod templates name it.
pub(super) fn chain_of_left(kind: &JobKind, job: &Whole) -> Option<Chain> {
    if kind.is_pod() || job.metadata.controller().is_some() || !queue_name(&job.value).is_empty() {
        return None;
    }
    let name = workload_in_templates(kind, &job.value)?;
    Some((job.metadata.namespace.clone(), name.to_owned()))
}

/// The name of the Workload, or of the first of its slices, that the pod templates of a job have got when it started.
pub(super) fn workload_in_templates<'a>(kind: &JobKind, job: &'a Value) -> Option<&'a str> {
    let templates = kind.integration.templates(job);
    templates.iter().find_map(|path| {
        let template = job.pointer(path)?;
        annotation(template, SLICE_NAME).or_else(|| annotation(template, WORKLOAD))
    })
}

/// A watched pod, without what is not needed. One that has ended, or is held back, is as one that is gone.
pub(super) fn slim(pod: Whole) -> Change {
    let Whole { metadata, value } = pod;
    let gates = value["spec"]["schedulingGates"].as_array();
    if is_ended(&value) || gates.is_some_and(|gates| !gates.is_empty()) {
        return Change::Deleted(metadata.uid, metadata.name);
    }
    let of_meta = |field: &str| value["metadata"][field].clone();
    let value = json!({
        "metadata": {"deletionTimestamp": of_meta("deletionTimestamp"),
            "deletionGracePeriodSeconds": of_meta("deletionGracePeriodSeconds")},
        "status": {"phase": value["status"]["phase"]},
    });
    let annotations =
        metadata.annotations.into_iter().filter(|(key, _)| [SLICE_NAME, WORKLOAD].contains(&&**key));
    let labels = metadata.labels.into_iter().filter(|(key, _)| key == POD_SET);
    let Meta { name, namespace, uid, finalizers, deletion_timestamp, .. } = metadata;
    let (annotations, labels) = (annotations.collect(), labels.collect());
    let metadata =
        Meta { name, namespace, uid, finalizers, deletion_timestamp, annotations, labels, ..Meta::default() };
    Change::Applied(Box::new(Whole { metadata, value }))
}

impl StartedPods {
    /// Applies a change. Returns the Workload whose pods have changed.
    pub(super) fn apply(&mut self, change: Change) -> Option<Chain> {
        match change {
            Change::Deleted(uid, _) => self.remove(&uid),
            Change::Applied(pod) => {
                let uid = pod.metadata.uid.clone();
                let known = self.remove(&uid);
                let annotations = &pod.metadata.annotations;
                let Some(name) = [SLICE_NAME, WORKLOAD].iter().find_map(|key| annotations.get(*key)) else {
                    return known;
                };
                let chain = (pod.metadata.namespace.clone(), name.clone());
                self.by_chain.entry(chain.clone()).or_default().insert(uid.clone());
                self.rows.insert(uid, (chain.clone(), *pod));
                Some(chain)
            }
        }
    }

    fn remove(&mut self, uid: &str) -> Option<Chain> {
        let (chain, _) = self.rows.remove(uid)?;
        remove_from(&mut self.by_chain, &chain, uid);
        Some(chain)
    }

    /// The pods of a Workload.
    pub(super) fn of(&self, workload: &Whole) -> impl Iterator<Item = &Whole> {
        let uids = self.by_chain.get(&chain_of(workload)).into_iter().flatten();
        uids.filter_map(|uid| self.rows.get(uid)).map(|(_, pod)| pod)
    }

    /// `status.reclaimablePods` with the pods of each pod set that have ended, of a Workload whose pods nothing replaces: all that are not there, and never
    /// fewer than its status says. `None`: those that the status says, or a pod does not tell its pod set.
    pub(super) fn reclaimable(&self, whole: &Whole, workload: &Workload, now: MicroTime) -> Option<Value> {
        let mut left: BTreeMap<&str, u32> = BTreeMap::new();
        for pod in self.of(whole).filter(|pod| active_until(&pod.value, now, false).is_some()) {
            *left.entry(pod.metadata.labels.get(POD_SET)?).or_default() += 1;
        }
        let known = &workload.status.reclaimable_pods;
        let known = |name: &str| known.iter().find(|pods| pods.name == name).map_or(0, |pods| pods.count);
        let gone = |set: &PodSet| set.count.saturating_sub(left.get(&*set.name).copied().unwrap_or_default());
        let ended = workload.spec.pod_sets.iter().map(|set| (&*set.name, gone(set).max(known(&set.name))));
        let ended: Vec<_> = ended.filter(|(_, count)| *count > 0).collect();
        let list = ended.iter().map(|(name, count)| json!({"name": name, "count": count})).collect();
        ended.iter().any(|(name, count)| *count > known(name)).then_some(Value::Array(list))
    }

    /// Until when a Workload has pods: for ever, or until their deletion should have ended. `None`: it has none. With `is_fast`,
    /// pods that are deleted do not count.
    pub(super) fn until(&self, workload: &Whole, now: MicroTime, is_fast: bool) -> Option<MicroTime> {
        self.of(workload).filter_map(|pod| active_until(&pod.value, now, is_fast)).max()
    }
}
