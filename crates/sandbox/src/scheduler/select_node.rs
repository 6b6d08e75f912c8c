//! Selects a node for one pod. If there is none, explains it with kube-scheduler's messages.

use std::collections::BTreeMap;

use super::affinity::PodAffinityState;
use super::cache::{Cache, NodeInfo, PodInfo};
use super::filter::{self, Rejection};
use super::score;
use super::spread::SpreadState;
use super::volumes::{ClaimPlan, VolumeState};

/// The search finds at least this many feasible nodes before it stops early, if there are so many.
const MIN_FEASIBLE_NODES: usize = 100;

/// The reason of kube-scheduler for the nodes that the node affinity of a pod does not name, which no filter sees.
const NOT_NAMED: &str = "node(s) didn't satisfy plugin(s) [NodeAffinity]";

/// Why no node fits: the number of nodes, and the number of nodes for every reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FitError {
    nodes: usize,
    /// Why the pod fits no node, whatever the node.
    of_pod: Option<String>,
    reasons: BTreeMap<String, usize>,
    /// Nodes where the removal of pods could help.
    resolvable: usize,
}

impl std::fmt::Display for FitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.nodes == 0 {
            return f.write_str("no nodes available to schedule pods");
        }
        let of_nodes = self.reasons.iter().map(|(reason, count)| format!("{count} {reason}"));
        let mut parts: Vec<String> = self.of_pod.iter().cloned().chain(of_nodes).collect();
        parts.sort();
        write!(f, "0/{} nodes are available: {}. ", self.nodes, parts.join(", "))?;
        let mut parts = Vec::new();
        if self.resolvable > 0 {
            parts.push(format!("{} No preemption victims found for incoming pod", self.resolvable));
        }
        if self.resolvable < self.nodes {
            parts.push(format!("{} Preemption is not helpful for scheduling", self.nodes - self.resolvable));
        }
        parts.sort();
        write!(f, "preemption: 0/{} nodes are available: {}.", self.nodes, parts.join(", "))
    }
}

/// State that is computed once for a scheduling cycle and depends on all nodes.
pub(super) struct CycleState {
    pub(super) spread: SpreadState,
    pub(super) affinity: PodAffinityState,
    pub(super) volumes: VolumeState,
}

/// Selects the feasible node with the best score; the first by name among equals. Also what the claims get that waited
/// for the pod.
pub(crate) fn select_node(cache: &mut Cache, pod: &PodInfo) -> Result<(String, Vec<ClaimPlan>), FitError> {
    let total = cache.names.len();
    let mut fit_error = FitError { nodes: total, ..FitError::default() };
    let before = filter::named_nodes(&pod.pod).and_then(|named| {
        let volumes = VolumeState::of(cache, pod)?;
        no_devices(pod).map(|()| (named, volumes))
    });
    let (named, volumes) = match before {
        Ok(before) => before,
        Err(why) => return Err(FitError { of_pod: Some(why), ..fit_error }),
    };
    let cycle_state = CycleState {
        spread: SpreadState::of(cache, pod),
        affinity: PodAffinityState::of(cache, pod),
        volumes,
    };
    let wanted = nodes_to_find(total);
    let mut feasible: Vec<&NodeInfo> = Vec::new();
    let mut examined = 0;
    for offset in 0..total {
        if feasible.len() >= wanted {
            break;
        }
        examined += 1;
        let name = &cache.names[(cache.next_start + offset) % total];
        if named.as_ref().is_some_and(|named| !named.contains(&**name)) {
            *fit_error.reasons.entry(NOT_NAMED.to_owned()).or_insert(0) += 1;
            continue;
        }
        let info = &cache.nodes[name];
        match filter::check(info, pod, &cycle_state, &cache.objects) {
            Ok(()) => feasible.push(info),
            Err(Rejection { reasons, resolvable }) => {
                fit_error.resolvable += usize::from(resolvable);
                for reason in reasons {
                    *fit_error.reasons.entry(reason).or_insert(0) += 1;
                }
            }
        }
    }
    feasible.sort_by(|a, b| a.node.metadata.name.cmp(&b.node.metadata.name));
    let scores = score::scores(&feasible, pod, &cycle_state);
    let best = scores.iter().enumerate().max_by(|(i, a), (j, b)| a.cmp(b).then(j.cmp(i))).map(|(i, _)| i);
    let chosen = best.map(|best| {
        let plans = cycle_state.volumes.plan(feasible[best], &cache.objects);
        (feasible[best].node.metadata.name.clone(), plans.unwrap_or_default())
    });
    if total > 0 {
        cache.next_start = (cache.next_start + examined) % total;
    }
    chosen.ok_or(fit_error)
}

/// Devices of `ResourceClaim`s are not simulated.
fn no_devices(pod: &PodInfo) -> Result<(), String> {
    let Some(claim) = pod.pod.spec.resource_claims.first() else { return Ok(()) };
    Err(format!(
        "the sandbox allocates no devices to resource claims such as {:?}: request an extended resource such as nvidia.com/gpu instead",
        claim.name
    ))
}

/// How many feasible nodes to find: all in a small cluster; 50 %, falling to 5 %, in a large one, as in
/// kube-scheduler.
fn nodes_to_find(total: usize) -> usize {
    let percentage = 50usize.saturating_sub(total / 125).max(5);
    (total * percentage / 100).max(MIN_FEASIBLE_NODES)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::wire::{Node, Pod};

    fn node(name: &str, allocatable: &Value, more: &Value) -> Arc<Node> {
        let mut node = json!({ "metadata": { "name": name }, "status": { "allocatable": allocatable } });
        for (part, value) in more.as_object().into_iter().flatten() {
            for (field, value) in value.as_object().into_iter().flatten() {
                node[part][field] = value.clone();
            }
        }
        Arc::new(serde_json::from_value(node).unwrap())
    }

    fn pod(name: &str, spec: &Value) -> Arc<PodInfo> {
        let mut pod =
            json!({ "metadata": { "name": name, "namespace": "d", "labels": { "app": "a" } }, "spec": spec });
        if spec["containers"].is_null() {
            pod["spec"]["containers"] = json!([{ "name": "c", "resources": { "requests": spec.get("requests").unwrap_or(&json!({})) } }]);
        }
        Arc::new(PodInfo::new(Arc::new(serde_json::from_value::<Pod>(pod).unwrap())))
    }

    fn cache(nodes: &[Arc<Node>]) -> Cache {
        let mut cache = Cache::default();
        for node in nodes {
            cache.set_node(node.clone());
        }
        cache
    }

    fn outcome(cache: &mut Cache, spec: &Value) -> String {
        match select_node(cache, &pod("p", spec)) {
            Ok((node, _)) => node,
            Err(fit_error) => fit_error.to_string(),
        }
    }

    const ROOM: fn() -> Value = || json!({ "cpu": "4", "memory": "8Gi", "pods": "110" });

    #[test]
    fn every_filter_reports_its_reason() {
        let gpu = json!({ "cpu": "4", "memory": "8Gi", "pods": "110", "nvidia.com/gpu": "2" });
        let tainted =
            json!({ "spec": { "taints": [{ "key": "gpu", "value": "yes", "effect": "NoSchedule" }] } });
        let labelled = json!({ "metadata": { "labels": { "zone": "a" } } });
        let nodes = [node("a", &ROOM(), &labelled), node("b", &gpu, &tainted)];
        let none = " preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.";
        for (spec, expected) in [
            (json!({}), "a"),
            (json!({ "tolerations": [{ "operator": "Exists" }], "requests": { "nvidia.com/gpu": 1 } }), "b"),
            (json!({ "nodeSelector": { "zone": "a" } }), "a"),
            (
                json!({ "requests": { "cpu": 5, "nvidia.com/gpu": 1 } }),
                "0/2 nodes are available: 1 Insufficient cpu, 1 Insufficient nvidia.com/gpu, 1 node(s) had untolerated taint(s).",
            ),
            (
                json!({ "nodeSelector": { "zone": "b" } }),
                "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint(s).",
            ),
            (
                json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["b"] }] }]
                } } }, "tolerations": [{ "key": "gpu", "operator": "Exists" }] }),
                "b",
            ),
        ] {
            let decided = outcome(&mut cache(&nodes), &spec);
            let expected = if expected.len() > 1 { format!("{expected}{none}") } else { expected.to_owned() };
            assert_eq!(decided, expected, "{spec}");
        }
        assert_eq!(outcome(&mut Cache::default(), &json!({})), "no nodes available to schedule pods");
    }

    #[test]
    fn a_pod_that_names_its_nodes_is_not_compared_with_others() {
        let tainted =
            json!({ "spec": { "taints": [{ "key": "gpu", "value": "yes", "effect": "NoSchedule" }] } });
        let nodes = [node("a", &ROOM(), &json!({})), node("b", &ROOM(), &tainted)];
        let fields = |names: &[&str]| -> Value {
            let fields = names
                .iter()
                .map(|name| json!({ "key": "metadata.name", "operator": "In", "values": [name] }));
            json!({ "matchFields": fields.collect::<Vec<_>>() })
        };
        let in_b = json!({ "matchExpressions": [{ "key": "zone", "operator": "Exists" }] });
        for (terms, expected) in [
            (
                json!([fields(&["b"])]),
                "1 node(s) didn't satisfy plugin(s) [NodeAffinity], 1 node(s) had untolerated taint(s)",
            ),
            (json!([fields(&["none"])]), "2 node(s) didn't satisfy plugin(s) [NodeAffinity]"),
            (json!([fields(&["a", "b"])]), "pod affinity terms conflict"),
            (
                json!([fields(&["b"]), in_b]),
                "1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint(s)",
            ),
        ] {
            let spec = json!({ "affinity": { "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } } } });
            let refused = outcome(&mut cache(&nodes), &spec);
            let told = refused
                .strip_prefix("0/2 nodes are available: ")
                .unwrap()
                .split_once(". preemption")
                .unwrap()
                .0;
            let mut parts = told.split(", ").collect::<Vec<_>>();
            parts.sort_unstable();
            let mut wanted = expected.split(", ").collect::<Vec<_>>();
            wanted.sort_unstable();
            assert_eq!(parts, wanted, "{terms}");
        }
    }

    #[test]
    fn preemption_could_help_on_a_full_node_but_not_on_a_small_one() {
        let mut cache = cache(&[
            node("a", &ROOM(), &json!({})),
            node("b", &json!({ "cpu": "1", "pods": 1 }), &json!({})),
        ]);
        cache.add_pod(pod("x", &json!({ "requests": { "cpu": 3 } })), "a");
        assert_eq!(
            outcome(&mut cache, &json!({ "requests": { "cpu": 2 } })),
            "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: \
             1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling."
        );
        assert!(cache.remove_pod(&crate::wire::Key::new("d", "x")));
        assert_eq!(outcome(&mut cache, &json!({ "requests": { "cpu": 2 } })), "a");
    }

    #[test]
    fn used_host_ports_and_the_pod_limit_filter_a_node_out() {
        let mut cache = cache(&[node("a", &json!({ "cpu": 4, "memory": "1Gi", "pods": 1 }), &json!({}))]);
        let port =
            json!({ "containers": [{ "name": "c", "ports": [{ "containerPort": 80, "hostPort": 80 }] }] });
        assert_eq!(outcome(&mut cache, &port), "a");
        cache.add_pod(pod("x", &port), "a");
        let refused = outcome(&mut cache, &port);
        assert!(
            refused.contains("1 node(s) didn't have free ports for the requested pod ports"),
            "{refused}"
        );
        let refused = outcome(&mut cache, &json!({}));
        assert!(refused.contains("1 Too many pods"), "{refused}");
    }

    #[test]
    fn the_least_allocated_node_is_selected_and_ties_break_by_name() {
        let mut cache = cache(&[node("b", &ROOM(), &json!({})), node("a", &ROOM(), &json!({}))]);
        assert_eq!(outcome(&mut cache, &json!({})), "a");
        cache.add_pod(pod("x", &json!({ "requests": { "cpu": 1, "memory": "1Gi" } })), "a");
        assert_eq!(outcome(&mut cache, &json!({})), "b");
    }

    #[test]
    fn required_pod_affinity_and_anti_affinity_filter_nodes() {
        let zone = |zone: &str| json!({ "metadata": { "labels": { "zone": zone } } });
        let nodes =
            [node("a", &ROOM(), &zone("1")), node("b", &ROOM(), &zone("1")), node("c", &ROOM(), &zone("2"))];
        let mut cache = cache(&nodes);
        let terms = json!([{ "topologyKey": "zone", "labelSelector": { "matchLabels": { "app": "a" } } }]);
        let near = json!({ "affinity": { "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": terms } } });
        let apart = json!({ "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": terms } } });
        assert_eq!(outcome(&mut cache, &near), "a", "the first of its kind may go anywhere");
        cache.add_pod(pod("x", &apart), "c");
        let refused = outcome(&mut cache, &near);
        assert!(refused.contains("1 node(s) didn't satisfy existing pods anti-affinity rules"), "{refused}");
        assert!(refused.contains("2 node(s) didn't match pod affinity rules"), "{refused}");
        assert_eq!(outcome(&mut cache, &apart), "a");
        cache.add_pod(pod("y", &json!({})), "b");
        let refused = outcome(&mut cache, &apart);
        assert!(refused.contains("node(s) didn't match pod anti-affinity rules"), "{refused}");
    }

    #[test]
    fn topology_spread_constraints_limit_the_skew() {
        let zone = |zone: &str| json!({ "metadata": { "labels": { "zone": zone } } });
        let mut cache = cache(&[node("a", &ROOM(), &zone("1")), node("b", &ROOM(), &zone("2"))]);
        let spread = |when: &str| {
            json!({ "topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": when,
            "labelSelector": { "matchLabels": { "app": "a" } },
        }] })
        };
        cache.add_pod(pod("x", &json!({})), "a");
        assert_eq!(outcome(&mut cache, &spread("DoNotSchedule")), "b");
        let far = json!({ "nodeSelector": { "zone": "1" } });
        let mut pinned = spread("DoNotSchedule");
        pinned["nodeSelector"] = far["nodeSelector"].clone();
        pinned["topologySpreadConstraints"][0]["nodeAffinityPolicy"] = json!("Ignore");
        let refused = outcome(&mut cache, &pinned);
        assert!(refused.contains("1 node(s) didn't match pod topology spread constraints"), "{refused}");
        assert_eq!(outcome(&mut cache, &spread("ScheduleAnyway")), "b");
        // A selector without requirements counts no pod: the node with the better score is chosen.
        let mut empty = spread("DoNotSchedule");
        empty["nodeSelector"] = far["nodeSelector"].clone();
        empty["topologySpreadConstraints"][0]["nodeAffinityPolicy"] = json!("Ignore");
        empty["topologySpreadConstraints"][0]["labelSelector"] = json!({});
        assert_eq!(outcome(&mut cache, &empty), "a");
    }

    #[test]
    fn a_node_without_all_topology_labels_of_a_pod_counts_for_no_constraint() {
        let labels = |labels: Value| json!({ "metadata": { "labels": labels } });
        let mut cache = cache(&[
            node("a", &ROOM(), &labels(json!({ "zone": "1", "rack": "1" }))),
            node("b", &ROOM(), &labels(json!({ "zone": "2" }))),
        ]);
        cache.add_pod(pod("x", &json!({})), "a");
        let constraint = |key: &str| {
            json!({ "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": { "matchLabels": { "app": "a" } } })
        };
        let refused = outcome(
            &mut cache,
            &json!({ "nodeSelector": { "zone": "1" }, "topologySpreadConstraints": [
            { "nodeAffinityPolicy": "Ignore", "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": { "matchLabels": { "app": "a" } } }] }),
        );
        assert!(refused.contains("1 node(s) didn't match pod topology spread constraints"), "{refused}");
        let both = json!({ "topologySpreadConstraints": [constraint("zone"), constraint("rack")] });
        assert_eq!(
            outcome(&mut cache, &both),
            "a",
            "the zone of b has no rack, so it is no zone to spread to"
        );
    }
}
