//! What simulated containers do: how long they run, and how they fail. Pod annotations configure it.

use std::time::Duration;

use crate::pace::parse_duration;
use crate::wire::Pod;

/// The annotation for the time after which containers exit with 0.
pub(crate) const RUN_TIME: &str = "sandbox.muster.dev/run-time";
/// The annotation that makes a pod fail.
pub(crate) const FAIL: &str = "sandbox.muster.dev/fail";
/// The run time of pods that do not have restart policy `Always`.
const DEFAULT_RUN_TIME: Duration = Duration::from_mins(1);
/// When a fault takes effect in a container without a run time.
const DEFAULT_AFTER: Duration = Duration::from_secs(5);

/// The behaviour of a pod, in simulated time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Behaviour {
    /// `None`: containers do not exit.
    pub(super) run_time: Option<Duration>,
    /// Name and run time of a container that exits before the others: the submitter in a Ray head pod.
    pub(super) early_exit: Option<(&'static str, Duration)>,
    pub(super) fault: Option<Fault>,
    /// Why an annotation was rejected.
    pub(super) annotation_error: Option<String>,
}

/// A fault: `KIND[,after=DURATION][,container=NAME][,times=N][,index=I]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) kind: FaultKind,
    pub(super) after: Option<Duration>,
    pub(super) container: Option<String>,
    /// How often the fault affects one container; `None` for no limit.
    pub(super) times: Option<u32>,
}

/// The kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultKind {
    /// `exit` or `exit=CODE`: the container exits with this code, 1 by default.
    Exit(i32),
    /// `oom`: the container is killed with reason `OOMKilled` and code 137.
    Oom,
    /// `crash-loop`: the container exits with 1 a second after each start.
    CrashLoop,
    /// `init`: the first init container exits with 1.
    Init,
    /// `image-pull`: the image pull fails.
    ImagePull,
    /// `never-ready`: containers run, but do not become ready.
    NeverReady,
    /// `evict`: the kubelet evicts the pod.
    Evict,
}

impl Behaviour {
    /// Parses the annotations of a pod.
    pub(super) fn of(pod: &Pod) -> Self {
        let mut behaviour = Self::default();
        let explicit = match pod.metadata.annotation(RUN_TIME).map(|text| (text, parse_duration(text))) {
            Some((_, Some(duration))) => Some(duration),
            Some((text, None)) => {
                behaviour.annotation_error =
                    Some(format!("annotation {RUN_TIME}: {text:?} is not a duration such as 90s or 5m"));
                None
            }
            None => None,
        };
        let is_ray_node = pod.metadata.label("ray.io/is-ray-node") == Some("yes");
        let ends = pod.spec.restart_policy != "Always" && !pod.spec.restart_policy.is_empty();
        behaviour.run_time = match explicit {
            Some(_) if is_ray_node && submitter(pod) => None,
            None if ends && !is_ray_node => Some(DEFAULT_RUN_TIME),
            explicit => explicit,
        };
        if is_ray_node && submitter(pod) {
            behaviour.early_exit = Some((SUBMITTER, explicit.unwrap_or(DEFAULT_RUN_TIME)));
        }
        if let Some(text) = pod.metadata.annotation(FAIL) {
            match parse_fault(text, pod) {
                Ok(fault) => behaviour.fault = fault,
                Err(annotation_error) => behaviour.annotation_error = Some(annotation_error),
            }
        }
        behaviour
    }

    /// Run time, exit code and reason of the container, if it exits by itself.
    pub(super) fn exit(
        &self,
        container: &str,
        first: bool,
        restarts: u32,
    ) -> Option<(Duration, i32, &'static str)> {
        let run_time = match self.early_exit {
            Some((name, run_time)) if name == container => Some(run_time),
            _ => self.run_time,
        };
        if let Some(fault) = self.fault.as_ref().filter(|fault| fault.affects(container, first, restarts)) {
            let after = fault.after.or(run_time).unwrap_or(DEFAULT_AFTER);
            match fault.kind {
                FaultKind::Exit(code) => {
                    return Some((after, code, if code == 0 { "Completed" } else { "Error" }));
                }
                FaultKind::Oom => return Some((after, 137, "OOMKilled")),
                FaultKind::CrashLoop => {
                    return Some((fault.after.unwrap_or(Duration::from_secs(1)), 1, "Error"));
                }
                FaultKind::Init | FaultKind::ImagePull | FaultKind::NeverReady | FaultKind::Evict => {}
            }
        }
        run_time.map(|run_time| (run_time, 0, "Completed"))
    }

    /// Whether a fault of this kind affects the container.
    pub(super) fn has_fault(&self, kind: FaultKind, container: &str, first: bool, restarts: u32) -> bool {
        self.fault
            .as_ref()
            .is_some_and(|fault| fault.kind == kind && fault.affects(container, first, restarts))
    }

    /// The time after which the kubelet evicts the pod, if a fault says so.
    pub(super) fn evict_after(&self) -> Option<Duration> {
        let fault = self.fault.as_ref().filter(|fault| fault.kind == FaultKind::Evict)?;
        Some(fault.after.unwrap_or(DEFAULT_AFTER))
    }
}

impl Fault {
    fn affects(&self, container: &str, first: bool, restarts: u32) -> bool {
        self.container.as_ref().map_or(first, |name| name == container)
            && self.times.is_none_or(|times| restarts < times)
    }
}

/// The container that submits a Ray job.
const SUBMITTER: &str = "ray-job-submitter";

fn submitter(pod: &Pod) -> bool {
    pod.spec.containers.iter().any(|container| container.name == SUBMITTER)
}

/// The run time of a Ray job with this value of the annotation.
pub(crate) fn run_time(annotation: Option<&str>) -> Duration {
    annotation.and_then(parse_duration).unwrap_or(DEFAULT_RUN_TIME)
}

/// Parses a fault. Returns `None` if it applies to another index.
fn parse_fault(text: &str, pod: &Pod) -> Result<Option<Fault>, String> {
    let invalid = |part: &str| {
        format!(
            "annotation {FAIL}: {part:?} is unknown, expected exit=CODE, oom, crash-loop, init, image-pull, never-ready or \
             evict, then after=DURATION, container=NAME, times=N or index=I"
        )
    };
    let mut parts = text.split(',').map(str::trim);
    let first = parts.next().unwrap_or_default();
    let kind = match first.split_once('=').unwrap_or((first, "")) {
        ("exit", "") => FaultKind::Exit(1),
        ("exit", code) => FaultKind::Exit(code.parse().map_err(|_| invalid(first))?),
        ("oom", "") => FaultKind::Oom,
        ("crash-loop", "") => FaultKind::CrashLoop,
        ("init", "") => FaultKind::Init,
        ("image-pull", "") => FaultKind::ImagePull,
        ("never-ready", "") => FaultKind::NeverReady,
        ("evict", "") => FaultKind::Evict,
        _ => return Err(invalid(first)),
    };
    let mut fault = Fault { kind, after: None, container: None, times: None };
    for part in parts {
        match part.split_once('=') {
            Some(("after", value)) => {
                fault.after = Some(parse_duration(value).ok_or_else(|| invalid(part))?);
            }
            Some(("container", value)) => fault.container = Some(value.to_owned()),
            Some(("times", value)) => fault.times = Some(value.parse().map_err(|_| invalid(part))?),
            Some(("index", value)) => {
                if pod.metadata.annotation("batch.kubernetes.io/job-completion-index") != Some(value) {
                    return Ok(None);
                }
            }
            _ => return Err(invalid(part)),
        }
    }
    Ok(Some(fault))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn behaviour(annotations: &serde_json::Value, spec: &serde_json::Value) -> Behaviour {
        let pod = json!({ "metadata": { "annotations": annotations }, "spec": spec });
        Behaviour::of(&serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn a_pod_without_run_time_exits_after_a_minute_unless_restarted_always() {
        let job = behaviour(&json!({}), &json!({ "restartPolicy": "OnFailure" }));
        assert_eq!(job.exit("c", true, 0), Some((Duration::from_mins(1), 0, "Completed")));
        let service = behaviour(&json!({}), &json!({ "restartPolicy": "Always" }));
        assert_eq!(service.exit("c", true, 0), None);
        let explicit = behaviour(&json!({ RUN_TIME: "5m" }), &json!({ "restartPolicy": "Never" }));
        assert_eq!(explicit.exit("c", true, 0), Some((Duration::from_mins(5), 0, "Completed")));
    }

    #[test]
    fn a_fault_affects_its_container_at_most_its_number_of_times() {
        let fails = behaviour(&json!({ FAIL: "exit=3,after=2s,container=b,times=2" }), &json!({}));
        assert_eq!(fails.exit("b", false, 1), Some((Duration::from_secs(2), 3, "Error")));
        assert_eq!(fails.exit("b", false, 2), None);
        assert_eq!(fails.exit("a", true, 0), None);
        assert_eq!(behaviour(&json!({ FAIL: "oom" }), &json!({})).exit("a", true, 0).unwrap().1, 137);
    }

    #[test]
    fn an_invalid_annotation_is_reported_and_ignored() {
        let wrong = behaviour(&json!({ FAIL: "explode" }), &json!({}));
        assert!(wrong.annotation_error.unwrap().contains("\"explode\" is unknown"));
        assert_eq!(wrong.fault, None);
        assert!(behaviour(&json!({ RUN_TIME: "soon" }), &json!({})).annotation_error.is_some());
    }
}
