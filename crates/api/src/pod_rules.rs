//! The rules of a pod that concern other pods: required inter-pod affinity and anti-affinity, topology spread constraints
//! with `DoNotSchedule`, and host ports.
//!
//! Parses pod templates and existing pods, with the meaning of kube-scheduler (`plugins/interpodaffinity`,
//! `plugins/podtopologyspread`, `plugins/nodeports`). Invalid fields are skipped.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

use crate::selector::{LabelSelector, Labels, NamespacedSelector, PodSelector, SelectedPod};
use crate::value::{at, integer, list, text};

/// Maximum number of terms and constraints of a pod that are planned.
pub const TERMS_MAX: usize = 100;
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// The rules of a pod that concern other pods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodRules {
    /// Required anti-affinity.
    pub anti_affinity: Vec<PodTerm>,
    /// Required affinity.
    pub affinity: Vec<PodTerm>,
    /// Topology spread constraints with `DoNotSchedule`.
    pub spread: Vec<SpreadConstraint>,
    /// Ports that the pod occupies on its node.
    pub host_ports: BTreeSet<HostPort>,
}

/// A term of inter-pod affinity or anti-affinity.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodTerm {
    /// The label key of the domains.
    pub topology_key: String,
    labels: LabelSelector,
    namespaces: BTreeSet<String>,
    namespace_labels: Option<LabelSelector>,
    match_label_keys: Vec<String>,
    mismatch_label_keys: Vec<String>,
}

/// A topology spread constraint with `DoNotSchedule`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpreadConstraint {
    /// The label key of the domains.
    pub topology_key: String,
    /// At least 1.
    pub max_skew: u32,
    /// At least 1.
    pub min_domains: u32,
    /// Whether only nodes count that match the node selector and node affinity of the pod.
    pub honors_affinity: bool,
    /// Whether only nodes count whose taints the pod tolerates.
    pub honors_taints: bool,
    labels: LabelSelector,
    match_label_keys: Vec<String>,
}

/// A port of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    /// 1 to 65535.
    pub port: u16,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// The address; `None`: every address.
    pub address: Option<String>,
}

/// A port of a container.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ContainerPort {
    #[serde(rename = "containerPort")]
    port: Value,
    #[serde(rename = "hostPort")]
    host_port: Value,
    #[serde(rename = "hostIP")]
    host_ip: Value,
    protocol: Value,
}

impl PodRules {
    /// Parses a pod spec. A pod with `nodeName` passes no scheduler: only its host ports limit its start.
    pub fn read(spec: &Value) -> Self {
        let host_ports = host_ports(spec);
        if text(spec, &["nodeName"]).is_some() {
            return Self { host_ports, ..Self::default() };
        }
        let terms = |kind: &str| terms(list(spec, &["affinity", kind, REQUIRED]));
        let constraints = list(spec, &["topologySpreadConstraints"]).iter();
        let hard = constraints.filter(|rule| text(rule, &["whenUnsatisfiable"]) != Some("ScheduleAnyway"));
        Self {
            anti_affinity: terms("podAntiAffinity"),
            affinity: terms("podAffinity"),
            spread: hard.map(SpreadConstraint::read).collect(),
            host_ports,
        }
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        let Self { anti_affinity, affinity, spread, host_ports } = self;
        anti_affinity.is_empty() && affinity.is_empty() && spread.is_empty() && host_ports.is_empty()
    }

    /// Whether the terms and constraints are not too many.
    pub fn is_planned(&self) -> bool {
        self.anti_affinity.len() + self.affinity.len() + self.spread.len() <= TERMS_MAX
    }
}

/// The host ports of the containers and sidecars of a pod spec.
fn host_ports(spec: &Value) -> BTreeSet<HostPort> {
    let on_host = at(spec, &["hostNetwork"]) == true;
    let sidecars = list(spec, &["initContainers"]).iter();
    let sidecars = sidecars.filter(|container| text(container, &["restartPolicy"]) == Some("Always"));
    let containers = list(spec, &["containers"]).iter().chain(sidecars);
    let ports = containers.flat_map(|container| list(container, &["ports"]));
    let ports = ports.filter_map(|port| ContainerPort::deserialize(port).ok());
    ports.filter_map(|port| port.host_port(on_host)).collect()
}

/// Parses terms of inter-pod affinity or anti-affinity.
pub fn terms(terms: &[Value]) -> Vec<PodTerm> {
    terms.iter().map(PodTerm::read).collect()
}

impl PodTerm {
    fn read(term: &Value) -> Self {
        let namespace_labels = at(term, &["namespaceSelector"]);
        Self {
            topology_key: text(term, &["topologyKey"]).unwrap_or_default().to_owned(),
            labels: LabelSelector::read(at(term, &["labelSelector"])),
            namespaces: texts(term, "namespaces").into_iter().collect(),
            namespace_labels: namespace_labels.is_object().then(|| LabelSelector::read(namespace_labels)),
            match_label_keys: texts(term, "matchLabelKeys"),
            mismatch_label_keys: texts(term, "mismatchLabelKeys"),
        }
    }

    /// The pods that the term of this pod selects.
    pub fn selector(&self, owner: &SelectedPod) -> NamespacedSelector {
        let mut namespaces = self.namespaces.clone();
        if namespaces.is_empty() && self.namespace_labels.is_none() {
            namespaces.insert(owner.namespace.clone());
        }
        let labels = with_keys(self.labels.clone(), &self.match_label_keys, &owner.labels, true);
        NamespacedSelector {
            labels: with_keys(labels, &self.mismatch_label_keys, &owner.labels, false),
            namespaces,
            namespace_labels: self.namespace_labels.clone(),
            claim: None,
        }
    }
}

impl SpreadConstraint {
    fn read(constraint: &Value) -> Self {
        let at_least_1 = |key: &str| {
            let number = integer(at(constraint, &[key])).unwrap_or(1);
            u32::try_from(number.max(1)).unwrap_or(u32::MAX)
        };
        Self {
            topology_key: text(constraint, &["topologyKey"]).unwrap_or_default().to_owned(),
            max_skew: at_least_1("maxSkew"),
            min_domains: at_least_1("minDomains"),
            honors_affinity: text(constraint, &["nodeAffinityPolicy"]) != Some("Ignore"),
            honors_taints: text(constraint, &["nodeTaintsPolicy"]) == Some("Honor"),
            labels: LabelSelector::read(at(constraint, &["labelSelector"])),
            match_label_keys: texts(constraint, "matchLabelKeys"),
        }
    }

    /// The pods that the constraint of this pod counts: none for a selector without requirements.
    pub fn selector(&self, owner: &SelectedPod) -> PodSelector {
        let labels = with_keys(self.labels.clone(), &self.match_label_keys, &owner.labels, true);
        let labels = if labels.is_everything() { LabelSelector::nothing() } else { labels };
        let namespaces = BTreeSet::from([owner.namespace.clone()]);
        let part = NamespacedSelector { labels, namespaces, ..NamespacedSelector::default() };
        PodSelector { parts: BTreeSet::from([part]), skips_terminating: true }
    }
}

impl ContainerPort {
    /// The port of the node, if there is one. `on_host`: the pod uses the network of the host.
    pub fn host_port(&self, on_host: bool) -> Option<HostPort> {
        let port =
            |value: &Value| integer(value).and_then(|port| u16::try_from(port).ok()).filter(|p| *p > 0);
        let container_port = || port(&self.port).filter(|_| on_host);
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        Some(HostPort {
            port: port(&self.host_port).or_else(container_port)?,
            protocol: text(&self.protocol).unwrap_or_else(|| "TCP".into()),
            address: text(&self.host_ip).filter(|address| address != "0.0.0.0"),
        })
    }
}

/// The selector with the labels of the pod that these keys name. A key that the pod does not have is ignored.
fn with_keys(selector: LabelSelector, keys: &[String], labels: &Labels, is_equal: bool) -> LabelSelector {
    let present = keys.iter().filter_map(|key| Some((key, labels.get(key)?)));
    present.fold(selector, |selector, (key, value)| selector.with(key, value, is_equal))
}

fn texts(value: &Value, key: &str) -> Vec<String> {
    list(value, &[key]).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(namespace: &str, labels: &[(&str, &str)]) -> SelectedPod {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        SelectedPod { namespace: namespace.into(), labels: labels.collect(), ..SelectedPod::default() }
    }

    #[test]
    fn a_term_selects_pods_as_kube_scheduler_does() {
        let owner = pod("home", &[("app", "a"), ("hash", "1")]);
        let same = json!({ "matchLabels": { "app": "a" } });
        let cases = [
            ("own namespace", json!({ "labelSelector": same }), [true, false, true]),
            ("absent selector", json!({}), [false, false, false]),
            ("empty selector", json!({ "labelSelector": {} }), [true, false, true]),
            ("listed", json!({ "labelSelector": same, "namespaces": ["away"] }), [false, true, false]),
            ("all namespaces", json!({ "labelSelector": same, "namespaceSelector": {} }), [true, true, true]),
            (
                "labelled namespaces",
                json!({ "labelSelector": same, "namespaceSelector": { "matchLabels": { "team": "x" } } }),
                [false, true, false],
            ),
            (
                "labelled and listed",
                json!({ "labelSelector": same, "namespaces": ["home"], "namespaceSelector": { "matchLabels": { "team": "x" } } }),
                [true, true, true],
            ),
            (
                "match",
                json!({ "labelSelector": same, "matchLabelKeys": ["hash", "none"] }),
                [true, false, false],
            ),
            (
                "mismatch",
                json!({ "labelSelector": same, "mismatchLabelKeys": ["hash"] }),
                [false, false, true],
            ),
        ];
        let others = [
            pod("home", &[("app", "a"), ("hash", "1")]),
            pod("away", &[("app", "a")]),
            pod("home", &[("app", "a"), ("hash", "2")]),
        ];
        let team = Labels::from([("team".into(), "x".into())]);
        for (name, term, expected) in cases {
            let selector = PodSelector {
                parts: BTreeSet::from([PodTerm::read(&term).selector(&owner)]),
                ..PodSelector::default()
            };
            for (other, expected) in others.iter().zip(expected) {
                let labels = if other.namespace == "away" { team.clone() } else { Labels::new() };
                assert_eq!(selector.selects(other, &labels), expected, "{name}: {other:?}");
                let may_be = selector.namespace().is_none_or(|only| only == other.namespace);
                assert!(may_be || !expected, "{name}: {other:?}");
            }
        }
    }

    #[test]
    fn a_spread_constraint_counts_pods_as_kube_scheduler_does() {
        let owner = pod("home", &[("app", "a"), ("hash", "1")]);
        let read = |constraint: Value| PodRules::read(&json!({ "topologySpreadConstraints": [constraint] }));
        let counts = |constraint: Value, other: &SelectedPod| {
            read(constraint).spread[0].selector(&owner).selects(other, &Labels::new())
        };
        let same = json!({ "matchLabels": { "app": "a" } });
        assert!(counts(json!({ "labelSelector": same }), &owner));
        assert!(!counts(
            json!({ "labelSelector": same }),
            &SelectedPod { is_terminating: true, ..owner.clone() }
        ));
        assert!(!counts(json!({ "labelSelector": same }), &pod("away", &[("app", "a")])));
        // kube-scheduler counts no pod for a selector without requirements.
        assert!(!counts(json!({ "labelSelector": {} }), &owner));
        assert!(!counts(json!({ "matchLabelKeys": ["hash"] }), &owner));
        let of_hash = || json!({ "labelSelector": {}, "matchLabelKeys": ["hash"] });
        assert!(counts(of_hash(), &owner) && !counts(of_hash(), &pod("home", &[("hash", "2")])));
        assert!(read(json!({ "whenUnsatisfiable": "ScheduleAnyway" })).spread.is_empty());
        let defaults = &read(json!({ "topologyKey": "zone" })).spread[0];
        assert_eq!((defaults.max_skew, defaults.min_domains), (1, 1));
        assert!(defaults.honors_affinity && !defaults.honors_taints);
        let odd = json!({ "maxSkew": 99_999_999_999_i64, "minDomains": -3, "nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor" });
        let odd = &read(odd).spread[0];
        assert_eq!((odd.max_skew, odd.min_domains), (u32::MAX, 1));
        assert!(!odd.honors_affinity && odd.honors_taints);
    }

    #[test]
    fn host_ports_are_those_of_containers_and_sidecars() {
        let ports = |spec: Value| {
            let ports = PodRules::read(&spec).host_ports.into_iter();
            ports
                .map(|p| format!("{}/{}/{}", p.address.unwrap_or("*".into()), p.port, p.protocol))
                .collect::<Vec<_>>()
        };
        let container = |port: Value| json!({ "ports": [port] });
        assert_eq!(ports(json!({ "containers": [container(json!({ "containerPort": 80 }))] })), [""; 0]);
        assert_eq!(
            ports(json!({ "hostNetwork": true, "containers": [container(json!({ "containerPort": 80 }))] })),
            ["*/80/TCP"]
        );
        let cases = [
            (json!({ "hostPort": 80, "hostIP": "0.0.0.0" }), vec!["*/80/TCP"]),
            (json!({ "hostPort": 80, "hostIP": "10.0.0.1", "protocol": "UDP" }), vec!["10.0.0.1/80/UDP"]),
            (json!({ "hostPort": 0 }), vec![]),
            (json!({ "hostPort": 70_000 }), vec![]),
            (json!({ "hostPort": -1, "protocol": 3 }), vec![]),
            (json!(17), vec![]),
        ];
        for (port, expected) in cases {
            assert_eq!(ports(json!({ "containers": [container(port.clone())] })), expected, "{port}");
        }
        let port = json!({ "hostPort": 80 });
        assert_eq!(ports(json!({ "initContainers": [container(port.clone())] })), [""; 0]);
        let sidecar = json!({ "restartPolicy": "Always", "ports": [port] });
        assert_eq!(ports(json!({ "initContainers": [sidecar], "nodeName": "n" })), ["*/80/TCP"]);
    }
}
