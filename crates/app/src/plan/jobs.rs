//! The Workload that a job would get if it were created.

use anyhow::{Context, Result, anyhow, bail};
use api::kueue::jobs::{CopiedKeys, JobKind, NamedClass, Priority, REFERENCED};
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::{Api, Client};
use serde_json::Value;

use crate::connection::{read_one, resource};

/// The kind of a manifest, if its objects get Workloads of their own.
pub(super) fn kind_of(manifest: &Value) -> Option<&'static JobKind> {
    let (version, kind) = (manifest["apiVersion"].as_str()?, manifest["kind"].as_str()?);
    let mut all = api::kueue::jobs::JOB_KINDS.iter();
    all.find(|known| known.is_kind_of(version, kind) && !known.is_pod() && !known.is_set_of_pods())
}

/// Whether a manifest is of pods that wait in groups, or one by one: a pod, or a set of pods.
pub(super) fn is_of_pods(manifest: &Value) -> bool {
    let (version, kind) = (manifest["apiVersion"].as_str(), manifest["kind"].as_str());
    let (version, kind) = (version.unwrap_or_default(), kind.unwrap_or_default());
    (version, kind) == ("apps/v1", "Deployment")
        || api::kueue::jobs::JOB_KINDS.iter().any(|known| known.is_kind_of(version, kind))
}

/// The Workload of a job, which the API server completes in a dry run. It is called like the job, after its kind.
///
/// # Errors
///
/// The API server would refuse the job, or an object that it names does not exist.
pub(super) async fn workload(
    client: &Client,
    kind: &JobKind,
    manifest: &Value,
    namespace: &str,
) -> Result<Value> {
    let named = manifest["metadata"]["name"].as_str().unwrap_or("without a name");
    let about = || format!("{} {namespace}/{named}", kind.kind);
    let jobs: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), namespace, &resource(kind.api_version, kind.kind, kind.plural));
    let manifest: DynamicObject = serde_json::from_value(manifest.clone()).with_context(about)?;
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let job = match jobs.create(&dry_run, &manifest).await {
        Ok(job) => job,
        Err(kube::Error::Api(status)) if status.code == 409 => manifest,
        Err(kube::Error::Api(status)) => {
            bail!("{} would be refused: {}", about(), status.message);
        }
        Err(error) => return Err(error).context("cannot create a job in a dry run"),
    };
    let mut job = serde_json::to_value(job)?;
    job["metadata"]["namespace"] = namespace.into();
    describe(client, kind, &mut job).await.with_context(about)?;
    let priority = priority(client, kind, &job).await.with_context(about)?;
    let mut workload = kind.workload(&job, &priority, &CopiedKeys::default());
    // The name that it would get depends on the uid of the job. Nothing owns what is not there.
    let given = job["metadata"]["name"].as_str().unwrap_or(named);
    let name = format!("{}-{given}", kind.kind.to_lowercase());
    workload["metadata"]["uid"] = format!("plan-of-{namespace}/{name}").into();
    // By the clock of the API server, which says when the other Workloads were created.
    workload["metadata"]["creationTimestamp"] =
        job["metadata"]["creationTimestamp"].as_str().map_or_else(now, str::to_owned).into();
    workload["metadata"]["name"] = name.into();
    workload["metadata"].as_object_mut().map(|meta| meta.remove("ownerReferences"));
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
async fn priority(client: &Client, kind: &JobKind, job: &Value) -> Result<Priority> {
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
