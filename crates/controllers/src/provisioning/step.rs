//! Decides the next write about a Workload or a check: a pure function of what was observed.

use std::collections::BTreeMap;

use api::kueue::jobs::InjectionError;
use api::kueue::objects::ProvisioningConfigSpec;
use api::kueue::provisioning::{
    NeededPods, attempt, describes_same, is_of_config, needed_pods, pod_set_updates, request, request_name,
    template, template_name,
};
use api::kueue::status::{
    ADMITTED, CheckState, Condition, EVICTED, FINISHED, QUOTA_RESERVED, Status, set_condition,
};
use api::kueue::workload::Workload;
use api::provisioning::{
    ACCEPTED, BOOKING_EXPIRED, CAPACITY_REVOKED, FAILED, PROVISIONED, ProvisioningRequest,
};
use api::{Meta, MicroTime};
use serde::Deserialize;
use serde_json::{Value, json};

use super::ProvisioningConfig;
use super::execute::Write;
use super::object::{Item, Objects, Refusal, key_of};
use crate::watched::Whole;

/// One write, then these Events.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) write: Write,
    pub(super) events: Vec<ProvisioningEvent>,
    /// It only reports what was refused.
    pub(super) is_report: bool,
}

/// An Event about a Workload, of the type `Normal`.
#[derive(Debug)]
pub(super) struct ProvisioningEvent {
    pub(super) reason: &'static str,
    pub(super) text: String,
}

impl Step {
    fn silent(write: Write) -> Self {
        Self { write, events: Vec::new(), is_report: false }
    }
}

/// The next step about a Workload or a check; `None` if there is nothing to do.
pub(super) fn decide(
    objects: &Objects,
    config: ProvisioningConfig,
    item: &Item,
    now: MicroTime,
) -> Option<Step> {
    match item {
        Item::Check(name) => check(objects, name, now),
        Item::Workload(uid) => {
            let whole = objects.workloads.get(uid)?;
            let workload = Workload::deserialize(&whole.value).ok()?;
            let refusal = objects.refusals.get(item);
            View { objects, whole, workload: &workload, refusal, now }.decide(config)
        }
    }
}

/// Keeps the condition `Active` of a check.
fn check(objects: &Objects, name: &str, now: MicroTime) -> Option<Step> {
    let config = objects.config(name)?;
    let (check, whole) = objects.checks.get(name)?;
    let unserved = objects.obstacle.as_ref().map(|why| {
        let text = format!(
            "ProvisioningRequest of {} cannot be read, install its definition or grant the permission: {why}",
            api::provisioning::API_VERSION
        );
        (false, "ProvisioningRequestUnavailable", text)
    });
    let (is_active, reason, text) = unserved.unwrap_or_else(|| match config {
        Ok(_) => (true, "Active", "The admission check is active".into()),
        Err(why) => (false, "BadParametersRef", why),
    });
    let mut conditions = check.status.conditions.clone();
    let active = Condition::new("Active", is_active, reason, &text, whole.metadata.generation, now);
    let is_known = conditions.iter().any(|known| {
        known.kind == active.kind
            && known.status == active.status
            && known.reason == active.reason
            && known.message == active.message
    });
    if is_known {
        return None;
    }
    set_condition(&mut conditions, active);
    Some(Step::silent(Write::Conditions(Box::new(whole.clone()), json!(conditions))))
}

/// A Workload with what decides about it.
struct View<'a> {
    objects: &'a Objects,
    whole: &'a Whole,
    workload: &'a Workload,
    refusal: Option<&'a Refusal>,
    now: MicroTime,
}

/// A check of this controller.
struct Check<'a> {
    state: &'a CheckState,
    /// Its configuration; `None`: the check is not active.
    config: Option<&'a ProvisioningConfigSpec>,
    /// The pods that need a request.
    pods: Vec<NeededPods<'a>>,
    /// The last request that has the class and the parameters of the configuration, with its attempt.
    last: Option<(i64, &'a ProvisioningRequest)>,
}

impl<'a> View<'a> {
    fn status(&self) -> &'a Status {
        &self.workload.status
    }

    fn decide(&self, config: ProvisioningConfig) -> Option<Step> {
        let (is_finished, is_evicted) = (self.status().is(FINISHED), self.status().is(EVICTED));
        if is_finished || is_evicted {
            let deletes = is_finished || config.deletes_at_eviction;
            return deletes.then(|| self.delete_all_but(&[])).flatten();
        }
        if !self.status().is(QUOTA_RESERVED) || self.whole.metadata.is_deleting() {
            return None;
        }
        let checks = self.checks()?;
        let used: Vec<&str> =
            checks.iter().filter_map(|check| Some(check.last?.1.metadata.uid.as_str())).collect();
        self.judge(&checks).or_else(|| self.delete_all_but(&used)).or_else(|| self.request(&checks))
    }

    fn delete_all_but(&self, used: &[&str]) -> Option<Step> {
        let mut requests = self.objects.requests_of(self.whole);
        let unused = requests.find(|request| {
            !request.metadata.is_deleting() && !used.contains(&request.metadata.uid.as_str())
        })?;
        Some(Step::silent(Write::DeleteRequest(Box::new(unused.clone()))))
    }

    /// The checks of this controller. `None` until the admission has all pod sets.
    fn checks(&self) -> Option<Vec<Check<'a>>> {
        let ours = self.status().admission_checks.iter().filter_map(|state| {
            let config = self.objects.config(&state.name)?.ok().map(|config| &config.spec);
            Some((state, config))
        });
        ours.map(|(state, config)| self.check(state, config)).collect()
    }

    fn check(&self, state: &'a CheckState, config: Option<&'a ProvisioningConfigSpec>) -> Option<Check<'a>> {
        let Some(spec) = config else { return Some(Check { state, config, pods: Vec::new(), last: None }) };
        let pods = needed_pods(&self.whole.value, self.status(), spec)
            .map_err(
                |error| tracing::warn!(workload = self.whole.metadata.name, %error, "no request is made"),
            )
            .ok()?;
        let requests = self.objects.requests_of(self.whole).filter_map(|request| {
            let attempt = attempt(&request.metadata.name, &self.whole.metadata.name, &state.name)?;
            (is_of_config(request, spec) && !request.metadata.is_deleting()).then_some((attempt, request))
        });
        let last = requests.max_by_key(|(attempt, _)| *attempt).filter(|_| !pods.is_empty());
        Some(Check { state, config, pods, last })
    }

    /// Brings the states of the checks up to date.
    fn judge(&self, checks: &[Check<'_>]) -> Option<Step> {
        let mut events = Vec::new();
        let mut judged = BTreeMap::new();
        for check in checks {
            let mut state = check.state.clone();
            self.judge_one(check, &mut state);
            if state == *check.state {
                continue;
            }
            if state.state != check.state.state {
                let stamp = Condition::new("", true, "", "", 0, self.now).last_transition_time;
                state.last_transition_time = stamp;
                let message = match &*state.message {
                    "" => String::new(),
                    message => format!(" with message: {message}"),
                };
                let text = format!(
                    "Admission check {} updated state from {} to {}{message}",
                    state.name, check.state.state, state.state
                );
                events.push(ProvisioningEvent { reason: "AdmissionCheckUpdated", text });
            }
            judged.insert(state.name.clone(), state);
        }
        if judged.is_empty() {
            return None;
        }
        let known = self.status().admission_checks.iter();
        let states = known.map(|state| judged.remove(&state.name).unwrap_or_else(|| state.clone())).collect();
        let write = Write::States(Box::new(self.whole.clone()), states);
        Some(Step { write, events, is_report: true })
    }

    fn judge_one(&self, check: &Check<'_>, state: &mut CheckState) {
        let Some(config) = check.config else {
            state.state = "Pending".into();
            state.message = "the check is not active".into();
            return;
        };
        if check.pods.is_empty() {
            if state.state != "Ready" {
                state.state = "Ready".into();
                state.message = "the provisioning request is not needed".into();
                state.pod_set_updates = Vec::new();
            }
            return;
        }
        let refusal = self.refusal.filter(|refusal| refusal.check == state.name && state.state == "Pending");
        let refusal = refusal.filter(|_| check.last.is_none_or(|(_, request)| self.is_over(request)));
        if let Some(refusal) = refusal {
            state.message.clone_from(&refusal.text);
            return;
        }
        let Some((attempt, request)) = check.last else { return };
        let is_admitted = self.status().is(ADMITTED);
        if request.is(FAILED) {
            fail(state, config, attempt, "failure", request.message(FAILED));
        } else if request.is(CAPACITY_REVOKED) {
            if self.workload.is_active() {
                state.state = "Rejected".into();
                state.message = request.message(CAPACITY_REVOKED).into();
            }
        } else if request.is(BOOKING_EXPIRED) {
            if !is_admitted {
                fail(state, config, attempt, "booking expired", request.message(BOOKING_EXPIRED));
            }
        } else if request.is(PROVISIONED) {
            if state.state != "Ready" {
                state.state = "Ready".into();
                state.pod_set_updates = pod_set_updates(request, config, &check.pods);
                state.message = request.message(PROVISIONED).into();
            }
        } else if request.is(ACCEPTED) {
            if request.condition(PROVISIONED).is_some() {
                state.state = "Pending".into();
                state.message = request.message(PROVISIONED).into();
            }
        } else {
            state.state = "Pending".into();
            state.message = String::new();
        }
    }

    /// Whether a request brings no capacity any more.
    fn is_over(&self, request: &ProvisioningRequest) -> bool {
        request.is(FAILED) || request.is(BOOKING_EXPIRED) && !self.status().is(ADMITTED)
    }

    /// Makes the request of a check, and gives it its templates.
    fn request(&self, checks: &[Check<'_>]) -> Option<Step> {
        checks.iter().find_map(|check| self.request_for(check))
    }

    fn request_for(&self, check: &Check<'_>) -> Option<Step> {
        let config = check.config.filter(|_| !check.pods.is_empty() && check.state.state != "Ready")?;
        let next = match check.last {
            None => check.state.retry_count.unwrap_or_default() + 1,
            Some((attempt, request)) => {
                if !self.is_over(request) || check.state.state != "Pending" {
                    return self.adopt(request);
                }
                attempt + 1
            }
        };
        if self.refusal.is_some_and(|refusal| refusal.until > self.now) {
            return None;
        }
        let name = request_name(&self.whole.metadata.name, &check.state.name, next);
        for pods in &check.pods {
            match self.template_for(check, pods, &name) {
                Ok(None) => {}
                Ok(step) => return step,
                Err(error) => {
                    tracing::warn!(workload = self.whole.metadata.name, %error, "no request is made");
                    return None;
                }
            }
        }
        let request = request(&name, &self.whole.metadata, config, &check.pods);
        let write = Write::CreateRequest { check: check.state.name.clone(), request: Box::new(request) };
        let text = format!("Created ProvisioningRequest: {name:?}");
        let told = ProvisioningEvent { reason: "ProvisioningRequestCreated", text };
        Some(Step { write, events: vec![told], is_report: false })
    }

    /// Makes the template of these pods. One that is there, and describes other pods, goes first. `None`: it is as it has to be.
    fn template_for(
        &self,
        check: &Check<'_>,
        pods: &NeededPods<'_>,
        request: &str,
    ) -> Result<Option<Step>, InjectionError> {
        let Meta { namespace, .. } = &self.whole.metadata;
        let name = template_name(request, pods.names.first().copied().unwrap_or_default());
        let made = template(&name, &self.whole.metadata, pods, |flavor| self.objects.flavor(flavor))?;
        Ok(match self.objects.template_named(namespace, &name) {
            Some(found) if describes_same(&found.value, &made) => None,
            Some(found) => {
                let text = format!("Deleted PodTemplate {name:?}: it describes other pods than the Workload");
                let (namespace, uid) = (namespace.clone(), found.metadata.uid.clone());
                let told = ProvisioningEvent { reason: "PodTemplateReplaced", text };
                let write = Write::DeleteTemplate { namespace, name, uid };
                Some(Step { write, events: vec![told], is_report: false })
            }
            None => {
                let check = check.state.name.clone();
                Some(Step::silent(Write::CreateTemplate { check, template: Box::new(made) }))
            }
        })
    }

    /// Hands the templates that the Workload owns over to the request: they are to go with it.
    fn adopt(&self, request: &ProvisioningRequest) -> Option<Step> {
        let (workload, namespace) = (&self.whole.metadata.uid, &self.whole.metadata.namespace);
        let template = request.spec.pod_sets.iter().find_map(|pods| {
            let template = self.objects.template_named(namespace, &pods.pod_template_ref.name)?;
            let owner = template.metadata.controller_key();
            owner.is_none_or(|owner| owner == key_of(self.whole)).then_some(template)
        })?;
        let owners = template.value["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        let mut owners: Vec<Value> = owners.filter(|owner| owner["uid"] != **workload).cloned().collect();
        owners.push(json!({
            "apiVersion": api::provisioning::API_VERSION, "kind": api::provisioning::KIND,
            "name": request.metadata.name, "uid": request.metadata.uid,
            "controller": true, "blockOwnerDeletion": true,
        }));
        Some(Step::silent(Write::Owners(Box::new(template.clone()), owners.into())))
    }
}

/// A request that failed is followed by another one, after a pause that doubles, until the limit is reached.
fn fail(state: &mut CheckState, config: &ProvisioningConfigSpec, attempt: i64, what: &str, why: &str) {
    let strategy = &config.retry_strategy;
    if attempt > strategy.backoff_limit_count.unwrap_or(3) {
        state.state = "Rejected".into();
        state.message = why.into();
        return;
    }
    state.message = format!("Retrying after {what}: {why}");
    let retries = state.retry_count.unwrap_or_default();
    // An old request asks for no second retry.
    if attempt > retries {
        let base = strategy.backoff_base_seconds.unwrap_or(60);
        let doublings = u32::try_from(retries.clamp(0, 30)).unwrap_or_default();
        let pause = base.saturating_mul(1 << doublings).min(strategy.backoff_max_seconds.unwrap_or(1_800));
        state.state = "Retry".into();
        state.requeue_after_seconds = Some(pause.max(0));
    }
}
