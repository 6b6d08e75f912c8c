//! What happens to the objects of Kueue's API and to the jobs in its queues.

use std::collections::{BTreeMap, BTreeSet};

use api::kueue::jobs::{ELASTIC, JOB_KINDS};
use api::kueue::kinds::KINDS;
use api::kueue::provisioning;
use api::kueue::webhooks::{Context, JobDefaults, JobRules, Operation, validate};
use serde_json::Value;

use super::cluster::{Cluster, items, text};
use super::finding::{Finding, Subject};
use super::read::job_resource;
use super::settings::Settings;

/// The controller of the admission checks of `MultiKueue`.
const MULTIKUEUE: &str = "kueue.x-k8s.io/multikueue";
/// The most groups of a `LeaderWorkerSet` that get Workloads.
const GROUPS_MAX: u64 = 1_000;
const CHECKS: &str = "admissionchecks.kueue.x-k8s.io";

/// The names of the admission checks that `MultiKueue` answers.
pub(crate) fn remote_checks(cluster: &Cluster) -> BTreeSet<&str> {
    let of_multikueue = |check: &&Value| check["spec"]["controllerName"] == MULTIKUEUE;
    cluster.of(CHECKS).iter().filter(of_multikueue).map(|check| text(&check["metadata"]["name"])).collect()
}

/// Whether an admission check asks for nodes.
pub(crate) fn provisions(cluster: &Cluster) -> bool {
    cluster.of(CHECKS).iter().any(|check| check["spec"]["controllerName"] == provisioning::CONTROLLER)
}

/// What is found about all objects of Kueue's API, and the jobs in its queues.
pub(crate) fn findings(cluster: &Cluster, settings: &Settings) -> Vec<Finding> {
    let objects = Objects::of(cluster, settings);
    let mut found = Vec::new();
    for kind in &KINDS {
        for object in cluster.of(&kind.resource()) {
            found.extend(objects.finding(kind.plural, object));
        }
    }
    found.extend(jobs(cluster, settings));
    found
}

struct Objects<'a> {
    /// The names of the admission checks of `MultiKueue`.
    remote: BTreeSet<&'a str>,
    /// The admission check of `MultiKueue` of each `ClusterQueue` that has one.
    remote_queues: BTreeMap<&'a str, &'a str>,
    /// The `ClusterQueue` of each `LocalQueue`.
    local_queues: BTreeMap<(&'a str, &'a str), &'a str>,
    rules: Context,
}

impl<'a> Objects<'a> {
    fn of(cluster: &'a Cluster, settings: &Settings) -> Self {
        let remote = remote_checks(cluster);
        let mut remote_queues = BTreeMap::new();
        for queue in cluster.of("clusterqueues.kueue.x-k8s.io") {
            let check = checks(queue).into_iter().find(|check| remote.contains(check));
            remote_queues.extend(check.map(|check| (text(&queue["metadata"]["name"]), check)));
        }
        let local_queues = cluster.of("localqueues.kueue.x-k8s.io").iter().map(|queue| {
            let meta = &queue["metadata"];
            ((text(&meta["namespace"]), text(&meta["name"])), text(&queue["spec"]["clusterQueue"]))
        });
        let rules = Context { gates: (&settings.gates).into(), jobs: JobRules::default() };
        Self { remote, remote_queues, local_queues: local_queues.collect(), rules }
    }

    /// What is found about one object.
    fn finding(&self, plural: &str, object: &Value) -> Vec<Finding> {
        let subject = Subject::of(object);
        let mut found = match plural {
            "clusterqueues" => self.cluster_queue(&subject, object),
            "admissionchecks" => vec![self.check(subject.clone(), object)],
            "workloads" => vec![self.workload(subject.clone(), object)],
            "multikueueconfigs" | "multikueueclusters" => {
                let remedy = "keep Kueue for what they dispatch, or delete them";
                vec![Finding::not_served(
                    subject.clone(),
                    "belongs to MultiKueue, which Muster does not have",
                    remedy,
                )]
            }
            _ => Vec::new(),
        };
        if matches!(plural, "clusterqueues" | "cohorts" | "resourceflavors") {
            found.extend(self.broken_rules(plural, &subject, object));
        }
        if found.is_empty() {
            found.push(Finding::kept(subject, kept(plural)));
        }
        found
    }

    /// The rules of the webhooks that an object breaks, which was accepted before there were such rules.
    fn broken_rules(&self, plural: &str, subject: &Subject, object: &Value) -> Option<Finding> {
        let errors = validate(plural, Operation::Create, object, None, &JobDefaults::default(), &self.rules);
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let what =
            format!("works as before, but a change is refused until it is corrected: {}", errors.join("; "));
        (!errors.is_empty()).then(|| Finding::differs(subject.clone(), what))
    }

    fn cluster_queue(&self, subject: &Subject, queue: &Value) -> Vec<Finding> {
        let mut found = Vec::new();
        if let Some(check) = self.remote_queues.get(subject.name.as_str()) {
            let what = format!("needs the AdmissionCheck {check} of MultiKueue: its Workloads wait for ever");
            let remedy =
                format!("take {check} out of spec.admissionChecksStrategy, or keep Kueue for this queue");
            found.push(Finding::not_served(subject.clone(), what, remedy));
        }
        if queue["spec"]["concurrentAdmissionPolicy"].is_object() {
            let what =
                "asks for concurrent admission: Muster tries the flavors of a Workload one after the other";
            found.push(Finding::not_served(subject.clone(), what, "remove spec.concurrentAdmissionPolicy"));
        }
        found
    }

    fn check(&self, subject: Subject, check: &Value) -> Finding {
        let by = text(&check["spec"]["controllerName"]);
        if self.remote.contains(subject.name.as_str()) {
            let remedy = "take it out of the ClusterQueues that name it, or keep Kueue for them";
            return Finding::not_served(
                subject,
                "is answered by MultiKueue, which Muster does not have",
                remedy,
            );
        }
        if by == provisioning::CONTROLLER {
            return Finding::set(subject, "asks for nodes: Muster answers it", "kueue.provisioning=true");
        }
        let what = format!("stays; its own controller {by} goes on to answer it");
        Finding::kept(subject, what)
    }

    fn workload(&self, subject: Subject, workload: &Value) -> Finding {
        let (spec, status) = (&workload["spec"], &workload["status"]);
        let is = |kind: &str| {
            items(&status["conditions"]).any(|known| known["type"] == kind && known["status"] == "True")
        };
        if is("Finished") {
            return Finding::kept(subject, "has ended: it stays as it is");
        }
        if !text(&status["clusterName"]).is_empty()
            || items(&status["nominatedClusterNames"]).next().is_some()
        {
            let what = "is dispatched to another cluster by MultiKueue: Muster does not follow it there";
            return Finding::not_served(
                subject,
                what,
                "let it end before the migration, or keep Kueue for its queue",
            );
        }
        if let Some(check) = self.remote_check(&subject, spec, status) {
            let what = format!("needs the AdmissionCheck {check} of MultiKueue: it waits for ever");
            return Finding::not_served(
                subject,
                what,
                "move its job to another queue, or change its ClusterQueue",
            );
        }
        let what = if is("Evicted") && is("QuotaReserved") {
            "is being evicted: it gives its quota back when its pods have ended"
        } else if is("Admitted") {
            "is admitted: its pods run on, and it keeps its quota"
        } else if is("QuotaReserved") {
            "holds quota and waits for its admission checks: it keeps both"
        } else if spec["active"] == false {
            "is deactivated: it stays so"
        } else {
            "waits: it keeps its place by priority and time"
        };
        Finding::kept(subject, what)
    }

    /// The admission check of `MultiKueue` that a Workload has to pass.
    fn remote_check(&self, subject: &Subject, spec: &Value, status: &Value) -> Option<&str> {
        let own = items(&status["admissionChecks"]).find_map(|check| {
            self.remote.get(text(&check["name"])).copied().filter(|_| check["state"] != "Ready")
        });
        let admitted = text(&status["admission"]["clusterQueue"]);
        let local = self.local_queues.get(&(subject.namespace.as_str(), text(&spec["queueName"])));
        let queue = if admitted.is_empty() { local.copied().unwrap_or_default() } else { admitted };
        let of_queue = || self.remote_queues.get(queue).copied().filter(|_| admitted.is_empty());
        own.or_else(of_queue)
    }
}

/// The admission checks that a `ClusterQueue` names.
fn checks(queue: &Value) -> Vec<&str> {
    let strategy = items(&queue["spec"]["admissionChecksStrategy"]["admissionChecks"]);
    strategy.map(|rule| text(&rule["name"])).collect()
}

/// What happens to an object of which nothing else is to be said.
fn kept(plural: &str) -> &'static str {
    match plural {
        "clusterqueues" => "keeps its quota, its order and its rules of preemption",
        "localqueues" => "keeps its ClusterQueue",
        _ => "is read as it is",
    }
}

/// The jobs in queues, by kind.
fn jobs(cluster: &Cluster, settings: &Settings) -> Vec<Finding> {
    let kinds = JOB_KINDS.iter().map(|kind| (kind.framework, job_resource(kind.plural, kind.group())));
    let kinds = kinds.chain([("deployment", job_resource("deployments", "apps"))]);
    let mut found = Vec::new();
    for (framework, resource) in kinds {
        let is_managed = settings.jobs.iter().any(|known| known == framework);
        found.extend(cluster.of(&resource).iter().map(|job| of_job(framework, is_managed, job)));
    }
    found
}

fn of_job(framework: &str, is_managed: bool, job: &Value) -> Finding {
    let subject = Subject::of(job);
    if !is_managed {
        let what =
            format!("has a queue, but Kueue does not manage {framework}: it runs as before, without a queue");
        return Finding::kept(subject, what);
    }
    let groups = job["spec"]["replicas"].as_u64().unwrap_or_default();
    if framework == "leaderworkerset.x-k8s.io/leaderworkerset" && groups > GROUPS_MAX {
        let what = format!("has {groups} groups: the first {GROUPS_MAX} of them get Workloads");
        return Finding::differs(subject, what).with("split it into several sets");
    }
    let is_elastic = job["metadata"]["annotations"][ELASTIC] == "true";
    if framework == "sparkoperator.k8s.io/sparkapplication" && is_elastic {
        let what = "changes its size while it runs, which Muster refuses for this kind";
        return Finding::not_served(subject, what, format!("remove the annotation {ELASTIC}"));
    }
    Finding::kept(subject, "waits or runs with its Workload")
}
