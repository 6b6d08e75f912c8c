//! The operator of the kinds that are described by where their fields are: it writes numbers and conditions there.

use serde_json::{Value, json};

use super::super::Integration as _;
use super::super::declared::{Declared, PodSets, Ready};
use super::super::set_at;
use super::{Condition, Operator, Seen, SeenPod, known_status, pods};

/// The units of a pod set: the first factor of its count, each with as many pods as the others say.
struct Units {
    /// Its key in the status.
    key: String,
    wanted: u32,
    active: u32,
    ready: u32,
    succeeded: u32,
}

impl Operator for Declared {
    fn objects(&self, job: &Value, seen: &Seen<'_>) -> Vec<Value> {
        pods(job, self, seen.most_pods)
    }

    fn status(&self, job: &Value, seen: &Seen<'_>) -> Value {
        if self.finished(job).is_some() {
            return known_status(job);
        }
        let units = self.units(job, seen);
        let mut root = json!({"status": known_status(job)});
        self.count(&mut root, &units);
        let mut status = root["status"].take();
        let kind = job["kind"].as_str().unwrap_or("the job");
        seen.set_suspended(&mut status, self.is_suspended(job), kind);
        if let Ready::Condition(kind) = self.ready {
            let is_true =
                !units.is_empty() && units.iter().all(|set| set.ready + set.succeeded == set.wanted);
            let reason = if is_true { "PodsReady" } else { "PodsNotReady" };
            seen.set(&mut status, &Condition { kind, is_true, reason, message: "" });
        }
        if let Some(failed) = seen.pods.iter().find(|pod| pod.phase == "Failed") {
            let message = format!("pod {} has failed", failed.name);
            seen.set(
                &mut status,
                &Condition { kind: "Failed", is_true: true, reason: "PodFailed", message: &message },
            );
        } else if !units.is_empty() && units.iter().all(|set| set.succeeded == set.wanted) {
            let message = "all pods have succeeded";
            seen.set(
                &mut status,
                &Condition { kind: self.succeeded, is_true: true, reason: "PodsSucceeded", message },
            );
        }
        status
    }
}

impl Declared {
    fn units(&self, job: &Value, seen: &Seen<'_>) -> Vec<Units> {
        let (first, others) = self.pod_sets.count.split_at(self.pod_sets.count.len().min(1));
        let of = |(name, at): (String, String)| {
            let set = job.pointer(&at).unwrap_or(&Value::Null);
            let wanted = PodSets::product(first, set);
            let per_unit = PodSets::product(others, set).max(1);
            let pods: Vec<&SeenPod<'_>> = seen.pods.iter().filter(|pod| pod.is_of(&name)).collect();
            let of_unit = |unit: u32| {
                let index = move |pod: &&&SeenPod<'_>| {
                    let (_, index) = pod.name.rsplit_once('-')?;
                    Some(index.parse::<u32>().ok()? / per_unit)
                };
                let mut of_unit = pods.iter().filter(move |pod| index(pod) == Some(unit)).peekable();
                of_unit.peek().is_some().then(|| of_unit.copied().collect::<Vec<_>>())
            };
            let is_whole = |unit: &Vec<&SeenPod<'_>>| unit.len() == per_unit as usize;
            let all: Vec<_> = (0..wanted.min(seen.most_pods)).filter_map(of_unit).filter(is_whole).collect();
            let succeeded = |unit: &&Vec<&SeenPod<'_>>| unit.iter().all(|pod| pod.phase == "Succeeded");
            let up = |unit: &&Vec<&SeenPod<'_>>| {
                !succeeded(unit) && unit.iter().all(|pod| pod.is_ready || pod.phase == "Succeeded")
            };
            let listed = set["name"].as_str().map(str::to_owned);
            let key = listed.or_else(|| at.rsplit_once('/').map(|(_, key)| key.to_owned())).unwrap_or(name);
            Units {
                key,
                wanted,
                active: number(pods.iter().filter(|pod| !pod.has_ended()).count()),
                ready: number(all.iter().filter(up).count()),
                succeeded: number(all.iter().filter(succeeded).count()),
            }
        };
        self.pod_sets.found(job).into_iter().map(of).collect()
    }

    /// Writes the numbers of pods and units where they are read.
    fn count(&self, root: &mut Value, units: &[Units]) {
        let is_list = self.pod_sets.keys.is_empty();
        write(root, self.active, is_list, units, |set| set.active);
        if let Ready::Numbers { ready, .. } = self.ready {
            match ready {
                [one] => write(root, one, is_list, units, |set| set.ready + set.succeeded),
                [first, second, ..] => {
                    write(root, first, is_list, units, |set| set.ready);
                    write(root, second, is_list, units, |set| set.succeeded);
                }
                [] => {}
            }
        }
        if let Some(ended) = &self.ended {
            write(root, &format!("{}/*{}", ended.at, ended.field), true, units, |set| set.succeeded);
        }
    }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn parts(path: &str) -> Vec<&str> {
    path.split('/').skip(1).collect()
}

/// Writes a number of every pod set: into its own element where the path has `*`, or else their sum.
fn write(root: &mut Value, path: &str, is_list: bool, units: &[Units], of: impl Fn(&Units) -> u32) {
    let Some((before, after)) = path.split_once("/*") else {
        set_at(root, &parts(path), units.iter().map(of).sum::<u32>().into());
        return;
    };
    if root.pointer(before).is_none_or(Value::is_null) {
        set_at(root, &parts(before), if is_list { json!([]) } else { json!({}) });
    }
    for set in units {
        let element = match root.pointer_mut(before) {
            Some(Value::Array(items)) => {
                let at = items.iter().position(|item| item["name"] == set.key);
                let at = at.unwrap_or_else(|| {
                    items.push(json!({"name": set.key}));
                    items.len() - 1
                });
                items.get_mut(at)
            }
            Some(Value::Object(fields)) => Some(fields.entry(&set.key).or_insert(Value::Null)),
            _ => None,
        };
        if let Some(element) = element {
            set_at(element, &parts(after), of(set).into());
        }
    }
}
