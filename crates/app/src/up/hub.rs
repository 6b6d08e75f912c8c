//! The objects that make a cluster the hub of others, and the queue that all of them have.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use api::kueue::jobs::remote::CONTROLLER;
use api::kueue::workload::API_VERSION;
use api::quantity::Quantity;
use kube::Client;
use kube::api::PostParams;
use serde_json::{Value, json};

use super::worker::ClusterShape;
use crate::connection::{objects, resource};

/// The queue of the hub and its workers: a `LocalQueue` in the namespace `default`, its `ClusterQueue` and its flavor.
pub(super) const QUEUE: &str = "main";
/// The check, and its configuration.
const CHECK: &str = "clusters";
/// The namespace of the Secrets.
const NAMESPACE: &str = "kueue-system";

/// Amounts by resource.
pub(super) type Quota = BTreeMap<String, String>;

/// What nodes have together. Pods are counted, so that a Workload without requests gets a flavor, too, and with it the check.
pub(super) fn quota(nodes: &[Value]) -> Quota {
    let mut milli = BTreeMap::<String, i64>::new();
    for (name, amount) in nodes.iter().filter_map(|node| node["status"]["allocatable"].as_object()).flatten()
    {
        let amount = amount.as_str().and_then(|text| Quantity::parse(text).ok()).map_or(0, Quantity::milli);
        let sum = milli.entry(name.clone()).or_default();
        *sum = sum.saturating_add(amount);
    }
    let text =
        |milli: i64| if milli % 1_000 == 0 { (milli / 1_000).to_string() } else { format!("{milli}m") };
    milli.into_iter().map(|(name, amount)| (name, text(amount))).collect()
}

async fn create(
    client: &Client,
    kind: &str,
    plural: &str,
    namespace: Option<&str>,
    name: &str,
    body: Value,
) -> Result<()> {
    let api_version = if ["Namespace", "Secret"].contains(&kind) { "v1" } else { API_VERSION };
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    if let (Some(fields), Value::Object(body)) = (object.as_object_mut(), body) {
        for (field, value) in body {
            match (field.as_str(), value) {
                ("annotations", annotations) => fields["metadata"]["annotations"] = annotations,
                (_, value) => {
                    fields.insert(field, value);
                }
            }
        }
    }
    let object = serde_json::from_value(object)?;
    let api = objects(client, &resource(api_version, kind, plural), namespace);
    let created = api.create(&PostParams::default(), &object).await;
    created.map(drop).with_context(|| format!("cannot create {kind} {name}"))
}

/// Creates the queue. With a check, its Workloads run in other clusters, so that none of its pods needs a node here.
pub(super) async fn queue(client: &Client, quota: &Quota, check: Option<&str>) -> Result<()> {
    create(client, "ResourceFlavor", "resourceflavors", None, QUEUE, json!({"spec": {}})).await?;
    let resources: Vec<Value> =
        quota.iter().map(|(name, amount)| json!({"name": name, "nominalQuota": amount})).collect();
    let covered: Vec<&String> = quota.keys().collect();
    let flavor = json!({"name": QUEUE, "resources": resources});
    let mut body = json!({"spec": {"namespaceSelector": {},
        "resourceGroups": [{"coveredResources": covered, "flavors": [flavor]}]}});
    if let Some(check) = check {
        body["spec"]["admissionChecksStrategy"] = json!({"admissionChecks": [{"name": check}]});
        body["annotations"] = json!({"muster.dev/place-pods": "false"});
    }
    create(client, "ClusterQueue", "clusterqueues", None, QUEUE, body).await?;
    let local = json!({"spec": {"clusterQueue": QUEUE}});
    create(client, "LocalQueue", "localqueues", Some("default"), QUEUE, local).await
}

/// Makes a worker known at the hub.
pub(super) async fn join(client: &Client, shape: &ClusterShape, kubeconfig: &str) -> Result<()> {
    let namespace = resource("v1", "Namespace", "namespaces");
    if objects(client, &namespace, None).get_opt(NAMESPACE).await?.is_none() {
        create(client, "Namespace", "namespaces", None, NAMESPACE, json!({})).await?;
    }
    let secret = format!("{}-kubeconfig", shape.name);
    let data = json!({"stringData": {"kubeconfig": kubeconfig}});
    create(client, "Secret", "secrets", Some(NAMESPACE), &secret, data).await?;
    let source = json!({"kubeConfig": {"location": secret, "locationType": "Secret"}});
    let spec = json!({"spec": {"clusterSource": source}});
    create(client, "MultiKueueCluster", "multikueueclusters", None, &shape.name, spec).await
}

/// Makes the check of all workers, and the queue whose quota is what they have together.
pub(super) async fn set_up(client: &Client, clusters: &[ClusterShape]) -> Result<()> {
    let names: Vec<&str> = clusters.iter().map(|shape| shape.name.as_str()).collect();
    create(
        client,
        "MultiKueueConfig",
        "multikueueconfigs",
        None,
        CHECK,
        json!({"spec": {"clusters": names}}),
    )
    .await?;
    let parameters = json!({"apiGroup": api::kueue::GROUP, "kind": "MultiKueueConfig", "name": CHECK});
    let spec = json!({"spec": {"controllerName": CONTROLLER, "parameters": parameters}});
    create(client, "AdmissionCheck", "admissionchecks", None, CHECK, spec).await?;
    let nodes: Vec<Value> = clusters.iter().flat_map(|shape| shape.nodes.manifests()).collect();
    queue(client, &quota(&nodes), Some(CHECK)).await
}
