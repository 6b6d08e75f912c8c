//! The write of places that come after the admission checks: of nodes that are provisioned for the Workload. After the second pass of
//! `pkg/scheduler/scheduler.go` of Kueue v0.19.

use api::kueue::status::{PLACED, PodSetAssignment};
use index::{Index, WorkloadRow};
use model::Verdict;

use super::{About, Decision, WorkloadEvent, admission};
use crate::kueue::texts;

impl Decision<'_> {
    /// Writes the places that the plan has found, into the pod sets that ask for some.
    pub(super) fn write_delayed_places(&mut self) {
        if !self.status.awaits_places() {
            return;
        }
        let found = self.row.replaced().and_then(|found| admission::of(self.index, self.row, found));
        let Some((found, admission)) = found.zip(self.status.admission.as_mut()) else { return };
        for set in admission.pod_set_assignments.iter_mut().filter(|set| set.is_open()) {
            let same = |new: &&PodSetAssignment| new.name == set.name;
            let places = found.pod_set_assignments.iter().find(same).map(|new| &new.topology_assignment);
            if let Some(places) = places.filter(|places| places.is_some()) {
                set.topology_assignment.clone_from(places);
                set.delayed_topology_request = Some(PLACED.to_owned());
            }
        }
    }
}

/// The Event about a Workload whose checks are ready and for whose pods there are no places.
pub(crate) fn second_pass_failed(index: &Index, row: &WorkloadRow) -> Option<WorkloadEvent> {
    let lacks = row.object.status.awaits_places() && row.lacks_replacement();
    let world = index.world();
    let gang = world.gang(row.uid()).filter(|_| lacks)?;
    let text = texts::no_fit(index, gang, world.verdict(row.uid()).and_then(Verdict::shortage)?);
    Some(WorkloadEvent { is_warning: true, reason: "SecondPassFailed".into(), text, about: About::Workload })
}
