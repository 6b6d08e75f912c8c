//! Decides the next write about an AppWrapper that asks for nodes: a pure function of what was observed.

use api::MicroTime;
use api::provisioning::gang::{self, GangRequest, Need};
use api::provisioning::{BOOKING_EXPIRED, CAPACITY_REVOKED, FAILED, PROVISIONED, ProvisioningRequest};
use serde_json::{Value, json};

use super::super::execute::Write;
use super::{Asking, Objects, after};

/// The pause after the first request that has failed, in seconds. It doubles with each one; after cluster-autoscaler's and
/// Kueue's first pause.
const PAUSE_S: i64 = 60;
/// The longest pause, in seconds.
const PAUSE_MAX_S: i64 = 1_800;

/// What to do about an AppWrapper.
#[derive(Debug)]
pub(super) enum Step {
    /// One write.
    Write(Box<Write>),
    /// Nothing before this time.
    Wait(MicroTime),
    /// Nothing: it cannot ask, for this reason.
    Refuse(String),
    /// Nothing.
    Nothing,
}

impl From<Write> for Step {
    fn from(write: Write) -> Self {
        Self::Write(Box::new(write))
    }
}

/// The next step.
pub(super) fn decide(objects: &Objects, asking: &Asking, now: MicroTime) -> Step {
    if asking.whole.metadata.is_deleting() {
        // The garbage collector removes what it owns.
        return Step::Nothing;
    }
    match (&asking.wanted, asking.need) {
        (Err(why), _) => clean(objects, asking).unwrap_or_else(|| Step::Refuse(why.clone())),
        (Ok(Some((class, request))), Need::Nodes) => ask(objects, asking, (class, request), now),
        // The capacity is kept for the pods until the gang has ended, or waits for nodes again.
        (Ok(None), Need::Nothing) => Step::Nothing,
        (Ok(_), _) => clean(objects, asking).unwrap_or(Step::Nothing),
    }
}

/// Removes what is left of requests.
fn clean(objects: &Objects, asking: &Asking) -> Option<Step> {
    let request = objects.requests_of(asking).find(|request| !request.metadata.is_deleting());
    if let Some(request) = request {
        return Some(Write::DeleteRequest(Box::new(request.clone())).into());
    }
    let namespace = &asking.whole.metadata.namespace;
    if let Some((uid, name)) = objects.templates_of(asking).next() {
        let (namespace, name, uid) = (namespace.clone(), name.clone(), uid.clone());
        return Some(Write::DeleteTemplate { namespace, name, uid }.into());
    }
    let names_one = asking.whole.metadata.annotations.contains_key(gang::REQUEST);
    names_one.then(|| annotate(asking, &Value::Null))
}

fn annotate(asking: &Asking, value: &Value) -> Step {
    let patch = json!({"metadata": {"annotations": {gang::REQUEST: value},
        "resourceVersion": asking.whole.metadata.resource_version}});
    Write::Wrapper { group: asking.group, meta: Box::new(asking.whole.metadata.clone()), patch }.into()
}

/// Asks for the nodes of a gang that fits on none.
fn ask(objects: &Objects, asking: &Asking, (class, wanted): (&str, &GangRequest), now: MicroTime) -> Step {
    let meta = &asking.whole.metadata;
    let attempt = |request: &ProvisioningRequest| wanted.attempt(request, &meta.name, class);
    let known = || objects.requests_of(asking).filter(|request| !request.metadata.is_deleting());
    let last = known().filter_map(|request| Some((attempt(request)?, request))).max_by_key(|(at, _)| *at);
    let unused =
        known().find(|request| last.is_none_or(|(_, last)| last.metadata.uid != request.metadata.uid));
    if let Some(unused) = unused {
        return Write::DeleteRequest(Box::new(unused.clone())).into();
    }
    let next = match last {
        None => {
            let highest = objects.requests_of(asking).map(|request| gang::attempt_of(request, &meta.name));
            highest.max().unwrap_or_default() + 1
        }
        Some((attempt, request)) => {
            let Some(since) = over_since(request) else { return name(asking, request) };
            let doublings = u32::try_from((attempt - 1).clamp(0, 10)).unwrap_or_default();
            let until = after(since, (PAUSE_S << doublings).min(PAUSE_MAX_S));
            if until > now {
                return Step::Wait(until);
            }
            attempt + 1
        }
    };
    let missing = wanted.pods.iter().find(|pods| {
        let name = pods.template_name(&meta.name);
        objects.templates_of(asking).all(|(_, known)| *known != name)
    });
    if let Some(pods) = missing {
        let template = Box::new(pods.object(asking.group, meta));
        return Write::CreateTemplate { check: String::new(), template }.into();
    }
    let request = Box::new(wanted.object(asking.group, meta, class, next));
    Write::CreateRequest { check: String::new(), request }.into()
}

/// Names the request that has brought nodes, before the gang starts on them.
fn name(asking: &Asking, request: &ProvisioningRequest) -> Step {
    let value = gang::consumed(request);
    let known = asking.whole.metadata.annotations.get(gang::REQUEST);
    if request.is(PROVISIONED) && known != Some(&value) {
        annotate(asking, &value.into())
    } else {
        Step::Nothing
    }
}

/// Since when a request brings no capacity any more.
fn over_since(request: &ProvisioningRequest) -> Option<MicroTime> {
    let over = [FAILED, BOOKING_EXPIRED, CAPACITY_REVOKED].into_iter().find(|kind| request.is(kind))?;
    let since =
        request.condition(over).and_then(|condition| MicroTime::parse(&condition.last_transition_time));
    Some(since.unwrap_or_default())
}
