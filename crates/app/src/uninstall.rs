//! `muster uninstall`: stops Muster and removes what would hold up the cluster without it. The hook of the Helm chart runs it.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use api::scheduling_gate::{GATE, GATES};
use controllers::{Release, Released};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::connection::Connection;
use crate::election::duration;

/// Flags of `muster uninstall`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Namespace of Muster. Default: the one with its Deployment.
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// Remove the gates and finalizers of Kueue's API, too: no Kueue takes over.
    #[arg(long)]
    kueue: bool,
    /// How long the controllers may take to stop.
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration)]
    timeout: Duration,
    #[command(flatten)]
    connection: Connection,
}

/// The label of the Deployment, as in the chart.
const INSTALLATION: &str = "app.kubernetes.io/name=muster";
/// The label of the controllers' pods, as in the chart.
const CONTROLLERS: &str = "muster.dev/controller=muster";
/// The name of the Deployment.
const DEPLOYMENT: &str = "muster";
/// The namespace in which a controller without a Deployment has its Service.
const OUTSIDE: &str = "muster";

/// Stops the controllers, then removes registrations, gates and finalizers. Deletes no workload and no definition; may be
/// repeated.
pub(crate) async fn run(args: Args) -> Result<()> {
    let (client, _) = args.connection.open().await?;
    let installed = installation(&client, args.namespace.as_deref()).await?;
    if let Some(namespace) = &installed {
        stop(&client, namespace, args.timeout).await?;
        println!("stopped Deployment {namespace}/{DEPLOYMENT}");
    } else {
        let holder = controllers::live_lease_holder(&client).await.context("cannot read the lease")?;
        if let Some(holder) = holder {
            bail!(
                "no namespace has a Deployment of Muster, and {holder} renews the lease kube-system/muster: stop this controller first"
            );
        }
        println!("no namespace has a Deployment of Muster, and no controller leads");
    }
    let namespace = installed.or(args.namespace).unwrap_or_else(|| OUTSIDE.into());
    let unregistered = server::unregister(&client, &namespace).await;
    for line in unregistered.context("cannot remove what Muster has registered")? {
        println!("{line}");
    }
    let again = if args.kueue { "muster release --kueue" } else { "muster release" };
    let (mut failed, mut released) = (0, BTreeSet::new());
    let mut report = |Released { kind, name, result }: Released| match result {
        // A pod may have had gates and finalizers.
        Ok(_) if !released.insert(format!("{kind} {name}")) => {}
        Ok(_) => println!("released {kind} {name}"),
        // A running Job cannot be changed, and is not to be stopped.
        Err(controllers::Error::Refused(_)) if kind != "Pod" => println!(
            "{kind} {name} cannot be changed: a pod that it creates from now on waits until `{again}` removes its gate"
        ),
        Err(error) => {
            failed += 1;
            eprintln!("muster: {kind} {name} keeps its gate or finalizer: {error}");
        }
    };
    let gates: &[&str] = if args.kueue { &GATES } else { &[GATE] };
    let ungated =
        controllers::release(&client, Release { namespace: "", gates, dry_run: false }, &mut report).await;
    ungated.context("not all gates could be removed; run this command again")?;
    if args.kueue {
        let freed = controllers::release_finalizers(&client, &mut report).await;
        freed.context("not all finalizers could be removed; run this command again")?;
    }
    if failed > 0 {
        bail!("{failed} objects keep their gate or finalizer; run this command again for them");
    }
    println!("workloads and definitions stay as they are");
    Ok(())
}

/// The namespace with the Deployment of Muster, which is the one that is asked for. `None`: there is none in the cluster.
async fn installation(client: &Client, namespace: Option<&str>) -> Result<Option<String>> {
    let all: Api<Deployment> = Api::all(client.clone());
    let found = match (all.list(&ListParams::default().labels(INSTALLATION)).await, namespace) {
        (Ok(found), _) => found.items,
        (Err(kube::Error::Api(status)), Some(namespace)) if status.code == 403 => {
            let own: Api<Deployment> = Api::namespaced(client.clone(), namespace);
            let found = own.get_opt(DEPLOYMENT).await;
            let found = found.with_context(|| format!("cannot read Deployment {namespace}/{DEPLOYMENT}"))?;
            let missing = || {
                format!(
                    "namespace {namespace} has no Deployment {DEPLOYMENT}, and you may not list those of others"
                )
            };
            vec![found.with_context(missing)?]
        }
        (Err(error), _) => return Err(error).context("cannot look for the Deployment of Muster"),
    };
    let named = found.into_iter().filter(|found| found.metadata.name.as_deref() == Some(DEPLOYMENT));
    let namespaces: Vec<String> = named.filter_map(|found| found.metadata.namespace).collect();
    let here = |known: &&String| namespace.is_none_or(|namespace| **known == namespace);
    let here: Vec<&String> = namespaces.iter().filter(here).collect();
    match here[..] {
        [one] => Ok(Some(one.clone())),
        [] if namespaces.is_empty() => Ok(None),
        [] => bail!(
            "Muster is in namespace {}, not in {}",
            namespaces.join(" and "),
            namespace.unwrap_or_default()
        ),
        [..] => bail!("Muster is in the namespaces {}: name one with --namespace", namespaces.join(" and ")),
    }
}

/// Stops the replicas of the Deployment. A controller that runs would gate new objects.
async fn stop(client: &Client, namespace: &str, timeout: Duration) -> Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let none = Patch::Merge(json!({"spec": {"replicas": 0}}));
    let stopped = deployments.patch_scale(DEPLOYMENT, &PatchParams::default(), &none).await;
    stopped.with_context(|| format!("cannot stop Deployment {namespace}/{DEPLOYMENT}"))?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let end = Instant::now() + timeout;
    loop {
        let running = pods.list(&ListParams::default().labels(CONTROLLERS)).await;
        let running = running.with_context(|| format!("cannot list the pods of namespace {namespace}"))?;
        let Some(pod) = running.items.first() else { return Ok(()) };
        if Instant::now() > end {
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            bail!(
                "pod {namespace}/{name} has not stopped within {timeout:?}; delete it and run this command again"
            );
        }
        sleep(Duration::from_millis(500)).await;
    }
}
