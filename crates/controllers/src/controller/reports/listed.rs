//! Reports about many objects: those of a name, or of a page of a list; and what each report says about its object beside the status.

use std::collections::BTreeSet;

use api::kueue::jobs::pods::IS_GROUP;
use api::{Meta, MicroTime, appwrapper};
use index::{Index, WorkloadRow, Wrapper};
use model::Time;

use super::{GangReport, at_position};

/// What an object is, beside its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GangObject {
    /// Kind, in lower case, and name of what its author created: of the job that owns a Workload, or `podgroup`.
    pub named: (String, String),
    /// When it was created; of an AppWrapper, when a controller first saw it.
    pub created: Option<Time>,
    /// Its priority, rounded down.
    pub priority: i64,
    /// The number of its pods.
    pub pods: u64,
}

/// The kinds that one resource of the endpoint reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reported {
    /// AppWrappers of all groups.
    Wrappers,
    /// Workloads.
    Workloads,
}

/// A page of a list of objects, by namespace and name.
#[derive(Debug, Clone, Copy)]
pub struct Page<'a> {
    /// The only namespace; `None`: all.
    pub namespace: Option<&'a str>,
    /// The namespace and the name behind which it begins.
    pub after: (&'a str, &'a str),
    /// The most names.
    pub most: usize,
}

impl Reported {
    /// Reports the objects of a namespace with this name.
    pub(in crate::controller) fn in_namespace(
        self,
        index: &Index,
        namespace: &str,
        name: &str,
        now: MicroTime,
    ) -> Vec<GangReport> {
        let uids: Vec<&str> = match self {
            Self::Wrappers => {
                let is_meant =
                    |wrapper: &&Wrapper| wrapper.key.namespace == namespace && wrapper.key.name == name;
                index.wrappers().filter(is_meant).map(|wrapper| &*wrapper.uid).collect()
            }
            Self::Workloads => {
                index.workload_named(namespace, name).into_iter().map(WorkloadRow::uid).collect()
            }
        };
        of_uids(index, &uids, now)
    }

    /// Reports the objects of a page, by namespace and name, and whether there are more.
    pub(in crate::controller) fn page(
        self,
        index: &Index,
        page: &Page<'_>,
        now: MicroTime,
    ) -> (Vec<GangReport>, bool) {
        let is_meant = |(namespace, name, _): &(&str, &str, &str)| {
            page.namespace.is_none_or(|only| only == *namespace) && (*namespace, *name) > page.after
        };
        let found: BTreeSet<(&str, &str, &str)> = match self {
            Self::Wrappers => {
                let all = index.wrappers();
                all.map(|known| (&*known.key.namespace, &*known.key.name, &*known.uid))
                    .filter(is_meant)
                    .collect()
            }
            Self::Workloads => {
                let all = index.workloads();
                all.map(|row| (row.namespace(), &*row.object.metadata.name, row.uid()))
                    .filter(is_meant)
                    .collect()
            }
        };
        let (mut uids, mut names, mut last) = (Vec::new(), 0, None);
        for (namespace, name, uid) in found {
            // Each API group may have an object of the name: they stay on one page.
            if last != Some((namespace, name)) {
                if names == page.most {
                    return (of_uids(index, &uids, now), true);
                }
                (names, last) = (names + 1, Some((namespace, name)));
            }
            uids.push(uid);
        }
        (of_uids(index, &uids, now), false)
    }
}

/// Reports objects, with one scan for all their positions.
fn of_uids(index: &Index, uids: &[&str], now: MicroTime) -> Vec<GangReport> {
    let positions = index.world().positions(uids.iter().copied(), Time(now.0));
    uids.iter().filter_map(|uid| at_position(index, uid, positions.get(uid), now)).collect()
}

impl GangObject {
    pub(super) fn of_wrapper(index: &Index, wrapper: &Wrapper) -> Self {
        let gang = index.world().gang(&wrapper.uid);
        let priority = gang.map_or_else(|| wrapper.priority_milli(), |gang| gang.priority);
        Self {
            named: (appwrapper::KIND.to_lowercase(), wrapper.key.name.clone()),
            created: Some(Time(wrapper.first_seen.0)),
            priority: priority.div_euclid(1000),
            pods: wrapper.summary.pod_sets.iter().map(|set| u64::from(set.count)).sum(),
        }
    }

    pub(super) fn of_workload(row: &WorkloadRow) -> Self {
        let object = &row.object;
        Self {
            named: workload_named(&object.metadata),
            created: MicroTime::parse(&object.metadata.creation_timestamp).map(|at| Time(at.0)),
            priority: object.spec.priority.into(),
            pods: object.spec.pod_sets.iter().map(|set| u64::from(set.count)).sum(),
        }
    }
}

/// Kind and name of what a Workload is for. The pods of a group all own its Workload; a set of pods is one owner beside them.
pub fn workload_named(workload: &Meta) -> (String, String) {
    let owners = || workload.owner_references.iter();
    let is_group = workload.annotations.get(IS_GROUP).is_some_and(|value| value == "true");
    let of_job = owners().find(|owner| owner.kind != "Pod");
    let of_pod = || owners().next().filter(|_| !is_group);
    match of_job.or_else(of_pod) {
        Some(owner) => (owner.kind.to_lowercase(), owner.name.clone()),
        None if is_group => ("podgroup".into(), workload.name.clone()),
        None => ("workload".into(), workload.name.clone()),
    }
}
