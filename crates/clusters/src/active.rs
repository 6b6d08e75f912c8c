//! The condition `Active` of clusters and of the checks that use them: texts and reasons are those of Kueue v0.19.

use api::MicroTime;
use api::kueue::status::{Condition, seconds, set_condition};
use controllers::Whole;
use serde::Deserialize as _;
use serde_json::Value;

use crate::hub::Hub;
use crate::worker::{Link, Worker};

const ACTIVE: &str = "Active";

/// The condition of a cluster; `None` until it is known.
fn of_cluster(whole: &Whole, worker: &Worker, now: MicroTime) -> Option<Condition> {
    let generation = whole.metadata.generation;
    let condition = |is_active, reason: &str, text: &str| {
        Some(Condition::new(ACTIVE, is_active, reason, text, generation, now))
    };
    match &worker.link {
        Link::Connecting | Link::Removed => None,
        Link::Connected => condition(true, ACTIVE, "Connected"),
        Link::Refused(refusal) => {
            condition(false, refusal.reason, &format!("load client config failed: {}", refusal.text))
        }
        Link::Lost { why, attempts, next } => {
            let text = format!(
                "{why}; connection attempts: {attempts}, next connection attempt: {}",
                seconds(*next)
            );
            condition(false, "ClientConnectionFailed", &text)
        }
    }
}

/// The condition of a check.
fn of_check(hub: &Hub, name: &str, whole: &Whole, now: MicroTime) -> Condition {
    let condition = |is_active, reason: &str, text: &str| {
        Condition::new(ACTIVE, is_active, reason, text, whole.metadata.generation, now)
    };
    let clusters = match hub.clusters_of(name) {
        Ok(clusters) => clusters,
        Err(why) => {
            let text = format!("Cannot load the AdmissionChecks parameters: {why}");
            return condition(false, "BadConfig", &text);
        }
    };
    let is_missing = |name: &&&str| !hub.clusters.contains_key(**name);
    let is_inactive = |name: &&&str| hub.clusters.get(**name).is_some_and(|cluster| !is_active(cluster));
    let missing: Vec<&str> = clusters.iter().filter(is_missing).copied().collect();
    let inactive: Vec<&str> = clusters.iter().filter(is_inactive).copied().collect();
    let unusable = missing.len() + inactive.len();
    if unusable == 0 {
        return condition(true, ACTIVE, "The admission check is active");
    }
    let part = |what: &str, names: &[&str]| {
        (!names.is_empty()).then(|| format!("{what} clusters: [{}]", names.join(" ")))
    };
    let parts: Vec<String> =
        [part("Missing", &missing), part("Inactive", &inactive)].into_iter().flatten().collect();
    let is_usable = unusable < clusters.len();
    condition(is_usable, if is_usable { "SomeActiveClusters" } else { "NoUsableClusters" }, &parts.join(", "))
}

fn conditions(whole: &Whole) -> Vec<Condition> {
    Vec::deserialize(&whole.value["status"]["conditions"]).unwrap_or_default()
}

fn is_active(whole: &Whole) -> bool {
    conditions(whole).iter().any(|condition| condition.kind == ACTIVE && condition.is_true())
}

/// A change of the condition of an object.
#[derive(Debug)]
pub(crate) struct Report {
    /// All conditions.
    pub(crate) conditions: Value,
    /// The new one.
    pub(crate) active: Condition,
    /// Whether it is told by an Event: it was active before, or is now.
    pub(crate) is_turn: bool,
}

fn report(whole: &Whole, active: Condition) -> Option<Report> {
    let mut known = conditions(whole);
    let before = known.iter().find(|condition| condition.kind == ACTIVE);
    if before.is_some_and(|before| {
        before.status == active.status && before.reason == active.reason && before.message == active.message
    }) {
        return None;
    }
    let is_turn = before.is_some_and(Condition::is_true) != active.is_true();
    set_condition(&mut known, active.clone());
    Some(Report { conditions: serde_json::to_value(known).unwrap_or_default(), active, is_turn })
}

/// What is to be written about a cluster.
pub(crate) fn cluster(hub: &Hub, name: &str, worker: &Worker, now: MicroTime) -> Option<Report> {
    let whole = hub.clusters.get(name)?;
    report(whole, of_cluster(whole, worker, now)?)
}

/// What is to be written about a check.
pub(crate) fn check(hub: &Hub, name: &str, now: MicroTime) -> Option<Report> {
    let whole = hub.checks.get(name).filter(|_| hub.is_ours(name))?;
    report(whole, of_check(hub, name, whole, now))
}
