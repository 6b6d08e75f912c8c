//! What happens to AppWrappers: those of MCAD, which Muster plans, and those of `v1beta2`, which their own controller runs.

use std::collections::{BTreeMap, BTreeSet};

use api::Meta;
use api::appwrapper::{Group, Spec, State, Status, components, limits, render};
use api::demand::{self, Demand};
use api::kueue::jobs::queue_name;
use api::validate;
use api::wrapped_kinds::WrappedKind;
use serde_json::Value;

use super::cluster::{Cluster, Resource, text};
use super::finding::{Finding, Subject};
use super::systems::{Software, System, find};

/// The kinds that may be wrapped: resources by group, as in `appWrappers.wraps`.
pub(crate) type Wraps = BTreeMap<String, BTreeSet<String>>;

/// The kinds that the chart permits by default.
pub(crate) fn default_wraps() -> Wraps {
    let values: Value = serde_saphyr::from_str(chart::values_file()).unwrap_or_default();
    serde_json::from_value(values["appWrappers"]["wraps"].clone()).unwrap_or_default()
}

/// What is found about AppWrappers, and the kinds to permit for them.
#[derive(Debug, Default)]
pub(crate) struct Wrappers {
    pub(crate) findings: Vec<Finding>,
    /// The groups that Muster would manage: those with AppWrappers, or with definitions.
    pub(crate) groups: BTreeSet<Group>,
    /// Whether there are AppWrappers that it would manage.
    pub(crate) are_there: bool,
    /// Those that fail when their turn comes, and why.
    pub(crate) failing: BTreeMap<Subject, String>,
    /// Kinds beyond those that the chart permits.
    pub(crate) wraps: Wraps,
}

/// The AppWrappers of a cluster. `is_queued_kind`: AppWrappers are a kind of jobs of Kueue.
pub(crate) fn wrappers(cluster: &Cluster, systems: &[System], is_queued_kind: bool) -> Wrappers {
    let (mut found, permitted) = (Wrappers::default(), default_wraps());
    for group in Group::ALL {
        // Without objects, the definition tells which group manifests have.
        if cluster.definition(&group.resource()).is_some() && cluster.serves(&group.resource(), "v1beta1") {
            found.groups.insert(group);
        }
        for wrapper in cluster.of(&group.resource()) {
            if components::has_components(wrapper) {
                found.findings.push(of_components(wrapper, systems, is_queued_kind));
                continue;
            }
            found.groups.insert(group);
            found.are_there = true;
            let spec = Spec::read(&wrapper["spec"], text(&wrapper["metadata"]["name"]));
            let status: Status = serde_json::from_value(wrapper["status"].clone()).unwrap_or_default();
            let unpermitted = spec.as_ref().map(|spec| unpermitted(cluster, spec, &permitted));
            found.findings.extend(of_wrapper(cluster, group, wrapper, &spec, &status));
            if status.state.is_terminal() {
                continue;
            }
            let why = spec.as_ref().ok().and_then(|spec| unrendered(group, wrapper, spec));
            found.failing.extend(why.filter(|_| !status.canrun).map(|why| (Subject::of(wrapper), why)));
            for (group, plural) in unpermitted.unwrap_or_default() {
                let subject = Subject::of(wrapper);
                let value = format!("appWrappers.wraps.{} with {plural}", in_quotes(&group));
                let what = format!("wraps {}, which the chart does not permit", dotted(&plural, &group));
                found.findings.push(Finding::set(subject, what, value));
                found.wraps.entry(group).or_default().insert(plural);
            }
        }
    }
    let has_mcad = find(systems, Software::Mcad).is_some_and(|mcad| mcad.deployment.is_some());
    if has_mcad && found.findings.iter().any(|finding| finding.what == WAITS) {
        let what = "MCAD 1.40 tries AppWrappers as they arrive; Muster queues them by priority, then by age";
        found.findings.push(Finding::differs(Subject::new("Setting", "order of the queue"), what));
    }
    found
}

fn in_quotes(group: &str) -> String {
    if group.is_empty() { "\"\"".into() } else { group.to_owned() }
}

fn dotted(plural: &str, group: &str) -> String {
    if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
}

const WAITS: &str = "waits: it stays queued";

/// One AppWrapper that Muster plans.
fn of_wrapper(
    cluster: &Cluster,
    group: Group,
    wrapper: &Value,
    spec: &Result<Spec, api::appwrapper::SpecError>,
    status: &Status,
) -> Vec<Finding> {
    let subject = Subject::of(wrapper);
    match status.state {
        State::Failed => {
            let what = "has failed: it stays so; MCAD would try it again when it changes";
            return vec![Finding::differs(subject, what)];
        }
        State::Completed | State::Deleted => {
            return vec![Finding::kept(subject, "has ended: it stays as it is")];
        }
        State::Pending | State::Running | State::RunningHoldCompletion | State::None => {}
    }
    let spec = match spec {
        Ok(spec) => spec,
        Err(error) => {
            let what = format!("fails at once: {error}");
            return vec![Finding::to_do(subject, what, "correct it, or delete it")];
        }
    };
    let demand = checked(spec);
    let mut found = Vec::new();
    if status.canrun {
        let is_whole = matches!(status.state, State::Running | State::RunningHoldCompletion);
        let what = if is_whole {
            "runs: it is taken over with its objects and pods, and runs on"
        } else {
            "is being started: its objects are kept, and those that are missing are created"
        };
        found.push(Finding::kept(subject.clone(), what));
    } else {
        let mut problems: Vec<String> = demand.as_ref().err().into_iter().cloned().collect();
        problems.extend(spec.objects().flat_map(validate::problems));
        problems.extend(scopes(cluster, spec));
        found.push(if !problems.is_empty() {
            let what = format!("waits and cannot start: {}", limits::first_of(problems).join("; "));
            Finding::to_do(subject.clone(), what, "correct it, or delete it")
        } else if let Some(why) = unrendered(group, wrapper, spec) {
            let what = format!("waits, and fails when its turn comes: {why}");
            Finding::to_do(subject.clone(), what, "correct it, or delete it")
        } else {
            Finding::kept(subject.clone(), WAITS)
        });
        found.extend(missing(cluster, spec).map(|kind| {
            let what = format!("waits until the cluster serves {kind}");
            Finding::to_do(
                subject.clone(),
                what,
                "install the definition of this kind, or delete the AppWrapper",
            )
        }));
    }
    if let Some(more) = demand.ok().as_ref().and_then(more_than_declared) {
        let what = format!(
            "its pods request more than custompodresources declares ({more}): the larger amount counts"
        );
        found.push(Finding::differs(subject.clone(), what));
    }
    if spec.dispatch_limit_s > 0 && spec.min_available == 0 {
        let what = "dispatchDuration.limit counts also without minAvailable: the gang fails when it is over";
        found.push(Finding::differs(subject, what));
    }
    found
}

/// The demand of a spec, or why it has none.
fn checked(spec: &Spec) -> Result<Demand, String> {
    let demand = demand::of_spec(spec).map_err(|error| error.to_string())?;
    limits::check_demand(&demand).map_err(|error| error.to_string())?;
    Ok(demand)
}

/// The first object that cannot be created as it is, such as one of another namespace.
fn unrendered(group: Group, wrapper: &Value, spec: &Spec) -> Option<String> {
    let meta: Meta = serde_json::from_value(wrapper["metadata"].clone()).ok()?;
    let mut objects = spec.objects().enumerate();
    objects.find_map(|(at, object)| Some(render::render(group, &meta, object, at, None).err()?.to_string()))
}

fn kinds(spec: &Spec) -> BTreeSet<(String, String)> {
    let kind = |object: &Value| (text(&object["apiVersion"]).to_owned(), text(&object["kind"]).to_owned());
    spec.objects().map(kind).collect()
}

/// Kinds whose objects have no namespace.
fn scopes(cluster: &Cluster, spec: &Spec) -> Vec<String> {
    let is_global = |kind: &(String, String)| {
        matches!(cluster.wrapped.get(kind), Some(Resource::ClusterScoped(_))).then(|| kind.1.clone())
    };
    let global = kinds(spec).iter().filter_map(is_global).collect::<Vec<_>>();
    global
        .into_iter()
        .map(|kind| format!("{kind} is cluster-scoped, so an AppWrapper cannot contain it"))
        .collect()
}

/// Kinds that the cluster does not serve.
fn missing(cluster: &Cluster, spec: &Spec) -> impl Iterator<Item = String> {
    let kinds = kinds(spec).into_iter();
    let missing = kinds.filter(|kind| cluster.wrapped.get(kind) == Some(&Resource::Missing));
    missing.map(|(version, kind)| format!("{kind} of {version}")).collect::<Vec<_>>().into_iter()
}

/// The resources of a spec that are not permitted, with those that operators create between an object and its pods.
fn unpermitted(cluster: &Cluster, spec: &Spec, permitted: &Wraps) -> Vec<(String, String)> {
    let mut found = BTreeSet::new();
    for (version, kind) in kinds(spec) {
        let group = version.split_once('/').map_or("", |(group, _)| group).to_owned();
        // The plurals of known kinds are known without the cluster, and they are permitted.
        if WrappedKind::find(&group, &kind).is_some() {
            continue;
        }
        if let Some(Resource::Namespaced(plural)) = cluster.wrapped.get(&(version, kind))
            && !permitted.get(&group).is_some_and(|known| known.contains(plural))
        {
            found.insert((group, plural.clone()));
        }
    }
    found.into_iter().collect()
}

/// What pods request beyond what is declared for them.
fn more_than_declared(demand: &Demand) -> Option<String> {
    let declared = demand.declared.as_ref()?;
    let mut requested = api::Amounts::new();
    for set in &demand.pod_sets {
        requested.add(&set.shape.request.times(set.count));
    }
    let more: Vec<&str> = requested
        .iter()
        .filter(|(name, amount)| *amount > declared.get(name))
        .map(|(name, _)| name)
        .collect();
    let more: Vec<&str> = more.into_iter().filter(|name| *name != "pods").collect();
    (!more.is_empty()).then(|| more.join(", "))
}

/// One AppWrapper of `v1beta2`.
fn of_components(wrapper: &Value, systems: &[System], is_queued_kind: bool) -> Finding {
    let subject = Subject::of(wrapper);
    if matches!(text(&wrapper["status"]["phase"]), "Succeeded" | "Failed") {
        return Finding::kept(subject, "has ended: it stays as it is");
    }
    if !find(systems, Software::AppWrapper).is_some_and(System::runs) {
        let what =
            "the controller of AppWrappers v1beta2 does not run, and Muster starts none of their objects";
        return Finding::to_do(subject, what, "start that controller");
    }
    if queue_name(wrapper).is_empty() {
        return Finding::kept(
            subject,
            "is in no queue: its own controller runs it, and Muster leaves it alone",
        );
    }
    if is_queued_kind {
        let what =
            "waits or runs with its Workload, as the other jobs in queues; its own controller must go on";
        return Finding::kept(subject, what);
    }
    let what = "has a queue, but workload.codeflare.dev/appwrapper is not among the kinds that Kueue manages: nothing suspends it";
    Finding::kept(subject, what)
}
