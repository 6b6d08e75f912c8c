//! What quota and flavors allow, counted from quota nodes, queues and gangs alone.
//!
//! Trees are read by name, usage is summed up from what each holder is charged, and nothing is kept between questions. Who may
//! be stopped for whom by the rules of trees is in `rights`, what is fair in `shares`, and what nodes hold in `supply`.

mod rights;
mod shares;
mod supply;

use std::collections::{BTreeMap, BTreeSet};

use model::{
    Effect, Flavor, FlavorIx, FlavorResource, Gang, PodSet, Queue, QuotaNode, ResourceIx, ResourceVec,
    Undeclared, World,
};

use crate::violation::Violation;
use crate::{elastic, rules};
pub(crate) use rights::Contest;
pub(crate) use shares::Share;

/// The flavor of each resource, by pod set.
pub(crate) type Flavors = Vec<BTreeMap<ResourceIx, FlavorIx>>;

/// More combinations of flavors than this are not tried as witnesses.
const COMBINATIONS: usize = 32;

/// What one gang is charged, by quota node.
type Charges<'w> = BTreeMap<(&'w str, FlavorResource), i128>;

/// Who is charged what while turns are taken.
pub(crate) struct Quotas<'w> {
    world: &'w World,
    /// Parents by name, those included that are only named.
    parents: BTreeMap<&'w str, Option<&'w str>>,
    nodes: BTreeMap<&'w str, &'w QuotaNode>,
    /// What the nodes of flavors hold, where quota follows it.
    supply: BTreeMap<FlavorResource, i128>,
    holders: Vec<Holder<'w>>,
}

struct Holder<'w> {
    gang: String,
    charges: Charges<'w>,
    /// As if the gang were gone.
    suspended: bool,
}

impl<'w> Quotas<'w> {
    /// The charges at the start of a pass.
    pub(crate) fn of(world: &'w World) -> Self {
        let nodes: BTreeMap<&str, &QuotaNode> =
            world.quota_nodes().values().map(|node| (node.name.as_str(), node)).collect();
        let named = nodes.values().filter_map(|node| node.parent.as_deref()).map(|name| (name, None));
        let mut parents: BTreeMap<&str, Option<&str>> = named.collect();
        parents.extend(nodes.iter().map(|(name, node)| (*name, node.parent.as_deref())));
        let limits = nodes.values().flat_map(|node| &node.limits);
        let supply =
            limits.filter(|(_, limits)| limits.of_nodes).map(|(of, _)| (*of, supply::supplied(world, *of)));
        let supply = supply.collect();
        let mut quotas = Self { world, parents, nodes, supply, holders: Vec::new() };
        for gang in world.gangs().filter(|gang| gang.state.holds()) {
            let given = gang.state.assignment().map_or(&[][..], |assignment| &assignment.flavors);
            let flavors = quotas.completed(gang, given);
            let held = match gang.state.assignment() {
                Some(assignment) => elastic::held(gang, assignment).0,
                None => elastic::remaining(gang),
            };
            quotas.charge(&gang.uid, &held, &flavors);
        }
        quotas
    }

    /// As if a gang were gone, or no longer so.
    pub(crate) fn suspend(&mut self, gang: &str, suspended: bool) {
        for holder in self.holders.iter_mut().filter(|holder| holder.gang == gang) {
            holder.suspended = suspended;
        }
    }

    /// Charges a gang with these flavors to a holder.
    pub(crate) fn charge(&mut self, holder: &str, gang: &Gang, flavors: &[BTreeMap<ResourceIx, FlavorIx>]) {
        let charges = self.charges(gang, flavors);
        self.holders.push(Holder { gang: holder.to_owned(), charges, suspended: false });
    }

    /// Notes where an admission breaks a rule about queues, flavors or quota.
    pub(crate) fn check(
        &self,
        gang: &Gang,
        flavors: &[BTreeMap<ResourceIx, FlavorIx>],
        found: &mut Vec<Violation>,
    ) {
        let Some(queue) = self.door(gang) else {
            found.push(Violation::NotOpen { gang: gang.key.clone() });
            return;
        };
        for (unit, resources, offered) in choices(gang, queue) {
            for resource in resources {
                let bearers = unit.iter().filter(|at| need(gang, **at, resource) > 0);
                let given: Vec<_> = bearers
                    .map(|at| (*at, flavors.get(*at).and_then(|flavors| flavors.get(&resource)).copied()))
                    .collect();
                let same = given.windows(2).all(|pair| pair[0].1 == pair[1].1);
                let fits = given.iter().all(|(at, flavor)| {
                    flavor.is_some_and(|ix| offered.contains(&ix) && self.suits(gang, *at, ix))
                });
                if !same || !fits {
                    found.push(Violation::WrongFlavor { gang: gang.key.clone(), resource: resource.0 });
                }
            }
        }
        for ((quota, of), over) in self.exceeded(gang, &self.charges(gang, flavors)) {
            let (gang, quota) = (gang.key.clone(), quota.to_owned());
            found.push(Violation::OverQuota { gang, quota, resource: of.resource.0, over });
        }
    }

    /// The combinations of flavors that quota allows a gang now, in the order of its queue; one of no flavors when it has
    /// none to choose from.
    pub(crate) fn combinations(&self, gang: &Gang) -> Vec<Flavors> {
        let mut all = self.all_combinations(gang);
        all.retain(|flavors| self.exceeded(gang, &self.charges(gang, flavors)).is_empty());
        all
    }

    /// The same as if nobody else were charged anything.
    pub(crate) fn combinations_when_empty(&self, gang: &Gang) -> Vec<Flavors> {
        let empty = Quotas {
            world: self.world,
            parents: self.parents.clone(),
            nodes: self.nodes.clone(),
            supply: self.supply.clone(),
            holders: Vec::new(),
        };
        empty.combinations(gang)
    }

    fn all_combinations(&self, gang: &Gang) -> Vec<Flavors> {
        let Some(queue) = self.door(gang) else { return Vec::new() };
        if queue.groups.is_empty() {
            return vec![Vec::new()];
        }
        let mut all: Vec<Flavors> = vec![vec![BTreeMap::new(); gang.pod_sets.len().max(1)]];
        for (unit, resources, offered) in choices(gang, queue) {
            let mut more = Vec::new();
            for flavors in &all {
                let stays = |ix: &FlavorIx| {
                    let given = |at: &usize| gang.state.assignment().and_then(|given| given.flavors.get(*at));
                    let mut given = unit.iter().filter_map(given);
                    given
                        .all(|given| resources.iter().all(|of| given.get(of).is_none_or(|given| given == ix)))
                };
                let suitable = offered.iter().filter(|ix| stays(ix));
                let suitable = suitable.filter(|ix| unit.iter().all(|at| self.suits(gang, *at, **ix)));
                for flavor in suitable {
                    let mut flavors = flavors.clone();
                    for at in &unit {
                        let asked = resources.iter().filter(|resource| need(gang, *at, **resource) > 0);
                        flavors[*at].extend(asked.map(|resource| (*resource, *flavor)));
                    }
                    more.push(flavors);
                }
            }
            all = more;
            if all.len() > COMBINATIONS {
                return Vec::new();
            }
        }
        all
    }

    /// The queue of a gang, if it and all quota that the gang is charged to exist and are in order, and all that the gang
    /// asks for is declared.
    fn door(&self, gang: &Gang) -> Option<&'w Queue> {
        let queue = self.world.queues().get(&gang.queue).filter(|queue| !queue.stopped)?;
        let named = gang.charges.iter().map(|ix| self.world.quota_name(*ix));
        let mut charged = queue.quota.as_deref().into_iter().chain(named);
        if charged.any(|name| !self.nodes.contains_key(name) || self.path(name).is_none()) {
            return None;
        }
        let refuses = !queue.groups.is_empty() && queue.undeclared == Undeclared::Refuse;
        let asked = (0..gang.pod_sets.len().max(1)).flat_map(|at| {
            let pods = gang.pod_sets.get(at).into_iter().flat_map(resources);
            let declared = gang.declared.iter().flat_map(ResourceVec::iter).map(|(ix, _)| ix);
            pods.chain(declared).map(move |ix| (at, ix))
        });
        let declared =
            |ix| ix == ResourceIx::PODS || queue.groups.iter().any(|group| group.resources.contains(&ix));
        let mut missing = asked.filter(|(at, ix)| need(gang, *at, *ix) > 0 && !declared(*ix));
        (!refuses || missing.next().is_none()).then_some(queue)
    }

    /// Whether a pod set may have a flavor.
    fn suits(&self, gang: &Gang, at: usize, ix: FlavorIx) -> bool {
        let Some(flavor) = self.world.flavors().get(&ix) else { return false };
        let Some(pod_set) = gang.pod_sets.get(at).filter(|pod_set| pod_set.count > 0) else { return true };
        // A node that is all that the flavor says, and whatever else the pods ask for.
        let mut asked = pod_set.constraints.clone();
        asked.tolerations.extend(flavor.tolerations.iter().cloned());
        asked.node_selector.retain(|key, _| flavor.node_labels.contains_key(key));
        for term in &mut asked.node_affinity {
            term.expressions.retain(|wanted| flavor.node_labels.contains_key(&wanted.key));
            term.fields.clear();
        }
        if asked.node_affinity.iter().any(|term| term.expressions.is_empty()) {
            asked.node_affinity.clear();
        }
        let mut taints = flavor.node_taints.clone();
        taints.retain(|taint| taint.effect != Effect::PreferNoSchedule);
        let node =
            model::Node { labels: flavor.node_labels.clone(), taints, ready: true, ..model::Node::default() };
        rules::suits(&node, &asked)
    }

    /// Flavors with the first ones of the queue where none are known.
    fn completed(&self, gang: &Gang, given: &[BTreeMap<ResourceIx, FlavorIx>]) -> Flavors {
        let mut flavors: Flavors = given.to_vec();
        flavors.resize(gang.pod_sets.len().max(1), BTreeMap::new());
        let groups = self.world.queues().get(&gang.queue).map_or(&[][..], |queue| &queue.groups);
        let firsts = groups.iter().filter_map(|group| Some((&group.resources, group.flavors.first()?)));
        for (resource, first) in firsts.flat_map(|(all, first)| all.iter().map(move |ix| (ix, first))) {
            let asks = |set: &PodSet| set.count > 0 && of_pods(set, *resource) > 0;
            let asking: Vec<usize> =
                (0..gang.pod_sets.len()).filter(|at| asks(&gang.pod_sets[*at])).collect();
            for at in asking {
                flavors[at].entry(*resource).or_insert(*first);
            }
            if flavors.iter().all(|given| !given.contains_key(resource)) {
                flavors[0].insert(*resource, *first);
            }
        }
        flavors
    }

    /// What a gang is charged with these flavors.
    fn charges(&self, gang: &Gang, flavors: &[BTreeMap<ResourceIx, FlavorIx>]) -> Charges<'w> {
        let mut charges = Charges::new();
        let queue = self.world.queues().get(&gang.queue).and_then(|queue| queue.quota.as_deref());
        if let Some(quota) = queue {
            let mut beyond: BTreeMap<ResourceIx, i128> = BTreeMap::new();
            for resource in gang.declared.iter().flat_map(ResourceVec::iter).map(|(ix, _)| ix) {
                let all_sets = 0..gang.pod_sets.len().max(1);
                let of_pods: i128 = gang.pod_sets.iter().map(|set| of_pods(set, resource)).sum();
                beyond.insert(resource, all_sets.map(|at| need(gang, at, resource)).sum::<i128>() - of_pods);
            }
            for (at, flavors) in flavors.iter().enumerate() {
                for (resource, flavor) in flavors {
                    let of = FlavorResource { flavor: *flavor, resource: *resource };
                    let here = gang.pod_sets.get(at).map_or(0, |set| of_pods(set, *resource));
                    // What is declared beyond the pods goes with the first that has a flavor for it.
                    *charges.entry((quota, of)).or_insert(0) += here + beyond.remove(resource).unwrap_or(0);
                }
            }
        }
        let all: BTreeSet<ResourceIx> = gang
            .pod_sets
            .iter()
            .flat_map(resources)
            .chain(gang.declared.iter().flat_map(ResourceVec::iter).map(|(ix, _)| ix))
            .collect();
        for quota in gang.charges.iter().map(|ix| self.world.quota_name(*ix)) {
            for resource in &all {
                let of = FlavorResource { flavor: FlavorIx::ANY, resource: *resource };
                let all_sets = 0..gang.pod_sets.len().max(1);
                let amount = all_sets.map(|at| need(gang, at, *resource)).sum::<i128>();
                *charges.entry((quota, of)).or_insert(0) += amount;
            }
        }
        charges.retain(|_, amount| *amount > 0);
        charges
    }

    /// What a gang is charged at the node of its queue when its groups of resources offer one flavor each.
    pub(crate) fn plain_charges(&self, gang: &Gang) -> BTreeMap<FlavorResource, i128> {
        let queue = self.world.queues().get(&gang.queue);
        let mut charges = BTreeMap::new();
        for (resource, flavor) in queue.iter().flat_map(|queue| &queue.groups).flat_map(|group| {
            group.resources.iter().filter_map(|resource| Some((*resource, *group.flavors.first()?)))
        }) {
            let amount: i128 = (0..gang.pod_sets.len().max(1)).map(|at| need(gang, at, resource)).sum();
            *charges.entry(FlavorResource { flavor, resource }).or_insert(0) += amount;
        }
        charges.retain(|_, amount| *amount > 0);
        charges
    }

    /// Every flavored resource that a node or one below it mentions.
    pub(crate) fn flavored(&self, name: &str) -> BTreeSet<FlavorResource> {
        let own = self.nodes.get(name).into_iter().flat_map(|node| node.limits.keys().copied());
        own.chain(self.children(name).flat_map(|child| self.flavored(child))).collect()
    }

    /// The most that a node could use if nobody else used anything.
    pub(crate) fn potential(&self, name: &'w str, of: FlavorResource) -> i128 {
        let path = self.path(name).unwrap_or_default();
        path.iter()
            .rev()
            .fold(None, |above: Option<i128>, name| {
                let owned = self.owned(name, of);
                let most = above.map_or(owned, |above| above + self.kept(name, of));
                let borrowing = self.limit(name, of).borrowing.filter(|_| above.is_some());
                Some(borrowing.map_or(most, |borrowing| most.min(owned + i128::from(borrowing.0))))
            })
            .unwrap_or(0)
    }

    /// The weight of a node among its siblings, in thousandths.
    pub(crate) fn weight_milli(&self, name: &str) -> u32 {
        self.nodes.get(name).and_then(|node| node.weight_milli).unwrap_or(1000)
    }

    /// The number of steps down to the farthest node below.
    pub(crate) fn height(&self, name: &str) -> usize {
        self.children(name).map(|child| self.height(child) + 1).max().unwrap_or(0)
    }

    /// Where, and by how much, charges exceed what is available; each as if the others were charged before.
    fn exceeded(&self, gang: &Gang, charges: &Charges<'w>) -> Vec<((&'w str, FlavorResource), i128)> {
        let over = |((quota, of), amount): (&(&'w str, FlavorResource), &i128)| {
            let path = self.path(quota)?;
            let root = *path.last()?;
            // A tree that says nothing of a resource does not count it, unless a queue gives it a flavor there.
            if of.flavor == FlavorIx::ANY && !self.mentions(root, *of) && !self.is_of_queue(gang, quota, *of)
            {
                return None;
            }
            let others: Vec<_> = charges.iter().filter(|(at, _)| **at != (*quota, *of)).collect();
            let over = amount - self.available(&path, *of, &others).max(0);
            (over > 0).then_some(((*quota, *of), over))
        };
        charges.iter().filter_map(over).collect()
    }

    /// Whether the queue of a gang gives flavors that say nothing of nodes, and charges them here.
    fn is_of_queue(&self, gang: &Gang, quota: &str, of: FlavorResource) -> bool {
        self.world.queues().get(&gang.queue).is_some_and(|queue| {
            let mut groups = queue.groups.iter().filter(|group| group.resources.contains(&of.resource));
            queue.quota.as_deref() == Some(quota)
                && groups.any(|group| group.flavors.contains(&FlavorIx::ANY))
        })
    }

    fn mentions(&self, name: &str, of: FlavorResource) -> bool {
        self.nodes.get(name).is_some_and(|node| node.limits.contains_key(&of))
            || self.children(name).any(|child| self.mentions(child, of))
    }

    /// The node and all above it; none when they have no end.
    pub(crate) fn path(&self, name: &'w str) -> Option<Vec<&'w str>> {
        let mut path = vec![name];
        while let Some(Some(parent)) = self.parents.get(path[path.len() - 1]) {
            if path.len() > self.parents.len() {
                return None;
            }
            path.push(*parent);
        }
        Some(path)
    }

    pub(crate) fn children<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'w str> + 'a {
        self.parents.iter().filter(move |(_, parent)| **parent == Some(name)).map(|(child, _)| *child)
    }

    fn limit(&self, name: &str, of: FlavorResource) -> model::Limits {
        self.nodes.get(name).and_then(|node| node.limits.get(&of)).copied().unwrap_or_default()
    }

    pub(crate) fn owned(&self, name: &str, of: FlavorResource) -> i128 {
        let lent = self.children(name).map(|child| self.owned(child, of) - self.kept(child, of));
        let limit = self.limit(name, of);
        let supplied = self.supply.get(&of).filter(|_| limit.of_nodes).copied().unwrap_or(0);
        i128::from(limit.nominal.0) + supplied + lent.sum::<i128>()
    }

    pub(crate) fn kept(&self, name: &str, of: FlavorResource) -> i128 {
        let lending = self.limit(name, of).lending;
        lending.map_or(0, |lending| (self.owned(name, of) - i128::from(lending.0)).max(0))
    }

    /// What holders and some more charges use at a node: what is charged there, and what its children cannot keep.
    pub(crate) fn used(
        &self,
        name: &str,
        of: FlavorResource,
        more: &[(&(&'w str, FlavorResource), &i128)],
    ) -> i128 {
        let held = self.holders.iter().filter(|holder| !holder.suspended);
        let held = held.flat_map(|holder| &holder.charges).chain(more.iter().copied());
        let direct = held.filter(|((at, other), _)| *at == name && *other == of).map(|(_, amount)| amount);
        let below =
            self.children(name).map(|child| (self.used(child, of, more) - self.kept(child, of)).max(0));
        direct.sum::<i128>() + below.sum::<i128>()
    }

    /// What is left at the start of a path, from its root down.
    fn available(
        &self,
        path: &[&'w str],
        of: FlavorResource,
        more: &[(&(&'w str, FlavorResource), &i128)],
    ) -> i128 {
        let mut from_above: Option<i128> = None;
        for name in path.iter().rev() {
            let (owned, kept, used) = (self.owned(name, of), self.kept(name, of), self.used(name, of, more));
            from_above = Some(match (from_above, self.limit(name, of).borrowing) {
                (None, _) => owned - used,
                (Some(above), None) => (kept - used).max(0) + above,
                (Some(above), Some(limit)) => {
                    let allowed = owned + i128::from(limit.0) - kept.max(used);
                    (kept - used).max(0) + above.min(allowed)
                }
            });
        }
        from_above.unwrap_or(0)
    }
}

/// What has to be chosen for a gang: pod sets that are flavored together, the resources, and the flavors on offer.
fn choices<'q>(gang: &Gang, queue: &'q Queue) -> Vec<(Vec<usize>, Vec<ResourceIx>, &'q [FlavorIx])> {
    let mut units: Vec<Vec<usize>> = Vec::new();
    for at in 0..gang.pod_sets.len().max(1) {
        let group = |at: usize| gang.pod_sets.get(at).and_then(|pod_set| pod_set.group.as_ref());
        match units.iter_mut().find(|unit| group(at).is_some() && group(unit[0]) == group(at)) {
            Some(unit) => unit.push(at),
            None => units.push(vec![at]),
        }
    }
    let mut choices = Vec::new();
    for unit in units {
        for group in &queue.groups {
            let asked = |ix: &&ResourceIx| unit.iter().any(|at| need(gang, *at, **ix) > 0);
            let resources: Vec<ResourceIx> = group.resources.iter().filter(asked).copied().collect();
            if !resources.is_empty() {
                choices.push((unit.clone(), resources, group.flavors.as_slice()));
            }
        }
    }
    choices
}

/// What the pods of a set need of a resource together.
fn of_pods(pod_set: &PodSet, resource: ResourceIx) -> i128 {
    let part = pod_set.share.filter(|share| share.device() == resource);
    let milli = i128::from(pod_set.request.get(resource).0) * 1000
        + part.map_or(0, |share| i128::from(share.milli()));
    (milli * i128::from(pod_set.count) + 999).div_euclid(1000)
}

/// What a pod set needs of a resource; what is declared beyond all pods is needed by the first that asks for it, or else by
/// the very first.
fn need(gang: &Gang, at: usize, resource: ResourceIx) -> i128 {
    let of_pods = |pod_set: &PodSet| of_pods(pod_set, resource);
    let declared = gang.declared.as_ref().map_or(0, |declared| i128::from(declared.get(resource).0));
    let total: i128 = gang.pod_sets.iter().map(of_pods).sum();
    let bearer = gang.pod_sets.iter().position(|pod_set| of_pods(pod_set) > 0).unwrap_or(0);
    let beyond = if at == bearer { (declared - total).max(0) } else { 0 };
    gang.pod_sets.get(at).map_or(0, of_pods) + beyond
}

/// The resources that a pod asks for.
fn resources(pod_set: &PodSet) -> impl Iterator<Item = ResourceIx> + '_ {
    pod_set.request.iter().map(|(ix, _)| ix).chain(pod_set.share.map(model::DeviceShare::device))
}

/// A gang whose pods go where their flavors are.
pub(crate) fn narrowed(world: &World, gang: &Gang, flavors: &[BTreeMap<ResourceIx, FlavorIx>]) -> Gang {
    let mut narrowed = gang.clone();
    let mut pod_sets = gang.pod_sets.to_vec();
    for (pod_set, flavors) in pod_sets.iter_mut().zip(flavors) {
        for flavor in flavors.values().filter_map(|ix| world.flavors().get(ix)) {
            confine(pod_set, flavor);
        }
    }
    narrowed.pod_sets = pod_sets.into();
    narrowed
}

fn confine(pod_set: &mut PodSet, flavor: &Flavor) {
    let constraints = &mut pod_set.constraints;
    constraints.tolerations.extend(flavor.tolerations.iter().cloned());
    for (key, value) in &flavor.node_labels {
        if constraints.node_selector.insert(key.clone(), value.clone()).is_some_and(|old| old != *value) {
            constraints.node_affinity = vec![model::Term::default()]; // Nowhere: no node has two values.
        }
    }
}
