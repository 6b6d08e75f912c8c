//! `LeaderWorkerSets`: each of their groups waits as one. After `pkg/controller/jobs/leaderworkerset` of Kueue v0.19.

use serde_json::{Value, json};

use super::field_error::{FieldError, IMMUTABLE};
use super::set_of_pods::{check_pod_spec, check_update, complete, edit, hold_back, is_queued, name_queue};
use super::topology::{PathedSet, check_sets};
use super::{Context, JobDefaults, gates as gated_by, set_of_pods};
use crate::kueue::jobs::leader_worker_sets::LEADER_WORKER_SET;
use crate::kueue::jobs::pods::SERVING;
use crate::kueue::jobs::{annotation, set_at, topology};
use crate::value::{count, integer};

const FRAMEWORK: &str = LEADER_WORKER_SET.framework;
const REPLICAS_MAX: i64 = 1_000_000;
/// The templates of a group, and the names of their pod sets.
const TEMPLATES: [(&str, &str); 2] = [("leaderTemplate", "leader"), ("workerTemplate", "worker")];

/// The field with the templates.
fn group(set: &Value) -> &Value {
    &set["spec"]["leaderWorkerTemplate"]
}

fn has_leader(set: &Value) -> bool {
    group(set)["leaderTemplate"].is_object()
}

fn size(set: &Value) -> u32 {
    count(group(set), &["size"], 1)
}

/// Has the pods of a queued set wait for its queue.
pub(super) fn default(set: &mut Value, known: &JobDefaults, context: &Context) {
    if !complete(set, known, context) {
        return;
    }
    let has_leader = has_leader(set);
    for (field, _) in TEMPLATES {
        let is_ranked = context.gates.topology_aware_scheduling && has_leader && field == "workerTemplate";
        edit(set, &format!("/spec/leaderWorkerTemplate/{field}"), |set, template| {
            name_queue(set, template);
            hold_back(template, FRAMEWORK);
            set_at(template, &["metadata", "annotations", SERVING], "true".into());
            if is_ranked && annotation(template, topology::GROUP).is_none() {
                topology::follow_one(template);
            }
        });
    }
}

/// The rules that a set breaks. The Workload of a group is for all of its pods, so the groups of a queued set keep their size.
pub(super) fn check(
    set: &Value,
    old: Option<&Value>,
    known: &JobDefaults,
    context: &Context,
    errors: &mut Vec<FieldError>,
) {
    set_of_pods::check(set, context, errors);
    check_replicas(set, errors);
    if old.is_none() {
        gated_by::check_create(set, &context.gates, errors);
    }
    if context.gates.topology_aware_scheduling {
        check_sets(&pod_sets(set), &context.gates, errors);
    }
    let Some(old) = old else { return };
    check_update(set, old, context, errors);
    if !is_queued(set, known, context) {
        return;
    }
    for (field, _) in TEMPLATES {
        let path = format!("spec.leaderWorkerTemplate.{field}");
        let (new, before) = (&group(set)[field], &group(old)[field]);
        if new.is_null() == before.is_null() {
            check_pod_spec(&new["spec"], &before["spec"], &format!("{path}.spec"), errors);
        } else {
            errors.push(FieldError::invalid(&path, new.clone(), IMMUTABLE));
        }
    }
    if context.gates.lws_immutable_group_size && size(set) != size(old) {
        errors.push(FieldError::invalid("spec.leaderWorkerTemplate.size", size(set), IMMUTABLE));
    }
}

fn check_replicas(set: &Value, errors: &mut Vec<FieldError>) {
    let replicas = integer(&set["spec"]["replicas"]).unwrap_or(1);
    let bound = if replicas < 0 {
        "must be >= 0".to_owned()
    } else if replicas > REPLICAS_MAX {
        format!("must be <= {REPLICAS_MAX}")
    } else {
        return;
    };
    let why = format!("invalid LeaderWorkerSet replicas: {bound}, got {replicas}");
    errors.push(FieldError::invalid("spec.replicas", replicas, &why));
}

/// The pod sets of a group.
fn pod_sets(set: &Value) -> Vec<PathedSet> {
    let leaders = u32::from(has_leader(set));
    let of = |(field, name): (&str, &str)| {
        let template = &group(set)[field];
        let count = if name == "leader" { 1 } else { size(set).saturating_sub(leaders) };
        template.is_object().then(|| PathedSet {
            path: format!("spec.leaderWorkerTemplate.{field}.metadata"),
            set: json!({"name": name, "count": count, "template": template}),
        })
    };
    TEMPLATES.into_iter().filter_map(of).collect()
}
