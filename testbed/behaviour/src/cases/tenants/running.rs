//! What a tenant changes of gangs that run: the gangs, the quota trees that they are charged to, and the probes.
//!
//! A probe is a gang that starts or waits by what the running gang holds. So it shows whether a change had an effect.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::attempts::Request;
use super::{Stage, Tenant};
use crate::objects::{Kind, WRAPPER, job, with, wrap};

/// A tree of MCAD's quota.
const SUBTREE: Kind = Kind("quota.codeflare.dev/v1alpha1", "QuotaSubtree");
/// The tree whose group each gang selects by its label.
const OF_GANG: &str = "quota_gang";
/// The tree whose group the namespace of the tenant selects by its label.
const OF_NAMESPACE: &str = "quota_namespace";
/// How long the gang declares that runs longer, in seconds. An overrun of less than a minute does not count.
const DECLARED_S: u32 = 2;

/// The gangs of the tenant that run before its attempts. Each has its own node of the same name.
pub(super) const RUNNING: [&str; 4] = ["run-label", "run-spec", "run-priority", "run-places"];
/// The gang of the tenant that runs longer than it declares.
pub(super) const OVERRUNS: &str = "run-longer";

/// An AppWrapper of a Job on one of these nodes.
fn gang(name: &str, pods: u32, nodes: &[&str]) -> Value {
    wrap(name, [job_on(name, pods, nodes)])
}

/// A Job whose pods, of one CPU each, run on one of these nodes.
pub(super) fn job_on(name: &str, pods: u32, nodes: &[&str]) -> Value {
    let host = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": nodes});
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [host]}]}});
    with(job(name, pods, "cpu=1", "1h"), "/spec/template/spec/affinity", json!({"nodeAffinity": required}))
}

fn in_group(wrapper: Value, group: &str) -> Value {
    with(wrapper, "/metadata/labels", json!({OF_GANG: group}))
}

fn declared(wrapper: Value, seconds: u32) -> Value {
    with(wrapper, "/spec/schedulingSpec", json!({"dispatchDuration": {"expected": seconds}}))
}

fn prioritized(wrapper: Value, priority: i32) -> Value {
    with(wrapper, "/spec/priority", json!(priority))
}

/// The gang of this name, as the tenant submits it.
pub(super) fn of(name: &str) -> Value {
    match name {
        "run-label" => in_group(gang(name, 1, &[name]), "label"),
        "run-spec" => in_group(gang(name, 2, &[name]), "spec"),
        // The tightest fit is the node of its own name.
        "run-places" => gang(name, 1, &[name, FREE]),
        OVERRUNS => declared(gang(name, 1, &[QUEUE]), DECLARED_S),
        _ => gang(name, 1, &[name]),
    }
}

/// The node that a forged assignment claims.
pub(super) const FREE: &str = "free";
/// The node for which gangs queue.
const QUEUE: &str = "queue";

/// The probe of a running gang, under another name. Its author is an admin.
pub(super) fn probe(of: &str, name: &str) -> Value {
    match of {
        "run-label" => in_group(gang(name, 1, &[FREE]), "label"),
        "run-spec" => in_group(gang(name, 1, &[FREE]), "spec"),
        "run-places" => gang(name, 1, &[FREE]),
        OVERRUNS => declared(gang(name, 1, &[QUEUE]), 10_000),
        _ => prioritized(gang(name, 1, &[of]), 3),
    }
}

/// An AppWrapper with the label of a group that the namespace does not have, and more CPUs than its own group has.
pub(super) fn of_other_group(name: &str) -> Value {
    with(wrap(name, [job(name, 1, "cpu=60", "1h")]), "/metadata/labels", json!({OF_NAMESPACE: "blue"}))
}

/// The patch that moves a gang to another group.
pub(super) fn other_group() -> Value {
    json!({"metadata": {"labels": {OF_GANG: "default"}}})
}

/// The patch of a running Job with places on another node.
pub(super) fn forged_places() -> Value {
    json!({"metadata": {"annotations": {"muster.dev/assignment": format!("[{{\"{FREE}\":1}}]")}}})
}

/// The spec of the gang `run-spec` with one pod instead of two.
pub(super) fn smaller() -> Value {
    json!({"spec": gang("run-spec", 1, &["run-spec"])["spec"]})
}

impl Tenant<'_> {
    /// Creates the quota trees and starts the gangs.
    pub(super) async fn start_gangs(&self) -> Result<()> {
        let fixture = self.fixture;
        self.plant().await?;
        for (node, cpus) in RUNNING.into_iter().map(|name| (name, if name == "run-spec" { 2 } else { 1 })) {
            fixture.node(node, &format!("cpu={cpus}")).await?;
        }
        fixture.node(FREE, "cpu=2").await?;
        fixture.node(QUEUE, "cpu=3").await?;
        for name in RUNNING {
            self.submit(of(name)).await?;
            fixture.wait_state(name, "Running/Running").await?;
        }
        // Of another tenant: a gang that runs long, and one that waits for its end.
        let others = format!("/apis/{}/namespaces/{}/appwrappers", WRAPPER.0, self.other);
        for (wrapper, state) in [
            (declared(prioritized(gang("runs", 1, &[QUEUE]), 50), 100_000), "Running"),
            (prioritized(gang("waits", 3, &[QUEUE]), 50), "Pending"),
        ] {
            fixture.call("POST", &others, Some(&wrapper)).await?;
            let path = format!("{others}/{}", crate::objects::name(&wrapper));
            fixture
                .eventually(&format!("{state} gang of the other tenant"), async || {
                    let now = fixture.call("GET", &path, None).await?;
                    let is_told = state == "Running" || !now["status"]["message"].is_null();
                    Ok((now["status"]["state"] == state && is_told).then_some(()))
                })
                .await?;
        }
        // It passes the gang that waits: it declares to end before.
        self.submit(of(OVERRUNS)).await?;
        fixture.wait_state(OVERRUNS, "Running/Running").await.map(drop)
    }

    async fn submit(&self, wrapper: Value) -> Result<()> {
        let create = Request::create(self.fixture.path(WRAPPER, ""), wrapper);
        let sent = self.send(&create).await?;
        ensure!(sent.is_ok(), "the tenant may not create its gang: {sent:?}");
        Ok(())
    }

    /// Creates the quota trees.
    async fn plant(&self) -> Result<()> {
        let group = |name: &str, cpus: u32, limited: bool| json!({"name": name, "quotas": {"hardLimit": limited, "requests": {"cpu": cpus}}});
        let groups = [
            (OF_GANG, [group("label", 1, true), group("spec", 2, true), group("default", 5_000, false)]),
            (
                OF_NAMESPACE,
                [group("red", 50, true), group("blue", 1_000, false), group("default", 5_000, false)],
            ),
        ];
        for (tree, groups) in groups {
            let root = format!("{tree}-root").replace('_', "-");
            let parts = [
                ("", root.clone(), json!([group(&root, 10_000, false)])),
                (&*root, format!("{root}-groups"), json!(groups)),
            ];
            for (parent, name, children) in parts {
                let part = json!({"apiVersion": SUBTREE.0, "kind": SUBTREE.1,
                    "metadata": {"name": name, "labels": {"tree": tree}}, "spec": {"parent": parent, "children": children}});
                self.fixture.create(&part).await?;
            }
        }
        let label = json!({"metadata": {"labels": {OF_NAMESPACE: "red"}}});
        self.fixture
            .call("PATCH", &format!("/api/v1/namespaces/{}", self.fixture.namespace()), Some(&label))
            .await?;
        Ok(())
    }

    /// Waits until the controller has recorded that a gang ran longer than it declared.
    pub(super) async fn wait_overrun(&self) -> Result<()> {
        let fixture = self.fixture;
        fixture
            .eventually("a record of the overrun", async || {
                let map = fixture.call("GET", "/api/v1/namespaces/kube-system/configmaps/muster", None).await;
                let record = map.ok().map(|map| map["data"]["overruns"].to_string()).unwrap_or_default();
                // The controller looks at the time when something happens.
                let touched = json!({"metadata": {"labels": {"touched": fastrand::u32(..).to_string()}}});
                fixture.patch(WRAPPER, OVERRUNS, &touched).await?;
                Ok(record.contains(fixture.namespace()).then_some(()))
            })
            .await
    }

    /// Submits the probe of a running gang, once the webhook answers. Returns its name.
    pub(super) async fn submit_probe(&self, of: &str, stage: Stage) -> Result<String> {
        let fixture = self.fixture;
        let name = format!("{of}-{}", if stage == Stage::Restarted { "after" } else { "before" });
        let (path, wrapper) = (fixture.path(WRAPPER, ""), probe(of, &name));
        fixture
            .eventually("the probe is accepted", async || {
                Ok(fixture.call("POST", &path, Some(&wrapper)).await.ok())
            })
            .await?;
        Ok(name)
    }
}
