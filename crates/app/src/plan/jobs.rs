//! The Workload that a job would get if it were created. Groups of pods are in `groups`, sets of pods in `sets`.

use anyhow::{Context, Result, anyhow, bail};
use api::kueue::jobs::{CopiedKeys, JobKind, NamedClass, Priority, REFERENCED, prebuilt_workload};
use api::kueue::workload::JOB_UID;
use kube::api::{ApiResource, DynamicObject, ListParams, PostParams};
use kube::{Api, Client, Resource as _};
use serde_json::Value;

use crate::connection::{read_one, resource};

/// The Workload of a job, which the API server completes in a dry run. It is called like the job, after its kind. None if the job uses
/// that of another author.
///
/// # Errors
///
/// The API server would refuse the job, or an object that it names does not exist.
pub(super) async fn workloads(
    client: &Client,
    kind: &JobKind,
    manifest: &Value,
    namespace: &str,
) -> Result<Vec<Value>> {
    let about = about(kind.kind, manifest, namespace);
    if let Some(name) = prebuilt_workload(manifest) {
        leave_to(&about, name);
        return Ok(Vec::new());
    }
    let of_kind = resource(kind.api_version, kind.kind, kind.plural);
    let mut job = completed(client, &of_kind, manifest, namespace).await?;
    if kind.is_pod() && !kind.is_suspended(&job) {
        tell_unheld(&about, &job);
    }
    describe(client, kind, &mut job).await.context(about.clone())?;
    let priority = priority(client, kind, &job).await.context(about.clone())?;
    let workload = kind.workload(&job, &priority, &CopiedKeys::default());
    let name = format!("{}-{}", kind.kind.to_lowercase(), name_of(&job).unwrap_or("without a name"));
    Ok(vec![as_planned(workload, &name, &job).context(about)?])
}

/// An object in a message.
pub(super) fn about(kind: &str, object: &Value, namespace: &str) -> String {
    format!("{kind} {namespace}/{}", name_of(object).unwrap_or("without a name"))
}

/// The name of an object.
pub(super) fn name_of(object: &Value) -> Option<&str> {
    object["metadata"]["name"].as_str()
}

/// The kind of pods.
pub(super) fn pod_kind() -> &'static JobKind {
    JobKind::of_framework("pod").expect("pods are a kind of jobs")
}

/// Says that the Workload of others decides about an object.
pub(super) fn leave_to(about: &str, workload: &str) {
    eprintln!("muster: left out: {about} waits with the Workload {workload} of its author");
}

/// Says that no webhook holds back the pods of an object, if the API server has completed it: it does not have to exist already.
pub(super) fn tell_unheld(about: &str, object: &Value) {
    if object["metadata"]["uid"].is_string() {
        eprintln!(
            "muster: no webhook of this cluster holds back {about}, so it would start without a Workload; planned as if one did"
        );
    }
}

/// An object as the API server would complete it: the answer to a dry run. One that exists already is taken as it is written.
///
/// # Errors
///
/// The API server would refuse the object.
pub(super) async fn completed(
    client: &Client,
    resource: &ApiResource,
    manifest: &Value,
    namespace: &str,
) -> Result<Value> {
    let about = || about(&resource.kind, manifest, namespace);
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let path = DynamicObject::url_path(resource, Some(namespace));
    // As it is written: the API server says which field has a wrong type.
    let request = kube::core::Request::new(path).create(&dry_run, manifest.to_string().into_bytes())?;
    let mut object = match client.request::<Value>(request).await {
        Ok(object) => object,
        Err(kube::Error::Api(status)) if status.code == 409 => manifest.clone(),
        Err(kube::Error::Api(status)) => {
            bail!("{} would be refused: {}", about(), status.message);
        }
        Err(error) => {
            return Err(error).with_context(|| format!("cannot create {} in a dry run", about()));
        }
    };
    object["metadata"]["namespace"] = namespace.into();
    Ok(object)
}

/// The Workload of a job as it is planned. The name that it would get may depend on the uid of the job. Nothing owns what is not there.
///
/// # Errors
///
/// No Workload can hold what the job asks for.
pub(super) fn as_planned(mut workload: Value, name: &str, job: &Value) -> Result<Value> {
    if let Some(problem) = controllers::workload_problem(&workload) {
        bail!(problem);
    }
    let namespace = job["metadata"]["namespace"].as_str().unwrap_or_default();
    let meta = &mut workload["metadata"];
    meta["uid"] = format!("plan-of-{namespace}/{name}").into();
    // By the clock of the API server, which says when the other Workloads were created.
    meta["creationTimestamp"] =
        job["metadata"]["creationTimestamp"].as_str().map_or_else(now, str::to_owned).into();
    meta["name"] = name.into();
    meta["labels"].as_object_mut().map(|labels| labels.remove(JOB_UID));
    meta.as_object_mut().map(|meta| meta.remove("ownerReferences"));
    Ok(workload)
}

fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Adds the object that describes the pods of the job, if it names one.
async fn describe(client: &Client, kind: &JobKind, job: &mut Value) -> Result<()> {
    let Some(reference) = kind.integration.reference(job) else { return Ok(()) };
    let of = &kind.integration.references()[reference.at];
    let named = resource(of.api_version, of.kind, of.plural);
    let api: Api<DynamicObject> = if reference.namespace.is_empty() {
        Api::all_with(client.clone(), &named)
    } else {
        Api::namespaced_with(client.clone(), &reference.namespace, &named)
    };
    let found = read_one(&api, &reference.name).await;
    let found = found.with_context(|| format!("cannot read {} {}", of.kind, reference.name))?;
    let found = found.with_context(|| format!("there is no {} {}", of.kind, reference.name))?;
    job[REFERENCED] = serde_json::to_value(found)?;
    Ok(())
}

/// The priority of the job: of its class, of the class of its pods, or of the default class.
pub(super) async fn priority(client: &Client, kind: &JobKind, job: &Value) -> Result<Priority> {
    let value =
        |class: &DynamicObject| class.data["value"].as_i64().and_then(|value| i32::try_from(value).ok());
    let named = kind.named_class(job);
    if let NamedClass::Workload(class) = &named {
        let classes =
            resource(api::kueue::workload::API_VERSION, "WorkloadPriorityClass", "workloadpriorityclasses");
        let found: Option<DynamicObject> = read_one(&Api::all_with(client.clone(), &classes), class).await?;
        let found = found.ok_or_else(|| anyhow!("there is no WorkloadPriorityClass {class}"))?;
        return Ok(Priority::of_workload_class(class, value(&found).unwrap_or_default()));
    }
    let classes: Api<DynamicObject> =
        Api::all_with(client.clone(), &resource("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses"));
    let classes = match classes.list(&ListParams::default()).await {
        Ok(list) => list.items,
        // Tenants may rarely read them, and most clusters have no default class.
        Err(kube::Error::Api(status)) if status.code == 403 && named == NamedClass::Default => {
            eprintln!("muster: the default PriorityClass, if there is one, is left out: {}", status.message);
            Vec::new()
        }
        Err(error) => return Err(error).context("cannot list the PriorityClasses"),
    };
    let found = match &named {
        NamedClass::Pod(name) => {
            let found = classes.iter().find(|class| class.metadata.name.as_ref() == Some(name));
            Some(found.ok_or_else(|| anyhow!("there is no PriorityClass {name}"))?)
        }
        NamedClass::Workload(_) | NamedClass::Default => {
            classes.iter().find(|class| class.data["globalDefault"] == true)
        }
    };
    Ok(found.map_or_else(Priority::default, |class| {
        Priority::of_pod_class(
            class.metadata.name.as_deref().unwrap_or_default(),
            value(class).unwrap_or_default(),
        )
    }))
}
