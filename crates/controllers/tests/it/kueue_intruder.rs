//! Random tests of a hostile tenant: it may write everything in its own namespace, and nothing elsewhere. It makes random claims about
//! the jobs, pods and Workloads of an honest tenant for a while. What becomes of the honest tenant is what becomes of it alone.
//!
//! A seed decides what is claimed. `CHAOS_SEEDS=1-500 cargo test -p controllers kueue_intruder::` runs a range on all cores.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::chaos::rng::Rng;
use crate::chaos::seeds;
use crate::common::jobs::{all_kinds, cluster_with_queue, jobs, template};
use crate::common::kueue::{VERSION, create, kind, workloads};
use crate::common::queued_pods::pods;
use crate::common::{Cluster, recording, resource};
use controllers::{Config, Kueue};
use kube::ResourceExt as _;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use serde_json::{Value, json};

const HONEST: &str = "default";
const INTRUDER: &str = "intruder";
/// The CPUs of the queue of the hostile tenant.
const QUOTA: usize = 2;
const ROUNDS: u32 = 60;
const ROUND: Duration = Duration::from_secs(20);
/// Writes in ten minutes in which nobody does anything.
const WRITES_AT_REST_MAX: usize = 20;

#[test]
fn random_claims_of_a_hostile_tenant_change_nothing_of_another_one_and_exceed_no_quota() {
    let seeds = seeds::chosen(1..=16);
    let failed = seeds::run(&seeds, |seed| {
        let alone = run(seed, false)?;
        let beside = run(seed, true)?;
        if alone == beside { Ok(()) } else { Err(format!("alone: {alone:#?}\nbeside: {beside:#?}")) }
    });
    let told: Vec<_> =
        failed.iter().map(|(seed, text)| format!("CHAOS_SEEDS={seed}-{seed}: {text}")).collect();
    assert!(failed.is_empty(), "{} of {} seeds failed:\n{}", failed.len(), seeds.len(), told.join("\n"));
}

/// What became of the objects of the honest tenant, by kind and name.
type Outcome = BTreeMap<String, String>;

fn run(seed: u64, is_hostile: bool) -> Result<Outcome, String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let result = catch_unwind(AssertUnwindSafe(|| runtime.block_on(play(seed, is_hostile))));
    result.unwrap_or_else(|panic| {
        Err(format!("the test panicked: {}", panic.downcast_ref::<String>().cloned().unwrap_or_default()))
    })
}

async fn play(seed: u64, is_hostile: bool) -> Result<Outcome, String> {
    let cluster = cluster_with_queue(3, json!({})).await;
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": INTRUDER}});
    cluster.create_as(&resource("v1", "Namespace", "namespaces"), "", object).await;
    let flavor = json!({"name": "default", "resources": [{"name": "cpu", "nominalQuota": QUOTA}]});
    let spec = json!({"namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor]}]});
    create(&cluster, "ClusterQueue", "clusterqueues", "rogue", spec).await;
    let queue = json!({"apiVersion": VERSION, "kind": "LocalQueue", "metadata": {"name": "team"}, "spec": {"clusterQueue": "rogue"}});
    cluster.create_as(&kind("LocalQueue", "localqueues"), INTRUDER, queue).await;
    let (client, writes) = recording(&cluster);
    let _controller =
        cluster.start(client, Config { kueue: Kueue::Scheduler, jobs: all_kinds(), ..Config::default() });

    let (mut honest, mut hostile) = (Rng::new(seed), Rng::new(seed ^ 0x5eed));
    let mut tenants = Tenants { cluster: &cluster, created: 0, ends: BTreeMap::new() };
    for round in 0..ROUNDS {
        if round % 6 == 0 && round < 30 {
            tenants.submit_honest(round, &mut honest).await;
        }
        if is_hostile {
            for _ in 0..hostile.within(0, 3) {
                tenants.claim(&mut hostile).await;
            }
        }
        tokio::time::sleep(ROUND).await;
        tenants.play_operators(round).await;
    }
    tokio::time::sleep(Duration::from_mins(10)).await;
    tenants.quota_is_kept().await?;
    writes.lock().unwrap().clear();
    tokio::time::sleep(Duration::from_mins(10)).await;
    let at_rest = writes.lock().unwrap().clone();
    if at_rest.len() > WRITES_AT_REST_MAX {
        return Err(format!("{} writes at rest, the last {:?}", at_rest.len(), at_rest.last()));
    }
    tenants.outcome().await
}

/// The tenants, and the controllers of their jobs.
struct Tenants<'a> {
    cluster: &'a Cluster,
    created: usize,
    /// The round in which an honest job ends.
    ends: BTreeMap<String, u32>,
}

impl Tenants<'_> {
    async fn list(&self, kind: &ApiResource, namespace: &str) -> Vec<DynamicObject> {
        self.cluster.api(kind, namespace).list(&ListParams::default()).await.unwrap().items
    }

    async fn submit_honest(&mut self, round: u32, rng: &mut Rng) {
        let name = format!("honest-{round}");
        let count = rng.within(1, 3);
        let spec =
            json!({"parallelism": count, "completions": count, "suspend": true, "template": template()});
        self.ends.insert(name.clone(), u32::try_from(rng.within(2, 8)).unwrap());
        let job = json!({"apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "team"}}, "spec": spec});
        self.cluster.create_as(&jobs(), HONEST, job).await;
        if round == 12 {
            for member in ["a", "b"] {
                let annotations = json!({"kueue.x-k8s.io/pod-group-total-count": "2"});
                let pod = pod(&format!("group-{member}"), Some("group"), &annotations, 1);
                self.cluster.create_as(&pods(), HONEST, pod).await;
            }
        }
    }

    /// Plays the Job controller and the kubelet, in both namespaces.
    async fn play_operators(&mut self, round: u32) {
        for namespace in [HONEST, INTRUDER] {
            for job in self.list(&jobs(), namespace).await {
                let is_suspended = job.data["spec"]["suspend"] == true;
                let (active, count) = (
                    job.data["status"]["active"].as_u64().unwrap_or(0),
                    job.data["spec"]["parallelism"].as_u64().unwrap_or(0),
                );
                let is_over = job.data["status"]["conditions"].is_array();
                let left = self.ends.get_mut(&job.name_any()).filter(|_| namespace == HONEST);
                let status = match (is_suspended, left) {
                    _ if is_over => continue,
                    (true, _) if active == 0 => continue,
                    (true, _) => json!({"active": 0}),
                    (false, Some(left)) if *left == 0 => json!({"active": 0, "succeeded": count,
                        "conditions": [{"type": "Complete", "status": "True", "message": "", "reason": ""}]}),
                    (false, left) => {
                        if let Some(left) = left {
                            *left -= 1;
                        }
                        json!({"active": count, "startTime": "2023-11-14T22:13:20Z"})
                    }
                };
                self.status(&jobs(), namespace, &job.name_any(), status).await;
            }
            for pod in self.list(&pods(), namespace).await {
                let is_free = pod.data["spec"]["schedulingGates"].as_array().is_none_or(Vec::is_empty);
                let phase = match (&pod.metadata.deletion_timestamp, pod.data["status"]["phase"].as_str()) {
                    (Some(_), Some("Running" | "Pending") | None) => "Failed",
                    (None, Some("Running")) if namespace == HONEST && round > 40 => "Succeeded",
                    (None, Some("Pending") | None) if is_free => "Running",
                    _ => continue,
                };
                self.status(&pods(), namespace, &pod.name_any(), json!({"phase": phase})).await;
            }
        }
    }

    async fn status(&self, kind: &ApiResource, namespace: &str, name: &str, status: Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        // The API server may refuse what a hostile author has made impossible.
        drop(self.cluster.api(kind, namespace).patch_status(name, &PatchParams::default(), &patch).await);
    }

    /// One claim: an object of the hostile tenant, or a change of one, about a random object of the honest one.
    async fn claim(&mut self, rng: &mut Rng) {
        self.created += 1;
        let name = format!("rogue-{}", self.created);
        let owners = self.owners(rng).await;
        match rng.within(0, 6) {
            0 | 1 => {
                let annotations = json!({"kueue.x-k8s.io/is-group-workload": rng.pick(&["true", "false"]),
                    "kueue.x-k8s.io/workload-slice-replacement-for": "default/group"});
                let spec = json!({"queueName": "team", "podSets": [{"name": "main", "count": 1, "template": template()}]});
                let object = json!({"apiVersion": VERSION, "kind": "Workload", "metadata": {"name": name,
                    "ownerReferences": owners, "annotations": annotations}, "spec": spec});
                self.create(&workloads(), object).await;
            }
            2 | 3 => {
                let mut metadata = json!({"name": name, "ownerReferences": owners, "labels": {"kueue.x-k8s.io/queue-name": "team"}});
                if rng.percent(30) {
                    let victim = self.victim(&workloads(), rng).await.map(|victim| victim.name_any());
                    metadata["annotations"] =
                        json!({"kueue.x-k8s.io/prebuilt-workload-name": victim.unwrap_or_default()});
                }
                let count = rng.within(1, 4);
                let spec = json!({"parallelism": count, "completions": count, "suspend": rng.percent(50), "template": template()});
                self.create(
                    &jobs(),
                    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}),
                )
                .await;
            }
            4 => {
                let Some(job) = self.own(&jobs(), rng).await else { return };
                let annotations = json!({rng.pick(&["kueue.x-k8s.io/stopping", "muster.dev/suspended-with-owner"]): "true"});
                let mut patch = json!({"metadata": {"annotations": annotations}});
                if rng.percent(50) {
                    patch["spec"] = json!({"suspend": false});
                }
                self.patch(&jobs(), &job, patch).await;
            }
            5 => {
                let total = rng.within(1, 3);
                let annotations = json!({"kueue.x-k8s.io/pod-group-total-count": total.to_string(),
                    "kueue.x-k8s.io/role-hash": rng.pick(&["worker", "leader"]),
                    "kueue.x-k8s.io/pod-group-fast-admission": rng.pick(&["true", "false"])});
                let group = rng.pick(&["group", "rogues"]);
                let mut pod = pod(&name, Some(group), &annotations, rng.within(1, 4));
                pod["metadata"]["ownerReferences"] = owners;
                self.create(&pods(), pod).await;
            }
            _ => {
                let Some(pod) = self.own(&pods(), rng).await else { return };
                self.patch(&pods(), &pod, json!({"spec": {"schedulingGates": null}})).await;
            }
        }
    }

    async fn create(&self, kind: &ApiResource, object: Value) {
        let object = serde_json::from_value(object).unwrap();
        drop(self.cluster.api(kind, INTRUDER).create(&PostParams::default(), &object).await);
    }

    async fn patch(&self, kind: &ApiResource, object: &DynamicObject, patch: Value) {
        let api = self.cluster.api(kind, INTRUDER);
        drop(api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await);
    }

    async fn own(&self, kind: &ApiResource, rng: &mut Rng) -> Option<DynamicObject> {
        let all = self.list(kind, INTRUDER).await;
        (!all.is_empty()).then(|| rng.pick(&all))
    }

    async fn victim(&self, kind: &ApiResource, rng: &mut Rng) -> Option<DynamicObject> {
        let all = self.list(kind, HONEST).await;
        (!all.is_empty()).then(|| rng.pick(&all))
    }

    /// Owner references that name an object of the honest tenant, or one that is not there.
    async fn owners(&self, rng: &mut Rng) -> Value {
        let kinds = [("batch/v1", "Job", jobs()), ("v1", "Pod", pods()), (VERSION, "Workload", workloads())];
        let (mut version, mut kind, resource) = rng.pick(&kinds);
        let Some(victim) = self.victim(&resource, rng).await else { return json!([]) };
        if rng.percent(40) {
            (version, kind) = rng.pick(&[
                ("workload.codeflare.dev/v1beta1", "AppWrapper"),
                ("example.com/v1", "AppWrapper"),
                ("ray.io/v1", "RayCluster"),
                ("jobset.x-k8s.io/v1alpha2", "JobSet"),
            ]);
        }
        json!([{"apiVersion": version, "kind": kind, "name": victim.name_any(), "uid": victim.uid(),
            "controller": rng.percent(80)}])
    }

    /// The pods that run in the queue of the hostile tenant have quota.
    async fn quota_is_kept(&self) -> Result<(), String> {
        let jobs = self.list(&jobs(), INTRUDER).await;
        let of_jobs = jobs.iter().filter(|job| job.data["spec"]["suspend"] != true);
        let of_jobs: u64 = of_jobs.map(|job| job.data["spec"]["parallelism"].as_u64().unwrap_or(0)).sum();
        let pods = self.list(&pods(), INTRUDER).await;
        let runs = |pod: &&DynamicObject| {
            pod.metadata.deletion_timestamp.is_none() && pod.data["status"]["phase"] == "Running"
        };
        let of_pods: u64 = pods.iter().filter(runs).map(cpus).sum();
        let used = usize::try_from(of_jobs + of_pods).unwrap();
        if used <= QUOTA { Ok(()) } else { Err(format!("{used} CPUs run with a quota of {QUOTA}")) }
    }

    async fn outcome(&self) -> Result<Outcome, String> {
        let mut outcome = Outcome::new();
        for job in self.list(&jobs(), HONEST).await {
            if !job.data["status"]["conditions"].is_array() {
                return Err(format!("the honest {} has not run: {:?}", job.name_any(), job.data["status"]));
            }
            let spec = &job.data["spec"];
            let of_pods = &spec["template"]["spec"];
            let kept = json!([
                spec["suspend"],
                spec["parallelism"],
                spec["completions"],
                of_pods["nodeSelector"],
                of_pods["tolerations"],
                of_pods["schedulingGates"],
                job.data["status"]["succeeded"]
            ]);
            outcome.insert(format!("Job {}", job.name_any()), kept.to_string());
        }
        for pod in self.list(&pods(), HONEST).await {
            outcome.insert(format!("Pod {}", pod.name_any()), pod.data["status"]["phase"].to_string());
        }
        let workloads = self.list(&workloads(), HONEST).await;
        outcome.insert("Workloads".into(), workloads.len().to_string());
        Ok(outcome)
    }
}

fn cpus(pod: &DynamicObject) -> u64 {
    let request = &pod.data["spec"]["containers"][0]["resources"]["requests"]["cpu"];
    request.as_str().unwrap().parse().unwrap()
}

/// A pod as the webhook leaves it, in a group of the queue `team`.
fn pod(name: &str, group: Option<&str>, annotations: &Value, cpus: u64) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpus.to_string()}}});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "finalizers": ["kueue.x-k8s.io/managed"],
            "annotations": annotations, "labels": {"kueue.x-k8s.io/queue-name": "team",
            "kueue.x-k8s.io/managed": "true", "kueue.x-k8s.io/pod-group-name": group}},
        "spec": {"restartPolicy": "Never", "containers": [container],
            "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}})
}
