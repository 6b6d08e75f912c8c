//! `muster plan`: what the controller would decide about manifests if they were created now.

mod files;
mod groups;
mod jobs;
mod sets;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use api::appwrapper::Group;
use api::kueue::jobs::{JobKind, QUEUE_NAME, queue_name};
use controllers::{GangKind, Observer};
use kube::Client;
use serde_json::Value;
use server::{Mode, Report};

use self::groups::Unit;
use crate::connection::Connection;
use crate::groups::not_served;
use crate::report::{self, Output};
use crate::visibility::Visibility;

/// Flags of `muster plan`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// File with manifests of AppWrappers, Workloads, and jobs, pods and sets of pods in queues, YAML or JSON; `-` reads standard input. Of
    /// a folder, its files *.yaml, *.yml and *.json are read by name, and what is not queued in them is left out. May be repeated.
    #[arg(short, long = "filename", required = true, value_name = "FILE|DIR")]
    files: Vec<PathBuf>,
    /// The namespace of manifests without one. Default: that of the kubeconfig.
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Output,
    /// Exit with 3 if one of the gangs would wait, and with 4 if one could never start.
    #[arg(long)]
    exit_code: bool,
    #[command(flatten)]
    connection: Connection,
}

/// Prints the decisions. Writes nothing to the cluster.
pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let manifests = files::read(&args.files)?;
    let (client, _) = args.connection.open().await?;
    let default = args.namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    let manifests = gangs(&client, &default, manifests).await?;
    if manifests.is_empty() {
        report::print(&[], args.output)?;
        return Ok(ExitCode::SUCCESS);
    }
    check_objects(&client, &default, &manifests).await?;
    let has_workloads = manifests.iter().any(|manifest| manifest.kind == GangKind::Workload);
    let is_mixed = has_workloads && manifests.iter().any(|manifest| manifest.kind != GangKind::Workload);
    let answers =
        |endpoint: &Visibility| !is_mixed && manifests.iter().all(|manifest| endpoint.serves(manifest.kind));
    let endpoint = Visibility::of(&client).await.filter(answers);
    let reports = if let (Some(namespace), Some(endpoint)) = (only_namespace(&manifests, &default), endpoint)
    {
        endpoint.plan(&namespace, manifests).await?
    } else {
        let mut observer = Connection::observe(client, has_workloads).await?;
        let reports = simulated(&mut observer, &default, manifests).await;
        observer.close().await;
        reports?
    };
    report::print(&reports, args.output)?;
    Ok(report::exit_code(&reports, args.exit_code))
}

/// The namespace of all manifests; `None` if they have several.
fn only_namespace(manifests: &[Manifest], default: &str) -> Option<String> {
    let namespaces: BTreeSet<&str> =
        manifests.iter().map(|manifest| namespace_of(&manifest.object, default)).collect();
    (namespaces.len() == 1).then(|| namespaces.into_iter().next())?.map(str::to_owned)
}

/// An object that the API server would refuse at the dispatch is an error: a template in an AppWrapper may be anything.
/// A Workload creates nothing.
async fn check_objects(client: &Client, default: &str, manifests: &[Manifest]) -> Result<()> {
    for Manifest { kind, object: manifest, .. } in manifests {
        let GangKind::Wrapper(group) = kind else { continue };
        let field = |key: &str| manifest["metadata"][key].as_str();
        let namespace = field("namespace").unwrap_or(default);
        let name = field("name").unwrap_or("an AppWrapper without a name");
        let refused = controllers::refused_object(client, *group, namespace, manifest).await;
        if let Some(why) = refused.context("cannot check the objects in a dry run")? {
            bail!("{namespace}/{name} would fail: the API server would reject an object of it: {why}");
        }
    }
    Ok(())
}

async fn simulated(
    observer: &mut Observer,
    namespace: &str,
    manifests: Vec<Manifest>,
) -> Result<Vec<Report>> {
    let mut reports = Vec::new();
    for Manifest { kind, object, is_completed } in manifests {
        if !observer.serves(kind) {
            bail!(not_served(kind));
        }
        let name = object["metadata"]["name"].as_str().unwrap_or("an object without a name").to_owned();
        let report = if is_completed {
            observer.what_if_completed(kind, object).await
        } else {
            observer.what_if(kind, namespace, object).await
        };
        let report = report.with_context(|| format!("the API server would reject {name}"))?;
        reports.push(Report::new(&report, Mode::Simulated));
    }
    Ok(reports)
}

/// An object that can be planned.
pub(crate) struct Manifest {
    pub(crate) kind: GangKind,
    pub(crate) object: Value,
    /// It is as the API server would complete it: the Workload of a job.
    pub(crate) is_completed: bool,
}

/// What a manifest describes.
#[derive(Debug, Clone, Copy)]
enum Planned {
    Gang(GangKind),
    /// A job, or a pod.
    Job(&'static JobKind),
    /// A set of pods, which wait as groups.
    Set(&'static JobKind),
    /// A set of pods, which wait one by one.
    Deployment,
}

/// The namespace of a manifest.
fn namespace_of<'a>(manifest: &'a Value, default: &'a str) -> &'a str {
    manifest["metadata"]["namespace"].as_str().unwrap_or(default)
}

/// The gangs, and the Workloads of the jobs and of the pods.
async fn gangs(client: &Client, default: &str, manifests: Vec<(Planned, Value)>) -> Result<Vec<Manifest>> {
    let mut gangs = Vec::new();
    for unit in groups::gathered(manifests, default) {
        let workloads = match unit {
            Unit::Object(Planned::Gang(kind), object) => {
                gangs.push(Manifest { kind, object, is_completed: false });
                continue;
            }
            Unit::Object(Planned::Job(kind), job) => {
                jobs::workloads(client, kind, &job, namespace_of(&job, default)).await?
            }
            Unit::Object(Planned::Set(kind), set) => {
                sets::workloads(client, kind, &set, namespace_of(&set, default)).await?
            }
            Unit::Object(Planned::Deployment, set) => {
                sets::of_deployment(client, &set, namespace_of(&set, default)).await?
            }
            Unit::Group(namespace, pods) => groups::workloads(client, &namespace, &pods).await?,
        };
        let completed = |object| Manifest { kind: GangKind::Workload, object, is_completed: true };
        gangs.extend(workloads.into_iter().map(completed));
    }
    Ok(gangs)
}

/// What a manifest of a kind that the label queues describes.
fn queued_kind(version: &str, kind: &str) -> Option<Planned> {
    if (version, kind) == ("apps/v1", "Deployment") {
        return Some(Planned::Deployment);
    }
    let known = api::kueue::jobs::JOB_KINDS.iter().find(|known| known.is_kind_of(version, kind))?;
    Some(if known.is_set_of_pods() { Planned::Set(known) } else { Planned::Job(known) })
}

fn kind_of(object: &Value) -> Result<Planned> {
    let (version, kind) = (object["apiVersion"].as_str(), object["kind"].as_str());
    let (Some(version), Some(kind)) = (version, kind) else {
        bail!("not a Kubernetes object: apiVersion or kind is missing");
    };
    if let Some(gang) = GangKind::of(object) {
        return Ok(Planned::Gang(gang));
    }
    let versions = Group::ALL.map(Group::api_version).join(" or ");
    match queued_kind(version, kind) {
        Some(planned) if !queue_name(object).is_empty() => Ok(planned),
        Some(_) => bail!(
            "{kind} of {version} is in no queue: give it the label {QUEUE_NAME}, or wrap it in an AppWrapper of {versions}"
        ),
        None if version.split_once('/').is_some_and(|(group, _)| group == api::kueue::GROUP) => {
            bail!("{kind} of {version} is no workload: create it, and plan the other manifests")
        }
        None => bail!("{kind} of {version} cannot be queued: wrap it in an AppWrapper of {versions}"),
    }
}
