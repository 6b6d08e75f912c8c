//! The observed jobs, Workloads, flavors and classes.

use std::collections::{BTreeMap, BTreeSet};

use api::kueue::jobs::leader_worker_sets::set_of;
use api::kueue::jobs::pods::{IS_GROUP, group_name};
use api::kueue::jobs::sets::workload_names;
use api::kueue::jobs::{ELASTIC, Flavor, JobKind, REFERENCED, annotation, prebuilt_workload};
use index::remove_from;

use super::JobsConfig;
use super::source::JobsSource;
use super::write::Before;
use crate::events::Subject;
use crate::watched::{Change, Whole};

/// What the loop looks at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum JobKey {
    /// A job, by uid.
    Job(String),
    /// The pods of a group.
    Group {
        /// Their namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// The observed objects.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    /// The position of the kind of pods in the configuration.
    pods_at: Option<usize>,
    /// The position of the kind of sets of groups.
    groups_at: Option<usize>,
    /// The uids of sets of groups by namespace and name.
    sets: BTreeMap<(String, String), String>,
    /// The uids of the pods of sets of groups, by namespace and name of the set.
    pods_of_sets: BTreeMap<(String, String), BTreeSet<String>>,
    /// The uids of Workloads by the uid of the set that they are for, which does not control them.
    of_sets: BTreeMap<String, BTreeSet<String>>,
    /// Jobs with the position of their kind, by uid.
    pub(super) jobs: BTreeMap<String, (usize, Whole)>,
    /// The uids of pods by their group: namespace and name.
    groups: BTreeMap<(String, String), BTreeSet<String>>,
    /// The uids of jobs by the Workload of another author that they name: namespace and name.
    users: BTreeMap<(String, String), BTreeSet<String>>,
    /// Workloads by uid.
    pub(super) workloads: BTreeMap<String, Whole>,
    /// The uids of Workloads by namespace and name.
    named: BTreeMap<(String, String), String>,
    /// The uids of Workloads by the uid of the job that owns them.
    owned: BTreeMap<String, BTreeSet<String>>,
    /// The uids of jobs by the uid of the object that owns them.
    children: BTreeMap<String, BTreeSet<String>>,
    /// The objects that describe pods of jobs, by the positions of their kind and their uid.
    referenced: BTreeMap<(usize, usize, String), Whole>,
    /// Cluster-scoped objects by name.
    flavors: BTreeMap<String, Whole>,
    workload_classes: BTreeMap<String, Whole>,
    pod_classes: BTreeMap<String, Whole>,
    namespaces: BTreeMap<String, Whole>,
}

impl Objects {
    /// No objects yet.
    pub(super) fn of(kinds: &[&'static JobKind]) -> Self {
        let at = |is_it: fn(&JobKind) -> bool| kinds.iter().position(|kind| is_it(kind));
        Self { pods_at: at(JobKind::is_pod), groups_at: at(JobKind::has_groups), ..Self::default() }
    }

    /// Applies a change. Returns what to look at.
    pub(super) fn apply(&mut self, source: JobsSource, change: Change) -> Vec<JobKey> {
        let mut keys = Vec::new();
        if let (JobsSource::Job(_), Change::Deleted(uid, _)) = (source, &change) {
            keys.push(self.key(uid));
            keys.extend(self.set_of(uid));
        }
        if let (JobsSource::Workload, Change::Applied(workload)) = (source, &change) {
            keys.extend(self.group_of(workload));
            keys.extend(self.sets_of(workload));
        }
        if let (JobsSource::Workload, Change::Deleted(uid, _)) = (source, &change) {
            let workload = self.workloads.get(uid);
            keys.extend(workload.and_then(|workload| self.group_of(workload)));
            keys.extend(workload.into_iter().flat_map(|workload| self.sets_of(workload)));
        }
        let concerned = self.all_concerned(source, change);
        keys.extend(concerned.iter().map(|uid| self.key(uid)));
        keys.extend(concerned.iter().filter_map(|uid| self.set_of(uid)));
        keys.extend(concerned.iter().filter_map(|uid| self.elastic_owner(uid)));
        keys
    }

    /// The sets of pods that a Workload is for.
    fn sets_of(&self, workload: &Whole) -> Vec<JobKey> {
        let known = owning_sets(workload).filter(|uid| self.jobs.contains_key(*uid));
        known.map(|uid| JobKey::Job(uid.to_owned())).collect()
    }

    /// The job whose size may follow that of a job which it owns.
    fn elastic_owner(&self, uid: &str) -> Option<JobKey> {
        let owner = self.jobs.get(uid)?.1.metadata.controller()?;
        let (_, job) = self.jobs.get(&owner.uid)?;
        (annotation(&job.value, ELASTIC) == Some("true")).then(|| JobKey::Job(owner.uid.clone()))
    }

    /// The set of a pod.
    fn set_of(&self, uid: &str) -> Option<JobKey> {
        let (at, pod) = self.jobs.get(uid).filter(|(at, _)| self.pods_at == Some(*at))?;
        if let Some(set) = self.set_of_pod(*at, pod) {
            return self.sets.get(&set).map(|uid| JobKey::Job(uid.clone()));
        }
        let owner = pod.metadata.controller()?;
        self.jobs.contains_key(&owner.uid).then(|| JobKey::Job(owner.uid.clone()))
    }

    /// The namespace and the name of the set of groups that a pod names.
    fn set_of_pod(&self, at: usize, job: &Whole) -> Option<(String, String)> {
        let name = set_of(&job.value).filter(|_| self.pods_at == Some(at))?;
        Some((job.metadata.namespace.clone(), name.to_owned()))
    }

    /// The pods that name a set of groups.
    pub(super) fn pods_naming(&self, set: &Whole) -> impl Iterator<Item = &Whole> {
        let pods = self.pods_of_sets.get(&name_of(set)).into_iter().flatten();
        pods.filter_map(|uid| self.jobs.get(uid)).map(|(_, pod)| pod)
    }

    /// The Workloads of the groups of a set.
    pub(super) fn workloads_of_groups(&self, set: &str) -> impl Iterator<Item = &Whole> {
        self.of_sets.get(set).into_iter().flatten().filter_map(|uid| self.workloads.get(uid))
    }

    /// The Workload of a set, under its present name or under that of an older version.
    pub(super) fn workload_of_set(&self, uid: &str) -> Option<&Whole> {
        let (_, set) = self.jobs.get(uid)?;
        let namespace = &set.metadata.namespace;
        workload_names(&set.value).iter().find_map(|name| self.workload(namespace, name))
    }

    /// The pods of a set.
    pub(super) fn pods_of(&self, set: &str) -> impl Iterator<Item = &Whole> {
        let pods = self.children.get(set).into_iter().flatten().filter_map(|uid| self.jobs.get(uid));
        pods.filter(|(at, _)| self.pods_at == Some(*at)).map(|(_, pod)| pod)
    }

    /// The jobs that a job owns.
    pub(super) fn children_of(&self, uid: &str) -> impl Iterator<Item = &Whole> {
        let children = self.children.get(uid).into_iter().flatten().filter_map(|uid| self.jobs.get(uid));
        children.map(|(_, child)| child)
    }

    /// What is looked at for a job: of a pod in a group, the group.
    fn key(&self, uid: &str) -> JobKey {
        let group = self.jobs.get(uid).and_then(|(at, job)| self.group_of_pod(*at, job));
        group.map_or_else(
            || JobKey::Job(uid.to_owned()),
            |(namespace, name)| JobKey::Group { namespace, name },
        )
    }

    /// The namespace and the name of the group of a pod; `None` for another job.
    fn group_of_pod(&self, at: usize, job: &Whole) -> Option<(String, String)> {
        let name = group_name(&job.value).filter(|_| self.pods_at == Some(at))?;
        Some((job.metadata.namespace.clone(), name.to_owned()))
    }

    /// The group of pods that a Workload is for, if it is for one.
    fn group_of(&self, workload: &Whole) -> Option<JobKey> {
        let meta = &workload.metadata;
        let key = (meta.namespace.clone(), meta.name.clone());
        let is_group =
            self.groups.contains_key(&key) || annotation(&workload.value, IS_GROUP) == Some("true");
        let (namespace, name) = key;
        is_group.then_some(JobKey::Group { namespace, name })
    }

    /// The uids of the jobs that a change concerns.
    fn all_concerned(&mut self, source: JobsSource, change: Change) -> Vec<String> {
        let mut concerned = self.concerned(source, change);
        let mut at = 0;
        // The jobs below them, each once: owners may form a circle.
        while let Some(uid) = concerned.get(at) {
            let below = self.children.get(uid).into_iter().flatten();
            let new: Vec<String> = below.filter(|uid| !concerned.contains(uid)).cloned().collect();
            concerned.extend(new);
            at += 1;
        }
        concerned
    }

    fn concerned(&mut self, source: JobsSource, change: Change) -> Vec<String> {
        match (source, change) {
            (JobsSource::Job(kind), Change::Applied(job)) => {
                let uid = job.metadata.uid.clone();
                self.forget_job(&uid);
                if let Some(owner) = job.metadata.controller() {
                    self.children.entry(owner.uid.clone()).or_default().insert(uid.clone());
                }
                if let Some(group) = self.group_of_pod(kind, &job) {
                    self.groups.entry(group).or_default().insert(uid.clone());
                }
                if let Some(set) = self.set_of_pod(kind, &job) {
                    self.pods_of_sets.entry(set).or_default().insert(uid.clone());
                }
                if self.groups_at == Some(kind) {
                    self.sets.insert(name_of(&job), uid.clone());
                }
                if let Some(workload) = used_by(&job) {
                    self.users.entry(workload).or_default().insert(uid.clone());
                }
                self.jobs.insert(uid.clone(), (kind, *job));
                vec![uid]
            }
            (JobsSource::Job(_), Change::Deleted(uid, _)) => {
                self.forget_job(&uid);
                vec![uid]
            }
            (JobsSource::Workload, Change::Applied(workload)) => {
                let uid = workload.metadata.uid.clone();
                let mut concerned = self.forget_workload(&uid);
                concerned.extend(self.users(&workload));
                if let Some(owner) = workload.metadata.controller() {
                    self.owned.entry(owner.uid.clone()).or_default().insert(uid.clone());
                    concerned.push(owner.uid.clone());
                }
                for set in owning_sets(&workload) {
                    self.of_sets.entry(set.to_owned()).or_default().insert(uid.clone());
                }
                self.named.insert(name_of(&workload), uid.clone());
                self.workloads.insert(uid, *workload);
                concerned
            }
            (JobsSource::Workload, Change::Deleted(uid, _)) => self.forget_workload(&uid),
            (JobsSource::Referenced(at, other), change) => {
                match change {
                    Change::Applied(object) => {
                        drop(self.referenced.insert((at, other, object.metadata.uid.clone()), *object));
                    }
                    Change::Deleted(uid, _) => drop(self.referenced.remove(&(at, other, uid))),
                }
                let of_kind = self.jobs.iter().filter(|(_, (kind, _))| *kind == at);
                of_kind.map(|(uid, _)| uid.clone()).collect()
            }
            (source, change) => {
                let Some(objects) = self.others(source) else { return Vec::new() };
                match change {
                    Change::Applied(object) => {
                        drop(objects.insert(object.metadata.name.clone(), *object));
                    }
                    Change::Deleted(_, name) => drop(objects.remove(&name)),
                }
                self.job_uids().collect()
            }
        }
    }

    /// A job with the object that describes its pods. `None`: it needs none, or there is none.
    pub(super) fn described(&self, at: usize, kind: &JobKind, job: &Whole) -> Option<Whole> {
        let reference = kind.integration.reference(&job.value)?;
        let of_kind = (at, reference.at, String::new())..(at, reference.at + 1, String::new());
        let (_, found) = self.referenced.range(of_kind).find(|(_, object)| {
            object.metadata.name == reference.name && object.metadata.namespace == reference.namespace
        })?;
        let mut job = job.clone();
        job.value.as_object_mut()?.insert(REFERENCED.into(), found.value.clone());
        Some(job)
    }

    fn others(&mut self, source: JobsSource) -> Option<&mut BTreeMap<String, Whole>> {
        match source {
            JobsSource::Flavor => Some(&mut self.flavors),
            JobsSource::WorkloadClass => Some(&mut self.workload_classes),
            JobsSource::PodClass => Some(&mut self.pod_classes),
            JobsSource::Namespace => Some(&mut self.namespaces),
            JobsSource::Job(_) | JobsSource::Referenced(..) | JobsSource::Workload => None,
        }
    }

    fn forget_job(&mut self, uid: &str) {
        let Some((at, job)) = self.jobs.remove(uid) else { return };
        if let Some(owner) = job.metadata.controller() {
            remove_from(&mut self.children, &owner.uid, uid);
        }
        if let Some(group) = self.group_of_pod(at, &job) {
            remove_from(&mut self.groups, &group, uid);
        }
        if let Some(set) = self.set_of_pod(at, &job) {
            remove_from(&mut self.pods_of_sets, &set, uid);
        }
        // Another one may have the name already.
        if self.groups_at == Some(at) && self.sets.get(&name_of(&job)).is_some_and(|known| known == uid) {
            self.sets.remove(&name_of(&job));
        }
        if let Some(workload) = used_by(&job) {
            remove_from(&mut self.users, &workload, uid);
        }
    }

    fn forget_workload(&mut self, uid: &str) -> Vec<String> {
        let Some(workload) = self.workloads.remove(uid) else { return Vec::new() };
        // Another one may have the name already.
        if self.named.get(&name_of(&workload)).is_some_and(|known| known == uid) {
            self.named.remove(&name_of(&workload));
        }
        let mut concerned = self.users(&workload);
        if let Some(owner) = workload.metadata.controller() {
            remove_from(&mut self.owned, &owner.uid, uid);
            concerned.push(owner.uid.clone());
        }
        for set in owning_sets(&workload) {
            remove_from(&mut self.of_sets, set, uid);
        }
        concerned
    }

    /// The jobs that name a Workload of another author.
    fn users(&self, workload: &Whole) -> Vec<String> {
        if workload.metadata.controller().is_some_and(|owner| self.jobs.contains_key(&owner.uid)) {
            return Vec::new();
        }
        self.users.get(&name_of(workload)).into_iter().flatten().cloned().collect()
    }

    /// The uids of all jobs, and of jobs that are gone and have Workloads.
    fn job_uids(&self) -> impl Iterator<Item = String> {
        let uids: BTreeSet<String> = self.jobs.keys().chain(self.owned.keys()).cloned().collect();
        uids.into_iter()
    }

    /// All that there is to look at.
    pub(super) fn keys(&self) -> BTreeSet<JobKey> {
        let groups = self.workloads.values().filter_map(|workload| self.group_of(workload));
        self.job_uids().map(|uid| self.key(&uid)).chain(groups).collect()
    }

    /// The pods of a group, ordered by name.
    pub(super) fn group(&self, namespace: &str, name: &str) -> Vec<(usize, &Whole)> {
        let uids = self.groups.get(&(namespace.to_owned(), name.to_owned()));
        let mut pods: Vec<_> = uids
            .into_iter()
            .flatten()
            .filter_map(|uid| self.jobs.get(uid))
            .map(|(at, pod)| (*at, pod))
            .collect();
        pods.sort_by(|(_, one), (_, other)| one.metadata.name.cmp(&other.metadata.name));
        pods
    }

    /// The Workloads of a job.
    pub(super) fn workloads_of(&self, job: &str) -> impl Iterator<Item = &Whole> {
        self.owned.get(job).into_iter().flatten().filter_map(|uid| self.workloads.get(uid))
    }

    /// Whether the objects of a write are shown as it has left them, or as others have since.
    pub(super) fn show(&self, before: &[Before]) -> bool {
        let version = |uid: &str| {
            let object = self.jobs.get(uid).map(|(_, job)| job).or_else(|| self.workloads.get(uid))?;
            Some(&object.metadata.resource_version)
        };
        before.iter().all(|before| match before {
            Before::Version(uid, before) => version(uid) != Some(before),
            Before::NoWorkload(namespace, name) => self.workload(namespace, name).is_some(),
        })
    }

    /// A Workload by name.
    pub(super) fn workload(&self, namespace: &str, name: &str) -> Option<&Whole> {
        self.workloads.get(self.named.get(&(namespace.to_owned(), name.to_owned()))?)
    }

    /// A flavor.
    pub(super) fn flavor(&self, name: &str) -> Option<Flavor> {
        let flavor = self.flavors.get(name)?;
        let labels = flavor.value["spec"]["nodeLabels"].as_object().into_iter().flatten();
        let labels = labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
        let tolerations = flavor.value["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
        Some(Flavor { node_labels: labels.collect(), tolerations })
    }

    /// The value of a `WorkloadPriorityClass`.
    pub(super) fn workload_class(&self, name: &str) -> Option<i32> {
        self.workload_classes.get(name).map(value_of)
    }

    /// The value of a `PriorityClass`.
    pub(super) fn pod_class(&self, name: &str) -> Option<i32> {
        self.pod_classes.get(name).map(value_of)
    }

    /// The `PriorityClass` of pods that name none: of several, the one with the lowest value.
    pub(super) fn default_pod_class(&self) -> Option<(&str, i32)> {
        let default = self.pod_classes.values().filter(|class| class.value["globalDefault"] == true);
        default.map(|class| (class.metadata.name.as_str(), value_of(class))).min_by_key(|(_, value)| *value)
    }

    /// The labels of a namespace.
    pub(super) fn namespace_labels(&self, name: &str) -> Option<&BTreeMap<String, String>> {
        self.namespaces.get(name).map(|namespace| &namespace.metadata.labels)
    }

    /// A job, or the pod that speaks for its group, as the subject of Events.
    pub(super) fn subject(&self, key: &JobKey, config: &JobsConfig) -> Subject {
        let found = match key {
            JobKey::Job(uid) => self.jobs.get(uid).map(|(at, job)| (*at, job)),
            JobKey::Group { namespace, name } => self.group(namespace, name).first().copied(),
        };
        let found = found.and_then(|(at, job)| Some((config.kind(at)?, job)));
        found.map_or_else(Subject::default, |(kind, job)| subject(kind.api_version, kind.kind, job))
    }
}

/// An object as the subject of Events.
pub(super) fn subject(api_version: &str, kind: &str, object: &Whole) -> Subject {
    let meta = &object.metadata;
    Subject {
        api_version: api_version.into(),
        kind: kind.into(),
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
    }
}

/// Namespace and name of the Workload of another author that a job names.
fn used_by(job: &Whole) -> Option<(String, String)> {
    Some((job.metadata.namespace.clone(), prebuilt_workload(&job.value)?.to_owned()))
}

/// The uids of the sets of pods that a Workload is for.
fn owning_sets(workload: &Whole) -> impl Iterator<Item = &str> {
    let owners = workload.metadata.owner_references.iter();
    owners.filter(|owner| owner.controller != Some(true) && owner.kind != "Pod").map(|owner| &*owner.uid)
}

fn name_of(object: &Whole) -> (String, String) {
    (object.metadata.namespace.clone(), object.metadata.name.clone())
}

fn value_of(class: &Whole) -> i32 {
    class.value["value"].as_i64().and_then(|value| i32::try_from(value).ok()).unwrap_or_default()
}
