//! `muster get nodes`: what nodes have, what pods use of it, and what is promised to gangs whose pods are not there yet. The cluster is
//! read with the rights of the user and counted as the controller counts it.

use std::collections::BTreeMap;

use anyhow::Result;
use api::kueue::quantity::canonical;
use controllers::{NodeAmounts, NodeReport};
use kube::Client;
use serde_json::{Value, json};

use super::{Form, Format, List, all_found};
use crate::connection::Connection;

/// Resources that only `-o wide` shows.
const MINOR: [&str; 2] = ["pods", "ephemeral-storage"];

/// Flags of `muster get nodes`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only these. Default: all.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Sums for each flavor instead of nodes. A node of several flavors counts in each.
    #[arg(long, conflicts_with = "names")]
    by_flavor: bool,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    connection: Connection,
}

/// Prints the nodes.
pub(crate) async fn run(args: Args) -> Result<()> {
    let (client, _) = args.connection.open().await?;
    let mut nodes = read(client).await?;
    let name = |asked: &String| asked.strip_prefix("node/").unwrap_or(asked).to_owned();
    let names: Vec<String> = args.names.iter().map(name).collect();
    let missing: Vec<String> =
        names.iter().filter(|name| !nodes.iter().any(|node| node.name == **name)).cloned().collect();
    if !names.is_empty() {
        nodes.retain(|node| names.contains(&node.name));
    }
    if args.by_flavor {
        nodes = by_flavor(&nodes);
    }
    let list = list(&nodes, args.by_flavor, args.form.output != Format::Table);
    list.print(&args.form, !missing.is_empty(), "nodes found")?;
    all_found(&missing, "node", None)
}

/// All nodes, as the controller counts them.
pub(crate) async fn read(client: Client) -> Result<Vec<NodeReport>> {
    let observer = Connection::observe(client, false).await?;
    let nodes = observer.nodes();
    observer.close().await;
    Ok(nodes)
}

/// The table: a row for each node and resource.
fn list(nodes: &[NodeReport], is_by_flavor: bool, is_whole: bool) -> List {
    let rows = nodes.iter().flat_map(|node| {
        let is_shown = move |(name, _): &(&String, &NodeAmounts)| is_whole || !MINOR.contains(&name.as_str());
        node.resources.iter().filter(is_shown).map(move |(resource, amounts)| {
            let name = if is_by_flavor { None } else { Some(node.name.clone()) };
            let state = (!is_by_flavor).then(|| state(node).to_owned());
            name.into_iter()
                .chain([node.flavors.join(",")])
                .chain(cells(resource, amounts))
                .chain(state)
                .collect()
        })
    });
    let mut columns = vec!["FLAVOR", "RESOURCE", "ALLOCATABLE", "USED", "PROMISED", "FREE"];
    if !is_by_flavor {
        columns.insert(0, "NAME");
        columns.push("STATE");
    }
    List {
        columns,
        rows: rows.collect(),
        names: nodes.iter().map(|node| format!("node/{}", node.name)).collect(),
        values: nodes.iter().map(|node| value(node, is_by_flavor)).collect(),
    }
}

/// The resources of one node, as a table.
pub(crate) fn amounts(node: &NodeReport) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let row = |(resource, amounts): (&String, &NodeAmounts)| cells(resource, amounts).into();
    (vec!["RESOURCE", "ALLOCATABLE", "USED", "PROMISED", "FREE"], node.resources.iter().map(row).collect())
}

fn cells(resource: &str, amounts: &NodeAmounts) -> [String; 5] {
    let text = |amount| canonical(resource, amount);
    let NodeAmounts { allocatable, used, promised, free } = *amounts;
    [resource.to_owned(), text(allocatable), text(used), text(promised), text(free)]
}

/// Whether it takes pods, and why not.
pub(crate) fn state(node: &NodeReport) -> &'static str {
    node.trouble.unwrap_or("Ready")
}

fn value(node: &NodeReport, is_by_flavor: bool) -> Value {
    let amounts = |(name, amounts): (&String, &NodeAmounts)| {
        let text = |amount| canonical(name, amount);
        let NodeAmounts { allocatable, used, promised, free } = *amounts;
        let amounts = json!({"allocatable": text(allocatable), "used": text(used), "promised": text(promised), "free": text(free)});
        (name.clone(), amounts)
    };
    let resources: serde_json::Map<String, Value> = node.resources.iter().map(amounts).collect();
    if is_by_flavor {
        return json!({"flavor": node.flavors.join(","), "resources": resources});
    }
    json!({"name": node.name, "state": state(node), "flavors": node.flavors, "resources": resources})
}

/// The sums of the nodes of each flavor, and of those that are in none.
fn by_flavor(nodes: &[NodeReport]) -> Vec<NodeReport> {
    let mut sums: BTreeMap<Vec<String>, NodeReport> = BTreeMap::new();
    for node in nodes {
        let flavors: Vec<Vec<String>> = match &*node.flavors {
            [] => vec![Vec::new()],
            flavors => flavors.iter().map(|flavor| vec![flavor.clone()]).collect(),
        };
        for flavors in flavors {
            let empty = || NodeReport { flavors: flavors.clone(), ..NodeReport::default() };
            let sum = sums.entry(flavors.clone()).or_insert_with(empty);
            sum.name = flavors.concat();
            for (resource, amounts) in &node.resources {
                sum.resources.entry(resource.clone()).or_default().add(amounts);
            }
        }
    }
    sums.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_summed_by_flavor_and_a_node_of_two_flavors_counts_in_both() {
        let node = |name: &str, flavors: &[&str], cpu: i64| {
            let amounts = NodeAmounts { allocatable: cpu, used: 1000, promised: 0, free: cpu - 1000 };
            NodeReport {
                name: name.into(),
                flavors: flavors.iter().map(|flavor| (*flavor).to_owned()).collect(),
                resources: BTreeMap::from([("cpu".into(), amounts), ("pods".into(), amounts)]),
                trouble: None,
            }
        };
        let nodes = [node("a", &["x", "y"], 4000), node("b", &["x"], 2500), node("c", &[], 1000)];
        let rows: Vec<String> =
            list(&by_flavor(&nodes), true, false).rows.iter().map(|row| row.join(" ")).collect();
        assert_eq!(rows, [" cpu 1 1 0 0", "x cpu 6500m 2 0 4500m", "y cpu 4 1 0 3"]);
        let list = list(&nodes, false, true);
        assert_eq!(list.rows[1].join(" "), "a x,y pods 4k 1k 0 3k Ready");
        assert_eq!(list.names, ["node/a", "node/b", "node/c"]);
    }
}
