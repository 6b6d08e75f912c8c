//! `muster why` and `muster plan` as processes: their output and their errors.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};

use crate::common::{Up, muster, printed, request, stderr_of_failure};
use serde_json::{Value, json};

fn job(name: &str, cpu: u32) -> String {
    format!(
        "apiVersion: workload.codeflare.dev/v1beta1\nkind: AppWrapper\nmetadata: {{name: {name}}}\nspec: {{resources: {{GenericItems: [{{generictemplate: \
            {{apiVersion: batch/v1, kind: Job, metadata: {{name: {name}}}, spec: {{template: {{spec: {{restartPolicy: Never, \
            containers: [{{name: c, image: i, resources: {{requests: {{cpu: {cpu}}}}}}}]}}}}}}}}}}]}}}}\n"
    )
}

fn run(dir: &Path, arguments: &[&str], input: &str) -> Output {
    let kubeconfig = ["--kubeconfig", ".muster/kubeconfig"];
    let mut child = muster(&[arguments, &kubeconfig].concat(), dir).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).ok();
    child.wait_with_output().unwrap()
}

#[test]
fn plan_evaluates_manifests_in_order_and_creates_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let running = Up::start(&["--node", "count=1,name=n,cpu=4,memory=16Gi"], dir.path());
    let both = format!("{}---\n{}", job("first", 3), job("second", 2));
    std::fs::write(dir.path().join("both.yaml"), &both).unwrap();
    let from_file = printed(&run(dir.path(), &["plan", "-f", "both.yaml"], ""));
    assert!(from_file.starts_with("default/first would start now, on n (1 pod)\n"), "{from_file}");
    assert!(from_file.contains("default/second would be pending, at position 1 of 1\n"), "{from_file}");
    let reports = printed(&run(dir.path(), &["plan", "-f", "-", "-o", "json"], &both));
    let reports: Value = serde_json::from_str(&reports).unwrap();
    assert_eq!(reports[0]["state"], "placed");
    assert_eq!(reports[1]["start"]["after"], "default/first");
    let error = stderr_of_failure(&run(dir.path(), &["why", "first"], ""));
    assert!(error.contains("there is no AppWrapper or Workload default/first"), "{error}");
    assert_eq!(running.end(), Some(0));
}

/// kubectl reads YAML 1.1, in which `y` is a boolean. The API server refuses such an object at its dispatch.
#[test]
fn plan_refuses_the_objects_that_the_api_server_would_refuse_at_the_dispatch() {
    let dir = tempfile::tempdir().unwrap();
    let running = Up::start(&["--node", "count=1,name=n,cpu=4,memory=16Gi"], dir.path());
    let with = |value: &str| {
        let env = format!("image: i, env: [{{name: X, value: {value}}}],");
        job("a", 1).replace("image: i,", &env)
    };
    for value in ["y", "on", "Yes", "OFF", "n", "0777", "1_000", "1.5"] {
        let manifest = with(value);
        let error = stderr_of_failure(&run(dir.path(), &["plan", "-f", "-"], &manifest));
        assert!(
            error.contains("default/a would fail: the API server would reject an object of it: Job a: "),
            "{error}"
        );
    }
    for value in ["'y'", "\"on\"", "yess", "1:30", "2020-01-01"] {
        let planned = printed(&run(dir.path(), &["plan", "-f", "-"], &with(value)));
        assert!(planned.starts_with("default/a would start now"), "{planned}");
    }
    // What admission decides may change.
    let planned = printed(&run(
        dir.path(),
        &["plan", "-f", "-"],
        &job("a", 1).replace("restartPolicy: Never", "restartPolicy: Never, serviceAccountName: later"),
    ));
    assert!(planned.starts_with("default/a would start now"), "{planned}");
    assert_eq!(running.end(), Some(0));
}

#[test]
fn invalid_arguments_of_why_and_plan_are_errors_with_their_location() {
    let dir = tempfile::tempdir().unwrap();
    let running = Up::start(&[], dir.path());
    let foreign = job("a", 1).replace("workload.codeflare.dev", "mcad.ibm.com");
    for (arguments, input, expected) in [
        (&["plan", "-f", "missing.yaml"][..], "", "cannot read missing.yaml"),
        (&["plan", "-f", "-"], "kind: [", "standard input: "),
        (&["plan", "-f", "-"], "", "it contains no AppWrapper"),
        (
            &["plan", "-f", "-"],
            "{kind: Job, apiVersion: batch/v1}",
            "document 1: Job of batch/v1 is in no queue",
        ),
        (
            &["plan", "-f", "-"],
            &foreign,
            "does not serve appwrappers.mcad.ibm.com: start `muster up` or the controller with --appwrapper-group mcad.ibm.com",
        ),
        (&["plan", "-f", "-"], "{kind: AppWrapper, apiVersion: workload.codeflare.dev/v1beta1}", "metadata"),
        (&["why", "kube-system/none"], "", "there is no AppWrapper or Workload kube-system/none"),
        (&["why", "cronjobs/team/a"], "", "\"cronjobs\" is no kind that is queued"),
        (&["why", "jobs/team/a"], "", "there is no Job team/a"),
        (&["why", "team/a", "-n", "other"], "", "the name is in namespace team, but --namespace is other"),
        (&["why", "a", "--context", "other"], "", "other"),
    ] {
        let error = stderr_of_failure(&run(dir.path(), arguments, input));
        assert!(error.contains(expected), "{arguments:?} {input}: {error}");
    }
    let address = running.address("API server").to_owned();
    assert_eq!(running.end(), Some(0));
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "c", "user": {}}], "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}]});
    std::fs::write(dir.path().join(".muster/kubeconfig"), kubeconfig.to_string()).unwrap();
    let error = stderr_of_failure(&run(dir.path(), &["why", "a"], ""));
    assert!(error.contains("cannot reach the cluster at http:"), "{error}");
}

/// Sends one request to the API server as its administrator.
async fn send(address: &str, method: &str, path: &str, body: Value) {
    let config = kube::Config::new(format!("http://{address}").parse().unwrap());
    let client = kube::Client::try_from(config).unwrap();
    let request =
        http::Request::builder().method(method).uri(path).header("content-type", "application/json");
    client.request::<Value>(request.body(body.to_string().into_bytes()).unwrap()).await.unwrap();
}

/// Namespace `name`, in which the user `tenant` may create AppWrappers and ask about them if `is_own`.
async fn namespace(address: &str, name: &str, is_own: bool) {
    send(address, "POST", "/api/v1/namespaces", json!({"metadata": {"name": name}})).await;
    if !is_own {
        return;
    }
    let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{name}");
    let rules = json!([
        {"apiGroups": ["visibility.muster.dev"], "resources": ["appwrapperreports"], "verbs": ["get", "list"]},
        {"apiGroups": ["visibility.muster.dev"], "resources": ["appwrapperplans"], "verbs": ["create"]},
        {"apiGroups": ["workload.codeflare.dev"], "resources": ["appwrappers"], "verbs": ["create"]},
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create"]},
    ]);
    send(address, "POST", &format!("{rbac}/roles"), json!({"metadata": {"name": "asks"}, "rules": rules}))
        .await;
    let binding = json!({"metadata": {"name": "asks"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "asks"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "tenant"}]});
    send(address, "POST", &format!("{rbac}/rolebindings"), binding).await;
}

#[tokio::test]
async fn a_tenant_of_one_namespace_asks_about_this_namespace_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let running = Up::start(&["--node", "count=1,name=n,cpu=4,memory=16Gi"], dir.path());
    let address = running.address("API server").to_owned();
    namespace(&address, "own", true).await;
    namespace(&address, "foreign", false).await;
    for (namespace, name) in [("foreign", "first"), ("own", "second")] {
        let path = format!("/apis/workload.codeflare.dev/v1beta1/namespaces/{namespace}/appwrappers");
        let manifest: Value = serde_saphyr::from_str(&job(name, 3)).unwrap();
        send(&address, "POST", &path, manifest).await;
    }
    let kubeconfig = dir.path().join(".muster/kubeconfig");
    let mut tenant: Value = serde_json::from_str(&std::fs::read_to_string(&kubeconfig).unwrap()).unwrap();
    tenant["users"][0]["user"]["as"] = "tenant".into();
    tenant["contexts"][0]["context"]["namespace"] = "own".into();
    std::fs::write(&kubeconfig, tenant.to_string()).unwrap();

    let why = printed(&run(dir.path(), &["why", "second"], ""));
    assert!(why.starts_with("own/second is pending"), "{why}");
    let planned = printed(&run(dir.path(), &["plan", "-f", "-"], &job("third", 1)));
    assert!(planned.starts_with("own/third would start now, on n (1 pod)\n"), "{planned}");
    let unknown = stderr_of_failure(&run(dir.path(), &["why", "third"], ""));
    assert!(unknown.contains("there is no AppWrapper own/third"), "{unknown}");
    let taken = stderr_of_failure(&run(dir.path(), &["plan", "-f", "-"], &job("second", 1)));
    assert!(taken.contains("\"second\" already exists"), "{taken}");
    for arguments in [&["why", "foreign/first"][..], &["plan", "-f", "-"]] {
        let manifest = job("fourth", 1).replace("{name: fourth}", "{name: fourth, namespace: foreign}");
        let refused = stderr_of_failure(&run(dir.path(), arguments, &manifest));
        assert!(refused.contains("tenant") && refused.contains("\"foreign\""), "{refused}");
    }
    assert_eq!(running.end(), Some(0));
}

/// A queue of four CPUs.
fn queue() -> &'static str {
    "{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: main}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: shared}
spec: {namespaceSelector: {}, resourceGroups: [{coveredResources: [cpu], flavors: [{name: main, resources: [{name: cpu, nominalQuota: 4}]}]}]}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: team}, spec: {clusterQueue: shared}}
"
}

/// A Workload of one pod, in the older version.
fn workload(name: &str, cpu: u32) -> String {
    format!(
        "{{apiVersion: kueue.x-k8s.io/v1beta1, kind: Workload, metadata: {{name: {name}}}, spec: {{queueName: team, podSets: [{{name: main, \
            count: 1, template: {{spec: {{restartPolicy: Never, containers: [{{name: c, image: i, resources: {{requests: {{cpu: {cpu}}}}}}}]}}}}}}]}}}}\n"
    )
}

/// With the endpoint of the controller, and by reading the cluster, since the manifests are of several kinds.
#[tokio::test]
async fn why_and_plan_answer_about_workloads() {
    let dir = tempfile::tempdir().unwrap();
    let running = Up::start(&["--node", "count=1,name=n,cpu=4,memory=16Gi"], dir.path());
    let address = running.address("API server").to_owned();
    let objects: Vec<Value> = serde_saphyr::from_multiple(queue()).unwrap();
    for (plural, object) in
        ["resourceflavors", "clusterqueues", "namespaces/default/localqueues"].iter().zip(objects)
    {
        send(&address, "POST", &format!("/apis/kueue.x-k8s.io/v1beta2/{plural}"), object).await;
    }
    let both = format!("{}---\n{}", workload("first", 3), workload("second", 2));
    let planned = printed(&run(dir.path(), &["plan", "-f", "-"], &both));
    let (first, second) = planned.split_at(planned.find("Workload default/second").unwrap());
    let queue = "  LocalQueue team of ClusterQueue shared\n";
    assert_eq!(
        first,
        format!(
            "Workload default/first would be admitted now, on n (1 pod)\n  main: 1 pod, cpu in main\n{queue}"
        )
    );
    let pending = "Workload default/second would be pending, at position 1 of 1\n  needs 2 cpu in flavor main; quota \
        clusterqueue:shared has 1 of at most 4 left\n  start unknown: default/first declares no run time (set ";
    assert!(second.starts_with(pending), "{second}");
    assert!(second.ends_with(&format!(" of its job)\n{queue}")), "{second}");
    let mixed = format!("{}---\n{}", job("wrapped", 1), workload("never", 5));
    let planned = printed(&run(dir.path(), &["plan", "-f", "-"], &mixed));
    assert!(planned.starts_with("default/wrapped would start now, on n (1 pod)\n"), "{planned}");
    let never = "Workload default/never would be pending: it can never start with this quota and these nodes\n  needs 5 cpu in flavor \
        main; quota clusterqueue:shared has at most 4\n";
    assert!(planned.contains(never), "{planned}");

    let path = "/apis/kueue.x-k8s.io/v1beta1/namespaces/default/workloads";
    for (name, cpu) in [("first", 3), ("second", 2)] {
        send(&address, "POST", path, serde_saphyr::from_str(&workload(name, cpu)).unwrap()).await;
    }
    let wrapper: Value = serde_saphyr::from_str(&job("second", 1)).unwrap();
    send(&address, "POST", "/apis/workload.codeflare.dev/v1beta1/namespaces/default/appwrappers", wrapper)
        .await;
    let one = printed(&run(dir.path(), &["why", "workload/second"], ""));
    assert!(
        one.starts_with(
            "Workload default/second is pending, at position 1 of 1\n  needs 2 cpu in flavor main;"
        ),
        "{one}"
    );
    let several = run(dir.path(), &["why", "second", "-n", "default"], "");
    assert!(
        String::from_utf8_lossy(&several.stderr)
            .contains("appwrappers.workload.codeflare.dev, workloads.kueue.x-k8s.io")
    );
    let several = printed(&several);
    assert!(
        several.contains("\nWorkload default/second is pending") && several.starts_with("default/second "),
        "{several}"
    );
    let json = printed(&run(dir.path(), &["why", "kwl/first", "-o", "json"], ""));
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json[0]["state"], &json[0]["clusterQueue"]), (&json!("admitted"), &json!("shared")));
    let taken = stderr_of_failure(&run(dir.path(), &["plan", "-f", "-"], &workload("first", 1)));
    assert!(taken.contains("\"first\" already exists"), "{taken}");
    let none = stderr_of_failure(&run(dir.path(), &["why", "workload/third"], ""));
    assert!(none.contains("there is no Workload default/third"), "{none}");
    assert_eq!(running.end(), Some(0));
}

#[test]
fn why_answers_about_jobs_and_their_pods_by_what_queues_them() {
    let dir = tempfile::tempdir().unwrap();
    let running = Up::start(&["--node", "count=1,name=n,cpu=8,memory=16Gi"], dir.path());
    let address = running.address("API server").to_owned();
    let create = |path: &str, object: Value| {
        let answer = request(&address, &format!("POST {path}"), &object.to_string()).unwrap();
        assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    };
    let kueue = |kind: &str, name: &str, spec: Value| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec});
    let quota = json!({"name": "default", "resources": [{"name": "cpu", "nominalQuota": 2}]});
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [quota]}]);
    let queue = json!({"namespaceSelector": {}, "resourceGroups": groups});
    create("/apis/kueue.x-k8s.io/v1beta2/resourceflavors", kueue("ResourceFlavor", "default", json!({})));
    create("/apis/kueue.x-k8s.io/v1beta2/clusterqueues", kueue("ClusterQueue", "team", queue));
    let local = kueue("LocalQueue", "team", json!({"clusterQueue": "team"}));
    create("/apis/kueue.x-k8s.io/v1beta2/namespaces/default/localqueues", local);
    let template = json!({"spec": {"restartPolicy": "Never",
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": 2}}}]}});
    let labels = json!({"kueue.x-k8s.io/queue-name": "team"});
    let queued = |name: &str, labels: Value| {
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "labels": labels},
            "spec": {"template": template}})
    };
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let why = |name: &str| run(dir.path(), &["why", name], "");
    // What was created before is shown when this is.
    let wait = |name: &str, text: &str| {
        let begin = std::time::Instant::now();
        loop {
            let answer = why(name);
            let said = String::from_utf8([answer.stdout, answer.stderr].concat()).unwrap();
            if said.contains(text) {
                return said;
            }
            assert!(begin.elapsed() < std::time::Duration::from_mins(1), "{name}: {said}");
        }
    };
    create(jobs, queued("first", labels.clone()));
    wait("job/first", "is admitted");
    create(jobs, queued("second", labels.clone()));
    let before = request(&address, &format!("GET {jobs}"), "").unwrap().matches("\"uid\"").count();
    let planned =
        printed(&run(dir.path(), &["plan", "-f", "-"], &queued("third", labels.clone()).to_string()));
    assert!(planned.starts_with("Workload default/job-third would be pending"), "{planned}");
    let after = request(&address, &format!("GET {jobs}"), "").unwrap().matches("\"uid\"").count();
    assert_eq!(before, after, "a plan creates nothing");
    let mut generated = queued("", labels.clone());
    generated["metadata"] = json!({"generateName": "run-", "labels": labels});
    let planned = printed(&run(dir.path(), &["plan", "-f", "-"], &generated.to_string()));
    assert!(planned.starts_with("Workload default/job-run-"), "{planned}");
    let mut foreign = queued("third", labels.clone());
    foreign["metadata"]["namespace"] = "kube-public".into();
    let both = format!("{}\n---\n{foreign}\n", queued("third", labels.clone()));
    // The endpoint answers for one namespace, so the cluster is read.
    let planned = printed(&run(dir.path(), &["plan", "-f", "-"], &both));
    assert!(planned.starts_with("Workload default/job-third would be pending"), "{planned}");
    assert!(
        planned.contains("kube-public/job-third could not be queued: LocalQueue team doesn't exist"),
        "{planned}"
    );
    let elsewhere =
        run(dir.path(), &["plan", "-n", "nowhere", "-f", "-"], &queued("third", labels.clone()).to_string());
    assert!(stderr_of_failure(&elsewhere).contains("nowhere"), "{elsewhere:?}");
    create(jobs, queued("free", json!({})));
    let mut classed = queued("classed", labels);
    classed["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "none".into();
    let error = stderr_of_failure(&run(dir.path(), &["plan", "-f", "-"], &classed.to_string()));
    assert!(error.contains("there is no WorkloadPriorityClass none"), "{error}");
    create(jobs, classed);
    let set = json!({"replicatedJobs": [{"name": "w", "template": {"spec": {"template": template}}}]});
    create(
        "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets",
        json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
            "metadata": {"name": "set", "labels": {"kueue.x-k8s.io/queue-name": "team"}}, "spec": set}),
    );
    for name in ["second", "jobs/second", "job.batch/default/second", "set", "jobset/set", "job/set-w-0"] {
        wait(name, "pending");
    }
    wait("job/free", "Job default/free is in no queue");
    wait("classed", "Job default/classed gets no Workload: its label names the WorkloadPriorityClass none");
    wait("rayjob/first", "there is no RayJob default/first");
    wait("nothing", "there is no AppWrapper or Workload default/nothing");
    let pods =
        request(&address, "GET /api/v1/namespaces/default/pods?labelSelector=job-name%3Dfirst", "").unwrap();
    let pods: Value = serde_json::from_str(pods.split_once("\r\n\r\n").unwrap().1).unwrap();
    let pod = pods["items"][0]["metadata"]["name"].as_str().unwrap();
    wait(&format!("pod/{pod}"), "is admitted");
    wait(pod, "is admitted");
    let wrapper: Value = serde_saphyr::from_str(&job("wrapped", 2)).unwrap();
    create("/apis/workload.codeflare.dev/v1beta1/namespaces/default/appwrappers", wrapper);
    wait("job/wrapped", "default/wrapped runs");
    assert_eq!(running.end(), Some(0));
}
