//! The pending Workloads of a queue, in the order in which they are tried.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use api::Meta;
use index::{Index, WorkloadPhase, WorkloadRow};
use model::Time;

/// A queue of Kueue's API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkloadQueue {
    /// A `ClusterQueue`, by name.
    Cluster(String),
    /// A `LocalQueue`, by namespace and name.
    Local(String, String),
}

/// A pending Workload. Positions begin with 0, as in Kueue's API.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingWorkload {
    /// Its metadata.
    pub metadata: Meta,
    /// Its priority.
    pub priority: i32,
    /// The `LocalQueue` that it names.
    pub local_queue: String,
    /// How many Workloads that wait for their turn come before it in its `ClusterQueue`: its position in its report, less one.
    pub position: usize,
    /// How many Workloads of its `LocalQueue` come before it.
    pub local_position: usize,
}

/// Where a Workload is in its queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// Its turn has come: it starts when its victims are gone, or when the pods of others are ready.
    Next,
    /// It waits at this position, from 1.
    Waits(usize),
    /// It is not tried before something changes: its queue is stopped, or it waits for a time.
    Last,
}

/// The pending Workloads of a queue; `None` if the queue does not exist. Those of a `ClusterQueue` are the ones that its
/// status counts.
pub(super) fn pending_workloads(
    index: &Index,
    queue: &WorkloadQueue,
    now: Time,
) -> Option<Vec<PendingWorkload>> {
    let cluster_queue = match queue {
        WorkloadQueue::Cluster(name) => &index.cluster_queue(name)?.metadata.name,
        WorkloadQueue::Local(namespace, name) => &index.local_queue(namespace, name)?.spec.cluster_queue,
    };
    let rows: Vec<&WorkloadRow> = index.pending_of(cluster_queue).collect();
    let positions = index.world().positions(rows.iter().map(|row| row.uid()), now);
    let place = |row: &WorkloadRow| match (&row.phase, positions.get(row.uid())) {
        (WorkloadPhase::Nominated(_) | WorkloadPhase::AwaitsPods, _) => Place::Next,
        (_, Some(position)) => Place::Waits(position.place),
        (_, None) => Place::Last,
    };
    let mut placed: Vec<(Place, &WorkloadRow)> = rows.iter().map(|row| (place(row), *row)).collect();
    placed.sort_by_cached_key(|(place, row)| {
        let meta = &row.object.metadata;
        (*place, Reverse(row.object.spec.priority), meta.creation_timestamp.clone(), row.key())
    });
    let mut before = 0;
    let mut local: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let pending = placed.into_iter().map(|(place, row)| {
        let name = &row.object.spec.queue_name;
        let of_queue = local.entry((row.namespace(), name)).or_default();
        let position = match place {
            Place::Next => 0,
            Place::Waits(place) => place - 1,
            Place::Last => before,
        };
        if place != Place::Next {
            before = position + 1;
        }
        *of_queue += 1;
        PendingWorkload {
            metadata: row.object.metadata.clone(),
            priority: row.object.spec.priority,
            local_queue: name.clone(),
            position,
            local_position: *of_queue - 1,
        }
    });
    let is_asked = |workload: &PendingWorkload| match queue {
        WorkloadQueue::Cluster(_) => true,
        WorkloadQueue::Local(namespace, name) => {
            (&workload.metadata.namespace, &workload.local_queue) == (namespace, name)
        }
    };
    Some(pending.filter(is_asked).collect())
}
