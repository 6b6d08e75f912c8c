//! What happens to the objects of Kueue's API and to the jobs in its queues.

use std::collections::BTreeSet;

use api::kueue::jobs::{ELASTIC, JOB_KINDS, remote};
use api::kueue::kinds::KINDS;
use api::kueue::provisioning;
use api::kueue::webhooks::{Context, JobDefaults, JobRules, Operation, validate};
use serde_json::Value;

use super::cluster::{Cluster, items, text};
use super::finding::{Finding, Subject};
use super::read::job_resource;
use super::settings::Settings;

/// The most groups of a `LeaderWorkerSet` that get Workloads.
const GROUPS_MAX: u64 = 1_000;
const CHECKS: &str = "admissionchecks.kueue.x-k8s.io";

/// The names of the admission checks that `MultiKueue` answers.
pub(crate) fn remote_checks(cluster: &Cluster) -> BTreeSet<&str> {
    checks_of(cluster, remote::CONTROLLER).collect()
}

/// Whether an admission check asks for nodes.
pub(crate) fn provisions(cluster: &Cluster) -> bool {
    checks_of(cluster, provisioning::CONTROLLER).next().is_some()
}

/// The names of the admission checks that a controller answers.
fn checks_of<'a>(cluster: &'a Cluster, controller: &str) -> impl Iterator<Item = &'a str> {
    let checks = cluster.of(CHECKS).iter().filter(move |check| check["spec"]["controllerName"] == controller);
    checks.map(|check| text(&check["metadata"]["name"]))
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
    rules: Context,
}

impl<'a> Objects<'a> {
    fn of(cluster: &'a Cluster, settings: &Settings) -> Self {
        let remote = remote_checks(cluster);
        let rules = Context { gates: (&settings.gates).into(), jobs: JobRules::default() };
        Self { remote, rules }
    }

    /// What is found about one object.
    fn finding(&self, plural: &str, object: &Value) -> Vec<Finding> {
        let subject = Subject::of(object);
        let mut found = match plural {
            "clusterqueues" => cluster_queue(&subject, object),
            "admissionchecks" => vec![self.check(subject.clone(), object)],
            "workloads" => vec![workload(subject.clone(), object)],
            "multikueueconfigs" | "multikueueclusters" => {
                remote_setting(&subject, object).into_iter().collect()
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

    fn check(&self, subject: Subject, check: &Value) -> Finding {
        let by = text(&check["spec"]["controllerName"]);
        if self.remote.contains(subject.name.as_str()) {
            let what = "runs Workloads in other clusters: Muster answers it for most kinds of jobs (docs/clusters.md)";
            return Finding::set(subject, what, "kueue.multikueue=true");
        }
        if by == provisioning::CONTROLLER {
            return Finding::set(subject, "asks for nodes: Muster answers it", "kueue.provisioning=true");
        }
        let what = format!("stays; its own controller {by} goes on to answer it");
        Finding::kept(subject, what)
    }
}

fn cluster_queue(subject: &Subject, queue: &Value) -> Vec<Finding> {
    let mut found = Vec::new();
    if queue["spec"]["concurrentAdmissionPolicy"].is_object() {
        let what =
            "asks for concurrent admission: Muster tries the flavors of a Workload one after the other";
        found.push(Finding::not_served(subject.clone(), what, "remove spec.concurrentAdmissionPolicy"));
    }
    found
}

fn workload(subject: Subject, workload: &Value) -> Finding {
    let (spec, status) = (&workload["spec"], &workload["status"]);
    let is = |kind: &str| {
        items(&status["conditions"]).any(|known| known["type"] == kind && known["status"] == "True")
    };
    if is("Finished") {
        return Finding::kept(subject, "has ended: it stays as it is");
    }
    if !text(&status["clusterName"]).is_empty() || items(&status["nominatedClusterNames"]).next().is_some() {
        let what = "is dispatched to another cluster: Muster knows its copies by their labels, which was not tried on a hub of Kueue";
        return Finding::to_do(subject, what, "let it end before the migration");
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

/// What Muster does not have of a `MultiKueueConfig` or a `MultiKueueCluster`.
fn remote_setting(subject: &Subject, object: &Value) -> Option<Finding> {
    let spec = &object["spec"];
    if spec["quotaManagement"] == "Automated" {
        let what = "asks for the sum of the quotas of its clusters as the quota of the hub";
        return Some(Finding::not_served(subject.clone(), what, "set the quota of the hub by hand"));
    }
    let source = [&spec["clusterSource"]["clusterProfileRef"], &spec["clusterProfileRef"]];
    let what = "names a ClusterProfile, which Muster does not read";
    source.iter().any(|profile| profile.is_object()).then(|| {
        Finding::not_served(subject.clone(), what, "name a kubeConfig in spec.clusterSource instead")
    })
}
