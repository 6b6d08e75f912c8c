//! Score plugins, with the weights of kube-scheduler's default profile. Integers only.

use super::cache::{NodeInfo, PodInfo};
use super::filter;
use super::select_node::CycleState;

const MAX: i64 = 100;

/// The score of every node; larger is better.
pub(super) fn scores(nodes: &[&NodeInfo], pod: &PodInfo, cycle_state: &CycleState) -> Vec<i64> {
    if nodes.len() < 2 {
        return vec![0; nodes.len()];
    }
    let preferred = pod.pod.spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let preferred = preferred.map_or(&[][..], |affinity| &affinity.preferred);
    let taints: Vec<i64> = nodes.iter().map(|info| soft_taints(info, pod)).collect();
    let affinity: Vec<i64> = nodes
        .iter()
        .map(|info| {
            preferred.iter().filter(|term| term.preference.matches(&info.node)).map(|term| term.weight).sum()
        })
        .collect();
    let pod_affinity: Vec<i64> = nodes.iter().map(|info| cycle_state.affinity.preference(info)).collect();
    let (taints, affinity, pod_affinity) = (
        normalize_by_max(&taints, true),
        normalize_by_max(&affinity, false),
        normalize_by_range(&pod_affinity),
    );
    let spread = spread(nodes, cycle_state);
    (0..nodes.len())
        .map(|i| {
            let resources = least_allocated(nodes[i], pod) + balanced(nodes[i], pod);
            3 * taints[i] + 2 * affinity[i] + 2 * spread[i] + 2 * pod_affinity[i] + resources
        })
        .collect()
}

fn soft_taints(info: &NodeInfo, pod: &PodInfo) -> i64 {
    let soft = info.node.spec.taints.iter().filter(|taint| taint.effect == "PreferNoSchedule");
    i64::try_from(soft.filter(|taint| !filter::tolerated(taint, &pod.pod)).count()).unwrap_or(MAX)
}

/// `NodeResourcesFit` with `LeastAllocated`: the mean free share of CPU and memory after the pod is added.
fn least_allocated(info: &NodeInfo, pod: &PodInfo) -> i64 {
    let free = |name: &str| {
        let capacity = info.allocatable.get(name);
        let used = info.nonzero_requested.get(name).saturating_add(pod.nonzero_request.get(name));
        if capacity == 0 || used > capacity { 0 } else { share(capacity - used, capacity) }
    };
    i64::midpoint(free("cpu"), free("memory"))
}

/// `NodeResourcesBalancedAllocation`: how equal the used shares of CPU and memory are after the pod is added.
fn balanced(info: &NodeInfo, pod: &PodInfo) -> i64 {
    let used = |name: &str| {
        let capacity = info.allocatable.get(name);
        let used = info.requested.get(name).saturating_add(pod.request.get(name)).min(capacity);
        if capacity == 0 { None } else { Some(share(used, capacity)) }
    };
    match (used("cpu"), used("memory")) {
        (Some(cpu), Some(memory)) => MAX - (cpu - memory).abs() / 2,
        _ => MAX,
    }
}

fn share(part: i64, whole: i64) -> i64 {
    let percent = i128::from(part) * i128::from(MAX) / i128::from(whole.max(1));
    i64::try_from(percent).unwrap_or(MAX)
}

/// `PodTopologySpread`: fewer matching pods score higher. A node without the topology label scores 0.
fn spread(nodes: &[&NodeInfo], cycle_state: &CycleState) -> Vec<i64> {
    if !cycle_state.spread.is_soft() {
        return vec![0; nodes.len()];
    }
    let counts: Vec<Option<i64>> = nodes.iter().map(|info| cycle_state.spread.matching_pods(info)).collect();
    let least = counts.iter().flatten().copied().min().unwrap_or(0);
    let most = counts.iter().flatten().copied().max().unwrap_or(0);
    let score = |count: Option<i64>| match count {
        None => 0,
        Some(_) if most == 0 => MAX,
        Some(count) => MAX * (most + least - count) / most,
    };
    counts.into_iter().map(score).collect()
}

/// Normalizes scores by the maximum; reversed if less is better.
fn normalize_by_max(values: &[i64], reverse: bool) -> Vec<i64> {
    let max = values.iter().copied().max().unwrap_or(0);
    let scale = |value: i64| {
        let scaled = if max == 0 { 0 } else { value * MAX / max };
        if reverse { MAX - scaled } else { scaled }
    };
    values.iter().map(|value| scale(*value)).collect()
}

/// Normalizes scores by the range between minimum and maximum.
fn normalize_by_range(values: &[i64]) -> Vec<i64> {
    let (min, max) = (values.iter().copied().min().unwrap_or(0), values.iter().copied().max().unwrap_or(0));
    values.iter().map(|value| if max == min { 0 } else { (value - min) * MAX / (max - min) }).collect()
}
