//! The settings of MCAD: its flags, its environment and its `ConfigMap`, as values of the chart. After
//! `cmd/kar-controllers/app/options` of MCAD 1.40.

use std::collections::BTreeMap;

use serde_json::Value;

use super::cluster::{Cluster, items, text};
use super::finding::{Finding, Subject};
use super::systems::Deployment;

/// Environment variable, flag, and what both are for.
const SETTINGS: [(&str, &str); 9] = [
    ("QUOTA_ENABLED", "quotaEnabled"),
    ("PREEMPTION", "preemption"),
    ("DYNAMICPRIORITY", "dynamicpriority"),
    ("DISPATCHER_MODE", "dispatcher"),
    ("EXTERNAL_DISPATCH", "externalDispatch"),
    ("QUOTA_REST_URL", "quotaURL"),
    ("BACKOFFTIME", "backofftime"),
    ("HEADOFLINEHOLDINGTIME", "headoflineholdingtime"),
    ("DISPATCH_RESOURCE_RESERVATION_TIMEOUT", "dispatchResourceReservationTimeout"),
];

/// What MCAD's settings mean for Muster.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct McadSettings {
    pub(crate) findings: Vec<Finding>,
    /// `appWrappers.quota`.
    pub(crate) quota: bool,
    /// `appWrappers.preemption`.
    pub(crate) preemption: bool,
    /// `appWrappers.dynamicPriority`.
    pub(crate) dynamic_priority: bool,
}

/// Reads the settings of MCAD's Deployment.
pub(crate) fn settings(cluster: &Cluster, deployment: &Deployment) -> McadSettings {
    let known = values(cluster, deployment);
    let mut settings = McadSettings::default();
    for (name, value) in &known {
        settings.read(name, value);
    }
    if settings.dynamic_priority && settings.preemption {
        settings.preemption = false;
        let what = "has no effect beside DYNAMICPRIORITY, as in MCAD";
        settings.findings.push(Finding::kept(setting("PREEMPTION"), what));
    }
    if cluster.unread.iter().any(|unread| unread.resource.starts_with("configmaps ")) {
        let subject = Subject {
            kind: "Deployment".into(),
            namespace: deployment.namespace.clone(),
            name: deployment.name.clone(),
        };
        let what = "its settings could not be read, so the commands below lack those of its ConfigMap";
        settings.findings.push(Finding::to_do(subject, what, "run this check with the right to get it"));
    }
    settings.findings.extend(if settings.quota { trees(cluster) } else { unused_trees(cluster) });
    settings
}

/// The settings by the names of their variables. A flag wins over a variable.
fn values(cluster: &Cluster, deployment: &Deployment) -> BTreeMap<&'static str, String> {
    let variables = environment(cluster, deployment);
    let mut known = BTreeMap::new();
    for (name, flag) in SETTINGS {
        let value = flag_of(&deployment.pods, flag).or_else(|| variables.get(name).cloned());
        known.extend(value.map(|value| (name, value)));
    }
    known
}

fn environment(cluster: &Cluster, deployment: &Deployment) -> BTreeMap<String, String> {
    let map = |name: &Value| cluster.named("configmaps", &deployment.namespace, text(name));
    let mut known = BTreeMap::new();
    for container in items(&deployment.pods["containers"]) {
        for source in items(&container["envFrom"]) {
            let data = map(&source["configMapRef"]["name"]).and_then(|map| map["data"].as_object());
            known.extend(data.into_iter().flatten().map(|(name, value)| (name.clone(), plain(value))));
        }
        for variable in items(&container["env"]) {
            let from = &variable["valueFrom"]["configMapKeyRef"];
            let referred = map(&from["name"]).map(|map| plain(&map["data"][text(&from["key"])]));
            let value = referred.unwrap_or_else(|| plain(&variable["value"]));
            known.insert(text(&variable["name"]).to_owned(), value);
        }
    }
    known
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The value of a flag of Go: `--name=value`, `--name value`, or `--name` for true.
fn flag_of(pods: &Value, flag: &str) -> Option<String> {
    let containers = || items(&pods["containers"]);
    let words =
        containers().flat_map(|container| items(&container["command"]).chain(items(&container["args"])));
    let words: Vec<&str> = words.map(text).collect();
    let at = words.iter().position(|word| {
        let name = word.trim_start_matches('-').split('=').next().unwrap_or_default();
        word.starts_with('-') && name == flag
    })?;
    if let Some((_, value)) = words[at].split_once('=') {
        return Some(value.to_owned());
    }
    let next = words.get(at + 1).filter(|next| !next.starts_with('-'));
    Some(next.map_or_else(|| "true".into(), |next| (*next).to_owned()))
}

fn setting(name: &str) -> Subject {
    Subject::new("Setting", name)
}

impl McadSettings {
    fn read(&mut self, name: &'static str, value: &str) {
        let is_on = value.eq_ignore_ascii_case("true");
        let subject = setting(name);
        let finding = match name {
            "QUOTA_ENABLED" if is_on => {
                self.quota = true;
                let what = "is on: AppWrappers are charged to the quota trees";
                Finding::set(subject, what, "appWrappers.quota=true")
            }
            "PREEMPTION" if is_on => {
                self.preemption = true;
                let what = "is on: Muster stops whole gangs of lower priority, where MCAD leaves it to kube-scheduler";
                Finding::set(subject, what, "appWrappers.preemption=true")
            }
            "DYNAMICPRIORITY" if is_on => {
                self.dynamic_priority = true;
                let what = "is on: priorities of waiting AppWrappers rise with time";
                Finding::set(subject, what, "appWrappers.dynamicPriority=true")
            }
            "DISPATCHER_MODE" if is_on => {
                let remedy = "install Muster in each of the clusters, and submit there";
                Finding::not_served(subject, "is on: Muster dispatches to no other cluster", remedy)
            }
            "EXTERNAL_DISPATCH" if is_on => {
                let what = "is on: Muster has no plugin that dispatches for it";
                Finding::not_served(subject, what, "switch it off")
            }
            "QUOTA_REST_URL" if !value.is_empty() => {
                let what = "Muster asks no server for quota, and neither does MCAD 1.40";
                Finding::differs(subject, what).with("write QuotaSubtrees instead")
            }
            "BACKOFFTIME" | "HEADOFLINEHOLDINGTIME" | "DISPATCH_RESOURCE_RESERVATION_TIMEOUT" => {
                let what = "has no effect: Muster tries an AppWrapper again when something has changed";
                Finding::differs(subject, what)
            }
            _ => Finding::kept(subject, "is off"),
        };
        self.findings.push(finding);
    }
}

fn all_trees(cluster: &Cluster) -> impl Iterator<Item = &Value> {
    api::quota::Group::ALL.into_iter().flat_map(|group| cluster.of(&group.resource()))
}

/// Quota trees that MCAD does not use.
fn unused_trees(cluster: &Cluster) -> Vec<Finding> {
    let what = "is not used by MCAD, whose QUOTA_ENABLED is off: it stays without effect";
    all_trees(cluster).map(|tree| Finding::kept(Subject::of(tree), what)).collect()
}

fn trees(cluster: &Cluster) -> Vec<Finding> {
    let told = |tree: &Value| {
        let subject = Subject::of(tree);
        if text(&tree["metadata"]["labels"][api::quota::TREE_LABEL]).is_empty() {
            let what = format!("has no label {}: it belongs to no tree, as in MCAD", api::quota::TREE_LABEL);
            return Finding::kept(subject, what);
        }
        Finding::kept(subject, "keeps its groups and their quota")
    };
    all_trees(cluster).map(told).collect()
}
