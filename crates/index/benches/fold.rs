//! Folds the watch events of running gangs: each pod is created, bound, started and deleted, in rounds of 1,000 events.
//! Each round reads the pods of the gangs that changed, as the controller does.
//!
//! Prints nothing: the cost is the instruction count.
//!
//! ```sh
//! cargo bench -p index --bench fold --no-run    # prints the path of the program
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null PROGRAM GANGS PODS
//! ```

use api::MicroTime;
use api::appwrapper::Group;
use index::{Index, Kind, KindState, ObjectRow};
use serde_json::{Value, json};

/// Events of a round.
const ROUND: usize = 1_000;

fn main() {
    let sizes: Vec<usize> = std::env::args().skip(1).filter_map(|size| size.parse().ok()).collect();
    let [gangs, pods] = *sizes else { return }; // `cargo test --benches` only checks that it builds.
    let mut index = Index::new();
    for at in 0..pods {
        upsert_node(&mut index, at);
    }
    let job = Kind::new("batch/v1", "Job");
    for gang in 0..gangs {
        upsert_gang(&mut index, &job, gang, pods);
    }
    index.set_kind_state(&job, &KindState::Served { plural: "jobs".into(), listed: true });
    round(&mut index);
    let mut events = 0;
    for phase in ["Gated", "Pending", "Running", "Deleted"] {
        for (gang, at) in (0..gangs).flat_map(|gang| (0..pods).map(move |at| (gang, at))) {
            match phase {
                "Deleted" => index.delete_pod(&format!("pod-{gang}-{at}")),
                _ => upsert_pod(&mut index, gang, at, phase),
            }
            events += 1;
            if events % ROUND == 0 {
                round(&mut index);
            }
        }
    }
    round(&mut index);
}

/// What the controller reads in each round.
fn round(index: &mut Index) {
    index.settle();
    for uid in index.take_dirty() {
        let Some(wrapper) = index.wrapper(&uid) else { continue };
        let pods = index.pods_of(wrapper);
        std::hint::black_box(index.tracked_counts(wrapper, &pods));
        std::hint::black_box(index.unschedulable_pods(wrapper, &pods));
        let ungatings = index.ungatings(wrapper, &pods);
        index.place_pods(&ungatings);
    }
}

fn upsert_node(index: &mut Index, at: usize) {
    let name = format!("node-{at}");
    let node = json!({
        "metadata": { "name": name, "uid": name, "labels": { "kubernetes.io/hostname": name } },
        "status": { "allocatable": { "cpu": "64", "pods": "110" },
            "conditions": [{ "type": "Ready", "status": "True" }] },
    });
    index.upsert_node(serde_json::from_value(node).expect("a node"));
}

/// A running gang with one pod on each node.
fn upsert_gang(index: &mut Index, kind: &Kind, gang: usize, pods: usize) {
    let template = json!({ "spec": { "containers": [container()] } });
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": format!("job-{gang}") },
        "spec": { "parallelism": pods, "completions": pods, "template": template },
    });
    let wrapper = json!({
        "metadata": meta(&format!("wrapper-{gang}"), None),
        "spec": { "resources": { "GenericItems": [{ "replicas": 1, "generictemplate": job }] } },
        "status": { "canrun": true, "state": "Running", "queuejobstate": "Dispatched" },
    });
    let wrapper = serde_json::from_value(wrapper).expect("an AppWrapper");
    index.upsert_wrapper(Group::Mcad, wrapper, MicroTime(1));
    let places: Value = (0..pods).map(|at| (format!("node-{at}"), json!(1))).collect();
    let mut metadata = meta(&format!("job-{gang}"), Some(&format!("wrapper-{gang}")));
    metadata["annotations"] = json!({ "muster.dev/assignment": json!([places]).to_string() });
    let job = serde_json::from_value(json!({ "metadata": metadata })).expect("a Job");
    index.upsert_object(ObjectRow::of(kind, job));
}

fn upsert_pod(index: &mut Index, gang: usize, at: usize, phase: &str) {
    let mut metadata = meta(&format!("pod-{gang}-{at}"), Some(&format!("job-{gang}")));
    metadata["labels"] = json!({ "appwrapper.mcad.ibm.com": format!("wrapper-{gang}") });
    let node = format!("node-{at}");
    let mut spec = json!({ "containers": [container()] });
    if phase == "Gated" {
        spec["schedulingGates"] = json!([{ "name": "muster.dev/placement" }]);
    } else {
        spec["nodeSelector"] = json!({ "kubernetes.io/hostname": node });
        spec["nodeName"] = json!(node);
    }
    let status = json!({ "phase": if phase == "Gated" { "Pending" } else { phase } });
    let pod = json!({ "metadata": metadata, "spec": spec, "status": status });
    index.upsert_pod(serde_json::from_value(pod).expect("a pod"));
}

fn container() -> Value {
    json!({ "name": "main", "resources": { "requests": { "cpu": "1" } } })
}

fn meta(name: &str, owner: Option<&str>) -> Value {
    let owners: Vec<Value> = owner.iter().map(|uid| json!({ "uid": uid, "controller": true })).collect();
    json!({ "name": name, "namespace": "ns", "uid": name, "resourceVersion": "7", "ownerReferences": owners })
}
