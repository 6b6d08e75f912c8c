//! `muster get queues`: the quota of queues and what uses it, a row for each flavor and resource. All of it is in the objects of the
//! queues, so that it needs no more than the right to read them; only what MCAD's quota trees hold is known by reading the cluster.

mod lent;
mod rows;

use anyhow::{Context, Result, bail};
use kube::Client;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::{Form, Format, List, Scope, all_found};
use crate::connection::{self, Connection, resource};
use crate::visibility::told;
pub(crate) use rows::Row;

/// Flags of `muster get queues`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only these, such as `research`, `clusterqueue/research`, `localqueue/research`. Default: all.
    #[arg(value_name = "[KIND/]NAME")]
    names: Vec<String>,
    #[command(flatten)]
    scope: Scope,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    connection: Connection,
}

/// Prints the queues.
pub(crate) async fn run(args: Args) -> Result<()> {
    let (client, _) = args.connection.open().await?;
    let namespace = args.scope.namespace(&client);
    let mut rows = read(&client, namespace.as_deref()).await?;
    let missing: Vec<String> =
        args.names.iter().filter(|asked| !rows.iter().any(|row| row.is_named(asked))).cloned().collect();
    if !args.names.is_empty() {
        rows.retain(|row| args.names.iter().any(|asked| row.is_named(asked)));
    }
    let list = list(&rows, args.scope.all_namespaces, args.form.output == Format::Wide);
    list.print(&args.form, !missing.is_empty(), "queues found")?;
    all_found(&missing, "queue", namespace.as_deref())
}

fn list(rows: &[Row], has_namespace: bool, is_wide: bool) -> List {
    let mut columns = if has_namespace { vec!["NAMESPACE"] } else { Vec::new() };
    columns.extend([
        "NAME", "COHORT", "FLAVOR", "RESOURCE", "QUOTA", "USED", "BORROWED", "LENT", "WAITING", "ADMITTED",
    ]);
    if is_wide {
        columns.extend(["BORROWING-LIMIT", "LENDING-LIMIT", "CLUSTERQUEUE"]);
    }
    columns.push("STATE");
    let mut names: Vec<String> = rows.iter().map(|row| row.object.clone()).collect();
    names.dedup();
    List {
        columns,
        rows: rows.iter().map(|row| row.cells(has_namespace, is_wide)).collect(),
        names,
        values: rows.iter().map(Row::value).collect(),
    }
}

/// The quota of one queue, as a table.
pub(crate) fn amounts(rows: &[Row]) -> (Vec<&'static str>, Vec<Vec<String>>) {
    (vec!["FLAVOR", "RESOURCE", "QUOTA", "USED", "BORROWED", "LENT"], rows.iter().map(Row::amounts).collect())
}

/// The objects of a kind of Kueue's API; `None`: it is not served.
async fn objects(
    client: &Client,
    kind: &str,
    plural: &str,
    namespace: Option<&str>,
) -> kube::Result<Option<Vec<Value>>> {
    let resource = resource(api::kueue::workload::API_VERSION, kind, plural);
    match connection::objects(client, &resource, namespace).list(&ListParams::default()).await {
        Ok(list) => Ok(Some(list.items.iter().map(|object| json!(object)).collect())),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// The rows of all queues. What the user may not read is left out, and it is said.
pub(crate) async fn read(client: &Client, namespace: Option<&str>) -> Result<Vec<Row>> {
    let (shared, cohorts, locals) = tokio::join!(
        objects(client, "ClusterQueue", "clusterqueues", None),
        objects(client, "Cohort", "cohorts", None),
        objects(client, "LocalQueue", "localqueues", namespace),
    );
    let shared = match shared {
        Err(kube::Error::Api(status)) if status.code == 403 => {
            eprintln!(
                "muster: ClusterQueues are left out, and what LocalQueues may use of them: {}",
                status.message
            );
            Some(Vec::new())
        }
        shared => shared.map_err(told).context("cannot list the ClusterQueues")?,
    };
    let mut rows = rows::of_cluster_queues(&shared.clone().unwrap_or_default());
    // A cohort without an object is its own root, and so is one that may not be read.
    lent::fill(&mut rows, &cohorts.ok().flatten().unwrap_or_default());
    let locals = locals.map_err(told).context("cannot list the LocalQueues")?;
    rows.extend(rows::of_local_queues(&locals.clone().unwrap_or_default()));
    let trees = trees(client).await?;
    if shared.is_none() && locals.is_none() && trees.is_none() {
        bail!(
            "this cluster has no queues: neither ClusterQueues of {} nor QuotaSubtrees are served; AppWrappers wait in one queue: \
             muster get gangs",
            api::kueue::GROUP
        );
    }
    rows.extend(trees.unwrap_or_default());
    Ok(rows)
}

/// The groups of MCAD's quota trees; `None`: they are not served.
async fn trees(client: &Client) -> Result<Option<Vec<Row>>> {
    let mut is_served = false;
    for group in api::quota::Group::ALL {
        let resource = resource(group.api_version(), api::quota::KIND, api::quota::PLURAL);
        match connection::objects(client, &resource, None).list(&ListParams::default().limit(1)).await {
            Ok(list) if list.items.is_empty() => is_served = true,
            Ok(_) => {
                let observer = Connection::observe(client.clone(), false).await?;
                let rows = observer.quota_groups().iter().map(rows::of_group).collect();
                observer.close().await;
                return Ok(Some(rows));
            }
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(kube::Error::Api(status)) if status.code == 403 => {
                eprintln!("muster: quota trees are left out: {}", status.message);
                is_served = true;
            }
            Err(error) => return Err(told(error)).context("cannot list the QuotaSubtrees"),
        }
    }
    Ok(is_served.then(Vec::new))
}
