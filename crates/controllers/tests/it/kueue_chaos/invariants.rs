//! What holds at all times, when the cluster has come to rest, and when all jobs are deleted.

use std::collections::{BTreeMap, BTreeSet};

use kube::api::DynamicObject;
use serde_json::{Value, json};

use crate::common::kueue::{cluster_queues, condition, workloads};
use crate::common::queued_pods::pods;
use crate::common::story;
use crate::kueue_chaos::disturbances::{claims, stateful_sets};
use crate::kueue_chaos::operations::unchecked;
use crate::kueue_chaos::world::{World, is_owned_by, job_kinds, label, name};

const GROUP: &str = "kueue.x-k8s.io/pod-group-name";
const FIRST_SLICE: &str = "kueue.x-k8s.io/workload-slice-name";
const TOTAL: &str = "kueue.x-k8s.io/pod-group-total-count";
const CONTINUES: &str = "kueue.x-k8s.io/workload-slice-replacement-for";

pub(crate) fn is_true(object: &DynamicObject, kind: &str) -> bool {
    condition(object, kind).is_some_and(|known| known["status"] == "True")
}

fn holds_quota(workload: &DynamicObject) -> bool {
    is_true(workload, "QuotaReserved") && !is_true(workload, "Finished")
}

fn has_ended(job: &DynamicObject) -> bool {
    let state = job.data["status"]["jobDeploymentStatus"].as_str().unwrap_or_default();
    ["Complete", "Completed", "Failed"].iter().any(|kind| is_true(job, kind) || state == *kind)
}

fn is_gated(pod: &DynamicObject) -> bool {
    pod.data["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty())
}

fn is_over(pod: &DynamicObject) -> bool {
    ["Succeeded", "Failed"].iter().any(|phase| pod.data["status"]["phase"] == *phase)
        || pod.metadata.deletion_timestamp.is_some()
}

pub(crate) fn annotation<'a>(object: &'a DynamicObject, key: &str) -> Option<&'a str> {
    object.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The Workload, or the first of its slices, whose admission has started a pod.
fn workload_of(pod: &DynamicObject) -> Option<&str> {
    label(pod, "kueue.x-k8s.io/podset")?;
    annotation(pod, FIRST_SLICE).or_else(|| annotation(pod, "kueue.x-k8s.io/workload"))
}

/// The name of a Workload, or of the first of its slices.
fn chain(workload: &DynamicObject) -> &str {
    annotation(workload, FIRST_SLICE).unwrap_or(name(workload))
}

/// The conditions of a Workload, for a failure.
fn told(workload: Option<&DynamicObject>) -> String {
    workload.map_or("without a Workload".to_owned(), |workload| story(&workload.data["status"]).join(", "))
}

/// The CPUs in use by cluster queue and flavor. While a Workload takes the place of another one, both have the quota.
/// A deactivated Workload counts no longer, also before its pods have stopped.
fn used(all: &[DynamicObject]) -> BTreeMap<(String, String), u64> {
    let counts =
        |workload: &&DynamicObject| holds_quota(workload) && workload.data["spec"]["active"] != false;
    let holders = || all.iter().filter(counts);
    let continued: BTreeSet<_> = holders()
        .filter_map(|workload| workload.metadata.annotations.as_ref()?.get(CONTINUES)?.split('/').nth(1))
        .collect();
    let mut used = BTreeMap::new();
    for workload in holders().filter(|workload| !continued.contains(name(workload))) {
        let admission = &workload.data["status"]["admission"];
        let queue = admission["clusterQueue"].as_str().unwrap();
        for set in admission["podSetAssignments"].as_array().unwrap() {
            let flavor = set["flavors"]["cpu"].as_str().unwrap();
            let cpus: u64 = set["resourceUsage"]["cpu"].as_str().unwrap().parse().unwrap();
            let named = |all: &Value| -> u64 {
                let all = all.as_array().into_iter().flatten();
                all.filter(|of| of["name"] == set["name"]).filter_map(|of| of["count"].as_u64()).sum()
            };
            // Pods that have ended, and those that an elastic job has given up, use nothing.
            let count = set["count"].as_u64().unwrap().max(1);
            let wanted = named(&workload.data["spec"]["podSets"]);
            let left = wanted.saturating_sub(named(&workload.data["status"]["reclaimablePods"])).min(count);
            *used.entry((queue.to_owned(), flavor.to_owned())).or_default() += cpus / count * left;
        }
    }
    used
}

impl World {
    /// What is broken at any time, given the use before the last action.
    pub(crate) async fn broken_now(&self, before: &mut BTreeMap<(String, String), u64>) -> Vec<String> {
        let mut problems: Vec<_> = self
            .cluster
            .violations()
            .into_iter()
            .map(|text| format!("the auditor disagrees: {text}"))
            .collect();
        let all = self.list(&workloads()).await;
        let used = used(&all);
        let quota = |at: usize| self.quotas[0][at].max(self.quotas[1][at]);
        let cohort: Vec<_> =
            (0..self.script.queues.len()).filter(|at| self.script.queues[*at].in_cohort).collect();
        let shared: u64 = cohort.iter().map(|at| quota(*at)).sum();
        for flavor in ["default", "second"] {
            let of = |usage: &BTreeMap<(String, String), u64>, at: usize| {
                usage.get(&(format!("q-{at}"), flavor.to_owned())).copied().unwrap_or_default()
            };
            for (at, queue) in self.script.queues.iter().enumerate() {
                let most = match (queue.in_cohort, queue.borrows_at_most) {
                    (false, _) => quota(at),
                    (true, None) => shared,
                    (true, Some(limit)) => quota(at) + limit,
                };
                if of(&used, at) > most.max(of(before, at)) {
                    problems.push(format!("q-{at} uses {} of {most} in {flavor}", of(&used, at)));
                }
            }
            let [now, earlier] =
                [&used, &*before].map(|usage| cohort.iter().map(|at| of(usage, *at)).sum::<u64>());
            if now > shared.max(earlier) {
                problems.push(format!("the cohort uses {now} of {shared} in {flavor}"));
            }
        }
        if !problems.is_empty() {
            let line =
                |workload: &DynamicObject| format!("\n    {}: {}", name(workload), told(Some(workload)));
            problems.push(all.iter().filter(|workload| holds_quota(workload)).map(line).collect());
        }
        *before = used;
        problems
    }

    /// What is broken when the controller has had time to react.
    pub(crate) async fn broken_soon(&self) -> Vec<String> {
        let all = self.list(&workloads()).await;
        let mut problems = unchecked(&all);
        problems.extend(self.torn_apart().await);
        for pod in self.list(&pods()).await.iter().filter(|pod| !is_over(pod) && !is_gated(pod)) {
            if let Some(workload) = workload_of(pod)
                && !all.iter().any(|known| holds_quota(known) && chain(known) == workload)
            {
                let told = told(all.iter().find(|known| chain(known) == workload));
                problems.push(format!("pod {} runs without quota of {workload}, {told}", name(pod)));
            }
        }
        for (kind, field, job) in self.jobs().await {
            let is_admitted = all.iter().any(|workload| {
                is_owned_by(workload, job.metadata.uid.as_ref())
                    && is_true(workload, "Admitted")
                    && !is_true(workload, "Finished")
            });
            let runs = job.data.pointer(field) != Some(&json!(true));
            if runs && !is_admitted && !has_ended(&job) && job.metadata.deletion_timestamp.is_none() {
                problems.push(format!("{} {} runs without admission", kind.kind, name(&job)));
            }
        }
        problems
    }

    /// What is broken in a cluster at rest with room for all jobs.
    pub(crate) async fn broken_at_rest(&self) -> Vec<String> {
        let mut problems = self.broken_soon().await;
        let all = self.list(&workloads()).await;
        let is_there = |(_, _, job): &(_, _, DynamicObject)| job.metadata.deletion_timestamp.is_none();
        for (kind, field, job) in self.jobs().await.into_iter().filter(is_there) {
            let current = all.iter().find(|workload| {
                is_owned_by(workload, job.metadata.uid.as_ref()) && !is_true(workload, "Finished")
            });
            let is_inactive = current.is_some_and(|workload| workload.data["spec"]["active"] == false);
            // A job that gets no Workload says why.
            let is_told = current.is_none() && is_true(&job, "QueueingBlocked");
            let is_waiting = job.data.pointer(field) == Some(&json!(true)) && !claims(&job) && !is_told;
            if is_waiting && !is_inactive && !has_ended(&job) {
                let told = told(current);
                problems.push(format!("{} {} waits although there is room, {told}", kind.kind, name(&job)));
            }
        }
        problems.extend(self.broken_wrappers().await);
        problems.extend(self.broken_sets(&all).await);
        problems.extend(self.broken_pods(&all).await);
        problems.extend(self.held_by_nobody(&all).await);
        problems.extend(self.wrong_figures(&all).await);
        problems
    }

    /// Sets of pods that do not run whole, except those whose Workload somebody has deactivated.
    async fn broken_sets(&self, all: &[DynamicObject]) -> Vec<String> {
        let (mut problems, pods) = (Vec::new(), self.list(&pods()).await);
        for set in self.list(&stateful_sets()).await {
            let own = || all.iter().filter(|workload| is_owned_by(workload, set.metadata.uid.as_ref()));
            if set.metadata.deletion_timestamp.is_some()
                || own().any(|one| one.data["spec"]["active"] == false)
            {
                continue;
            }
            let runs = |pod: &&DynamicObject| {
                is_owned_by(pod, set.metadata.uid.as_ref()) && !is_over(pod) && !is_gated(pod)
            };
            // One that has grown since its admission has the quota of its size then.
            let granted = |workload: &DynamicObject| {
                is_true(workload, "Admitted")
                    .then(|| workload.data["spec"]["podSets"][0]["count"].as_u64())?
            };
            let replicas = set.data["spec"]["replicas"].as_u64().unwrap_or(1);
            let wanted = own().find_map(granted).map_or(replicas, |granted| granted.min(replicas));
            let runs = u64::try_from(pods.iter().filter(runs).count()).unwrap();
            if runs != wanted {
                let told: Vec<_> = own().map(|one| format!("{}: {}", name(one), told(Some(one)))).collect();
                problems.push(format!(
                    "{runs} of {wanted} pods of the set {} run, {}",
                    name(&set),
                    told.join("; ")
                ));
            }
        }
        problems
    }

    async fn broken_pods(&self, all: &[DynamicObject]) -> Vec<String> {
        let (mut problems, pods) = (Vec::new(), self.list(&pods()).await);
        for pod in pods.iter().filter(|pod| !is_over(pod)) {
            let Some(group) = label(pod, GROUP) else { continue };
            let workload = all.iter().find(|workload| name(workload) == group);
            let is_admitted = workload
                .is_some_and(|workload| is_true(workload, "Admitted") && !is_true(workload, "Finished"));
            let is_inactive = workload.is_some_and(|workload| workload.data["spec"]["active"] == false);
            let count =
                pods.iter().filter(|other| label(other, GROUP) == Some(group) && !is_over(other)).count();
            let total = pod.metadata.annotations.as_ref().and_then(|all| all.get(TOTAL));
            let is_complete = total.is_some_and(|total| *total == count.to_string());
            match (is_gated(pod), is_admitted) {
                (true, true) => problems.push(format!("pod {} of an admitted group is gated", name(pod))),
                (false, false) => problems.push(format!("pod {} runs without admission", name(pod))),
                (true, false) if is_complete && !is_inactive => {
                    problems.push(format!(
                        "pod {} waits although there is room, {}",
                        name(pod),
                        told(workload)
                    ));
                }
                _ => {}
            }
        }
        for (_, field, job) in self.jobs().await {
            let mut own =
                pods.iter().filter(|pod| is_owned_by(pod, job.metadata.uid.as_ref()) && !is_over(pod));
            let is_suspended = job.data.pointer(field) == Some(&json!(true));
            // Somebody has deactivated the Workload of an increase.
            let is_cut = all.iter().any(|workload| {
                is_owned_by(workload, job.metadata.uid.as_ref()) && workload.data["spec"]["active"] == false
            });
            // The controller of a job that is deleted, and kept by a finalizer, does nothing about its pods.
            let is_deleted = job.metadata.deletion_timestamp.is_some();
            let is_wrong = |pod: &&DynamicObject| is_suspended && !is_deleted || is_gated(pod) && !is_cut;
            if let Some(pod) = own.find(|pod| is_wrong(pod)) {
                let state = if is_suspended { "suspended" } else { "admitted" };
                let gates = &pod.data["spec"]["schedulingGates"];
                problems.push(format!("{} is {state} and has pod {}, gates: {gates}", name(&job), name(pod)));
            }
        }
        problems
    }

    async fn held_by_nobody(&self, all: &[DynamicObject]) -> Vec<String> {
        let mut owners = self.list(&pods()).await;
        owners.extend(self.list(&stateful_sets()).await);
        for (kind, _) in job_kinds() {
            owners.extend(self.list(&kind).await);
        }
        let has_pods = |workload: &DynamicObject| {
            owners
                .iter()
                .any(|pod| !is_over(pod) && !is_gated(pod) && workload_of(pod) == Some(chain(workload)))
        };
        let is_held = |workload: &&DynamicObject| {
            !has_pods(workload)
                && !owners.iter().any(|owner| is_owned_by(workload, owner.metadata.uid.as_ref()))
                && (holds_quota(workload)
                    || workload.metadata.finalizers.as_ref().is_some_and(|all| !all.is_empty()))
        };
        all.iter().filter(is_held).map(|workload| format!("{} has no job", name(workload))).collect()
    }

    /// Deactivated Workloads whose job is gone, and whose pods run: the queues that tell as many CPUs as pods.
    async fn used_by_orphans(&self, all: &[DynamicObject]) -> BTreeMap<(String, String), u64> {
        let (pods, mut used) = (self.list(&pods()).await, BTreeMap::new());
        let gone = |workload: &&DynamicObject| {
            holds_quota(workload)
                && workload.data["spec"]["active"] == false
                && workload.metadata.deletion_timestamp.is_some()
        };
        for workload in all.iter().filter(gone) {
            let admission = &workload.data["status"]["admission"];
            let queue = admission["clusterQueue"].as_str().unwrap();
            let flavor = admission["podSetAssignments"][0]["flavors"]["cpu"].as_str().unwrap();
            let runs = |pod: &&DynamicObject| !is_over(pod) && workload_of(pod) == Some(chain(workload));
            let count = u64::try_from(pods.iter().filter(runs).count()).unwrap();
            *used.entry((queue.to_owned(), flavor.to_owned())).or_default() += count;
        }
        used
    }

    async fn wrong_figures(&self, all: &[DynamicObject]) -> Vec<String> {
        let (mut used, mut problems) = (used(all), Vec::new());
        for (key, count) in self.used_by_orphans(all).await {
            *used.entry(key).or_default() += count;
        }
        for queue in self.list(&cluster_queues()).await {
            for flavor in queue.data["status"]["flavorsUsage"].as_array().into_iter().flatten() {
                let told = flavor["resources"][0]["total"].as_str().unwrap_or("0");
                let key = (name(&queue).to_owned(), flavor["name"].as_str().unwrap().to_owned());
                let real = used.get(&key).copied().unwrap_or_default();
                if told != real.to_string() {
                    problems.push(format!("{key:?} tells a use of {told} instead of {real}"));
                }
            }
        }
        problems
    }

    /// What is left when all jobs are deleted.
    pub(crate) async fn leftovers(&self) -> Vec<String> {
        let all = self.list(&workloads()).await;
        let mut problems = self.wrong_figures(&all).await;
        problems.extend(all.iter().map(|workload| format!("Workload {} is left", name(workload))));
        let left = |pod: &DynamicObject| {
            let (meta, phase) = (&pod.metadata, &pod.data["status"]["phase"]);
            let node = &pod.data["spec"]["nodeName"];
            format!("pod {} is left, {phase} on {node}, held by {:?}", name(pod), meta.finalizers)
        };
        problems.extend(self.list(&pods()).await.iter().map(left));
        problems
    }
}
