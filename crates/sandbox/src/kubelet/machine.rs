//! The state of one pod on its node and its transitions over time. Performs no I/O: time and cluster state are
//! arguments.

use std::time::Duration;

use tokio::time::Instant;

use super::behaviour::{Behaviour, What};
use super::process::{Ended, Note, Process, State, Turn, Wake};
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
pub(super) struct Machine {
    pub(super) uid: String,
    pub(super) behaviour: Behaviour,
    pub(super) started: Instant,
    /// When the pod sandbox is ready and the pod has its address.
    pub(super) sandbox_at: Instant,
    pub(super) inits: Vec<Process>,
    pub(super) apps: Vec<Process>,
    pub(super) conditions: Vec<Condition>,
    pub(super) notes: Vec<Note>,
    /// Log lines that are not delivered yet: container and text.
    pub(super) lines: Vec<(String, String)>,
    /// Reason and message of a pod that failed as a whole: evicted, past its deadline, or terminated before it
    /// started.
    pub(super) thrown_out: Option<(&'static str, String)>,
    restart_policy: String,
    deadline: Option<Duration>,
    pace: Pace,
}

impl Machine {
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
        let mut machine = Self {
            uid: pod.metadata.uid.clone(),
            behaviour: Behaviour::of(pod),
            started: since,
            sandbox_at: since + pace.between((&pod.metadata.name, "sandbox"), (200, 600)),
            inits: list("initContainers", &pod.spec.init_containers),
            apps: list("containers", &pod.spec.containers),
            conditions: Vec::new(),
            notes: Vec::new(),
            lines: Vec::new(),
            thrown_out: None,
            restart_policy: pod.spec.restart_policy.clone(),
            deadline: pod
                .spec
                .active_deadline_seconds
                .map(|s| Duration::from_secs(u64::try_from(s).unwrap_or(0))),
            pace,
        };
        if !machine.inits.is_empty() {
            for process in machine.inits.iter_mut().chain(&mut machine.apps) {
                process.state =
                    State::Waiting { reason: "PodInitializing", message: String::new(), until: None };
            }
        }
        machine.complain();
        machine
    }

    /// Applies changed annotations. Their times count from now.
    pub(super) fn adapt(&mut self, behaviour: Behaviour, now: Instant) {
        if behaviour == self.behaviour {
            return;
        }
        let given_fault = behaviour.fault != self.behaviour.fault && behaviour.fault.is_some();
        self.behaviour = behaviour;
        self.complain();
        if given_fault && self.behaviour.evicted_after().is_some() {
            // A fault that is set on a running pod counts from now, and not from the start of the pod.
            self.started = now;
        }
        for process in self.inits.iter_mut().chain(&mut self.apps) {
            match &mut process.state {
                State::Running { since, end, ready_at, .. } => {
                    let told = self.behaviour.end(&process.name, process.first, process.restarts);
                    let from = if given_fault { now } else { *since };
                    let at_once =
                        given_fault && self.behaviour.fault.as_ref().is_some_and(|f| f.after.is_none());
                    *end = told.map(|(after, code, reason)| {
                        let after =
                            if at_once && code != 0 { Duration::ZERO } else { self.pace.scaled(after) };
                        (from + after, code, reason)
                    });
                    if !self.behaviour.suffers(
                        What::NeverReady,
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
                State::Waiting { .. } | State::Ended(_) => {}
            }
        }
    }

    fn complain(&mut self) {
        if let Some(message) = self.behaviour.complaint.clone() {
            let (kind, reason) = (EventKind::Warning, "InvalidSandboxAnnotation");
            self.notes.push(Note { kind, reason, message, field_path: String::new() });
        }
    }

    /// Advances the pod to `now`. `head_ready`: whether the head of the pod's Ray cluster is ready. Returns when time
    /// alone causes the next transition.
    pub(super) fn advance(&mut self, now: Instant, head_ready: bool) -> Option<Instant> {
        if self.is_over() {
            return None;
        }
        let mut wake = Wake { now, next: None };
        if let Some((reason, message)) = self.reason_to_leave(&mut wake) {
            self.kill(now, 137, "Error");
            self.notes.push(Note {
                kind: EventKind::Warning,
                reason,
                message: message.clone(),
                field_path: String::new(),
            });
            self.thrown_out = Some((reason, message));
            return None;
        }
        if !wake.reached(self.sandbox_at) {
            return wake.next;
        }
        let mut from = self.sandbox_at;
        let mut turn = Turn {
            behaviour: &self.behaviour,
            policy: &self.restart_policy,
            pace: self.pace,
            uid: &self.uid,
            head_ready,
            wake,
            notes: &mut self.notes,
            lines: &mut self.lines,
        };
        for process in &mut self.inits {
            process.advance(from, &mut turn);
            match &process.state {
                State::Ended(ended) if ended.code == 0 => from = ended.at,
                State::Running { since, .. } if process.sidecar => from = *since,
                State::Waiting { .. } | State::Running { .. } | State::Ended(_) => return turn.wake.next,
            }
        }
        for process in &mut self.apps {
            process.advance(from, &mut turn);
        }
        let next = turn.wake.next;
        if self.is_over() {
            self.kill(now, 0, "Completed");
            return None;
        }
        next
    }

    /// Reason and message of an eviction or an exceeded deadline that is due.
    fn reason_to_leave(&self, wake: &mut Wake) -> Option<(&'static str, String)> {
        if let Some(after) = self.behaviour.evicted_after()
            && wake.reached(self.started + self.pace.scaled(after))
        {
            return Some(("Evicted", "The node was low on resource: memory. ".to_owned()));
        }
        if let Some(deadline) = self.deadline
            && wake.reached(self.started + self.pace.deadline(deadline))
        {
            return Some((
                "DeadlineExceeded",
                "Pod was active on the node longer than the specified deadline".to_owned(),
            ));
        }
        None
    }

    /// Terminates all running containers.
    pub(super) fn kill(&mut self, now: Instant, code: i32, reason: &'static str) {
        for process in self.inits.iter_mut().chain(&mut self.apps) {
            if let State::Running { since, .. } = process.state {
                process.state = State::Ended(Ended { since, at: now, code, reason });
            }
        }
    }

    /// Marks a pod as failed whose containers will not start any more.
    pub(super) fn stop(&mut self) {
        if !self.is_over() {
            self.thrown_out.get_or_insert((
                "Terminated",
                "Pod was terminated before its containers started.".to_owned(),
            ));
        }
    }

    /// Whether no container will run any more.
    pub(super) fn is_over(&self) -> bool {
        let failed_init =
            self.inits.iter().any(|init| matches!(init.state, State::Ended(ended) if ended.code != 0));
        let ended = |process: &Process| matches!(process.state, State::Ended(_));
        self.thrown_out.is_some() || failed_init || (!self.apps.is_empty() && self.apps.iter().all(ended))
    }

    /// `Pending`, `Running`, `Succeeded` or `Failed`.
    pub(super) fn phase(&self) -> &'static str {
        if self.is_over() {
            let all = self.apps.iter().chain(self.inits.iter().filter(|init| !init.sidecar));
            let good = all
                .into_iter()
                .all(|process| matches!(process.state, State::Ended(ended) if ended.code == 0));
            return if good && self.thrown_out.is_none() { "Succeeded" } else { "Failed" };
        }
        let begun =
            |process: &Process| process.last.is_some() || !matches!(process.state, State::Waiting { .. });
        if self.apps.iter().any(begun) { "Running" } else { "Pending" }
    }
}
