//! What is free on nodes but of no use: fragmentation, as expected over the pods that are asked for.
//!
//! After Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent", ATC
//! 2023, section 3. To a pod that finds room on a node, those devices are lost of which less is left than it asks for; to
//! one that does not, or that wants no device, all that is left there is. Only the most frequent kinds of pods count.
//!
//! Nodes are compared by steps of what a pod loses there, not by the last thousandth: among places that cost others about
//! the same, those of the tightest fit stay whole the longest. FGD's scheduler compares scores from 0 to 100 and so does
//! the same (`calculateGpuShareFragExtendScore` in hkust-adsl/kubernetes-scheduler-simulator).

use std::collections::{BTreeMap, BTreeSet};

use model::{ClassIx, PodKind, ResourceIx, Room, World};

/// How many kinds of pods are looked at; one bit of a view stands for each.
const KINDS: usize = 64;

/// How many thousandths of a device, lost in the mean over all pods, make one step. One point of FGD's score where it is
/// steepest.
const STEP: i128 = 40;

/// A whole device, in thousandths.
const WHOLE: i128 = 1000;

/// Which of the kinds of pods may use the nodes of a class, one bit for each.
pub(crate) type View = u64;

/// The pods that are asked for.
#[derive(Debug)]
pub(crate) struct Demand<'w> {
    /// The most frequent kinds, and how many pods of each there are.
    kinds: Vec<(&'w PodKind, u64)>,
    /// How many pods of these kinds there are.
    pods: i128,
    /// The devices that they ask for: extended resources.
    devices: BTreeSet<ResourceIx>,
    views: BTreeMap<ClassIx, View>,
}

impl<'w> Demand<'w> {
    /// What the gangs of the world ask for.
    pub(crate) fn of(world: &'w World) -> Self {
        let mut kinds: Vec<_> = world.demand().collect();
        kinds.sort_by_key(|(_, pods)| std::cmp::Reverse(*pods));
        kinds.truncate(KINDS);
        let asked = kinds.iter().flat_map(|(kind, _)| {
            let whole = kind.request.iter().map(|(ix, _)| ix);
            whole.chain(kind.share.map(model::DeviceShare::device))
        });
        let devices = asked.filter(|ix| world.resources().name(*ix).contains('/')).collect();
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

    /// How the pods see the nodes of a class.
    pub(crate) fn view(&self, class: ClassIx) -> View {
        self.views.get(&class).copied().unwrap_or_default()
    }

    /// How many steps more are lost on a node when `before` becomes `after`. Whatever is lost at all is a whole step, so that
    /// it is never as good as to lose nothing.
    pub(crate) fn loses(&self, view: View, before: &Room, after: &Room) -> i128 {
        let gained = self.lost(view, before) - self.lost(view, after);
        -gained.div_euclid((STEP * self.pods).max(1))
    }

    /// How many thousandths of devices are lost on a node, summed over all pods.
    fn lost(&self, view: View, room: &Room) -> i128 {
        let lost = |(at, (kind, pods)): (usize, &(&PodKind, u64))| {
            let fits = view & (1 << at) != 0 && kind.fits_in(room);
            i128::from(*pods) * self.devices.iter().map(|ix| lost_to(kind, fits, room, *ix)).sum::<i128>()
        };
        self.kinds.iter().enumerate().map(lost).sum()
    }
}

/// How many thousandths of the devices of a node are lost to one pod.
fn lost_to(kind: &PodKind, fits: bool, room: &Room, device: ResourceIx) -> i128 {
    let whole = i128::from(room.amounts.get(device).0.max(0)) * WHOLE;
    let open = room.open().iter().filter(|(ix, _)| *ix == device).map(|(_, left)| *left);
    let part = kind.share.filter(|share| share.device() == device);
    match part {
        Some(part) if fits => open.filter(|left| *left < part.milli()).map(i128::from).sum(),
        None if fits && kind.request.get(device).0 > 0 => open.map(i128::from).sum(),
        Some(_) | None => whole + open.map(i128::from).sum::<i128>(),
    }
}
