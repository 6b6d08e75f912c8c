//! What the loop of the jobs watches.

use std::fmt;

use api::kueue::jobs::{JobKind, QUEUE_NAME, pods::MANAGED};
use api::kueue::workload::API_VERSION;
use index::Kind;
use kube::runtime::watcher;

use super::JobsConfig;
use crate::observations::{Observation, Source};
use crate::watched::{Change, Whole};
use crate::watches::{Handlers, Watches, resource};

/// What a watch of this loop is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum JobsSource {
    /// Jobs of a kind: its position in the configuration.
    Job(usize),
    /// Objects that describe the pods of jobs: the position of the kind of jobs, and that of the kind among those it refers to.
    Referenced(usize, usize),
    /// Workloads.
    Workload,
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
    pub(crate) const OTHERS: [Self; 5] =
        [Self::Workload, Self::Flavor, Self::WorkloadClass, Self::PodClass, Self::Namespace];

    /// All of these kinds of jobs.
    pub(crate) fn of_kinds(kinds: &[&'static JobKind]) -> impl Iterator<Item = Self> {
        let of_kind = |(at, kind): (usize, &&'static JobKind)| {
            let referenced = 0..kind.integration.references().len();
            std::iter::once(Self::Job(at)).chain(referenced.map(move |other| Self::Referenced(at, other)))
        };
        kinds.iter().enumerate().flat_map(of_kind).chain(Self::OTHERS)
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
            Self::Workload | Self::Flavor | Self::WorkloadClass | Self::PodClass | Self::Namespace => {
                self.resource(&[]).2
            }
        })
    }
}

impl Watches {
    /// Watches objects for the loop of the jobs. Of jobs of Kubernetes, those with the label of a queue, unless others are managed,
    /// too.
    pub(crate) fn jobs(&mut self, source: JobsSource, config: &JobsConfig) {
        let handlers = Handlers {
            on_apply: Box::new(move |object| Observation::Jobs(source, Change::Applied(Box::new(object)))),
            on_delete: Box::new(move |uid, name| Observation::Jobs(source, Change::Deleted(uid, name))),
        };
        let (api_version, kind, plural) = source.resource(&config.kinds);
        let is_labelled = matches!(source, JobsSource::Job(at)
            if !config.manages_unnamed && !config.kinds[at].is_watched_unlabelled());
        let selection = watcher::Config::default();
        let is_pod = matches!(source, JobsSource::Job(at) if config.kinds[at].is_pod());
        let selection = match (is_pod, is_labelled) {
            (true, _) => selection.labels(&format!("{MANAGED}=true")),
            (false, true) => selection.labels(QUEUE_NAME),
            (false, false) => selection,
        };
        self.start::<Whole>(
            Source::Jobs(source),
            &resource(&Kind::new(api_version, kind), plural),
            selection,
            handlers,
        );
    }
}
