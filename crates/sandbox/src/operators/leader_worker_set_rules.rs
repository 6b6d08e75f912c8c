//! Decides what happens to the groups of a `LeaderWorkerSet`: a pure function of what was observed.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{LeaderWorkerSet, items, text};
use crate::cluster::Cached as _;
use crate::wire::{Condition, Pod, Stamp};
use crate::workloads::template;

/// The label of pods with the name of their set.
pub(super) const SET_NAME: &str = "leaderworkerset.sigs.k8s.io/name";
/// The label of pods with the number of their group.
const GROUP: &str = "leaderworkerset.sigs.k8s.io/group-index";
/// The label of pods with their number in the group; that of the leader is 0.
const WORKER: &str = "leaderworkerset.sigs.k8s.io/worker-index";
/// The label that only the pods of one group have.
const GROUP_KEY: &str = "leaderworkerset.sigs.k8s.io/group-key";
/// The label of pods with the hash of the templates that they are made from.
const REVISION: &str = "leaderworkerset.sigs.k8s.io/template-revision-hash";
/// The annotation of pods with the size of their group.
const SIZE: &str = "leaderworkerset.sigs.k8s.io/size";
/// The annotation of workers with the name of their leader.
const LEADER_NAME: &str = "leaderworkerset.sigs.k8s.io/leader-name";

/// A leader and the workers that it owns.
pub(super) struct Group {
    pub(super) leader: Arc<Pod>,
    pub(super) workers: Vec<Arc<Pod>>,
}

/// A change of the pods.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    Create(Value),
    /// The workers of a leader go when it is gone.
    Delete(Arc<Pod>),
    /// Deletes the workers of this leader, and then the leader: a pod of its group has failed.
    Recreate(Arc<Pod>, String),
}

/// What to do, and the new status.
pub(super) struct Decision {
    pub(super) steps: Vec<Step>,
    pub(super) status: Value,
    /// Reason and message.
    pub(super) event: Option<(&'static str, String)>,
}

/// What a set asks for.
struct Wanted<'a> {
    set: &'a LeaderWorkerSet,
    replicas: usize,
    /// Pods of a group.
    size: usize,
    revision: String,
}

/// Decides about a set with these groups.
pub(super) fn decide(set: &LeaderWorkerSet, groups: &[Group], now: Stamp) -> Decision {
    let templates = &set.spec["leaderWorkerTemplate"];
    let count =
        |value: &Value| value.as_u64().map_or(1, |count| usize::try_from(count).unwrap_or(usize::MAX));
    let wanted = Wanted {
        set,
        replicas: count(&set.spec["replicas"]),
        size: count(&templates["size"]),
        revision: template::hash(&json!([templates, set.spec["networkConfig"]])),
    };
    let mut steps = wanted.missing_leaders(groups);
    for group in groups.iter().filter(|group| !group.leader.metadata.is_deleting()) {
        steps.extend(wanted.steps_of(group));
    }
    steps.extend(wanted.replace_outdated(groups));
    let (status, event) = wanted.status(groups, now);
    Decision { steps, status, event }
}

impl Group {
    fn number(&self) -> usize {
        self.leader.metadata.label(GROUP).and_then(|number| number.parse().ok()).unwrap_or(usize::MAX)
    }

    fn pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        std::iter::once(&self.leader).chain(&self.workers)
    }

    fn has_pod(&self, worker: usize) -> bool {
        let number = worker.to_string();
        self.pods().any(|pod| pod.metadata.label(WORKER) == Some(&number))
    }
}

impl Wanted<'_> {
    fn policy(&self) -> &str {
        text(&self.set.spec["leaderWorkerTemplate"]["restartPolicy"])
    }

    fn is_ready(&self, group: &Group) -> bool {
        let serves = |pod: &Pod| pod.is_running() && pod.is_ready() && !pod.metadata.is_deleting();
        group.pods().count() == self.size && group.pods().all(|pod| serves(pod))
    }

    fn is_current(&self, pod: &Pod) -> bool {
        pod.metadata.label(REVISION) == Some(&self.revision)
    }

    fn missing_leaders(&self, groups: &[Group]) -> Vec<Step> {
        let present: BTreeSet<usize> = groups.iter().map(Group::number).collect();
        let is_missing = |number: &usize| !present.contains(number);
        (0..self.replicas).filter(is_missing).map(|number| Step::Create(self.leader(number))).collect()
    }

    /// What happens to a group whose leader stays so far.
    fn steps_of(&self, group: &Group) -> Vec<Step> {
        if group.number() >= self.replicas {
            return vec![Step::Delete(group.leader.clone())];
        }
        if let Some(failed) = self.failed(group) {
            let [failed, leader] = [failed, &group.leader].map(|pod| &pod.metadata.name);
            let message = format!(
                "Worker pod {failed} failed, deleted leader pod {leader} to recreate group {}",
                group.number()
            );
            return vec![Step::Recreate(group.leader.clone(), message)];
        }
        let ended = group.pods().filter(|pod| pod.is_finished() && !pod.metadata.is_deleting());
        let mut steps: Vec<Step> = ended.cloned().map(Step::Delete).collect();
        let is_late = self.set.spec["startupPolicy"] == "LeaderReady" && !group.leader.is_ready();
        if self.is_current(&group.leader) && !is_late {
            let missing = (1..self.size).filter(|worker| !group.has_pod(*worker));
            steps.extend(missing.map(|worker| Step::Create(self.worker(group, worker))));
        }
        steps
    }

    /// The pod because of which the whole group starts again.
    fn failed<'a>(&self, group: &'a Group) -> Option<&'a Arc<Pod>> {
        let restarted = |pod: &Pod| {
            let containers = pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
            containers.map(|container| container.restart_count).any(|count| count > 0)
        };
        let mut failed =
            group.pods().filter(|pod| pod.metadata.is_deleting() || pod.is_finished() || restarted(pod));
        let has_started = || group.pods().all(|pod| pod.status.phase != "Pending");
        match self.policy() {
            "RecreateGroupOnPodRestart" => failed.next(),
            "RecreateGroupAfterStart" if has_started() => failed.next(),
            _ => None,
        }
    }

    /// Deletes groups of an earlier revision, from the last on, as long as enough others are ready.
    fn replace_outdated(&self, groups: &[Group]) -> Vec<Step> {
        let most = &self.set.spec["rolloutStrategy"]["rollingUpdateConfiguration"]["maxUnavailable"];
        let total = i64::try_from(self.replicas).unwrap_or(i64::MAX);
        let most = if most.is_null() { 1 } else { template::int_or_percent(most, total, "0%", false).max(1) };
        let kept: Vec<&Group> = groups.iter().filter(|group| group.number() < self.replicas).collect();
        let ready = kept.iter().filter(|group| self.is_ready(group)).count();
        let unready = self.replicas.saturating_sub(ready);
        let mut left = usize::try_from(most).unwrap_or(usize::MAX).saturating_sub(unready);
        let mut outdated: Vec<&Group> = kept
            .into_iter()
            .filter(|group| !group.leader.metadata.is_deleting() && !self.is_current(&group.leader))
            .collect();
        outdated.sort_by_key(|group| std::cmp::Reverse(group.number()));
        let goes = outdated.into_iter().filter(|group| {
            let is_ready = self.is_ready(group);
            let goes = !is_ready || left > 0;
            left = left.saturating_sub(usize::from(goes && is_ready));
            goes
        });
        goes.map(|group| Step::Delete(group.leader.clone())).collect()
    }

    fn leader(&self, number: usize) -> Value {
        let templates = &self.set.spec["leaderWorkerTemplate"];
        let own = &templates["leaderTemplate"];
        let template = if own.is_object() { own } else { &templates["workerTemplate"] };
        let name = self.leader_name(number);
        self.complete(template::named_pod(template, self.set, &name), number, 0)
    }

    fn worker(&self, group: &Group, worker: usize) -> Value {
        let template = &self.set.spec["leaderWorkerTemplate"]["workerTemplate"];
        let name = format!("{}-{worker}", self.leader_name(group.number()));
        self.complete(template::named_pod(template, &*group.leader, &name), group.number(), worker)
    }

    fn leader_name(&self, group: usize) -> String {
        format!("{}-{group}", self.set.meta().name)
    }

    /// Completes a pod with its place in the set.
    fn complete(&self, mut pod: Value, group: usize, worker: usize) -> Value {
        let meta = self.set.meta();
        let leader = self.leader_name(group);
        let key = template::hash(&json!(format!("{}/{leader}", meta.namespace)));
        let labels = [
            (SET_NAME, meta.name.clone()),
            (GROUP, group.to_string()),
            (WORKER, worker.to_string()),
            (GROUP_KEY, key),
            (REVISION, self.revision.clone()),
        ];
        template::set_metadata(&mut pod, "labels", labels);
        template::set_metadata(&mut pod, "annotations", [(SIZE, self.size.to_string())]);
        if worker > 0 {
            template::set_metadata(&mut pod, "annotations", [(LEADER_NAME, leader.clone())]);
        }
        let own_domain = self.set.spec["networkConfig"]["subdomainPolicy"] == "UniquePerReplica";
        let domain = if own_domain { &leader } else { &meta.name };
        pod["spec"]["hostname"] = pod["metadata"]["name"].clone();
        pod["spec"]["subdomain"] = json!(domain);
        let variables = [
            ("LWS_LEADER_ADDRESS", format!("{leader}.{domain}.{}", meta.namespace)),
            ("LWS_GROUP_SIZE", self.size.to_string()),
            ("LWS_WORKER_INDEX", worker.to_string()),
        ];
        for field in ["containers", "initContainers"] {
            for container in pod["spec"][field].as_array_mut().into_iter().flatten() {
                let ours = variables.iter().map(|(name, value)| json!({"name": name, "value": value}));
                let is_ours = |other: &&Value| variables.iter().any(|(name, _)| other["name"] == *name);
                let others = items(&container["env"]).iter().filter(|other| !is_ours(other)).cloned();
                container["env"] = ours.chain(others).collect();
            }
        }
        pod
    }

    /// The status, and the event about a change of its conditions.
    fn status(&self, groups: &[Group], now: Stamp) -> (Value, Option<(&'static str, String)>) {
        let (mut replicas, mut ready, mut updated) = (0, 0, 0);
        let (mut kept, mut kept_updated, mut kept_ready) = (0, 0, 0);
        for group in groups.iter().filter(|group| !group.leader.metadata.is_deleting()) {
            let is_ready = self.is_ready(group);
            let is_updated = group.pods().all(|pod| self.is_current(pod));
            replicas += 1;
            ready += usize::from(is_ready);
            updated += usize::from(is_updated);
            if group.number() < self.replicas {
                kept += 1;
                kept_ready += usize::from(is_ready);
                kept_updated += usize::from(is_updated);
            }
        }
        let progressing = ("Progressing", "GroupsProgressing", "Replicas are progressing");
        let set = if kept_updated < kept {
            vec![("UpdateInProgress", "GroupsUpdating", "Rolling Upgrade is in progress"), progressing]
        } else if kept_ready == self.replicas {
            vec![("Available", "AllGroupsReady", "All replicas are ready")]
        } else {
            vec![progressing]
        };
        let (conditions, is_changed) = self.conditions(&set, now);
        let event = set.first().filter(|_| is_changed).map(|(_, reason, message)| {
            (*reason, format!("{message}, with {ready} groups ready of total {} groups", self.replicas))
        });
        let meta = self.set.meta();
        let mut status = self.set.status.clone();
        if !status.is_object() {
            status = Value::Object(Map::new());
        }
        status["replicas"] = json!(replicas);
        status["readyReplicas"] = json!(ready);
        status["updatedReplicas"] = json!(updated);
        status["observedGeneration"] = json!(meta.generation);
        status["hpaPodSelector"] = json!(format!("{SET_NAME}={},{WORKER}=0", meta.name));
        status["conditions"] = conditions;
        (status, event)
    }

    /// The conditions with these set, and whether the truth of one has changed. `Available` excludes the others.
    fn conditions(&self, set: &[(&str, &str, &str)], now: Stamp) -> (Value, bool) {
        let mut list: Vec<Condition> =
            serde_json::from_value(self.set.status["conditions"].clone()).unwrap_or_default();
        let is_true = |list: &[Condition]| -> Vec<(String, bool)> {
            list.iter().map(|condition| (condition.kind.clone(), condition.status == "True")).collect()
        };
        let before = is_true(&list);
        for (kind, reason, message) in set {
            let is_excluded = |other: &str| (*kind == "Available") != (other == "Available");
            for other in list.iter_mut().filter(|other| other.status == "True" && is_excluded(&other.kind)) {
                "False".clone_into(&mut other.status);
                other.last_transition_time = Some(now);
            }
            Condition::new(kind, true, reason, *message, now).set_in(&mut list);
        }
        for condition in &mut list {
            condition.observed_generation = Some(self.set.meta().generation);
        }
        let is_changed = is_true(&list) != before;
        (json!(list), is_changed)
    }
}
