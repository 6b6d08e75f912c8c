//! Jobs in racks, in the queue of a flavor with a topology, while Kueue and Muster take each other's place.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use api::kueue::TopologyAssignment;
use serde_json::{Value, json};

use super::cluster::text;
use super::release::Release;
use super::{JOBS, TENANT};
use crate::objects;

const API: &str = "/apis/kueue.x-k8s.io/v1beta2";
/// The name of the topology, its flavor and its ClusterQueue, and the taint of its nodes.
const RACKS: &str = "racks";
const LEVEL: &str = "behaviour.muster.dev/rack";
/// Each node with its rack. A node has room for one pod.
const NODES: [(&str, &str); 4] = [("rack-a1", "a"), ("rack-a2", "a"), ("rack-b1", "b"), ("rack-b2", "b")];

impl Release {
    /// Nodes in two racks, and a queue for them.
    pub(super) async fn prepare_racks(&self) -> Result<()> {
        for (name, rack) in NODES {
            let mut node = objects::node(name, "cpu=2");
            node["metadata"]["labels"][LEVEL] = rack.into();
            node["spec"]["taints"] = json!([{"key": RACKS, "effect": "NoSchedule"}]);
            self.cluster.create("/api/v1/nodes", &node).await?;
        }
        let levels = json!([{"nodeLabel": LEVEL}, {"nodeLabel": "kubernetes.io/hostname"}]);
        let topology = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Topology",
            "metadata": {"name": RACKS}, "spec": {"levels": levels}});
        self.cluster.create(&format!("{API}/topologies"), &topology).await?;
        let flavor = json!({"topologyName": RACKS, "tolerations": [{"key": RACKS, "operator": "Exists"}],
            "nodeLabels": {"kubernetes.io/os": "linux"}});
        self.queue([RACKS; 3], flavor, "8").await
    }

    /// Creates a Job that needs nodes of its own, all in one rack.
    pub(super) async fn submit_to_rack(&self, name: &str, pods: u32) -> Result<()> {
        let mut job = objects::job(name, pods, "cpu=2", "10m");
        job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = RACKS.into();
        job["spec"]["template"]["metadata"]["annotations"]["kueue.x-k8s.io/podset-required-topology"] =
            LEVEL.into();
        self.cluster.create(JOBS, &job).await.map(drop)
    }

    /// The nodes of the pods of a Job, by name, when all run. They are those that the assignment of its Workload names.
    pub(super) async fn nodes_of(&self, job: &str, pods: usize) -> Result<BTreeMap<String, String>> {
        self.running(job, pods).await?;
        let found = self.pods_of(job).await?;
        let of = |pod: &Value| {
            (text(&pod["metadata"]["name"]).to_owned(), text(&pod["spec"]["nodeName"]).to_owned())
        };
        let nodes: BTreeMap<String, String> = found.iter().map(of).collect();
        let racks =
            nodes.values().map(|node| NODES.iter().find(|(name, _)| name == node).map(|(_, rack)| *rack));
        let racks: Vec<_> = racks.collect();
        ensure!(racks[0].is_some() && racks.iter().all(|rack| *rack == racks[0]), "{job} is in {racks:?}");
        let workloads = self.cluster.list(&format!("{API}/workloads")).await?;
        let workload = workloads.iter().find(|of| of["metadata"]["ownerReferences"][0]["name"] == job);
        let admission = &workload.context("the Job has no Workload")?["status"]["admission"];
        let assigned = &admission["podSetAssignments"][0]["topologyAssignment"];
        let assigned = TopologyAssignment::from_v1beta2(assigned).map_err(anyhow::Error::msg)?.domains;
        let assigned: BTreeSet<String> =
            assigned.into_iter().filter_map(|mut domain| domain.values.pop()).collect();
        let used: BTreeSet<String> = nodes.values().cloned().collect();
        ensure!(assigned == used, "{job} is assigned {assigned:?}, and runs on {used:?}");
        Ok(nodes)
    }

    /// Deletes what `prepare_racks` has made, if no Workload is left.
    pub(super) async fn remove_racks(&self) -> Result<()> {
        for path in [
            &format!("{API}/namespaces/{TENANT}/localqueues/{RACKS}"),
            &format!("{API}/clusterqueues/{RACKS}"),
            &format!("{API}/resourceflavors/{RACKS}"),
            &format!("{API}/topologies/{RACKS}"),
        ] {
            self.cluster.delete(path).await?;
            let gone = async || Ok(self.cluster.get(path).await?.is_none().then_some(()));
            self.cluster.until(&format!("the end of {path}"), gone).await?;
        }
        for (node, _) in NODES {
            self.cluster.delete(&format!("/api/v1/nodes/{node}")).await?;
        }
        Ok(())
    }
}
