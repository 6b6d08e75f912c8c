//! The rules of random pods: which nodes they select, and what other pods they need or avoid.

use serde_json::{Value, json};

use super::Pods;
use crate::schedulers::case::{HOST_NAME, NAMESPACES, REGION, TEAM, ZONE, node_name};

/// Labels of pods that rules name in `matchLabelKeys` and `mismatchLabelKeys`.
pub(super) const HASHES: [&str; 2] = ["pod-hash", "tenant"];

impl Pods {
    pub(super) fn node_selector(&mut self) -> Value {
        let (key, value) = self.one(&[
            (ZONE, "z1"),
            (ZONE, "z2"),
            ("disk", "ssd"),
            ("rack", "k1"),
            (REGION, "r1"),
            ("disk", ""),
        ]);
        json!({key: value})
    }

    pub(super) fn node_requirement(&mut self) -> Value {
        match self.random.u32(..8) {
            0 | 1 => json!({"key": ZONE, "operator": "In", "values": self.some(&["z1", "z2", "z3"])}),
            2 => json!({"key": ZONE, "operator": "NotIn", "values": self.some(&["z1", "z2", "z3"])}),
            3 => json!({"key": self.one(&["disk", "rack"]), "operator": "Exists"}),
            4 => json!({"key": self.one(&["disk", "rack"]), "operator": "DoesNotExist"}),
            5 => json!({"key": "cores", "operator": "Gt", "values": [self.one(&["4", "7", "0"])]}),
            6 => json!({"key": "cores", "operator": "Lt", "values": [self.one(&["8", "16", "9"])]}),
            _ => json!({"key": "disk", "operator": self.one(&["In", "NotIn"]), "values": ["ssd"]}),
        }
    }

    pub(super) fn node_affinity(&mut self) -> Value {
        let mut terms = Vec::new();
        for _ in 0..self.random.usize(1..=2) {
            let mut term = json!({});
            if self.percent(75) {
                let count = self.random.usize(1..=2);
                term["matchExpressions"] = (0..count).map(|_| self.node_requirement()).collect();
            }
            if self.percent(30) {
                let at = self.random.usize(..=self.nodes.len());
                let operator = self.one(&["In", "In", "NotIn"]);
                term["matchFields"] = json!([{"key": "metadata.name", "operator": operator, "values": [node_name(self.seed, at)]}]);
                if self.percent(15) {
                    let other = json!({"key": "metadata.name", "operator": "In", "values": [node_name(self.seed, 0)]});
                    term["matchFields"].as_array_mut().into_iter().for_each(|all| all.push(other.clone()));
                }
            }
            terms.push(term);
        }
        json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}})
    }

    pub(super) fn label_selector(&mut self, own: &Value) -> Value {
        match self.random.u32(..10) {
            8 | 9 => json!({"matchLabels": {"app": own["metadata"]["labels"]["app"]}}),
            0..=2 => json!({"matchLabels": {"app": self.one(&["a", "b", "c"])}}),
            3 => {
                json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": self.some(&["a", "b"])}]})
            }
            4 => json!({"matchExpressions": [{"key": "version", "operator": "Exists"}]}),
            5 => {
                json!({"matchExpressions": [{"key": "size", "operator": "DoesNotExist"}], "matchLabels": {"app": "a"}})
            }
            6 => json!({}),
            _ => Value::Null,
        }
    }

    pub(super) fn topology_key(&mut self) -> &'static str {
        self.one(&[ZONE, ZONE, ZONE, HOST_NAME, HOST_NAME, REGION, "rack"])
    }

    /// Terms of inter-pod affinity. Those of a pod without a node have no namespace selector with a negative operator: kube-scheduler
    /// 1.36.3 then counts the pods of all namespaces (kubernetes/kubernetes#141563).
    pub(super) fn pod_terms(&mut self, own: &Value, has_node: bool) -> Value {
        let mut terms = Vec::new();
        for _ in 0..self.random.usize(1..=2) {
            let mut term = json!({"topologyKey": self.topology_key()});
            let selector = self.label_selector(own);
            if !selector.is_null() {
                term["labelSelector"] = selector;
                if self.percent(15) {
                    let field = self.one(&["matchLabelKeys", "mismatchLabelKeys"]);
                    term[field] = json!([self.one(&HASHES)]);
                }
            }
            if self.percent(25) {
                term["namespaces"] = json!([self.one(&NAMESPACES).0]);
            }
            if self.percent(30) {
                term["namespaceSelector"] = match self.random.u32(..4) {
                    0 => json!({}),
                    1 => json!({"matchLabels": {TEAM: "red"}}),
                    2 => json!({"matchLabels": {TEAM: "blue"}}),
                    _ if has_node => {
                        json!({"matchExpressions": [{"key": TEAM, "operator": "NotIn", "values": ["red"]}]})
                    }
                    _ => {
                        json!({"matchExpressions": [{"key": TEAM, "operator": "In", "values": ["blue", "green"]}]})
                    }
                };
            }
            terms.push(term);
        }
        json!({"requiredDuringSchedulingIgnoredDuringExecution": terms})
    }

    pub(super) fn spread(&mut self, own: &Value) -> Value {
        let mut constraints: Vec<Value> = Vec::new();
        for _ in 0..self.random.usize(1..=2) {
            let key = self.topology_key();
            if constraints.iter().any(|constraint| constraint["topologyKey"] == key) {
                continue;
            }
            let mut constraint = json!({
                "topologyKey": key, "maxSkew": self.one(&[1, 1, 2]), "whenUnsatisfiable": "DoNotSchedule",
            });
            let selector = self.label_selector(own);
            if !selector.is_null() {
                constraint["labelSelector"] = selector;
                if self.percent(20) {
                    constraint["matchLabelKeys"] = json!([self.one(&HASHES)]);
                }
            }
            if self.percent(15) {
                constraint["whenUnsatisfiable"] = json!("ScheduleAnyway");
            } else if self.percent(30) {
                constraint["minDomains"] = json!(self.random.u32(1..=4));
            }
            for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
                if self.percent(35) {
                    constraint[policy] = json!(self.one(&["Honor", "Ignore"]));
                }
            }
            constraints.push(constraint);
        }
        json!(constraints)
    }
}
