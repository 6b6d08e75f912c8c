//! Which pod sets lack quota: pod sets get flavors one after another, each beside those before it. After
//! `pkg/scheduler/flavorassigner` of Kueue v0.19.

use std::collections::BTreeMap;

use api::kueue::quantity::canonical;
use model::{Assignment, FlavorIx, FlavorResource, Gang, QuotaIx, ResourceGroup, ResourceIx, World};

/// A flavor that a pod set cannot use: position of the pod set, flavor, reason.
pub(super) type Unfit = (usize, FlavorIx, String);

/// How well a flavor fits, the best one first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Mode {
    Fits,
    /// Other gangs may leave or be preempted.
    Waits,
    Never,
}

/// The reasons of each pod set that gets no flavors beside the gangs that hold quota: its position and its reasons. With an
/// assignment, its pods and flavors alone are judged.
pub(super) fn lacking_quota(
    world: &World,
    gang: &Gang,
    unfit: &[Unfit],
    assignment: Option<&Assignment>,
) -> Vec<(usize, Vec<String>)> {
    let Some(node) = world.quota_of(gang.queue) else { return Vec::new() };
    let groups = world.queues().get(&gang.queue).map_or(&[][..], |queue| &queue.groups);
    let mut assigner = Assigner { world, gang, node, unfit, assignment, used: BTreeMap::new() };
    let mut told = Vec::new();
    for members in flavor_groups(gang) {
        let (mut reasons, mut worst) = (Vec::new(), Mode::Fits);
        for group in groups {
            let (mode, why) = assigner.assign(group, &members);
            worst = worst.max(mode);
            reasons.extend(why);
        }
        if !reasons.is_empty() {
            told.extend(members.into_iter().map(|member| (member, reasons.clone())));
        }
        if worst == Mode::Never {
            break;
        }
    }
    told
}

/// Other gangs leave too little.
pub(super) fn not_left(resource: &str, flavor: &str, more: i128) -> String {
    let more = text(resource, more);
    format!("insufficient unused quota for {resource} in flavor {flavor}, {more} more needed")
}

/// There is too little, also without other gangs.
pub(super) fn not_offered(resource: &str, flavor: &str, before: i128, own: i128, most: i128) -> String {
    let [before, own, most] = [before, own, most].map(|amount| text(resource, amount));
    format!(
        "insufficient quota for {resource} in flavor {flavor}, previously considered podsets requests ({before}) + current podset \
         request ({own}) > maximum capacity ({most})"
    )
}

fn text(resource: &str, amount: i128) -> String {
    canonical(resource, i64::try_from(amount).unwrap_or(i64::MAX))
}

/// The pod sets that get the same flavors, by position.
fn flavor_groups(gang: &Gang) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (at, set) in gang.pod_sets.iter().enumerate() {
        let is_own =
            |members: &&mut Vec<usize>| set.group.is_some() && gang.pod_sets[members[0]].group == set.group;
        match groups.iter_mut().find(is_own) {
            Some(members) => members.push(at),
            None => groups.push(vec![at]),
        }
    }
    groups
}

struct Assigner<'a> {
    world: &'a World,
    gang: &'a Gang,
    node: QuotaIx,
    unfit: &'a [Unfit],
    assignment: Option<&'a Assignment>,
    /// What the pod sets before are assigned.
    used: BTreeMap<FlavorResource, i128>,
}

impl Assigner<'_> {
    /// Assigns a flavor of a group to pod sets. Returns how well it fits, and why not, flavor by flavor.
    fn assign(&mut self, group: &ResourceGroup, members: &[usize]) -> (Mode, Vec<String>) {
        let each = group.resources.iter().map(|resource| (*resource, self.needs(*resource, members)));
        let wanted: Vec<(ResourceIx, i128)> = each.filter(|(_, amount)| *amount > 0).collect();
        if wanted.is_empty() {
            return (Mode::Fits, Vec::new());
        }
        let (mut best, mut reasons): (Option<(Mode, FlavorIx)>, Vec<String>) = (None, Vec::new());
        for flavor in group.flavors.iter().filter(|flavor| self.is_given(**flavor, members)) {
            let (mode, why) = self.judge(*flavor, members, &wanted);
            reasons.extend(why);
            if mode != Mode::Never && best.is_none_or(|(known, _)| mode < known) {
                best = Some((mode, *flavor));
            }
            if mode == Mode::Fits {
                reasons.clear();
                break;
            }
        }
        if let Some((_, flavor)) = best {
            for (resource, amount) in &wanted {
                *self.used.entry(FlavorResource { flavor, resource: *resource }).or_default() += amount;
            }
        }
        (best.map_or(Mode::Never, |(mode, _)| mode), reasons)
    }

    fn needs(&self, resource: ResourceIx, members: &[usize]) -> i128 {
        let of = |at: &usize| {
            let set = &self.gang.pod_sets[*at];
            let count = self.assignment.map_or(u64::from(set.count), |given| given.count(*at));
            i128::from(set.quota_request().get(resource).0) * i128::from(count)
        };
        members.iter().map(of).sum()
    }

    /// Whether the assignment has the flavor, if there is one.
    fn is_given(&self, flavor: FlavorIx, members: &[usize]) -> bool {
        self.assignment.is_none_or(|given| {
            let mut flavors =
                members.iter().filter_map(|at| given.flavors.get(*at)).flat_map(BTreeMap::values);
            flavors.any(|given| *given == flavor)
        })
    }

    fn judge(
        &self,
        flavor: FlavorIx,
        members: &[usize],
        wanted: &[(ResourceIx, i128)],
    ) -> (Mode, Vec<String>) {
        let mut unfit = self.unfit.iter().filter(|(at, of, _)| *of == flavor && members.contains(at));
        if let Some((_, _, reason)) = unfit.next() {
            return (Mode::Never, vec![reason.clone()]);
        }
        let (mut mode, mut reasons) = (Mode::Fits, Vec::new());
        let flavor_name = self.world.flavor_name(flavor);
        for (resource, own) in wanted {
            let of = FlavorResource { flavor, resource: *resource };
            let before = self.used.get(&of).copied().unwrap_or_default();
            let most = self.world.forest().potential_available(self.node, of).max(0);
            let left = self.left(of);
            let name = self.world.resources().name(*resource);
            if before + own > most {
                mode = Mode::Never;
                reasons.push(not_offered(name, flavor_name, before, *own, most));
            } else if before + own > left {
                mode = mode.max(if self.may_preempt(of, before + own) { Mode::Waits } else { Mode::Never });
                reasons.push(not_left(name, flavor_name, before + own - left));
            }
        }
        (mode, reasons)
    }

    /// The quota that others leave.
    fn left(&self, of: FlavorResource) -> i128 {
        let own = self.world.charged(&self.gang.uid).and_then(|charges| charges.get(&(self.node, of)));
        self.world.quota_available(self.node, of) + own.copied().unwrap_or_default()
    }

    /// Whether a gang with this amount may take quota from others: its own, or that of others where its queue borrows.
    fn may_preempt(&self, of: FlavorResource, amount: i128) -> bool {
        let node = self.world.quota_nodes().get(&self.node);
        let borrows = node.is_some_and(|node| node.preemption.borrow_within_cohort.is_some());
        self.world.forest().subtree_quota(self.node, of) >= amount || borrows
    }
}
