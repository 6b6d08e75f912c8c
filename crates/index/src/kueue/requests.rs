//! What the pods of a Workload request of quota, and why a request is refused. After `pkg/workload/resources.go` and
//! `applyResourceTransformations` of Kueue v0.19.

use super::failed_nodes::FailedNodeRules;
use std::collections::BTreeMap;

use api::kueue::config::{Quantity, Transformation, TransformationStrategy};
use api::limit_range::ContainerDefaults;
use api::pod::effective_request;
use api::{Amounts, quantity};
use model::{TopologyMode, TopologyRequest, TopologySlice};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Kueue's configuration of how Workloads are counted and ordered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KueueRules {
    /// Pods that have succeeded release their quota.
    pub reclaims_pods: bool,
    /// Prefixes of resources that are not counted.
    pub excluded_prefixes: Vec<String>,
    /// Resources that count as others.
    pub transformations: Vec<Transformation>,
    /// A resource that a queue does not cover is not counted. Otherwise it keeps the Workload out.
    pub ignores_undeclared: bool,
    /// The annotation `priority-boost` counts.
    pub boosts_priority: bool,
    /// The annotation `admission-gated-by` counts.
    pub gates_admission: bool,
    /// A Workload whose pods were not ready in time queues since its eviction, not since its creation.
    pub requeues_at_end: bool,
    /// While the pods of a Workload with quota are not ready, no other Workload is admitted.
    pub blocks_admission: bool,
    /// A Workload that fits in part may start with fewer pods, down to `minCount`.
    pub admits_in_part: bool,
    /// A Workload with a closed preemption gate preempts no other.
    pub gates_preemption: bool,
    /// Pods get nodes in all flavors, not only in those with a topology, unless an annotation of the queue says otherwise.
    pub places_pods: bool,
    /// Preferred node affinities count in the selection of domains of a topology.
    pub prefers_nodes: bool,
    /// What becomes of places on failed nodes.
    pub failed_nodes: FailedNodeRules,
    /// A Workload may take the place of another one, whose quota counts as its own.
    pub slices: bool,
    /// The usage of local queues is recorded, and orders those of the cluster queues that ask for it.
    pub usage: Option<UsageRules>,
}

/// How the usage of local queues decays and counts: `admissionFairSharing` of Kueue's configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UsageRules {
    /// The time in which usage decays to a half, in microseconds. Zero: no usage is recorded.
    pub half_life_us: i64,
    /// How often it is recorded, in microseconds.
    pub sampling_us: i64,
    /// The weights of resources in millionths per unit (per CPU). Others have the weight 1.
    pub resource_weights: BTreeMap<String, u64>,
}

impl Default for KueueRules {
    fn default() -> Self {
        Self {
            reclaims_pods: true,
            excluded_prefixes: Vec::new(),
            transformations: Vec::new(),
            ignores_undeclared: false,
            boosts_priority: false,
            gates_admission: true,
            requeues_at_end: true,
            blocks_admission: false,
            admits_in_part: true,
            gates_preemption: false,
            places_pods: false,
            prefers_nodes: false,
            failed_nodes: FailedNodeRules::default(),
            slices: true,
            usage: None,
        }
    }
}

/// The `LimitRange`s of a namespace: the least maximum and the greatest minimum of each resource, and the defaults.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ranges {
    defaults: ContainerDefaults,
    container: Range,
    pod: Range,
    has_pod: bool,
}

#[derive(Debug, Clone, Default)]
struct Range {
    max: BTreeMap<String, i64>,
    min: BTreeMap<String, i64>,
}

impl Ranges {
    /// Reads the limits of all `LimitRange`s of a namespace. Invalid quantities, which the API server refuses, do not count.
    pub(crate) fn read<'a>(limits: impl Iterator<Item = &'a Value>) -> Self {
        let mut ranges = Self::default();
        for limit in limits {
            ranges.defaults.add(limit);
            let range = match limit["type"].as_str() {
                Some("Container") => &mut ranges.container,
                Some("Pod") => {
                    ranges.has_pod = true;
                    &mut ranges.pod
                }
                _ => continue,
            };
            for (name, amount) in Amounts::read(&limit["max"]).unwrap_or_default().iter() {
                let known = range.max.entry(name.to_owned()).or_insert(amount);
                *known = amount.min(*known);
            }
            for (name, amount) in Amounts::read(&limit["min"]).unwrap_or_default().iter() {
                let known = range.min.entry(name.to_owned()).or_insert(amount);
                *known = amount.max(*known);
            }
        }
        ranges
    }
}

/// The pod of a pod set as its quota is counted: with the overhead of its runtime class, the defaults of the namespace,
/// and limits as missing requests.
pub(crate) fn adjusted(spec: &Value, ranges: &Ranges, overhead: Option<&Value>) -> Value {
    let mut spec = spec.clone();
    if let Some(overhead) = overhead.filter(|_| spec["overhead"].as_object().is_none_or(Map::is_empty)) {
        spec["overhead"] = overhead.clone();
    }
    ranges.defaults.complete(&mut spec);
    spec
}

/// Why the pods of the pod set with this position are refused, if they are.
pub(crate) fn refusal(at: usize, spec: &Value, ranges: &Ranges) -> Option<String> {
    let path = format!("spec.podSets[{at}].template.spec");
    let mut errors = Vec::new();
    let parts =
        containers(spec).map(|(field, container)| (format!("{path}.{field}"), &container["resources"]));
    let parts: Vec<(String, &Value)> = parts.collect();
    let of_pod = (format!("{path}.resources"), &spec["resources"]);
    for (path, resources) in parts.iter().chain([&of_pod]) {
        let (requests, limits) = (amounts(&resources["requests"]), amounts(&resources["limits"]));
        let greater =
            requests.iter().filter(|(name, amount)| limits.get(*name).is_some_and(|max| max < amount));
        invalid(&mut errors, path, greater.map(|(name, _)| name), "requests must not exceed its limits");
    }
    if !errors.is_empty() {
        return Some(format!("resources validation failed: {}", joined(&errors)));
    }
    for (path, resources) in &parts {
        let (requests, limits) = (amounts(&resources["requests"]), amounts(&resources["limits"]));
        let (mut least, mut most) = (requests.clone(), requests);
        for (name, amount) in limits {
            least.entry(name.clone()).and_modify(|known| *known = amount.min(*known)).or_insert(amount);
            most.entry(name).and_modify(|known| *known = amount.max(*known)).or_insert(amount);
        }
        outside(&mut errors, path, &ranges.container, &least, &most);
    }
    if ranges.has_pod {
        let total = by_name(&effective_request(spec).unwrap_or_default());
        outside(&mut errors, &path, &ranges.pod, &total, &total);
    }
    (!errors.is_empty())
        .then(|| format!("resources didn't satisfy LimitRange constraints: {}", joined(&errors)))
}

fn containers(spec: &Value) -> impl Iterator<Item = (String, &Value)> {
    ["initContainers", "containers"].into_iter().flat_map(move |field| {
        let list = spec[field].as_array().into_iter().flatten().enumerate();
        list.map(move |(at, container)| (format!("{field}[{at}]"), container))
    })
}

fn amounts(list: &Value) -> BTreeMap<String, i64> {
    by_name(&Amounts::read(list).unwrap_or_default())
}

fn by_name(amounts: &Amounts) -> BTreeMap<String, i64> {
    amounts.iter().map(|(name, amount)| (name.to_owned(), amount)).collect()
}

fn outside(
    errors: &mut Vec<String>,
    path: &str,
    range: &Range,
    least: &BTreeMap<String, i64>,
    most: &BTreeMap<String, i64>,
) {
    let above = most.iter().filter(|(name, amount)| range.max.get(*name).is_some_and(|max| max < amount));
    invalid(errors, path, above.map(|(name, _)| name), "requests must not be above the limitRange max");
    let of = |name: &String| least.get(name).copied().unwrap_or_default();
    let below = range.min.iter().filter(|(name, min)| of(name) < **min);
    invalid(errors, path, below.map(|(name, _)| name), "requests must not be below the limitRange min");
}

fn invalid<'a>(errors: &mut Vec<String>, path: &str, names: impl Iterator<Item = &'a String>, what: &str) {
    let names: Vec<String> = names.map(|name| format!("{name:?}")).collect();
    if !names.is_empty() {
        errors.push(format!("{path}: Invalid value: [{}]: {what}", names.join(",")));
    }
}

fn joined(errors: &[String]) -> String {
    match errors {
        [only] => only.clone(),
        _ => format!("[{}]", errors.join(", ")),
    }
}

impl KueueRules {
    /// What a pod counts, of what it requests. An excluded resource does not count as itself, but as what it is transformed to, and
    /// it multiplies others.
    pub(crate) fn counted(&self, request: &Amounts) -> Amounts {
        let is_excluded = |name: &str| self.excluded_prefixes.iter().any(|prefix| name.starts_with(prefix));
        let request: BTreeMap<&str, i128> =
            request.iter().map(|(name, amount)| (name, milli(name, amount))).collect();
        let mut kept: BTreeMap<&str, i128> = BTreeMap::new();
        let mut made: BTreeMap<&str, i128> = BTreeMap::new();
        for (name, amount) in &request {
            let rule = self.transformations.iter().find(|rule| rule.input == *name);
            let is_replaced = rule.is_some_and(|rule| rule.strategy == Some(TransformationStrategy::Replace));
            if !is_replaced && !is_excluded(name) {
                *kept.entry(name).or_default() += amount;
            }
            let Some(rule) = rule else { continue };
            let by = rule.multiply_by.as_deref().and_then(|by| request.get(by)).copied().unwrap_or(1000);
            let input = amount.saturating_mul(by) / 1000;
            for (output, factor) in rule.outputs.iter().flatten() {
                *made.entry(output).or_default() += input.saturating_mul(factor_milli(factor)) / 1000;
            }
        }
        for (name, amount) in made {
            *kept.entry(name).or_default() += amount.max(0);
        }
        kept.into_iter().map(|(name, amount)| (name, base_units(name, amount))).collect()
    }
}

/// An amount in base units as thousandths.
fn milli(resource: &str, amount: i64) -> i128 {
    i128::from(amount) * if resource == "cpu" { 1 } else { 1000 }
}

/// Thousandths as an amount in base units, rounded up.
fn base_units(resource: &str, milli: i128) -> i64 {
    let amount = if resource == "cpu" { milli } else { (milli + 999).div_euclid(1000) };
    i64::try_from(amount).unwrap_or(i64::MAX)
}

/// A factor in thousandths; zero if it is invalid, which the configuration refuses.
fn factor_milli(factor: &Quantity) -> i128 {
    let text = match factor {
        Quantity::Text(text) => text.clone(),
        Quantity::Number(number) => number.to_string(),
    };
    quantity::Quantity::parse(&text).map_or(0, |factor| i128::from(factor.milli()))
}

/// The group of a pod set in its topology request.
pub(super) fn group(request: &Value) -> Option<String> {
    request["podSetGroupName"].as_str().map(str::to_owned)
}

fn has_slices(request: &Value) -> bool {
    let layers = request["podsetSliceRequiredTopologyConstraints"].as_array();
    request["podSetSliceRequiredTopology"].is_string() || layers.is_some_and(|layers| !layers.is_empty())
}

/// A topology request; `None` if it asks for nothing.
pub(super) fn topology(request: &Value) -> Option<TopologyRequest> {
    let text = |field: &str| request[field].as_str().map(str::to_owned);
    let number = |value: &Value| value.as_u64().and_then(|size| u32::try_from(size).ok());
    let mode = match (text("required"), text("preferred"), request["unconstrained"].as_bool()) {
        (Some(level), ..) => TopologyMode::Required(level),
        (_, Some(level), _) => TopologyMode::Preferred(level),
        (None, None, Some(true)) => TopologyMode::Unconstrained,
        (None, None, _) if has_slices(request) => TopologyMode::Unconstrained,
        (None, None, _) => return None,
    };
    let mut slices = Vec::new();
    if let (Some(level), Some(size)) =
        (text("podSetSliceRequiredTopology"), number(&request["podSetSliceSize"]))
    {
        slices.push(TopologySlice { size, level });
    }
    for constraint in request["podsetSliceRequiredTopologyConstraints"].as_array().into_iter().flatten() {
        if let (Some(level), Some(size)) = (constraint["topology"].as_str(), number(&constraint["size"])) {
            slices.push(TopologySlice { size, level: level.to_owned() });
        }
    }
    Some(TopologyRequest { mode, slices })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rule(value: Value) -> Transformation {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn resources_are_excluded_and_count_as_others() {
        let rules = KueueRules {
            excluded_prefixes: vec!["example.com/".into()],
            transformations: vec![
                rule(json!({"input": "gpu", "strategy": "Retain", "outputs": {"credits": "1500m"}})),
                rule(
                    json!({"input": "cores", "strategy": "Replace", "multiplyBy": "gpu", "outputs": {"total": 1}}),
                ),
                rule(json!({"input": "memory", "strategy": "Replace", "outputs": {"less": "-1"}})),
                rule(json!({"input": "example.com/y", "strategy": "Retain", "outputs": {"hidden": 5}})),
                rule(
                    json!({"input": "lanes", "strategy": "Replace", "multiplyBy": "example.com/x", "outputs": {"ports": 1}}),
                ),
            ],
            ..KueueRules::default()
        };
        let request = json!({"gpu": 2, "cores": 20, "example.com/x": 3, "cpu": "500m", "memory": "1Gi",
            "example.com/y": 2, "lanes": 4});
        let counted = rules.counted(&Amounts::read(&request).unwrap());
        let expected = json!({"gpu": 2, "credits": 3, "total": 40, "cpu": "500m",
            "hidden": 10, "ports": 12});
        assert_eq!(counted, Amounts::read(&expected).unwrap());
    }

    #[test]
    fn pods_get_the_defaults_of_their_namespace_and_the_overhead_of_their_class() {
        let limits = [json!({"type": "Container", "default": {"cpu": 2}, "defaultRequest": {"memory": 5}})];
        let ranges = Ranges::read(limits.iter());
        let spec = json!({"containers": [{"resources": {"requests": {"memory": 1}}}]});
        let request = effective_request(&adjusted(&spec, &ranges, Some(&json!({"cpu": 1})))).unwrap();
        assert_eq!((request.get("cpu"), request.get("memory")), (3000, 1));
        let limits = [json!({"type": "Container", "default": {"cpu": 1}, "defaultRequest": {"cpu": 1}})];
        let spec = json!({"containers": [{"resources": {"limits": {"cpu": 3}}}]});
        let request = effective_request(&adjusted(&spec, &Ranges::read(limits.iter()), None)).unwrap();
        assert_eq!(request.get("cpu"), 3000, "the API server makes the own limit the request");
    }

    #[test]
    fn requests_beyond_their_limits_and_ranges_are_refused() {
        let ranges = |kind: &str, bound: &str, cpu: u32| {
            Ranges::read([json!({"type": kind, bound: {"cpu": cpu}})].iter())
        };
        let of = |request: u32, limit: u32| json!({"containers": [{"resources": {"requests": {"cpu": request}, "limits": {"cpu": limit}}}]});
        for (spec, ranges, expected) in [
            (of(1, 2), Ranges::default(), None),
            (
                of(3, 2),
                Ranges::default(),
                Some(
                    "resources validation failed: spec.podSets[0].template.spec.containers[0]: Invalid value: [\"cpu\"]: requests must not exceed its limits",
                ),
            ),
            (
                of(2, 3),
                ranges("Container", "max", 1),
                Some(
                    "resources didn't satisfy LimitRange constraints: spec.podSets[0].template.spec.containers[0]: Invalid value: [\"cpu\"]: requests must not be above the limitRange max",
                ),
            ),
            (
                of(2, 3),
                ranges("Pod", "min", 3),
                Some(
                    "resources didn't satisfy LimitRange constraints: spec.podSets[0].template.spec: Invalid value: [\"cpu\"]: requests must not be below the limitRange min",
                ),
            ),
        ] {
            assert_eq!(refusal(0, &spec, &ranges).as_deref(), expected);
        }
    }
}
