//! What a Workload without quota says.

use api::MicroTime;
use api::kueue::quantity::canonical;
use api::kueue::status::{QUOTA_RESERVED, Status};
use index::{Blocker, BlockerKind, Index, WorkloadPhase};
use model::{Cause, Gang, Preemption, Shortage, Verdict};
use serde_json::{Map, Value, json};

use super::{About, Decision, WorkloadEvent, WorkloadStep};
use crate::kueue::texts;

/// How long a Workload waits before its status says why, in microseconds. One that is admitted meanwhile costs one write.
const PENDING_DELAY_US: i64 = 1_000_000;

/// The reason of a Workload that other controllers hold back, and of the Event about it.
const GATED: &str = "AdmissionGated";

/// What a Workload says that was not tried because an equal one has failed.
const BYPASSED: &str = "Bypassed scheduling evaluation because an equivalent workload recently failed";

/// The reasons of Workloads that the planner has judged, with causes.
const JUDGED: [&str; 3] = ["WaitingForQuota", "ExceedsMaxQuota", "NoMatchingFlavor"];

/// Why a Workload waits that fits while admission is blocked.
const AWAITS_PODS: &str = "waiting for all admitted workloads to be in PodsReady condition";

/// Why the planner does not admit a Workload.
enum Hindrance<'a> {
    /// Its victims are not gone.
    Victims(&'a Gang, &'a Preemption),
    /// It does not fit.
    Shortage(&'a Gang, &'a Shortage),
}

impl Hindrance<'_> {
    fn reason(&self) -> &'static str {
        match self {
            Self::Victims(..) => "WaitingForPreemptedWorkloads",
            Self::Shortage(_, shortage) => texts::cause(shortage),
        }
    }

    /// Searches for flavors and victims once more: only for a text that is told.
    fn text(&self, index: &Index) -> String {
        match self {
            Self::Victims(gang, preemption) => texts::pending_preemption(index.world(), gang, preemption),
            Self::Shortage(gang, shortage) => texts::no_fit(index, gang, shortage),
        }
    }
}

impl<'a> Decision<'a> {
    /// A Workload that cannot be queued says why.
    pub(super) fn block(&mut self, blocker: &Blocker) {
        let (plain, cause) = match blocker.kind {
            BlockerKind::Missing => ("Inadmissible", "Misconfigured"),
            BlockerKind::Suspended => ("Inadmissible", "Suspended"),
            BlockerKind::Invalid => ("Pending", "Misconfigured"),
            BlockerKind::Gated => (GATED, GATED),
        };
        let reason = if self.options.names_causes { cause } else { plain };
        let is_new = self.report(reason, &blocker.text, blocker.kind == BlockerKind::Invalid);
        if is_new && blocker.kind != BlockerKind::Gated {
            let text = match &blocker.remedy {
                Some(remedy) => format!("{}: {remedy}", blocker.text),
                None => blocker.text.clone(),
            };
            self.events.push(WorkloadEvent {
                is_warning: true,
                reason: reason.into(),
                text,
                about: About::Owner,
            });
        }
        if blocker.kind == BlockerKind::Invalid {
            self.state_requests();
        }
        if blocker.kind == BlockerKind::Gated && !self.was_gated() {
            self.event(false, GATED, blocker.text.replacen("Admission", "Workload admission", 1));
        }
    }

    /// Says what was asked for, as it is counted.
    fn state_requests(&mut self) {
        let resources = self.index.world().resources();
        let is_covered = |name: &str| name != "pods" || self.is_pods_covered();
        let sets = self.row.pod_sets().iter().map(|set| {
            let pods = i64::from(set.count);
            let named = set.quota_request().iter().map(|(ix, amount)| (resources.name(ix), amount.0));
            let amounts = named.filter(|(name, _)| is_covered(name)).map(|(name, amount)| {
                (name.to_owned(), Value::from(canonical(name, amount.saturating_mul(pods))))
            });
            json!({"name": set.name, "resources": amounts.collect::<Map<String, Value>>()})
        });
        self.status.resource_requests = sets.collect();
    }

    fn is_pods_covered(&self) -> bool {
        let groups = self.queues().1.into_iter().flat_map(|queue| &queue.spec.resource_groups);
        groups.flat_map(|group| &group.covered_resources).any(|name| name == "pods")
    }

    fn was_gated(&self) -> bool {
        self.row.object.status.condition(QUOTA_RESERVED).is_some_and(|known| known.reason == GATED)
    }

    /// A Workload that waits for quota says why, after a pause in which it may be admitted. If it may not yet, and the reason
    /// takes a search, that is the next step.
    pub(super) fn wait(&mut self, pending_since: MicroTime) -> Option<WorkloadStep> {
        if self.was_gated() {
            let reason = if self.options.names_causes { "PendingEvaluation" } else { "Pending" };
            self.report(reason, "AdmissionGatedBy cleared, waiting for quota reservation", false);
            self.event(false, "AdmissionGateCleared", "Admission gate cleared, workload is now admissible");
            return None;
        }
        if self.row.phase == WorkloadPhase::AwaitsPods {
            let reason = if self.options.names_causes { "WaitingForPodsReady" } else { "Waiting" };
            self.report(reason, AWAITS_PODS, false);
            return None;
        }
        let Some(hindrance) = self.hindrance() else {
            self.wait_for_plan();
            return None;
        };
        let due = MicroTime(pending_since.0 + PENDING_DELAY_US);
        let is_at_once = self.options.states_at_once && self.status.condition(QUOTA_RESERVED).is_none();
        if self.status == self.row.object.status && due > self.now && !is_at_once {
            self.due = Some(due);
            return None;
        }
        if !self.may_report {
            return Some(WorkloadStep::Report);
        }
        let reason = if self.options.names_causes { hindrance.reason() } else { "Pending" };
        let why = if self.is_bypassed(reason) { BYPASSED.to_owned() } else { hindrance.text(self.index) };
        self.report(reason, &why, true);
        self.state_requests();
        let verdict = self.index.world().verdict(self.row.uid()).and_then(Verdict::shortage);
        if verdict.is_some_and(texts::is_gated) {
            self.transition().block_on_gates(&why);
        }
        None
    }

    /// Whether a Workload says that it was not tried: an equal one has told the reason, and this one has none of its own.
    fn is_bypassed(&self, reason: &str) -> bool {
        let is_judged = |status: &Status| {
            let known = status.condition(QUOTA_RESERVED);
            known.filter(|known| !known.is_true() && JUDGED.contains(&&*known.reason)).cloned()
        };
        if !self.options.names_causes || !JUDGED.contains(&reason) {
            return false;
        }
        if let Some(known) = is_judged(&self.row.object.status) {
            return known.message == BYPASSED && known.reason == reason;
        }
        let is_new = self.status.condition(QUOTA_RESERVED).is_none();
        (self.options.states_at_once || !is_new)
            && self.index.has_equal_before(self.row, |first| is_judged(&first.status).is_some())
    }

    /// A Workload that no plan has judged since something else kept it from being tried.
    fn wait_for_plan(&mut self) {
        const REASONS: [&str; 3] = ["PendingEvaluation", "WaitingForQuota", "ExceedsMaxQuota"];
        let known = self.status.condition(QUOTA_RESERVED);
        let is_stale = known.map_or(self.options.states_at_once, |known| !REASONS.contains(&&*known.reason));
        if self.options.names_causes && is_stale {
            self.report("PendingEvaluation", "Workload is pending evaluation in the scheduling queue", false);
        }
    }

    /// Why the planner does not admit the Workload; `None` before it was planned.
    fn hindrance(&self) -> Option<Hindrance<'a>> {
        let world = self.index.world();
        let gang = world.gang(self.row.uid())?;
        if let WorkloadPhase::Nominated(preemption) = &self.row.phase {
            return Some(Hindrance::Victims(gang, preemption));
        }
        let shortage = world.verdict(self.row.uid())?.shortage()?;
        // One that nothing but its turn keeps waiting was not tried: Kueue says nothing then.
        let is_turn = |cause: &Cause| matches!(cause, Cause::Behind { .. });
        (!shortage.causes.iter().all(is_turn)).then_some(Hindrance::Shortage(gang, shortage))
    }

    /// Says why the Workload holds no quota. Returns whether that is new.
    pub(super) fn report(&mut self, reason: &str, text: &str, is_event: bool) -> bool {
        let known = self.status.condition(QUOTA_RESERVED);
        if known.is_some_and(|known| !known.is_true() && known.reason == reason && known.message == text) {
            return false;
        }
        self.transition().unreserve(reason, text);
        if is_event {
            self.event(true, reason, text);
        }
        true
    }
}
