//! The objects of a case.

use serde_json::{Value, json};

use super::case::{Case, Key, Kind, Namespaces, Node, Pods, Port, Selector, Spread, Term, Volume};
use crate::objects;

/// The label of a host.
pub const HOST_NAME: &str = "kubernetes.io/hostname";
/// The label of the second namespace of a case.
const ROLE: &str = "oracle-role";
/// The label of a node with the seed of its case.
const CASE: &str = "oracle-case";
const TAINT: &str = "oracle-taint";
/// The provisioner of the volumes that [`super::run`] creates.
pub const PROVISIONER: &str = "oracle.muster.dev/volumes";

/// The two namespaces that a case uses.
#[derive(Clone, Debug)]
pub struct Home {
    /// The namespace of its gangs.
    pub own: String,
    /// The second one.
    pub away: String,
}

impl Home {
    /// The objects of the namespaces.
    pub fn namespaces(&self) -> [Value; 2] {
        let namespace = |name: &str, role: &str| {
            let labels = json!({ROLE: format!("{role}-{}", self.own)});
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        };
        [namespace(&self.own, "own"), namespace(&self.away, "away")]
    }
}

/// The objects of a case in its namespaces.
pub struct Manifests<'a> {
    /// The case.
    pub case: &'a Case,
    /// Its namespaces.
    pub home: &'a Home,
}

impl Manifests<'_> {
    /// The name of a node.
    pub fn node_name(&self, node: usize) -> String {
        format!("n{node}-{}", self.case.seed)
    }

    /// The name of the AppWrapper of a gang.
    pub fn gang_name(&self, gang: usize) -> String {
        format!("g{gang}-{}", self.case.seed)
    }

    /// The name of the object of a pod set.
    pub fn set_name(&self, gang: usize, set: usize) -> String {
        format!("g{gang}s{set}-{}", self.case.seed)
    }

    /// The nodes.
    pub fn nodes(&self) -> Vec<Value> {
        self.case.nodes.iter().enumerate().map(|(at, node)| self.node(at, node)).collect()
    }

    /// The pods without a gang.
    pub fn others(&self) -> Vec<Value> {
        let others = self.case.others.iter().enumerate();
        let pod = |(at, (node, pods)): (usize, &(usize, Pods))| {
            let mut pod = self.pod(&format!("other{at}-{}", self.case.seed), pods);
            pod["spec"]["nodeName"] = json!(self.node_name(*node));
            pod["metadata"]["namespace"] = json!(if pods.is_away { &self.home.away } else { &self.home.own });
            pod
        };
        others.map(pod).collect()
    }

    /// The storage class, claims and volumes.
    pub fn volumes(&self) -> Vec<Value> {
        let mut objects = Vec::new();
        for (gang, sets) in self.case.gangs.iter().enumerate() {
            for (set, pods) in sets.iter().enumerate() {
                let name = self.set_name(gang, set);
                match pods.volume {
                    Some(Volume::InZone(zone)) => {
                        objects.extend(self.bound(&name, &self.key(Key::Zone), &zone.to_string()));
                    }
                    Some(Volume::OnNode(node)) => {
                        objects.extend(self.bound(&name, HOST_NAME, &self.node_name(node)));
                    }
                    Some(Volume::Waiting) => {
                        let mut claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                            "metadata": {"name": name, "namespace": self.home.own}});
                        claim["spec"] = self.claim_spec();
                        objects.extend([self.class(), claim]);
                    }
                    Some(Volume::Created) => objects.push(self.class()),
                    None => {}
                }
            }
        }
        objects
    }

    /// The AppWrappers.
    pub fn gangs(&self) -> Vec<Value> {
        let gangs = self.case.gangs.iter().enumerate();
        let gang = |(gang, sets): (usize, &Vec<Pods>)| {
            let objects =
                sets.iter().enumerate().map(|(set, pods)| self.object(&self.set_name(gang, set), pods));
            let mut wrapper = objects::wrap(&self.gang_name(gang), objects);
            wrapper["metadata"]["namespace"] = json!(self.home.own);
            wrapper
        };
        gangs.map(gang).collect()
    }

    fn key(&self, key: Key) -> String {
        match key {
            Key::HostName => HOST_NAME.to_owned(),
            Key::Host => format!("oracle-host-{}", self.case.seed),
            Key::Zone => format!("oracle-zone-{}", self.case.seed),
        }
    }

    fn node(&self, at: usize, node: &Node) -> Value {
        let name = self.node_name(at);
        let mut object = objects::node(&name, &format!("cpu={}", node.cpus));
        let labels = &mut object["metadata"]["labels"];
        labels[CASE] = json!(self.case.seed.to_string());
        labels[self.key(Key::Host)] = json!(name);
        if let Some(zone) = node.zone {
            labels[self.key(Key::Zone)] = json!(zone.to_string());
        }
        if node.is_tainted {
            object["spec"] = json!({"taints": [{"key": TAINT, "effect": "NoSchedule"}]});
        }
        object
    }

    /// A volume on the nodes with this label, and its claim.
    fn bound(&self, name: &str, key: &str, value: &str) -> [Value; 2] {
        let terms = json!([{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}]);
        let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"], "hostPath": {"path": "/tmp"},
            "storageClassName": "", "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": self.home.own, "name": name},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}});
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": self.home.own},
            "spec": {"volumeName": name, "accessModes": ["ReadWriteMany"], "storageClassName": "",
                "resources": {"requests": {"storage": "1Gi"}}}});
        [volume, claim]
    }

    fn class_name(&self) -> String {
        format!("oracle-class-{}", self.case.seed)
    }

    fn class(&self) -> Value {
        let mut class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": {"name": self.class_name()}, "provisioner": PROVISIONER,
            "volumeBindingMode": "WaitForFirstConsumer"});
        if !self.case.class_zones.is_empty() {
            let values: Vec<String> = self.case.class_zones.iter().map(u8::to_string).collect();
            let expression = json!({"key": self.key(Key::Zone), "values": values});
            class["allowedTopologies"] = json!([{"matchLabelExpressions": [expression]}]);
        }
        class
    }

    fn claim_spec(&self) -> Value {
        json!({"accessModes": ["ReadWriteOnce"], "storageClassName": self.class_name(),
            "resources": {"requests": {"storage": "1Gi"}}})
    }

    fn object(&self, name: &str, pods: &Pods) -> Value {
        let pod = self.pod(name, pods);
        let labels = &pod["metadata"]["labels"];
        let template = json!({"metadata": {"labels": labels}, "spec": pod["spec"]});
        match pods.kind {
            Kind::Pod => pod,
            Kind::Job => json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
                "spec": {"parallelism": pods.count, "completions": pods.count, "template": template}}),
            Kind::Deployment => {
                json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
                "spec": {"replicas": pods.count, "selector": {"matchLabels": {"set": name}}, "template": template}})
            }
        }
    }

    fn pod(&self, name: &str, pods: &Pods) -> Value {
        let mut labels = json!({"app": self.app(pods.app), "set": name});
        if let Some(version) = pods.version {
            labels["version"] = json!(format!("v{version}"));
        }
        let mut spec = json!({
            "terminationGracePeriodSeconds": 0,
            "restartPolicy": if pods.kind == Kind::Job { "Never" } else { "Always" },
            "nodeSelector": {CASE: self.case.seed.to_string()},
            "containers": [{"name": "work", "image": "busybox", "resources": {"requests": {"cpu": pods.cpus.to_string()}}}],
        });
        if let Some(zone) = pods.zone {
            spec["nodeSelector"][self.key(Key::Zone)] = json!(zone.to_string());
        }
        if pods.tolerates {
            spec["tolerations"] = json!([{"key": TAINT, "operator": "Exists"}]);
        }
        if let Some(node) = pods.node_name {
            spec["nodeName"] = json!(self.node_name(node));
        }
        self.add_rules(&mut spec, pods);
        if let Some(volume) = self.pod_volume(name, pods) {
            spec["volumes"] = json!([volume]);
        }
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec})
    }

    fn pod_volume(&self, name: &str, pods: &Pods) -> Option<Value> {
        Some(match pods.volume? {
            Volume::InZone(_) | Volume::OnNode(_) | Volume::Waiting => {
                json!({"name": "data", "persistentVolumeClaim": {"claimName": name}})
            }
            Volume::Created => {
                json!({"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": self.claim_spec()}}})
            }
        })
    }

    fn add_rules(&self, spec: &mut Value, pods: &Pods) {
        let rules = &pods.rules;
        let required = |terms: &[Term]| {
            let terms: Vec<Value> = terms.iter().map(|term| self.term(term)).collect();
            json!({"requiredDuringSchedulingIgnoredDuringExecution": terms})
        };
        if !rules.anti_affinity.is_empty() {
            spec["affinity"]["podAntiAffinity"] = required(&rules.anti_affinity);
        }
        if !rules.affinity.is_empty() {
            spec["affinity"]["podAffinity"] = required(&rules.affinity);
        }
        if !rules.spread.is_empty() {
            let spread: Vec<Value> = rules.spread.iter().map(|spread| self.spread(spread)).collect();
            spec["topologySpreadConstraints"] = json!(spread);
        }
        if !rules.ports.is_empty() {
            let ports: Vec<Value> = rules.ports.iter().map(port).collect();
            spec["containers"][0]["ports"] = json!(ports);
        }
    }

    fn app(&self, app: u8) -> String {
        format!("app{app}-{}", self.case.seed)
    }

    fn selector(&self, selector: Selector) -> Value {
        match selector {
            Selector::App(app) => json!({"matchLabels": {"app": self.app(app)}}),
            Selector::NotApp(app) => {
                json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [self.app(app)]}]})
            }
            Selector::Versioned => json!({"matchExpressions": [{"key": "version", "operator": "Exists"}]}),
            Selector::Empty => json!({}),
            Selector::Absent => Value::Null,
        }
    }

    fn term(&self, term: &Term) -> Value {
        let mut fields =
            json!({"topologyKey": self.key(term.key), "labelSelector": self.selector(term.selector)});
        match term.namespaces {
            Namespaces::Own => {}
            Namespaces::Away => fields["namespaces"] = json!([self.home.away]),
            Namespaces::LabelledAway => {
                fields["namespaceSelector"] =
                    json!({"matchLabels": {ROLE: format!("away-{}", self.home.own)}});
            }
            Namespaces::All => fields["namespaceSelector"] = json!({}),
        }
        if !term.match_keys.is_empty() {
            fields["matchLabelKeys"] = json!(term.match_keys);
        }
        if !term.mismatch_keys.is_empty() {
            fields["mismatchLabelKeys"] = json!(term.mismatch_keys);
        }
        without_nulls(fields)
    }

    fn spread(&self, spread: &Spread) -> Value {
        let policy = |honors| if honors { "Honor" } else { "Ignore" };
        let mut fields = json!({
            "topologyKey": self.key(spread.key), "maxSkew": spread.max_skew, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": self.selector(spread.selector), "minDomains": spread.min_domains,
            "nodeAffinityPolicy": policy(spread.honors_affinity), "nodeTaintsPolicy": policy(spread.honors_taints),
        });
        if !spread.match_keys.is_empty() {
            fields["matchLabelKeys"] = json!(spread.match_keys);
        }
        without_nulls(fields)
    }
}

fn port(port: &Port) -> Value {
    without_nulls(json!({"containerPort": port.port, "hostPort": port.port, "protocol": port.protocol,
        "hostIP": port.address}))
}

fn without_nulls(mut value: Value) -> Value {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    value
}
