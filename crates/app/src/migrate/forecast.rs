//! What a controller would decide about a cluster now: the same code on the same observations, without a write. It needs the rights to
//! list and watch what the controller reads.

use std::collections::{BTreeMap, BTreeSet};

use controllers::{Config, GangReport, GangStatus, Observer, WorkloadReportPhase, WrapperPhase};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::cluster::{Cluster, items, text};
use super::finding::Subject;

/// What a plan of Workloads reads of Kueue's API.
const QUEUES: [&str; 8] = [
    "resourceflavors",
    "topologies",
    "cohorts",
    "clusterqueues",
    "localqueues",
    "admissionchecks",
    "workloadpriorityclasses",
    "workloads",
];

/// What becomes of a gang, from the worst on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fate {
    /// It runs, and would be stopped for another one.
    Evicted,
    /// It fails as soon as a controller sees it.
    Fails,
    /// It does not fit on empty nodes and unused quota.
    NeverFits,
    /// It cannot be queued.
    NotQueued,
    /// It starts when others, which are evicted for it, have ended.
    TakesOver,
    /// It waits.
    Waits,
    /// It waits today, and would start at once.
    Starts,
    /// It is being stopped already.
    Stops,
    /// It runs or holds quota, and would go on.
    RunsOn,
    /// It has ended.
    Ended,
}

impl Fate {
    /// All, in the order of a report.
    pub(crate) const ALL: [Self; 10] = [
        Self::RunsOn,
        Self::Starts,
        Self::Waits,
        Self::TakesOver,
        Self::NeverFits,
        Self::NotQueued,
        Self::Fails,
        Self::Evicted,
        Self::Stops,
        Self::Ended,
    ];

    /// Its name in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Evicted => "evicted",
            Self::Fails => "fails",
            Self::NeverFits => "neverFits",
            Self::NotQueued => "notQueued",
            Self::TakesOver => "takesOver",
            Self::Waits => "waits",
            Self::Starts => "starts",
            Self::Stops => "stops",
            Self::RunsOn => "runsOn",
            Self::Ended => "ended",
        }
    }

    /// What is said of its gangs.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Evicted => "would be evicted",
            Self::Fails => "would fail",
            Self::NeverFits => "can never start on these nodes and quotas",
            Self::NotQueued => "cannot be queued",
            Self::TakesOver => "would start in the place of others",
            Self::Waits => "waits",
            Self::Starts => "would start at once",
            Self::Stops => "is being stopped already",
            Self::RunsOn => "runs on as it is",
            Self::Ended => "has ended",
        }
    }

    /// Whether its gangs are named in a report, with the reason.
    pub(crate) fn is_named(self) -> bool {
        matches!(self, Self::Evicted | Self::Fails | Self::NeverFits | Self::NotQueued | Self::TakesOver)
    }
}

/// What becomes of one gang.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Prediction {
    pub(crate) subject: Subject,
    pub(crate) fate: Fate,
    /// Why; empty for nothing.
    pub(crate) why: String,
}

/// What becomes of all gangs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Forecast {
    /// It could not be made, for this reason.
    Skipped(String),
    /// By namespace and name.
    Made(Vec<Prediction>),
}

impl Forecast {
    /// Plans the cluster as a controller with this configuration would.
    /// `failing`: the gangs of which an object cannot be created. The plan admits them, and then they fail.
    pub(crate) async fn of(
        client: Client,
        config: Config,
        cluster: &Cluster,
        failing: &BTreeMap<Subject, String>,
    ) -> Self {
        // A watch that is not allowed would be tried again and again.
        match missing_rights(&client, &config).await {
            Ok(missing) if missing.is_empty() => {}
            Ok(missing) => return Self::Skipped(format!("no right to {}", missing.join(", "))),
            Err(error) => return Self::Skipped(format!("the rights of the user are not known: {error}")),
        }
        let observer = match Observer::of(client, config).await {
            Ok(observer) => observer,
            Err(error) => return Self::Skipped(error.to_string()),
        };
        let reports = observer.all(None);
        observer.close().await;
        let holding = holding(cluster);
        let made = reports.iter().map(|report| prediction(report, &holding));
        Self::Made(made.map(|made| made.at_its_turn(failing)).collect())
    }

    /// The gangs of a fate.
    pub(crate) fn of_fate(&self, fate: Fate) -> Vec<&Prediction> {
        match self {
            Self::Skipped(_) => Vec::new(),
            Self::Made(all) => all.iter().filter(|known| known.fate == fate).collect(),
        }
    }

    /// The forecast in JSON.
    pub(crate) fn value(&self) -> Value {
        let Self::Made(all) = self else {
            let Self::Skipped(why) = self else { return Value::Null };
            return json!({"skipped": why});
        };
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for prediction in all {
            *counts.entry(prediction.fate.name()).or_default() += 1;
        }
        let gangs: Vec<Value> = all.iter().map(Prediction::value).collect();
        json!({"counts": counts, "gangs": gangs})
    }
}

impl Prediction {
    /// The prediction for a gang that is admitted, and may fail then.
    fn at_its_turn(self, failing: &BTreeMap<Subject, String>) -> Self {
        match failing.get(&self.subject).filter(|_| self.fate == Fate::Starts) {
            Some(why) => Self { fate: Fate::Fails, why: why.clone(), ..self },
            None => self,
        }
    }

    fn value(&self) -> Value {
        let Subject { kind, namespace, name } = &self.subject;
        json!({"kind": kind, "namespace": namespace, "name": name, "fate": self.fate.name(), "why": self.why})
    }
}

/// The rights to read what a controller plans that the user does not have, as `VERB RESOURCE`.
async fn missing_rights(client: &Client, config: &Config) -> Result<Vec<String>, kube::Error> {
    let mut read: Vec<(&str, &str)> = vec![
        ("", "nodes"),
        ("", "namespaces"),
        ("", "pods"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
    ];
    read.extend(config.groups.iter().map(|group| (group.name(), api::appwrapper::PLURAL)));
    if config.kueue == controllers::Kueue::Scheduler {
        read.extend(QUEUES.map(|plural| (api::kueue::GROUP, plural)));
    }
    let mut missing = Vec::new();
    for (group, plural) in read {
        for verb in ["list", "watch"] {
            if !may(client, verb, group, plural).await? {
                let dot = if group.is_empty() { "" } else { "." };
                missing.push(format!("{verb} {plural}{dot}{group}"));
            }
        }
    }
    Ok(missing)
}

/// Whether the user may do this in all namespaces. The API server stores no such review.
async fn may(client: &Client, verb: &str, group: &str, plural: &str) -> Result<bool, kube::Error> {
    let attributes = ResourceAttributes {
        verb: Some(verb.into()),
        group: Some(group.into()),
        resource: Some(plural.into()),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec {
        resource_attributes: Some(attributes),
        ..SelfSubjectAccessReviewSpec::default()
    };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let answer = Api::all(client.clone()).create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// The gangs that run or hold quota now: kind, namespace and name.
fn holding(cluster: &Cluster) -> BTreeSet<(String, String, String)> {
    let mut found = BTreeSet::new();
    let resources = api::appwrapper::Group::ALL.map(api::appwrapper::Group::resource);
    for resource in resources.into_iter().chain(["workloads.kueue.x-k8s.io".to_owned()]) {
        for object in cluster.of(&resource) {
            let conditions = items(&object["status"]["conditions"]);
            let has_quota = conditions
                .into_iter()
                .any(|known| known["type"] == "QuotaReserved" && known["status"] == "True");
            if has_quota || object["status"]["canrun"] == true {
                let meta = &object["metadata"];
                found.insert((
                    resource.clone(),
                    text(&meta["namespace"]).to_owned(),
                    text(&meta["name"]).to_owned(),
                ));
            }
        }
    }
    found
}

fn prediction(report: &GangReport, holding: &BTreeSet<(String, String, String)>) -> Prediction {
    let key = report.key();
    let held = holding.contains(&(key.kind.clone(), key.namespace.clone(), key.name.clone()));
    let (kind, (fate, why)) = match report {
        GangReport::Wrapper(report) => ("AppWrapper", of_wrapper(&report.phase, held)),
        GangReport::Workload(report) => ("Workload", of_workload(&report.phase, held)),
    };
    let subject = Subject { kind: kind.into(), namespace: key.namespace.clone(), name: key.name.clone() };
    Prediction { subject, fate, why }
}

fn of_wrapper(phase: &WrapperPhase, held: bool) -> (Fate, String) {
    match phase {
        WrapperPhase::Queued(status) => of_status(status, held),
        WrapperPhase::NotQueued(causes) => (Fate::NotQueued, causes.join("; ")),
        WrapperPhase::Fails(cause) => (Fate::Fails, cause.clone()),
        WrapperPhase::Stopping(cause) => (Fate::Stops, cause.clone()),
        WrapperPhase::Ended(_, text) => (Fate::Ended, text.clone()),
    }
}

fn of_workload(phase: &WorkloadReportPhase, held: bool) -> (Fate, String) {
    let goes_on = if held { Fate::RunsOn } else { Fate::Starts };
    match phase {
        WorkloadReportPhase::Pending(Some(status)) => of_status(status, held),
        WorkloadReportPhase::Pending(None) => (Fate::Waits, String::new()),
        WorkloadReportPhase::NotQueued(causes) => (Fate::NotQueued, causes.join("; ")),
        WorkloadReportPhase::Holds(_) => (goes_on, String::new()),
        // Another gang is named only for an eviction that the plan decides; others are under way.
        WorkloadReportPhase::Stopping(cause) if cause.starts_with("it is preempted by ") => {
            (Fate::Evicted, cause.clone())
        }
        WorkloadReportPhase::Stopping(cause) => (Fate::Stops, cause.clone()),
        WorkloadReportPhase::Ended(cause) => (Fate::Ended, cause.clone()),
    }
}

fn of_status(status: &GangStatus, held: bool) -> (Fate, String) {
    match status {
        GangStatus::Pending(wait) if wait.is_never => (Fate::NeverFits, wait.shortage.to_string()),
        GangStatus::Pending(wait) => (Fate::Waits, wait.shortage.to_string()),
        GangStatus::Preempting { victims, .. } => {
            let victims: Vec<String> = victims.iter().map(ToString::to_string).collect();
            (Fate::TakesOver, format!("when {} have ended", victims.join(", ")))
        }
        GangStatus::Preempted { to } => (Fate::Evicted, format!("it is preempted by {to}")),
        GangStatus::New | GangStatus::Running { .. } => {
            (if held { Fate::RunsOn } else { Fate::Starts }, String::new())
        }
    }
}
