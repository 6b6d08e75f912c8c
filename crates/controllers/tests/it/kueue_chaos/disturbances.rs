//! What careless and hostile authors and operators do besides: references to owners, gates, names of Workloads, limits of the
//! namespace, nodes, sets of pods, and AppWrappers that compete for the nodes.

use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use serde_json::{Value, json};

use super::world::{QUEUE_LABEL, World, is_owned, job_kinds, label, name, nth};
use crate::chaos::rng::Rng;
use crate::common::jobs::jobs;
use crate::common::kueue::workloads;
use crate::common::queued_pods::pods;
use crate::common::{Group, gang_pods, resource, wrappers};

/// One of them. Numbers select one of the objects that exist at that time.
#[derive(Debug, Clone)]
pub(crate) enum Disturbance {
    /// A job gets another job as its controller, or one that is not there.
    Own {
        job: u64,
        by: u64,
        is_made_up: bool,
    },
    /// A job or a Workload loses its owners. Controllers adopt pods again that do.
    Disown(u64),
    /// A pod loses its gates.
    OpenGates(u64),
    /// A Job names a Workload as its own, or one that is not there.
    Claim {
        queue: u64,
        workload: u64,
        is_made_up: bool,
    },
    /// The namespace forbids pods of more than half a CPU, or no longer.
    Limit(bool),
    DeleteNode(u64),
    SubmitWrapper(u64),
    DeleteWrapper(u64),
    /// A pod is gone at once.
    DeletePodByForce(u64),
    /// A `StatefulSet` in a queue.
    SubmitSet {
        queue: u64,
        pods: u64,
    },
    /// A `StatefulSet` is scaled by the subresource, as `kubectl scale` does.
    Scale(u64, u64),
    DeleteSet(u64),
    /// The namespace has room for few pods only, or no longer.
    LimitPods(bool),
}

/// A disturbance of the later seeds, which know more of them than the first.
pub(crate) fn draw_more(rng: &mut Rng) -> Disturbance {
    let nth = rng.next();
    match rng.within(0, 15) {
        0..=3 => Disturbance::SubmitSet { queue: nth, pods: rng.within(1, 4) },
        4..=6 => Disturbance::Scale(nth, rng.within(0, 5)),
        7 => Disturbance::DeleteSet(nth),
        8 => Disturbance::LimitPods(rng.percent(50)),
        _ => draw(rng),
    }
}

pub(crate) fn draw(rng: &mut Rng) -> Disturbance {
    let nth = rng.next();
    match rng.within(0, 19) {
        0..=2 => Disturbance::Own { job: nth, by: rng.next(), is_made_up: rng.percent(20) },
        3..=5 => Disturbance::Disown(nth),
        6..=7 => Disturbance::OpenGates(nth),
        8..=9 => Disturbance::Claim { queue: nth, workload: rng.next(), is_made_up: rng.percent(20) },
        10..=11 => Disturbance::Limit(rng.percent(50)),
        12..=13 => Disturbance::DeleteNode(nth),
        14..=16 => Disturbance::SubmitWrapper(rng.within(1, 4)),
        17 => Disturbance::DeleteWrapper(nth),
        _ => Disturbance::DeletePodByForce(nth),
    }
}

fn resource_quotas() -> ApiResource {
    resource("v1", "ResourceQuota", "resourcequotas")
}

pub(crate) fn stateful_sets() -> ApiResource {
    resource("apps/v1", "StatefulSet", "statefulsets")
}

/// A `StatefulSet` as the webhook leaves it: its pods wait for their queue.
fn queued_set(name: &str, queue: &str, replicas: u64) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
    let labels = json!({"app": name, "kueue.x-k8s.io/managed": "true", QUEUE_LABEL: queue});
    let annotations = json!({"kueue.x-k8s.io/pod-suspending-parent": "statefulset"});
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": name, "labels": {QUEUE_LABEL: queue}},
        "spec": {"replicas": replicas, "serviceName": name, "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": labels, "annotations": annotations},
                "spec": {"containers": [container], "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}}}})
}

fn limit_ranges() -> ApiResource {
    resource("v1", "LimitRange", "limitranges")
}

impl World {
    pub(crate) async fn disturb(&mut self, disturbance: &Disturbance) {
        match disturbance {
            Disturbance::Own { job, by, is_made_up } => self.own(*job, *by, *is_made_up).await,
            Disturbance::Disown(number) => self.disown(*number).await,
            Disturbance::OpenGates(number) => {
                if let Some(pod) = nth(self.list(&pods()).await, *number) {
                    let gates = json!({"spec": {"schedulingGates": null}});
                    self.patch(&pods(), "default", name(&pod), gates).await;
                }
            }
            Disturbance::Claim { queue, workload, is_made_up } => {
                let known = nth(self.list(&workloads()).await, *workload).filter(|_| !is_made_up);
                let claimed = known.as_ref().map_or("made-up", name);
                let job = crate::common::jobs::job(&self.next_name(), 1);
                let labels = json!({"kueue.x-k8s.io/queue-name": self.queue_name(*queue),
                    "kueue.x-k8s.io/prebuilt-workload-name": claimed});
                self.create_with_labels(&jobs(), job, labels).await;
            }
            Disturbance::Limit(true) => {
                let limits = json!([{"type": "Container", "max": {"cpu": "500m"}}]);
                let range = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "half"},
                    "spec": {"limits": limits}});
                self.try_create(&limit_ranges(), range).await;
            }
            Disturbance::Limit(false) => self.lift_limit().await,
            Disturbance::DeleteNode(number) => {
                let nodes = gang_pods::nodes();
                if let Some(node) = nth(self.list(&nodes).await, *number) {
                    self.cluster.api(&nodes, "").delete(name(&node), &DeleteParams::default()).await.ok();
                }
            }
            Disturbance::SubmitWrapper(pods) => {
                let mut wrapper = gang_pods::pair(&self.next_name());
                let spec = &mut wrapper["spec"]["resources"]["GenericItems"][0]["generictemplate"]["spec"];
                (spec["parallelism"], spec["completions"]) = (json!(pods), json!(pods));
                let requests = &mut spec["template"]["spec"]["containers"][0]["resources"]["requests"];
                requests["cpu"] = json!("1");
                self.try_create(&wrappers(Group::Mcad), wrapper).await;
            }
            Disturbance::DeleteWrapper(number) => {
                if let Some(wrapper) = nth(self.list(&wrappers(Group::Mcad)).await, *number) {
                    self.delete(&wrappers(Group::Mcad), name(&wrapper)).await;
                }
            }
            Disturbance::DeletePodByForce(number) => {
                if let Some(pod) = nth(self.list(&pods()).await, *number) {
                    self.cluster.delete_now(&pods(), "default", name(&pod)).await;
                }
            }
            Disturbance::SubmitSet { queue, pods } => {
                let set = queued_set(&self.next_name(), &self.queue_name(*queue), *pods);
                self.try_create(&stateful_sets(), set).await;
            }
            Disturbance::Scale(number, replicas) => {
                if let Some(set) = nth(self.list(&stateful_sets()).await, *number) {
                    let scale = Patch::Merge(json!({"spec": {"replicas": replicas}}));
                    let api = self.cluster.api(&stateful_sets(), "default");
                    api.patch_subresource("scale", name(&set), &PatchParams::default(), &scale).await.ok();
                }
            }
            Disturbance::DeleteSet(number) => {
                if let Some(set) = nth(self.list(&stateful_sets()).await, *number) {
                    self.delete(&stateful_sets(), name(&set)).await;
                }
            }
            Disturbance::LimitPods(true) => {
                let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"},
                    "spec": {"hard": {"pods": "4"}}});
                self.try_create(&resource_quotas(), quota).await;
            }
            Disturbance::LimitPods(false) => self.delete(&resource_quotas(), "few").await,
        }
    }

    async fn own(&self, job: u64, by: u64, is_made_up: bool) {
        let all = self.jobs().await;
        let Some((kind, _, job)) = nth(all.clone(), job) else { return };
        let Some((of, _, owner)) = nth(all, by) else { return };
        if owner.metadata.uid == job.metadata.uid {
            return;
        }
        let uid = if is_made_up { Some("made-up".to_owned()) } else { owner.metadata.uid.clone() };
        let reference = json!({"apiVersion": of.api_version, "kind": of.kind, "name": name(&owner), "uid": uid,
            "controller": true});
        let owners = json!({"metadata": {"ownerReferences": [reference]}});
        self.patch(&kind, "default", name(&job), owners).await;
    }

    async fn disown(&self, number: u64) {
        let mut owned: Vec<(ApiResource, DynamicObject)> = Vec::new();
        let kinds = job_kinds().into_iter().map(|(kind, _)| kind).chain([workloads()]);
        for kind in kinds {
            let all = self.list(&kind).await.into_iter().filter(is_owned);
            owned.extend(all.map(|object| (kind.clone(), object)));
        }
        if let Some((kind, object)) = nth(owned, number) {
            let owners = json!({"metadata": {"ownerReferences": null}});
            self.patch(&kind, "default", name(&object), owners).await;
        }
    }

    pub(crate) async fn lift_limit(&self) {
        self.delete(&limit_ranges(), "half").await;
        self.delete(&resource_quotas(), "few").await;
    }

    /// What is broken about AppWrappers in a cluster at rest with room for all of them.
    pub(crate) async fn broken_wrappers(&self) -> Vec<String> {
        let all = self.list(&wrappers(Group::Mcad)).await;
        let waits = all.iter().filter(|wrapper| {
            wrapper.data["status"]["state"] == "Pending" && wrapper.metadata.deletion_timestamp.is_none()
        });
        waits
            .map(|wrapper| {
                format!("AppWrapper {} waits: {}", name(wrapper), wrapper.data["status"]["message"])
            })
            .collect()
    }

    /// Creates an object, if the API server does not refuse it.
    pub(crate) async fn try_create(&self, kind: &ApiResource, object: Value) {
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        self.cluster.api(kind, "default").create(&PostParams::default(), &object).await.ok();
    }

    pub(crate) async fn create_with_labels(&self, kind: &ApiResource, mut object: Value, labels: Value) {
        object["metadata"]["labels"] = labels;
        self.try_create(kind, object).await;
    }
}

/// Whether a job names a Workload that it is to use.
pub(crate) fn claims(job: &DynamicObject) -> bool {
    label(job, "kueue.x-k8s.io/prebuilt-workload-name").is_some()
}
