//! A release of the chart in a namespace: Helm, its replicas, and what is left of it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::process::Command;

use super::cluster::{Cluster, text};
use super::node::Node;
use super::{Options, PODS, TENANT};
use crate::objects;

/// A release under test.
#[derive(Clone)]
pub(super) struct Release {
    pub(super) options: Arc<Options>,
    pub(super) cluster: Cluster,
    pub(super) node: Node,
    pub(super) namespace: String,
}

/// The default of the chart.
pub(super) const REPLICAS: usize = 2;

/// The label and the taint of a node for replicas alone.
const NODE: &str = "behaviour.muster.dev/installation";

const REGISTERED: [&str; 3] = [
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/muster",
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/muster-kueue",
    "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.visibility.muster.dev",
];

impl Release {
    /// Nodes for pods of the release and of tenants, and what tenants need.
    pub(super) async fn prepare(&self) -> Result<()> {
        for name in ["installation-a", "installation-b"] {
            let node = objects::node(name, "cpu=8");
            self.cluster.create("/api/v1/nodes", &node).await?;
        }
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT}});
        self.cluster.create("/api/v1/namespaces", &namespace).await?;
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "tenant"},
            "rules": [{"apiGroups": ["workload.codeflare.dev"], "resources": ["appwrappers"], "verbs": ["create"]}]});
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "tenant"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tenant"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "tenant"}]});
        let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/team";
        self.cluster.create(&format!("{roles}/roles"), &role).await?;
        self.cluster.create(&format!("{roles}/rolebindings"), &binding).await?;
        Ok(())
    }

    /// A node for replicas alone, with a label and a taint.
    pub(super) async fn prepare_node(&self) -> Result<()> {
        if self.cluster.get("/api/v1/nodes/installation").await?.is_none() {
            let mut node = objects::node("installation", "cpu=8");
            node["metadata"]["labels"][NODE] = "true".into();
            node["spec"]["taints"] = json!([{"key": NODE, "effect": "NoSchedule"}]);
            self.cluster.create("/api/v1/nodes", &node).await?;
        }
        Ok(())
    }

    /// Installs the chart on the node for replicas with values as of `--set-json`, or upgrades what is installed.
    pub(super) async fn install(&self, values: &[String]) -> Result<()> {
        let on_node = [
            format!("nodeSelector={}", json!({NODE: "true"})),
            format!("tolerations={}", json!([{"key": NODE, "operator": "Exists"}])),
        ];
        let mut flags = vec!["--install", "--create-namespace"];
        flags.extend(on_node.iter().chain(values).flat_map(|value| ["--set-json", value]));
        self.helm(&["upgrade", "muster"], Some(&self.options.chart), &flags).await.map(drop)
    }

    /// Runs Helm for the namespace, and returns what it prints.
    pub(super) async fn try_helm(
        &self,
        command: &[&str],
        chart: Option<&Path>,
        flags: &[&str],
    ) -> Result<Result<String, String>> {
        // Helm would wait for the readiness that the nodes simulate; a run must not wait for durations of production.
        const LEASE: [&str; 3] = [
            "leaderElection.leaseDuration=6s",
            "leaderElection.renewDeadline=4s",
            "leaderElection.retryPeriod=1s",
        ];
        let mut line = Command::new(&self.options.helm);
        line.args(command).args(chart).args(["--namespace", &self.namespace, "--kubeconfig"]);
        line.arg(&self.options.kubeconfig).args(flags).kill_on_drop(true);
        if chart.is_some() {
            line.args(LEASE.iter().flat_map(|value| ["--set", *value]));
        }
        let output = line.output().await.context("cannot start helm")?;
        let [printed, errors] =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Ok(if output.status.success() { Ok(printed) } else { Err(errors) })
    }

    pub(super) async fn helm(
        &self,
        command: &[&str],
        chart: Option<&Path>,
        flags: &[&str],
    ) -> Result<String> {
        let result = self.try_helm(command, chart, flags).await?;
        result.map_err(|error| anyhow::anyhow!("helm {} failed: {error}", command.join(" ")))
    }

    pub(super) async fn pods(&self) -> Result<Vec<Value>> {
        let pods = self.cluster.list(&format!("/api/v1/namespaces/{}/pods", self.namespace)).await?;
        Ok(pods
            .into_iter()
            .filter(|pod| pod["metadata"]["labels"]["muster.dev/controller"] == "muster")
            .collect())
    }

    /// Waits until exactly so many replicas run, and all are ready by what their probes say.
    pub(super) async fn ready(&self, count: usize) -> Result<Vec<String>> {
        let what = format!("{count} ready replicas");
        self.cluster.until(&what, async || self.ready_now(count).await).await
    }

    /// The replicas, if exactly so many run and all are ready.
    pub(super) async fn ready_now(&self, count: usize) -> Result<Option<Vec<String>>> {
        let pods = self.pods().await?;
        let ready = pods.iter().filter(|pod| self.node.is_ready(text(&pod["status"]["podIP"])));
        let ready: BTreeSet<_> = ready.map(|pod| text(&pod["metadata"]["name"]).to_owned()).collect();
        Ok((ready.len() == count && pods.len() == count).then(|| ready.into_iter().collect()))
    }

    /// The pod that holds the lease.
    pub(super) async fn leader(&self) -> Result<String> {
        self.cluster
            .until("a leader", async || {
                let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/muster";
                let lease = self.cluster.get(lease).await?.unwrap_or_default();
                let holder =
                    text(&lease["spec"]["holderIdentity"]).split('_').next().unwrap_or_default().to_owned();
                Ok((!holder.is_empty()).then_some(holder))
            })
            .await
    }

    pub(super) async fn running(&self, name: &str, count: usize) -> Result<()> {
        self.cluster
            .until(&format!("{count} running pods of {name}"), async || {
                let pods = self.pods_of(name).await?;
                let running = pods.iter().filter(|pod| pod["status"]["phase"] == "Running");
                Ok((running.count() == count).then_some(()))
            })
            .await
    }

    pub(super) async fn pods_of(&self, job: &str) -> Result<Vec<Value>> {
        let pods = self.cluster.list(PODS).await?;
        Ok(pods.into_iter().filter(|pod| pod["metadata"]["labels"]["job-name"] == *job).collect())
    }

    pub(super) async fn nothing_is_registered(&self) -> Result<()> {
        for path in REGISTERED {
            ensure!(self.cluster.get(path).await?.is_none(), "{path} is left");
        }
        for (kind, group) in [
            ("clusterroles", "rbac.authorization.k8s.io/v1"),
            ("flowschemas", "flowcontrol.apiserver.k8s.io/v1"),
        ] {
            let left = self.cluster.list(&format!("/apis/{group}/{kind}")).await?;
            let left: Vec<_> = left
                .iter()
                .map(|object| text(&object["metadata"]["name"]))
                .filter(|name| name.starts_with("muster"))
                .collect();
            ensure!(left.is_empty(), "{kind} are left: {left:?}");
        }
        Ok(())
    }
}
