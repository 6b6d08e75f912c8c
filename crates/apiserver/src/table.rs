//! Server-side printing: the tables that `kubectl get` shows, with the columns of kube-apiserver.
//!
//! This module selects the printer of a resource and contains helpers that printers share. The printers are in the
//! submodules.

mod cluster;
mod custom;
mod pods;
mod policies;
mod workloads;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::object;
use crate::registry::Resource;

/// A table column: name, type, and whether only wide output shows it.
struct Column {
    name: &'static str,
    kind: &'static str,
    wide: bool,
}

const fn text(name: &'static str) -> Column {
    Column { name, kind: "string", wide: false }
}

const fn integer(name: &'static str) -> Column {
    Column { name, kind: "integer", wide: false }
}

const fn boolean(name: &'static str) -> Column {
    Column { name, kind: "boolean", wide: false }
}

const fn date(name: &'static str) -> Column {
    Column { name, kind: "date", wide: false }
}

const fn wide(name: &'static str) -> Column {
    Column { name, kind: "string", wide: true }
}

/// The columns of a kind, and the function that computes their cells.
struct Printer {
    columns: &'static [Column],
    cells: fn(&Value, Timestamp) -> Vec<Value>,
}

const PLAIN: Printer = Printer {
    columns: &[text("Name"), text("Age")],
    cells: |value, now| vec![name(value), age_of(value, now)],
};

fn printer(resource: &Resource) -> &'static Printer {
    let plural = resource.plural.as_str();
    match resource.group.as_str() {
        "" if plural == "pods" => &pods::PODS,
        "" | "events.k8s.io" => cluster::printer(plural),
        "apps" | "batch" | "autoscaling" => workloads::printer(plural),
        _ => policies::printer(plural),
    }
}

/// The column definitions of a resource.
pub(crate) fn columns(resource: &Resource) -> Value {
    if let Some(custom) = &resource.custom {
        return custom::columns(custom);
    }
    let definition = |column: &Column| {
        json!({
            "name": column.name,
            "type": column.kind,
            "format": if matches!(column.name, "Name" | "Attacher") { "name" } else { "" },
            "description": "",
            "priority": i32::from(column.wide),
        })
    };
    printer(resource).columns.iter().map(definition).collect()
}

/// The cells of one object, in the order of the columns.
pub(crate) fn cells(resource: &Resource, value: &Value, now: Timestamp) -> Vec<Value> {
    match &resource.custom {
        Some(custom) => custom::cells(custom, value, now),
        None => (printer(resource).cells)(value, now),
    }
}

fn name(value: &Value) -> Value {
    object::name(value).into()
}

fn age_of(value: &Value, now: Timestamp) -> Value {
    age(object::text(value, &["metadata", "creationTimestamp"]), now).into()
}

/// The integer at a path; zero if it is missing.
fn count(value: &Value, path: &[&str]) -> Value {
    object::int(value, path).unwrap_or(0).into()
}

/// The string at a path, or `absent` if it is missing or empty.
fn or<'a>(value: &'a Value, path: &[&str], absent: &'a str) -> &'a str {
    match object::text(value, path) {
        "" => absent,
        text => text,
    }
}

/// Names and images of the containers of a pod template, each joined by commas.
fn containers(value: &Value, path: &[&str]) -> [Value; 2] {
    let of = |key: &str| {
        object::items(value, path)
            .iter()
            .map(|c| object::text(c, &[key]))
            .collect::<Vec<_>>()
            .join(",")
            .into()
    };
    [of("name"), of("image")]
}

/// Formats a label selector like `metav1.FormatLabelSelector`.
fn selector(value: &Value, path: &[&str]) -> Value {
    let Some(selector) = object::get(value, path) else { return "<none>".into() };
    let mut terms: Vec<String> = labels(object::map(selector, &["matchLabels"]));
    for expression in object::items(selector, &["matchExpressions"]) {
        let key = object::text(expression, &["key"]);
        let mut values: Vec<&str> = object::texts(expression, &["values"]).collect();
        values.sort_unstable();
        terms.push(match object::text(expression, &["operator"]) {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        });
    }
    if terms.is_empty() { "<none>".into() } else { terms.join(",").into() }
}

fn labels(map: Option<&serde_json::Map<String, Value>>) -> Vec<String> {
    map.into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect()
}

fn joined_labels(value: &Value, path: &[&str]) -> Value {
    let labels = labels(object::map(value, path));
    if labels.is_empty() { "<none>".into() } else { labels.join(",").into() }
}

/// Formats the time since `stamp` like `duration.HumanDuration` of `k8s.io/apimachinery`.
fn age(stamp: &str, now: Timestamp) -> String {
    match object::parse_stamp(stamp) {
        None => "<unknown>".into(),
        Some(then) => human(seconds_between(then, now)),
    }
}

/// Whole seconds between two times, rounded towards zero.
fn seconds_between(from: Timestamp, to: Timestamp) -> i64 {
    to.duration_since(from).as_secs()
}

/// Formats seconds in at most two units, like `duration.HumanDuration`.
pub fn human(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |whole: i64, unit: &str, part: i64, part_unit: &str| match part {
        0 => format!("{whole}{unit}"),
        _ => format!("{whole}{unit}{part}{part_unit}"),
    };
    match seconds {
        i64::MIN..=-2 => "<invalid>".into(),
        -1 | 0 => "0s".into(),
        1..=119 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 192 => two(days, "d", hours % 24, "h"),
        _ if days < 730 => format!("{days}d"),
        _ if days < 2920 => two(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_formatted_as_in_kubectl() {
        for (seconds, text) in [
            (-5, "<invalid>"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (190, "3m10s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (12_000, "3h20m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (180_000, "2d2h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
            (64_000_000, "2y10d"),
            (252_288_000, "8y"),
        ] {
            assert_eq!(human(seconds), text, "{seconds}");
        }
    }
}
