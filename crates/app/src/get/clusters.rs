//! `muster get clusters`: the worker clusters of a hub, what is wrong with them, and what runs there. All of it is in objects of the hub.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use apiserver::human_duration;
use jiff::Timestamp;
use kube::Client;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::{Form, List, all_found};
use crate::connection::{self, Connection, resource};
use crate::visibility::told;

/// Flags of `muster get clusters`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only these. Default: all.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    connection: Connection,
}

/// Prints the clusters.
pub(crate) async fn run(args: Args) -> Result<()> {
    let (client, _) = args.connection.open().await?;
    let Some(clusters) = objects(&client, "MultiKueueCluster", "multikueueclusters").await? else {
        bail!("this cluster is no hub: it serves no MultiKueueClusters of {}", api::kueue::GROUP);
    };
    let workloads = objects(&client, "Workload", "workloads").await?.unwrap_or_default();
    let mut rows = rows(&clusters, &workloads, Timestamp::now());
    let missing: Vec<String> =
        args.names.iter().filter(|asked| !rows.iter().any(|row| row.name == **asked)).cloned().collect();
    if !args.names.is_empty() {
        rows.retain(|row| args.names.contains(&row.name));
    }
    list(&rows).print(&args.form, !missing.is_empty(), "clusters found")?;
    all_found(&missing, "cluster", None)
}

async fn objects(client: &Client, kind: &str, plural: &str) -> Result<Option<Vec<Value>>> {
    let resource = resource(api::kueue::workload::API_VERSION, kind, plural);
    match connection::objects(client, &resource, None).list(&ListParams::default()).await {
        Ok(list) => Ok(Some(list.items.iter().map(|object| json!(object)).collect())),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(told(error)).with_context(|| format!("cannot list the {plural}")),
    }
}

/// A cluster.
#[derive(Debug, PartialEq)]
struct Row {
    name: String,
    /// `True`, `False` or `Unknown`.
    active: String,
    /// Since when it is so.
    since: String,
    running: usize,
    /// Why it is not active.
    error: String,
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

fn rows(clusters: &[Value], workloads: &[Value], now: Timestamp) -> Vec<Row> {
    let mut running = BTreeMap::<&str, usize>::new();
    let is_finished =
        |workload: &&Value| condition(workload, "Finished").is_some_and(|c| c["status"] == "True");
    for workload in workloads.iter().filter(|workload| !is_finished(workload)) {
        if let Some(cluster) = workload["status"]["clusterName"].as_str() {
            *running.entry(cluster).or_default() += 1;
        }
    }
    let row = |cluster: &Value| {
        let name = cluster["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let active = condition(cluster, "Active").unwrap_or(&Value::Null);
        let text = |field: &str| active[field].as_str().unwrap_or_default();
        let since = text("lastTransitionTime").parse::<Timestamp>().ok();
        let error = if active["status"] == "True" || active.is_null() {
            String::new()
        } else {
            format!("{}: {}", text("reason"), text("message"))
        };
        Row {
            active: active["status"].as_str().unwrap_or("Unknown").to_owned(),
            since: since.map(|since| human_duration(now.duration_since(since).as_secs())).unwrap_or_default(),
            running: running.get(name.as_str()).copied().unwrap_or_default(),
            error,
            name,
        }
    };
    clusters.iter().map(row).collect()
}

fn list(rows: &[Row]) -> List {
    let cells = |row: &Row| {
        vec![
            row.name.clone(),
            row.active.clone(),
            row.since.clone(),
            row.running.to_string(),
            row.error.clone(),
        ]
    };
    let value = |row: &Row| json!({"name": row.name, "active": row.active, "since": row.since, "running": row.running, "error": row.error});
    List {
        columns: vec!["NAME", "ACTIVE", "SINCE", "RUNNING", "ERROR"],
        rows: rows.iter().map(cells).collect(),
        names: rows.iter().map(|row| format!("multikueuecluster/{}", row.name)).collect(),
        values: rows.iter().map(value).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_has_its_running_gangs_and_what_is_wrong() {
        let cluster = |name: &str, status: &str, reason: &str| {
            json!({"metadata": {"name": name}, "status": {"conditions": [{"type": "Active", "status": status,
                "reason": reason, "message": "no answer", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
        };
        let workload = |cluster: &str, finished: &str| json!({"status": {"clusterName": cluster, "conditions": [{"type": "Finished", "status": finished}]}});
        let clusters =
            [cluster("east", "True", "Active"), cluster("west", "False", "ClientConnectionFailed")];
        let workloads = [workload("east", "False"), workload("east", "True"), workload("west", "False")];
        let now = "2026-01-01T00:05:00Z".parse().unwrap();
        let found = rows(&clusters, &workloads, now);
        let expected = |name: &str, active: &str, error: &str| Row {
            name: name.into(),
            active: active.into(),
            since: "5m".into(),
            running: 1,
            error: error.into(),
        };
        assert_eq!(
            found,
            [expected("east", "True", ""), expected("west", "False", "ClientConnectionFailed: no answer")]
        );
    }
}
