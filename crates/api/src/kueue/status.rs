//! The status of a Workload, and its transitions.
//!
//! The server-side apply of the field manager `kueue-admission` carries the same fields every time, so that a field is
//! cleared by leaving it out. After `pkg/workload` and `pkg/workload/patching` of Kueue v0.19.

mod admission;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use admission::PLACES_PENDING;
pub use admission::{Admission, DELAYED, PLACED, PodSetAssignment};

use super::workload::{API_VERSION, Workload};
use crate::MicroTime;
use crate::meta::null_is_default;

/// The field manager of the admission status.
pub const ADMISSION_MANAGER: &str = "kueue-admission";

/// Quota is reserved.
pub const QUOTA_RESERVED: &str = "QuotaReserved";
/// The reason of a Workload without quota whose job cannot run as it is.
pub const ON_HOLD: &str = "OnHold";
/// The Workload may start.
pub const ADMITTED: &str = "Admitted";
/// The Workload must stop.
pub const EVICTED: &str = "Evicted";
/// The Workload was evicted for another one.
pub const PREEMPTED: &str = "Preempted";
/// The Workload may be tried again after an eviction.
pub const REQUEUED: &str = "Requeued";
/// The Workload is to be deactivated.
pub const DEACTIVATION_TARGET: &str = "DeactivationTarget";
/// The Workload has ended.
pub const FINISHED: &str = "Finished";
/// The pods of the Workload are ready.
pub const PODS_READY: &str = "PodsReady";
/// Pods of a group are missing: the Workload is not admitted before they are there.
pub const WAITING_FOR_REPLACEMENT: &str = "WaitingForReplacementPods";

/// Closed preemption gates keep the Workload from preempting others.
pub const BLOCKED_ON_GATES: &str = "BlockedOnPreemptionGates";

/// The conditions that the admission status holds, in the order in which they are written.
const MANAGED_CONDITIONS: [&str; 9] = [
    QUOTA_RESERVED,
    BLOCKED_ON_GATES,
    EVICTED,
    ADMITTED,
    PREEMPTED,
    REQUEUED,
    DEACTIVATION_TARGET,
    FINISHED,
    PODS_READY,
];

/// The longest message of a condition, in bytes.
const MESSAGE_MAX: usize = 32_768;

/// A condition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// Type.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Reason.
    #[serde(deserialize_with = "null_is_default")]
    pub reason: String,
    /// Message.
    #[serde(deserialize_with = "null_is_default")]
    pub message: String,
    /// When the status changed last, RFC 3339 in seconds.
    #[serde(deserialize_with = "null_is_default")]
    pub last_transition_time: String,
    /// The generation of the spec that it refers to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

impl Condition {
    /// A condition that changes at `now`.
    pub fn new(
        kind: &str,
        is_true: bool,
        reason: &str,
        message: &str,
        generation: i64,
        now: MicroTime,
    ) -> Self {
        Self {
            kind: kind.into(),
            status: if is_true { "True" } else { "False" }.into(),
            reason: reason.into(),
            message: message.chars().take(MESSAGE_MAX).collect(),
            last_transition_time: seconds(now),
            observed_generation: Some(generation),
        }
    }

    /// Whether the status is `True`.
    pub fn is_true(&self) -> bool {
        self.status == "True"
    }

    /// When the status changed last.
    pub fn since(&self) -> Option<MicroTime> {
        MicroTime::parse(&self.last_transition_time)
    }
}

/// Sets a condition. The transition time changes with the status only. Returns whether anything changed.
pub fn set_condition(conditions: &mut Vec<Condition>, new: Condition) -> bool {
    let Some(known) = conditions.iter_mut().find(|condition| condition.kind == new.kind) else {
        conditions.push(new);
        return true;
    };
    let since =
        if known.status == new.status { &known.last_transition_time } else { &new.last_transition_time };
    let new = Condition { last_transition_time: since.clone(), ..new };
    if *known == new {
        return false;
    }
    *known = new;
    true
}

/// The status of a Workload.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// Conditions.
    #[serde(deserialize_with = "null_is_default")]
    pub conditions: Vec<Condition>,
    /// Where it is admitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission: Option<Admission>,
    /// When it may be tried again after evictions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requeue_state: Option<Value>,
    /// What it asks for while it waits.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub resource_requests: Vec<Value>,
    /// How long it ran in earlier admissions, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accumulated_past_execution_time_seconds: Option<i64>,
    /// The number of its evictions, by reason.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "SchedulingStats::is_empty")]
    pub scheduling_stats: SchedulingStats,
    /// The cluster that runs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// The clusters that may run it.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub nominated_cluster_names: Vec<String>,
    /// Its failed nodes.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub unhealthy_nodes: Vec<Value>,
    /// Its preemption gates.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub preemption_gates: Vec<Value>,
    /// The states of its admission checks.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub admission_checks: Vec<CheckState>,
    /// The pods that have succeeded. Owned by the controller of its job.
    #[serde(deserialize_with = "null_is_default", skip_serializing)]
    pub reclaimable_pods: Vec<ReclaimablePods>,
}

/// The state of an admission check of a Workload. External controllers write it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CheckState {
    /// The `AdmissionCheck`.
    pub name: String,
    /// `Pending`, `Ready`, `Retry` or `Rejected`.
    pub state: String,
    /// When the state changed last.
    #[serde(deserialize_with = "null_is_default")]
    pub last_transition_time: String,
    /// Message.
    #[serde(deserialize_with = "null_is_default")]
    pub message: String,
    /// How long to wait before the next try, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requeue_after_seconds: Option<i64>,
    /// How often it was tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_count: Option<i64>,
    /// What it adds to the pods.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub pod_set_updates: Vec<Value>,
}

/// The pods of a pod set that have succeeded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ReclaimablePods {
    /// The pod set.
    pub name: String,
    /// Their number.
    pub count: u32,
}

/// The number of evictions of a Workload.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SchedulingStats {
    /// By reason and cause.
    #[serde(deserialize_with = "null_is_default")]
    pub evictions: Vec<Evictions>,
}

/// The number of evictions for one reason and cause.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Evictions {
    /// Reason.
    pub reason: String,
    /// Underlying cause; empty for none.
    #[serde(deserialize_with = "null_is_default")]
    pub underlying_cause: String,
    /// Their number.
    pub count: i64,
}

impl CheckState {
    /// A check that has not been judged.
    pub fn pending(name: String, now: MicroTime) -> Self {
        Self { name, state: "Pending".into(), last_transition_time: seconds(now), ..Self::default() }
    }
}

impl SchedulingStats {
    fn is_empty(&self) -> bool {
        self.evictions.is_empty()
    }
}

/// A change of a Workload's status at a time.
#[derive(Debug)]
pub struct Transition<'a> {
    /// The status so far.
    pub status: &'a mut Status,
    /// The generation of the spec.
    pub generation: i64,
    /// The time.
    pub now: MicroTime,
}

impl Status {
    /// The condition of this type.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }

    /// The host names of its failed nodes.
    pub fn unhealthy_hosts(&self) -> impl Iterator<Item = &str> {
        self.unhealthy_nodes.iter().filter_map(|node| node["name"].as_str())
    }

    /// Whether its job cannot run as it is: it gets no quota until the controller of the job says otherwise.
    pub fn is_on_hold(&self) -> bool {
        self.condition(QUOTA_RESERVED).is_some_and(|known| !known.is_true() && known.reason == ON_HOLD)
    }

    /// Whether the condition of this type is `True`.
    pub fn is(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(Condition::is_true)
    }

    /// Before when it is not tried again.
    pub fn requeue_at(&self) -> Option<MicroTime> {
        MicroTime::parse(self.requeue_state.as_ref()?["requeueAt"].as_str()?)
    }

    /// How often it was evicted because its pods were not ready.
    pub fn retries(&self) -> i64 {
        self.requeue_state.as_ref().and_then(|state| state["count"].as_i64()).unwrap_or_default()
    }

    /// Whether all its admission checks are `Ready`.
    pub fn are_checks_ready(&self) -> bool {
        self.admission_checks.iter().all(|check| check.state == "Ready")
    }
}

impl Transition<'_> {
    fn set(&mut self, kind: &str, is_true: bool, reason: &str, message: &str) {
        let condition = Condition::new(kind, is_true, reason, message, self.generation, self.now);
        set_condition(&mut self.status.conditions, condition);
    }

    /// Reserves quota, and admits the Workload if all its checks are ready.
    pub fn reserve(&mut self, admission: Admission) {
        let message = format!("Quota reserved in ClusterQueue {}", admission.cluster_queue);
        self.status.admission = Some(admission);
        self.status.resource_requests.clear();
        self.set(QUOTA_RESERVED, true, QUOTA_RESERVED, &message);
        for kind in [EVICTED, PREEMPTED, BLOCKED_ON_GATES] {
            if let Some(message) =
                self.status.condition(kind).filter(|c| c.is_true()).map(|c| c.message.clone())
            {
                self.set(kind, false, QUOTA_RESERVED, &format!("Previously: {message}"));
            }
        }
        self.sync_admitted();
    }

    /// Says why the Workload holds no quota, and releases what it holds.
    pub fn unreserve(&mut self, reason: &str, message: &str) {
        self.set(QUOTA_RESERVED, false, reason, message);
        self.status.admission = None;
        self.status.cluster_name = None;
        self.sync_admitted();
    }

    /// Brings the condition `Admitted` up to date. The time of an admission that ends is added up.
    pub fn sync_admitted(&mut self) {
        let (reserved, ready) = (self.status.is(QUOTA_RESERVED), self.status.are_checks_ready());
        let was_admitted = self.status.is(ADMITTED);
        let is_admitted = reserved && ready && !self.status.has_open_places();
        if was_admitted == is_admitted {
            return;
        }
        let since = self.status.condition(ADMITTED).and_then(Condition::since);
        let (reason, message) = match (reserved, ready) {
            (true, true) if is_admitted => (ADMITTED, "The workload is admitted"),
            (true, true) => PLACES_PENDING,
            (false, true) => ("NoReservation", "The workload has no reservation"),
            (true, false) => ("UnsatisfiedChecks", "The workload has not all checks ready"),
            (false, false) => {
                ("NoReservationUnsatisfiedChecks", "The workload has no reservation and not all checks ready")
            }
        };
        self.set(ADMITTED, is_admitted, reason, message);
        if let (false, Some(since)) = (is_admitted, since) {
            let ran = (self.now.0 - since.0).max(0) / 1_000_000;
            *self.status.accumulated_past_execution_time_seconds.get_or_insert_default() += ran;
        }
    }

    /// Says that the Workload is not admitted, with Kueue's feature gate `UnadmittedWorkloadsObservability`: one reason
    /// for each cause, as soon as anything is said about its quota.
    pub fn name_causes(&mut self) {
        if self.status.is(ADMITTED) || self.status.condition(QUOTA_RESERVED).is_none() {
            return;
        }
        let (reason, message) = if !self.status.is(QUOTA_RESERVED) {
            ("NoReservation", "The workload has no reservation")
        } else if !self.status.are_checks_ready() {
            ("UnsatisfiedAdmissionChecks", "The workload has not all checks ready")
        } else {
            PLACES_PENDING
        };
        self.set(ADMITTED, false, reason, message);
    }

    /// Evicts the Workload. It holds its quota until the controller of its job releases it, and names the cluster that may run it until then.
    pub fn evict(&mut self, reason: &str, cause: &str, message: &str) {
        let names_cause = reason == "Deactivated" && !cause.is_empty();
        let full = if names_cause { format!("{reason}DueTo{cause}") } else { reason.to_owned() };
        self.set(EVICTED, true, &full, message);
        self.status.nominated_cluster_names.clear();
        self.status.unhealthy_nodes.clear();
        for gate in &mut self.status.preemption_gates {
            gate["position"] = "Closed".into();
            gate["lastTransitionTime"] = seconds(self.now).into();
        }
        for check in self.status.admission_checks.iter_mut().filter(|check| check.state != "Pending") {
            let is_retry = check.state == "Retry";
            *check = CheckState {
                message: format!("Reset to Pending after eviction. Previously: {}", check.state),
                name: std::mem::take(&mut check.name),
                state: "Pending".into(),
                last_transition_time: seconds(self.now),
                requeue_after_seconds: check.requeue_after_seconds,
                retry_count: is_retry.then(|| check.retry_count.unwrap_or(0) + 1),
                pod_set_updates: Vec::new(),
            };
        }
        let evictions = &mut self.status.scheduling_stats.evictions;
        let is_same = |known: &&mut Evictions| known.reason == reason && known.underlying_cause == cause;
        match evictions.iter_mut().find(is_same) {
            Some(known) => known.count += 1,
            None => {
                evictions.push(Evictions { reason: reason.into(), underlying_cause: cause.into(), count: 1 });
            }
        }
    }

    /// Evicts the Workload for another one.
    pub fn preempt(&mut self, reason: &str, message: &str) {
        self.evict(PREEMPTED, "", message);
        self.set(PREEMPTED, true, reason, message);
    }

    /// Evicts a Workload that its author has deactivated.
    pub fn deactivate(&mut self) {
        let target = self.status.condition(DEACTIVATION_TARGET).cloned();
        let message = "The workload is deactivated";
        match target {
            Some(target) => {
                self.evict("Deactivated", &target.reason, &format!("{message} due to {}", target.message));
                self.status.conditions.retain(|condition| condition.kind != DEACTIVATION_TARGET);
            }
            None => self.evict("Deactivated", "", message),
        }
        self.status.requeue_state = None;
    }

    /// Says whether the Workload may be tried again.
    pub fn requeue(&mut self, is_requeued: bool, reason: &str, message: &str) {
        self.set(REQUEUED, is_requeued, reason, message);
    }

    /// Lets the Workload wait until this time at least before it is tried again.
    pub fn wait_until(&mut self, time: MicroTime) {
        if self.status.requeue_at().is_none_or(|known| known < time) {
            let state = self.status.requeue_state.get_or_insert_with(|| json!({}));
            state["requeueAt"] = seconds(time).into();
        }
    }

    /// Counts one more retry.
    pub fn count_retry(&mut self) {
        let count = self.status.retries() + 1;
        self.status.requeue_state.get_or_insert_with(|| json!({}))["count"] = count.into();
    }

    /// Lets the Workload be tried again.
    pub fn end_wait(&mut self) {
        if let Some(state) = self.status.requeue_state.as_mut().and_then(Value::as_object_mut) {
            state.remove("requeueAt");
            if state.is_empty() {
                self.status.requeue_state = None;
            }
        }
    }

    /// Says that closed preemption gates keep the Workload waiting.
    pub fn block_on_gates(&mut self, message: &str) {
        self.set(BLOCKED_ON_GATES, true, "PreemptionGated", message);
    }

    /// Ends the Workload: its quota is released.
    pub fn finish(&mut self, reason: &str, message: &str) {
        self.set(FINISHED, true, reason, message);
    }

    /// Asks for the deactivation of the Workload.
    pub fn target_deactivation(&mut self, reason: &str, message: &str) {
        self.set(DEACTIVATION_TARGET, true, reason, message);
    }
}

/// A time as RFC 3339 in seconds.
pub fn seconds(time: MicroTime) -> String {
    let text = time.to_string();
    text.split_once('.').map_or(text.clone(), |(seconds, _)| format!("{seconds}Z"))
}

/// The body of the server-side apply that writes the admission status. With a resource version, the write fails after any
/// other change of the Workload.
pub fn admission_patch(workload: &Workload, status: &Status, resource_version: Option<&str>) -> Value {
    let meta = &workload.metadata;
    let mut metadata = json!({"name": meta.name, "namespace": meta.namespace, "uid": meta.uid});
    if let Some(version) = resource_version {
        metadata["resourceVersion"] = version.into();
    }
    let managed = MANAGED_CONDITIONS.iter().filter_map(|kind| status.condition(kind).cloned());
    let written = Status { conditions: managed.collect(), ..status.clone() };
    json!({"apiVersion": API_VERSION, "kind": "Workload", "metadata": metadata, "status": written})
}
