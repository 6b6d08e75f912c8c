//! What holds at all times, when the clusters have come to rest, and when all jobs are deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use kube::api::DynamicObject;

use super::ledger::pods;
use super::world::{World, name, uid};
use crate::common::{check, condition, jobs, workloads};

fn is_true(object: &DynamicObject, kind: &str) -> bool {
    condition(object, kind).is_some_and(|known| known["status"] == "True")
}

fn cpus(workload: &DynamicObject) -> u64 {
    workload.data["spec"]["podSets"][0]["count"].as_u64().unwrap_or(1)
}

/// What it holds of the quota: pods that have ended have given back theirs.
fn held(workload: &DynamicObject) -> u64 {
    cpus(workload) - workload.data["status"]["reclaimablePods"][0]["count"].as_u64().unwrap_or_default()
}

fn holds_quota(workload: &DynamicObject) -> bool {
    is_true(workload, "QuotaReserved") && !is_true(workload, "Finished")
}

pub(crate) fn owner(workload: &DynamicObject) -> &str {
    workload.metadata.owner_references.iter().flatten().next().map_or("", |owner| &owner.uid)
}

/// How often a Workload was evicted.
pub(crate) fn evictions(workload: &DynamicObject) -> u64 {
    let all = workload.data["status"]["schedulingStats"]["evictions"].as_array();
    all.into_iter().flatten().filter_map(|eviction| eviction["count"].as_u64()).sum()
}

fn told(workload: &DynamicObject) -> String {
    let conditions = workload.data["status"]["conditions"].as_array();
    let conditions: Vec<String> = conditions
        .into_iter()
        .flatten()
        .map(|c| format!("{}={} {}: {}", c["type"], c["status"], c["reason"], c["message"]))
        .collect();
    let (state, why) = check(workload);
    let status = &workload.data["status"];
    format!(
        "{} in {}, nominated {}, check {state} ({why}), {}",
        name(workload),
        status["clusterName"],
        status["nominatedClusterNames"],
        conditions.join(", ")
    )
}

impl World {
    /// What must never be.
    pub(crate) async fn broken_now(&self) -> Vec<String> {
        let mut problems = self.ledger.problems();
        let all = self.list("", &workloads()).await;
        // As in Kueue, a deactivated Workload counts no longer, also before its pods have stopped, and when it is activated meanwhile.
        let is_deactivated = |workload: &DynamicObject| {
            workload.data["spec"]["active"] == false
                || condition(workload, "Evicted").is_some_and(|evicted| {
                    evicted["status"] == "True"
                        && evicted["reason"].as_str().is_some_and(|reason| reason.starts_with("Deactivated"))
                })
        };
        let counts = |workload: &&DynamicObject| holds_quota(workload) && !is_deactivated(workload);
        let used: u64 = all.iter().filter(counts).map(held).sum();
        // What was admitted before a cut keeps its quota.
        let most = self.quotas[0].max(self.quotas[1]).max(self.used.replace(used));
        if used > most {
            problems.push(format!("{used} of {most} CPUs of the hub are in use"));
        }
        let by_owner: BTreeMap<&str, &DynamicObject> =
            all.iter().map(|workload| (owner(workload), workload)).collect();
        for worker in self.names() {
            for (origin, _) in self.ledger.running(worker) {
                if let Some(workload) = by_owner.get(&*origin)
                    && !holds_quota(workload)
                    && !is_true(workload, "Finished")
                    && evictions(workload) > 0
                    && self.ledger.starts(&origin)
                        > self.started_before.get(&origin).copied().unwrap_or_default()
                    && !self.ledger.is_away(worker)
                {
                    problems.push(format!("runs in {worker} without quota: {}", told(workload)));
                }
            }
            problems.extend(self.touched(worker).await);
        }
        problems
    }

    /// What has happened to the jobs of others.
    async fn touched(&self, worker: &str) -> Vec<String> {
        let mut problems = Vec::new();
        for ((at, job), known) in &self.strangers {
            if *at == worker {
                let found = self.cluster(worker).get(&jobs(), job).await;
                if found.as_ref().map(uid) != Some(known) {
                    problems.push(format!("the job {job} of another owner in {worker} is gone"));
                }
            }
        }
        problems
    }

    /// The jobs that run and that have ended.
    pub(crate) async fn states(&self) -> BTreeSet<(String, bool)> {
        let is_known = |w: &DynamicObject| is_true(w, "Finished") || is_true(w, "Admitted");
        let all = self.list("", &workloads()).await.into_iter().filter(is_known);
        all.map(|workload| (name(&workload).to_owned(), is_true(&workload, "Finished"))).collect()
    }

    /// How many clusters may still be asked for room, for all Workloads that wait with quota: each that does not ask all at once.
    pub(crate) async fn asked_later(&self) -> usize {
        if !self.script.is_incremental {
            return 0;
        }
        let waits = |workload: &DynamicObject| holds_quota(workload) && !is_true(workload, "Admitted");
        self.list("", &workloads()).await.iter().filter(|workload| waits(workload)).count()
            * self.names().len()
    }

    /// What must not be when everybody had time.
    pub(crate) async fn broken_at_rest(&self) -> Vec<String> {
        let mut problems = self.unconnected().await;
        let all = self.list("", &workloads()).await;
        let used: u64 = all.iter().filter(|workload| holds_quota(workload)).map(held).sum();
        let mut free = BTreeMap::new();
        for (worker, cpus_there) in &self.script.workers {
            let used: u64 =
                self.ledger.running(worker).values().map(|pods| u64::try_from(*pods).unwrap()).sum();
            free.insert(*worker, cpus_there.saturating_sub(used));
        }
        let largest = free.values().max().copied().unwrap_or_default();
        for job in self.list("", &jobs()).await {
            let Some(workload) = all.iter().find(|workload| owner(workload) == uid(&job)) else {
                if is_true(&job, "Complete") || is_true(&job, "Failed") {
                    continue;
                }
                problems.push(format!("{} has no Workload", name(&job)));
                continue;
            };
            if let Some(why) = self.is_wrong(&job, workload, largest, used) {
                let mut text =
                    format!("{why}: {}, free {free:?}, hub {used} of {}", told(workload), self.quotas[1]);
                for worker in self.names() {
                    let copies = self.copies(worker, &workloads()).await;
                    for copy in copies.iter().filter(|copy| name(copy) == name(workload)) {
                        let _ = write!(text, "; in {worker}: {}", told(copy));
                    }
                }
                problems.push(text);
            }
        }
        problems.extend(self.strays().await);
        problems
    }

    fn is_wrong(
        &self,
        job: &DynamicObject,
        workload: &DynamicObject,
        largest: u64,
        used: u64,
    ) -> Option<String> {
        let at: Vec<(&str, usize)> = self
            .names()
            .into_iter()
            .filter_map(|worker| Some((worker, *self.ledger.running(worker).get(uid(job))?)))
            .collect();
        let ended = is_true(job, "Complete") || is_true(job, "Failed");
        if ended || is_true(workload, "Finished") {
            if ended != is_true(workload, "Finished") {
                return Some("one of the Workload and the job has ended".into());
            }
            return (!at.is_empty()).then(|| format!("ended, and runs in {at:?}"));
        }
        let starts = u64::try_from(self.ledger.starts(uid(job))).unwrap();
        if starts > 1 + evictions(workload) + self.starts_before.get(uid(job)).unwrap_or(&0) {
            return Some(format!("{starts} starts with {} evictions", evictions(workload)));
        }
        let is_full = |pods: usize| u64::try_from(pods).unwrap() == cpus(workload);
        if is_true(workload, "Admitted") {
            let active = job.data["status"]["active"].as_u64().unwrap_or_default();
            return match at[..] {
                [(worker, pods)]
                    if is_full(pods)
                        && workload.data["status"]["clusterName"] == worker
                        && active == cpus(workload)
                        && check(workload).0 == "Ready" =>
                {
                    None
                }
                _ => Some(format!("runs in {at:?}, {active} active at the hub")),
            };
        }
        if !at.is_empty() {
            return Some(format!("runs in {at:?} and is not admitted"));
        }
        if holds_quota(workload) {
            (cpus(workload) <= largest).then(|| "waits, and fits in a worker".into())
        } else {
            let fits = cpus(workload) + used <= self.quotas[1];
            fits.then(|| "waits, and fits at the hub".into())
        }
    }

    /// Copies in workers that have no Workload at the hub, or are in the wrong place.
    async fn strays(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let all = self.list("", &workloads()).await;
        for worker in self.names() {
            for copy in self.copies(worker, &workloads()).await {
                let origin = all.iter().find(|workload| name(workload) == name(&copy));
                let belongs = origin.is_some_and(|workload| {
                    let status = &workload.data["status"];
                    let nominated = status["nominatedClusterNames"].as_array();
                    holds_quota(workload)
                        && (status["clusterName"] == worker
                            || nominated.into_iter().flatten().any(|name| name == worker))
                });
                if !belongs {
                    problems.push(format!("a copy of {} is left in {worker}", name(&copy)));
                }
            }
        }
        problems
    }

    /// What is left when all jobs are deleted.
    pub(crate) async fn leftovers(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for worker in self.names() {
            for kind in [workloads(), jobs(), pods()] {
                let left = self.list(worker, &kind).await;
                problems
                    .extend(left.iter().map(|object| format!("{} {} in {worker}", kind.kind, name(object))));
            }
        }
        for kind in [workloads(), jobs(), pods()] {
            let left = self.list("", &kind).await;
            problems.extend(left.iter().map(|object| format!("{} {} at the hub", kind.kind, name(object))));
        }
        problems
    }
}
