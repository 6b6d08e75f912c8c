//! Admission checks, topologies, and what authors do while no webhook answers.

use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use serde_json::{Value, json};

use super::invariants::{annotation, is_true};
use super::script::Action;
use super::world::{QUEUE_LABEL, World, is_owned_by, label, name, nth};
use crate::chaos::rng::Rng;
use crate::common::gang_pods;
use crate::common::jobs::jobs;
use crate::common::kueue::{active_check, create, kind, workloads};
use crate::common::queued_pods::pods;

/// The check of queues that have one.
const CHECK: &str = "budget";
const TOPOLOGY: &str = "racks";
const RACK: &str = "rack";
const REQUIRED: &str = "kueue.x-k8s.io/podset-required-topology";

/// One of them. Numbers select one of the objects that exist at that time.
#[derive(Debug, Clone)]
pub(crate) enum Operation {
    /// The controller of the check answers a Workload.
    Answer(u64, &'static str),
    /// The controller of the check serves it, or no longer.
    ServeCheck(bool),
    /// A Job that runs from the beginning.
    SubmitRunning { queue: u64, pods: u64 },
    /// A job moves to another queue, also while it runs.
    Move(u64, u64),
    /// A Job changes its size, also while it runs and is not elastic.
    Resize(u64, u64),
    /// A Job whose pods stay in one rack.
    SubmitToRack { queue: u64, pods: u64 },
    /// A node moves to another rack.
    MoveNode(u64, u64),
}

pub(crate) fn draw(rng: &mut Rng) -> Operation {
    let nth = rng.next();
    match rng.within(0, 19) {
        0..=6 => Operation::Answer(nth, rng.pick(&["Ready", "Ready", "Ready", "Retry", "Rejected"])),
        7..=8 => Operation::ServeCheck(rng.percent(60)),
        9..=11 => Operation::SubmitRunning { queue: nth, pods: rng.within(1, 5) },
        12..=13 => Operation::Move(nth, rng.next()),
        14..=15 => Operation::Resize(nth, rng.within(1, 6)),
        16..=18 => Operation::SubmitToRack { queue: nth, pods: rng.within(2, 6) },
        _ => Operation::MoveNode(nth, rng.within(0, 2)),
    }
}

fn checks() -> ApiResource {
    kind("AdmissionCheck", "admissionchecks")
}

/// The strategy of a queue whose Workloads need the check.
pub(crate) fn strategy() -> Value {
    json!({"admissionChecks": [{"name": CHECK}]})
}

/// The state that the check of a Workload has, if it has one.
fn state(workload: &DynamicObject) -> Option<&str> {
    workload.data["status"]["admissionChecks"][0]["state"].as_str()
}

impl World {
    /// Creates the check and the topology that the script has.
    pub(crate) async fn prepare_operations(&self) {
        if self.script.has_check {
            active_check(&self.cluster, CHECK).await;
        }
        if self.script.has_topology {
            let host = (!self.script.has_racks_alone).then(|| json!({"nodeLabel": "kubernetes.io/hostname"}));
            let levels: Vec<Value> = std::iter::once(json!({"nodeLabel": RACK})).chain(host).collect();
            let levels = json!({ "levels": levels });
            create(&self.cluster, "Topology", "topologies", TOPOLOGY, levels).await;
            let flavor =
                json!({"spec": {"nodeLabels": {"kubernetes.io/os": "linux"}, "topologyName": TOPOLOGY}});
            self.patch(&kind("ResourceFlavor", "resourceflavors"), "", "default", flavor).await;
        }
    }

    pub(crate) async fn operate(&mut self, operation: &Operation) {
        match operation {
            Operation::Answer(number, answer) => {
                let mut all = self.list(&workloads()).await;
                all.retain(|workload| state(workload).is_some());
                if let Some(workload) = nth(all, *number) {
                    self.answer(&workload, answer).await;
                }
            }
            Operation::ServeCheck(is_served) => self.serve_check(*is_served).await,
            Operation::SubmitRunning { queue, pods } => {
                let mut job = crate::common::jobs::job(&self.next_name(), u32::try_from(*pods).unwrap());
                job["spec"]["suspend"] = json!(false);
                self.create_with_labels(&jobs(), job, json!({QUEUE_LABEL: self.queue_name(*queue)})).await;
            }
            Operation::Move(number, queue) => {
                if let Some((kind, _, job)) = nth(self.jobs().await, *number) {
                    let labels = json!({"metadata": {"labels": {QUEUE_LABEL: self.queue_name(*queue)}}});
                    self.patch(&kind, "default", name(&job), labels).await;
                }
            }
            Operation::Resize(number, pods) => {
                if let Some(job) = nth(self.list(&jobs()).await, *number) {
                    self.patch(&jobs(), "default", name(&job), json!({"spec": {"parallelism": pods}})).await;
                }
            }
            Operation::SubmitToRack { queue, pods } => {
                let mut job = crate::common::jobs::job(&self.next_name(), u32::try_from(*pods).unwrap());
                if self.script.has_topology {
                    job["spec"]["template"]["metadata"] = json!({"annotations": {REQUIRED: RACK}});
                }
                self.create_with_labels(&jobs(), job, json!({QUEUE_LABEL: self.queue_name(*queue)})).await;
            }
            Operation::MoveNode(number, rack) => {
                let nodes = gang_pods::nodes();
                if let Some(node) = nth(self.list(&nodes).await, *number) {
                    let labels = json!({"metadata": {"labels": {RACK: format!("r{rack}")}}});
                    self.patch(&nodes, "", name(&node), labels).await;
                }
            }
        }
    }

    /// The controller of the check serves it again, and has no objection to any Workload that waits for it.
    pub(crate) async fn approve(&self) {
        if !self.script.has_check {
            return;
        }
        self.serve_check(true).await;
        for workload in self.list(&workloads()).await {
            if state(&workload) == Some("Pending") && is_true(&workload, "QuotaReserved") {
                self.answer(&workload, "Ready").await;
            }
        }
    }

    fn now(&self) -> String {
        (self.cluster.clock)().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    async fn serve_check(&self, is_served: bool) {
        let now = self.now();
        let status = if is_served { "True" } else { "False" };
        let active = json!([{"type": "Active", "status": status, "reason": "Active", "message": "",
            "lastTransitionTime": now}]);
        let patch = Patch::Merge(json!({"status": {"conditions": active}}));
        self.cluster.api(&checks(), "").patch_status(CHECK, &PatchParams::default(), &patch).await.ok();
    }

    async fn answer(&self, workload: &DynamicObject, answer: &str) {
        let mut all = workload.data["status"]["admissionChecks"].clone();
        let now = self.now();
        (all[0]["state"], all[0]["lastTransitionTime"]) = (json!(answer), json!(now));
        let patch = Patch::Merge(json!({
            "metadata": {"resourceVersion": workload.metadata.resource_version},
            "status": {"admissionChecks": all}}));
        let api = self.cluster.api(&workloads(), "default");
        api.patch_status(name(workload), &PatchParams::default(), &patch).await.ok();
    }

    /// Jobs that demand one rack and run in several, while no node has moved.
    pub(crate) async fn torn_apart(&self) -> Vec<String> {
        let has_moved =
            |(_, action): &(u64, Action)| matches!(action, Action::Operate(Operation::MoveNode(..)));
        if !self.script.has_topology || self.script.actions.iter().any(has_moved) {
            return Vec::new();
        }
        let (pods, nodes) = (self.list(&pods()).await, self.list(&gang_pods::nodes()).await);
        let rack = |pod: &DynamicObject| {
            let node = nodes.iter().find(|node| pod.data["spec"]["nodeName"] == name(node))?;
            label(node, RACK)
        };
        let mut problems = Vec::new();
        for job in self.list(&jobs()).await {
            let template = &job.data["spec"]["template"];
            if template["metadata"]["annotations"][REQUIRED] != RACK
                || annotation(&job, "kueue.x-k8s.io/elastic-job").is_some()
            {
                continue;
            }
            let runs = |pod: &&DynamicObject| {
                is_owned_by(pod, job.metadata.uid.as_ref()) && pod.data["status"]["phase"] == "Running"
            };
            let mut racks: Vec<_> = pods.iter().filter(runs).filter_map(rack).collect();
            racks.sort_unstable();
            racks.dedup();
            if racks.len() > 1 {
                problems.push(format!("{} runs in the racks {racks:?}", name(&job)));
            }
        }
        problems
    }
}

/// Workloads that are admitted although their check says something else.
pub(crate) fn unchecked(all: &[DynamicObject]) -> Vec<String> {
    let is_open = |workload: &&DynamicObject| {
        is_true(workload, "Admitted")
            && !is_true(workload, "Finished")
            && !is_true(workload, "Evicted")
            && state(workload).is_some_and(|state| state != "Ready")
    };
    let told = |workload: &DynamicObject| {
        format!("{} is admitted, its check is {}", name(workload), state(workload).unwrap_or_default())
    };
    all.iter().filter(is_open).map(told).collect()
}
