//! Limits of quota and flavors, counted from quota nodes, queues and gangs alone.
//!
//! Quota trees are read by name, usage is summed over the charges of all holders, and nothing is cached.
//! `flavors` confines pods to the nodes of their flavors, `preemption_rules` holds the preemption rules of quota trees, `shares` fair sharing, `node_capacity` quota
//! from node capacity, and `stepwise` says which gangs must not wait where quota alone decides.

mod flavors;
mod node_capacity;
mod preemption_rules;
mod shares;
mod stepwise;

use std::collections::{BTreeMap, BTreeSet};

use model::{
    Effect, FlavorIx, FlavorResource, Gang, PodSet, Queue, QuotaNode, ResourceIx, ResourceVec,
    UndeclaredResources, World,
};

use crate::violation::Violation;
use crate::{elastic, fit, quota_only};
pub(crate) use flavors::{in_flavors, with_flavors};
pub(crate) use preemption_rules::Assumptions;
pub(crate) use shares::Share;

/// The flavor of each resource, by pod set.
pub(crate) type Flavors = Vec<BTreeMap<ResourceIx, FlavorIx>>;

/// First fit tries at most this many combinations of flavors.
const COMBINATIONS: usize = 32;

/// The charges of one gang, by quota node.
type Charges<'w> = BTreeMap<(&'w str, FlavorResource), i128>;

/// Quota usage while the plan is replayed.
pub(crate) struct Quotas<'w> {
    world: &'w World,
    /// Parents by name, including nodes that are only named as parents.
    parents: BTreeMap<&'w str, Option<&'w str>>,
    nodes: BTreeMap<&'w str, &'w QuotaNode>,
    /// The node capacity of flavors, where quota includes it.
    node_capacity: BTreeMap<FlavorResource, i128>,
    holders: Vec<Holder<'w>>,
    /// The roots of trees in which the first gang of a strict queue may hold quota.
    holding: BTreeSet<&'w str>,
}

struct Holder<'w> {
    gang: String,
    charges: Charges<'w>,
    /// Whether the gang is treated as removed.
    suspended: bool,
}

impl<'w> Quotas<'w> {
    /// The charges at the start of a scheduling cycle.
    pub(crate) fn of(world: &'w World) -> Self {
        let nodes: BTreeMap<&str, &QuotaNode> =
            world.quota_nodes().values().map(|node| (node.name.as_str(), node)).collect();
        let named = nodes.values().filter_map(|node| node.parent.as_deref()).map(|name| (name, None));
        let mut parents: BTreeMap<&str, Option<&str>> = named.collect();
        parents.extend(nodes.iter().map(|(name, node)| (*name, node.parent.as_deref())));
        let limits = nodes.values().flat_map(|node| &node.limits);
        let capacity = limits
            .filter(|(_, limits)| limits.adds_node_capacity)
            .map(|(of, _)| (*of, node_capacity::node_capacity(world, *of)));
        let node_capacity = capacity.collect();
        let mut quotas =
            Self { world, parents, nodes, node_capacity, holders: Vec::new(), holding: BTreeSet::new() };
        for gang in world.gangs().filter(|gang| gang.state.holds()) {
            let known = gang.state.assignment().map_or(&[][..], |assignment| &assignment.flavors);
            let flavors = quotas.completed(gang, known);
            let held = match gang.state.assignment() {
                Some(assignment) => elastic::held(gang, assignment).0,
                None => elastic::remaining(gang),
            };
            quotas.charge(&gang.uid, &held, &flavors);
        }
        quotas
    }

    /// Sets the roots of trees in which the first gang of a strict queue may hold quota.
    pub(crate) fn set_holding(&mut self, roots: &BTreeSet<&'w str>) {
        self.holding.clone_from(roots);
    }

    /// Whether a gang may be held back for the first gang of a strict queue.
    pub(crate) fn may_be_held(&self, gang: &Gang) -> bool {
        let own = self.world.queues().get(&gang.queue).and_then(|queue| queue.quota.as_deref());
        let named = gang.charges.iter().map(|ix| self.world.quota_name(*ix));
        let mut roots = named.chain(own).filter_map(|node| self.path(node)?.last().copied());
        roots.any(|root| self.holding.contains(root))
    }

    /// Treats a gang as removed, or as present again.
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

    /// Reports an admission that breaks a rule about queues, flavors or quota.
    pub(crate) fn check(
        &self,
        gang: &Gang,
        flavors: &[BTreeMap<ResourceIx, FlavorIx>],
        found: &mut Vec<Violation>,
    ) {
        let Some(queue) = self.usable_queue(gang) else {
            found.push(Violation::QueueInactive { gang: gang.key.clone() });
            return;
        };
        for (unit, resources, offered) in flavor_choices(gang, queue) {
            for resource in resources {
                let requesting = unit.iter().filter(|at| requested(gang, **at, resource) > 0);
                let assigned: Vec<_> = requesting
                    .map(|at| (*at, flavors.get(*at).and_then(|flavors| flavors.get(&resource)).copied()))
                    .collect();
                let same = assigned.windows(2).all(|pair| pair[0].1 == pair[1].1);
                let fits = assigned.iter().all(|(at, flavor)| {
                    flavor.is_some_and(|ix| offered.contains(&ix) && self.flavor_fits(gang, *at, ix))
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

    /// The combinations of flavors that quota allows the gang now, in the order of its queue. One empty combination
    /// when the queue declares no flavors.
    pub(crate) fn combinations(&self, gang: &Gang) -> Vec<Flavors> {
        let mut all = self.all_combinations(gang);
        all.retain(|flavors| self.exceeded(gang, &self.charges(gang, flavors)).is_empty());
        all
    }

    /// The same without any usage.
    pub(crate) fn combinations_when_empty(&self, gang: &Gang) -> Vec<Flavors> {
        let empty = Quotas {
            world: self.world,
            parents: self.parents.clone(),
            nodes: self.nodes.clone(),
            node_capacity: self.node_capacity.clone(),
            holders: Vec::new(),
            holding: BTreeSet::new(),
        };
        empty.combinations(gang)
    }

    /// The combinations of flavors that a gang may use, whatever their quota, in the order of its queue.
    pub(crate) fn all_combinations(&self, gang: &Gang) -> Vec<Flavors> {
        let Some(queue) = self.usable_queue(gang) else { return Vec::new() };
        if queue.groups.is_empty() {
            return vec![Vec::new()];
        }
        let mut all: Vec<Flavors> = vec![vec![BTreeMap::new(); gang.pod_sets.len().max(1)]];
        for (unit, resources, offered) in flavor_choices(gang, queue) {
            let mut more = Vec::new();
            for flavors in &all {
                let stays = |ix: &FlavorIx| {
                    let running = gang.state.assignment().map(|given| &given.flavors);
                    let replaced = gang.replaces.as_ref().map(|replaced| &replaced.flavors);
                    let given =
                        |at: &usize| running.into_iter().chain(replaced).find_map(|given| given.get(*at));
                    let mut given = unit.iter().filter_map(given);
                    given
                        .all(|given| resources.iter().all(|of| given.get(of).is_none_or(|given| given == ix)))
                };
                let suitable = offered.iter().filter(|ix| stays(ix));
                let suitable = suitable.filter(|ix| unit.iter().all(|at| self.flavor_fits(gang, *at, **ix)));
                for flavor in suitable {
                    let mut flavors = flavors.clone();
                    for at in &unit {
                        let requested_here =
                            resources.iter().filter(|resource| requested(gang, *at, **resource) > 0);
                        flavors[*at].extend(requested_here.map(|resource| (*resource, *flavor)));
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

    /// The queue of a gang, if it can admit the gang: the queue and all its quota nodes exist and are valid, and all
    /// requested resources are declared.
    fn usable_queue(&self, gang: &Gang) -> Option<&'w Queue> {
        let queue = self.world.queues().get(&gang.queue).filter(|queue| !queue.stopped)?;
        let named = gang.charges.iter().map(|ix| self.world.quota_name(*ix));
        let mut charged = queue.quota.as_deref().into_iter().chain(named);
        if charged.any(|name| !self.nodes.contains_key(name) || self.path(name).is_none()) {
            return None;
        }
        let rejects_undeclared = !queue.groups.is_empty() && queue.undeclared == UndeclaredResources::Reject;
        let requested_here = (0..gang.pod_sets.len().max(1)).flat_map(|at| {
            let pods = gang.pod_sets.get(at).into_iter().flat_map(resources);
            let declared = gang.declared.iter().flat_map(ResourceVec::iter).map(|(ix, _)| ix);
            pods.chain(declared).map(move |ix| (at, ix))
        });
        let declared =
            |ix| ix == ResourceIx::PODS || queue.groups.iter().any(|group| group.resources.contains(&ix));
        let mut missing = requested_here.filter(|(at, ix)| requested(gang, *at, *ix) > 0 && !declared(*ix));
        (!rejects_undeclared || missing.next().is_none()).then_some(queue)
    }

    /// Whether a pod set may use a flavor.
    fn flavor_fits(&self, gang: &Gang, at: usize, ix: FlavorIx) -> bool {
        let Some(flavor) = self.world.flavors().get(&ix) else { return false };
        let Some(pod_set) = gang.pod_sets.get(at).filter(|pod_set| pod_set.count > 0) else { return true };
        // Matches against a node with exactly the labels and taints of the flavor. Requirements on other labels are
        // ignored.
        let mut requested_here = pod_set.constraints.clone();
        requested_here.tolerations.extend(flavor.tolerations.iter().cloned());
        requested_here.node_selector.retain(|key, _| flavor.node_labels.contains_key(key));
        for term in &mut requested_here.node_affinity {
            term.expressions.retain(|wanted| flavor.node_labels.contains_key(&wanted.key));
            term.fields.clear();
        }
        if requested_here.node_affinity.iter().any(|term| term.expressions.is_empty()) {
            requested_here.node_affinity.clear();
        }
        let mut taints = flavor.node_taints.clone();
        taints.retain(|taint| taint.effect != Effect::PreferNoSchedule);
        let node =
            model::Node { labels: flavor.node_labels.clone(), taints, ready: true, ..model::Node::default() };
        fit::matches_constraints(&node, &requested_here)
            && quota_only::accepts_topology(self.world, gang, at, ix)
    }

    /// Completes flavors with the first flavor of the queue where none is known.
    fn completed(&self, gang: &Gang, known: &[BTreeMap<ResourceIx, FlavorIx>]) -> Flavors {
        let mut flavors: Flavors = known.to_vec();
        flavors.resize(gang.pod_sets.len().max(1), BTreeMap::new());
        let groups = self.world.queues().get(&gang.queue).map_or(&[][..], |queue| &queue.groups);
        let defaults = groups.iter().filter_map(|group| Some((&group.resources, group.flavors.first()?)));
        for (resource, first) in defaults.flat_map(|(all, first)| all.iter().map(move |ix| (ix, first))) {
            let requests = |set: &PodSet| set.count > 0 && requested_by_pods(set, *resource) > 0;
            let requesting: Vec<usize> =
                (0..gang.pod_sets.len()).filter(|at| requests(&gang.pod_sets[*at])).collect();
            for at in requesting {
                flavors[at].entry(*resource).or_insert(*first);
            }
            if flavors.iter().all(|given| !given.contains_key(resource)) {
                flavors[0].insert(*resource, *first);
            }
        }
        flavors
    }

    /// The charges of a gang with these flavors.
    fn charges(&self, gang: &Gang, flavors: &[BTreeMap<ResourceIx, FlavorIx>]) -> Charges<'w> {
        let mut charges = Charges::new();
        let queue = self.world.queues().get(&gang.queue).and_then(|queue| queue.quota.as_deref());
        if let Some(quota) = queue {
            let mut beyond: BTreeMap<ResourceIx, i128> = BTreeMap::new();
            for resource in gang.declared.iter().flat_map(ResourceVec::iter).map(|(ix, _)| ix) {
                let all_sets = 0..gang.pod_sets.len().max(1);
                let for_pods: i128 = gang.pod_sets.iter().map(|set| requested_by_pods(set, resource)).sum();
                beyond.insert(
                    resource,
                    all_sets.map(|at| requested(gang, at, resource)).sum::<i128>() - for_pods,
                );
            }
            for (at, flavors) in flavors.iter().enumerate() {
                for (resource, flavor) in flavors {
                    let of = FlavorResource { flavor: *flavor, resource: *resource };
                    let here = gang.pod_sets.get(at).map_or(0, |set| requested_by_pods(set, *resource));
                    // The declared excess is charged to the first pod set that has a flavor for the resource.
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
                let amount = all_sets.map(|at| requested(gang, at, *resource)).sum::<i128>();
                *charges.entry((quota, of)).or_insert(0) += amount;
            }
        }
        charges.retain(|_, amount| *amount > 0);
        charges
    }

    /// The charges of a gang at one node with these flavors.
    pub(crate) fn charges_at(
        &self,
        gang: &Gang,
        flavors: &Flavors,
        node: &str,
    ) -> BTreeMap<FlavorResource, i128> {
        let charges = self.charges(gang, flavors).into_iter();
        charges.filter(|((at, _), _)| *at == node).map(|((_, of), amount)| (of, amount)).collect()
    }

    /// The charges of a gang at the node of its queue, when each resource group offers one flavor.
    pub(crate) fn single_flavor_charges(&self, gang: &Gang) -> BTreeMap<FlavorResource, i128> {
        let queue = self.world.queues().get(&gang.queue);
        let mut charges = BTreeMap::new();
        for (resource, flavor) in queue.iter().flat_map(|queue| &queue.groups).flat_map(|group| {
            group.resources.iter().filter_map(|resource| Some((*resource, *group.flavors.first()?)))
        }) {
            let amount: i128 = (0..gang.pod_sets.len().max(1)).map(|at| requested(gang, at, resource)).sum();
            *charges.entry(FlavorResource { flavor, resource }).or_insert(0) += amount;
        }
        charges.retain(|_, amount| *amount > 0);
        charges
    }

    /// All pairs of flavor and resource that the subtree of a node declares.
    pub(crate) fn flavor_resources(&self, name: &str) -> BTreeSet<FlavorResource> {
        let own = self.nodes.get(name).into_iter().flat_map(|node| node.limits.keys().copied());
        own.chain(self.children(name).flat_map(|child| self.flavor_resources(child))).collect()
    }

    /// The maximum that a node can use when nothing else is used.
    pub(crate) fn potential_available(&self, name: &'w str, of: FlavorResource) -> i128 {
        let path = self.path(name).unwrap_or_default();
        path.iter()
            .rev()
            .fold(None, |above: Option<i128>, name| {
                let subtree_quota = self.subtree_quota(name, of);
                let most = above.map_or(subtree_quota, |above| above + self.local_quota(name, of));
                let borrowing = self.limit(name, of).borrowing.filter(|_| above.is_some());
                Some(borrowing.map_or(most, |borrowing| most.min(subtree_quota + i128::from(borrowing.0))))
            })
            .unwrap_or(0)
    }

    /// The weight of a node among its siblings, in thousandths.
    pub(crate) fn weight_milli(&self, name: &str) -> u32 {
        self.nodes.get(name).and_then(|node| node.weight_milli).unwrap_or(1000)
    }

    /// The height of the subtree of a node.
    pub(crate) fn height(&self, name: &str) -> usize {
        self.children(name).map(|child| self.height(child) + 1).max().unwrap_or(0)
    }

    /// The charges that exceed the available quota, and by how much. Each is checked as if the other charges were
    /// made before.
    fn exceeded(&self, gang: &Gang, charges: &Charges<'w>) -> Vec<((&'w str, FlavorResource), i128)> {
        let over = |((quota, of), amount): (&(&'w str, FlavorResource), &i128)| {
            let path = self.path(quota)?;
            let root = *path.last()?;
            // A tree that does not declare a resource does not limit it, unless the queue offers a flavor for it.
            if of.flavor == FlavorIx::ANY
                && !self.declares(root, *of)
                && !self.queue_offers_any_flavor(gang, quota, *of)
            {
                return None;
            }
            let others: Vec<_> = charges.iter().filter(|(at, _)| **at != (*quota, *of)).collect();
            let over = amount - self.available(&path, *of, &others).max(0);
            (over > 0).then_some(((*quota, *of), over))
        };
        charges.iter().filter_map(over).collect()
    }

    /// Whether the queue of a gang offers a flavor without node labels for the resource, and charges it to this node.
    fn queue_offers_any_flavor(&self, gang: &Gang, quota: &str, of: FlavorResource) -> bool {
        self.world.queues().get(&gang.queue).is_some_and(|queue| {
            let mut groups = queue.groups.iter().filter(|group| group.resources.contains(&of.resource));
            queue.quota.as_deref() == Some(quota)
                && groups.any(|group| group.flavors.contains(&FlavorIx::ANY))
        })
    }

    /// Whether a gang with these flavors, beside all holders and `others`, stays within the nominal quota of nodes that the gang
    /// `head` is not charged to, which counts all that it requests.
    pub(crate) fn is_owned(
        &self,
        gang: &Gang,
        flavors: &Flavors,
        head: &Gang,
        others: &[(&Gang, &Flavors)],
    ) -> bool {
        let named = head.charges.iter().map(|ix| self.world.quota_name(*ix));
        let queue = self.world.queues().get(&head.queue).and_then(|queue| queue.quota.as_deref());
        let heads: BTreeSet<&str> = named.chain(queue).collect();
        let others = others.iter().filter(|(other, _)| other.uid != gang.uid);
        let beside: Vec<Charges<'w>> = others.map(|(other, flavors)| self.charges(other, flavors)).collect();
        let own = self.charges(gang, flavors);
        let more: Vec<_> = beside.iter().flatten().chain(&own).collect();
        let counts = |node: &'w str, of: FlavorResource| {
            let root = self.path(node).and_then(|path| path.last().copied());
            of.flavor != FlavorIx::ANY || root.is_some_and(|root| self.declares(root, of))
        };
        let counted: Vec<_> = own.keys().filter(|(node, of)| counts(node, *of)).collect();
        let all = gang.pod_sets.iter().flat_map(resources);
        let all = all.chain(gang.declared.iter().flat_map(ResourceVec::iter).map(|(ix, _)| ix));
        let requests =
            |ix: &ResourceIx| (0..gang.pod_sets.len().max(1)).any(|at| requested(gang, at, *ix) > 0);
        let mut all = all.filter(|ix| *ix != ResourceIx::PODS).filter(requests);
        !counted.is_empty()
            && all.all(|ix| counted.iter().any(|(_, of)| of.resource == ix))
            && counted.iter().all(|(node, of)| {
                !heads.contains(node) && self.usage(node, *of, &more) <= self.subtree_quota(node, *of)
            })
    }

    fn declares(&self, name: &str, of: FlavorResource) -> bool {
        self.nodes.get(name).is_some_and(|node| node.limits.contains_key(&of))
            || self.children(name).any(|child| self.declares(child, of))
    }

    /// The node and its ancestors; `None` for a cycle.
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

    pub(crate) fn subtree_quota(&self, name: &str, of: FlavorResource) -> i128 {
        let lent =
            self.children(name).map(|child| self.subtree_quota(child, of) - self.local_quota(child, of));
        let limit = self.limit(name, of);
        let supplied = self.node_capacity.get(&of).filter(|_| limit.adds_node_capacity).copied().unwrap_or(0);
        i128::from(limit.nominal.0) + supplied + lent.sum::<i128>()
    }

    pub(crate) fn local_quota(&self, name: &str, of: FlavorResource) -> i128 {
        let lending = self.limit(name, of).lending;
        lending.map_or(0, |lending| (self.subtree_quota(name, of) - i128::from(lending.0)).max(0))
    }

    /// The usage of a node with additional charges: direct charges, and what exceeds the local quota of its children.
    pub(crate) fn usage(
        &self,
        name: &str,
        of: FlavorResource,
        more: &[(&(&'w str, FlavorResource), &i128)],
    ) -> i128 {
        let held = self.holders.iter().filter(|holder| !holder.suspended);
        let held = held.flat_map(|holder| &holder.charges).chain(more.iter().copied());
        let direct = held.filter(|((at, other), _)| *at == name && *other == of).map(|(_, amount)| amount);
        let below = self
            .children(name)
            .map(|child| (self.usage(child, of, more) - self.local_quota(child, of)).max(0));
        direct.sum::<i128>() + below.sum::<i128>()
    }

    /// The available quota at the first node of a path, computed from the root down.
    pub(crate) fn available(
        &self,
        path: &[&'w str],
        of: FlavorResource,
        more: &[(&(&'w str, FlavorResource), &i128)],
    ) -> i128 {
        let mut parent_available: Option<i128> = None;
        for name in path.iter().rev() {
            let (subtree_quota, local_quota, usage) =
                (self.subtree_quota(name, of), self.local_quota(name, of), self.usage(name, of, more));
            parent_available = Some(match (parent_available, self.limit(name, of).borrowing) {
                (None, _) => subtree_quota - usage,
                (Some(parent), None) => (local_quota - usage).max(0) + parent,
                (Some(parent), Some(limit)) => {
                    let allowed = subtree_quota + i128::from(limit.0) - local_quota.max(usage);
                    (local_quota - usage).max(0) + parent.min(allowed)
                }
            });
        }
        parent_available.unwrap_or(0)
    }
}

/// The flavor choices of a gang: the pod sets that get the same flavor, the resources, and the offered flavors.
fn flavor_choices<'q>(gang: &Gang, queue: &'q Queue) -> Vec<(Vec<usize>, Vec<ResourceIx>, &'q [FlavorIx])> {
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
            let requested_here = |ix: &&ResourceIx| unit.iter().any(|at| requested(gang, *at, **ix) > 0);
            let resources: Vec<ResourceIx> = group.resources.iter().filter(requested_here).copied().collect();
            if !resources.is_empty() {
                choices.push((unit.clone(), resources, group.flavors.as_slice()));
            }
        }
    }
    choices
}

/// The request of all pods of a set for a resource.
fn requested_by_pods(pod_set: &PodSet, resource: ResourceIx) -> i128 {
    let part = pod_set.share.filter(|share| share.device() == resource);
    let milli = i128::from(counted(pod_set).get(resource).0) * 1000
        + part.map_or(0, |share| i128::from(share.milli()));
    (milli * i128::from(pod_set.count) + 999).div_euclid(1000)
}

/// The request of a pod set for a resource. The amount declared beyond all pods counts for the first pod set that
/// requests the resource, or else for the first one.
fn requested(gang: &Gang, at: usize, resource: ResourceIx) -> i128 {
    let for_pods = |pod_set: &PodSet| requested_by_pods(pod_set, resource);
    let declared = gang.declared.as_ref().map_or(0, |declared| i128::from(declared.get(resource).0));
    let total: i128 = gang.pod_sets.iter().map(for_pods).sum();
    let charged_pod_set = gang.pod_sets.iter().position(|pod_set| for_pods(pod_set) > 0).unwrap_or(0);
    let excess = if at == charged_pod_set { (declared - total).max(0) } else { 0 };
    gang.pod_sets.get(at).map_or(0, for_pods) + excess
}

/// What quota counts of one pod: what it requests, unless its pod set says otherwise.
fn counted(pod_set: &PodSet) -> &ResourceVec {
    match &pod_set.charged {
        Some(charged) => charged,
        None => &pod_set.request,
    }
}

/// The resources that count for a pod.
fn resources(pod_set: &PodSet) -> impl Iterator<Item = ResourceIx> + '_ {
    counted(pod_set).iter().map(|(ix, _)| ix).chain(pod_set.share.map(model::DeviceShare::device))
}
