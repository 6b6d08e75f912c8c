//! What must hold after the operator has repaired everything and time has passed.

use std::collections::{BTreeMap, BTreeSet};

use kube::api::DynamicObject;
use serde_json::Value;

use crate::chaos::actions::Action;
use crate::chaos::world::{World, nodes, pods, scalable_kinds};

/// A broken invariant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Problem {
    /// The invariant.
    pub(crate) invariant: &'static str,
    /// What breaks it.
    pub(crate) text: String,
}

fn problem(invariant: &'static str, text: impl Into<String>) -> Problem {
    Problem { invariant, text: text.into() }
}

/// The amounts of a pod or node, by resource. CPUs in thousandths, as in the World.
type Amounts = BTreeMap<String, i128>;

/// Whether fewer pods of an AppWrapper run or have succeeded than its minimum.
fn is_below_minimum(wrapper: &DynamicObject) -> bool {
    let count = |field: &str| wrapper.data["status"][field].as_i64().unwrap_or(0);
    let minimum = wrapper.data["spec"]["schedulingSpec"]["minAvailable"].as_i64().unwrap_or(0);
    count("running") + count("Succeeded") < minimum
}

impl World {
    /// Invariants that hold at any time.
    pub(crate) fn broken_now(&self) -> Vec<Problem> {
        let crashes = self.crashes.iter().map(|text| problem("controllers do not crash", text));
        let audit =
            self.cluster.violations().into_iter().map(|text| problem("the auditor finds nothing", text));
        let trespasses = self.leadership.lock().unwrap().trespasses.clone();
        let trespasses = trespasses.into_iter().map(|text| problem("only the leader acts", text));
        let promises = self.promises.lock().unwrap().broken.clone();
        let promises = promises.into_iter().map(|text| problem("no promise moves without a cause", text));
        // A clock that steps moves all times.
        let has_steps = self.script.actions.iter().any(|(_, action)| matches!(action, Action::StepClock(_)));
        let promises = promises.filter(|_| !has_steps);
        crashes.chain(audit).chain(trespasses).chain(promises).collect()
    }

    /// Invariants that hold some time after the last change.
    pub(crate) async fn broken_at_rest(&self) -> Vec<Problem> {
        let mut problems = self.broken_now();
        let wrappers: Vec<_> = self.wrappers().await.into_iter().map(|(_, wrapper)| wrapper).collect();
        let pods = self.list(&pods()).await;
        problems.extend(self.waiting(&wrappers));
        problems.extend(self.idle_pods(&pods));
        problems.extend(self.missing_pods(&wrappers).await);
        problems.extend(self.orphans(&wrappers, &pods).await);
        problems.extend(self.wrong_books(&wrappers, &pods).await);
        problems
    }

    /// How often each ordinary AppWrapper that runs has been requeued. A gang with a minimum whose pods fail on purpose is
    /// requeued whenever its Job has failed, and a gang that lacks pods already is requeued after its patience.
    pub(crate) async fn requeuings(&self) -> BTreeMap<String, Value> {
        let found = self.wrappers().await.into_iter().map(|(_, wrapper)| wrapper);
        let running = found
            .filter(|wrapper| wrapper.data["status"]["state"] == "Running" && !is_below_minimum(wrapper));
        let row = |wrapper: DynamicObject| {
            (wrapper.metadata.name.unwrap(), wrapper.data["status"]["numberOfRequeueings"].clone())
        };
        let is_steady = |(name, _): &(String, Value)| self.is_ordinary(name) && !self.is_failing(name);
        running.map(row).filter(is_steady).collect()
    }

    /// Whether a gang has a minimum and pods that fail on purpose: its Job fails, and the gang is requeued, again and again.
    fn is_failing(&self, name: &str) -> bool {
        let spec = &self.submitted[name].manifest["spec"];
        let has_minimum = !spec["schedulingSpec"]["minAvailable"].is_null();
        has_minimum && spec.to_string().contains("sandbox.muster.dev/fail")
    }

    fn is_ordinary(&self, name: &str) -> bool {
        self.submitted.get(name).is_some_and(|submission| submission.oddity.is_none())
            && !self.tampered.contains(name)
            && !self.is_taken(name)
    }

    /// Whether another author has created the object of this gang.
    fn is_taken(&self, name: &str) -> bool {
        let has_name = |manifest: &Value| {
            let items = manifest["spec"]["resources"]["GenericItems"].as_array();
            items.into_iter().flatten().any(|item| item["generictemplate"]["metadata"]["name"] == name)
        };
        let mut others =
            self.submitted.values().filter(|other| other.oddity == Some("name of another object"));
        others.any(|other| has_name(&other.manifest))
    }

    /// Whether a gang wraps a Pod that fails on purpose. Nothing creates it again.
    fn fails_for_good(&self, name: &str) -> bool {
        let item = self.first_item(name);
        item["kind"] == "Pod" && item["metadata"]["annotations"]["sandbox.muster.dev/fail"].is_string()
    }

    fn first_item(&self, name: &str) -> &Value {
        &self.submitted[name].manifest["spec"]["resources"]["GenericItems"][0]["generictemplate"]
    }

    /// Whether a gang wraps a Pod that may have been evicted while the controller could not see why.
    fn may_be_evicted_unseen(&self, name: &str) -> bool {
        let has = |is_it: fn(&Action) -> bool| self.script.actions.iter().any(|(_, action)| is_it(action));
        let evicts = |action: &Action| {
            matches!(action, Action::Taint(_, "NoExecute") | Action::LoseNode(_) | Action::DeleteNode(_))
        };
        self.first_item(name)["kind"] == "Pod"
            && has(|action| matches!(action, Action::CutLink))
            && has(evicts)
    }

    /// Whether a gang wraps a Pod that may be collected after its end, with its node.
    fn may_be_collected(&self, template: &Value) -> bool {
        let deletes = |action: &Action| matches!(action, Action::LoseNode(_) | Action::DeleteNode(_));
        template["kind"] == "Pod"
            && template["spec"]["restartPolicy"] == "Never"
            && self.script.actions.iter().any(|(_, action)| deletes(action))
    }

    /// Ordinary AppWrappers that do not run.
    fn waiting(&self, wrappers: &[DynamicObject]) -> Vec<Problem> {
        let mut problems = Vec::new();
        for wrapper in wrappers {
            let (name, status) = (wrapper.metadata.name.clone().unwrap(), &wrapper.data["status"]);
            let runs =
                matches!(status["state"].as_str(), Some("Running" | "RunningHoldCompletion" | "Completed"));
            let may_fail = status["state"] == "Failed"
                && (self.fails_for_good(&name) || self.may_be_evicted_unseen(&name));
            if self.is_ordinary(&name) && !may_fail && !(runs && status["queuejobstate"] != "Preempted") {
                let text = format!(
                    "{name} is {}, {}: {}",
                    status["state"], status["queuejobstate"], status["message"]
                );
                problems.push(problem("what can run runs", text));
            }
            if wrapper.metadata.deletion_timestamp.is_some() {
                problems.push(problem("what is deleted goes", name));
            }
        }
        problems
    }

    /// Pods that are gated, or not bound.
    fn idle_pods(&self, pods: &[DynamicObject]) -> Vec<Problem> {
        let mut problems = Vec::new();
        let gangs = self.gangs();
        for pod in pods {
            let name = pod.metadata.name.clone().unwrap();
            if pod.metadata.deletion_timestamp.is_some() {
                problems.push(problem("what is deleted goes", format!("pod {name}")));
            } else if !pod.data["spec"]["schedulingGates"].is_null() {
                let gang = gangs.get(&wrapper_of(&name)).map_or("", String::as_str);
                problems.push(problem("no pod stays gated", format!("{name}, {gang}")));
            } else if self.is_ordinary(&wrapper_of(&name)) && pod.data["status"]["phase"] == "Pending" {
                let gang = gangs.get(&wrapper_of(&name)).map_or("", String::as_str);
                let (selector, why) = (&pod.data["spec"]["nodeSelector"], &pod.data["status"]["conditions"]);
                let bound = pods.iter().map(|pod| {
                    format!(
                        "{} on {}",
                        pod.metadata.name.as_deref().unwrap_or_default(),
                        pod.data["spec"]["nodeName"]
                    )
                });
                let bound = bound.collect::<Vec<_>>().join(", ");
                let text = format!("{name} for {selector}: {why}; pods {bound}; {gang}");
                problems.push(problem("no pod stays pending", text));
            }
        }
        problems
    }

    /// Objects of running AppWrappers that lack pods.
    async fn missing_pods(&self, wrappers: &[DynamicObject]) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut objects: BTreeMap<String, Vec<DynamicObject>> = BTreeMap::new();
        for (kind, _) in scalable_kinds() {
            objects.insert(kind.kind.clone(), self.list(&kind).await);
        }
        for wrapper in wrappers {
            let name = wrapper.metadata.name.clone().unwrap();
            let is_steady = self.is_ordinary(&name) && !self.is_failing(&name);
            if !is_steady || wrapper.data["status"]["state"] != "Running" {
                continue;
            }
            let template = &wrapper.data["spec"]["resources"]["GenericItems"][0]["generictemplate"];
            let of_kind = &objects[template["kind"].as_str().unwrap()];
            let object = of_kind.iter().find(|object| object.metadata.name.as_deref() == Some(&name));
            let has_ttl = !template["spec"]["ttlSecondsAfterFinished"].is_null();
            match object.map(lacks_pods) {
                Some(None) => {}
                Some(Some(text)) => {
                    problems.push(problem("no planned pod is missing", format!("{name}: {text}")));
                }
                None if has_ttl || self.may_be_collected(template) => {}
                None => problems
                    .push(problem("no planned pod is missing", format!("the object of {name} is gone"))),
            }
        }
        problems
    }

    /// Objects and pods whose owner is gone.
    async fn orphans(&self, wrappers: &[DynamicObject], pods: &[DynamicObject]) -> Vec<Problem> {
        let mut objects = pods.to_vec();
        for (kind, field) in scalable_kinds() {
            if !field.is_empty() {
                objects.extend(self.list(&kind).await);
            }
        }
        objects.extend(self.list(&crate::common::config_maps()).await);
        let uids: BTreeSet<_> =
            wrappers.iter().chain(&objects).filter_map(|object| object.metadata.uid.clone()).collect();
        let is_orphan = |object: &&DynamicObject| {
            let mut owners = object.metadata.owner_references.iter().flatten();
            owners.any(|owner| owner.kind == "AppWrapper" && !uids.contains(&owner.uid))
        };
        let orphans = objects.iter().filter(is_orphan);
        orphans
            .map(|object| problem("no object outlives its AppWrapper", object.metadata.name.clone().unwrap()))
            .collect()
    }

    /// Differences between the index of the active controller and the objects of the API server.
    async fn wrong_books(&self, wrappers: &[DynamicObject], pods: &[DynamicObject]) -> Vec<Problem> {
        let mut problems = Vec::new();
        let nodes = self.list(&nodes()).await;
        let Some(member) = self.leader() else {
            return vec![problem("there is a leader", "no controller is synced")];
        };
        let index = member.index.read().unwrap();
        let world = index.world();
        let names = world.resources();
        let mut bound: BTreeMap<&str, Amounts> = BTreeMap::new();
        let is_live = |pod: &&DynamicObject| {
            !matches!(pod.data["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
        };
        for pod in pods.iter().filter(is_live) {
            let Some(node) = pod.data["spec"]["nodeName"].as_str() else { continue };
            add(bound.entry(node).or_default(), &request(pod));
        }
        for node in &nodes {
            let name = node.metadata.name.as_deref().unwrap();
            let Some(usage) = world.usage(name) else {
                problems.push(problem("the books are right", format!("node {name} is not in the index")));
                continue;
            };
            let of = |amounts: &model::ResourceVec, resource: &str| {
                names.get(resource).map_or(0, |ix| i128::from(amounts.get(ix).0))
            };
            let allocatable = amounts(&node.data["status"]["allocatable"]);
            let empty = Amounts::new();
            for (resource, total) in &allocatable {
                let held = bound.get(name).unwrap_or(&empty).get(resource).copied().unwrap_or(0);
                let (known, reserved, free) =
                    (of(&usage.bound, resource), of(&usage.reserved, resource), of(&usage.free, resource));
                if resource.contains("hugepages") || resource.contains("ephemeral") {
                    continue;
                }
                if known != held || free != total - held - reserved {
                    let text = format!(
                        "{name} {resource}: of {total}, pods hold {held}, the index says {known}, reserved {reserved}, free {free}"
                    );
                    problems.push(problem("the books are right", text));
                }
                if reserved != 0 && !self.has_odd_holder(wrappers) {
                    problems.push(problem(
                        "no place is held for nothing",
                        format!("{name} {resource}: {reserved}"),
                    ));
                }
            }
        }
        let (rows, live) = (world.pods().count(), pods.iter().filter(is_live).count());
        if rows != live {
            problems
                .push(problem("the index has a row for each object", format!("{rows} rows for {live} pods")));
        }
        let (rows, live) = (index.wrappers().count(), wrappers.len());
        if rows != live {
            problems.push(problem(
                "the index has a row for each object",
                format!("{rows} rows for {live} AppWrappers"),
            ));
        }
        problems
    }

    /// Whether a gang runs that may not get all its pods.
    fn has_odd_holder(&self, wrappers: &[DynamicObject]) -> bool {
        wrappers.iter().any(|wrapper| {
            let is_ended = matches!(wrapper.data["status"]["state"].as_str(), Some("Completed" | "Failed"));
            let name = wrapper.metadata.name.as_deref().unwrap();
            !is_ended && (!self.is_ordinary(name) || self.is_failing(name))
        })
    }

    /// The phase of each gang in the index of the active controller, and why it was requeued last, by name.
    pub(crate) fn gangs(&self) -> BTreeMap<String, String> {
        let Some(member) = self.leader() else { return BTreeMap::new() };
        let index = member.index.read().unwrap();
        let text = |wrapper: &index::Wrapper| {
            let conditions = wrapper.status.conditions.iter().rev();
            let requeued = conditions.filter(|condition| condition.kind == "PreemptCandidate").take(1);
            let requeued: Vec<_> = requeued.map(|c| format!("{} {}", c.reason, c.message)).collect();
            format!(
                "{:?}, {} {:?}, growing {:?}, lost {:?}, requeued: {requeued:?}",
                wrapper.phase,
                wrapper.status.queuejobstate,
                wrapper.status.message,
                wrapper.growing,
                wrapper.lost
            )
        };
        index.wrappers().map(|wrapper| (wrapper.key.name.clone(), text(wrapper))).collect()
    }

    /// The controller that acts.
    pub(crate) fn leader(&self) -> Option<&crate::chaos::world::Member> {
        self.members.iter().find(|member| member.index.read().unwrap().world().nodes().next().is_some())
    }
}

/// The AppWrapper of a pod: all names are made of its name.
pub(crate) fn wrapper_of(pod: &str) -> String {
    pod.splitn(3, '-').take(2).collect::<Vec<_>>().join("-")
}

/// Which pods an object lacks.
fn lacks_pods(object: &DynamicObject) -> Option<String> {
    let (spec, status) = (&object.data["spec"], &object.data["status"]);
    let of = |value: &Value| value.as_u64().unwrap_or(0);
    let (wanted, ready) = match object.types.as_ref().map_or("", |types| &types.kind) {
        _ if !spec["workerGroupSpecs"].is_null() => {
            (of(&spec["workerGroupSpecs"][0]["replicas"]), of(&status["readyWorkerReplicas"]))
        }
        _ if !spec["completions"].is_null() => {
            let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
            if conditions
                .iter()
                .any(|c| matches!(c["type"].as_str(), Some("Complete" | "Failed")) && c["status"] == "True")
            {
                return None;
            }
            let left = of(&spec["completions"]).saturating_sub(of(&status["succeeded"]));
            (left.min(of(&spec["parallelism"])), of(&status["active"]))
        }
        _ if !spec["replicas"].is_null() => (of(&spec["replicas"]), of(&status["readyReplicas"])),
        _ => return None,
    };
    (wanted != ready).then(|| format!("{ready} of {wanted} pods"))
}

fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        *sum.entry(name.clone()).or_default() += amount;
    }
}

/// The effective request of a pod.
fn request(pod: &DynamicObject) -> Amounts {
    let requests = |key: &str| {
        let containers = pod.data["spec"][key].as_array().cloned().unwrap_or_default();
        containers
            .into_iter()
            .map(|container| amounts(&container["resources"]["requests"]))
            .collect::<Vec<_>>()
    };
    let mut sum = Amounts::new();
    for container in requests("containers") {
        add(&mut sum, &container);
    }
    for (name, amount) in requests("initContainers").into_iter().flatten() {
        let most = sum.entry(name).or_default();
        *most = (*most).max(amount);
    }
    sum.insert("pods".to_owned(), 1);
    sum
}

fn amounts(value: &Value) -> Amounts {
    let amount = |(name, value): (&String, &Value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let quantity: sandbox::Quantity = text.parse().unwrap_or_default();
        let amount = if name == "cpu" { quantity.milli() } else { quantity.ceil() };
        (name.clone(), i128::from(amount))
    };
    value.as_object().into_iter().flatten().map(amount).collect()
}
