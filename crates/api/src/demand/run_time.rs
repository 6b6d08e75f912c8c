//! The expected run time of an AppWrapper, from its spec and its objects.

use serde_json::Value;

use crate::appwrapper::Spec;
use crate::value::{at, integer, text};

/// Label of Kueue with the maximum run time of a workload in seconds.
const MAX_EXEC_TIME: &str = "kueue.x-k8s.io/max-exec-time-seconds";

/// The run time of an AppWrapper in seconds: `dispatchDuration.expected`, or else the minimum of
/// `dispatchDuration.limit` and the longest limit among its objects with pods. `None` without such a limit. An object
/// with pods and without a limit makes the limits of the other objects void.
pub fn run_time_s(spec: &Spec) -> Option<i64> {
    if spec.dispatch_expected_s > 0 {
        return Some(spec.dispatch_expected_s);
    }
    let whole = Some(spec.dispatch_limit_s).filter(|limit| *limit > 0);
    let with_pods = spec.objects().filter(|object| !matches!(super::of_object(object), Ok(None)));
    let limits: Option<Vec<i64>> = with_pods.map(limit_s).collect();
    let longest = limits.and_then(|limits| limits.into_iter().max());
    whole.into_iter().chain(longest).min()
}

/// The limit of an object: its deadline or the label of Kueue, whichever is shorter.
fn limit_s(object: &Value) -> Option<i64> {
    let deadline = integer(at(object, &["spec", "activeDeadlineSeconds"]));
    let labelled = text(object, &["metadata", "labels", MAX_EXEC_TIME]).and_then(|text| text.parse().ok());
    deadline.into_iter().chain(labelled).filter(|limit| *limit > 0).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn job(spec: &Value, labels: &Value) -> Value {
        let mut object = json!({"apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "j", "labels": labels}, "spec": spec});
        object["spec"]["template"] = json!({"spec": {"containers": []}});
        object
    }

    #[test]
    fn run_time_is_the_expected_duration_or_the_shortest_limit() {
        struct Case {
            name: &'static str,
            duration: Value,
            objects: Vec<Value>,
            run_time: Option<i64>,
        }
        let limited = |seconds: u32| job(&json!({"activeDeadlineSeconds": seconds}), &json!({}));
        let unlimited = || job(&json!({}), &json!({}));
        let config_map = || json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
        let cases = [
            Case {
                name: "no duration and no limit",
                duration: json!({}),
                objects: vec![unlimited()],
                run_time: None,
            },
            Case {
                name: "the expected duration has priority over limits",
                duration: json!({"expected": 60, "limit": 600}),
                objects: vec![limited(900)],
                run_time: Some(60),
            },
            Case {
                name: "dispatch limit",
                duration: json!({"limit": 600}),
                objects: vec![unlimited()],
                run_time: Some(600),
            },
            Case {
                name: "the longest deadline, ignoring objects without pods",
                duration: json!({}),
                objects: vec![limited(300), config_map(), limited(900)],
                run_time: Some(900),
            },
            Case {
                name: "one object has no limit",
                duration: json!({}),
                objects: vec![limited(300), unlimited()],
                run_time: None,
            },
            Case {
                name: "Kueue's label",
                duration: json!({"limit": 600}),
                objects: vec![job(&json!({}), &json!({MAX_EXEC_TIME: "120"}))],
                run_time: Some(120),
            },
        ];
        for Case { name, duration, objects, run_time } in cases {
            let items: Vec<_> = objects.iter().map(|object| json!({"generictemplate": object})).collect();
            let spec = json!({"schedulingSpec": {"dispatchDuration": duration}, "resources": {"GenericItems": items}});
            assert_eq!(run_time_s(&Spec::read(&spec, "w").unwrap()), run_time, "{name}");
        }
    }
}
