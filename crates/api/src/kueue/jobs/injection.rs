//! What the admission of a Workload adds to the pod templates of its job, and how it is removed. After `pkg/podset` of Kueue
//! v0.19.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::kueue::status::{Admission, PodSetAssignment, Status};

/// The label of pods with their pod set.
pub const POD_SET: &str = "kueue.x-k8s.io/podset";
/// The label of pods with their `LocalQueue`.
const LOCAL_QUEUE: &str = "kueue.x-k8s.io/local-queue-name";
/// The label of pods with their `ClusterQueue`.
const CLUSTER_QUEUE: &str = "kueue.x-k8s.io/cluster-queue-name";
/// The scheduling gate of pods whose places are recorded in the status of their Workload.
pub const TOPOLOGY_GATE: &str = "kueue.x-k8s.io/topology";
/// The scheduling gate of pods of jobs that change their size: there is quota for as many of them as their Workload says.
pub const ELASTIC_GATE: &str = "kueue.x-k8s.io/elastic-job";
/// The annotation of Workloads that continue each other, and of their pods: the name of the first one.
pub const SLICE_NAME: &str = "kueue.x-k8s.io/workload-slice-name";
/// The annotation of pods with their Workload.
pub const WORKLOAD: &str = "kueue.x-k8s.io/workload";
/// The longest DNS label.
const DNS_LABEL_MAX: usize = 63;

/// What the pods of a pod set get from their admission.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Injection {
    /// The pod set.
    pub name: String,
    /// The number of its pods.
    pub count: u32,
    annotations: BTreeMap<String, String>,
    labels: BTreeMap<String, String>,
    node_selector: BTreeMap<String, String>,
    tolerations: Vec<Value>,
    scheduling_gates: Vec<Value>,
}

/// The labels of the nodes of a flavor, and the tolerations that it gives.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Flavor {
    /// The labels of its nodes.
    pub node_labels: BTreeMap<String, String>,
    /// The tolerations of its pods.
    pub tolerations: Vec<Value>,
}

/// Why a job cannot start as admitted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InjectionError {
    /// A flavor does not exist. It may come.
    #[error("the ResourceFlavor {0:?} does not exist")]
    Flavor(String),
    /// Two values for one key. No retry helps.
    #[error(
        "invalid admission check PodSetUpdate: conflict for {field}: conflict for key={key}, value1={ours}, value2={theirs}"
    )]
    Conflict {
        /// The field: `annotations`, `labels` or `nodeSelector`.
        field: &'static str,
        /// The key.
        key: String,
        /// The value of the template, or of an earlier update.
        ours: String,
        /// The demanded value.
        theirs: String,
    },
    /// The admission has another number of pod sets than the job.
    #[error("invalid podset infos: expecting {expected} podset, got {found}")]
    Sets {
        /// Of the job.
        expected: usize,
        /// Of the admission.
        found: usize,
    },
}

impl InjectionError {
    /// Whether no retry helps.
    pub fn is_permanent(&self) -> bool {
        !matches!(self, Self::Flavor(_))
    }
}

impl Injection {
    /// What an admission adds to the pods of each pod set.
    ///
    /// # Errors
    ///
    /// A flavor is missing, or two admission checks contradict each other.
    pub fn of_admission(
        workload: &str,
        queue: &str,
        status: &Status,
        counts: &[u32],
        flavor: impl Fn(&str) -> Option<Flavor>,
    ) -> Result<Vec<Self>, InjectionError> {
        let Some(admission) = &status.admission else { return Ok(Vec::new()) };
        let sets = admission.pod_set_assignments.iter().zip(Self::of_counts(status, counts));
        sets.map(|(assignment, Self { count, .. })| {
            let mut injection = Self::of_flavors(assignment, count, &flavor)?;
            injection.label(workload, queue, admission);
            if assignment.topology_assignment.is_some() {
                injection.scheduling_gates.push(json!({"name": TOPOLOGY_GATE}));
            }
            for check in &status.admission_checks {
                let update = check.pod_set_updates.iter().find(|update| update["name"] == injection.name);
                if let Some(update) = update {
                    injection.merge(&Self::of_update(update))?;
                }
            }
            Ok(injection)
        })
        .collect()
    }

    /// The number of pods of each pod set that an admission admits, which is known also if a flavor is missing. `counts`: those that the
    /// Workload asks for.
    pub fn of_counts(status: &Status, counts: &[u32]) -> Vec<Self> {
        let sets = status.admission.iter().flat_map(|admission| &admission.pod_set_assignments).enumerate();
        sets.map(|(at, assignment)| {
            let count = assignment.count.or_else(|| counts.get(at).copied()).unwrap_or_default();
            Self { name: assignment.name.clone(), count, ..Self::default() }
        })
        .collect()
    }

    /// What the flavors of an assignment add to its pods: node labels and tolerations.
    ///
    /// # Errors
    ///
    /// A flavor is missing.
    pub fn of_flavors(
        assignment: &PodSetAssignment,
        count: u32,
        flavor: impl Fn(&str) -> Option<Flavor>,
    ) -> Result<Self, InjectionError> {
        let mut injection = Self { name: assignment.name.clone(), count, ..Self::default() };
        let mut known = Vec::new();
        for name in assignment.flavors.values().filter(|name| !name.is_empty()) {
            if known.contains(&name) {
                continue;
            }
            let flavor = flavor(name).ok_or_else(|| InjectionError::Flavor(name.clone()))?;
            injection.node_selector.extend(flavor.node_labels);
            injection.tolerations.extend(flavor.tolerations);
            known.push(name);
        }
        Ok(injection)
    }

    /// Lets the pods, whose number changes while they run, wait until there is quota for them. `first`: the first Workload of theirs.
    pub fn gate_growth(&mut self, first: &str) {
        self.annotations.insert(SLICE_NAME.into(), first.into());
        self.scheduling_gates.push(json!({"name": ELASTIC_GATE}));
    }

    /// Whether places are recorded for the pods.
    pub fn has_places(&self) -> bool {
        self.scheduling_gates.iter().any(|gate| gate["name"] == TOPOLOGY_GATE)
    }

    /// What is added, as a controller gets it that adds it to the pods by itself.
    pub(super) fn as_info(&self) -> Value {
        let template = self.as_template();
        let mut info = Map::new();
        for part in ["metadata", "spec"] {
            info.extend(template[part].as_object().cloned().unwrap_or_default());
        }
        info.into()
    }

    /// What is added, as a template of nothing else.
    pub(super) fn as_template(&self) -> Value {
        let mut template = json!({"metadata": {}, "spec": {}});
        self.write(&mut template);
        template
    }

    fn label(&mut self, workload: &str, queue: &str, admission: &Admission) {
        self.annotations.insert(WORKLOAD.into(), workload.into());
        self.labels.insert(POD_SET.into(), self.name.clone());
        self.labels.insert(LOCAL_QUEUE.into(), queue.into());
        let cluster_queue = &admission.cluster_queue;
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if cluster_queue.len() <= DNS_LABEL_MAX && cluster_queue.chars().all(is_plain) {
            self.labels.insert(CLUSTER_QUEUE.into(), cluster_queue.clone());
        }
    }

    /// What an admission check adds.
    fn of_update(update: &Value) -> Self {
        Self {
            annotations: strings(&update["annotations"]),
            labels: strings(&update["labels"]),
            node_selector: strings(&update["nodeSelector"]),
            tolerations: list(&update["tolerations"]),
            ..Self::default()
        }
    }

    /// What a template has.
    fn of_template(template: &Value) -> Self {
        Self {
            annotations: strings(&template["metadata"]["annotations"]),
            labels: strings(&template["metadata"]["labels"]),
            node_selector: strings(&template["spec"]["nodeSelector"]),
            tolerations: list(&template["spec"]["tolerations"]),
            scheduling_gates: list(&template["spec"]["schedulingGates"]),
            ..Self::default()
        }
    }

    fn merge(&mut self, other: &Self) -> Result<(), InjectionError> {
        merge("annotations", &mut self.annotations, &other.annotations)?;
        merge("labels", &mut self.labels, &other.labels)?;
        merge("nodeSelector", &mut self.node_selector, &other.node_selector)?;
        for (known, new) in [
            (&mut self.tolerations, &other.tolerations),
            (&mut self.scheduling_gates, &other.scheduling_gates),
        ] {
            for value in new {
                if !known.contains(value) {
                    known.push(value.clone());
                }
            }
        }
        Ok(())
    }

    /// Adds this to a pod template.
    ///
    /// # Errors
    ///
    /// The template has another value for a key.
    pub fn inject(&self, template: &mut Value) -> Result<(), InjectionError> {
        let mut merged = Self::of_template(template);
        // Of an earlier admission, of a Workload that is gone: a job that loses its owner has the templates that the owner started with.
        merged.annotations.retain(|key, _| key != SLICE_NAME && key != WORKLOAD);
        merged.labels.retain(|key, _| ![POD_SET, LOCAL_QUEUE, CLUSTER_QUEUE].contains(&key.as_str()));
        merged.merge(self)?;
        merged.write(template);
        Ok(())
    }

    /// Writes the fields of a template. Empty ones are removed.
    fn write(&self, template: &mut Value) {
        let metadata = [("annotations", &self.annotations), ("labels", &self.labels)];
        for (field, map) in metadata {
            set(&mut template["metadata"], field, (!map.is_empty()).then(|| json!(map)));
        }
        let selector = (!self.node_selector.is_empty()).then(|| json!(self.node_selector));
        set(&mut template["spec"], "nodeSelector", selector);
        for (field, values) in
            [("tolerations", &self.tolerations), ("schedulingGates", &self.scheduling_gates)]
        {
            set(&mut template["spec"], field, (!values.is_empty()).then(|| json!(values)));
        }
    }
}

/// The pod sets of a Workload as the running job has them; `None` if the admission is for other pod sets, or contradicts them.
pub(super) fn running(sets: &[Value], injections: &[Injection]) -> Option<Vec<Value>> {
    let of = |set: &Value| {
        let injection = injections.iter().find(|injection| set["name"] == injection.name)?;
        let mut running = set.clone();
        injection.inject(&mut running["template"]).ok()?;
        if !set["minCount"].is_null() {
            running["count"] = injection.count.into();
        }
        Some(running)
    };
    sets.iter().map(of).collect()
}

/// Gives a template the fields that an admission changes as they were. Labels of the job's own controller stay.
pub(super) fn restore(template: &mut Value, original: &Value, own_labels: &[&str]) {
    let mut before = Injection::of_template(original);
    let now = strings(&template["metadata"]["labels"]);
    before.labels.extend(now.into_iter().filter(|(key, _)| own_labels.contains(&key.as_str())));
    before.write(template);
}

fn merge(
    field: &'static str,
    ours: &mut BTreeMap<String, String>,
    theirs: &BTreeMap<String, String>,
) -> Result<(), InjectionError> {
    for (key, value) in theirs {
        let known = ours.entry(key.clone()).or_insert_with(|| value.clone());
        if known != value {
            let (key, ours, theirs) = (key.clone(), known.clone(), value.clone());
            return Err(InjectionError::Conflict { field, key, ours, theirs });
        }
    }
    Ok(())
}

/// Sets a field of an object, which is made if it is missing, or removes it.
fn set(object: &mut Value, field: &str, value: Option<Value>) {
    if object.is_null() && value.is_some() {
        *object = Value::Object(Map::new());
    }
    let Some(object) = object.as_object_mut() else { return };
    match value {
        Some(value) => drop(object.insert(field.into(), value)),
        None => drop(object.remove(field)),
    }
}

fn strings(map: &Value) -> BTreeMap<String, String> {
    let entries = map.as_object().into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

fn list(values: &Value) -> Vec<Value> {
    values.as_array().cloned().unwrap_or_default()
}
