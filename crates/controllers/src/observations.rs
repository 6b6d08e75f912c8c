//! What the loop receives: watch events, discovery results, forecasts, and outcomes of steps.
//!
//! Two channels form the queue. That of the watches is bounded: when the loop is held up, they wait, and the API server
//! keeps their events. That of the other tasks is not: each of these tasks has at most one report under way, so their
//! number bounds it, and a result of a write never waits for a watch.

use std::collections::BTreeSet;
use std::fmt;

use api::appwrapper::{AppWrapper, Group};
use api::quota::{self, QuotaSubtree};
use index::{DryRunAnswer, Kind, KueueChange, KueueKind, ReferencedChange, ReferencedKind, TemplateId, wire};
use model::Forecast;
use tokio::sync::mpsc;

use crate::controller::{DecodeError, KueueOutcome};
use crate::discovery::Resources;
use crate::execute::Outcome;
use crate::forbidden::ForbiddenRequest;
use crate::jobs::JobsSource;
use crate::owners::Owners;
use crate::provisioning::ProvisioningSource;
use crate::watch_failures::WatchFailure;
use crate::watched::Change;

/// Maximum number of queued watch events.
pub(crate) const QUEUED_EVENTS_MAX: usize = 1_024;

/// The sending ends of the queue.
#[derive(Debug)]
pub(crate) struct Senders {
    /// For watch events. Bounded.
    pub(crate) of_watches: mpsc::Sender<Observation>,
    /// For results of tasks that the loop has started.
    pub(crate) of_tasks: mpsc::UnboundedSender<Observation>,
}

/// The receiving end of the queue.
#[derive(Debug)]
pub(crate) struct Receiver {
    of_watches: mpsc::Receiver<Observation>,
    of_tasks: mpsc::UnboundedReceiver<Observation>,
}

/// An empty queue.
pub(crate) fn queue() -> (Senders, Receiver) {
    let (watch_sender, of_watches) = mpsc::channel(QUEUED_EVENTS_MAX);
    let (task_sender, of_tasks) = mpsc::unbounded_channel();
    (Senders { of_watches: watch_sender, of_tasks: task_sender }, Receiver { of_watches, of_tasks })
}

impl Receiver {
    /// The next observation; results of tasks first. None if all senders are gone.
    pub(crate) async fn recv(&mut self) -> Option<Observation> {
        tokio::select! {
            biased;
            Some(result) = self.of_tasks.recv() => Some(result),
            Some(event) = self.of_watches.recv() => Some(event),
            else => None,
        }
    }

    /// How many observations of watches and how many results of tasks wait.
    pub(crate) fn depths(&self) -> [usize; 2] {
        [self.of_watches.len(), self.of_tasks.len()]
    }

    /// The next observation if there is one; results of tasks first.
    pub(crate) fn try_recv(&mut self) -> Option<Observation> {
        self.of_tasks.try_recv().or_else(|_| self.of_watches.try_recv()).ok()
    }
}

/// What a watch is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    /// Nodes.
    Nodes,
    /// Namespaces: what admins allow in them.
    Namespaces,
    /// Pods of all namespaces.
    Pods,
    /// Custom resource definitions.
    Definitions,
    /// AppWrappers of a group.
    Wrappers(Group),
    /// `QuotaSubtree` objects of a group.
    Quotas(quota::Group),
    /// Objects of a kind that templates refer to.
    Referenced(ReferencedKind),
    /// Objects of a kind of Kueue.
    Kueue(KueueKind),
    /// Objects that decide about the jobs of Kueue's API.
    Jobs(JobsSource),
    /// Objects that decide about admission checks that ask for nodes.
    Provisioning(ProvisioningSource),
    /// Objects of a wrapped kind, or of a kind that its operator creates.
    Objects(Kind),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes => f.write_str("nodes"),
            Self::Namespaces => f.write_str("namespaces"),
            Self::Pods => f.write_str("pods"),
            Self::Definitions => f.write_str("custom resource definitions"),
            Self::Wrappers(group) => f.write_str(&group.resource()),
            Self::Quotas(group) => f.write_str(&group.resource()),
            Self::Referenced(kind) => kind.fmt(f),
            Self::Kueue(kind) => write!(f, "{}.{}", kind.resource().1, api::kueue::GROUP),
            Self::Jobs(source) => source.fmt(f),
            Self::Provisioning(source) => source.fmt(f),
            Self::Objects(kind) => write!(f, "objects of kind {kind}"),
        }
    }
}

/// One input of the loop.
#[derive(Debug)]
pub(crate) enum Observation {
    /// A node was added or modified.
    Node(wire::Node),
    /// A node was deleted; its name.
    NodeDeleted(String),
    /// A Namespace was added or modified.
    Namespace(wire::Namespace),
    /// A Namespace was deleted; its name.
    NamespaceDeleted(String),
    /// A pod was added or modified.
    Pod(wire::Pod),
    /// A pod was deleted; its uid.
    PodDeleted(String),
    /// A CRD was added or modified.
    Definition(Box<wire::Definition>),
    /// A CRD was deleted; its name.
    DefinitionDeleted(String),
    /// An AppWrapper was added or modified.
    Wrapper(Group, Box<AppWrapper>),
    /// An AppWrapper was added or modified that cannot be decoded.
    Undecodable(Box<DecodeError>),
    /// An AppWrapper was deleted; its uid.
    WrapperDeleted(String),
    /// A `QuotaSubtree` was added or modified.
    Quota(quota::Group, Box<QuotaSubtree>),
    /// A `QuotaSubtree` was deleted; its uid.
    QuotaDeleted(String),
    /// An object of a wrapped kind was added or modified.
    Object(Kind, wire::Object),
    /// An object of a wrapped kind was deleted; its uid.
    ObjectDeleted(String),
    /// An object that templates may refer to was added, modified or deleted.
    Referenced(Box<ReferencedChange>),
    /// An object of Kueue was added, modified or deleted.
    Kueue(Box<KueueChange>),
    /// An object that decides about jobs was added, modified or deleted. Only for the loop of the jobs.
    Jobs(JobsSource, Change),
    /// An object that decides about admission checks was added, modified or deleted. Only for their loop.
    Provisioning(ProvisioningSource, Change),
    /// The initial list of a watch is complete.
    Synced(Source),
    /// The complete list of the objects of a kind when its watch begins, or begins again, by uid. Other objects of the kind are
    /// gone, and nobody has seen their last state.
    ObjectsListed(Kind, BTreeSet<String>),
    /// A watch or its list keeps failing; why.
    WatchFailed(Source, WatchFailure),
    /// The resources of a group and version.
    Discovered(String, Resources),
    /// Discovery of a group and version keeps failing; why.
    DiscoveryFailed(String, String),
    /// The expected start times of pending gangs.
    Forecast {
        /// The forecast.
        forecast: Box<Forecast>,
        /// Minimum delay before the next forecast, in microseconds.
        pause_us: i64,
    },
    /// Pods of an AppWrapper, by uid, cannot be ungated: the permission is missing.
    UngateForbidden(String, Box<ForbiddenRequest>),
    /// The answer to the dry run of a template in this generation; none if the AppWrapper is gone.
    DryRunDone(TemplateId, u64, Option<DryRunAnswer>),
    /// The owners of the orphans of a controller, by uid, were read.
    OrphansChecked(index::OrphanOwner, Owners),
    /// The permission that an AppWrapper, by uid, was held for is granted.
    PermissionGranted(String),
    /// A write of a Workload or queue of Kueue ended.
    KueueDone(KueueOutcome),
    /// A step of an AppWrapper, by uid, ended.
    StepDone(String, Box<Outcome>),
}
