//! The Deployment controller: rolls pods over to the current template by scaling `ReplicaSet`s.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::template;
use crate::cluster::{Cluster, Delete, Error, Precondition, Queue, Recorder, Store};
use crate::pace::Pace;
use crate::wire::{Condition, Deployment, Key, Owner, Pod, ReplicaSet, Stamp, condition};

const HASH: &str = "pod-template-hash";
const REVISION: &str = "deployment.kubernetes.io/revision";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MAX: &str = "deployment.kubernetes.io/max-replicas";

/// The controller of Deployments.
pub(crate) struct Deployments {
    cluster: Cluster,
    store: Arc<Store<Deployment>>,
    sets: Arc<Store<ReplicaSet>>,
    pods: Arc<Store<Pod>>,
    recorder: Recorder,
    pace: Pace,
    pub(crate) queue: Queue<Key>,
}

impl Deployments {
    pub(crate) fn new(
        cluster: Cluster,
        store: Arc<Store<Deployment>>,
        sets: Arc<Store<ReplicaSet>>,
        pods: Arc<Store<Pod>>,
        recorder: &Recorder,
        pace: Pace,
    ) -> Self {
        let recorder = recorder.for_component("deployment-controller");
        Self { cluster, store, sets, pods, recorder, pace, queue: Queue::new() }
    }

    pub(crate) fn set_changed(&self, set: &ReplicaSet) {
        if let Some(key) = set.metadata.controller_of_kind("Deployment") {
            self.queue.add(key);
        }
    }

    /// Queues the Deployment of a deleted pod: strategy `Recreate` waits for old pods to be gone.
    pub(crate) fn pod_removed(&self, pod: &Pod) {
        let set = pod.metadata.controller_of_kind("ReplicaSet").and_then(|key| self.sets.get(&key));
        if let Some(set) = set {
            self.set_changed(&set);
        }
    }

    pub(crate) async fn reconcile(&self, key: Key) -> Result<Option<Instant>, Error> {
        let Some(deployment) = self.store.get(&key).filter(|d| !d.metadata.is_deleting()) else {
            return Ok(None);
        };
        let sets = self.sets.indexed(&deployment.metadata.uid);
        let current =
            sets.iter().find(|set| same_template(&set.spec.template, &deployment.spec.template)).cloned();
        if !deployment.spec.paused {
            let current = self.current(&deployment, &sets, current.clone()).await?;
            let others: Vec<Arc<ReplicaSet>> =
                sets.iter().filter(|set| set.metadata.uid != current.metadata.uid).cloned().collect();
            self.step_rollout(&deployment, &current, &others).await?;
            self.prune_history(&deployment, others).await?;
        } else if let Some(current) = current {
            self.scale(&deployment, &current, wanted(&deployment)).await?;
        }
        self.report(&key).await
    }

    /// The `ReplicaSet` with the current template. It is created if absent, and has the highest revision.
    async fn current(
        &self,
        deployment: &Arc<Deployment>,
        sets: &[Arc<ReplicaSet>],
        found: Option<Arc<ReplicaSet>>,
    ) -> Result<Arc<ReplicaSet>, Error> {
        let others =
            sets.iter().filter(|set| found.as_ref().is_none_or(|f| f.metadata.uid != set.metadata.uid));
        let revision = (others.map(|set| revision(set)).max().unwrap_or(0) + 1).to_string();
        let set = match found {
            Some(set) if set.metadata.annotation(REVISION) == Some(&revision) => set,
            Some(set) if others_are_older(&set, sets) => set,
            Some(set) => {
                let patch = json!({ "metadata": { "annotations": { REVISION: revision } } });
                self.cluster.patch(&self.sets, &set.metadata, patch, Precondition::ResourceVersion).await?
            }
            None => self.create(deployment, sets, &revision).await?,
        };
        let revision = set.metadata.annotation(REVISION).unwrap_or("1");
        if deployment.metadata.annotation(REVISION) != Some(revision) {
            let patch = json!({ "metadata": { "annotations": { REVISION: revision } } });
            self.cluster.patch(&self.store, &deployment.metadata, patch, Precondition::Uid).await?;
        }
        Ok(set)
    }

    async fn create(
        &self,
        deployment: &Arc<Deployment>,
        sets: &[Arc<ReplicaSet>],
        revision: &str,
    ) -> Result<Arc<ReplicaSet>, Error> {
        let spec = &deployment.spec;
        let hash = template::hash(&spec.template);
        let mut template = spec.template.clone();
        template::set_metadata(&mut template, "labels", [(HASH, hash.clone())]);
        let running: i64 = sets.iter().map(|set| set.spec.replicas.unwrap_or(0)).sum();
        let replicas = if spec.strategy.kind == "Recreate" && running > 0 {
            0
        } else {
            (wanted(deployment) + surge(deployment) - running).clamp(0, wanted(deployment))
        };
        let mut annotations: BTreeMap<String, String> = deployment.metadata.annotations.clone();
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        annotations.insert(REVISION.to_owned(), revision.to_owned());
        annotations.extend(replica_annotations(deployment));
        let mut labels = spec.selector.match_labels.clone();
        labels.insert(HASH.to_owned(), hash.clone());
        let selector = json!({
            "matchLabels": labels,
            "matchExpressions": selector_expressions(deployment),
        });
        let name = format!("{}-{hash}", deployment.metadata.name);
        let set = json!({
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": name,
                "namespace": deployment.metadata.namespace,
                "labels": template["metadata"]["labels"],
                "annotations": annotations,
                "ownerReferences": [Owner::controller_of("apps/v1", "Deployment", &deployment.metadata)],
            },
            "spec": {
                "replicas": replicas,
                "selector": selector,
                "template": template,
                "minReadySeconds": spec.min_ready_seconds,
            },
        });
        let created = self.cluster.create(&self.sets, &deployment.metadata.namespace, &set).await?;
        if replicas > 0 {
            let message = format!("Scaled up replica set {name} from 0 to {replicas}");
            self.recorder.normal(&**deployment, "ScalingReplicaSet", message);
        }
        Ok(created)
    }

    /// Scales the `ReplicaSet`s by one step of a rollout.
    async fn step_rollout(
        &self,
        deployment: &Arc<Deployment>,
        current: &Arc<ReplicaSet>,
        others: &[Arc<ReplicaSet>],
    ) -> Result<(), Error> {
        let replicas = |set: &Arc<ReplicaSet>| set.spec.replicas.unwrap_or(0);
        if deployment.spec.strategy.kind == "Recreate" {
            for set in others.iter().filter(|set| replicas(set) > 0) {
                self.scale(deployment, set, 0).await?;
            }
            let remaining = others.iter().any(|set| !self.pods.indexed(&set.metadata.uid).is_empty());
            return if remaining {
                Ok(())
            } else {
                self.scale(deployment, current, wanted(deployment)).await
            };
        }
        let old: i64 = others.iter().map(replicas).sum();
        let (target, mut surplus) = rollout_targets(deployment, current, old);
        self.scale(deployment, current, target).await?;
        // Scale down unavailable replicas first, then the oldest `ReplicaSet`s.
        let mut oldest: Vec<&Arc<ReplicaSet>> = others.iter().filter(|set| replicas(set) > 0).collect();
        oldest.sort_by_key(|set| (set.metadata.creation_timestamp, set.metadata.name.clone()));
        let mut targets: Vec<i64> = oldest.iter().map(|set| replicas(set)).collect();
        for (set, target) in oldest.iter().zip(&mut targets) {
            let broken = (*target - set.status.available_replicas).clamp(0, surplus);
            *target -= broken;
            surplus -= broken;
        }
        let available: i64 = current.status.available_replicas
            + oldest
                .iter()
                .zip(&targets)
                .map(|(set, target)| set.status.available_replicas.min(*target))
                .sum::<i64>();
        let mut surplus = surplus.min((available - (wanted(deployment) - unavailable(deployment))).max(0));
        for target in &mut targets {
            let fewer = (*target).min(surplus);
            *target -= fewer;
            surplus -= fewer;
        }
        for (set, target) in oldest.iter().zip(targets) {
            self.scale(deployment, set, target).await?;
        }
        Ok(())
    }

    async fn scale(
        &self,
        deployment: &Arc<Deployment>,
        set: &Arc<ReplicaSet>,
        target: i64,
    ) -> Result<(), Error> {
        let before = set.spec.replicas.unwrap_or(0);
        let replica_annotations = replica_annotations(deployment);
        let annotated =
            replica_annotations.iter().all(|(name, value)| set.metadata.annotation(name) == Some(value));
        if before == target && (annotated || target == 0) {
            return Ok(());
        }
        let replica_annotations: BTreeMap<String, String> = replica_annotations.into_iter().collect();
        let patch =
            json!({ "metadata": { "annotations": replica_annotations }, "spec": { "replicas": target } });
        self.cluster.patch(&self.sets, &set.metadata, patch, Precondition::ResourceVersion).await?;
        if before != target {
            let direction = if target > before { "up" } else { "down" };
            let name = &set.metadata.name;
            let message = format!("Scaled {direction} replica set {name} from {before} to {target}");
            self.recorder.normal(&**deployment, "ScalingReplicaSet", message);
        }
        Ok(())
    }

    /// Deletes empty `ReplicaSet`s beyond the revision history limit.
    async fn prune_history(
        &self,
        deployment: &Deployment,
        others: Vec<Arc<ReplicaSet>>,
    ) -> Result<(), Error> {
        let kept = usize::try_from(deployment.spec.revision_history_limit.unwrap_or(10)).unwrap_or(0);
        let empty = |set: &Arc<ReplicaSet>| set.spec.replicas == Some(0) && set.status.replicas == 0;
        let mut empty: Vec<Arc<ReplicaSet>> = others.into_iter().filter(empty).collect();
        empty.sort_by_key(|set| std::cmp::Reverse(revision(set)));
        for set in empty.iter().skip(kept) {
            self.cluster.delete(&self.sets, &set.metadata, Delete::default()).await?;
        }
        Ok(())
    }

    async fn report(&self, key: &Key) -> Result<Option<Instant>, Error> {
        let Some(deployment) = self.store.get(key) else { return Ok(None) };
        let sets = self.sets.indexed(&deployment.metadata.uid);
        let late = self.pace.deadline(Duration::from_secs(
            u64::try_from(deployment.spec.progress_deadline_seconds.unwrap_or(600)).unwrap_or(600),
        ));
        let (status, wake) = status(&deployment, &sets, self.cluster.stamp(), late);
        if status != deployment.status {
            self.cluster
                .patch_status(&self.store, &deployment.metadata, status, Precondition::ResourceVersion)
                .await?;
        }
        Ok(wake.map(|wake| Instant::now() + wake))
    }
}

/// Annotations of a `ReplicaSet` about its Deployment: desired and maximum replicas.
fn replica_annotations(deployment: &Deployment) -> [(String, String); 2] {
    let wanted = wanted(deployment);
    [(DESIRED.to_owned(), wanted.to_string()), (MAX.to_owned(), (wanted + surge(deployment)).to_string())]
}

fn wanted(deployment: &Deployment) -> i64 {
    deployment.spec.replicas.unwrap_or(1)
}

fn surge(deployment: &Deployment) -> i64 {
    if deployment.spec.strategy.kind == "Recreate" {
        return 0;
    }
    template::int_or_percent(
        &deployment.spec.strategy.rolling_update.max_surge,
        wanted(deployment),
        "25%",
        true,
    )
}

fn unavailable(deployment: &Deployment) -> i64 {
    let bound = &deployment.spec.strategy.rolling_update.max_unavailable;
    let unavailable =
        template::int_or_percent(bound, wanted(deployment), "25%", false).min(wanted(deployment));
    // If both maxSurge and maxUnavailable are 0, no rollout could progress.
    if unavailable == 0 && surge(deployment) == 0 { 1 } else { unavailable }
}

/// Replicas of the new `ReplicaSet`, and by how many replicas the old ones shrink in total.
fn rollout_targets(deployment: &Deployment, current: &ReplicaSet, old: i64) -> (i64, i64) {
    let wanted = wanted(deployment);
    let now = current.spec.replicas.unwrap_or(0);
    let room = wanted + surge(deployment) - now - old;
    let target = if now >= wanted { wanted } else { (now + room.max(0)).min(wanted) };
    let least = wanted - unavailable(deployment);
    let starting = (now - current.status.available_replicas).max(0);
    (target, (old + now - least - starting).clamp(0, old))
}

fn revision(set: &ReplicaSet) -> i64 {
    set.metadata.annotation(REVISION).and_then(|revision| revision.parse().ok()).unwrap_or(0)
}

fn others_are_older(set: &ReplicaSet, sets: &[Arc<ReplicaSet>]) -> bool {
    sets.iter().all(|other| other.metadata.uid == set.metadata.uid || revision(other) < revision(set))
}

fn selector_expressions(deployment: &Deployment) -> Vec<Value> {
    let expressions = deployment.spec.selector.match_expressions.iter();
    expressions.map(|e| json!({ "key": e.key, "operator": e.operator, "values": e.values })).collect()
}

/// Whether the template of a `ReplicaSet` equals that of the Deployment, except for the hash label.
fn same_template(set: &Value, deployment: &Value) -> bool {
    let mut set = set.clone();
    if let Some(labels) = set["metadata"]["labels"].as_object_mut() {
        labels.remove(HASH);
    }
    set == *deployment
}

/// The status, and when time alone changes it.
fn status(
    deployment: &Deployment,
    sets: &[Arc<ReplicaSet>],
    now: Stamp,
    late: Duration,
) -> (Value, Option<Duration>) {
    let old = &deployment.status;
    let wanted = wanted(deployment);
    let current = sets.iter().find(|set| same_template(&set.spec.template, &deployment.spec.template));
    let sum = |of: fn(&ReplicaSet) -> i64| sets.iter().map(|set| of(set)).sum::<i64>();
    let replicas = sum(|set| set.status.replicas);
    let available = sum(|set| set.status.available_replicas);
    let ready = sum(|set| set.status.ready_replicas);
    let updated = current.map_or(0, |set| set.status.replicas);
    let mut conditions: Vec<Condition> =
        serde_json::from_value(old["conditions"].clone()).unwrap_or_default();
    let set = |list: &mut Vec<Condition>, condition: Condition| {
        Condition { last_update_time: Some(now), ..condition }.set_in(list);
    };
    let enough = available >= wanted - unavailable(deployment);
    let (reason, message) = if enough {
        ("MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        ("MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    set(&mut conditions, Condition::new("Available", enough, reason, message, now));
    let mut wake = None;
    if let Some(current) = current {
        let name = &current.metadata.name;
        let complete = updated == wanted && replicas == wanted && available == wanted;
        let progressing = condition(&conditions, "Progressing");
        let number = |field: &str| old[field].as_i64().unwrap_or(0);
        let moved = updated > number("updatedReplicas")
            || ready > number("readyReplicas")
            || available > number("availableReplicas")
            || replicas - updated < number("replicas") - number("updatedReplicas");
        let since = progressing.and_then(|c| c.last_update_time).unwrap_or(now);
        let elapsed = Duration::try_from(now.0.duration_since(since.0)).unwrap_or_default();
        let was_complete = progressing.is_some_and(|c| c.reason == "NewReplicaSetAvailable");
        let next = if complete {
            let message = format!("ReplicaSet \"{name}\" has successfully progressed.");
            Some(Condition::new("Progressing", true, "NewReplicaSetAvailable", message, now))
        } else if progressing.is_none() {
            let message = format!("Created new replica set \"{name}\"");
            Some(Condition::new("Progressing", true, "NewReplicaSetCreated", message, now))
        } else if moved {
            let message = format!("ReplicaSet \"{name}\" is progressing.");
            // Renew the update time of the condition at every progress: the progress deadline counts from it.
            for held in conditions.iter_mut().filter(|condition| condition.kind == "Progressing") {
                held.reason.clear();
            }
            Some(Condition::new("Progressing", true, "ReplicaSetUpdated", message, now))
        } else if elapsed >= late && !was_complete {
            let message = format!("ReplicaSet \"{name}\" has timed out progressing.");
            Some(Condition::new("Progressing", false, "ProgressDeadlineExceeded", message, now))
        } else {
            if !was_complete {
                wake = Some(late.saturating_sub(elapsed));
            }
            None
        };
        if let Some(next) = next {
            set(&mut conditions, next);
        }
    }
    let some = |count: i64| if count == 0 { Value::Null } else { json!(count) };
    let mut status = json!({
        "observedGeneration": deployment.metadata.generation,
        "conditions": conditions,
    });
    for (field, count) in [
        ("replicas", replicas),
        ("updatedReplicas", updated),
        ("readyReplicas", ready),
        ("availableReplicas", available),
        ("unavailableReplicas", (wanted.max(replicas) - available).max(0)),
    ] {
        // Omit zeros, as the Deployment controller does. Null removes a value that was set before.
        if count != 0 || !old[field].is_null() {
            status[field] = some(count);
        }
    }
    (status, wake)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(replicas: i64, surge: &Value, unavailable: &Value) -> Deployment {
        serde_json::from_value(json!({ "spec": {
            "replicas": replicas,
            "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": surge, "maxUnavailable": unavailable } },
        } }))
        .unwrap()
    }

    fn set(replicas: i64, available: i64) -> ReplicaSet {
        serde_json::from_value(json!({
            "spec": { "replicas": replicas }, "status": { "replicas": replicas, "availableReplicas": available },
        }))
        .unwrap()
    }

    #[test]
    fn a_rollout_respects_max_surge_and_max_unavailable() {
        for (name, deployment, current, old, expected) in [
            ("first step", deployment(4, &json!(1), &json!(1)), set(0, 0), 4, (1, 1)),
            ("waits for the new", deployment(4, &json!(1), &json!(0)), set(1, 0), 4, (1, 0)),
            ("goes on", deployment(4, &json!(1), &json!(0)), set(1, 1), 4, (1, 1)),
            ("scales down", deployment(2, &json!("25%"), &json!("25%")), set(5, 5), 0, (2, 0)),
            ("neither nor", deployment(1, &json!(0), &json!(0)), set(0, 0), 1, (0, 1)),
            ("finished", deployment(4, &json!(1), &json!(1)), set(4, 4), 0, (4, 0)),
        ] {
            assert_eq!(rollout_targets(&deployment, &current, old), expected, "{name}");
        }
    }
}
