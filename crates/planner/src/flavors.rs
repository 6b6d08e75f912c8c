//! Which flavors the pods of a gang are given, judged together with the places that they leave.
//!
//! Pod set by pod set, and within it group of resources by group, flavors are tried in the order of the queue, after
//! Kueue's flavor assigner (`pkg/scheduler/flavorassigner`, v0.19): so the first answer is Kueue's. Where it has no place for
//! every pod, or leaves no quota for a later pod set, the search goes back and tries other combinations, within a budget.

mod alternatives;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use model::{
    Amount, Cause, Constraints, Effect, Flavor, FlavorIx, FlavorResource, NextFlavor, NodeClass, PodSet,
    Queue, QueueingHint, QuotaCause, QuotaIx, ResourceIx, ResourceVec, Shape, Undeclared, World,
};

use crate::explain;
use crate::fit::seat;
use crate::ledger::Ledger;
use crate::place::Placement;
use crate::quota::{Trial, beyond};
use crate::request::{Fit, Flavors, GangRequest, Refusal};
pub(crate) use alternatives::Alternatives;

/// How many placements are tried for one gang.
const PLACEMENTS: u32 = 64;

/// How many causes a refusal names.
const CAUSES: usize = 6;

/// One flavor is to be chosen for these resources of pod sets that are flavored together.
struct Choice<'w> {
    /// The pod sets, by index.
    pod_sets: Vec<usize>,
    /// What they need together of each resource.
    needs: Vec<(ResourceIx, i128)>,
    /// The flavors, in the order of the queue.
    flavors: &'w [FlavorIx],
    /// No later choice concerns these pod sets.
    is_last: bool,
}

/// Flavors and places for a gang whose queue has groups of resources.
pub(crate) fn choose(
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
        wake: QueueingHint::Nodes,
    };
    match search.descend(0) {
        Some(placement) => Ok(Fit { placement, flavors: search.flavors() }),
        None if search.budget == 0 => Err((search.causes, QueueingHint::Change)),
        // Flavors open nodes that the gang itself would not tolerate.
        None if search.wake == QueueingHint::Room => Err((search.causes, QueueingHint::Supply)),
        None => Err((search.causes, search.wake)),
    }
}

/// Whether a gang may still have the flavors that it was given: rules of queues and flavors change.
pub(crate) fn are_open(world: &World, request: &GangRequest<'_>, flavors: &Flavors) -> bool {
    let Some(queue) = world.queues().get(&request.queue).filter(|queue| !queue.groups.is_empty()) else {
        return flavors.iter().all(BTreeMap::is_empty);
    };
    let excess = request.shape.excess();
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
                    && suits(world, request.shape, &choice.pod_sets, *flavor).is_ok()
            })
        })
    })
}

/// The choices for a gang, in the order in which they are made; or the resource that the queue does not declare.
fn choices<'w>(
    world: &World,
    request: &GangRequest<'_>,
    queue: &'w Queue,
) -> Result<Vec<Choice<'w>>, Refusal> {
    let shape = request.shape;
    let excess = shape.excess();
    declared(world, request, queue)?;
    let mut choices: Vec<Choice<'w>> = Vec::new();
    for pod_sets in units(&shape.pod_sets) {
        let before = choices.len();
        for group in &queue.groups {
            let needs = |resource: &ResourceIx| {
                let asked = pod_sets.iter().map(|at| needs(shape, &excess, *at, *resource)).sum::<i128>();
                (asked > 0).then_some((*resource, asked))
            };
            let needs: Vec<_> = group.resources.iter().filter_map(needs).collect();
            if !needs.is_empty() {
                choices.push(Choice {
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

/// Pod sets that are flavored together, by index.
fn units(pod_sets: &[PodSet]) -> Vec<Vec<usize>> {
    if pod_sets.is_empty() {
        return vec![vec![0]]; // What is declared without any pod.
    }
    let mut units: Vec<Vec<usize>> = Vec::new();
    for (at, pod_set) in pod_sets.iter().enumerate() {
        let mates =
            units.iter_mut().find(|unit| pod_set.group.is_some() && pod_sets[unit[0]].group == pod_set.group);
        match mates {
            Some(unit) => unit.push(at),
            None => units.push(vec![at]),
        }
    }
    units
}

/// What a pod set needs of a resource; what is declared beyond the pods counts to the first that asks for it, or else to the
/// very first.
fn needs(shape: &Shape, excess: &ResourceVec, at: usize, resource: ResourceIx) -> i128 {
    let asked = |pod_set: &PodSet| pod_set.asked(resource);
    let first = shape.pod_sets.iter().position(|pod_set| asked(pod_set) > 0).unwrap_or(0);
    let beyond = if at == first { i128::from(excess.get(resource).0) } else { 0 };
    shape.pod_sets.get(at).map_or(0, asked) + beyond
}

/// That a queue declares all that is asked for. Pods are only counted where they are declared.
fn declared(world: &World, request: &GangRequest<'_>, queue: &Queue) -> Result<(), Refusal> {
    let offers = |ix| queue.groups.iter().any(|group| group.resources.contains(&ix));
    let asked = request.shape.promise();
    let mut missing =
        asked.iter().filter(|(ix, amount)| *amount > Amount::ZERO && *ix != ResourceIx::PODS && !offers(*ix));
    match missing.next() {
        Some((ix, _)) if queue.undeclared == Undeclared::Refuse => {
            let (queue, resource) = (queue.name.clone(), world.resources().name(ix).to_owned());
            Err((vec![Cause::Quota(QuotaCause::Undeclared { queue, resource })], QueueingHint::Nodes))
        }
        _ => Ok(()),
    }
}

struct Search<'a, 'w> {
    ledger: &'a Ledger<'w>,
    request: &'a GangRequest<'a>,
    queue: &'a Queue,
    quota: Option<QuotaIx>,
    choices: Vec<Choice<'a>>,
    trial: Trial<'a>,
    /// The flavors of the first choices.
    chosen: Vec<FlavorIx>,
    budget: u32,
    causes: Vec<Cause>,
    wake: QueueingHint,
}

impl Search<'_, '_> {
    /// Makes the choices from `at` on, and places all pods.
    fn descend(&mut self, at: usize) -> Option<Placement> {
        if at == self.choices.len() {
            let placed = self.place(|_| true);
            return self.note(placed);
        }
        for flavor in self.options(at) {
            self.take(at, flavor, 1);
            self.chosen.push(flavor);
            let found = if self.has_room(at) { self.descend(at + 1) } else { None };
            if found.is_some() {
                return found;
            }
            self.chosen.pop();
            self.take(at, flavor, -1);
            if self.budget == 0 {
                return None;
            }
        }
        None
    }

    /// The flavors that would do for a choice as far as quota tells, the preferred one first: in the order of the queue,
    /// unless it wants borrowing to be avoided.
    fn options(&mut self, at: usize) -> Vec<FlavorIx> {
        let mut options: Vec<(u32, FlavorIx)> = Vec::new();
        let given = self.given(at);
        if let Some(flavor) = given.filter(|given| !self.choices[at].flavors.contains(given)) {
            let queue = self.queue.name.clone();
            let flavor = self.ledger.world.flavor_name(flavor).to_owned();
            self.refuse((vec![Cause::Quota(QuotaCause::NotOffered { queue, flavor })], QueueingHint::Nodes));
        }
        for &flavor in
            self.choices[at].flavors.iter().filter(|flavor| given.is_none_or(|given| given == **flavor))
        {
            match self.judge(at, flavor) {
                Ok(level) => options.push((level, flavor)),
                Err(refusal) => self.refuse(refusal),
            }
        }
        if self.queue.fungibility.when_can_borrow == NextFlavor::Try {
            options.sort_by_key(|(level, _)| *level);
        }
        options.into_iter().map(|(_, flavor)| flavor).collect()
    }

    /// The flavor that a choice is bound to, where pods join others.
    fn given(&self, at: usize) -> Option<FlavorIx> {
        let (choice, scale_up) = (&self.choices[at], self.request.shape.scale_up.as_ref()?);
        let flavors = choice.pod_sets.iter().filter_map(|at| scale_up.flavors.get(*at));
        let mut given = flavors.flat_map(|flavors| choice.needs.iter().filter_map(|(ix, _)| flavors.get(ix)));
        given.next().copied()
    }

    /// How high up a flavor has to be borrowed for a choice, or why it cannot be had.
    fn judge(&self, at: usize, flavor: FlavorIx) -> Result<u32, Refusal> {
        let choice = &self.choices[at];
        suits(self.ledger.world, self.request.shape, &choice.pod_sets, flavor)?;
        let mut level = 0;
        for (resource, needs) in &choice.needs {
            let Some(node) = self.quota else { break };
            let of = FlavorResource { flavor, resource: *resource };
            self.trial.shortage(node, of, *needs)?;
            level = level.max(self.trial.borrowing_level(node, of, *needs));
        }
        Ok(level)
    }

    fn take(&mut self, at: usize, flavor: FlavorIx, sign: i128) {
        for (resource, needs) in &self.choices[at].needs {
            if let Some(node) = self.quota {
                self.trial.charge(node, FlavorResource { flavor, resource: *resource }, sign * needs);
            }
        }
    }

    /// Whether the pod sets of a choice, their last one, have room if they had the nodes to themselves.
    fn has_room(&mut self, at: usize) -> bool {
        let choice = &self.choices[at];
        if !choice.is_last || self.choices.iter().all(|other| other.pod_sets == choice.pod_sets) {
            return true; // Said when all are placed.
        }
        let alone: BTreeSet<usize> = choice.pod_sets.iter().copied().collect();
        let placed = self.place(|at| alone.contains(&at));
        self.note(placed).is_some()
    }

    fn place(&mut self, which: impl Fn(usize) -> bool) -> Result<Placement, Refusal> {
        self.budget = self.budget.saturating_sub(1);
        let flavors = self.flavors();
        let shape = narrowed(self.ledger.world, self.request.shape, &flavors);
        if (0..shape.pod_sets.len()).all(&which) {
            return seat(self.ledger, &shape, self.request.shape);
        }
        let some = shape.pod_sets.iter().enumerate().filter(|(at, _)| which(*at));
        let pod_sets = some.map(|(_, pod_set)| pod_set.clone()).collect();
        let some = Shape { pod_sets, declared: None, scale_up: None, excluded: shape.excluded.clone() };
        seat(self.ledger, &some, &some)
    }

    fn note<T>(&mut self, placed: Result<T, Refusal>) -> Option<T> {
        let (causes, wake) = match placed {
            Ok(placed) => return Some(placed),
            Err(refusal) => refusal,
        };
        let chosen: BTreeSet<FlavorIx> =
            self.chosen.iter().copied().filter(|ix| *ix != FlavorIx::ANY).collect();
        let flavors: Vec<String> =
            chosen.iter().map(|ix| self.ledger.world.flavor_name(*ix).to_owned()).collect();
        let within = |cause| match flavors.as_slice() {
            [] => cause,
            _ => Cause::In { flavors: flavors.clone(), cause: Box::new(cause) },
        };
        self.refuse((causes.into_iter().map(within).collect(), wake));
        None
    }

    fn refuse(&mut self, (causes, wake): Refusal) {
        self.wake = self.wake.max(wake);
        add_new(&mut self.causes, causes);
    }

    /// What was chosen so far, by pod set and resource.
    fn flavors(&self) -> Flavors {
        let shape = self.request.shape;
        let excess = shape.excess();
        let mut flavors = vec![BTreeMap::new(); shape.pod_sets.len().max(1)];
        for (choice, flavor) in self.choices.iter().zip(&self.chosen) {
            for at in &choice.pod_sets {
                let asked = choice.needs.iter().filter(|(ix, _)| needs(shape, &excess, *at, *ix) > 0);
                flavors[*at].extend(asked.map(|(ix, _)| (*ix, *flavor)));
            }
        }
        flavors
    }
}

/// Whether pod sets may have a flavor: each of them tolerates its taints, and matches its labels as far as it asks for keys
/// that the flavor defines.
fn suits(world: &World, shape: &Shape, pod_sets: &[usize], ix: FlavorIx) -> Result<(), Refusal> {
    let refuse = |cause| Err((vec![Cause::Quota(cause)], QueueingHint::Nodes));
    let name = || world.flavor_name(ix).to_owned();
    let Some(flavor) = world.flavors().get(&ix) else {
        return refuse(QuotaCause::NoFlavor { flavor: name() });
    };
    for pod_set in pod_sets.iter().filter_map(|at| shape.pod_sets.get(*at)).filter(|set| set.count > 0) {
        let constraints = &pod_set.constraints;
        let tolerated = |taint| {
            let mut tolerations = constraints.tolerations.iter().chain(&flavor.tolerations);
            tolerations.any(|toleration| toleration.covers(taint))
        };
        let mut taints = flavor.node_taints.iter().filter(|taint| taint.effect != Effect::PreferNoSchedule);
        if let Some(taint) = taints.find(|taint| !tolerated(taint)) {
            let (pod_set, taint) = (pod_set.name.clone(), taint.clone());
            return refuse(QuotaCause::Untolerated { pod_set, flavor: name(), taint });
        }
        if !matches(constraints, flavor) {
            return refuse(QuotaCause::Unmatched { pod_set: pod_set.name.clone(), flavor: name() });
        }
    }
    Ok(())
}

/// Whether nodes with the labels of a flavor could match, looking at no other labels.
fn matches(constraints: &Constraints, flavor: &Flavor) -> bool {
    let labels = &flavor.node_labels;
    let is_known = |key: &String| labels.contains_key(key);
    let mut known =
        Constraints { node_selector: constraints.node_selector.clone(), ..Constraints::default() };
    known.node_selector.retain(|key, _| is_known(key));
    known.node_affinity.clone_from(&constraints.node_affinity);
    for term in &mut known.node_affinity {
        term.expressions.retain(|wanted| is_known(&wanted.key));
        term.fields.clear();
    }
    // A term that says nothing of these keys matches.
    if known.node_affinity.iter().any(|term| term.expressions.is_empty()) {
        known.node_affinity.clear();
    }
    let class = NodeClass {
        labels: labels.clone(),
        name: None,
        taints: Vec::new(),
        unschedulable: false,
        ready: true,
    };
    known.obstacle(&class).is_none()
}

/// A shape whose pods go where their flavors are, with the tolerations of these.
pub(crate) fn narrowed<'s>(world: &World, shape: &'s Shape, flavors: &Flavors) -> Cow<'s, Shape> {
    let given = |at: usize| {
        let ixs: BTreeSet<FlavorIx> =
            flavors.get(at).into_iter().flat_map(BTreeMap::values).copied().collect();
        ixs.into_iter().filter_map(|ix| world.flavors().get(&ix))
    };
    let says_nothing = |flavor: &Flavor| flavor.node_labels.is_empty() && flavor.tolerations.is_empty();
    if (0..shape.pod_sets.len()).all(|at| given(at).all(says_nothing)) {
        return Cow::Borrowed(shape);
    }
    let mut pod_sets = shape.pod_sets.to_vec();
    for (at, pod_set) in pod_sets.iter_mut().enumerate() {
        for flavor in given(at) {
            demand(&mut pod_set.constraints, flavor);
        }
    }
    Cow::Owned(Shape { pod_sets: pod_sets.into(), ..shape.clone() })
}

/// Adds what a flavor asks of nodes and its tolerations. Two flavors that contradict each other leave no node.
fn demand(constraints: &mut Constraints, flavor: &Flavor) {
    for (key, value) in &flavor.node_labels {
        match constraints.node_selector.get(key) {
            Some(wanted) if wanted != value => constraints.node_affinity = vec![model::Term::default()], // Matches nothing.
            _ => {
                constraints.node_selector.insert(key.clone(), value.clone());
            }
        }
    }
    constraints.tolerations.extend(flavor.tolerations.iter().cloned());
}

/// Why a gang could not even start if nothing else ran, no quota were used and every node were ready; empty if it could, as
/// far as is proven here: each pod set that is flavored with others, or alone, is looked at for itself.
pub(crate) fn never(world: &World, request: &GangRequest<'_>, queue: &Queue) -> Vec<Cause> {
    let choices = match choices(world, request, queue) {
        Ok(choices) => choices,
        Err((causes, _)) => return causes,
    };
    let mut at = 0;
    while at < choices.len() {
        let end = at + choices[at..].iter().position(|choice| choice.is_last).map_or(1, |last| last + 1);
        let causes = never_alone(world, request, &choices[at..end]);
        if !causes.is_empty() {
            return causes;
        }
        at = end;
    }
    Vec::new()
}

/// Why pod sets that are flavored together could not start alone with any combination of flavors.
fn never_alone(world: &World, request: &GangRequest<'_>, choices: &[Choice<'_>]) -> Vec<Cause> {
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
        let found = never_with(world, request, choices, &chosen);
        if found.is_empty() {
            return Vec::new();
        }
        add_new(&mut causes, found);
    }
    causes
}

/// The same with the flavors of each choice, the last one first.
fn never_with(
    world: &World,
    request: &GangRequest<'_>,
    choices: &[Choice<'_>],
    chosen: &[FlavorIx],
) -> Vec<Cause> {
    let mut flavors: Flavors = vec![BTreeMap::new(); request.shape.pod_sets.len().max(1)];
    for (choice, flavor) in choices.iter().zip(chosen.iter().rev()) {
        if let Err((causes, _)) = suits(world, request.shape, &choice.pod_sets, *flavor) {
            return causes;
        }
        for (resource, needs) in &choice.needs {
            let of = FlavorResource { flavor: *flavor, resource: *resource };
            let short = request.quota(world).and_then(|node| beyond(world, node, of, *needs));
            if let Some(cause) = short {
                return vec![cause];
            }
        }
        for at in &choice.pod_sets {
            flavors[*at].extend(choice.needs.iter().map(|(ix, _)| (*ix, *flavor)));
        }
    }
    let shape = narrowed(world, request.shape, &flavors);
    let own = &choices[0].pod_sets;
    let some = shape.pod_sets.iter().enumerate().filter(|(at, _)| own.contains(at));
    let pod_sets = some.map(|(_, pod_set)| pod_set.clone()).collect();
    let some = Shape { pod_sets, declared: None, scale_up: None, excluded: shape.excluded.clone() };
    explain::never(world, &some)
}

/// Adds causes that are not yet there, up to as many as a refusal names.
fn add_new(causes: &mut Vec<Cause>, more: Vec<Cause>) {
    for cause in more {
        if causes.len() < CAUSES && !causes.contains(&cause) {
            causes.push(cause);
        }
    }
}
