//! The state of one pod on its node, and how time moves it. Pure: time and the outside world come in as values.

use std::time::Duration;

use tokio::time::Instant;

use super::behaviour::{Behaviour, What};
use crate::cluster::EventKind;
use crate::pace::Pace;
use crate::wire::{Condition, Container, Pod, Stamp};

/// A point in time on both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) instant: Instant,
    pub(super) timestamp: jiff::Timestamp,
}

impl Now {
    /// The wall clock at an earlier instant.
    pub(super) fn stamp_at(&self, earlier: Instant) -> Stamp {
        let ago = self.instant.saturating_duration_since(earlier);
        Stamp::of(self.timestamp.checked_sub(ago).unwrap_or(self.timestamp))
    }
}

/// Something to tell about a container, or about the pod if `container` is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) kind: EventKind,
    pub(super) reason: &'static str,
    pub(super) message: String,
    /// For instance `spec.containers{main}`.
    pub(super) field_path: String,
}

/// A pod on its node.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) uid: String,
    pub(super) behaviour: Behaviour,
    pub(super) started: Instant,
    /// When the pod has its address.
    pub(super) sandbox_at: Instant,
    pub(super) inits: Vec<Process>,
    pub(super) apps: Vec<Process>,
    pub(super) conditions: Vec<Condition>,
    pub(super) notes: Vec<Note>,
    /// Reason and message when the node has thrown the pod out.
    pub(super) thrown_out: Option<(&'static str, String)>,
    restart_policy: String,
    deadline: Option<Duration>,
    pace: Pace,
}

/// One container.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) name: String,
    pub(super) image: String,
    pub(super) sidecar: bool,
    pub(super) field_path: String,
    pub(super) state: State,
    pub(super) restarts: u32,
    pub(super) last: Option<Ended>,
    probe: Duration,
    first: bool,
}

/// What a container is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Not started; it starts at `until`, or when its turn comes.
    Waiting {
        reason: &'static str,
        message: String,
        until: Option<Instant>,
    },
    Running {
        since: Instant,
        ready: bool,
        ready_at: Option<Instant>,
        end: Option<(Instant, i32, &'static str)>,
    },
    Ended(Ended),
}

/// How a container ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) since: Instant,
    pub(super) at: Instant,
    pub(super) code: i32,
    pub(super) reason: &'static str,
}

/// Start of an init container that waits for the head of its Ray cluster.
pub(super) const GCS_WAIT: &str = "wait-gcs-ready";

impl Machine {
    /// A pod that reached its node `since`.
    pub(super) fn new(pod: &Pod, since: Instant, pace: Pace) -> Self {
        let process = |list: &'static str, index: usize, container: &Container| Process {
            name: container.name.clone(),
            image: container.image.clone(),
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

    /// The annotations changed: what they ask for counts from now.
    pub(super) fn adapt(&mut self, behaviour: Behaviour, now: Instant) {
        if behaviour == self.behaviour {
            return;
        }
        let given_fault = behaviour.fault != self.behaviour.fault && behaviour.fault.is_some();
        self.behaviour = behaviour;
        self.complain();
        if given_fault && self.behaviour.evicted_after().is_some() {
            // Counts from now, where a fault that was there from the start counts from the start of the pod.
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

    /// Moves the pod up to `now`. `head_ready` tells whether the head of the pod's Ray cluster answers.
    /// Returns when time alone will change something again.
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
        let context = Context {
            behaviour: &self.behaviour,
            policy: &self.restart_policy,
            pace: self.pace,
            uid: &self.uid,
        };
        for process in &mut self.inits {
            let policy = if process.sidecar { "Always" } else { context.policy_of_inits() };
            process.advance(from, policy, &context, head_ready, true, &mut wake, &mut self.notes);
            match &process.state {
                State::Ended(ended) if ended.code == 0 => from = ended.at,
                State::Running { since, .. } if process.sidecar => from = *since,
                State::Waiting { .. } | State::Running { .. } | State::Ended(_) => return wake.next,
            }
        }
        for process in &mut self.apps {
            process.advance(from, context.policy, &context, head_ready, false, &mut wake, &mut self.notes);
        }
        if self.is_over() {
            self.kill(now, 0, "Completed");
            return None;
        }
        wake.next
    }

    /// Whether the node throws the pod out by now.
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

    /// Ends all containers that run.
    pub(super) fn kill(&mut self, now: Instant, code: i32, reason: &'static str) {
        for process in self.inits.iter_mut().chain(&mut self.apps) {
            if let State::Running { since, .. } = process.state {
                process.state = State::Ended(Ended { since, at: now, code, reason });
            }
        }
    }

    /// Containers that have not started never will.
    pub(super) fn stop(&mut self) {
        if !self.is_over() {
            self.thrown_out.get_or_insert((
                "Terminated",
                "Pod was terminated before its containers started.".to_owned(),
            ));
        }
    }

    /// Nothing will run any more.
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

/// Collects when time will change something.
struct Wake {
    now: Instant,
    next: Option<Instant>,
}

impl Wake {
    fn reached(&mut self, at: Instant) -> bool {
        if at <= self.now {
            return true;
        }
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
        false
    }
}

/// What all containers of a pod share.
struct Context<'a> {
    behaviour: &'a Behaviour,
    policy: &'a str,
    pace: Pace,
    uid: &'a str,
}

impl Context<'_> {
    fn policy_of_inits(&self) -> &'static str {
        if self.policy == "Never" { "Never" } else { "OnFailure" }
    }
}

impl Process {
    /// Moves the container as far as time allows; `from` is when its turn came.
    #[expect(clippy::too_many_arguments, reason = "one call site; a struct for it would only rename them")]
    fn advance(
        &mut self,
        from: Instant,
        policy: &str,
        context: &Context<'_>,
        head_ready: bool,
        init: bool,
        wake: &mut Wake,
        notes: &mut Vec<Note>,
    ) {
        loop {
            match self.state.clone() {
                State::Waiting { until, reason, .. } => {
                    let begin = until.unwrap_or_else(|| {
                        from + context.pace.between((&self.name, "pull", &*self.image), (100, 500))
                    });
                    if !wake.reached(begin) {
                        return;
                    }
                    if context.behaviour.suffers(
                        What::ImagePull,
                        &self.name,
                        self.first && !init,
                        self.restarts,
                    ) {
                        if reason == "ImagePullBackOff" {
                            return;
                        }
                        self.fail_to_pull(begin + context.pace.millis(10_000), notes);
                        continue;
                    }
                    self.start(begin, context, init, notes);
                }
                State::Running { since, ready, ready_at, end } => {
                    if init && self.name == GCS_WAIT {
                        if head_ready {
                            // The init container asks every few seconds.
                            let at = wake.now + context.pace.between((&self.name, context.uid), (500, 5000));
                            self.state = State::Running {
                                since,
                                ready,
                                ready_at,
                                end: end.or(Some((at, 0, "Completed"))),
                            };
                        } else if let Some((at, ..)) = end
                            && at > wake.now
                        {
                            self.state = State::Running { since, ready, ready_at, end: None };
                        }
                    }
                    if let State::Running { end: Some((at, code, reason)), .. } = self.state
                        && wake.reached(at)
                    {
                        self.end(Ended { since, at, code, reason }, policy, context, notes);
                        continue;
                    }
                    if !ready && ready_at.is_some_and(|at| wake.reached(at)) {
                        let State::Running { ready, .. } = &mut self.state else { return };
                        *ready = true;
                    }
                    return;
                }
                State::Ended(_) => return,
            }
        }
    }

    fn start(&mut self, at: Instant, context: &Context<'_>, init: bool, notes: &mut Vec<Note>) {
        let end = if init && !self.sidecar {
            let fails = context.behaviour.suffers(What::Init, &self.name, self.first, self.restarts);
            let takes = context.pace.between((&self.name, context.uid, self.restarts), (1000, 3000));
            if self.name == GCS_WAIT {
                None
            } else if fails {
                Some((at + takes, 1, "Error"))
            } else {
                Some((at + takes, 0, "Completed"))
            }
        } else if init {
            None
        } else {
            let told = context.behaviour.end(&self.name, self.first, self.restarts);
            told.map(|(after, code, reason)| (at + context.pace.scaled(after), code, reason))
        };
        let never =
            !init && context.behaviour.suffers(What::NeverReady, &self.name, self.first, self.restarts);
        let ready_at = (!never).then(|| at + context.pace.scaled(self.probe));
        self.state = State::Running { since: at, ready: false, ready_at, end };
        let (image, name) = (&self.image, &self.name);
        for (reason, message) in [
            ("Pulled", format!("Container image \"{image}\" already present on machine")),
            ("Created", format!("Container created: {name}")),
            ("Started", "Container started".to_owned()),
        ] {
            notes.push(Note {
                kind: EventKind::Normal,
                reason,
                message,
                field_path: self.field_path.clone(),
            });
        }
    }

    fn end(&mut self, ended: Ended, policy: &str, context: &Context<'_>, notes: &mut Vec<Note>) {
        let again = match policy {
            "Never" => false,
            "OnFailure" => ended.code != 0,
            _ => true,
        };
        if !again {
            self.state = State::Ended(ended);
            return;
        }
        self.last = Some(ended);
        let pause = match self.restarts {
            0 => Duration::ZERO,
            n => Duration::from_secs(10 << (n - 1).min(5)).min(Duration::from_mins(5)),
        };
        self.restarts += 1;
        let message = format!("back-off {}s restarting failed container={}", pause.as_secs(), self.name);
        if !pause.is_zero() {
            let kind = EventKind::Warning;
            let message = format!("Back-off restarting failed container {}", self.name);
            notes.push(Note { kind, reason: "BackOff", message, field_path: self.field_path.clone() });
        }
        // However fast simulated time runs, a container that ends at once must not keep its node busy.
        let pause =
            context.pace.scaled(pause).max(Duration::from_millis(if self.restarts > 3 { 100 } else { 0 }));
        self.state = State::Waiting { reason: "CrashLoopBackOff", message, until: Some(ended.at + pause) };
    }

    fn fail_to_pull(&mut self, again: Instant, notes: &mut Vec<Note>) {
        let image = &self.image;
        let first = !matches!(self.state, State::Waiting { reason: "ErrImagePull" | "ImagePullBackOff", .. });
        let (reason, message) = if first {
            ("ErrImagePull", format!("failed to pull image \"{image}\": not found"))
        } else {
            ("ImagePullBackOff", format!("Back-off pulling image \"{image}\""))
        };
        let told =
            if first { format!("Failed to pull image \"{image}\": not found") } else { message.clone() };
        let said = if first { "Failed" } else { "BackOff" };
        let kind = if first { EventKind::Warning } else { EventKind::Normal };
        notes.push(Note { kind, reason: said, message: told, field_path: self.field_path.clone() });
        // After the second attempt it stays so until the annotation changes.
        self.state = State::Waiting { reason, message, until: if first { Some(again) } else { None } };
    }
}
