//! The state of one container: waiting, running, ready, terminated, restarted.

use std::time::Duration;

use tokio::time::Instant;

use super::behaviour::{Behaviour, FaultKind};
use crate::cluster::EventKind;
use crate::pace::Pace;

/// An Event about a container, or about the pod if `field_path` is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PendingEvent {
    pub(super) kind: EventKind,
    pub(super) reason: &'static str,
    pub(super) message: String,
    /// For instance `spec.containers{main}`.
    pub(super) field_path: String,
}

/// One container.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) name: String,
    pub(super) image: String,
    /// Init container or sidecar.
    pub(super) init: bool,
    pub(super) sidecar: bool,
    pub(super) field_path: String,
    pub(super) state: State,
    pub(super) restarts: u32,
    pub(super) last: Option<Terminated>,
    pub(super) first: bool,
    pub(super) probe: Duration,
}

/// The state of a container, as in its container status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Not started. It starts at `until`, or after the containers before it.
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
    Terminated(Terminated),
}

/// How a container terminated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terminated {
    pub(super) since: Instant,
    pub(super) at: Instant,
    pub(super) code: i32,
    pub(super) reason: &'static str,
}

/// Name of the init container that waits for the head of the Ray cluster.
pub(super) const GCS_WAIT: &str = "wait-gcs-ready";

/// Collects the earliest time at which a transition is due.
pub(super) struct NextSync {
    pub(super) now: Instant,
    pub(super) next: Option<Instant>,
}

impl NextSync {
    pub(super) fn reached(&mut self, at: Instant) -> bool {
        if at <= self.now {
            return true;
        }
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
        false
    }
}

/// What all containers of a pod share during one sync.
pub(super) struct SyncContext<'a> {
    pub(super) behaviour: &'a Behaviour,
    /// The pod's restart policy.
    pub(super) policy: &'a str,
    pub(super) pace: Pace,
    pub(super) uid: &'a str,
    /// Whether the head of the pod's Ray cluster is ready.
    pub(super) head_ready: bool,
    pub(super) next_sync: NextSync,
    pub(super) events: &'a mut Vec<PendingEvent>,
    pub(super) log_lines: &'a mut Vec<(String, String)>,
}

impl SyncContext<'_> {
    /// Adds a line to the log of a container.
    fn log(&mut self, container: &str, text: String) {
        self.log_lines.push((container.to_owned(), text));
    }
}

impl Process {
    /// Applies all transitions that are due. `from`: when the containers before this one allow it to start.
    pub(super) fn sync(&mut self, from: Instant, context: &mut SyncContext<'_>) {
        loop {
            match self.state.clone() {
                State::Waiting { until, reason, .. } => {
                    let begin = until.unwrap_or_else(|| {
                        from + context.pace.between((&self.name, "pull", &*self.image), (100, 500))
                    });
                    if !context.next_sync.reached(begin) {
                        return;
                    }
                    if context.behaviour.has_fault(
                        FaultKind::ImagePull,
                        &self.name,
                        self.first && !self.init,
                        self.restarts,
                    ) {
                        if reason == "ImagePullBackOff" {
                            return;
                        }
                        self.fail_image_pull(begin + context.pace.millis(10_000), context);
                        continue;
                    }
                    self.start(begin, context);
                }
                State::Running { since, ready, ready_at, end } => {
                    if self.init && self.name == GCS_WAIT {
                        if context.head_ready {
                            // The init container polls every few seconds.
                            let at = context.next_sync.now
                                + context.pace.between((&self.name, context.uid), (500, 5000));
                            self.state = State::Running {
                                since,
                                ready,
                                ready_at,
                                end: end.or(Some((at, 0, "Completed"))),
                            };
                        } else if let Some((at, ..)) = end
                            && at > context.next_sync.now
                        {
                            self.state = State::Running { since, ready, ready_at, end: None };
                        }
                    }
                    if let State::Running { end: Some((at, code, reason)), .. } = self.state
                        && context.next_sync.reached(at)
                    {
                        self.end(Terminated { since, at, code, reason }, context);
                        continue;
                    }
                    if !ready && ready_at.is_some_and(|at| context.next_sync.reached(at)) {
                        let State::Running { ready, .. } = &mut self.state else { return };
                        *ready = true;
                    }
                    return;
                }
                State::Terminated(_) => return,
            }
        }
    }

    fn start(&mut self, at: Instant, context: &mut SyncContext<'_>) {
        let end = if self.init && !self.sidecar {
            let fails = context.behaviour.has_fault(FaultKind::Init, &self.name, self.first, self.restarts);
            let takes = context.pace.between((&self.name, context.uid, self.restarts), (1000, 3000));
            if self.name == GCS_WAIT {
                None
            } else if fails {
                Some((at + takes, 1, "Error"))
            } else {
                Some((at + takes, 0, "Completed"))
            }
        } else if self.init {
            None
        } else {
            let exit = context.behaviour.exit(&self.name, self.first, self.restarts);
            exit.map(|(after, code, reason)| (at + context.pace.scaled(after), code, reason))
        };
        let never = !self.init
            && context.behaviour.has_fault(FaultKind::NeverReady, &self.name, self.first, self.restarts);
        let ready_at = (!never).then(|| at + context.pace.scaled(self.probe));
        self.state = State::Running { since: at, ready: false, ready_at, end };
        context.log(&self.name, "started; the sandbox executes nothing".to_owned());
        let (image, name) = (&self.image, &self.name);
        for (reason, message) in [
            ("Pulled", format!("Container image \"{image}\" already present on machine")),
            ("Created", format!("Container created: {name}")),
            ("Started", "Container started".to_owned()),
        ] {
            context.events.push(PendingEvent {
                kind: EventKind::Normal,
                reason,
                message,
                field_path: self.field_path.clone(),
            });
        }
    }

    fn end(&mut self, ended: Terminated, context: &mut SyncContext<'_>) {
        context.log(&self.name, format!("ended with exit code {} ({})", ended.code, ended.reason));
        let again = match self.restart_policy(context.policy) {
            "Never" => false,
            "OnFailure" => ended.code != 0,
            _ => true,
        };
        if !again {
            self.state = State::Terminated(ended);
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
            context.events.push(PendingEvent {
                kind,
                reason: "BackOff",
                message,
                field_path: self.field_path.clone(),
            });
        }
        // At high speed, a container that exits at once must not keep the kubelet busy.
        let pause =
            context.pace.scaled(pause).max(Duration::from_millis(if self.restarts > 3 { 100 } else { 0 }));
        self.state = State::Waiting { reason: "CrashLoopBackOff", message, until: Some(ended.at + pause) };
    }

    fn fail_image_pull(&mut self, again: Instant, context: &mut SyncContext<'_>) {
        let image = &self.image;
        let first = !matches!(self.state, State::Waiting { reason: "ErrImagePull" | "ImagePullBackOff", .. });
        let (reason, message) = if first {
            ("ErrImagePull", format!("failed to pull image \"{image}\": not found"))
        } else {
            ("ImagePullBackOff", format!("Back-off pulling image \"{image}\""))
        };
        let event_message =
            if first { format!("Failed to pull image \"{image}\": not found") } else { message.clone() };
        let event_reason = if first { "Failed" } else { "BackOff" };
        let kind = if first { EventKind::Warning } else { EventKind::Normal };
        context.events.push(PendingEvent {
            kind,
            reason: event_reason,
            message: event_message,
            field_path: self.field_path.clone(),
        });
        // After the second attempt the container waits until the annotation changes.
        self.state = State::Waiting { reason, message, until: if first { Some(again) } else { None } };
    }

    /// The restart policy of the container. Init containers are retried unless the pod's policy is `Never`.
    fn restart_policy<'a>(&self, pod_policy: &'a str) -> &'a str {
        match pod_policy {
            _ if self.sidecar => "Always",
            "Never" => "Never",
            _ if self.init => "OnFailure",
            policy => policy,
        }
    }
}
