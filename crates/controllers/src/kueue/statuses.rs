//! The statuses of queues.

use std::collections::BTreeMap;

use api::MicroTime;
use api::kueue::quantity::canonical;
use api::kueue::status::{Condition, seconds, set_condition};
use index::{Activity, FlavorFigures, Index, QueueFigures, QueueKey};
use model::QuotaIx;
use serde_json::{Map, Value, json};

/// The status of a queue; `None` if the queue is gone, and for other objects.
/// With fair sharing, cluster queues and cohorts state their shares.
pub(crate) fn of(index: &Index, key: &QueueKey, now: MicroTime, shares: bool) -> Option<Value> {
    match key {
        QueueKey::Flavor(_) | QueueKey::Topology(_) | QueueKey::Check(_) => None,
        QueueKey::Cohort(name) => {
            index.cohort(name).filter(|_| shares)?;
            Some(
                json!({"fairSharing": share(index, index.quota_nodes().cohorts.get(name.as_str()).copied())}),
            )
        }
        QueueKey::Cluster(name) => {
            let queue = index.cluster_queue(name)?;
            let conditions = conditions(
                &queue.status.conditions,
                &index.cluster_queue_activity(name),
                queue.metadata.generation,
                now,
            );
            let mut status = status(&index.cluster_queue_figures(name), &conditions, true);
            if shares {
                let node = index.quota_nodes().queues.get(name.as_str()).copied();
                status["fairSharing"] = share(index, node);
            }
            Some(status)
        }
        QueueKey::Local(namespace, name) => {
            let queue = index.local_queue(namespace, name)?;
            let conditions = conditions(
                &queue.status.conditions,
                &index.local_queue_activity(namespace, name),
                queue.metadata.generation,
                now,
            );
            let mut status = status(&index.local_queue_figures(namespace, name), &conditions, false);
            let usage = index.consumed_resources(namespace, name, now);
            // Null removes the field.
            status["fairSharing"] = usage.map_or(Value::Null, |consumed| usage_status(&consumed, now));
            Some(status)
        }
    }
}

/// What a local queue has consumed by a time. Kueue computes no share of local queues.
fn usage_status(consumed: &BTreeMap<String, String>, now: MicroTime) -> Value {
    json!({
        "weightedShare": 0,
        "admissionFairSharingStatus": {"consumedResources": consumed, "lastUpdate": seconds(now)},
    })
}

/// Whether two statuses of a local queue differ in usage alone, and whether they differ in it.
pub(crate) fn compare_usage(one: &Value, other: &Value) -> (bool, bool) {
    let usage =
        |status: &Value| status["fairSharing"]["admissionFairSharingStatus"]["consumedResources"].clone();
    let rest = |status: &Value| {
        let mut rest = status.clone();
        if let Some(fields) = rest.as_object_mut() {
            fields.remove("fairSharing");
        }
        rest
    };
    (rest(one) == rest(other), usage(one) != usage(other))
}

/// The share of a quota node in thousandths, rounded up; the largest number if it is unbounded.
fn share(index: &Index, node: Option<QuotaIx>) -> Value {
    let share = node.map_or(Some(0), |node| index.world().quota_share(node).thousandths());
    let share = share.and_then(|share| i64::try_from(share).ok()).unwrap_or(i64::MAX);
    json!({"weightedShare": share})
}

fn conditions(known: &[Condition], activity: &Activity, generation: i64, now: MicroTime) -> Vec<Condition> {
    let mut conditions = known.to_vec();
    let active =
        Condition::new("Active", activity.is_active, activity.reason, &activity.message, generation, now);
    set_condition(&mut conditions, active);
    conditions
}

fn status(figures: &QueueFigures, conditions: &[Condition], has_borrowed: bool) -> Value {
    json!({
        "conditions": conditions,
        "pendingWorkloads": figures.pending,
        "reservingWorkloads": figures.reserving,
        "admittedWorkloads": figures.admitted,
        "flavorsReservation": flavors(&figures.reservation, has_borrowed),
        "flavorsUsage": flavors(&figures.usage, has_borrowed),
    })
}

fn flavors(figures: &[FlavorFigures], has_borrowed: bool) -> Value {
    let flavor = |flavor: &FlavorFigures| {
        let resources = flavor.resources.iter().map(|(name, (total, borrowed))| {
            let mut resource = Map::new();
            resource.insert("name".into(), name.as_str().into());
            resource.insert("total".into(), canonical(name, *total).into());
            if has_borrowed {
                resource.insert("borrowed".into(), canonical(name, *borrowed).into());
            }
            Value::Object(resource)
        });
        json!({"name": flavor.name, "resources": resources.collect::<Vec<_>>()})
    };
    match figures {
        [] => Value::Null, // Removes the field.
        _ => figures.iter().map(flavor).collect(),
    }
}
