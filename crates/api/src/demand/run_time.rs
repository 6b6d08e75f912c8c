//! How long a wrapper's author expects it to run, as far as the objects say so.

use serde_json::Value;

use crate::appwrapper::Spec;
use crate::value::{at, integer, text};

/// Label by which Kueue's users limit how long a workload runs, in seconds.
const MAX_EXEC_TIME: &str = "kueue.x-k8s.io/max-exec-time-seconds";

/// How long the pods of a wrapper will run at most, seconds: what its author expects, else the limit of the whole, or the
/// longest one of all objects with pods, whichever is shorter. Nothing when one of these may run for ever.
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
    fn the_most_telling_limit_counts() {
        struct Case {
            name: &'static str,
            duration: Value,
            objects: Vec<Value>,
            run_time: Option<i64>,
        }
        let limited = |seconds: u32| job(&json!({"activeDeadlineSeconds": seconds}), &json!({}));
        let open = || job(&json!({}), &json!({}));
        let config_map = || json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
        let cases = [
            Case { name: "nothing said", duration: json!({}), objects: vec![open()], run_time: None },
            Case {
                name: "what is expected goes before what is allowed",
                duration: json!({"expected": 60, "limit": 600}),
                objects: vec![limited(900)],
                run_time: Some(60),
            },
            Case {
                name: "limit",
                duration: json!({"limit": 600}),
                objects: vec![open()],
                run_time: Some(600),
            },
            Case {
                name: "deadline of the longest, without those that have no pods",
                duration: json!({}),
                objects: vec![limited(300), config_map(), limited(900)],
                run_time: Some(900),
            },
            Case {
                name: "one may run for ever",
                duration: json!({}),
                objects: vec![limited(300), open()],
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
