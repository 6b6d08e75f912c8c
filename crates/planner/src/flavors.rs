//! Assigns resource flavors to the pod sets of a gang, together with a placement.
//!
//! Flavors are tried in the order of the queue, for each pod set and within it for each resource group, after
//! Kueue's flavor assigner (`pkg/scheduler/flavorassigner`, v0.19). So the first combination that is tried is
//! Kueue's. If it has no placement for every pod, or leaves no quota for a later pod set, the search
//! backtracks and tries other combinations, within a budget.

mod alternatives;
mod constraints;
mod stepwise;

use std::collections::{BTreeMap, BTreeSet};

use model::{
    Amount, Cause, FlavorFungibilityPolicy, FlavorIx, FlavorResource, PodSet, Queue, QueueingHint,
    QuotaCause, QuotaIx, ResourceIx, ResourceVec, Shape, UndeclaredResources, World,
};

use crate::explain;
use crate::fit::{find_placement, place_with};
use crate::ledger::Ledger;
use crate::quota::{Trial, exceeds_potential};
use crate::request::{Fit, Flavors, GangRequest, Refusal};
pub(crate) use alternatives::Alternatives;
use constraints::check_compatible;
pub(crate) use constraints::with_flavor_constraints;
pub(crate) use stepwise::{Attempt, Attempts, Chance, Progress, attempt, is_stepwise, needs_quota_alone};
pub use stepwise::{Lack, LackReason};

/// The number of placements that are tried for one gang.
const PLACEMENTS: u32 = 64;

/// The number of causes that a refusal names.
const CAUSES: usize = 6;

/// One choice: the flavor of these resources for the pod sets of one flavor group.
struct FlavorChoice<'w> {
    /// The pod sets, by index.
    pod_sets: Vec<usize>,
    /// Their total request of each resource.
    needs: Vec<(ResourceIx, i128)>,
    /// The flavors, in the order of the queue.
    flavors: &'w [FlavorIx],
    /// No later choice concerns these pod sets.
    is_last: bool,
}

/// The flavors and placement of a gang whose queue has resource groups.
pub(crate) fn assign(
    ledger: &Ledger<'_>,
    request: &GangRequest<'_>,
    queue: &Queue,
    trial: Trial<'_>,
) -> Result<Fit, Refusal> {
    let choices = choices(ledger.world, request, queue)?;
    let mut search = Search {
        ledger,
        request,
        queue,
        quota: request.quota(ledger.world),
        choices,
        trial,
        chosen: Vec::new(),
        budget: PLACEMENTS,
        causes: Vec::new(),
        hint: QueueingHint::ClusterChange,
    };
    match search.descend(0) {
        Some(fit) => Ok(fit),
        None if search.budget == 0 => Err((search.causes, QueueingHint::AnyChange)),
        // A flavor adds tolerations, so nodes that do not tolerate the gang itself may become eligible.
        None if search.hint == QueueingHint::EligibleNodeFreed => {
            Err((search.causes, QueueingHint::ResourceFreed))
        }
        None => Err((search.causes, search.hint)),
    }
}

/// Whether a gang may keep its assigned flavors, after queues and flavors changed.
pub(crate) fn are_allowed(world: &World, request: &GangRequest<'_>, flavors: &Flavors) -> bool {
    let Some(queue) = world.queues().get(&request.queue).filter(|queue| !queue.groups.is_empty()) else {
        return flavors.iter().all(BTreeMap::is_empty);
    };
    let excess = request.shape.declared_excess();
    choices(world, request, queue).is_ok_and(|choices| {
        choices.iter().all(|choice| {
            let each =
                choice.pod_sets.iter().flat_map(|at| choice.needs.iter().map(move |(ix, _)| (*at, *ix)));
            let mut given = each
                .filter(|(at, ix)| needs(request.shape, &excess, *at, *ix) > 0)
                .map(|(at, ix)| flavors.get(at).and_then(|flavors| flavors.get(&ix)));
            let first = given.next().flatten();
            first.is_some_and(|flavor| {
                choice.flavors.contains(flavor)
                    && given.all(|other| other == first)
                    && check_compatible(world, request, &choice.pod_sets, *flavor).is_ok()
            })
        })
    })
}

/// The choices of a gang, in the order in which they are made; or the resource that the queue does not cover.
fn choices<'w>(
    world: &World,
    request: &GangRequest<'_>,
    queue: &'w Queue,
) -> Result<Vec<FlavorChoice<'w>>, Refusal> {
    let shape = request.shape;
    let excess = shape.declared_excess();
    check_declared(world, request, queue)?;
    let mut choices: Vec<FlavorChoice<'w>> = Vec::new();
    for pod_sets in flavor_groups(&shape.pod_sets) {
        let before = choices.len();
        for group in &queue.groups {
            let needs = |resource: &ResourceIx| {
                let requested = pod_sets.iter().map(|at| needs(shape, &excess, *at, *resource)).sum::<i128>();
                (requested > 0).then_some((*resource, requested))
            };
            let needs: Vec<_> = group.resources.iter().filter_map(needs).collect();
            if !needs.is_empty() {
                choices.push(FlavorChoice {
                    pod_sets: pod_sets.clone(),
                    needs,
                    flavors: &group.flavors,
                    is_last: false,
                });
            }
        }
        if let Some(last) = choices[before..].last_mut() {
            last.is_last = true;
        }
    }
    Ok(choices)
}

/// The pod sets that get the same flavors, by index.
fn flavor_groups(pod_sets: &[PodSet]) -> Vec<Vec<usize>> {
    if pod_sets.is_empty() {
        return vec![vec![0]]; // Declared resources without any pod.
    }
    let mut flavor_groups: Vec<Vec<usize>> = Vec::new();
    for (at, pod_set) in pod_sets.iter().enumerate() {
        let others = flavor_groups
            .iter_mut()
            .find(|members| pod_set.group.is_some() && pod_sets[members[0]].group == pod_set.group);
        match others {
            Some(members) => members.push(at),
            None => flavor_groups.push(vec![at]),
        }
    }
    flavor_groups
}

/// The request of a pod set for a resource. Resources declared beyond the pods count for the first pod set
/// that requests the resource, else for the first pod set.
fn needs(shape: &Shape, excess: &ResourceVec, at: usize, resource: ResourceIx) -> i128 {
    let requested = |pod_set: &PodSet| pod_set.requested(resource);
    let first = shape.pod_sets.iter().position(|pod_set| requested(pod_set) > 0).unwrap_or(0);
    let declared = if at == first { i128::from(excess.get(resource).0) } else { 0 };
    shape.pod_sets.get(at).map_or(0, requested) + declared
}

/// Checks that the queue covers all requested resources. `pods` is counted only where the queue covers it.
fn check_declared(world: &World, request: &GangRequest<'_>, queue: &Queue) -> Result<(), Refusal> {
    if queue.undeclared != UndeclaredResources::Reject {
        return Ok(());
    }
    let offers = |ix| queue.groups.iter().any(|group| group.resources.contains(&ix));
    let requested = request.shape.quota_request();
    let mut missing = requested
        .iter()
        .filter(|(ix, amount)| *amount > Amount::ZERO && *ix != ResourceIx::PODS && !offers(*ix));
    match missing.next() {
        Some((ix, _)) => {
            let (queue, resource) = (queue.name.clone(), world.resources().name(ix).to_owned());
            Err((vec![Cause::Quota(QuotaCause::Undeclared { queue, resource })], QueueingHint::ClusterChange))
        }
        None => Ok(()),
    }
}

struct Search<'a, 'w> {
    ledger: &'a Ledger<'w>,
    request: &'a GangRequest<'a>,
    queue: &'a Queue,
    quota: Option<QuotaIx>,
    choices: Vec<FlavorChoice<'a>>,
    trial: Trial<'a>,
    /// The flavors of the choices that are made so far.
    chosen: Vec<FlavorIx>,
    budget: u32,
    causes: Vec<Cause>,
    hint: QueueingHint,
}

impl Search<'_, '_> {
    /// Makes the choices from `at` on, and places all pods.
    fn descend(&mut self, at: usize) -> Option<Fit> {
        if at == self.choices.len() {
            self.budget = self.budget.saturating_sub(1);
            let placed = place_with(self.ledger, self.request, &self.flavors());
            return self.record(placed);
        }
        for flavor in self.options(at) {
            self.charge(at, flavor, 1);
            self.chosen.push(flavor);
            let found = if self.has_room(at) { self.descend(at + 1) } else { None };
            if found.is_some() {
                return found;
            }
            self.chosen.pop();
            self.charge(at, flavor, -1);
            if self.budget == 0 {
                return None;
            }
        }
        None
    }

    /// The flavors that have enough quota for a choice, the preferred one first: in the order of the queue,
    /// or by borrowing level with `whenCanBorrow: TryNextFlavor`.
    fn options(&mut self, at: usize) -> Vec<FlavorIx> {
        let mut options: Vec<(u32, FlavorIx)> = Vec::new();
        let fixed = self.fixed_flavor(at);
        if let Some(flavor) = fixed.filter(|fixed| !self.choices[at].flavors.contains(fixed)) {
            let queue = self.queue.name.clone();
            let flavor = self.ledger.world.flavor_name(flavor).to_owned();
            self.add_refusal((
                vec![Cause::Quota(QuotaCause::NotOffered { queue, flavor })],
                QueueingHint::ClusterChange,
            ));
        }
        for &flavor in
            self.choices[at].flavors.iter().filter(|flavor| fixed.is_none_or(|fixed| fixed == **flavor))
        {
            match self.check_flavor(at, flavor) {
                Ok(level) => options.push((level, flavor)),
                Err(refusal) => self.add_refusal(refusal),
            }
        }
        if self.queue.fungibility.when_can_borrow == FlavorFungibilityPolicy::TryNextFlavor {
            options.sort_by_key(|(level, _)| *level);
        }
        options.into_iter().map(|(_, flavor)| flavor).collect()
    }

    /// The flavor of the running pods, for a choice of a scale-up.
    fn fixed_flavor(&self, at: usize) -> Option<FlavorIx> {
        let (choice, scale_up) = (&self.choices[at], self.request.shape.scale_up.as_ref()?);
        let flavors = choice.pod_sets.iter().filter_map(|at| scale_up.flavors.get(*at));
        let mut given = flavors.flat_map(|flavors| choice.needs.iter().filter_map(|(ix, _)| flavors.get(ix)));
        given.next().copied()
    }

    /// The borrowing level of a flavor for a choice, or why the flavor cannot be used.
    fn check_flavor(&self, at: usize, flavor: FlavorIx) -> Result<u32, Refusal> {
        let choice = &self.choices[at];
        check_compatible(self.ledger.world, self.request, &choice.pod_sets, flavor)?;
        let mut level = 0;
        for (resource, needs) in &choice.needs {
            let Some(node) = self.quota else { break };
            let of = FlavorResource { flavor, resource: *resource };
            self.trial.shortage(node, of, *needs)?;
            level = level.max(self.trial.borrowing_level(node, of, *needs));
        }
        Ok(level)
    }

    fn charge(&mut self, at: usize, flavor: FlavorIx, sign: i128) {
        for (resource, needs) in &self.choices[at].needs {
            if let Some(node) = self.quota {
                self.trial.charge(node, FlavorResource { flavor, resource: *resource }, sign * needs);
            }
        }
    }

    /// Whether the pod sets of a flavor group fit without the others. Checked at the last choice of the group
    /// only.
    fn has_room(&mut self, at: usize) -> bool {
        let choice = &self.choices[at];
        if !choice.is_last || self.choices.iter().all(|other| other.pod_sets == choice.pod_sets) {
            return true; // The placement of all pod sets checks it.
        }
        let alone: BTreeSet<usize> = choice.pod_sets.iter().copied().collect();
        let placed = self.place_alone(&alone);
        self.record(placed).is_some()
    }

    fn place_alone(&mut self, pod_sets: &BTreeSet<usize>) -> Result<(), Refusal> {
        self.budget = self.budget.saturating_sub(1);
        let flavors = self.flavors();
        let shape = with_flavor_constraints(self.ledger.world, self.request.shape, &flavors);
        let shape = shape.without(&self.request.unplaced(self.ledger.world, &flavors));
        let some = part(&shape, pod_sets);
        if some.pod_sets.iter().all(|pod_set| pod_set.count == 0) {
            return Ok(());
        }
        find_placement(self.ledger, &some, &some).map(|_| ())
    }

    fn record<T>(&mut self, placed: Result<T, Refusal>) -> Option<T> {
        let (causes, hint) = match placed {
            Ok(placed) => return Some(placed),
            Err(refusal) => refusal,
        };
        let chosen: BTreeSet<FlavorIx> =
            self.chosen.iter().copied().filter(|ix| *ix != FlavorIx::ANY).collect();
        let flavors: Vec<String> =
            chosen.iter().map(|ix| self.ledger.world.flavor_name(*ix).to_owned()).collect();
        let within = |cause| match flavors.as_slice() {
            [] => cause,
            _ => Cause::WithFlavors { flavors: flavors.clone(), cause: Box::new(cause) },
        };
        self.add_refusal((causes.into_iter().map(within).collect(), hint));
        None
    }

    fn add_refusal(&mut self, (causes, hint): Refusal) {
        self.hint = self.hint.max(hint);
        add_new(&mut self.causes, causes);
    }

    /// The flavors chosen so far, by pod set and resource.
    fn flavors(&self) -> Flavors {
        let shape = self.request.shape;
        let excess = shape.declared_excess();
        let mut flavors = vec![BTreeMap::new(); shape.pod_sets.len().max(1)];
        for (choice, flavor) in self.choices.iter().zip(&self.chosen) {
            for at in &choice.pod_sets {
                let requested = choice.needs.iter().filter(|(ix, _)| needs(shape, &excess, *at, *ix) > 0);
                flavors[*at].extend(requested.map(|(ix, _)| (*ix, *flavor)));
            }
        }
        flavors
    }
}

/// Why a gang could not start even on an empty cluster with all quota unused and all nodes ready; empty if it
/// could, as far as that is proven here: each flavor group is checked alone.
pub(crate) fn permanent_causes(world: &World, request: &GangRequest<'_>, queue: &Queue) -> Vec<Cause> {
    let choices = match choices(world, request, queue) {
        Ok(choices) => choices,
        Err((causes, _)) => return causes,
    };
    let mut at = 0;
    while at < choices.len() {
        let end = at + choices[at..].iter().position(|choice| choice.is_last).map_or(1, |last| last + 1);
        let causes = permanent_causes_of(world, request, &choices[at..end]);
        if !causes.is_empty() {
            return causes;
        }
        at = end;
    }
    Vec::new()
}

/// Why the pod sets of a flavor group could not start with any combination of flavors.
fn permanent_causes_of(world: &World, request: &GangRequest<'_>, choices: &[FlavorChoice<'_>]) -> Vec<Cause> {
    let counts = choices.iter().map(|choice| choice.flavors.len());
    let combinations = counts.fold(1, usize::saturating_mul);
    if combinations > PLACEMENTS as usize {
        return Vec::new();
    }
    let mut causes: Vec<Cause> = Vec::new();
    for number in 0..combinations {
        let mut rest = number;
        let chosen: Vec<FlavorIx> = choices
            .iter()
            .rev()
            .map(|choice| {
                let flavor = choice.flavors[rest % choice.flavors.len()];
                rest /= choice.flavors.len();
                flavor
            })
            .collect();
        let found = permanent_causes_with(world, request, choices, &chosen);
        if found.is_empty() {
            return Vec::new();
        }
        add_new(&mut causes, found);
    }
    causes
}

/// The same with one combination of flavors, the last choice first.
fn permanent_causes_with(
    world: &World,
    request: &GangRequest<'_>,
    choices: &[FlavorChoice<'_>],
    chosen: &[FlavorIx],
) -> Vec<Cause> {
    let excess = request.shape.declared_excess();
    let mut flavors: Flavors = vec![BTreeMap::new(); request.shape.pod_sets.len().max(1)];
    for (choice, flavor) in choices.iter().zip(chosen.iter().rev()) {
        if let Err((causes, _)) = check_compatible(world, request, &choice.pod_sets, *flavor) {
            return causes;
        }
        for (resource, needs) in &choice.needs {
            let of = FlavorResource { flavor: *flavor, resource: *resource };
            let short = request.quota(world).and_then(|node| exceeds_potential(world, node, of, *needs));
            if let Some(cause) = short {
                return vec![cause];
            }
        }
        for at in &choice.pod_sets {
            let requested = choice.needs.iter().filter(|(ix, _)| needs(request.shape, &excess, *at, *ix) > 0);
            flavors[*at].extend(requested.map(|(ix, _)| (*ix, *flavor)));
        }
    }
    let shape = with_flavor_constraints(world, request.shape, &flavors);
    let shape = shape.without(&request.unplaced(world, &flavors));
    explain::permanent_causes(world, &part(&shape, &choices[0].pod_sets.iter().copied().collect()))
}

/// The shape of some pod sets alone.
fn part(shape: &Shape, pod_sets: &BTreeSet<usize>) -> Shape {
    let some = shape.pod_sets.iter().enumerate().filter(|(at, _)| pod_sets.contains(at));
    let pod_sets = some.map(|(_, pod_set)| pod_set.clone()).collect();
    Shape { pod_sets, declared: None, scale_up: None, ..shape.clone() }
}

/// Adds new causes, up to the limit of a refusal.
fn add_new(causes: &mut Vec<Cause>, more: Vec<Cause>) {
    for cause in more {
        if causes.len() < CAUSES && !causes.contains(&cause) {
            causes.push(cause);
        }
    }
}
