//! The observed Workloads, requests, templates, checks, configurations and flavors.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use api::appwrapper::{self, Group};
use api::kueue::jobs::Flavor;
use api::kueue::objects::{AdmissionCheck, ProvisioningRequestConfig, ResourceFlavor};
use api::kueue::provisioning::CONTROLLER;
use api::kueue::workload::API_VERSION;
use api::provisioning::{self, ProvisioningRequest};
use api::{MicroTime, OwnerKey};
use index::{Kind, remove_from};
use kube::runtime::watcher;
use serde::Deserialize;

use super::execute::Before;
use crate::events::Subject;
use crate::observations::{Observation, Source};
use crate::watched::{Change, Whole};
use crate::watches::{Handlers, Watches, resource};

/// What a watch of this loop is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ProvisioningSource {
    /// Workloads.
    Workload,
    /// `ProvisioningRequest` objects.
    Request,
    /// `PodTemplate` objects.
    Template,
    /// `AdmissionCheck` objects.
    Check,
    /// `ProvisioningRequestConfig` objects.
    Config,
    /// `ResourceFlavor` objects.
    Flavor,
    /// AppWrappers of a group.
    Wrapper(Group),
}

impl ProvisioningSource {
    /// Those that decide about the check.
    pub(crate) const ALL: [Self; 6] =
        [Self::Workload, Self::Request, Self::Template, Self::Check, Self::Config, Self::Flavor];

    /// Group and version, kind and plural.
    fn resource(self) -> (String, &'static str, &'static str) {
        let (api_version, kind, plural) = match self {
            Self::Workload => (API_VERSION, "Workload", "workloads"),
            Self::Request => (provisioning::API_VERSION, provisioning::KIND, provisioning::PLURAL),
            Self::Template => ("v1", "PodTemplate", "podtemplates"),
            Self::Check => (API_VERSION, "AdmissionCheck", "admissionchecks"),
            Self::Config => (API_VERSION, "ProvisioningRequestConfig", "provisioningrequestconfigs"),
            Self::Flavor => (API_VERSION, "ResourceFlavor", "resourceflavors"),
            Self::Wrapper(group) => return (group.api_version(), appwrapper::KIND, appwrapper::PLURAL),
        };
        (api_version.to_owned(), kind, plural)
    }
}

impl fmt::Display for ProvisioningSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.resource().2)
    }
}

impl Watches {
    /// Watches objects for the loop of the check, or of gangs that ask for nodes.
    pub(crate) fn provisioning(&mut self, source: ProvisioningSource) {
        let handlers = Handlers {
            on_apply: Box::new(move |object| {
                Observation::Provisioning(source, Change::Applied(Box::new(object)))
            }),
            on_delete: Box::new(move |uid, name| {
                Observation::Provisioning(source, Change::Deleted(uid, name))
            }),
        };
        let (api_version, kind, plural) = source.resource();
        let resource = resource(&Kind::new(api_version, kind), plural);
        self.start::<Whole>(Source::Provisioning(source), &resource, watcher::Config::default(), handlers);
    }
}

/// What a step is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Item {
    /// A Workload, by uid.
    Workload(String),
    /// An `AdmissionCheck`, by name.
    Check(String),
}

/// Why the API server did not accept an object for a check of a Workload.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    pub(super) check: String,
    pub(super) text: String,
    /// When it is tried again.
    pub(super) until: MicroTime,
}

/// The observed objects.
#[derive(Debug, Default)]
pub(super) struct Objects {
    /// Workloads with checks, by uid.
    pub(super) workloads: BTreeMap<String, Whole>,
    /// Requests by uid.
    requests: BTreeMap<String, ProvisioningRequest>,
    /// The uids of requests by their Workload.
    requests_of: BTreeMap<OwnerKey, BTreeSet<String>>,
    /// Templates by uid.
    templates: BTreeMap<String, Whole>,
    /// By namespace and name: the uids of templates.
    template_names: BTreeMap<(String, String), String>,
    /// Cluster-scoped objects by name.
    pub(super) checks: BTreeMap<String, (AdmissionCheck, Whole)>,
    configs: BTreeMap<String, ProvisioningRequestConfig>,
    flavors: BTreeMap<String, ResourceFlavor>,
    /// Why requests cannot be read.
    pub(super) obstacle: Option<String>,
    /// What the API server has refused.
    pub(super) refusals: BTreeMap<Item, Refusal>,
}

/// An object with the fields that decisions read; the default if it contradicts its definition.
fn decoded<T: for<'de> Deserialize<'de> + Default>(whole: &Whole) -> T {
    T::deserialize(&whole.value).unwrap_or_else(|error| {
        tracing::warn!(name = whole.metadata.name, %error, "an object cannot be decoded");
        T::default()
    })
}

/// What an owner reference to a Workload names.
pub(super) fn key_of(workload: &Whole) -> OwnerKey {
    workload.metadata.key(API_VERSION, "Workload")
}

impl Objects {
    /// Applies a change. Returns what to look at.
    pub(super) fn apply(&mut self, source: ProvisioningSource, change: Change) -> Vec<Item> {
        use Change::{Applied, Deleted};
        match (source, change) {
            (ProvisioningSource::Workload, Applied(workload)) => self.workload(*workload),
            (ProvisioningSource::Workload, Deleted(uid, _)) => {
                self.workloads.remove(&uid);
                self.refusals.remove(&Item::Workload(uid));
                Vec::new()
            }
            (ProvisioningSource::Request, Applied(request)) => self.request(decoded(&request)),
            (ProvisioningSource::Request, Deleted(uid, _)) => self.forget_request(&uid),
            (ProvisioningSource::Template, Applied(template)) => self.template(*template),
            (ProvisioningSource::Template, Deleted(uid, _)) => self.forget_template(&uid),
            (ProvisioningSource::Check, Applied(check)) => {
                let name = check.metadata.name.clone();
                self.checks.insert(name.clone(), (decoded(&check), *check));
                self.users(&name)
            }
            (ProvisioningSource::Check, Deleted(_, name)) => {
                self.checks.remove(&name);
                self.users(&name)
            }
            (ProvisioningSource::Config, Applied(config)) => {
                self.configs.insert(config.metadata.name.clone(), decoded(&config));
                self.items()
            }
            (ProvisioningSource::Config, Deleted(_, name)) => {
                self.configs.remove(&name);
                self.items()
            }
            (ProvisioningSource::Flavor, Applied(flavor)) => {
                self.flavors.insert(flavor.metadata.name.clone(), decoded(&flavor));
                self.items()
            }
            (ProvisioningSource::Flavor, Deleted(_, name)) => {
                self.flavors.remove(&name);
                self.items()
            }
            // Gangs have their own loop.
            (ProvisioningSource::Wrapper(_), _) => Vec::new(),
        }
    }

    /// Most Workloads have no checks: they are not kept.
    fn workload(&mut self, workload: Whole) -> Vec<Item> {
        let uid = workload.metadata.uid.clone();
        let has_checks =
            workload.value["status"]["admissionChecks"].as_array().is_some_and(|list| !list.is_empty());
        if has_checks || self.requests_of.contains_key(&key_of(&workload)) {
            self.workloads.insert(uid.clone(), workload);
            return vec![Item::Workload(uid)];
        }
        self.workloads.remove(&uid);
        Vec::new()
    }

    fn request(&mut self, request: ProvisioningRequest) -> Vec<Item> {
        let uid = request.metadata.uid.clone();
        let owner = request.metadata.controller_key();
        if let Some(owner) = &owner {
            self.requests_of.entry(owner.clone()).or_default().insert(uid.clone());
        }
        self.requests.insert(uid, request);
        owner.and_then(|owner| self.workload_named(&owner)).into_iter().collect()
    }

    fn forget_request(&mut self, uid: &str) -> Vec<Item> {
        let request = self.requests.remove(uid);
        let Some(owner) = request.and_then(|request| request.metadata.controller_key()) else {
            return Vec::new();
        };
        remove_from(&mut self.requests_of, &owner, uid);
        self.workload_named(&owner).into_iter().collect()
    }

    fn template(&mut self, template: Whole) -> Vec<Item> {
        let meta = &template.metadata;
        self.template_names.insert((meta.namespace.clone(), meta.name.clone()), meta.uid.clone());
        let concerned = self.owner_of(&template);
        self.templates.insert(template.metadata.uid.clone(), template);
        concerned
    }

    fn forget_template(&mut self, uid: &str) -> Vec<Item> {
        let Some(template) = self.templates.remove(uid) else { return Vec::new() };
        let name = (template.metadata.namespace.clone(), template.metadata.name.clone());
        if self.template_names.get(&name).is_some_and(|known| known == uid) {
            self.template_names.remove(&name);
        }
        self.owner_of(&template)
    }

    /// The Workload that owns a template, or the request of which owns it.
    fn owner_of(&self, template: &Whole) -> Vec<Item> {
        let Some(owner) = template.metadata.controller_key() else { return Vec::new() };
        let of_request = self
            .requests
            .get(&owner.uid)
            .filter(|request| request.metadata.key(provisioning::API_VERSION, provisioning::KIND) == owner)
            .and_then(|request| request.metadata.controller_key());
        self.workload_named(&of_request.unwrap_or(owner)).into_iter().collect()
    }

    /// The Workload that an owner reference names, if it is there.
    fn workload_named(&self, owner: &OwnerKey) -> Option<Item> {
        let workload = self.workloads.get(&owner.uid).filter(|workload| key_of(workload) == *owner)?;
        Some(Item::Workload(workload.metadata.uid.clone()))
    }

    /// A check and the Workloads that have it.
    fn users(&self, check: &str) -> Vec<Item> {
        let has_it = |workload: &Whole| {
            let states = workload.value["status"]["admissionChecks"].as_array().into_iter().flatten();
            states.into_iter().any(|state| state["name"] == check)
        };
        let users = self.workloads.iter().filter(|(_, workload)| has_it(workload));
        let users = users.map(|(uid, _)| Item::Workload(uid.clone()));
        std::iter::once(Item::Check(check.into())).chain(users).collect()
    }

    /// Everything that a step may be about.
    pub(super) fn items(&self) -> Vec<Item> {
        let checks = self.checks.keys().cloned().map(Item::Check);
        checks.chain(self.workloads.keys().cloned().map(Item::Workload)).collect()
    }

    /// The requests of a Workload.
    pub(super) fn requests_of(&self, workload: &Whole) -> impl Iterator<Item = &ProvisioningRequest> {
        self.requests_of.get(&key_of(workload)).into_iter().flatten().filter_map(|uid| self.requests.get(uid))
    }

    /// A template by name.
    pub(super) fn template_named(&self, namespace: &str, name: &str) -> Option<&Whole> {
        self.templates.get(self.template_names.get(&(namespace.to_owned(), name.to_owned()))?)
    }

    /// The configuration of a check of this controller, or why it has none. `None` for a check of another controller.
    pub(super) fn config(&self, check: &str) -> Option<Result<&ProvisioningRequestConfig, String>> {
        const KIND: &str = "ProvisioningRequestConfig";
        let (check, _) =
            self.checks.get(check).filter(|(check, _)| check.spec.controller_name == CONTROLLER)?;
        let bad = |text: String| Err(format!("{text}: bad parameters reference"));
        Some(match &check.spec.parameters {
            None => Err("missing parameters reference".into()),
            Some(reference) if reference.name.is_empty() => bad("empty name".into()),
            Some(reference) if reference.api_group != api::kueue::GROUP => {
                bad(format!("wrong group {:?}, expecting {:?}", reference.api_group, api::kueue::GROUP))
            }
            Some(reference) if reference.kind != KIND => {
                bad(format!("wrong kind {:?}, expecting {KIND:?}", reference.kind))
            }
            Some(reference) => self.configs.get(&reference.name).ok_or_else(|| {
                format!("provisioningrequestconfigs.{} {:?} not found", api::kueue::GROUP, reference.name)
            }),
        })
    }

    /// A flavor.
    pub(super) fn flavor(&self, name: &str) -> Option<Flavor> {
        let spec = &self.flavors.get(name)?.spec;
        Some(Flavor { node_labels: spec.node_labels.clone(), tolerations: spec.tolerations.clone() })
    }

    /// Whether a write is shown.
    pub(super) fn shows(&self, before: &Before) -> bool {
        match before {
            Before::Version(uid, version) => self.version(uid) != Some(version),
            Before::NoRequest(namespace, name) => self
                .requests
                .values()
                .any(|request| request.metadata.namespace == *namespace && request.metadata.name == *name),
            Before::NoTemplate(namespace, name) => self.template_named(namespace, name).is_some(),
            Before::Exists(uid) => !self.templates.contains_key(uid),
        }
    }

    fn version(&self, uid: &str) -> Option<&String> {
        let check = || self.checks.values().map(|(_, whole)| &whole.metadata).find(|meta| meta.uid == uid);
        let of_workload = self.workloads.get(uid).or_else(|| self.templates.get(uid));
        let meta = of_workload
            .map(|whole| &whole.metadata)
            .or_else(|| self.requests.get(uid).map(|request| &request.metadata))
            .or_else(check)?;
        Some(&meta.resource_version)
    }

    /// A Workload or check as the subject of Events.
    pub(super) fn subject(&self, item: &Item) -> Subject {
        let (kind, meta) = match item {
            Item::Workload(uid) => ("Workload", self.workloads.get(uid).map(|whole| &whole.metadata)),
            Item::Check(name) => ("AdmissionCheck", self.checks.get(name).map(|(_, whole)| &whole.metadata)),
        };
        let meta = meta.cloned().unwrap_or_default();
        Subject {
            api_version: API_VERSION.into(),
            kind: kind.into(),
            namespace: meta.namespace,
            name: meta.name,
            uid: meta.uid,
            resource_version: meta.resource_version,
        }
    }
}
