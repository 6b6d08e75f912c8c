//! `muster cluster add`: makes a cluster a worker of a hub.
//!
//! - `manifests`: the objects that it creates in both
//! - `access`: the address of the worker and the token of its account, and the kubeconfig of both

mod access;
mod manifests;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::connection::{Connection, objects, resource};
use crate::election::duration;
use manifests::Names;

/// The field manager of what is applied.
const FIELD_MANAGER: &str = "muster";
/// How long the hub may take to look at a new cluster.
const SEEN_MAX: Duration = Duration::from_secs(20);
/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(500);

/// Flags of `muster cluster`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Make a cluster a worker of a hub: an account with few rights in the worker, and the Secret and MultiKueueCluster with its
    /// kubeconfig at the hub. May be repeated, to renew the token.
    Add(AddArgs),
}

/// Flags of `muster cluster add`.
#[derive(clap::Args)]
struct AddArgs {
    /// Name of the worker at the hub.
    #[arg(value_name = "NAME", value_parser = name)]
    name: String,
    /// Kubeconfig of an admin of the worker. Its credentials stay here: the hub gets those of the new account.
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// Context of this kubeconfig. Default: its current context.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Kubeconfig of the hub. Default: that of kubectl.
    #[arg(long, value_name = "FILE")]
    hub_kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig of the hub. Default: its current context.
    #[arg(long, value_name = "NAME")]
    hub_context: Option<String>,
    /// Namespace of the Secret at the hub and of the account in the worker: that of the configuration of the hub.
    #[arg(short, long, value_name = "NAME", default_value = "kueue-system")]
    namespace: String,
    /// Address by which the hub reaches the worker, if it is not that of the kubeconfig.
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// Ask for a token that ends after this time, such as 720h, instead of one in a Secret of the worker, which holds until the
    /// Secret is deleted. Repeat the command in time: the hub takes the new one without a restart.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    token_lifetime: Option<Duration>,
    /// Print the objects instead, with TOKEN in the place of the token. Nothing is connected to, and nothing changed.
    #[arg(long, visible_alias = "dry-run")]
    print: bool,
}

fn name(text: &str) -> Result<String, String> {
    let is_inner = |char: char| char.is_ascii_lowercase() || char.is_ascii_digit() || char == '-';
    let is_name = !text.is_empty()
        && text.len() <= 50
        && text.chars().all(is_inner)
        && !text.starts_with('-')
        && !text.ends_with('-');
    let why = "a cluster has a name of lower-case letters, digits and hyphens";
    if is_name { Ok(text.to_owned()) } else { Err(why.into()) }
}

/// Makes a cluster a worker, and prints what it does.
pub(crate) async fn run(args: Args) -> Result<()> {
    let What::Add(args) = args.what;
    let names = Names { cluster: &args.name, namespace: &args.namespace };
    let address = access::address(&args.kubeconfig, args.context.as_deref(), args.server.as_deref())?;
    if args.print {
        print!("{}", names.printed(&access::kubeconfig(&address, "TOKEN"), args.token_lifetime.is_none())?);
        return Ok(());
    }
    // Before anything is created anywhere.
    accepted(&access::kubeconfig(&address, "TOKEN"), &args.name)?;
    let hub = Connection::of(args.hub_kubeconfig.clone(), args.hub_context.clone());
    let (hub, _) = hub.open().await.context("the hub")?;
    is_hub(&hub).await?;
    let worker = Connection::of(Some(args.kubeconfig.clone()), args.context.clone());
    let (worker, _) = worker.open().await.with_context(|| format!("the worker {}", args.name))?;
    for object in names.of_worker(args.token_lifetime.is_none())? {
        apply(&worker, &object, &args.name).await?;
    }
    let token = match args.token_lifetime {
        None => access::stored_token(&worker, &args.namespace).await?,
        Some(lifetime) => access::requested_token(&worker, &args.namespace, lifetime).await?,
    };
    for object in names.of_hub(&access::kubeconfig(&address, &token)) {
        apply(&hub, &object, "the hub").await?;
    }
    told(&hub, &args.name).await
}

/// Whether the hub will accept the kubeconfig.
fn accepted(kubeconfig: &str, name: &str) -> Result<()> {
    let judged = clusters::judge(kubeconfig).map(drop);
    judged.map_err(|refusal| {
        anyhow!(
            "the hub would refuse the kubeconfig of {name}: {}; give the address and certificate of its API server, for example with --server",
            refusal.text
        )
    })
}

async fn is_hub(hub: &Client) -> Result<()> {
    let kind = resource(api::kueue::workload::API_VERSION, "MultiKueueCluster", "multikueueclusters");
    match objects(hub, &kind, None).list(&kube::api::ListParams::default().limit(1)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => {
            bail!(
                "the hub serves no MultiKueueClusters: install Muster there with --set kueue.enabled=true --set kueue.multikueue=true"
            )
        }
        Err(error) => {
            Err(crate::visibility::told(error)).context("the hub: cannot list the MultiKueueClusters")
        }
    }
}

/// Creates an object, or brings it up to date.
async fn apply(client: &Client, object: &Value, place: &str) -> Result<()> {
    let text = |at: &str| object.pointer(at).and_then(Value::as_str).unwrap_or_default();
    let (kind, name, namespace) = (text("/kind"), text("/metadata/name"), text("/metadata/namespace"));
    let plural = format!("{}s", kind.to_lowercase());
    let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
    let api = objects(client, &resource(text("/apiVersion"), kind, &plural), namespace);
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let full = namespace.map_or(name.to_owned(), |namespace| format!("{namespace}/{name}"));
    let applied = api.patch(name, &params, &Patch::Apply(object)).await.map_err(crate::visibility::told);
    applied.with_context(|| format!("cannot write {kind} {full} in {place}"))?;
    println!("{place}: {kind} {full}");
    Ok(())
}

/// Says whether the hub reaches the cluster.
async fn told(hub: &Client, name: &str) -> Result<()> {
    let kind = resource(api::kueue::workload::API_VERSION, "MultiKueueCluster", "multikueueclusters");
    let (api, begin) = (objects(hub, &kind, None), Instant::now());
    let mut why = "no controller has looked at it; does the hub run with the part multikueue?".to_owned();
    while begin.elapsed() < SEEN_MAX {
        let cluster = json!(api.get(name).await.map_err(crate::visibility::told)?);
        let conditions = cluster["status"]["conditions"].as_array();
        if let Some(active) = conditions.into_iter().flatten().find(|c| c["type"] == "Active") {
            if active["status"] == "True" {
                println!("{name} is connected. Jobs go there when a MultiKueueConfig names it:");
                println!("  kubectl get multikueueconfigs");
                return Ok(());
            }
            why = active["message"].as_str().unwrap_or_default().to_owned();
        }
        sleep(PAUSE).await;
    }
    bail!("the hub does not reach {name} yet: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_has_a_name_that_objects_can_have() {
        assert_eq!(name("west-1").as_deref(), Ok("west-1"));
        for wrong in ["", "West", "a_b", "-a", "a.b"] {
            assert!(name(wrong).is_err(), "{wrong}");
        }
    }
}
