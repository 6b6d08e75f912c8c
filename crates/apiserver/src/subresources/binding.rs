//! `pods/binding`: binds a pod to a node. A bound pod cannot be bound again.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::object;
use crate::registry::Resource;
use crate::request::{Call, Target};
use crate::response::Answer;
use crate::server::ApiServer;
use crate::status::{Cause, Status};

impl ApiServer {
    pub(crate) fn bind(
        &mut self,
        call: &mut Call<'_>,
        target: &Target,
        resource: &Arc<Resource>,
    ) -> Result<Answer, Status> {
        let binding = call.decode_body()?;
        let live = self.find(target, resource)?;
        let name = live.name().to_owned();
        let conflict = |why: &str| Status::conflict("", "pods/binding", &name, why);
        let node = object::text(&binding, &["target", "name"]);
        if node.is_empty() {
            return Err(Status::invalid("", "Binding", &name, vec![Cause::required("target.name", "")]));
        }
        let kind = object::text(&binding, &["target", "kind"]);
        if !matches!(kind, "" | "Node") {
            let cause = Cause {
                reason: "FieldValueNotSupported".into(),
                message: format!("Unsupported value: \"{kind}\": supported values: \"Node\", \"<empty>\""),
                field: "target.kind".into(),
            };
            return Err(Status::invalid("", "Binding", &name, vec![cause]));
        }
        let uid = object::uid(&binding);
        if !uid.is_empty() && uid != &*live.uid {
            let why =
                format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {}", live.uid);
            return Err(conflict(&why));
        }
        let mut pod = live.value();
        if live.deleting {
            return Err(conflict(&format!("pod {name} is being deleted, cannot be assigned to a host")));
        }
        let bound = object::text(&pod, &["spec", "nodeName"]);
        if !bound.is_empty() {
            return Err(conflict(&format!("pod {name} is already assigned to node {bound:?}")));
        }
        if !object::items(&pod, &["spec", "schedulingGates"]).is_empty() {
            return Err(conflict(&format!("pod {name} has non-empty .spec.schedulingGates")));
        }
        self.validate_action(call, resource, target, &binding)?;
        object::set(&mut pod, &["spec", "nodeName"], node);
        for part in ["annotations", "labels"] {
            for (key, text) in object::map(&binding, &["metadata", part]).into_iter().flatten() {
                object::set(&mut pod, &["metadata", part, key], text.clone());
            }
        }
        let conditions = scheduled(&pod, call.now);
        object::set(&mut pod, &["status", "conditions"], conditions);
        if !call.dry_run()? {
            self.commit(resource, pod, call.now);
        }
        Ok(Answer::Status(Status::created()))
    }
}

/// The conditions of the pod, with `PodScheduled` set to true.
fn scheduled(pod: &Value, now: jiff::Timestamp) -> Vec<Value> {
    let mut conditions: Vec<Value> = object::items(pod, &["status", "conditions"])
        .iter()
        .filter(|c| object::text(c, &["type"]) != "PodScheduled")
        .cloned()
        .collect();
    conditions.push(json!({
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": null,
        "lastTransitionTime": object::stamp(now),
    }));
    conditions
}
