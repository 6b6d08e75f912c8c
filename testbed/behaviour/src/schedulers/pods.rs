//! Random pods of a case, with the claims and volumes that they use.

use fastrand::Rng;
use serde_json::{Value, json};

use super::case::{DEVICE, NAMESPACES, RUNTIME_CLASS, TAINTS, node_name, one, percent, pin};

mod rules;
mod storage;

use rules::HASHES;
pub use storage::MISSING;
use storage::volume;

/// The probabilities of the parts of a pod, in percent.
struct Odds {
    /// That it tolerates all taints.
    pass: u32,
    /// That it requests resources.
    requests: u32,
    /// That it selects nodes, and that it has affinity to nodes.
    nodes: u32,
    /// That it has affinity to pods, and anti-affinity.
    pods: u32,
    /// That it has topology spread constraints.
    spread: u32,
    /// That it has a host port.
    ports: u32,
    /// That it has a claim.
    volumes: u32,
    /// That it requests what only one node has.
    pin: u32,
}

/// Makes the pods of a case.
pub struct Pods {
    seed: u64,
    nodes: Vec<Value>,
    random: Rng,
    storage: Vec<Value>,
    /// Claims of `ReadWriteOncePod` that a pod with a node uses, with their namespaces.
    taken: Vec<(&'static str, String)>,
}

impl Pods {
    /// Pods for these nodes.
    pub fn new(seed: u64, nodes: &[Value], random: Rng) -> Self {
        Self { seed, nodes: nodes.to_vec(), random, storage: Vec::new(), taken: Vec::new() }
    }

    /// The storage of all pods made so far.
    pub fn storage(self) -> Vec<Value> {
        self.storage
    }

    fn percent(&mut self, probability: u32) -> bool {
        percent(&mut self.random, probability)
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        one(&mut self.random, of)
    }

    /// Some of these values, at least one.
    fn some(&mut self, of: &[&str]) -> Vec<String> {
        let mut chosen: Vec<String> =
            of.iter().filter(|_| self.random.bool()).map(ToString::to_string).collect();
        if chosen.is_empty() {
            chosen.push(self.one(of).to_owned());
        }
        chosen
    }

    /// The pods that have a node. They fit there: a kubelet would refuse others.
    pub fn fixed(&mut self) -> Vec<Value> {
        let mut pods = Vec::new();
        for at in 0..self.nodes.len() {
            let room: usize = if self.nodes[at]["status"]["allocatable"]["pods"] == "110" { 6 } else { 1 };
            let mut ports = vec![80, 81, 82];
            let mut has_device = self.nodes[at]["status"]["allocatable"][DEVICE].is_string();
            for number in 0..self.random.usize(0..=room) {
                let mut pod = self.pod(&format!("fixed-n{at}-{number}"));
                let requests = json!({"cpu": self.one(&["100m", "250m", "450m"]), "memory": self.one(&["100Mi", "700Mi"])});
                let container = &mut pod["spec"]["containers"][0];
                container["resources"] = json!({"requests": requests});
                if has_device && self.percent(30) {
                    has_device = false;
                    container["resources"]["limits"] = json!({DEVICE: "1"});
                }
                if self.percent(35) {
                    let port = ports.swap_remove(self.random.usize(..ports.len()));
                    pod["spec"]["containers"][0]["ports"] = json!([self.port(port)]);
                    if ports.is_empty() {
                        ports.push(90);
                    }
                }
                if self.percent(25) {
                    pod["spec"]["affinity"]["podAntiAffinity"] = self.pod_terms(&pod, true);
                }
                if self.percent(10) {
                    let mut disk = self.disk();
                    disk["name"] = json!("disk");
                    pod["spec"]["volumes"] = json!([disk]);
                } else if self.percent(15) {
                    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
                    let namespace =
                        NAMESPACES.iter().find(|(name, _)| *name == namespace).unwrap_or(&NAMESPACES[0]).0;
                    let name = format!("taken-n{at}-{number}-{}", self.seed);
                    self.bound(&name, namespace, "ReadWriteOncePod", &json!({}), None);
                    pod["spec"]["volumes"] = json!([volume(&name)]);
                    self.taken.push((namespace, name));
                }
                pod["spec"]["nodeName"] = json!(node_name(self.seed, at));
                pod["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
                pods.push(pod);
            }
        }
        pods
    }

    /// The pods to schedule.
    pub fn probes(&mut self) -> Vec<Value> {
        (0..10).map(|number| self.probe(number)).collect()
    }

    /// The filters run in order, and the first one that rejects a node decides. So most pods try few filters, and pass those before.
    fn probe(&mut self, number: usize) -> Value {
        let odds = self.one(&[
            &Odds { pass: 0, requests: 70, nodes: 25, pods: 20, spread: 30, ports: 15, volumes: 30, pin: 35 },
            &Odds { pass: 90, requests: 20, nodes: 10, pods: 55, spread: 15, ports: 5, volumes: 5, pin: 35 },
            &Odds { pass: 75, requests: 10, nodes: 15, pods: 5, spread: 100, ports: 5, volumes: 5, pin: 45 },
            &Odds { pass: 90, requests: 10, nodes: 5, pods: 5, spread: 5, ports: 5, volumes: 100, pin: 15 },
            &Odds { pass: 80, requests: 90, nodes: 5, pods: 5, spread: 5, ports: 60, volumes: 5, pin: 25 },
        ]);
        let mut pod = self.pod(&format!("probe-{number}"));
        if self.percent(odds.requests) {
            self.requests(&mut pod);
        }
        if self.percent(odds.pass) {
            pod["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
        } else if self.percent(60) {
            pod["spec"]["tolerations"] = self.tolerations();
        }
        if self.percent(odds.nodes) {
            pod["spec"]["nodeSelector"] = self.node_selector();
        }
        if self.percent(odds.nodes) {
            pod["spec"]["affinity"]["nodeAffinity"] = self.node_affinity();
        }
        if self.percent(odds.pods) {
            pod["spec"]["affinity"]["podAffinity"] = self.pod_terms(&pod, false);
        }
        if self.percent(odds.pods) {
            pod["spec"]["affinity"]["podAntiAffinity"] = self.pod_terms(&pod, false);
        }
        if self.percent(odds.spread) {
            pod["spec"]["topologySpreadConstraints"] = self.spread(&pod);
        }
        if self.percent(odds.ports) {
            let number = self.one(&[80, 81, 82]);
            pod["spec"]["containers"][0]["ports"] = json!([self.port(number)]);
            if self.percent(10) {
                pod["spec"]["hostNetwork"] = json!(true);
            }
        }
        if self.percent(2) {
            pod["spec"]["schedulingGates"] = json!([{"name": "example.com/gate"}]);
        }
        if self.percent(odds.volumes) {
            let mut volumes = Vec::new();
            for at in 0..self.one(&[1, 1, 1, 2]) {
                let name = format!("probe-{number}-{at}-{}", self.seed);
                let mut volume = self.volume(&pod, &name);
                volume["name"] = json!(format!("data{at}"));
                volumes.push(volume);
            }
            pod["spec"]["volumes"] = json!(volumes);
        }
        if self.percent(odds.pin) {
            let at = self.random.usize(..self.nodes.len());
            pod = pinned(&pod, at);
        }
        pod
    }

    fn pod(&mut self, name: &str) -> Value {
        let (namespace, _) =
            self.one(&[NAMESPACES[0], NAMESPACES[0], NAMESPACES[0], NAMESPACES[1], NAMESPACES[2]]);
        let mut labels = json!({"app": self.one(&["a", "b", "c"])});
        if self.percent(50) {
            labels["version"] = json!(self.one(&["v1", "v2"]));
        }
        if self.percent(30) {
            labels["size"] = json!(self.one(&["1", "2"]));
        }
        for key in HASHES {
            if self.percent(40) {
                labels[key] = json!(self.one(&["x", "y"]));
            }
        }
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("{name}-{}", self.seed), "namespace": namespace, "labels": labels},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "work", "image": "busybox"}],
            },
        })
    }

    fn amounts(&mut self) -> Value {
        let mut requests = json!({});
        if self.percent(70) {
            requests["cpu"] = json!(self.one(&["100m", "500m", "1", "1500m", "3", "3700m", "9"]));
        }
        if self.percent(50) {
            requests["memory"] = json!(self.one(&["64Mi", "1Gi", "3Gi", "5G", "20Gi"]));
        }
        if self.percent(10) {
            requests["ephemeral-storage"] = json!(self.one(&["1Gi", "60Gi", "101Gi"]));
        }
        let mut limits = json!({});
        if self.percent(20) {
            limits[DEVICE] = json!(self.one(&["1", "2", "3"]));
        }
        if self.percent(5) {
            limits["example.com/none"] = json!(self.one(&["0", "1"]));
        }
        json!({"requests": requests, "limits": limits})
    }

    fn requests(&mut self, pod: &mut Value) {
        pod["spec"]["containers"][0]["resources"] = self.amounts();
        if self.percent(20) {
            let resources = self.amounts();
            let second = json!({"name": "more", "image": "busybox", "resources": resources});
            pod["spec"]["containers"].as_array_mut().into_iter().for_each(|all| all.push(second.clone()));
        }
        if self.percent(25) {
            let mut inits = Vec::new();
            for number in 0..self.random.usize(1..=3) {
                let mut init =
                    json!({"name": format!("init{number}"), "image": "busybox", "resources": self.amounts()});
                if self.percent(40) {
                    init["restartPolicy"] = json!("Always");
                    if self.percent(20) {
                        init["ports"] = json!([self.port(81)]);
                    }
                }
                inits.push(init);
            }
            pod["spec"]["initContainers"] = json!(inits);
        }
        if self.percent(15) {
            // The requests of a pod are not less than those of its containers.
            let mut resources = json!({});
            if self.percent(70) {
                resources["cpu"] = json!(self.one(&["1", "3800m", "7"]));
            }
            if self.percent(70) {
                resources["memory"] = json!(self.one(&["2Gi", "7Gi"]));
            }
            let whole = json!({"requests": resources});
            pod["spec"]["resources"] = whole;
            for container in ["containers", "initContainers"] {
                for container in pod["spec"][container].as_array_mut().into_iter().flatten() {
                    for (name, most) in [("cpu", "100m"), ("memory", "64Mi")] {
                        if container["resources"]["requests"][name].is_string() {
                            container["resources"]["requests"][name] = json!(most);
                        }
                    }
                }
            }
        }
        if self.percent(10) {
            pod["spec"]["runtimeClassName"] = json!(RUNTIME_CLASS);
        }
    }

    fn port(&mut self, number: u16) -> Value {
        let mut port = json!({"containerPort": number, "hostPort": number});
        if self.percent(50) {
            port["protocol"] = json!(self.one(&["TCP", "UDP", "SCTP"]));
        }
        if self.percent(50) {
            port["hostIP"] = json!(self.one(&["0.0.0.0", "127.0.0.1", "10.0.0.1"]));
        }
        port
    }

    fn tolerations(&mut self) -> Value {
        let mut tolerations = Vec::new();
        if self.percent(15) {
            tolerations.push(json!({"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}));
        }
        if self.percent(15) {
            tolerations.push(json!({"operator": "Exists"}));
        }
        for _ in 0..self.random.usize(1..=2) {
            let mut toleration = json!({"key": self.one(&TAINTS)});
            match self.random.u32(..4) {
                0 | 1 => toleration["operator"] = json!("Exists"),
                2 => toleration["value"] = json!(self.one(&["yes", "no"])),
                _ => {
                    toleration["operator"] = json!("Equal");
                    if self.percent(70) {
                        toleration["value"] = json!(self.one(&["yes", "no", "3"]));
                    }
                }
            }
            if self.percent(50) {
                toleration["effect"] = json!(self.one(&["NoSchedule", "NoExecute", "PreferNoSchedule"]));
                if toleration["effect"] == "NoExecute" && self.percent(50) {
                    toleration["tolerationSeconds"] = json!(600);
                }
            }
            tolerations.push(toleration);
        }
        json!(tolerations)
    }
}

/// The pod, which can run only on one node: it requests what only that node has.
pub fn pinned(pod: &Value, node: usize) -> Value {
    let mut pod = pod.clone();
    let resources = &mut pod["spec"]["containers"][0]["resources"];
    if !resources["limits"].is_object() {
        resources["limits"] = json!({});
    }
    resources["limits"][pin(node)] = json!("1");
    pod
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_pod_requests_what_only_its_node_has() {
        let pod = json!({"spec": {"containers": [{"name": "work"}]}});
        assert_eq!(
            pinned(&pod, 2)["spec"]["containers"][0]["resources"]["limits"]["pin.example.com/n2"],
            "1"
        );
    }
}
