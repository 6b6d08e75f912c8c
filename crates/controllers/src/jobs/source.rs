//! What the loop of the jobs watches.

use std::fmt;

use api::OwnerReference;
use api::kueue::jobs::{JobKind, POD_SET, QUEUE_NAME, pods::MANAGED, queue_name};
use api::kueue::workload::API_VERSION;
use index::Kind;
use kube::runtime::watcher;

use super::JobsConfig;
use super::started::{self, chain_of_left};
use crate::observations::{Observation, Source};
use crate::watched::{Change, Whole};
use crate::watches::{Handlers, Watches, resource};

/// What a watch of this loop is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum JobsSource {
    /// Jobs of a kind: its position among those that are watched.
    Job(usize),
    /// Objects that describe the pods of jobs: the position of the kind of jobs, and that of the kind among those it refers to.
    Referenced(usize, usize),
    /// Workloads.
    Workload,
    /// Pods that the admission of a Workload has started.
    StartedPod,
    /// `ResourceFlavor` objects.
    Flavor,
    /// `WorkloadPriorityClass` objects.
    WorkloadClass,
    /// `PriorityClass` objects.
    PodClass,
    /// Namespaces.
    Namespace,
}

impl JobsSource {
    /// All but the jobs.
    pub(crate) const OTHERS: [Self; 6] = [
        Self::Workload,
        Self::StartedPod,
        Self::Flavor,
        Self::WorkloadClass,
        Self::PodClass,
        Self::Namespace,
    ];

    /// All of a configuration.
    pub(crate) fn of(config: &JobsConfig) -> impl Iterator<Item = Self> {
        let of_kind = |(at, kind): (usize, &&'static JobKind)| {
            let referenced = 0..kind.integration.references().len();
            referenced.map(move |other| Self::Referenced(at, other))
        };
        let jobs = (0..config.watched().count()).map(Self::Job);
        jobs.chain(config.kinds.iter().enumerate().flat_map(of_kind)).chain(Self::OTHERS)
    }

    /// Whether other jobs go on if objects of this kind are not to be seen.
    pub(crate) fn is_optional(self) -> bool {
        matches!(self, Self::Job(_) | Self::Referenced(..))
    }

    fn resource(self, kinds: &[&'static JobKind]) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Job(at) => (kinds[at].api_version, kinds[at].kind, kinds[at].plural),
            Self::Referenced(at, other) => {
                let kind = &kinds[at].integration.references()[other];
                (kind.api_version, kind.kind, kind.plural)
            }
            Self::Workload => (API_VERSION, "Workload", "workloads"),
            Self::StartedPod => ("v1", "Pod", "pods"),
            Self::Flavor => (API_VERSION, "ResourceFlavor", "resourceflavors"),
            Self::WorkloadClass => (API_VERSION, "WorkloadPriorityClass", "workloadpriorityclasses"),
            Self::PodClass => ("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses"),
            Self::Namespace => ("v1", "Namespace", "namespaces"),
        }
    }
}

impl fmt::Display for JobsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Job(_) => "jobs",
            Self::Referenced(..) => "objects that jobs refer to",
            Self::StartedPod => "pods of Workloads",
            Self::Workload | Self::Flavor | Self::WorkloadClass | Self::PodClass | Self::Namespace => {
                self.resource(&[]).2
            }
        })
    }
}

impl Watches {
    /// Watches objects for the loop of the jobs. Of jobs of Kubernetes, those with the label of a queue, those that a job of a
    /// watched kind owns, and those that such a job has left, unless others are managed, too.
    pub(crate) fn jobs(&mut self, source: JobsSource, config: &JobsConfig) {
        let watched: Vec<_> = config.watched().collect();
        let (api_version, kind, plural) = source.resource(&watched);
        let job = if let JobsSource::Job(at) = source { Some(watched[at]) } else { None };
        let is_limited = job.is_some_and(|kind| !config.manages_unnamed && !kind.is_watched_unlabelled());
        let selection = watcher::Config::default();
        let selection = match job {
            Some(kind) if kind.is_pod() => selection.labels(&format!("{MANAGED}=true")),
            Some(kind) if is_limited && kind.is_set_of_pods() => selection.labels(QUEUE_NAME),
            None if source == JobsSource::StartedPod => selection.labels(POD_SET),
            _ => selection,
        };
        let is_limited = is_limited && job.is_some_and(|kind| !kind.is_pod() && !kind.is_set_of_pods());
        let is_left = move |object: &Whole| job.is_some_and(|kind| chain_of_left(kind, object).is_some());
        let is_kept = move |job: &Whole| {
            let is_kind = |owner: &OwnerReference| {
                watched.iter().any(|kind| kind.is_kind_of(&owner.api_version, &owner.kind))
            };
            !is_limited
                || !queue_name(&job.value).is_empty()
                || job.metadata.controller().is_some_and(is_kind)
                || is_left(job)
        };
        let change = move |object: Whole| {
            if source == JobsSource::StartedPod {
                started::slim(object)
            } else if is_kept(&object) {
                Change::Applied(Box::new(object))
            } else {
                Change::Deleted(object.metadata.uid, object.metadata.name)
            }
        };
        let handlers = Handlers {
            on_apply: Box::new(move |object| Observation::Jobs(source, change(object))),
            on_delete: Box::new(move |uid, name| Observation::Jobs(source, Change::Deleted(uid, name))),
        };
        self.start::<Whole>(
            Source::Jobs(source),
            &resource(&Kind::new(api_version, kind), plural),
            selection,
            handlers,
        );
    }
}
