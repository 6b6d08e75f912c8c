//! The `StatefulSet` controller: pods with stable names, created in order or in parallel.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::template;
use crate::cluster::{Cluster, Delete, Error, Kind, Precondition, Queue, Recorder, Resource, Store};
use crate::storage;
use crate::wire::{Claim, Key, Owner, Pod, Stamp, StatefulSet, StatefulSetStatus};

const REVISION: &str = "controller-revision-hash";

/// The controller of `StatefulSet`s.
pub(crate) struct StatefulSets {
    cluster: Cluster,
    sets: Arc<Store<StatefulSet>>,
    pods: Arc<Store<Pod>>,
    recorder: Recorder,
    pub(crate) queue: Queue<Key>,
}

/// One change to the pods of a `StatefulSet`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Create(i64),
    Delete(String),
}

impl StatefulSets {
    pub(crate) fn new(
        cluster: Cluster,
        sets: Arc<Store<StatefulSet>>,
        pods: Arc<Store<Pod>>,
        recorder: &Recorder,
    ) -> Self {
        Self {
            cluster,
            sets,
            pods,
            recorder: recorder.for_component("statefulset-controller"),
            queue: Queue::new(),
        }
    }

    pub(crate) fn pod_changed(&self, pod: &Pod) {
        if let Some(key) = pod.metadata.controller_of_kind("StatefulSet") {
            self.queue.add(key);
        }
    }

    pub(crate) async fn reconcile(&self, key: Key) -> Result<Option<Instant>, Error> {
        let Some(set) = self.sets.get(&key).filter(|set| !set.metadata.is_deleting()) else {
            return Ok(None);
        };
        let update = format!("{}-{}", key.name, template::hash(&set.spec.template));
        if set.status.update_revision != update {
            self.create_revision(&set, &update).await?;
        }
        let set = self.cluster.limit(set, &self.recorder);
        let now = self.cluster.stamp();
        let pods = self.pods.indexed(&set.metadata.uid);
        for step in decide(&set, &pods, &update, now) {
            match step {
                Step::Create(ordinal) => {
                    self.create_claims(&set, ordinal).await?;
                    let pod = pod_for_ordinal(&set, ordinal, &update);
                    let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                    if let Err(error) = self.cluster.create(&self.pods, &key.namespace, &pod).await {
                        let message = format!(
                            "create Pod {name} in StatefulSet {} failed error: {}",
                            key.name,
                            error.reason()
                        );
                        self.recorder.warning(&*set, "FailedCreate", message);
                        return Err(error);
                    }
                    let message = format!("create Pod {name} in StatefulSet {} successful", key.name);
                    self.recorder.normal(&*set, "SuccessfulCreate", message);
                }
                Step::Delete(name) => {
                    let Some(pod) = pods.iter().find(|pod| pod.metadata.name == name) else { continue };
                    self.cluster.delete(&self.pods, &pod.metadata, Delete::default()).await?;
                    let message = format!("delete Pod {name} in StatefulSet {} successful", key.name);
                    self.recorder.normal(&*set, "SuccessfulDelete", message);
                }
            }
        }
        let status = status(&set, &self.pods.indexed(&set.metadata.uid), update, now);
        let awaiting_min_ready = status.available_replicas < status.ready_replicas;
        if status != set.status {
            self.cluster
                .patch_status(&self.sets, &set.metadata, json!(status), Precondition::ResourceVersion)
                .await?;
        }
        Ok(awaiting_min_ready.then(|| Instant::now() + Duration::from_secs(1)))
    }

    /// Creates the claims of a pod. They outlive it.
    async fn create_claims(&self, set: &StatefulSet, ordinal: i64) -> Result<(), Error> {
        for (name, template) in claims_for_ordinal(set, ordinal) {
            let mut claim = storage::claim(template, &name);
            let labels = set.spec.selector.match_labels.iter().map(|(key, value)| (&**key, value.clone()));
            template::set_metadata(&mut claim, "labels", labels);
            let namespace = &set.metadata.namespace;
            if self.cluster.create_if_absent(Claim::KIND, namespace, &claim).await? {
                let (pod, set_name) = (format!("{}-{ordinal}", set.metadata.name), &set.metadata.name);
                let message = format!("create Claim {name} Pod {pod} in StatefulSet {set_name} success");
                self.recorder.normal(set, "SuccessfulCreate", message);
            }
        }
        Ok(())
    }

    /// Saves the template as a `ControllerRevision`, for `kubectl rollout history` and `undo`.
    async fn create_revision(&self, set: &StatefulSet, name: &str) -> Result<(), Error> {
        let revision = json!({
            "apiVersion": Kind::REVISION.api_version,
            "kind": Kind::REVISION.name,
            "metadata": {
                "name": name,
                "namespace": set.metadata.namespace,
                "labels": set.spec.selector.match_labels,
                "ownerReferences": [Owner::controller_of("apps/v1", "StatefulSet", &set.metadata)],
            },
            "data": { "spec": { "template": set.spec.template } },
            "revision": set.metadata.generation,
        });
        self.cluster.create_if_absent(Kind::REVISION, &set.metadata.namespace, &revision).await.map(drop)
    }
}

/// The names and templates of the claims of a pod.
fn claims_for_ordinal(set: &StatefulSet, ordinal: i64) -> impl Iterator<Item = (String, &Value)> {
    set.spec.volume_claim_templates.iter().map(move |template| {
        let volume = template["metadata"]["name"].as_str().unwrap_or_default();
        (format!("{volume}-{}-{ordinal}", set.metadata.name), template)
    })
}

fn pod_for_ordinal(set: &StatefulSet, ordinal: i64, revision: &str) -> Value {
    let name = format!("{}-{ordinal}", set.metadata.name);
    let mut pod = template::named_pod(&set.spec.template, set, &name);
    template::set_metadata(
        &mut pod,
        "labels",
        [
            (REVISION, revision.to_owned()),
            ("statefulset.kubernetes.io/pod-name", name.clone()),
            ("apps.kubernetes.io/pod-index", ordinal.to_string()),
        ],
    );
    pod["spec"]["hostname"] = json!(name);
    let mut volumes = pod["spec"]["volumes"].as_array().cloned().unwrap_or_default();
    for (claim, template) in claims_for_ordinal(set, ordinal) {
        // The volume of a template replaces one of this name.
        let volume = &template["metadata"]["name"];
        volumes.retain(|other| other["name"] != *volume);
        volumes.push(json!({ "name": volume, "persistentVolumeClaim": { "claimName": claim } }));
    }
    if !volumes.is_empty() {
        pod["spec"]["volumes"] = json!(volumes);
    }
    if !set.spec.service_name.is_empty() {
        pod["spec"]["subdomain"] = json!(set.spec.service_name);
    }
    pod
}

fn ordinal(pod: &Pod) -> Option<i64> {
    pod.metadata.name.rsplit_once('-')?.1.parse().ok()
}

/// The next changes of the pods: one at a time and in order, unless the pod management policy is `Parallel`.
fn decide(set: &StatefulSet, pods: &[Arc<Pod>], update: &str, now: Stamp) -> Vec<Step> {
    let start = set.spec.ordinals.start;
    let wanted = start..start + set.spec.replicas.unwrap_or(1);
    let parallel = set.spec.pod_management_policy == "Parallel";
    let by_ordinal: BTreeMap<i64, &Arc<Pod>> =
        pods.iter().filter_map(|pod| Some((ordinal(pod)?, pod))).collect();
    let healthy = |pod: &Pod| pod.is_active() && template::is_available(pod, set.spec.min_ready_seconds, now);
    let mut steps = Vec::new();
    for number in wanted.clone() {
        match by_ordinal.get(&number) {
            None => steps.push(Step::Create(number)),
            Some(pod) if pod.is_finished() && !pod.metadata.is_deleting() => {
                steps.push(Step::Delete(pod.metadata.name.clone()));
            }
            Some(pod) if healthy(pod) || parallel => continue,
            // Later ordinals wait for this pod.
            Some(_) => return steps,
        }
        if !parallel {
            return steps;
        }
    }
    for (_, pod) in by_ordinal.iter().rev().filter(|(number, _)| !wanted.contains(number)) {
        if pod.metadata.is_deleting() {
            if !parallel {
                return steps;
            }
            continue;
        }
        steps.push(Step::Delete(pod.metadata.name.clone()));
        if !parallel {
            return steps;
        }
    }
    if set.spec.update_strategy.kind == "OnDelete" || !steps.is_empty() {
        return steps;
    }
    // Update pods from the last ordinal down to the partition, one at a time. Every pod waits until the later ones
    // are healthy.
    let partition = set.spec.update_strategy.rolling_update.partition.unwrap_or(0);
    for (_, pod) in
        by_ordinal.iter().rev().filter(|(number, _)| wanted.contains(number) && **number >= partition)
    {
        if pod.metadata.label(REVISION) != Some(update) {
            if !pod.metadata.is_deleting() {
                steps.push(Step::Delete(pod.metadata.name.clone()));
            }
            return steps;
        }
        if !healthy(pod) {
            return steps;
        }
    }
    steps
}

fn status(set: &StatefulSet, pods: &[Arc<Pod>], update: String, now: Stamp) -> StatefulSetStatus {
    let wanted = set.spec.replicas.unwrap_or(1);
    let updated =
        template::count(pods, |pod| pod.is_active() && pod.metadata.label(REVISION) == Some(&*update));
    let replicas = template::count(pods, |pod| !pod.is_finished());
    let ready = template::count(pods, |pod| pod.is_running() && pod.is_ready());
    let old = &set.status;
    let done = updated == wanted && replicas == wanted && ready == wanted;
    let current =
        if old.current_revision.is_empty() || done { update.clone() } else { old.current_revision.clone() };
    StatefulSetStatus {
        observed_generation: set.metadata.generation,
        replicas,
        ready_replicas: ready,
        available_replicas: template::count(pods, |pod| {
            pod.is_running() && template::is_available(pod, set.spec.min_ready_seconds, now)
        }),
        current_replicas: template::count(pods, |pod| {
            pod.is_active() && pod.metadata.label(REVISION) == Some(&*current)
        }),
        updated_replicas: updated,
        current_revision: current,
        update_revision: update,
        collision_count: old.collision_count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(replicas: i64, policy: &str) -> StatefulSet {
        serde_json::from_value(json!({
            "metadata": { "name": "s" }, "spec": { "replicas": replicas, "podManagementPolicy": policy },
        }))
        .unwrap()
    }

    fn pod(number: i64, ready: bool, revision: &str) -> Arc<Pod> {
        let status = if ready { "True" } else { "False" };
        Arc::new(
            serde_json::from_value(json!({
                "metadata": { "name": format!("s-{number}"), "labels": { REVISION: revision } },
                "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": status }] },
            }))
            .unwrap(),
        )
    }

    fn check(name: &str, set: &StatefulSet, pods: &[Arc<Pod>], expected: &[Step]) {
        assert_eq!(decide(set, pods, "new", Stamp::of(jiff::Timestamp::UNIX_EPOCH)), expected, "{name}");
    }

    #[test]
    fn an_ordered_set_creates_pods_one_by_one_and_deletes_them_in_reverse() {
        let delete = |number: i64| Step::Delete(format!("s-{number}"));
        let ordered = set(3, "OrderedReady");
        check("first", &ordered, &[], &[Step::Create(0)]);
        check("waits", &ordered, &[pod(0, false, "new")], &[]);
        check("second", &ordered, &[pod(0, true, "new")], &[Step::Create(1)]);
        let all: Vec<_> = (0..3).map(|number| pod(number, true, "new")).collect();
        check("done", &ordered, &all, &[]);
        check("down", &set(1, "OrderedReady"), &all, &[delete(2)]);
        check("parallel", &set(2, "Parallel"), &[], &[Step::Create(0), Step::Create(1)]);
        check("parallel down", &set(1, "Parallel"), &all, &[delete(2), delete(1)]);
    }

    #[test]
    fn a_rolling_update_replaces_the_highest_ordinal_first() {
        let ordered = set(2, "OrderedReady");
        let last = [Step::Delete("s-1".to_owned())];
        check("last first", &ordered, &[pod(0, true, "old"), pod(1, true, "old")], &last);
        check("waits", &ordered, &[pod(0, true, "old"), pod(1, false, "new")], &[]);
        let first = [Step::Delete("s-0".to_owned())];
        check("then the first", &ordered, &[pod(0, true, "old"), pod(1, true, "new")], &first);
    }
}
