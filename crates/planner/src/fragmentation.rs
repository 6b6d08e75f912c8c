//! Fragmentation: free resources on nodes that the requested pods cannot use, in expectation over these pods.
//!
//! After Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient
//! Descent", ATC 2023, section 3. For a pod that fits on a node, the devices count as fragmented that have
//! less left than the pod requests. For a pod that does not fit, or that requests no device, all free devices
//! of the node do. Only the most frequent kinds of pods count.
//!
//! Nodes are compared in coarse steps of fragmentation. Among nodes within one step the tightest fit decides,
//! which keeps large free nodes intact. FGD's scheduler does the same, since its scores are integers from 0
//! to 100 (`calculateGpuShareFragExtendScore` in hkust-adsl/kubernetes-scheduler-simulator).

use std::collections::{BTreeMap, BTreeSet};

use model::{ClassIx, FreeResources, PodKind, ResourceIx, World};

/// The number of pod kinds that count; each is one bit of a view.
const KINDS: usize = 64;

/// The thousandths of a device, on average over all pods, in one step. Equals one point of FGD's score where
/// that is steepest.
const STEP: i128 = 40;

/// A whole device, in thousandths.
const WHOLE: i128 = 1000;

/// The pod kinds that may use the nodes of a class, one bit each.
pub(crate) type View = u64;

/// The requested pods.
#[derive(Debug)]
pub(crate) struct Demand<'w> {
    /// The most frequent pod kinds, and the number of pods of each.
    kinds: Vec<(&'w PodKind, u64)>,
    /// The number of pods of these kinds.
    pods: i128,
    /// The devices that they request: extended resources.
    devices: BTreeSet<ResourceIx>,
    views: BTreeMap<ClassIx, View>,
}

impl<'w> Demand<'w> {
    /// The pods of all gangs of the cluster state.
    pub(crate) fn of(world: &'w World) -> Self {
        let mut kinds: Vec<_> = world.demand().collect();
        kinds.sort_by_key(|(_, pods)| std::cmp::Reverse(*pods));
        kinds.truncate(KINDS);
        let requested = kinds.iter().flat_map(|(kind, _)| {
            let whole = kind.request.iter().map(|(ix, _)| ix);
            whole.chain(kind.share.map(model::DeviceShare::device))
        });
        let devices = requested.filter(|ix| world.resources().name(*ix).contains('/')).collect();
        let view = |(ix, row): (ClassIx, &model::ClassRow)| {
            let may_use = kinds
                .iter()
                .enumerate()
                .filter(|(_, (kind, _))| kind.constraints.obstacle(&row.class).is_none());
            (ix, may_use.fold(0, |view, (at, _)| view | 1 << at))
        };
        let views = world.classes().map(view).collect();
        let pods = kinds.iter().map(|(_, pods)| i128::from(*pods)).sum();
        Self { kinds, pods, devices, views }
    }

    /// The pod kinds that may use the nodes of a class.
    pub(crate) fn view(&self, class: ClassIx) -> View {
        self.views.get(&class).copied().unwrap_or_default()
    }

    /// The increase of fragmentation, in steps, when the free resources of a node change from `before` to
    /// `after`. Rounded up, so that any increase is worse than none.
    pub(crate) fn increase(&self, view: View, before: &FreeResources, after: &FreeResources) -> i128 {
        let gained = self.lost(view, before) - self.lost(view, after);
        -gained.div_euclid((STEP * self.pods).max(1))
    }

    /// The fragmented thousandths of devices on a node, summed over all pods.
    fn lost(&self, view: View, room: &FreeResources) -> i128 {
        let lost = |(at, (kind, pods)): (usize, &(&PodKind, u64))| {
            let fits = view & (1 << at) != 0 && kind.fits_in(room);
            i128::from(*pods) * self.devices.iter().map(|ix| lost_to(kind, fits, room, *ix)).sum::<i128>()
        };
        self.kinds.iter().enumerate().map(lost).sum()
    }
}

/// The thousandths of devices of a node that are fragmented for one pod.
fn lost_to(kind: &PodKind, fits: bool, room: &FreeResources, device: ResourceIx) -> i128 {
    let whole = i128::from(room.amounts.get(device).0.max(0)) * WHOLE;
    let open = room.shared_devices().iter().filter(|(ix, _)| *ix == device).map(|(_, left)| *left);
    let part = kind.share.filter(|share| share.device() == device);
    match part {
        Some(part) if fits => open.filter(|left| *left < part.milli()).map(i128::from).sum(),
        None if fits && kind.request.get(device).0 > 0 => open.map(i128::from).sum(),
        Some(_) | None => whole + open.map(i128::from).sum::<i128>(),
    }
}
