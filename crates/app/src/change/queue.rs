//! `muster queue`: stops and starts the admission of a ClusterQueue or a LocalQueue.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use kube::api::DynamicObject;
use kube::{Api, Client};
use serde_json::json;

use super::patch;
use crate::connection::{Connection, objects, read_one, resource};
use crate::get::scope_of;
use crate::table::put;
use crate::visibility::told;
use crate::why::is_word;

/// Kind, plural and short name.
const KINDS: [(&str, &str, &str); 2] =
    [("LocalQueue", "localqueues", "lq"), ("ClusterQueue", "clusterqueues", "cq")];

/// Flags of `muster queue`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Admit no more of its Workloads; those that run go on. Sets `stopPolicy: Hold`.
    Hold(Queue),
    /// Admit Workloads again. Sets `stopPolicy: None`.
    Resume(Queue),
    /// Admit no more of its Workloads, and stop those that run; they wait. Sets `stopPolicy: HoldAndDrain`.
    Drain(Queue),
}

#[derive(clap::Args)]
struct Queue {
    /// The queue: `localqueue/NAME` or `clusterqueue/NAME`. The kind is needed if both exist.
    #[arg(value_name = "[KIND/]NAME")]
    name: String,
    /// The namespace of a LocalQueue. Default: that of the kubeconfig.
    #[arg(short, long, value_name = "NAMESPACE", value_parser = crate::get::namespace)]
    namespace: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

/// Changes the stop policy.
pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let (queue, policy, done) = match args.what {
        What::Hold(queue) => (queue, "Hold", "held"),
        What::Resume(queue) => (queue, "None", "resumed"),
        What::Drain(queue) => (queue, "HoldAndDrain", "draining"),
    };
    let (client, _) = queue.connection.open().await?;
    let namespace = scope_of(queue.namespace, &client);
    let (api, name, named) = find(&client, &queue.name, &namespace).await?;
    patch(&api, &name, &json!({"spec": {"stopPolicy": policy}}), &named).await?;
    put(&format!("{named} {done}\n"))?;
    Ok(ExitCode::SUCCESS)
}

async fn find(client: &Client, asked: &str, namespace: &str) -> Result<(Api<DynamicObject>, String, String)> {
    let (word, name) = asked.split_once('/').map_or((None, asked), |(word, name)| (Some(word), name));
    let mut found = Vec::new();
    let mut is_known = false;
    for (kind, plural, short) in KINDS {
        if word.is_some_and(|word| !is_word(word, &kind.to_lowercase(), short)) {
            continue;
        }
        is_known = true;
        let resource = resource(api::kueue::workload::API_VERSION, kind, plural);
        let api = objects(client, &resource, (kind == "LocalQueue").then_some(namespace));
        let named = format!("{}.{}/{name}", kind.to_lowercase(), api::kueue::GROUP);
        match read_one(&api, name).await {
            Ok(Some(_)) => found.push((api, name.to_owned(), named)),
            Ok(None) => {}
            // Of a name without a kind, the other kind may be meant.
            Err(kube::Error::Api(status)) if status.code == 403 && word.is_none() => {}
            Err(error) => return Err(told(error)).with_context(|| format!("cannot read {named}")),
        }
    }
    match (found.pop(), found.pop()) {
        (Some(one), None) => Ok(one),
        (Some(_), Some(_)) => bail!(
            "a LocalQueue and a ClusterQueue have this name: write localqueue/{name} or clusterqueue/{name}"
        ),
        (None, _) if !is_known => {
            bail!("{:?} is no kind of queue; known are localqueue and clusterqueue", word.unwrap_or_default())
        }
        (None, _) => bail!(
            "there is no queue {asked}: neither a ClusterQueue, nor a LocalQueue in namespace {namespace}, that you may read"
        ),
    }
}
