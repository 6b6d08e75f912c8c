//! Random cases: nodes with pods on them, and pods to schedule beside them.
//!
//! The objects of a case depend only on its seed. What the sandbox declares to do otherwise (`docs/sandbox.md`) is not generated:
//! resource claims, `CSINode` objects, features of nodes, priorities, and Services with their default spread constraints.

use fastrand::Rng;
use serde_json::{Map, Value, json};

use super::pods::Pods;

/// The namespaces of all pods, with the values of their label [`TEAM`].
pub const NAMESPACES: [(&str, &str); 3] =
    [("schedulers-a", "red"), ("schedulers-b", "red"), ("schedulers-c", "blue")];
/// The label of a namespace.
pub const TEAM: &str = "team";
/// The runtime class with an overhead.
pub const RUNTIME_CLASS: &str = "schedulers";
/// The label of a zone.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// The label of a region.
pub const REGION: &str = "topology.kubernetes.io/region";
/// The label of a host.
pub const HOST_NAME: &str = "kubernetes.io/hostname";
/// The provisioner of classes whose volumes are created on demand.
pub const PROVISIONER: &str = "schedulers.muster.dev/volumes";
/// A device that some nodes have.
pub const DEVICE: &str = "example.com/device";
/// The keys of taints.
pub const TAINTS: [&str; 3] = ["gpu", "spot", "drain"];

/// One case.
#[derive(Clone, Debug)]
pub struct Case {
    /// The seed.
    pub seed: u64,
    /// The nodes.
    pub nodes: Vec<Value>,
    /// The storage classes, volumes and claims, in the order of their creation.
    pub storage: Vec<Value>,
    /// The pods that have a node.
    pub fixed: Vec<Value>,
    /// The pods to schedule, one after the other.
    pub probes: Vec<Value>,
}

impl Case {
    /// The case of a seed.
    pub fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let nodes: Vec<Value> = (0..random.usize(2..=5)).map(|at| node(seed, at, &mut random)).collect();
        let mut pods = Pods::new(seed, &nodes, random);
        let fixed = pods.fixed();
        let probes = pods.probes();
        Self { seed, storage: pods.storage(), nodes, fixed, probes }
    }
}

/// The resource that only this node has. A pod that requests it can run only there, which changes no other filter.
pub fn pin(node: usize) -> String {
    format!("pin.example.com/n{node}")
}

/// The name of a node.
pub fn node_name(seed: u64, at: usize) -> String {
    format!("n{at}-{seed}")
}

/// One of these.
pub fn one<T: Copy>(random: &mut Rng, of: &[T]) -> T {
    of[random.usize(..of.len())]
}

/// Whether an event of this probability, in percent, happens.
pub fn percent(random: &mut Rng, percent: u32) -> bool {
    random.u32(..100) < percent
}

fn node(seed: u64, at: usize, random: &mut Rng) -> Value {
    let name = node_name(seed, at);
    let resources = format!(
        "cpu={} memory={} pods={}",
        one(random, &["2", "4", "3500m", "8"]),
        one(random, &["4Gi", "8Gi", "7500Mi", "16G"]),
        one(random, &["110", "110", "110", "3", "1"]),
    );
    let mut node = crate::objects::node(&name, &resources);
    for amounts in ["capacity", "allocatable"] {
        node["status"][amounts][pin(at)] = json!("1");
    }
    if percent(random, 50) {
        let devices = one(random, &["1", "2", "4"]);
        for amounts in ["capacity", "allocatable"] {
            node["status"][amounts][DEVICE] = json!(devices);
        }
    }
    let labels = &mut node["metadata"]["labels"];
    let mut label = |probability, key: &str, values: &[&str]| {
        if percent(random, probability) {
            labels[key] = json!(one(random, values));
        }
    };
    label(85, ZONE, &["z1", "z2", "z3"]);
    label(70, REGION, &["r1", "r2"]);
    label(60, "rack", &["k1", "k2"]);
    label(60, "disk", &["ssd", "hdd"]);
    label(60, "cores", &["4", "8", "16", "many"]);
    let mut taints = Vec::new();
    for key in TAINTS {
        if percent(random, 13) {
            let effect = one(random, &["NoSchedule", "NoExecute", "PreferNoSchedule"]);
            let mut taint = json!({"key": key, "effect": effect});
            if random.bool() {
                taint["value"] = json!(one(random, &["yes", "no", "3"]));
            }
            taints.push(taint);
        }
    }
    let mut spec = Map::new();
    if !taints.is_empty() {
        spec.insert("taints".to_owned(), json!(taints));
    }
    if percent(random, 12) {
        spec.insert("unschedulable".to_owned(), json!(true));
    }
    node["spec"] = Value::Object(spec);
    node
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_case() {
        for seed in 0..20 {
            let (one, other) = (Case::new(seed), Case::new(seed));
            assert_eq!(format!("{one:?}"), format!("{other:?}"));
            assert!(!one.probes.is_empty());
        }
    }
}
