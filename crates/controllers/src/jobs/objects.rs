//! The observed jobs, Workloads, flavors and classes.

use std::collections::{BTreeMap, BTreeSet};

use api::OwnerKey;
use api::kueue::jobs::leader_worker_sets::set_of;
use api::kueue::jobs::pods::group_name;
use api::kueue::jobs::remote::ORIGIN;
use api::kueue::jobs::sets::workload_names;
use api::kueue::jobs::{
    ELASTIC, Flavor, JobKind, REFERENCED, annotation, prebuilt_workload, queue_name, workload_prefix,
};
use api::kueue::status::{FINISHED, QUOTA_RESERVED};
use api::kueue::workload::JOB_UID;
use index::remove_from;

use super::JobsConfig;
use super::restarts::Restarts;
use super::source::JobsSource;
use super::started::{Chain, StartedPods, chain_of, chain_of_left};
use super::workload::is_group;
use super::write::{Before, decoded};
use crate::events::Subject;
use crate::watched::{Change, Whole};

/// What the loop looks at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum JobKey {
    /// A job, or what Workloads name as the job that they are for.
    Job(OwnerKey),
    /// A Workload of a job, by uid, that nothing owns.
    Orphan(String),
    /// The pods of a group.
    Group {
        /// Their namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

impl JobKey {
    /// Whether the Workload of this job may have this name.
    fn may_be_named(&self, namespace: &str, workload: &str) -> bool {
        match self {
            Self::Job(of) => {
                of.namespace == namespace && workload.starts_with(&workload_prefix(&of.kind, &of.name))
            }
            Self::Group { namespace: of, name } => of == namespace && name == workload,
            Self::Orphan(_) => false,
        }
    }
}

/// The observed objects.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    /// The kinds of jobs that are watched.
    kinds: Vec<&'static JobKind>,
    /// The position of the kind of pods in the configuration.
    pods_at: Option<usize>,
    /// The position of the kind of sets of groups.
    groups_at: Option<usize>,
    /// The uids of sets of groups by namespace and name.
    sets: BTreeMap<(String, String), String>,
    /// The uids of the pods of sets of groups, by namespace and name of the set.
    pods_of_sets: BTreeMap<(String, String), BTreeSet<String>>,
    /// The uids of Workloads by the set that they are for, which does not control them.
    of_sets: BTreeMap<OwnerKey, BTreeSet<String>>,
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
    /// The uids of Workloads by the job that controls them.
    owned: BTreeMap<OwnerKey, BTreeSet<String>>,
    /// The uids of jobs by the object that controls them.
    children: BTreeMap<OwnerKey, BTreeSet<String>>,
    /// What the API server has answered about the controller of an object, by what an owner reference to the object names.
    pub(super) answers: BTreeMap<OwnerKey, (OwnerKey, bool)>,
    /// When jobs have been started.
    pub(super) restarts: Restarts,
    /// The objects that describe pods of jobs, by the positions of their kind and their uid.
    referenced: BTreeMap<(usize, usize, String), Whole>,
    /// The uids of Workloads of jobs that nothing owns: the job was deleted, and its pods were not.
    orphaned: BTreeSet<String>,
    /// The uids of Workloads by the name that their pods know.
    by_chain: BTreeMap<Chain, BTreeSet<String>>,
    /// The uids of jobs by the Workload that a job has left them which owned them.
    left: BTreeMap<Chain, BTreeSet<String>>,
    /// The pods that run with the quota of Workloads, or may start.
    pub(super) started: StartedPods,
    /// Cluster-scoped objects by name.
    flavors: BTreeMap<String, Whole>,
    workload_classes: BTreeMap<String, Whole>,
    pod_classes: BTreeMap<String, Whole>,
    namespaces: BTreeMap<String, Whole>,
}

impl Objects {
    /// No objects yet.
    pub(super) fn of(config: &JobsConfig) -> Self {
        let at = |is_it: fn(&JobKind) -> bool| config.kinds.iter().position(|kind| is_it(kind));
        let (pods_at, groups_at) = (at(JobKind::is_pod), at(JobKind::has_groups));
        Self { kinds: config.watched().collect(), pods_at, groups_at, ..Self::default() }
    }

    /// The job that an owner reference names, with the position of its kind: the only way from a reference to a job.
    pub(super) fn job(&self, key: &OwnerKey) -> Option<(usize, &Whole)> {
        let (at, job) = self.jobs.get(&key.uid)?;
        (self.key_of(*at, job) == *key).then_some((*at, job))
    }

    /// What an owner reference to a job names.
    pub(super) fn key_of(&self, at: usize, job: &Whole) -> OwnerKey {
        job.metadata.key(self.kinds[at].api_version, self.kinds[at].kind)
    }

    /// Applies a change. Returns what to look at.
    pub(super) fn apply(&mut self, source: JobsSource, change: Change) -> Vec<JobKey> {
        let mut keys = Vec::new();
        if let (JobsSource::Job(_), Change::Deleted(uid, _)) = (source, &change) {
            keys.extend(self.key(uid));
            keys.extend(self.set_of(uid));
        }
        if let (JobsSource::Workload, Change::Applied(workload)) = (source, &change) {
            keys.extend(self.items_of(workload));
        }
        if let (JobsSource::Workload, Change::Deleted(uid, _)) = (source, &change) {
            let workload = self.workloads.get(uid);
            keys.extend(workload.into_iter().flat_map(|workload| self.items_of(workload)));
            // Its job may wait until it is gone.
            let job = workload.and_then(|workload| workload.metadata.labels.get(JOB_UID));
            keys.extend(job.and_then(|uid| self.key(uid)));
        }
        if source == JobsSource::StartedPod {
            let chain = self.started.apply(change);
            return chain.map(|chain| self.items_of_chain(&chain)).unwrap_or_default();
        }
        if let (JobsSource::Job(at), Change::Applied(job)) = (source, &change)
            && let Some(chain) = chain_of_left(self.kinds[at], job)
        {
            keys.extend(self.items_of_chain(&chain));
        }
        if let (JobsSource::Job(at), Change::Deleted(uid, _)) = (source, &change)
            && let Some((_, job)) = self.jobs.get(uid)
            && let Some(chain) = chain_of_left(self.kinds[at], job)
        {
            keys.extend(self.items_of_chain(&chain));
        }
        let concerned = self.all_concerned(source, change);
        keys.extend(concerned.iter().map(|key| self.item(key)));
        keys.extend(concerned.iter().filter_map(|key| self.set_of(&key.uid)));
        keys.extend(concerned.iter().filter_map(|key| self.elastic_owner(&key.uid)));
        keys
    }

    /// What is looked at for the Workloads that these pods name.
    fn items_of_chain(&self, chain: &Chain) -> Vec<JobKey> {
        let uids = self.by_chain.get(chain).into_iter().flatten();
        let workloads = uids.filter_map(|uid| self.workloads.get(uid));
        workloads.flat_map(|workload| self.items_of(workload)).collect()
    }

    /// The jobs that go on with the quota of a Workload although nothing owns them, or although the job that owns them is deleted, or
    /// in no queue any more: a finalizer may keep it for long.
    pub(super) fn left_with(
        &self,
        config: &JobsConfig,
        workload: &Whole,
    ) -> impl Iterator<Item = (&'static JobKind, &Whole)> {
        let owner = workload.metadata.controller_key();
        let has_left = |owner: &OwnerKey| {
            let job = self.job(owner).map(|(_, job)| job);
            let is_unqueued = |job: &Whole| !config.manages_unnamed && queue_name(&job.value).is_empty();
            job.is_some_and(|job| job.metadata.is_deleting() || is_unqueued(job))
        };
        let owner = owner.filter(has_left);
        let children = owner.and_then(|owner| self.children.get(&owner)).into_iter().flatten();
        let uids = self.left.get(&chain_of(workload)).into_iter().flatten().chain(children);
        let jobs = uids.filter_map(|uid| self.jobs.get(uid)).map(|(at, job)| (self.kinds[*at], job));
        jobs.filter(|(kind, job)| {
            let is_over = job.metadata.is_deleting() || kind.integration.finished(&job.value).is_some();
            !kind.is_pod() && !is_over && !kind.is_suspended(&job.value)
        })
    }

    /// What is looked at for a Workload.
    fn items_of(&self, workload: &Whole) -> Vec<JobKey> {
        let owner = workload.metadata.controller_key().map(|owner| self.item(&owner));
        let others = orphan_of(workload).into_iter().chain(self.group_of(workload));
        owner.into_iter().chain(others).chain(self.sets_of(workload)).collect()
    }

    /// The sets of pods that a Workload is for.
    fn sets_of(&self, workload: &Whole) -> Vec<JobKey> {
        owning_sets(workload).filter(|key| self.job(key).is_some()).map(JobKey::Job).collect()
    }

    /// The job whose size may follow that of a job which it owns.
    fn elastic_owner(&self, uid: &str) -> Option<JobKey> {
        let owner = self.jobs.get(uid)?.1.metadata.controller_key()?;
        let (_, job) = self.job(&owner)?;
        (annotation(&job.value, ELASTIC) == Some("true")).then_some(JobKey::Job(owner))
    }

    /// The set of a pod.
    fn set_of(&self, uid: &str) -> Option<JobKey> {
        let (at, pod) = self.jobs.get(uid).filter(|(at, _)| self.pods_at == Some(*at))?;
        if let Some(set) = self.set_of_pod(*at, pod) {
            return self.key(self.sets.get(&set)?);
        }
        let owner = pod.metadata.controller_key()?;
        self.job(&owner).is_some().then_some(JobKey::Job(owner))
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
    pub(super) fn workloads_of_groups<'a>(
        &'a self,
        set: &OwnerKey,
    ) -> impl Iterator<Item = &'a Whole> + use<'a> {
        self.of_sets.get(set).into_iter().flatten().filter_map(|uid| self.workloads.get(uid))
    }

    /// The Workload of a set, under its present name or under that of an older version.
    pub(super) fn workload_of_set(&self, set: &Whole) -> Option<&Whole> {
        let namespace = &set.metadata.namespace;
        workload_names(&set.value).iter().find_map(|name| self.workload(namespace, name))
    }

    /// The pods of a set.
    pub(super) fn pods_of<'a>(&'a self, set: &OwnerKey) -> impl Iterator<Item = &'a Whole> + use<'a> {
        let pods = self.children.get(set).into_iter().flatten().filter_map(|uid| self.jobs.get(uid));
        pods.filter(|(at, _)| self.pods_at == Some(*at)).map(|(_, pod)| pod)
    }

    /// The jobs that a job owns.
    pub(super) fn children_of<'a>(&'a self, job: &OwnerKey) -> impl Iterator<Item = &'a Whole> + use<'a> {
        let children = self.children.get(job).into_iter().flatten().filter_map(|uid| self.jobs.get(uid));
        children.map(|(_, child)| child)
    }

    /// What is looked at for a known job.
    fn key(&self, uid: &str) -> Option<JobKey> {
        let (at, job) = self.jobs.get(uid)?;
        Some(self.item(&self.key_of(*at, job)))
    }

    /// What is looked at for a job: of a pod in a group, the group.
    fn item(&self, key: &OwnerKey) -> JobKey {
        let group = self.job(key).and_then(|(at, job)| self.group_of_pod(at, job));
        group.map_or_else(|| JobKey::Job(key.clone()), |(namespace, name)| JobKey::Group { namespace, name })
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
        let is_group = self.groups.contains_key(&key) || is_group(&workload.value);
        let (namespace, name) = key;
        is_group.then_some(JobKey::Group { namespace, name })
    }

    /// The jobs that a change concerns.
    fn all_concerned(&mut self, source: JobsSource, change: Change) -> BTreeSet<OwnerKey> {
        let mut open = self.concerned(source, change);
        let mut concerned = BTreeSet::new();
        // The jobs below them, each once: owners may form a circle.
        while let Some(key) = open.pop() {
            if !concerned.contains(&key) {
                open.extend(self.keys_of(self.children.get(&key)));
                concerned.insert(key);
            }
        }
        concerned
    }

    /// The keys of known jobs.
    fn keys_of(&self, uids: Option<&BTreeSet<String>>) -> Vec<OwnerKey> {
        let known = uids.into_iter().flatten().filter_map(|uid| self.jobs.get(uid));
        known.map(|(at, job)| self.key_of(*at, job)).collect()
    }

    fn concerned(&mut self, source: JobsSource, change: Change) -> Vec<OwnerKey> {
        match (source, change) {
            (JobsSource::Job(kind), Change::Applied(job)) => {
                let uid = job.metadata.uid.clone();
                self.forget_job(&uid);
                if let Some(owner) = job.metadata.controller_key() {
                    self.children.entry(owner).or_default().insert(uid.clone());
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
                if let Some(chain) = chain_of_left(self.kinds[kind], &job) {
                    self.left.entry(chain).or_default().insert(uid.clone());
                }
                let key = self.key_of(kind, &job);
                self.jobs.insert(uid, (kind, *job));
                vec![key]
            }
            (JobsSource::Job(_), Change::Deleted(uid, _)) => {
                let key = self.forget_job(&uid);
                if let Some(key) = &key {
                    self.answers.remove(key);
                }
                key.into_iter().collect()
            }
            (JobsSource::Workload, Change::Applied(workload)) => {
                let uid = workload.metadata.uid.clone();
                let mut concerned = self.forget_workload(&uid);
                concerned.extend(self.users(&workload));
                if let Some(owner) = workload.metadata.controller_key() {
                    self.owned.entry(owner.clone()).or_default().insert(uid.clone());
                    concerned.push(owner);
                }
                if orphan_of(&workload).is_some() {
                    self.orphaned.insert(uid.clone());
                }
                self.by_chain.entry(chain_of(&workload)).or_default().insert(uid.clone());
                for set in owning_sets(&workload) {
                    self.of_sets.entry(set).or_default().insert(uid.clone());
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
                let of_kind = self.jobs.values().filter(|(kind, _)| *kind == at);
                of_kind.map(|(at, job)| self.key_of(*at, job)).collect()
            }
            (source, change) => {
                let Some(objects) = self.others(source) else { return Vec::new() };
                match change {
                    Change::Applied(object) => {
                        drop(objects.insert(object.metadata.name.clone(), *object));
                    }
                    Change::Deleted(_, name) => drop(objects.remove(&name)),
                }
                self.job_keys().into_iter().collect()
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
            JobsSource::Job(_)
            | JobsSource::Referenced(..)
            | JobsSource::Workload
            | JobsSource::StartedPod => None,
        }
    }

    /// Forgets a job. Returns what Workloads name that are for it.
    fn forget_job(&mut self, uid: &str) -> Option<OwnerKey> {
        let (at, job) = self.jobs.remove(uid)?;
        if let Some(chain) = chain_of_left(self.kinds[at], &job) {
            remove_from(&mut self.left, &chain, uid);
        }
        if let Some(owner) = job.metadata.controller_key() {
            remove_from(&mut self.children, &owner, uid);
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
        Some(self.key_of(at, &job))
    }

    fn forget_workload(&mut self, uid: &str) -> Vec<OwnerKey> {
        let Some(workload) = self.workloads.remove(uid) else { return Vec::new() };
        // Another one may have the name already.
        if self.named.get(&name_of(&workload)).is_some_and(|known| known == uid) {
            self.named.remove(&name_of(&workload));
        }
        let mut concerned = self.users(&workload);
        if let Some(owner) = workload.metadata.controller_key() {
            remove_from(&mut self.owned, &owner, uid);
            concerned.push(owner);
        }
        self.orphaned.remove(uid);
        remove_from(&mut self.by_chain, &chain_of(&workload), uid);
        for set in owning_sets(&workload) {
            remove_from(&mut self.of_sets, &set, uid);
        }
        concerned
    }

    /// The jobs that name a Workload of another author.
    fn users(&self, workload: &Whole) -> Vec<OwnerKey> {
        if workload.metadata.controller_key().is_some_and(|owner| self.job(&owner).is_some()) {
            return Vec::new();
        }
        self.keys_of(self.users.get(&name_of(workload)))
    }

    /// All jobs, and those that are gone and have Workloads.
    fn job_keys(&self) -> BTreeSet<OwnerKey> {
        let known = self.jobs.values().map(|(at, job)| self.key_of(*at, job));
        known.chain(self.owned.keys().cloned()).collect()
    }

    /// All that there is to look at.
    pub(super) fn keys(&self) -> BTreeSet<JobKey> {
        let groups = self.workloads.values().filter_map(|workload| self.group_of(workload));
        let orphans = self.orphaned.iter().map(|uid| JobKey::Orphan(uid.clone()));
        self.job_keys().iter().map(|key| self.item(key)).chain(groups).chain(orphans).collect()
    }

    /// The pods of a group, the oldest first: it speaks for the group, and one that joins a group later does not.
    pub(super) fn group(&self, namespace: &str, name: &str) -> Vec<(usize, &Whole)> {
        let uids = self.groups.get(&(namespace.to_owned(), name.to_owned()));
        let mut pods: Vec<(usize, &Whole)> = uids
            .into_iter()
            .flatten()
            .filter_map(|uid| self.jobs.get(uid))
            .map(|(at, pod)| (*at, pod))
            .collect();
        let age = |pod: &Whole| (pod.metadata.creation_timestamp.clone(), pod.metadata.name.clone());
        pods.sort_by_cached_key(|(_, pod)| age(pod));
        pods
    }

    /// Whether a Workload is for a set of pods that is there.
    pub(super) fn is_of_set(&self, workload: &Whole) -> bool {
        owning_sets(workload).any(|set| self.job(&set).is_some())
    }

    /// Whether a Workload is that of other jobs which are there: of pods, or of what its owners are. `is_own` says which of them are
    /// no others.
    pub(super) fn is_of_others(&self, workload: &Whole, is_own: impl Fn(&OwnerKey) -> bool) -> bool {
        let meta = &workload.metadata;
        let pods = self.keys_of(self.groups.get(&name_of(workload)));
        let owners = meta.owner_references.iter().map(|owner| meta.owner_key(owner));
        let owners = owners.filter(|owner| self.job(owner).is_some());
        pods.into_iter().chain(owners).any(|owner| !is_own(&owner))
    }

    /// The job which has made a Workload, if it is there.
    pub(super) fn has_made(&self, workload: &Whole) -> Option<OwnerKey> {
        let (at, job) = self.jobs.get(workload.metadata.labels.get(JOB_UID)?)?;
        (job.metadata.namespace == workload.metadata.namespace).then(|| self.key_of(*at, job))
    }

    /// The Workloads of a job.
    pub(super) fn workloads_of<'a>(&'a self, job: &OwnerKey) -> impl Iterator<Item = &'a Whole> + use<'a> {
        self.owned.get(job).into_iter().flatten().filter_map(|uid| self.workloads.get(uid))
    }

    /// Whether a job has a Workload with quota.
    pub(super) fn holds_quota(&self, job: &OwnerKey) -> bool {
        self.workloads_of(job).any(has_quota)
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

    /// Those of these jobs that may wait for the name of a Workload, by uid.
    pub(super) fn waiting_for<'k>(&self, uid: &str, jobs: impl Iterator<Item = &'k JobKey>) -> Vec<JobKey> {
        let Some(workload) = self.workloads.get(uid) else { return Vec::new() };
        let (namespace, name) = (&workload.metadata.namespace, &workload.metadata.name);
        jobs.filter(|job| job.may_be_named(namespace, name)).cloned().collect()
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
            JobKey::Job(key) => self.job(key),
            JobKey::Group { namespace, name } => self.group(namespace, name).first().copied(),
            JobKey::Orphan(_) => None,
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

/// The sets of pods that a Workload is for.
fn owning_sets(workload: &Whole) -> impl Iterator<Item = OwnerKey> {
    let owners = workload.metadata.owner_references.iter();
    let sets = owners.filter(|owner| owner.controller != Some(true) && owner.kind != "Pod");
    sets.map(|owner| workload.metadata.owner_key(owner))
}

/// Whether a Workload was made for a job, and nothing owns it. One that another cluster has made is for a job there: it gets one here
/// when it is admitted.
pub(super) fn is_orphan(workload: &Whole) -> bool {
    let labels = &workload.metadata.labels;
    workload.metadata.owner_references.is_empty()
        && labels.contains_key(JOB_UID)
        && !labels.contains_key(ORIGIN)
}

/// What is looked at for a Workload that was made for a job, if nothing owns it.
fn orphan_of(workload: &Whole) -> Option<JobKey> {
    is_orphan(workload).then(|| JobKey::Orphan(workload.metadata.uid.clone()))
}

/// Whether a Workload has quota.
pub(super) fn has_quota(workload: &Whole) -> bool {
    decoded(workload)
        .is_ok_and(|workload| workload.status.is(QUOTA_RESERVED) && !workload.status.is(FINISHED))
}

fn name_of(object: &Whole) -> (String, String) {
    (object.metadata.namespace.clone(), object.metadata.name.clone())
}

fn value_of(class: &Whole) -> i32 {
    class.value["value"].as_i64().and_then(|value| i32::try_from(value).ok()).unwrap_or_default()
}
