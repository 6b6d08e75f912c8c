//! The packing policy of the controller.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::collections::BTreeSet;

use crate::common::{Cluster, Group, resource};
use controllers::{Config, Packing, publish_config, published_config};
use serde_json::json;

/// Places two gangs of one pod each in a cluster of two nodes with room for both. Returns the nodes.
async fn nodes(packing: Packing) -> BTreeSet<String> {
    let cluster = Cluster::new().await;
    for node in ["a", "b"] {
        cluster.node(node, &json!({"cpu": "4", "memory": "16Gi", "pods": "110"})).await;
    }
    let _controller = cluster.start(cluster.client.clone(), Config { packing, ..Config::default() });
    let pods = resource("v1", "Pod", "pods");
    let mut nodes = BTreeSet::new();
    for name in ["one", "two"] {
        let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}});
        let wrapper = json!({
            "apiVersion": "mcad.ibm.com/v1beta1", "kind": "AppWrapper", "metadata": {"name": name},
            "spec": {"resources": {"GenericItems": [{"generictemplate": pod}]}},
        });
        cluster.submit(wrapper).await;
        cluster.wait_state(Group::Mcad, name, "Running", "Dispatched").await;
        let pod = cluster.wait(&pods, "default", name, |_| true).await;
        nodes.insert(pod.metadata.annotations.unwrap()["muster.dev/assignment"].clone());
    }
    nodes
}

#[tokio::test(start_paused = true)]
async fn gangs_are_packed_or_spread_by_the_configured_policy() {
    assert_eq!(nodes(Packing::default()).await.len(), 1);
    assert_eq!(nodes(Packing::Spread).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_published_config_has_the_policies() {
    let cluster = Cluster::new().await;
    let config = Config { packing: Packing::FewestNodes, guessed_hold_us: 7_000_000, ..Config::default() };
    publish_config(&cluster.client, &config).await.unwrap();
    let published = published_config(&cluster.client).await.unwrap().unwrap();
    assert_eq!((published.packing, published.guessed_hold_us), (Packing::FewestNodes, 7_000_000));
}
