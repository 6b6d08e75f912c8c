//! The fields of a pod that decide where it can run: effective request, node selector, node affinity and tolerations.
//!
//! Parses pod templates and existing pods. Invalid fields are skipped.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::amounts::{AmountError, Amounts};
use crate::kueue::quantity::canonical;
use crate::pod_rules::PodRules;
use crate::selector::Labels;
use crate::value::{at, list, text};
use crate::volumes::ClaimUses;

/// The scheduling requirements of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodShape {
    /// Effective request in base units, `pods: 1` included.
    pub request: Amounts,
    /// Constraints on its node.
    pub scheduling: Scheduling,
    /// Rules between it and other pods.
    pub rules: PodRules,
    /// Labels.
    pub labels: Labels,
    /// Persistent volume claims.
    pub claims: ClaimUses,
    /// Constraints that the planner does not evaluate.
    pub unplanned: Vec<&'static str>,
}

/// Constraints of a pod on its node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scheduling {
    /// Labels that the node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Required node affinity: at least one term must match. Empty: any node.
    pub node_affinity: Vec<Term>,
    /// Preferred node affinity: terms with their weights.
    pub preferred: Vec<(u32, Term)>,
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
}

/// A node selector term: all expressions and fields must match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Term {
    /// Requirements on labels of the node.
    pub expressions: Vec<Requirement>,
    /// Requirements on fields of the node; Kubernetes supports only `metadata.name`.
    pub fields: Vec<Requirement>,
}

/// A requirement on one label or field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requirement {
    /// Label or field.
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`.
    pub operator: String,
    /// Values.
    pub values: Vec<String>,
}

/// A toleration; absent fields match any taint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Toleration {
    /// Key of the taint.
    pub key: Option<String>,
    /// Whether any value matches (`Exists`), not only `value`.
    pub exists: bool,
    /// Value of the taint.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: Option<String>,
}

impl PodShape {
    /// Parses a pod or a pod template.
    pub fn read(template: &Value) -> Result<Self, AmountError> {
        let spec = at(template, &["spec"]);
        let rules = PodRules::read(spec);
        Ok(Self {
            request: effective_request(spec)?,
            scheduling: Scheduling::read(spec),
            unplanned: crate::scheduling_gate::unplanned(spec, &rules),
            rules,
            labels: string_map(at(template, &["metadata", "labels"])),
            claims: ClaimUses::read(spec),
        })
    }
}

/// The effective request of a pod: the maximum of the sum over its containers and sidecars and of the request of each
/// init container with the sidecars before it, plus the overhead. A missing request defaults to the limit. Pod-level
/// requests replace those of the containers.
///
/// After the Kubernetes documentation, "Sidecar containers: resource sharing within containers".
pub fn effective_request(spec: &Value) -> Result<Amounts, AmountError> {
    let mut request = of_containers(spec)?;
    for (name, amount) in of_whole_pod(spec, &request)?.iter() {
        request.set(name, amount);
    }
    request.add(&Amounts::read(at(spec, &["overhead"]))?);
    request.set("pods", 1);
    Ok(request)
}

/// What the containers of a pod request together.
fn of_containers(spec: &Value) -> Result<Amounts, AmountError> {
    let mut running = Amounts::new();
    for container in list(spec, &["containers"]) {
        running.add(&container_request(container)?);
    }
    let (mut sidecars, mut init) = (Amounts::new(), Amounts::new());
    for container in list(spec, &["initContainers"]) {
        let request = container_request(container)?;
        if text(container, &["restartPolicy"]) == Some("Always") {
            sidecars.add(&request);
            init.raise_to(&sidecars);
        } else {
            let mut together = sidecars.clone();
            together.add(&request);
            init.raise_to(&together);
        }
    }
    running.add(&sidecars);
    running.raise_to(&init);
    Ok(running)
}

/// The pod-level requests. With pod-level limits, what the containers request is the pod-level request that is missing, and
/// the limit is it where they request nothing (`defaultPodRequests` of Kubernetes).
fn of_whole_pod(spec: &Value, of_containers: &Amounts) -> Result<Amounts, AmountError> {
    let mut request = Amounts::read(at(spec, &["resources", "requests"]))?;
    let limits = Amounts::read(at(spec, &["resources", "limits"]))?;
    if limits.is_empty() {
        return Ok(request);
    }
    let is_missing = |name: &str| at(spec, &["resources", "requests", name]).is_null();
    // Huge pages cannot be overcommitted: their request is their limit.
    let may_differ = |name: &str| matches!(name, "cpu" | "memory");
    for (name, limit) in limits.iter().filter(|(name, _)| is_missing(name)) {
        request.set(name, limit);
    }
    for (name, amount) in of_containers.iter().filter(|(name, _)| may_differ(name) && is_missing(name)) {
        request.set(name, amount);
    }
    Ok(request)
}

/// Writes the pod-level requests that follow from pod-level limits into the spec, as the API server does when a pod is created.
pub(crate) fn complete_whole_pod(spec: &mut Value) {
    let Ok(request) = of_containers(spec).and_then(|amounts| of_whole_pod(spec, &amounts)) else { return };
    let Some(resources) = spec["resources"].as_object_mut().filter(|known| known.contains_key("limits"))
    else {
        return;
    };
    let known = resources.entry("requests").or_insert(Value::Null);
    if known.is_null() {
        *known = Value::Object(Map::new());
    }
    let Some(known) = known.as_object_mut() else { return };
    for (name, amount) in request.iter() {
        known.entry(name).or_insert_with(|| canonical(name, amount).into());
    }
}

/// The requests of a container. A missing request defaults to the limit.
fn container_request(container: &Value) -> Result<Amounts, AmountError> {
    let mut request = Amounts::read(at(container, &["resources", "requests"]))?;
    let requests = at(container, &["resources", "requests"]);
    for (name, amount) in Amounts::read(at(container, &["resources", "limits"]))?.iter() {
        if requests.get(name).is_none() {
            request.set(name, amount);
        }
    }
    Ok(request)
}

impl Scheduling {
    /// Parses the constraints of a pod spec. Skips malformed fields: the API server rejects such pods.
    pub fn read(spec: &Value) -> Self {
        let terms = [
            "affinity",
            "nodeAffinity",
            "requiredDuringSchedulingIgnoredDuringExecution",
            "nodeSelectorTerms",
        ];
        let mut node_affinity = node_terms(list(spec, &terms));
        let mut tolerations: Vec<_> = list(spec, &["tolerations"]).iter().map(Toleration::read).collect();
        if let Some(node) = text(spec, &["nodeName"]) {
            pin(&mut node_affinity, node);
            tolerations.push(Toleration::any_no_schedule());
        }
        let terms = ["affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution"];
        let preferred = list(spec, &terms).iter().filter_map(|wanted| {
            let weight = wanted["weight"].as_u64().and_then(|weight| u32::try_from(weight).ok())?;
            Some((weight, node_terms(std::slice::from_ref(&wanted["preference"])).pop()?))
        });
        let preferred = preferred.collect();
        Self { node_selector: string_map(at(spec, &["nodeSelector"])), node_affinity, preferred, tolerations }
    }
}

/// Restricts the terms to `node`, for a pod with `nodeName`.
fn pin(terms: &mut Vec<Term>, node: &str) {
    if terms.is_empty() {
        terms.push(Term::default());
    }
    let field = Requirement { key: "metadata.name".into(), operator: "In".into(), values: vec![node.into()] };
    for term in terms {
        term.fields.push(field.clone());
    }
}

/// Parses the terms of a node selector.
pub fn node_terms(terms: &[Value]) -> Vec<Term> {
    terms.iter().map(Term::read).collect()
}

impl Term {
    fn read(term: &Value) -> Self {
        let requirements = |key| list(term, &[key]).iter().map(Requirement::read).collect();
        Self { expressions: requirements("matchExpressions"), fields: requirements("matchFields") }
    }
}

impl Requirement {
    fn read(requirement: &Value) -> Self {
        let values = list(requirement, &["values"]).iter().filter_map(Value::as_str);
        Self {
            key: text(requirement, &["key"]).unwrap_or_default().to_owned(),
            operator: text(requirement, &["operator"]).unwrap_or_default().to_owned(),
            values: values.map(str::to_owned).collect(),
        }
    }
}

impl Toleration {
    /// Tolerates what keeps only the scheduler from a node: a pod with `nodeName` passes no scheduler.
    fn any_no_schedule() -> Self {
        Self { exists: true, effect: Some("NoSchedule".into()), ..Self::default() }
    }

    fn read(toleration: &Value) -> Self {
        Self {
            key: text(toleration, &["key"]).map(str::to_owned),
            exists: text(toleration, &["operator"]) == Some("Exists"),
            value: text(toleration, &["value"]).unwrap_or_default().to_owned(),
            effect: text(toleration, &["effect"]).map(str::to_owned),
        }
    }
}

pub(crate) fn string_map(map: &Value) -> BTreeMap<String, String> {
    let entries = map.as_object().into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_effective_request_is_the_maximum_of_containers_and_init_containers() {
        struct Case {
            name: &'static str,
            spec: Value,
            cpu: i64,
        }
        let container = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let sidecar = |cpu: &str| json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}});
        let cases = [
            Case {
                name: "sum of containers",
                spec: json!({"containers": [container("1"), container("500m")]}),
                cpu: 1500,
            },
            Case {
                name: "a missing request defaults to the limit",
                spec: json!({"containers": [{"resources": {"limits": {"cpu": 2}}}]}),
                cpu: 2000,
            },
            Case {
                name: "an explicit zero request overrides the limit",
                spec: json!({"containers": [{"resources": {"limits": {"cpu": 2}, "requests": {"cpu": 0}}}]}),
                cpu: 0,
            },
            Case {
                name: "a large init container determines the request",
                spec: json!({"containers": [container("1")], "initContainers": [container("3"), container("2")]}),
                cpu: 3000,
            },
            Case {
                name: "a sidecar runs beside the containers",
                spec: json!({"containers": [container("1")], "initContainers": [sidecar("1")]}),
                cpu: 2000,
            },
            Case {
                name: "a sidecar runs beside later init containers only",
                spec: json!({"containers": [container("1")], "initContainers": [container("4"), sidecar("1"), container("2")]}),
                cpu: 4000,
            },
            Case {
                name: "overhead is added",
                spec: json!({"containers": [container("1")], "overhead": {"cpu": "250m"}}),
                cpu: 1250,
            },
            Case {
                name: "pod-level requests replace those of the containers",
                spec: json!({"containers": [container("1"), container("1")], "resources": {"requests": {"cpu": 3}}}),
                cpu: 3000,
            },
            Case {
                name: "a pod-level limit is no request where containers have one",
                spec: json!({"containers": [container("1"), {}], "resources": {"limits": {"cpu": 3}}}),
                cpu: 1000,
            },
            Case {
                name: "a pod-level limit is the request of containers that have none",
                spec: json!({"containers": [{}], "resources": {"limits": {"cpu": 3}}}),
                cpu: 3000,
            },
        ];
        for Case { name, spec, cpu } in cases {
            let request = effective_request(&spec).unwrap();
            assert_eq!((request.get("cpu"), request.get("pods")), (cpu, 1), "{name}");
        }
    }

    #[test]
    fn a_pod_level_limit_of_huge_pages_is_their_request() {
        let pages = |amount: &str| json!({"limits": {"hugepages-2Mi": amount}});
        let spec = json!({"containers": [{"resources": pages("2Mi")}], "resources": pages("4Mi")});
        assert_eq!(effective_request(&spec).unwrap().get("hugepages-2Mi"), 4 << 20);
    }

    #[test]
    fn node_constraints_parse() {
        let spec = json!({
            "nodeName": "n1",
            "nodeSelector": {"zone": "a"},
            "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}, {"operator": "Exists"}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["8"]}]}]}}},
        });
        let scheduling = Scheduling::read(&spec);
        assert_eq!(scheduling.node_selector["zone"], "a");
        assert_eq!(scheduling.tolerations[1], Toleration { exists: true, ..Toleration::default() });
        let term = &scheduling.node_affinity[0];
        assert_eq!((term.expressions[0].operator.as_str(), term.fields[0].values[0].as_str()), ("Gt", "n1"));
    }
}
