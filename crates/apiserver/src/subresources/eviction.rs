//! `pods/eviction`: deletes a pod unless its `PodDisruptionBudget` forbids it.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::delete::{DeleteOptions, Deleted, check_preconditions};
use crate::object;
use crate::registry::Resource;
use crate::request::{Call, Target};
use crate::response::Answer;
use crate::selector::Selector;
use crate::server::ApiServer;
use crate::status::{Cause, Status};
use crate::store::Object;

const BUDGETS: &str = "poddisruptionbudgets.policy";
/// The condition type of a pod that is about to be terminated for a reason outside of it.
const DISRUPTION_TARGET: &str = "DisruptionTarget";

impl ApiServer {
    pub(super) fn evict(
        &mut self,
        call: &mut Call<'_>,
        target: &Target,
        resource: &Arc<Resource>,
    ) -> Result<Answer, Status> {
        let eviction = call.decode_body()?;
        let named = object::name(&eviction);
        let live = self.find(target, resource)?;
        if !named.is_empty() && named != live.name() {
            let name = live.name();
            return Err(Status::bad_request(format!(
                "name in URL does not match name in Eviction object: {name}"
            )));
        }
        self.validate_action(call, resource, target, &eviction)?;
        let mut options = DeleteOptions::from_value(object::get(&eviction, &["deleteOptions"]))?;
        options.dry |= call.dry_run()?;
        let pod = live.value();
        if !can_ignore_budget(&live, &pod) {
            self.check_and_decrement_budget(call.now, &live, &pod, options.dry)?;
        }
        let live =
            if options.dry { live } else { self.mark_disrupted(call.now, resource, live, &mut options)? };
        match self.delete_object(call.now, resource, &live, &options)? {
            Deleted::Immediately(_) | Deleted::Terminating(_) => Ok(Answer::Status(Status::created())),
        }
    }

    /// Sets the condition `DisruptionTarget` of a pod that is about to be deleted. A precondition on its resource version
    /// is then satisfied.
    fn mark_disrupted(
        &mut self,
        now: jiff::Timestamp,
        resource: &Arc<Resource>,
        live: Arc<Object>,
        options: &mut DeleteOptions,
    ) -> Result<Arc<Object>, Status> {
        check_preconditions(resource, &live, options)?;
        let mut pod = live.value();
        let mut conditions = object::items(&pod, &["status", "conditions"]).to_vec();
        let is_other = |condition: &Value| object::text(condition, &["type"]) != DISRUPTION_TARGET;
        if !conditions.iter().all(is_other) {
            return Ok(live);
        }
        conditions.push(json!({
            "type": DISRUPTION_TARGET, "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting", "lastProbeTime": null, "lastTransitionTime": object::stamp(now),
        }));
        object::set(&mut pod, &["status", "conditions"], json!(conditions));
        options.revision = None;
        Ok(self.commit(resource, pod, now))
    }

    /// Decrements the allowed disruptions of the pod's budget. Returns status 429 if there are none left.
    fn check_and_decrement_budget(
        &mut self,
        now: jiff::Timestamp,
        live: &Object,
        pod: &Value,
        dry: bool,
    ) -> Result<(), Status> {
        let namespace = live.namespace();
        let budgets: Vec<Arc<Object>> = self
            .store
            .range(BUDGETS, Some(namespace), None)
            .filter(|budget| {
                let budget = budget.value();
                object::get(&budget, &["spec", "selector"])
                    .is_some_and(|selector| Selector::from_value(selector).matches(|key| live.label(key)))
            })
            .cloned()
            .collect();
        let budget = match budgets.as_slice() {
            [] => return Ok(()),
            [one] => one,
            _ => {
                return Err(Status::internal(
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                ));
            }
        };
        let mut value = budget.value();
        let ready = object::items(pod, &["status", "conditions"])
            .iter()
            .any(|c| object::text(c, &["type"]) == "Ready" && object::text(c, &["status"]) == "True");
        let count = |key| object::int(&value, &["status", key]).unwrap_or(0);
        let healthy_enough =
            count("currentHealthy") >= count("desiredHealthy") && count("desiredHealthy") > 0;
        let always = object::text(&value, &["spec", "unhealthyPodEvictionPolicy"]) == "AlwaysAllow";
        if !ready && (healthy_enough || always) {
            return Ok(());
        }
        let generation = object::int(&value, &["metadata", "generation"]).unwrap_or(0);
        if count("observedGeneration") < generation {
            let why = "Cannot evict pod as it would violate the pod's disruption budget.";
            let message =
                format!("The disruption budget {} is still being processed by the server.", budget.name());
            return Err(Status::too_many_requests(why, vec![budget_cause(message)]).retry_after_seconds(10));
        }
        let allowed = count("disruptionsAllowed");
        if allowed <= 0 {
            let why = "Cannot evict pod as it would violate the pod's disruption budget.";
            let message = format!(
                "The disruption budget {} needs {} healthy pods and has {} currently",
                budget.name(),
                count("desiredHealthy"),
                count("currentHealthy"),
            );
            return Err(Status::too_many_requests(why, vec![budget_cause(message)]));
        }
        if dry {
            return Ok(());
        }
        object::set(&mut value, &["status", "disruptionsAllowed"], allowed - 1);
        object::set(&mut value, &["status", "disruptedPods", live.name()], json!(object::stamp(now)));
        if let Some(resource) = self.registry.by_storage(BUDGETS).cloned() {
            self.commit(&resource, value, now);
        }
        Ok(())
    }
}

/// Whether the pod may be evicted without a budget: it has finished, is pending or is terminating.
fn can_ignore_budget(live: &Object, pod: &Value) -> bool {
    live.deleting || matches!(object::text(pod, &["status", "phase"]), "Succeeded" | "Failed" | "Pending")
}

fn budget_cause(message: String) -> Cause {
    Cause { reason: "DisruptionBudget".into(), message, field: String::new() }
}
