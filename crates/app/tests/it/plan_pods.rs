//! `muster plan` about pods, groups of pods and sets of pods, compared with what happens when they are created.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::{Up, printed, request, run, stderr_of_failure};

const KUEUE: &str = "/apis/kueue.x-k8s.io/v1beta2";
const QUEUE_NAME: &str = "kueue.x-k8s.io/queue-name";

fn create(address: &str, path: &str, object: &Value) {
    let answer = request(address, &format!("POST {path}"), &object.to_string()).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
}

fn kueue(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// Creates queues of four CPUs each.
fn create_queues(address: &str, names: &[&str]) {
    create(address, &format!("{KUEUE}/resourceflavors"), &kueue("ResourceFlavor", "default", &json!({})));
    let quota = json!({"name": "default", "resources": [{"name": "cpu", "nominalQuota": 4}]});
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [quota]}]);
    let spec = json!({"namespaceSelector": {}, "resourceGroups": groups});
    for name in names {
        create(address, &format!("{KUEUE}/clusterqueues"), &kueue("ClusterQueue", name, &spec));
        let local = kueue("LocalQueue", name, &json!({"clusterQueue": name}));
        create(address, &format!("{KUEUE}/namespaces/default/localqueues"), &local);
    }
}

/// A pod's spec that asks for so many CPUs.
fn spec(cpu: u32) -> Value {
    json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]})
}

fn queued(api_version: &str, kind: &str, queue: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": api_version, "kind": kind,
        "metadata": {"name": name, "labels": {QUEUE_NAME: queue}}, "spec": spec})
}

fn pod(name: &str) -> Value {
    queued("v1", "Pod", "pods", name, &spec(3))
}

/// A group of pods of two sizes.
fn group(name: &str) -> Vec<Value> {
    let member = |number: u32| {
        let mut pod = queued("v1", "Pod", "groups", &format!("{name}-{number}"), &spec(number));
        pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] = name.into();
        pod["metadata"]["annotations"] = json!({"kueue.x-k8s.io/pod-group-total-count": "2"});
        pod
    };
    vec![member(1), member(2)]
}

fn template(name: &str) -> Value {
    json!({"metadata": {"labels": {"app": name}}, "spec": spec(1)})
}

fn stateful_set(name: &str) -> Value {
    let spec = json!({"replicas": 3, "serviceName": name, "selector": {"matchLabels": {"app": name}},
        "template": template(name)});
    queued("apps/v1", "StatefulSet", "sets", name, &spec)
}

fn deployment(name: &str, replicas: u32) -> Value {
    let selector = json!({"matchLabels": {"app": name}});
    let spec = json!({"replicas": replicas, "selector": selector, "template": template(name)});
    queued("apps/v1", "Deployment", "deployments", name, &spec)
}

/// Two groups of three pods.
fn leader_worker_set() -> Value {
    let group = json!({"size": 3, "leaderTemplate": template("l"), "workerTemplate": template("w")});
    let spec = json!({"replicas": 2, "leaderWorkerTemplate": group});
    queued("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "lws", "serve", &spec)
}

fn plan(dir: &Path, objects: &[Value]) -> std::process::Output {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    std::fs::write(dir.join("list.json"), list.to_string()).unwrap();
    run(dir, &["plan", "-f", "list.json"])
}

/// How many Workloads the text of a plan or of `muster why` calls admitted, and how many pending.
fn states(text: &str) -> (usize, usize) {
    let count = |state: &str| text.lines().filter(|line| line.contains(state)).count();
    (
        count(" would be admitted now") + count(" is admitted"),
        count(" would be pending") + count(" is pending"),
    )
}

/// Plans objects, then creates them: their Workloads are admitted or pending as planned.
fn check(address: &str, dir: &Path, path: &str, objects: &[Value], why: &str, expected: (usize, usize)) {
    let planned = printed(&plan(dir, objects));
    assert_eq!(states(&planned), expected, "{why}: {planned}");
    for object in objects {
        create(address, path, object);
    }
    let begin = Instant::now();
    loop {
        let answer = run(dir, &["why", why]);
        let said = String::from_utf8([answer.stdout, answer.stderr].concat()).unwrap();
        if states(&said) == expected {
            return;
        }
        assert!(begin.elapsed() < Duration::from_mins(1), "{why}: planned {planned}, became {said}");
    }
}

#[test]
fn pods_and_sets_of_pods_start_or_wait_as_planned() {
    let dir = tempfile::tempdir().unwrap();
    let running = Up::start(&["--node", "count=1,name=n,cpu=64,memory=64Gi"], dir.path());
    let (address, dir) = (running.address("API server").to_owned(), dir.path());
    create_queues(&address, &["pods", "groups", "sets", "lws", "deployments"]);
    let pods = "/api/v1/namespaces/default/pods";
    let sets = "/apis/apps/v1/namespaces/default/statefulsets";
    let (starts, waits) = ((1, 0), (0, 1));
    check(&address, dir, pods, &[pod("first")], "pod/first", starts);
    check(&address, dir, pods, &[pod("second")], "pod/second", waits);
    check(&address, dir, pods, &group("one"), "workload/one", starts);
    check(&address, dir, pods, &group("two"), "workload/two", waits);
    check(&address, dir, sets, &[stateful_set("web")], "sts/web", starts);
    check(&address, dir, sets, &[stateful_set("db")], "sts/db", waits);
    let path = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/default/leaderworkersets";
    check(&address, dir, path, &[leader_worker_set()], "lws/serve", (1, 1));
    // Those that exist are planned as others like them.
    let again = printed(&plan(dir, &[pod("first"), stateful_set("web"), leader_worker_set()]));
    assert_eq!(states(&again), (0, 4), "{again}");

    let planned = printed(&plan(dir, &[deployment("app", 5)]));
    assert_eq!(states(&planned), (4, 1), "{planned}");
    assert!(
        planned.starts_with("Workload default/pod-app-1 would be admitted now, on n (1 pod)\n"),
        "{planned}"
    );
    let answer = request(&address, "GET /apis/apps/v1/namespaces/default/deployments", "").unwrap();
    assert!(!answer.contains("\"uid\""), "a plan creates nothing: {answer}");
    assert_eq!(running.end(), Some(0));
}

#[test]
fn a_plan_counts_the_pods_of_a_group_and_says_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let running = Up::start(&[], dir.path());
    let (address, dir) = (running.address("API server").to_owned(), dir.path());
    create_queues(&address, &["groups", "sets", "deployments"]);
    let members = group("one");
    let missing = stderr_of_failure(&plan(dir, &members[..1]));
    assert!(missing.contains("the group of pods default/one: the files have 1 of its 2 pods:"), "{missing}");
    let mut fast = members[0].clone();
    fast["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-fast-admission"] = "true".into();
    let planned = printed(&plan(dir, &[fast]));
    assert!(planned.contains(": 2 pods, cpu in default"), "{planned}");
    let mut uncounted = members[0].clone();
    uncounted["metadata"]["annotations"] = json!({});
    let refused = stderr_of_failure(&plan(dir, &[uncounted]));
    assert!(
        refused.contains("Pod default/one-1 would be refused: admission webhook \"vpod.kb.io\""),
        "{refused}"
    );
    // The other pod is in the cluster.
    create(&address, "/api/v1/namespaces/default/pods", &members[1]);
    let planned = printed(&plan(dir, &members[..1]));
    assert!(
        planned.starts_with("Workload default/one would be admitted now, on cpu (2 pods)\n"),
        "{planned}"
    );

    let mut empty = stateful_set("web");
    empty["spec"]["replicas"] = 0.into();
    let nothing = plan(dir, &[empty]);
    let said = String::from_utf8_lossy(&nothing.stderr).into_owned();
    assert!(said.contains("StatefulSet default/web has zero replicas: there is nothing to plan"), "{said}");
    assert_eq!(printed(&nothing), "");
    let many = plan(dir, &[deployment("app", 1_000_000)]);
    let said = String::from_utf8_lossy(&many.stderr).into_owned();
    assert!(
        said.contains("has 1000000 pods, each with a Workload of its own: the first 50 are planned"),
        "{said}"
    );
    assert_eq!(states(&printed(&many)), (4, 46));
    assert_eq!(running.end(), Some(0));
}
