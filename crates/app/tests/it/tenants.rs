//! Two tenants and an admin of queues: every command with the rights of the roles that the chart has for them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::run;
use crate::get::Cluster;

/// Who asks, what, and what the answer contains.
type Row = (&'static str, &'static [&'static str], &'static str);

/// What the answers to missing rights contain.
const LACKS_REPORTS: &str =
    "the ClusterRole muster-visibility has this right, and so have view, edit and admin";
const LACKS_NODES: &str =
    "To read the whole cluster, a user may list and watch nodes, pods and the queued kinds";
const LACKS_PATCH: &str =
    "the ClusterRole muster-kueue-workloads-editor has the right, for your namespace by a RoleBinding";
const LACKS_QUEUES: &str = "the ClusterRole kueue-batch-admin-role has the right";
const FOREIGN: &str = "cannot list the Workloads of blue: workloads.kueue.x-k8s.io is forbidden: User \"ruth\" cannot list resource \"workloads\" in API group \"kueue.x-k8s.io\" in the namespace \"blue\"\n";

/// A binding of roles for a user, in a namespace or everywhere.
fn bind(cluster: &Cluster, user: &str, namespace: Option<&str>, role: &str) {
    let kind = if namespace.is_some() { "RoleBinding" } else { "ClusterRoleBinding" };
    let group = "rbac.authorization.k8s.io";
    let binding = json!({"apiVersion": format!("{group}/v1"), "kind": kind,
        "metadata": {"name": format!("{user}-{role}")},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}]});
    let path = match namespace {
        Some(namespace) => format!("/apis/{group}/v1/namespaces/{namespace}/rolebindings"),
        None => format!("/apis/{group}/v1/clusterrolebindings"),
    };
    cluster.create(&path, &binding);
}

fn job(cluster: &Cluster, namespace: &str, name: &str, cpu: u32) {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": template},
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "team"}}});
    cluster.create(&format!("/apis/batch/v1/namespaces/{namespace}/jobs"), &job);
}

fn said(dir: &Path, user: &str, arguments: &[&str]) -> String {
    let output = run(dir, &[arguments, &["--as", user]].concat());
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

/// A cluster with the namespaces of two tenants, who share a queue of two CPUs, and a Job of each: that of `red` runs.
fn cluster(dir: &Path) -> Cluster {
    let cluster = Cluster::start(dir);
    for (tenant, namespace) in [("ruth", "red"), ("bela", "blue")] {
        cluster.create(
            "/api/v1/namespaces",
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        );
        let path = format!("namespaces/{namespace}/localqueues");
        cluster.queue(&path, "LocalQueue", "team", json!({"clusterQueue": "shared"}));
        bind(&cluster, tenant, Some(namespace), "edit");
        bind(&cluster, tenant, Some(namespace), "kueue-batch-user-role");
    }
    bind(&cluster, "tess", Some("blue"), "kueue-batch-user-role");
    bind(&cluster, "tess", Some("blue"), "muster-kueue-workloads-editor");
    bind(&cluster, "anna", None, "kueue-batch-admin-role");
    bind(&cluster, "anna", None, "view");
    let class: Value = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass",
        "metadata": {"name": "urgent"}, "value": 100});
    cluster.create("/apis/kueue.x-k8s.io/v1beta2/workloadpriorityclasses", &class);
    job(&cluster, "red", "train", 2);
    check(dir, &("ruth", &["why", "job/train", "-n", "red"], "is admitted"));
    job(&cluster, "blue", "tune", 1);
    check(dir, &("bela", &["why", "job/tune", "-n", "blue"], "is pending, at position 1 of 1"));
    let plan = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "next", "labels": {"kueue.x-k8s.io/queue-name": "team"}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": 1}}}]}}}});
    std::fs::write(dir.join("next.json"), plan.to_string()).unwrap();
    cluster
}

/// Asks until the answer is there.
fn check(dir: &Path, (user, arguments, expected): &Row) {
    let begin = Instant::now();
    loop {
        let said = said(dir, user, arguments);
        if said.contains(expected) {
            return;
        }
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "{user} {arguments:?}: {expected:?} is not in: {said}"
        );
    }
}

#[test]
fn tenants_see_and_change_what_is_theirs_and_an_admin_what_is_of_all() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let _cluster = cluster(dir);
    let rows: &[Row] = &[
        ("ruth", &["get", "gangs", "-n", "red"], "job/train"),
        ("ruth", &["get", "gangs", "-n", "blue"], LACKS_REPORTS),
        ("ruth", &["get", "gangs", "-A"], LACKS_REPORTS),
        ("ruth", &["get", "queues", "-n", "red"], "localqueue/team"),
        (
            "ruth",
            &["get", "queues", "-n", "red"],
            "ClusterQueues are left out, and what LocalQueues may use of them",
        ),
        ("ruth", &["get", "nodes"], LACKS_NODES),
        ("ruth", &["describe", "gang", "job/train", "-n", "red"], "Admitted by ClusterQueue shared"),
        ("ruth", &["describe", "queue", "team", "-n", "red"], "Events:  <none>"),
        ("ruth", &["why", "job/tune", "-n", "blue"], FOREIGN),
        ("ruth", &["plan", "-f", "next.json", "-n", "red"], "would be pending, at position 2 of 2"),
        ("ruth", &["plan", "-f", "next.json", "-n", "blue"], "User \"ruth\" cannot create resource \"jobs\""),
        ("ruth", &["hold", "job/train", "-n", "red"], LACKS_PATCH),
        ("ruth", &["unhold", "job/train", "-n", "red"], "is unheld already"),
        ("ruth", &["requeue", "job/train", "-n", "red"], LACKS_PATCH),
        (
            "ruth",
            &["prioritize", "job/train", "urgent", "-n", "red"],
            "is not changed: admission webhook \"vjob.kb.io\" denied the request",
        ),
        ("ruth", &["prioritize", "job/train", "7", "-n", "red"], LACKS_PATCH),
        ("bela", &["prioritize", "job/tune", "urgent", "-n", "blue"], "has the priority urgent"),
        ("ruth", &["hold", "job/tune", "-n", "blue"], FOREIGN),
        ("ruth", &["queue", "hold", "team", "-n", "red"], LACKS_QUEUES),
        ("ruth", &["queue", "hold", "clusterqueue/shared"], "cannot get resource \"clusterqueues\""),
        ("tess", &["prioritize", "job/tune", "7", "-n", "blue"], "has the priority 7"),
        ("tess", &["hold", "job/tune", "-n", "blue"], "held"),
        ("tess", &["requeue", "job/tune", "-n", "blue"], "is held: it waits again after `muster unhold`"),
        ("tess", &["unhold", "job/tune", "-n", "blue"], "unheld"),
        ("tess", &["hold", "job/train", "-n", "red"], "cannot list resource \"workloads\""),
        ("anna", &["get", "gangs", "-A"], "job/tune"),
        ("anna", &["get", "gangs", "-A"], "job/train"),
        ("anna", &["get", "queues", "-A"], "clusterqueue/shared"),
        ("anna", &["get", "nodes"], LACKS_NODES),
        ("anna", &["describe", "queue", "clusterqueue/shared"], "ClusterQueue:  shared"),
        ("anna", &["why", "job/tune", "-n", "blue"], "quota clusterqueue:shared has 0 of at most 2 left"),
        ("anna", &["hold", "job/tune", "-n", "blue"], "held"),
        ("anna", &["unhold", "job/tune", "-n", "blue"], "unheld"),
        ("anna", &["queue", "hold", "team", "-n", "red"], "localqueue.kueue.x-k8s.io/team held"),
        ("anna", &["queue", "resume", "team", "-n", "red"], "localqueue.kueue.x-k8s.io/team resumed"),
        ("anna", &["queue", "hold", "clusterqueue/shared"], "clusterqueue.kueue.x-k8s.io/shared held"),
        ("anna", &["queue", "drain", "clusterqueue/shared"], "clusterqueue.kueue.x-k8s.io/shared draining"),
        ("bela", &["why", "job/tune", "-n", "blue"], "ClusterQueue shared is inactive"),
        ("anna", &["queue", "resume", "clusterqueue/shared"], "clusterqueue.kueue.x-k8s.io/shared resumed"),
    ];
    for row in rows {
        check(dir, row);
    }
}
