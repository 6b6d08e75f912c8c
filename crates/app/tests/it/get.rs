//! `muster get` and `muster describe` as processes: what they print, and to whom.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::{Process, Up, muster, printed, request, run, stderr_of_failure};

/// The output of a command once it has this text.
pub(crate) fn wait(dir: &Path, arguments: &[&str], text: &str) -> String {
    let begin = Instant::now();
    loop {
        let said = printed(&run(dir, arguments));
        if said.contains(text) {
            return said;
        }
        assert!(begin.elapsed() < Duration::from_mins(1), "{arguments:?}: {said}");
    }
}

/// A cluster with a queue of two CPUs in `default`, and what creates an object in it.
pub(crate) struct Cluster {
    pub(crate) running: Up,
    pub(crate) address: String,
}

impl Cluster {
    pub(crate) fn start(dir: &Path) -> Self {
        let running = Up::start(&["--node", "count=1,name=n,cpu=8,memory=16Gi,pods=50"], dir);
        let address = running.address("API server").to_owned();
        let cluster = Self { running, address };
        let quota = json!({"name": "main", "resources": [{"name": "cpu", "nominalQuota": 2}]});
        let spec = json!({"namespaceSelector": {}, "cohortName": "all",
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [quota]}]});
        cluster.queue("resourceflavors", "ResourceFlavor", "main", json!({}));
        cluster.queue("clusterqueues", "ClusterQueue", "shared", spec);
        cluster.queue(
            "namespaces/default/localqueues",
            "LocalQueue",
            "team",
            json!({"clusterQueue": "shared"}),
        );
        cluster
    }

    pub(crate) fn create(&self, path: &str, object: &Value) {
        let answer = request(&self.address, &format!("POST {path}"), &object.to_string()).unwrap();
        assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    }

    pub(crate) fn queue(&self, path: &str, kind: &str, name: &str, spec: Value) {
        let mut object =
            json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}});
        object["spec"] = spec;
        self.create(&format!("/apis/kueue.x-k8s.io/v1beta2/{path}"), &object);
    }

    pub(crate) fn job(&self, name: &str, cpu: u32, labels: Value) {
        let mut labels = labels;
        labels["kueue.x-k8s.io/queue-name"] = "team".into();
        let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}});
        let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
        self.create(
            "/apis/batch/v1/namespaces/default/jobs",
            &json!({"apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": name, "labels": labels}, "spec": {"template": template}}),
        );
    }

    pub(crate) fn wrapper(&self, namespace: &str, name: &str, cpu: u32) {
        let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}});
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
            "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}});
        let wrapper = json!({"apiVersion": "workload.codeflare.dev/v1beta1", "kind": "AppWrapper", "metadata": {"name": name},
            "spec": {"resources": {"GenericItems": [{"generictemplate": job}]}}});
        self.create(
            &format!("/apis/workload.codeflare.dev/v1beta1/namespaces/{namespace}/appwrappers"),
            &wrapper,
        );
    }
}

#[test]
fn gangs_of_all_kinds_are_listed_by_the_names_that_their_authors_gave() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let cluster = Cluster::start(dir);
    cluster.job("first", 2, json!({"stage": "train"}));
    wait(dir, &["get", "gangs"], "Admitted");
    cluster.job("second", 1, json!({}));
    cluster.job("huge", 3, json!({}));
    cluster.wrapper("default", "wrapped", 1);
    cluster.wrapper("kube-public", "elsewhere", 100);
    let table = wait(dir, &["get", "g"], "appwrapper/wrapped");
    let table = if table.contains("Placed") { table } else { wait(dir, &["get", "gangs"], "Placed") };
    let columns: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(columns, ["NAME", "STATE", "QUEUE", "POSITION", "START", "AGE", "REASON"]);
    let cells = |name: &str| -> Vec<String> {
        let line = table.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(cells("job/first")[1..3], ["Admitted", "team"]);
    assert_eq!(cells("job/huge")[1..5], ["NeverFits", "team", "<none>", "<none>"]);
    assert_eq!(cells("job/second")[1..3], ["Waits", "team"]);
    assert!(cells("job/second")[3].ends_with("/2"), "{table}");
    assert!(table.contains("needs 1 cpu in flavor main; quota clusterqueue:shared"), "{table}");
    assert!(!table.contains("elsewhere") && !table.contains('\u{1b}'), "{table}");

    let all = printed(&run(dir, &["get", "gangs", "-A", "--sort", "state", "-o", "wide"]));
    assert!(
        all.starts_with("NAMESPACE ") && all.contains("kube-public   appwrapper/elsewhere   NeverFits"),
        "{all}"
    );
    // In pages of one name.
    let (mut after, mut paged) = (String::new(), Vec::new());
    loop {
        let path = format!("/apis/visibility.muster.dev/v1beta1/appwrapperreports?limit=1&continue={after}");
        let answer = request(&cluster.address, &format!("GET {path}"), "").unwrap();
        let page: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        let items = page["items"].as_array().unwrap();
        assert!(items.len() == 1 && items[0]["metadata"]["creationTimestamp"].is_string(), "{page}");
        paged.push(items[0]["metadata"]["name"].as_str().unwrap().to_owned());
        let Some(next) = page["metadata"]["continue"].as_str() else { break };
        next.clone_into(&mut after);
    }
    assert_eq!(paged, ["wrapped", "elsewhere"]);
    let names = |flags: &[&str]| printed(&run(dir, &[&["get", "gangs", "-o", "name"], flags].concat()));
    assert_eq!(names(&["-l", "stage=train"]), "job/first\n");
    assert_eq!(names(&["-l", "stage"]), "job/first\n");
    assert_eq!(names(&["jobs/huge", "wrapped"]), "appwrapper/wrapped\njob/huge\n");
    assert_eq!(names(&["--sort", "position", "first", "second"]), "job/second\njob/first\n");
    let json: Value =
        serde_json::from_str(&printed(&run(dir, &["get", "g", "-o", "json", "second"]))).unwrap();
    assert_eq!((&json[0]["object"], &json[0]["position"]["of"]), (&json!("job/second"), &json!(2)));
    let yaml = printed(&run(dir, &["get", "g", "-o", "yaml", "second"]));
    assert!(yaml.contains("object: job/second"), "{yaml}");
    for (flags, expected) in [
        (&["nothing", "second"][..], "there is no gang nothing in namespace default"),
        (&["-l", "=,"], "cannot select"),
        (&["-n", "a/b"], "a namespace has letters, digits and hyphens"),
        (&["-w", "-o", "json"], "--watch prints rows"),
    ] {
        let error = stderr_of_failure(&run(dir, &[&["get", "gangs"], flags].concat()));
        assert!(error.contains(expected), "{flags:?}: {error}");
    }
    let missing = run(dir, &["get", "gangs", "nothing"]);
    assert!(missing.stdout.is_empty(), "{missing:?}");
    let none = run(dir, &["get", "gangs", "-n", "nowhere"]);
    assert_eq!(
        (printed(&none), &*none.stderr),
        (String::new(), &b"muster: no gangs found in namespace nowhere\n"[..])
    );
    assert_eq!(cluster.running.end(), Some(0));
}

#[test]
fn a_watch_prints_the_rows_that_change() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(dir.path());
    cluster.job("first", 2, json!({}));
    wait(dir.path(), &["get", "gangs"], "Admitted");
    let flags = ["get", "gangs", "-w", "--kubeconfig", ".muster/kubeconfig"];
    let mut watch = Process(muster(&flags, dir.path()).stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(watch.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.next().unwrap().starts_with("NAME"));
    assert!(lines.next().unwrap().starts_with("job/first   Admitted"));
    cluster.job("second", 1, json!({}));
    let second: Vec<String> = lines.by_ref().take_while(|line| !line.contains("Waits")).collect();
    assert!(second.iter().all(|line| line.starts_with("job/second")), "{second:?}");
    assert_eq!(cluster.running.end(), Some(0));
}

#[test]
fn a_tenant_lists_one_namespace_and_is_told_the_role_for_others() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(dir.path());
    cluster.wrapper("default", "own", 1);
    let rules = json!([{"apiGroups": ["visibility.muster.dev"], "resources": ["appwrapperreports"], "verbs": ["get", "list"]}]);
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    cluster.create(&format!("{rbac}/roles"), &json!({"metadata": {"name": "asks"}, "rules": rules}));
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "asks"});
    let user = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "tenant"});
    cluster.create(
        &format!("{rbac}/rolebindings"),
        &json!({"metadata": {"name": "asks"}, "roleRef": role, "subjects": [user]}),
    );
    let own = run(dir.path(), &["get", "gangs", "--as", "tenant"]);
    assert!(printed(&own).contains("appwrapper/own"), "{own:?}");
    let left_out = String::from_utf8(own.stderr).unwrap();
    assert!(
        left_out.starts_with(
            "muster: Workloads are left out: workloadreports.visibility.muster.dev is forbidden"
        ),
        "{left_out}"
    );
    assert!(left_out.contains("muster-visibility"), "{left_out}");
    for command in
        [&["get", "gangs", "-A"][..], &["get", "gangs", "-n", "kube-public"], &["why", "kube-public/a"]]
    {
        let error = stderr_of_failure(&run(dir.path(), &[command, &["--as", "tenant"]].concat()));
        assert!(
            error.contains("\"tenant\"")
                && error.contains("the ClusterRole muster-visibility has this right"),
            "{error}"
        );
    }
    let nodes = stderr_of_failure(&run(dir.path(), &["get", "nodes", "--as", "tenant"]));
    assert!(
        nodes.contains("tenant cannot get configmaps in namespace kube-system. To read the whole cluster"),
        "{nodes}"
    );
    let queues = run(dir.path(), &["get", "queues", "--as", "tenant"]);
    let queues = stderr_of_failure(&queues);
    assert!(
        queues.contains("ClusterQueues are left out") && queues.contains("cannot list the LocalQueues"),
        "{queues}"
    );
    let group = run(dir.path(), &["get", "gangs", "-A", "--as", "a", "--as-group", "system:masters"]);
    assert!(printed(&group).contains("appwrapper/own"), "{group:?}");
    assert_eq!(cluster.running.end(), Some(0));
}

#[test]
fn queues_and_nodes_tell_what_there_is_and_what_uses_it() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let cluster = Cluster::start(dir);
    let quota = json!({"name": "main", "resources": [{"name": "cpu", "nominalQuota": 3}]});
    let spec = json!({"namespaceSelector": {}, "cohortName": "all",
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [quota]}]});
    cluster.queue("clusterqueues", "ClusterQueue", "lender", spec);
    cluster.job("first", 4, json!({}));
    wait(dir, &["get", "gangs"], "Admitted");
    cluster.job("second", 2, json!({}));
    let cells = |text: &str, name: &str| -> Vec<String> {
        let line = text.lines().find(|line| line.starts_with(name));
        line.unwrap_or_default().split_whitespace().map(str::to_owned).collect()
    };
    let begin = Instant::now();
    loop {
        let queues = printed(&run(dir, &["get", "queues"]));
        let [shared, lender, team] = ["clusterqueue/shared", "clusterqueue/lender", "localqueue/team"]
            .map(|name| cells(&queues, name));
        if shared[1..] == ["all", "main", "cpu", "2", "4", "2", "0", "1", "1", "Active"]
            && lender[1..] == ["all", "main", "cpu", "3", "0", "0", "2", "0", "0", "Active"]
            && team[1..] == ["<none>", "main", "cpu", "<none>", "4", "<none>", "<none>", "1", "1", "Active"]
        {
            break;
        }
        assert!(begin.elapsed() < Duration::from_mins(1), "{queues}");
    }
    assert_eq!(printed(&run(dir, &["get", "q", "cq/shared", "-o", "name"])), "clusterqueue/shared\n");
    let error = stderr_of_failure(&run(dir, &["get", "queues", "none"]));
    assert!(error.contains("there is no queue none"), "{error}");

    let nodes = wait(dir, &["get", "nodes"], "4");
    assert_eq!(nodes.lines().next().unwrap().split_whitespace().next(), Some("NAME"));
    let cpu = nodes.lines().find(|line| line.contains("cpu")).unwrap();
    let cpu: Vec<&str> = cpu.split_whitespace().collect();
    assert_eq!((&cpu[..4], cpu[6], cpu[7]), (&["n", "main", "cpu", "8"][..], "4", "Ready"), "{nodes}");
    let sums = printed(&run(dir, &["get", "nodes", "--by-flavor", "--no-headers"]));
    assert_eq!(cells(&sums, "main")[1..3], ["cpu", "8"], "{sums}");

    let described = printed(&run(dir, &["describe", "queue", "clusterqueue/shared"]));
    assert!(described.starts_with("Name:") && described.contains("Quota:\n"), "{described}");
    let described = printed(&run(dir, &["describe", "node", "n"]));
    assert!(described.contains("Flavors:") && described.contains("Resources:\n"), "{described}");
    let described = printed(&run(dir, &["describe", "gang", "job/second"]));
    for part in [
        "Name:       job/second\n",
        "Queue:      team of ClusterQueue shared\n",
        "Status:\n  Workload default/",
        "Events:",
    ] {
        assert!(described.contains(part), "{part}: {described}");
    }
    assert_eq!(cluster.running.end(), Some(0));
}
