//! Plays a case on both clusters at the same time, and compares the outcome of each probe.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::future::{try_join, try_join_all};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::case::{Case, HOST_NAME, NAMESPACES, PROVISIONER, RUNTIME_CLASS, TEAM, node_name};
use super::pods::{MISSING, pinned};
use crate::objects::name;
use crate::samples::server::Server;

/// The interval between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(15);
/// How often a probe is made again whose outcomes differ: an informer of the real scheduler may not know of a change yet.
const REPETITIONS: usize = 2;
const PODS: &str = "/api/v1/pods";
const NODES: &str = "/api/v1/nodes";
const CLAIMS: &str = "/api/v1/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";

/// What became of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The API server refused it, with this status.
    Refused(u64),
    /// It was bound to this node.
    Bound(String),
    /// It waits, with the reason and the message of its condition `PodScheduled`.
    Waits(String, String),
    /// Neither happened in time.
    Nothing,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(status) => write!(f, "refused with {status}"),
            Self::Bound(node) => write!(f, "on {node}"),
            Self::Waits(reason, message) => write!(f, "{reason}: {message}"),
            Self::Nothing => f.write_str("neither bound nor told why not"),
        }
    }
}

/// A pod of which the schedulers say different things.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The pod.
    pub pod: Value,
    /// What the real scheduler does.
    pub real: Outcome,
    /// What the simulated scheduler does.
    pub simulated: Outcome,
}

/// What a case has found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The number of probes.
    pub probes: usize,
    /// Probes that both bind.
    pub bound: usize,
    /// Probes that both refuse at the API.
    pub refused: usize,
    /// Probes whose outcomes were alike only when they were made again.
    pub repeated: usize,
    /// How many nodes each reason names, in messages that are alike.
    pub reasons: BTreeMap<String, usize>,
    /// The differences.
    pub differences: Vec<Difference>,
}

/// The two clusters.
pub struct Clusters {
    /// With kube-scheduler.
    pub real: Server,
    /// With the simulated scheduler.
    pub simulated: Server,
}

impl Clusters {
    /// Removes what an earlier run has left, and creates the namespaces and the runtime class.
    pub async fn prepare(&self) -> Result<()> {
        try_join(prepare(&self.real), prepare(&self.simulated)).await.map(drop)
    }

    /// Plays a case, and removes its objects.
    pub async fn play(&self, case: &Case) -> Result<Found> {
        try_join(set_up(&self.real, case), set_up(&self.simulated, case)).await?;
        let mut found = Found::default();
        for probe in &case.probes {
            self.probe(case, probe, &mut found).await?;
        }
        try_join(clean_up(&self.real), clean_up(&self.simulated)).await?;
        Ok(found)
    }

    async fn probe(&self, case: &Case, probe: &Value, found: &mut Found) -> Result<()> {
        found.probes += 1;
        let (real, simulated) = self.outcomes(probe, found).await?;
        if !are_alike(&real, &simulated) {
            found.differences.push(Difference { pod: probe.clone(), real, simulated });
            return Ok(());
        }
        match (&real, &simulated) {
            (Outcome::Bound(real), Outcome::Bound(simulated)) => {
                found.bound += 1;
                // A claim that has a volume now would decide.
                if real != simulated && probe["spec"]["volumes"].is_null() {
                    for node in [real, simulated] {
                        self.check_node(case, probe, node, found).await?;
                    }
                }
            }
            (Outcome::Refused(_), _) => found.refused += 1,
            (Outcome::Waits(_, message), _) => count(message, &mut found.reasons),
            (Outcome::Bound(_) | Outcome::Nothing, _) => {}
        }
        Ok(())
    }

    /// Checks that both schedulers accept a node that one of them has chosen, which scores may do otherwise.
    async fn check_node(&self, case: &Case, probe: &Value, node: &str, found: &mut Found) -> Result<()> {
        let at = (0..case.nodes.len()).find(|at| node_name(case.seed, *at) == node);
        let probe = pinned(probe, at.with_context(|| format!("{node} is not a node of the case"))?);
        let (real, simulated) = self.outcomes(&probe, found).await?;
        if real != simulated || !matches!(real, Outcome::Bound(_)) {
            found.differences.push(Difference { pod: probe, real, simulated });
        }
        Ok(())
    }

    async fn outcomes(&self, probe: &Value, found: &mut Found) -> Result<(Outcome, Outcome)> {
        let mut outcomes = try_join(outcome(&self.real, probe), outcome(&self.simulated, probe)).await?;
        for repetition in 0..REPETITIONS {
            if are_alike(&outcomes.0, &outcomes.1) {
                found.repeated += usize::from(repetition > 0);
                break;
            }
            outcomes = try_join(outcome(&self.real, probe), outcome(&self.simulated, probe)).await?;
        }
        Ok(outcomes)
    }
}

fn are_alike(real: &Outcome, simulated: &Outcome) -> bool {
    match (real, simulated) {
        (Outcome::Bound(_), Outcome::Bound(_)) => true,
        (Outcome::Waits(reason, message), Outcome::Waits(simulated_reason, simulated_message)) => {
            let (told, simulated_told) = without_devices(message, simulated_message);
            reason == simulated_reason && told == simulated_told
        }
        _ => real == simulated,
    }
}

/// Both messages without what the plugin `DynamicResources` adds, which the sandbox does not have: that there is no claim of a device
/// to take back, or `not found` in the place of what is told of preemption, if another plugin has refused the pod before.
fn without_devices(real: &str, simulated: &str) -> (String, String) {
    match real.strip_suffix(" not found") {
        Some(told) => {
            let simulated = simulated.split_once(" preemption: ").map_or(simulated, |(told, _)| told);
            (told.to_owned(), simulated.to_owned())
        }
        None => (real.replace(" no new claims to deallocate,", ""), simulated.to_owned()),
    }
}

/// Adds the reasons of a message and the numbers of their nodes.
fn count(message: &str, reasons: &mut BTreeMap<String, usize>) {
    let Some((_, list)) = message.split_once("nodes are available: ") else { return };
    let list = list.split(". ").next().unwrap_or_default();
    for reason in list.split(", ") {
        let (number, reason) = match reason.split_once(' ').map(|(number, rest)| (number.parse(), rest)) {
            Some((Ok(number), rest)) => (number, rest),
            _ => (1, reason),
        };
        let name = reason.split('"').step_by(2).collect::<Vec<_>>().join("…");
        *reasons.entry(name).or_default() += number;
    }
}

async fn prepare(server: &Server) -> Result<()> {
    clean_up(server).await?;
    for (namespace, team) in NAMESPACES {
        let object = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": namespace, "labels": {TEAM: team}}});
        create(server, "/api/v1/namespaces", &object).await?;
        let account = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
        until(server, "a service account", async || Ok(server.call("GET", &account, None).await?.0 == 200))
            .await?;
    }
    let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": RUNTIME_CLASS},
        "handler": "runc", "overhead": {"podFixed": {"cpu": "300m", "memory": "1Gi"}}});
    create(server, "/apis/node.k8s.io/v1/runtimeclasses", &class).await
}

/// Creates the nodes, storage and pods of a case, and waits until nothing changes any more.
async fn set_up(server: &Server, case: &Case) -> Result<()> {
    for node in &case.nodes {
        create(server, NODES, node).await?;
    }
    for object in &case.storage {
        create(server, &collection(object), object).await?;
    }
    until(server, "ready nodes", async || {
        Ok(server.list(NODES).await?.iter().all(|node| is_ready(node, case)))
    })
    .await?;
    for pod in &case.fixed {
        create(server, &collection(pod), pod).await?;
    }
    until(server, "bound claims and running pods", async || {
        let is_bound = |claim: &Value| {
            let volume = &claim["spec"]["volumeName"];
            volume.is_null() || *volume == MISSING || claim["status"]["phase"] == "Bound"
        };
        let is_running = |pod: &Value| pod["status"]["phase"] == "Running";
        Ok(server.list(CLAIMS).await?.iter().all(is_bound) && server.list(PODS).await?.iter().all(is_running))
    })
    .await
}

/// Whether a node is ready and has only the taints of the case, and those of cordoned nodes.
fn is_ready(node: &Value, case: &Case) -> bool {
    let Some(wanted) = case.nodes.iter().find(|one| name(one) == name(node)) else { return false };
    let taints = |node: &Value| node["spec"]["taints"].as_array().map_or(0, Vec::len);
    let cordoned = usize::from(wanted["spec"]["unschedulable"] == true);
    crate::objects::has_condition(node, "Ready") && taints(node) == taints(wanted) + cordoned
}

/// Creates a pod, waits for its outcome, and removes it.
async fn outcome(server: &Server, pod: &Value) -> Result<Outcome> {
    let (status, _) = server.call("POST", &collection(pod), Some(pod)).await?;
    if status != 201 {
        return Ok(Outcome::Refused(status.into()));
    }
    let path = format!("{}/{}", collection(pod), name(pod));
    let begin = Instant::now();
    let outcome = loop {
        let (_, pod) = server.call("GET", &path, None).await?;
        if let Some(node) = pod["spec"]["nodeName"].as_str() {
            break Outcome::Bound(node.to_owned());
        }
        let conditions = pod["status"]["conditions"].as_array();
        let scheduled =
            conditions.into_iter().flatten().find(|condition| condition["type"] == "PodScheduled");
        if let Some(condition) = scheduled {
            let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
            break Outcome::Waits(text("reason"), text("message"));
        }
        if begin.elapsed() > server.timeout {
            break Outcome::Nothing;
        }
        provision(server, &pod).await?;
        sleep(POLL_INTERVAL).await;
    };
    remove(server, &path).await?;
    Ok(outcome)
}

/// Creates the volumes of the claims of a pod.
async fn provision(server: &Server, pod: &Value) -> Result<()> {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    for claim in volumes.filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str()) {
        provision_claim(server, pod, claim).await?;
    }
    Ok(())
}

/// Creates the volume of a claim for which the scheduler has chosen a node, as the provisioner of its class does.
async fn provision_claim(server: &Server, pod: &Value, claim: &str) -> Result<()> {
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
    let path = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim}");
    let (_, claim) = server.call("GET", &path, None).await?;
    let annotations = &claim["metadata"]["annotations"];
    let chosen = annotations["volume.kubernetes.io/selected-node"].as_str();
    let is_asked = annotations["volume.kubernetes.io/storage-provisioner"] == PROVISIONER;
    let (Some(node), true, true) = (chosen, is_asked, claim["spec"]["volumeName"].is_null()) else {
        return Ok(());
    };
    let terms = json!([{"matchExpressions": [{"key": HOST_NAME, "operator": "In", "values": [node]}]}]);
    let metadata = &claim["metadata"];
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": format!("pv-{}", metadata["uid"].as_str().unwrap_or_default())}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": "schedulers.example.com", "volumeHandle": metadata["uid"]},
        "storageClassName": claim["spec"]["storageClassName"], "persistentVolumeReclaimPolicy": "Retain",
        "claimRef": {"namespace": metadata["namespace"], "name": metadata["name"], "uid": metadata["uid"]},
        "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}});
    let (status, body) = server.call("POST", VOLUMES, Some(&volume)).await?;
    ensure!(matches!(status, 201 | 409), "cannot create a volume: {status} {}", body["message"]);
    Ok(())
}

/// Removes all pods, claims, volumes, classes of the cases and nodes.
async fn clean_up(server: &Server) -> Result<()> {
    for path in [PODS, CLAIMS, VOLUMES, CLASSES, NODES] {
        until(server, path, async || {
            let mut objects = server.list(path).await?;
            // The default class of the sandbox stays.
            objects.retain(|object| {
                object["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"] != "true"
            });
            let deletions = objects.iter().map(|object| async move {
                let base = if path == PODS || path == CLAIMS { collection(object) } else { path.to_owned() };
                server.call("DELETE", &format!("{base}/{}?gracePeriodSeconds=0", name(object)), None).await
            });
            try_join_all(deletions).await?;
            Ok(objects.is_empty())
        })
        .await?;
    }
    Ok(())
}

async fn remove(server: &Server, path: &str) -> Result<()> {
    server.call("DELETE", &format!("{path}?gracePeriodSeconds=0"), None).await?;
    until(server, "the removal of a pod", async || Ok(server.call("GET", path, None).await?.0 == 404)).await
}

/// The path of the collection that an object belongs to.
fn collection(object: &Value) -> String {
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    match object["kind"].as_str() {
        Some("PersistentVolume") => VOLUMES.to_owned(),
        Some("StorageClass") => CLASSES.to_owned(),
        // Items of lists have no kind.
        kind => {
            let is_claim = kind == Some("PersistentVolumeClaim") || object["spec"]["accessModes"].is_array();
            let plural = if is_claim { "persistentvolumeclaims" } else { "pods" };
            format!("/api/v1/namespaces/{namespace}/{plural}")
        }
    }
}

async fn create(server: &Server, path: &str, object: &Value) -> Result<()> {
    let (status, body) = server.call("POST", path, Some(object)).await?;
    ensure!(matches!(status, 201 | 409), "cannot create {object}: {status} {}", body["message"]);
    Ok(())
}

/// Polls until a condition is met.
async fn until(server: &Server, what: &str, mut is_met: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let begin = Instant::now();
    while begin.elapsed() < server.timeout {
        if is_met().await? {
            return Ok(());
        }
        sleep(POLL_INTERVAL).await;
    }
    bail!("timed out after {:?}: {what}", server.timeout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_of_devices_is_not_compared() {
        let waits = |message: &str| Outcome::Waits("Unschedulable".to_owned(), message.to_owned());
        for (real, simulated, expected) in [
            (
                "0/1: 1 x. no new claims to deallocate, preemption: 0/1: y.",
                "0/1: 1 x. preemption: 0/1: y.",
                true,
            ),
            (
                "0/1: 1 x. no new claims to deallocate, preemption: 0/1: y.",
                "0/1: 1 x. preemption: 0/1: z.",
                false,
            ),
            ("0/1: z. not found", "0/1: z. preemption: 0/1: y.", true),
            ("0/1: z. not found", "0/1: x. preemption: 0/1: y.", false),
        ] {
            assert_eq!(are_alike(&waits(real), &waits(simulated)), expected, "{real}");
        }
    }

    #[test]
    fn the_reasons_of_a_message_are_counted() {
        let mut reasons = BTreeMap::new();
        count(
            "0/3 nodes are available: 1 Too many pods, 2 Insufficient cpu. preemption: 0/3 nodes are available: x.",
            &mut reasons,
        );
        count("0/3 nodes are available: persistentvolumeclaim \"a\" not found. preemption: …", &mut reasons);
        let counted: Vec<(&str, usize)> =
            reasons.iter().map(|(reason, number)| (&**reason, *number)).collect();
        assert_eq!(
            counted,
            [("Insufficient cpu", 2), ("Too many pods", 1), ("persistentvolumeclaim … not found", 1)]
        );
    }
}
