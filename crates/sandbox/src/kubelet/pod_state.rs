//! The state of one pod on its node and its transitions over time. Performs no I/O: time and cluster state are
//! arguments.

use std::time::Duration;

use tokio::time::Instant;

use super::behaviour::{Behaviour, FaultKind};
use super::process::{NextSync, PendingEvent, Process, State, SyncContext, Terminated};
use super::status::EVICTED;
use crate::cluster::EventKind;
use crate::pace::Pace;
use crate::wire::{Condition, Container, Pod, Stamp};

/// The same point in time on the monotonic clock and on the wall clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) instant: Instant,
    pub(super) timestamp: jiff::Timestamp,
}

impl Now {
    /// The wall-clock time of an earlier instant.
    pub(super) fn stamp_at(&self, earlier: Instant) -> Stamp {
        let ago = self.instant.saturating_duration_since(earlier);
        Stamp::of(self.timestamp.checked_sub(ago).unwrap_or(self.timestamp))
    }
}

/// A pod on its node.
#[derive(Debug)]
pub(super) struct PodState {
    pub(super) uid: String,
    pub(super) behaviour: Behaviour,
    pub(super) started: Instant,
    /// When the pod sandbox is ready and the pod has its address.
    pub(super) sandbox_ready_at: Instant,
    pub(super) inits: Vec<Process>,
    pub(super) apps: Vec<Process>,
    pub(super) conditions: Vec<Condition>,
    pub(super) events: Vec<PendingEvent>,
    /// Log lines that are not delivered yet: container and text.
    pub(super) log_lines: Vec<(String, String)>,
    /// Reason and message of a pod that failed as a whole: evicted, past its deadline, or terminated before it
    /// started.
    pub(super) failure: Option<(&'static str, String)>,
    restart_policy: String,
    deadline: Option<Duration>,
    pace: Pace,
}

impl PodState {
    /// A pod that was bound to its node at `since`.
    pub(super) fn new(pod: &Pod, since: Instant, pace: Pace) -> Self {
        let process = |list: &'static str, index: usize, container: &Container| Process {
            name: container.name.clone(),
            image: container.image.clone(),
            init: list == "initContainers",
            sidecar: list == "initContainers" && container.is_sidecar(),
            field_path: format!("spec.{list}{{{}}}", container.name),
            state: State::Waiting { reason: "ContainerCreating", message: String::new(), until: None },
            restarts: 0,
            last: None,
            probe: container
                .readiness_probe
                .as_ref()
                .map_or(Duration::ZERO, |probe| Duration::from_secs(probe.initial_delay_seconds.max(1))),
            first: index == 0,
        };
        let list = |name: &'static str, containers: &[Container]| {
            containers.iter().enumerate().map(|(i, container)| process(name, i, container)).collect()
        };
        let mut pod_state = Self {
            uid: pod.metadata.uid.clone(),
            behaviour: Behaviour::of(pod),
            started: since,
            sandbox_ready_at: since + pace.between((&pod.metadata.name, "sandbox"), (200, 600)),
            inits: list("initContainers", &pod.spec.init_containers),
            apps: list("containers", &pod.spec.containers),
            conditions: Vec::new(),
            events: Vec::new(),
            log_lines: Vec::new(),
            failure: None,
            restart_policy: pod.spec.restart_policy.clone(),
            deadline: pod
                .spec
                .active_deadline_seconds
                .map(|s| Duration::from_secs(u64::try_from(s).unwrap_or(0))),
            pace,
        };
        if !pod_state.inits.is_empty() {
            for process in pod_state.inits.iter_mut().chain(&mut pod_state.apps) {
                process.state =
                    State::Waiting { reason: "PodInitializing", message: String::new(), until: None };
            }
        }
        pod_state.report_annotation_error();
        pod_state
    }

    /// Applies changed annotations. Their times count from now.
    pub(super) fn apply_annotations(&mut self, behaviour: Behaviour, now: Instant) {
        if behaviour == self.behaviour {
            return;
        }
        let given_fault = behaviour.fault != self.behaviour.fault && behaviour.fault.is_some();
        self.behaviour = behaviour;
        self.report_annotation_error();
        if given_fault && self.behaviour.evict_after().is_some() {
            // A fault that is set on a running pod counts from now, and not from the start of the pod.
            self.started = now;
        }
        for process in self.inits.iter_mut().chain(&mut self.apps) {
            match &mut process.state {
                State::Running { since, end, ready_at, .. } => {
                    let exit = self.behaviour.exit(&process.name, process.first, process.restarts);
                    let from = if given_fault { now } else { *since };
                    let at_once =
                        given_fault && self.behaviour.fault.as_ref().is_some_and(|f| f.after.is_none());
                    *end = exit.map(|(after, code, reason)| {
                        let after =
                            if at_once && code != 0 { Duration::ZERO } else { self.pace.scaled(after) };
                        (from + after, code, reason)
                    });
                    if !self.behaviour.has_fault(
                        FaultKind::NeverReady,
                        &process.name,
                        process.first,
                        process.restarts,
                    ) {
                        ready_at.get_or_insert(now);
                    }
                }
                State::Waiting { until, reason: "ErrImagePull" | "ImagePullBackOff", .. } => {
                    *until = Some(now);
                }
                State::Waiting { .. } | State::Terminated(_) => {}
            }
        }
    }

    fn report_annotation_error(&mut self) {
        if let Some(message) = self.behaviour.annotation_error.clone() {
            let (kind, reason) = (EventKind::Warning, "InvalidSandboxAnnotation");
            self.events.push(PendingEvent { kind, reason, message, field_path: String::new() });
        }
    }

    /// Advances the pod to `now`. `head_ready`: whether the head of the pod's Ray cluster is ready. Returns when time
    /// alone causes the next transition.
    pub(super) fn sync(&mut self, now: Instant, head_ready: bool) -> Option<Instant> {
        if self.is_over() {
            return None;
        }
        let mut next_sync = NextSync { now, next: None };
        if let Some((reason, message)) = self.failure_due(&mut next_sync) {
            self.terminate_containers(now, 137, "Error");
            self.events.push(PendingEvent {
                kind: EventKind::Warning,
                reason,
                message: message.clone(),
                field_path: String::new(),
            });
            self.failure = Some((reason, message));
            return None;
        }
        if !next_sync.reached(self.sandbox_ready_at) {
            return next_sync.next;
        }
        let mut from = self.sandbox_ready_at;
        let mut context = SyncContext {
            behaviour: &self.behaviour,
            policy: &self.restart_policy,
            pace: self.pace,
            uid: &self.uid,
            head_ready,
            next_sync,
            events: &mut self.events,
            log_lines: &mut self.log_lines,
        };
        for process in &mut self.inits {
            process.sync(from, &mut context);
            match &process.state {
                State::Terminated(ended) if ended.code == 0 => from = ended.at,
                State::Running { since, .. } if process.sidecar => from = *since,
                State::Waiting { .. } | State::Running { .. } | State::Terminated(_) => {
                    return context.next_sync.next;
                }
            }
        }
        for process in &mut self.apps {
            process.sync(from, &mut context);
        }
        let next = context.next_sync.next;
        if self.is_over() {
            self.terminate_containers(now, 0, "Completed");
            return None;
        }
        next
    }

    /// Reason and message of an eviction or an exceeded deadline that is due.
    fn failure_due(&self, next_sync: &mut NextSync) -> Option<(&'static str, String)> {
        if let Some(after) = self.behaviour.evict_after()
            && next_sync.reached(self.started + self.pace.scaled(after))
        {
            return Some((EVICTED, "The node was low on resource: memory. ".to_owned()));
        }
        if let Some(deadline) = self.deadline
            && next_sync.reached(self.started + self.pace.deadline(deadline))
        {
            return Some((
                "DeadlineExceeded",
                "Pod was active on the node longer than the specified deadline".to_owned(),
            ));
        }
        None
    }

    /// Terminates all running containers.
    pub(super) fn terminate_containers(&mut self, now: Instant, code: i32, reason: &'static str) {
        for process in self.inits.iter_mut().chain(&mut self.apps) {
            if let State::Running { since, .. } = process.state {
                process.state = State::Terminated(Terminated { since, at: now, code, reason });
            }
        }
    }

    /// Marks a pod as failed whose containers will not start any more.
    pub(super) fn fail_unless_over(&mut self) {
        if !self.is_over() {
            self.failure.get_or_insert((
                "Terminated",
                "Pod was terminated before its containers started.".to_owned(),
            ));
        }
    }

    /// Whether no container will run any more.
    pub(super) fn is_over(&self) -> bool {
        let failed_init =
            self.inits.iter().any(|init| matches!(init.state, State::Terminated(ended) if ended.code != 0));
        let ended = |process: &Process| matches!(process.state, State::Terminated(_));
        self.failure.is_some() || failed_init || (!self.apps.is_empty() && self.apps.iter().all(ended))
    }

    /// `Pending`, `Running`, `Succeeded` or `Failed`.
    pub(super) fn phase(&self) -> &'static str {
        if self.is_over() {
            let all = self.apps.iter().chain(self.inits.iter().filter(|init| !init.sidecar));
            let good = all
                .into_iter()
                .all(|process| matches!(process.state, State::Terminated(ended) if ended.code == 0));
            return if good && self.failure.is_none() { "Succeeded" } else { "Failed" };
        }
        let begun =
            |process: &Process| process.last.is_some() || !matches!(process.state, State::Waiting { .. });
        if self.apps.iter().any(begun) { "Running" } else { "Pending" }
    }
}
