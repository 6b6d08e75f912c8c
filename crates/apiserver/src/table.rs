//! Tables: what `kubectl get` prints, computed on the server.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::object;
use crate::registry::Resource;

const NAME: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources \
     may allow a client to request the generation of an appropriate name automatically.";
const AGE: &str =
    "CreationTimestamp is a timestamp representing the server time when this object was created.";

/// The column definitions of a resource.
pub(crate) fn columns(resource: &Resource) -> Value {
    let _ = resource;
    Value::Array(vec![column("Name", "string", "name", 0, NAME), column("Age", "string", "", 0, AGE)])
}

/// The cells of one object, in the order of the columns.
pub(crate) fn cells(resource: &Resource, value: &Value, now: Timestamp) -> Vec<Value> {
    let _ = resource;
    vec![object::name(value).into(), age(object::text(value, &["metadata", "creationTimestamp"]), now).into()]
}

fn column(name: &str, kind: &str, format: &str, priority: i64, description: &str) -> Value {
    json!({ "name": name, "type": kind, "format": format, "priority": priority, "description": description })
}

/// The time since a stamp as `duration.HumanDuration` of `k8s.io/apimachinery` prints it.
pub(crate) fn age(stamp: &str, now: Timestamp) -> String {
    match object::parse_stamp(stamp) {
        None => "<unknown>".into(),
        Some(then) => human(now.as_second() - then.as_second()),
    }
}

/// Seconds in at most two units, the coarser the longer.
pub(crate) fn human(seconds: i64) -> String {
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
