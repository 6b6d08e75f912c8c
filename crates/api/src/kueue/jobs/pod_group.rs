//! Groups of pods that wait for a Workload. After `pkg/controller/jobs/pod` of Kueue v0.19.
//!
//! A group has one Workload with its name; its pod sets are the pods of the same role. Whoever creates the pods replaces those that
//! fail.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::pods::{
    FAST_ADMISSION, GROUP_INDEX, GROUP_INDEX_LABEL, GROUP_TOTAL, IS_GROUP, POD, RETRIABLE, ROLE_HASH,
    SERVING, active_until, group_total, has_finalizer, is_ended, is_gated, is_ready,
    is_runnable_or_succeeded, phase, pod_set, role, time,
};
use super::{CopiedKeys, Finished, Priority, annotation, copied_annotations, entries};
use crate::kueue::FINALIZER;
use crate::kueue::status::ReclaimablePods;
use crate::kueue::workload::API_VERSION;
use crate::pod::effective_request;
use crate::value::list;
use crate::{Amounts, MicroTime};

/// The most pods of a group. All of them own its Workload, which would be too large for etcd with some 7,000.
pub const GROUP_PODS_MAX: u32 = 5_000;
/// The most roles of a group: pod sets of a Workload.
const ROLES_MAX: usize = 18;

/// The pods of a group that exist, ordered by name.
#[derive(Debug, Clone)]
pub struct PodGroup<'a> {
    /// Name.
    pub name: &'a str,
    /// Not empty.
    pub pods: Vec<&'a Value>,
}

/// The pods of a group that its Workload is for, and the others.
#[derive(Debug, Clone, Default)]
pub struct Membership<'a> {
    /// Those that count.
    pub kept: Vec<&'a Value>,
    /// More than the Workload asks for: they are deleted.
    pub excess: Vec<&'a Value>,
    /// They have ended, and others have taken their place: their finalizer is removed.
    pub replaced: Vec<&'a Value>,
    /// How many pods are missing.
    pub absent: u32,
}

/// Why a group has no Workload yet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Incomplete {
    /// Pods are missing. Their author is told.
    #[error("'{0}' group has fewer runnable pods than expected")]
    Pods(String),
    /// The pods contradict each other, or ask for what no Workload can have.
    #[error("{0}")]
    Invalid(String),
}

impl<'a> PodGroup<'a> {
    /// The pod that speaks for the group.
    pub fn first(&self) -> &'a Value {
        self.pods[0]
    }

    /// Whether a pod is held back or has ended.
    pub fn is_suspended(&self) -> bool {
        self.pods.iter().any(|pod| is_gated(pod) || is_ended(pod))
    }

    /// Whether the group never ends.
    pub fn is_serving(&self) -> bool {
        annotation(self.first(), SERVING) == Some("true")
    }

    fn is_fast(&self) -> bool {
        annotation(self.first(), FAST_ADMISSION) == Some("true")
    }

    /// How the group ended: all its pods have succeeded, or have ended and are not replaced.
    pub fn finished(&self) -> Option<Finished> {
        let total = group_total(self.first()).ok().filter(|_| !self.is_serving())? as usize;
        let succeeded = self.pods.iter().filter(|pod| phase(pod) == "Succeeded").count();
        let is_last = || {
            self.pods.iter().all(|pod| is_ended(pod))
                && self.pods.iter().any(|pod| annotation(pod, RETRIABLE) == Some("false"))
        };
        (succeeded == total || is_last())
            .then(|| Finished { succeeded: true, message: format!("Pods succeeded: {succeeded}/{total}.") })
    }

    /// Until when pods of the group count as running: for ever, or until their deletion should have ended. `None`: no pod does.
    /// With `is_fast`, pods that are deleted do not count.
    pub fn active_until(&self, now: MicroTime, is_fast: bool) -> Option<MicroTime> {
        let running = self.pods.iter().filter(|pod| phase(pod) == "Running");
        running.filter_map(|pod| active_until(pod, now, is_fast)).max()
    }

    /// Whether all pods of the group are there, and ready or have succeeded.
    pub fn are_ready(&self) -> bool {
        group_total(self.first()).is_ok_and(|total| self.pods.len() >= total as usize)
            && self.pods.iter().all(|pod| is_ready(pod) || phase(pod) == "Succeeded")
    }

    /// The pods whose quota others may use.
    pub fn reclaimable(&self) -> Vec<ReclaimablePods> {
        let mut ended: Vec<ReclaimablePods> = Vec::new();
        for pod in self.pods.iter().filter(|pod| !self.is_serving() && phase(pod) == "Succeeded") {
            let name = role(pod);
            match ended.iter_mut().find(|known| known.name == name) {
                Some(known) => known.count += 1,
                None => ended.push(ReclaimablePods { name, count: 1 }),
            }
        }
        ended
    }

    /// The pods that can run or have succeeded, and the others.
    pub fn partition(&self) -> (Vec<&'a Value>, Vec<&'a Value>) {
        self.pods.iter().partition(|pod| is_runnable_or_succeeded(pod))
    }

    /// The pod sets of the group's Workload, and the pods that are too many.
    ///
    /// # Errors
    ///
    /// Pods are missing, or they contradict each other.
    pub fn compose(&self) -> Result<(Vec<Value>, Vec<&'a Value>), Incomplete> {
        let invalid = |text: String| Incomplete::Invalid(text);
        let first = self.first();
        let total = group_total(first).map_err(invalid)?;
        if total > GROUP_PODS_MAX {
            return Err(invalid(format!(
                "the group has {total} pods, and all of them own its Workload, which takes {GROUP_PODS_MAX}: make several groups, or a Job"
            )));
        }
        if let Some(index) = first["metadata"]["labels"][GROUP_INDEX].as_str()
            && index.parse::<u32>().map_or(true, |index| index >= total)
        {
            return Err(invalid(format!("the label {GROUP_INDEX}={index} is no number below {total}")));
        }
        let (mut active, _) = self.partition();
        if !self.is_fast() && active.len() < total as usize {
            return Err(Incomplete::Pods(self.name.to_owned()));
        }
        for pod in self.pods.iter().filter(|pod| phase(pod) != "Failed") {
            self.check_member(pod, total).map_err(invalid)?;
        }
        active.sort_by_key(|pod| rank(pod));
        let excess = active.split_off(active.len().min(total as usize));
        let sets = if self.is_fast() {
            active.first().map(|pod| pod_set(pod, &role(pod), total)).into_iter().collect()
        } else {
            pod_sets(&active)
        };
        let charges = charges(&sets);
        for pod in &active {
            if charges.get(&*role(pod)).is_some_and(|charged| !fits(pod, charged)) {
                let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                return Err(invalid(format!(
                    "pod '{name}' asks for more than other pods with its '{ROLE_HASH}': remove this annotation"
                )));
            }
        }
        if sets.is_empty() {
            return Err(invalid("failed to find a runnable pod in the group".to_owned()));
        }
        if sets.len() > ROLES_MAX {
            return Err(invalid(format!("pod group can't include more than {ROLES_MAX} roles")));
        }
        Ok((sets, excess))
    }

    /// The Workload of the group, as it is created.
    ///
    /// # Errors
    ///
    /// The pods have different values of a label or an annotation that it gets.
    pub fn workload(
        &self,
        sets: Vec<Value>,
        priority: &Priority,
        kept: &CopiedKeys,
    ) -> Result<Value, Incomplete> {
        let first = self.first();
        let copied = self.common("labels", &kept.labels)?;
        let mut annotations = copied_annotations(first);
        annotations.extend(self.common("annotations", &kept.annotations)?);
        annotations.insert(IS_GROUP.into(), "true".into());
        Ok(json!({
            "apiVersion": API_VERSION,
            "kind": "Workload",
            "metadata": {
                "name": self.name,
                "namespace": first["metadata"]["namespace"],
                "labels": copied,
                "annotations": annotations,
                "finalizers": [FINALIZER],
                "ownerReferences": self.pods.iter().map(|pod| owner(pod)).collect::<Vec<_>>(),
            },
            "spec": POD.workload_spec_of(first, sets, priority),
        }))
    }

    /// The labels or annotations with these keys, which no two pods have with different values.
    fn common(&self, field: &str, keys: &BTreeSet<String>) -> Result<Map<String, Value>, Incomplete> {
        let mut common = Map::new();
        for pod in &self.pods {
            for (key, value) in entries(&pod["metadata"][field]).filter(|(key, _)| keys.contains(key)) {
                if common.insert(key, value.clone()).is_some_and(|known| known != value) {
                    let text = format!(
                        "constructing workload: pods have different {} values",
                        field.trim_end_matches('s')
                    );
                    return Err(Incomplete::Invalid(text));
                }
            }
        }
        Ok(common)
    }

    /// The owner references of a Workload with those of these pods, and without those of pods that are gone; and how many are new.
    /// `None` if none is.
    pub fn owners(&self, workload: &Value, pods: &[&Value]) -> Option<(Vec<Value>, usize)> {
        let known = list(workload, &["metadata", "ownerReferences"]);
        let uids: BTreeSet<_> = known.iter().filter_map(|owner| owner["uid"].as_str()).collect();
        let is_new = |pod: &&&Value| pod["metadata"]["uid"].as_str().is_none_or(|uid| !uids.contains(uid));
        let new: Vec<Value> = pods.iter().filter(is_new).map(|pod| owner(pod)).collect();
        let is_there = |owner: &Value| self.pods.iter().any(|pod| pod["metadata"]["uid"] == owner["uid"]);
        let kept = known.iter().filter(|owner| owner["kind"] != "Pod" || is_there(owner)).cloned();
        let added = new.len();
        (added > 0).then(|| (kept.chain(new).collect(), added))
    }

    /// The pods of a group agree about their queue and their number.
    fn check_member(&self, pod: &Value, total: u32) -> Result<(), String> {
        let first = self.first();
        let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let (queue, other) = (super::queue_name(first), super::queue_name(pod));
        if queue != other {
            return Err(format!(
                "pods '{}' and '{}' has different queue names: {queue}!={other}",
                name(first),
                name(pod)
            ));
        }
        let other = group_total(pod)?;
        if total != other {
            return Err(format!(
                "pods '{}' and '{}' has different '{GROUP_TOTAL}' values: {total}!={other}",
                name(first),
                name(pod)
            ));
        }
        Ok(())
    }

    /// The pods that a Workload is for. `None` if it is for another group.
    pub fn membership(&self, workload: &Value, is_finished: bool, now: MicroTime) -> Option<Membership<'a>> {
        if workload["spec"]["maximumExecutionTimeSeconds"].as_i64() != super::longest_run(self.first()) {
            return None;
        }
        let (active, inactive) = self.partition();
        let mut found = Membership::default();
        for set in list(workload, &["spec", "podSets"]) {
            let of = |pods: &[&'a Value]| -> Vec<&'a Value> {
                pods.iter().copied().filter(|pod| set["name"] == role(pod)).collect()
            };
            let (mut active, mut ended) = (of(&active), of(&inactive));
            if is_charged_by_pods(workload) {
                let charged = charged(set);
                found.excess.extend(active.extract_if(.., |pod| !fits(pod, &charged)));
            }
            let count =
                set["count"].as_u64().and_then(|count| usize::try_from(count).ok()).unwrap_or_default();
            found.absent += match (self.is_fast(), active.len()) {
                (true, 0) if count > 0 => 1,
                (true, _) => 0,
                (false, active) => u32::try_from(count.saturating_sub(active)).unwrap_or(u32::MAX),
            };
            let replaced = (active.len() + ended.len()).saturating_sub(count).min(ended.len());
            active.sort_by_key(|pod| rank(pod));
            found.excess.extend(active.split_off(active.len().min(count)));
            ended.sort_by_key(|pod| ended_rank(pod, now));
            found.replaced.extend(ended.split_off(ended.len() - replaced));
            found.kept.append(&mut active);
            found.kept.append(&mut ended);
        }
        let kept: Vec<&Value> =
            found.kept.iter().copied().filter(|pod| is_runnable_or_succeeded(pod)).collect();
        let fits = is_part_of(&pod_sets(&kept), list(workload, &["spec", "podSets"]), is_finished);
        (!found.kept.is_empty() && fits).then_some(found)
    }

    /// The pods of a group that never ends for which its Workload has room: those that run, then those with the least index. Whoever
    /// makes the pods may have made more since; the others wait.
    #[must_use]
    pub fn within(&self, workload: &Value) -> Self {
        if !self.is_serving() {
            return self.clone();
        }
        let mut kept = Vec::new();
        for set in list(workload, &["spec", "podSets"]) {
            let of_set = self.pods.iter().copied().filter(|pod| set["name"] == role(pod));
            let mut of_set: Vec<&Value> = of_set.collect();
            of_set.sort_by_key(|pod| (is_ended(pod), is_gated(pod), index(pod), rank(pod)));
            let count = set["count"].as_u64().and_then(|count| usize::try_from(count).ok());
            kept.extend(of_set.into_iter().take(count.unwrap_or_default()));
        }
        // A pod of another role is for another Workload.
        let is_known =
            |pod: &&Value| list(workload, &["spec", "podSets"]).iter().any(|set| set["name"] == role(pod));
        kept.extend(self.pods.iter().copied().filter(|pod| !is_known(pod)));
        Self { name: self.name, pods: kept }
    }

    /// Whether the Workload of another author is for this group.
    pub fn is_equivalent(&self, workload: &Value, is_finished: bool) -> bool {
        let (active, _) = self.partition();
        let sets = list(workload, &["spec", "podSets"]);
        let charges = charges(sets);
        let fit = |pod: &Value| charges.get(&*role(pod)).is_some_and(|charged| fits(pod, charged));
        is_part_of(&pod_sets(&active), sets, is_finished)
            && (!is_charged_by_pods(workload) || active.iter().all(|pod| fit(pod)))
    }
}

/// Whether the templates of a Workload are its pods, and not those of a set of pods, to which admission adds requests later.
fn is_charged_by_pods(workload: &Value) -> bool {
    list(workload, &["metadata", "ownerReferences"]).iter().all(|owner| owner["kind"] == "Pod")
}

/// What one pod of a pod set is charged for.
fn charged(set: &Value) -> Amounts {
    effective_request(&set["template"]["spec"]).unwrap_or_default()
}

/// The same for pod sets, by name.
fn charges(sets: &[Value]) -> BTreeMap<&str, Amounts> {
    sets.iter().filter_map(|set| Some((set["name"].as_str()?, charged(set)))).collect()
}

/// Whether a pod asks for no more than its pod set is charged for. Its role is a claim of its author.
fn fits(pod: &Value, charged: &Amounts) -> bool {
    let asked = effective_request(&pod["spec"]).unwrap_or_default();
    asked.iter().all(|(resource, amount)| amount <= charged.get(resource))
}

fn owner(pod: &Value) -> Value {
    let meta = &pod["metadata"];
    json!({"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]})
}

/// The pod sets of pods, by role.
fn pod_sets(pods: &[&Value]) -> Vec<Value> {
    let mut sets: Vec<(String, u32, &Value)> = Vec::new();
    for pod in pods {
        let name = role(pod);
        match sets.iter_mut().find(|(known, ..)| *known == name) {
            Some((_, count, _)) => *count += 1,
            None => sets.push((name, 1, pod)),
        }
    }
    sets.sort_by(|(one, ..), (other, ..)| one.cmp(other));
    sets.into_iter().map(|(name, count, pod)| pod_set(pod, &name, count)).collect()
}

/// Whether pod sets are among those of a Workload, in its order, and no larger. What has ended may have had more.
fn is_part_of(sets: &[Value], of: &[Value], is_finished: bool) -> bool {
    let mut rest = of.iter();
    sets.iter().all(|set| {
        let found = rest.find(|known| known["name"] == set["name"]);
        found.is_some_and(|known| is_finished || known["count"].as_u64() >= set["count"].as_u64())
    })
}

/// The index of a pod, in the label that the pod names.
fn index(pod: &Value) -> Option<u32> {
    let label = annotation(pod, GROUP_INDEX_LABEL)?;
    pod["metadata"]["labels"][label].as_str()?.parse().ok()
}

/// Which pods of a role stay: with the finalizer, not gated, older ones first.
fn rank(pod: &Value) -> (bool, bool, String, String) {
    let of = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
    (!has_finalizer(pod), is_gated(pod), of("creationTimestamp"), of("name"))
}

/// Which pods that have ended stay: with the finalizer, those that were active last, older ones first.
fn ended_rank(pod: &Value, now: MicroTime) -> (bool, std::cmp::Reverse<MicroTime>, String, String) {
    let failed = list(pod, &["status", "conditions"]).iter().find(|condition| {
        condition["type"] == "ContainersReady"
            && condition["status"] == "False"
            && condition["reason"] == "PodFailed"
    });
    let failed = failed.and_then(|condition| time(&condition["lastTransitionTime"])).unwrap_or(now);
    let deleted = time(&pod["metadata"]["deletionTimestamp"]).unwrap_or(now);
    let (has_none, _, created, name) = rank(pod);
    (has_none, std::cmp::Reverse(failed.min(deleted)), created, name)
}
