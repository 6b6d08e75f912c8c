//! Printers for the groups `apps`, `batch` and `autoscaling`.

use jiff::Timestamp;
use serde_json::Value;

use super::{
    Column, Printer, age, age_of, boolean, containers, count, human, integer, name, seconds_between,
    selector, text, wide,
};
use crate::object;

const TEMPLATE: &[&str] = &["spec", "template", "spec", "containers"];

pub(super) fn printer(plural: &str) -> &'static Printer {
    match plural {
        "deployments" => &DEPLOYMENTS,
        "replicasets" => &REPLICA_SETS,
        "statefulsets" => &STATEFUL_SETS,
        "daemonsets" => &DAEMON_SETS,
        "controllerrevisions" => &CONTROLLER_REVISIONS,
        "jobs" => &JOBS,
        "cronjobs" => &CRON_JOBS,
        "horizontalpodautoscalers" => &AUTOSCALERS,
        _ => &super::PLAIN,
    }
}

/// `ready/desired`. A missing number of desired replicas is one.
fn ready(value: &Value) -> Value {
    let ready = object::int(value, &["status", "readyReplicas"]).unwrap_or(0);
    format!("{ready}/{}", object::int(value, &["spec", "replicas"]).unwrap_or(1)).into()
}

fn with_template(mut cells: Vec<Value>, value: &Value, with_selector: bool) -> Vec<Value> {
    cells.extend(containers(value, TEMPLATE));
    if with_selector {
        cells.push(selector(value, &["spec", "selector"]));
    }
    cells
}

const DEPLOYMENTS: Printer = Printer {
    columns: &[
        text("Name"),
        text("Ready"),
        text("Up-to-date"),
        text("Available"),
        text("Age"),
        wide("Containers"),
        wide("Images"),
        wide("Selector"),
    ],
    cells: |value, now| {
        let cells = vec![
            name(value),
            ready(value),
            count(value, &["status", "updatedReplicas"]),
            count(value, &["status", "availableReplicas"]),
            age_of(value, now),
        ];
        with_template(cells, value, true)
    },
};

/// Also the columns of replication controllers.
pub(super) const REPLICA_SET_COLUMNS: &[Column] = &[
    text("Name"),
    integer("Desired"),
    integer("Current"),
    integer("Ready"),
    text("Age"),
    wide("Containers"),
    wide("Images"),
    wide("Selector"),
];

const REPLICA_SETS: Printer = Printer { columns: REPLICA_SET_COLUMNS, cells: replica_set };

/// Also the cells of a replication controller.
pub(super) fn replica_set(value: &Value, now: Timestamp) -> Vec<Value> {
    let cells = vec![
        name(value),
        object::int(value, &["spec", "replicas"]).unwrap_or(1).into(),
        count(value, &["status", "replicas"]),
        count(value, &["status", "readyReplicas"]),
        age_of(value, now),
    ];
    with_template(cells, value, true)
}

const STATEFUL_SETS: Printer = Printer {
    columns: &[text("Name"), text("Ready"), text("Age"), wide("Containers"), wide("Images")],
    cells: |value, now| with_template(vec![name(value), ready(value), age_of(value, now)], value, false),
};

const DAEMON_SETS: Printer = Printer {
    columns: &[
        text("Name"),
        integer("Desired"),
        integer("Current"),
        integer("Ready"),
        integer("Up-to-date"),
        integer("Available"),
        text("Node Selector"),
        text("Age"),
        wide("Containers"),
        wide("Images"),
        wide("Selector"),
    ],
    cells: |value, now| {
        let status = |key| count(value, &["status", key]);
        let cells = vec![
            name(value),
            status("desiredNumberScheduled"),
            status("currentNumberScheduled"),
            status("numberReady"),
            status("updatedNumberScheduled"),
            status("numberAvailable"),
            super::joined_labels(value, &["spec", "template", "spec", "nodeSelector"]),
            age_of(value, now),
        ];
        with_template(cells, value, true)
    },
};

const CONTROLLER_REVISIONS: Printer = Printer {
    columns: &[text("Name"), text("Controller"), text("Revision"), text("Age")],
    cells: |value, now| {
        let owners = object::items(value, &["metadata", "ownerReferences"]);
        let controller = owners.iter().find(|o| object::flag(o, &["controller"])).map_or_else(
            || "<none>".to_owned(),
            |owner| {
                let kind = object::text(owner, &["kind"]).to_lowercase();
                let (group, _) = object::group_version(object::text(owner, &["apiVersion"]));
                let kind = if group.is_empty() { kind } else { format!("{kind}.{group}") };
                format!("{kind}/{}", object::text(owner, &["name"]))
            },
        );
        vec![name(value), controller.into(), count(value, &["revision"]), age_of(value, now)]
    },
};

const JOBS: Printer = Printer {
    columns: &[
        text("Name"),
        text("Status"),
        text("Completions"),
        text("Duration"),
        text("Age"),
        wide("Containers"),
        wide("Images"),
        wide("Selector"),
    ],
    cells: |value, now| {
        let cells = vec![
            name(value),
            job_status(value).into(),
            job_completions(value).into(),
            job_duration(value, now).into(),
            age_of(value, now),
        ];
        with_template(cells, value, true)
    },
};

fn job_status(job: &Value) -> &'static str {
    let has = |kind: &str| {
        object::items(job, &["status", "conditions"])
            .iter()
            .any(|c| object::text(c, &["type"]) == kind && object::text(c, &["status"]) == "True")
    };
    let deleting = object::get(job, &["metadata", "deletionTimestamp"]).is_some();
    match () {
        () if has("Complete") => "Complete",
        () if has("Failed") => "Failed",
        () if deleting => "Terminating",
        () if has("Suspended") => "Suspended",
        () if has("FailureTarget") => "FailureTarget",
        () if has("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

fn job_completions(job: &Value) -> String {
    let succeeded = object::int(job, &["status", "succeeded"]).unwrap_or(0);
    if let Some(completions) = object::int(job, &["spec", "completions"]) {
        return format!("{succeeded}/{completions}");
    }
    match object::int(job, &["spec", "parallelism"]).unwrap_or(0) {
        parallelism if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        _ => format!("{succeeded}/1"),
    }
}

fn job_duration(job: &Value, now: Timestamp) -> String {
    let stamp = |key| object::parse_stamp(object::text(job, &["status", key]));
    match stamp("startTime") {
        None => String::new(),
        Some(start) => human(seconds_between(start, stamp("completionTime").unwrap_or(now))),
    }
}

const CRON_JOBS: Printer = Printer {
    columns: &[
        text("Name"),
        text("Schedule"),
        text("Timezone"),
        boolean("Suspend"),
        integer("Active"),
        text("Last Schedule"),
        text("Age"),
        wide("Containers"),
        wide("Images"),
        wide("Selector"),
    ],
    cells: |value, now| {
        let template: &[&str] = &["spec", "jobTemplate", "spec", "template", "spec", "containers"];
        let last = object::text(value, &["status", "lastScheduleTime"]);
        let suspended = if object::flag(value, &["spec", "suspend"]) { "True" } else { "False" };
        let mut cells = vec![
            name(value),
            object::text(value, &["spec", "schedule"]).into(),
            super::or(value, &["spec", "timeZone"], "<none>").into(),
            suspended.into(),
            object::items(value, &["status", "active"]).len().into(),
            if last.is_empty() { "<none>".into() } else { age(last, now).into() },
            age_of(value, now),
        ];
        cells.extend(containers(value, template));
        cells.push(selector(value, &["spec", "jobTemplate", "spec", "selector"]));
        cells
    },
};

const AUTOSCALERS: Printer = Printer {
    columns: &[
        text("Name"),
        text("Reference"),
        text("Targets"),
        text("MinPods"),
        text("MaxPods"),
        text("Replicas"),
        text("Age"),
    ],
    cells: |value, now| {
        let target = |key| object::text(value, &["spec", "scaleTargetRef", key]);
        let number = |key| object::int(value, &["spec", key]).map(|n| n.to_string());
        vec![
            name(value),
            format!("{}/{}", target("kind"), target("name")).into(),
            autoscaler_targets(value).into(),
            number("minReplicas").unwrap_or_else(|| "<unset>".into()).into(),
            number("maxReplicas").unwrap_or_default().into(),
            count(value, &["status", "currentReplicas"]),
            age_of(value, now),
        ]
    },
};

fn autoscaler_targets(value: &Value) -> String {
    let percent = |at: &Value, path: &[&str]| {
        object::int(at, path).map_or_else(|| "<unknown>".to_owned(), |percent| format!("{percent}%"))
    };
    if let Some(wanted) = object::int(value, &["spec", "targetCPUUtilizationPercentage"]) {
        let current = percent(value, &["status", "currentCPUUtilizationPercentage"]);
        return format!("cpu: {current}/{wanted}%");
    }
    let metrics = object::items(value, &["spec", "metrics"]);
    if metrics.is_empty() {
        return "<none>".into();
    }
    let current = object::items(value, &["status", "currentMetrics"]);
    let shown: Vec<String> = metrics
        .iter()
        .enumerate()
        .take(2)
        .map(|(at, metric)| {
            let status = current.get(at).unwrap_or(&Value::Null);
            let kind = object::text(metric, &["type"]);
            let key =
                format!("{}{}", kind[..kind.len().min(1)].to_lowercase(), kind.get(1..).unwrap_or_default());
            let resource =
                super::or(metric, &[&key, "name"], object::text(metric, &[&key, "metric", "name"]));
            let value_of = |at: &Value, side: &str| {
                let whole = object::text(at, &[&key, side, "averageValue"]);
                let whole = if whole.is_empty() { object::text(at, &[&key, side, "value"]) } else { whole };
                match whole {
                    "" => percent(at, &[&key, side, "averageUtilization"]),
                    quantity => quantity.to_owned(),
                }
            };
            format!("{resource}: {}/{}", value_of(status, "current"), value_of(metric, "target"))
        })
        .collect();
    match metrics.len() {
        0..=2 => shown.join(", "),
        more => format!("{} + {} more...", shown.join(", "), more - 2),
    }
}
