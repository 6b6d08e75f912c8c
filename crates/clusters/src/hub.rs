//! The observed objects of the hub.

use std::collections::{BTreeMap, BTreeSet};

use api::kueue::jobs::{JobKind, remote};
use api::kueue::status::{CheckState, EVICTED, FINISHED, QUOTA_RESERVED, Status};
use api::kueue::workload::API_VERSION;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use controllers::{Whole, api_resource};
use kube::core::ApiResource;
use serde::Deserialize as _;
use serde_json::Value;

use crate::watch::{Key, Seen};

/// The key of a Secret with the kubeconfig.
const SECRET_KEY: &str = "kubeconfig";

/// A resource of the hub that is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HubKind {
    Workload,
    Check,
    Config,
    Cluster,
    /// Those of one namespace.
    Secret,
}

impl HubKind {
    pub(crate) const ALL: [Self; 5] =
        [Self::Workload, Self::Check, Self::Config, Self::Cluster, Self::Secret];

    pub(crate) fn resource(self) -> ApiResource {
        let (api_version, kind, plural) = match self {
            Self::Workload => (API_VERSION, "Workload", "workloads"),
            Self::Check => (API_VERSION, "AdmissionCheck", "admissionchecks"),
            Self::Config => (API_VERSION, "MultiKueueConfig", "multikueueconfigs"),
            Self::Cluster => (API_VERSION, "MultiKueueCluster", "multikueueclusters"),
            Self::Secret => ("v1", "Secret", "secrets"),
        };
        api_resource(api_version, kind, plural)
    }
}

/// What the status of a Workload says.
pub(crate) fn status_of(whole: &Whole) -> Status {
    Status::deserialize(&whole.value["status"]).unwrap_or_default()
}

/// What has changed.
#[derive(Debug)]
pub(crate) enum Changed {
    Workloads(BTreeSet<Key>),
    /// Clusters, configurations, checks or Secrets.
    Clusters,
}

/// The observed objects.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    pub(crate) workloads: BTreeMap<Key, Whole>,
    /// Objects without a namespace by name.
    pub(crate) checks: BTreeMap<String, Whole>,
    pub(crate) configs: BTreeMap<String, Whole>,
    pub(crate) clusters: BTreeMap<String, Whole>,
    /// Kubeconfigs by the name of their Secret; `None`: it has none.
    pub(crate) secrets: BTreeMap<String, Option<String>>,
}

impl Hub {
    /// Applies what a watch has shown.
    pub(crate) fn apply(&mut self, kind: HubKind, seen: Seen) -> Changed {
        let objects = match kind {
            HubKind::Workload => return Changed::Workloads(apply(&mut self.workloads, seen)),
            HubKind::Secret => {
                self.apply_secret(seen);
                return Changed::Clusters;
            }
            HubKind::Check => &mut self.checks,
            HubKind::Config => &mut self.configs,
            HubKind::Cluster => &mut self.clusters,
        };
        match seen {
            Seen::Listed(all) => {
                *objects = all.into_iter().map(|whole| (whole.metadata.name.clone(), whole)).collect();
            }
            Seen::Applied(whole) => {
                objects.insert(whole.metadata.name.clone(), *whole);
            }
            Seen::Deleted(key) => {
                objects.remove(&key.name);
            }
        }
        Changed::Clusters
    }

    fn apply_secret(&mut self, seen: Seen) {
        let of = |whole: &Whole| (whole.metadata.name.clone(), kubeconfig(&whole.value));
        match seen {
            Seen::Listed(all) => self.secrets = all.iter().map(of).collect(),
            Seen::Applied(whole) => self.secrets.extend([of(&whole)]),
            Seen::Deleted(key) => {
                self.secrets.remove(&key.name);
            }
        }
    }

    /// Whether a check is that of other clusters.
    pub(crate) fn is_ours(&self, check: &str) -> bool {
        self.checks
            .get(check)
            .is_some_and(|check| check.value["spec"]["controllerName"] == remote::CONTROLLER)
    }

    /// The clusters of a check, in the order of its configuration.
    ///
    /// # Errors
    ///
    /// Its parameters name no configuration that exists.
    pub(crate) fn clusters_of(&self, check: &str) -> Result<Vec<&str>, String> {
        let Some(check) = self.checks.get(check) else { return Ok(Vec::new()) };
        let parameters = &check.value["spec"]["parameters"];
        let field = |field: &str| parameters[field].as_str().unwrap_or_default();
        if parameters.is_null() {
            return Err("missing parameters".into());
        }
        if field("apiGroup") != api::kueue::GROUP || field("kind") != "MultiKueueConfig" {
            return Err(format!(
                "wrong type of parameters: {} of {:?}, expecting MultiKueueConfig of {:?}",
                field("kind"),
                field("apiGroup"),
                api::kueue::GROUP
            ));
        }
        let name = field("name");
        let config = self.configs.get(name);
        let config = config.ok_or_else(|| format!("multikueueconfigs.kueue.x-k8s.io {name:?} not found"))?;
        let names = config.value["spec"]["clusters"].as_array();
        Ok(names.into_iter().flatten().filter_map(Value::as_str).collect())
    }

    /// A Workload with what its status says.
    pub(crate) fn local(&self, key: &Key) -> Option<Local<'_>> {
        let whole = self.workloads.get(key)?;
        Some(Local { whole, status: status_of(whole) })
    }
}

fn kubeconfig(secret: &Value) -> Option<String> {
    let data = secret["data"][SECRET_KEY].as_str()?;
    String::from_utf8(BASE64_STANDARD.decode(data).ok()?).ok()
}

/// Applies what a watch has shown. Returns the keys that have changed.
pub(crate) fn apply(objects: &mut BTreeMap<Key, Whole>, seen: Seen) -> BTreeSet<Key> {
    match seen {
        Seen::Listed(all) => {
            let mut changed: BTreeSet<Key> = objects.keys().cloned().collect();
            *objects = all.into_iter().map(|whole| (Key::of(&whole), whole)).collect();
            changed.extend(objects.keys().cloned());
            changed
        }
        Seen::Applied(whole) => {
            let key = Key::of(&whole);
            objects.insert(key.clone(), *whole);
            [key].into()
        }
        Seen::Deleted(key) => {
            objects.remove(&key);
            [key].into()
        }
    }
}

/// A Workload of the hub.
pub(crate) struct Local<'a> {
    pub(crate) whole: &'a Whole,
    pub(crate) status: Status,
}

/// The job of a Workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobOf {
    pub(crate) kind: KindRef,
    pub(crate) key: Key,
    pub(crate) uid: String,
}

/// A kind of jobs that can run in another cluster.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KindRef(pub(crate) &'static JobKind);

impl PartialEq for KindRef {
    fn eq(&self, other: &Self) -> bool {
        self.0.framework == other.0.framework
    }
}

impl Eq for KindRef {}

impl Local<'_> {
    pub(crate) fn uid(&self) -> &str {
        &self.whole.metadata.uid
    }

    pub(crate) fn has_quota(&self) -> bool {
        self.status.is(QUOTA_RESERVED)
    }

    pub(crate) fn is_evicted(&self) -> bool {
        self.status.is(EVICTED)
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.status.is(FINISHED)
    }

    /// Whether it may be in other clusters at all.
    pub(crate) fn is_dispatched(&self) -> bool {
        self.has_quota() && !self.is_evicted() && !self.is_finished() && !self.whole.metadata.is_deleting()
    }

    /// The state of its check.
    pub(crate) fn check(&self, hub: &Hub) -> Option<&CheckState> {
        self.status.admission_checks.iter().find(|check| hub.is_ours(&check.name))
    }

    /// Its job, or what owns it instead.
    pub(crate) fn job(&self) -> Result<JobOf, String> {
        let meta = &self.whole.metadata;
        let Some(owner) = meta.controller().or(meta.owner_references.first()) else {
            return Err("No multikueue adapter found".into());
        };
        let kind = remote::kinds().find(|kind| kind.is_kind_of(&owner.api_version, &owner.kind));
        let kind = kind.ok_or_else(|| {
            let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
            format!("No multikueue adapter found for owner kind \"{group}/{version}, Kind={}\"", owner.kind)
        })?;
        let key = Key::new(&meta.namespace, &owner.name);
        Ok(JobOf { kind: KindRef(kind), key, uid: owner.uid.clone() })
    }
}
