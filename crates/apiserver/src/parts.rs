//! Subresources: status, finalize, binding, eviction, and what else has a path below an object.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};

use crate::object;
use crate::registry::{Resource, Subresource};
use crate::request::{Call, Target};
use crate::server::{Answer, ApiServer};
use crate::status::Status;

impl ApiServer {
    /// Serves a subresource that the resource has.
    pub(crate) fn part(
        &mut self,
        call: &mut Call<'_>,
        target: &Target,
        resource: &Arc<Resource>,
        part: Subresource,
    ) -> Result<Answer, Status> {
        let verb = match call.method {
            Method::GET | Method::HEAD => "get",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            _ => "",
        };
        if !part.verbs.contains(&verb) {
            return Err(Status::method_not_allowed());
        }
        match (part.name, verb) {
            ("status" | "resize" | "ephemeralcontainers", "get") => self.read(target, resource),
            ("status" | "resize" | "ephemeralcontainers", "patch") => {
                self.patch(call, target, resource, part.name)
            }
            ("status" | "resize" | "ephemeralcontainers" | "finalize", "update") => {
                self.update(call, target, resource, part.name)
            }
            ("binding", _) => self.bind(call, target, resource),
            _ => Err(Status::no_such_resource()),
        }
    }

    /// Gives a pod its node, once.
    fn bind(
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
            let cause = crate::status::Cause::required("target.name", "");
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
        object::set(&mut pod, &["spec", "nodeName"], node);
        for part in ["annotations", "labels"] {
            for (key, text) in object::map(&binding, &["metadata", part]).into_iter().flatten() {
                object::set(&mut pod, &["metadata", part, key], text.clone());
            }
        }
        let scheduled = json!({
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": null,
            "lastTransitionTime": object::stamp(call.now),
        });
        let mut conditions: Vec<Value> = object::items(&pod, &["status", "conditions"])
            .iter()
            .filter(|c| object::text(c, &["type"]) != "PodScheduled")
            .cloned()
            .collect();
        conditions.push(scheduled);
        object::set(&mut pod, &["status", "conditions"], conditions);
        if !call.dry_run()? {
            self.commit(resource, pod, call.now);
        }
        Ok(Answer::Status(Status::created()))
    }
}
