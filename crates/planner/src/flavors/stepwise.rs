//! The flavors of a gang whose pods get no node: chosen one after another, each beside those before it, and never
//! taken back. After Kueue's flavor assigner (`pkg/scheduler/flavorassigner`, v0.19).
//!
//! A gang that gets no flavors is tried again from the flavors behind those of the last attempt, until every choice has
//! seen its last flavor (`FlavorFungibilityPreserveScanProgress`).

use std::collections::{BTreeMap, BTreeSet};

use model::{Cause, FlavorIx, FlavorResource, Queue, QueueingHint, World};

use super::{CAUSES, FlavorChoice, add_new, check_compatible, choices, needs};
use crate::fungibility::{Mode, rank, stops_search};
use crate::quota::{exceeds_potential, shortfall};
use crate::request::{Flavors, GangRequest, Refusal};

/// The first flavor of each choice that an attempt tries; from the first one on where it is not listed.
pub(crate) type Progress = Vec<usize>;

/// How a gang would get an amount of a resource in a flavor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chance {
    pub(crate) mode: Mode,
    /// The level at which the gang would borrow.
    pub(crate) level: u32,
    /// The unused quota.
    pub(crate) available: i128,
}

/// What a pod set lacks in a flavor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// The pod sets that would get the flavor, by index.
    pub pod_sets: Vec<usize>,
    /// What it lacks.
    pub reason: LackReason,
}

/// See [`Lack`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LackReason {
    /// The pods may not use the flavor.
    Refused(Cause),
    /// Quota is short.
    Quota {
        /// The resource in the flavor.
        of: FlavorResource,
        /// What the pod sets before it take.
        before: i128,
        /// The request.
        needs: i128,
        /// The unused quota; none if the amounts exceed what could ever be used.
        available: Option<i128>,
    },
}

/// The outcome of one attempt.
pub(crate) struct Attempt {
    /// The flavors of the pod sets before the first one that gets none, or of all.
    pub(crate) flavors: Flavors,
    /// The worst mode of the choices.
    pub(crate) mode: Mode,
    /// The highest borrowing level of the choices.
    pub(crate) level: u32,
    pub(crate) lacks: Vec<Lack>,
    /// Where the next attempt starts.
    pub(crate) next: Progress,
}

impl Attempt {
    /// Why the gang does not fit.
    pub(crate) fn causes(&self, world: &World, request: &GangRequest<'_>) -> Vec<Cause> {
        let node = request.quota(world);
        let mut causes = Vec::new();
        for lack in &self.lacks {
            let cause = match &lack.reason {
                LackReason::Refused(cause) => Some(cause.clone()),
                LackReason::Quota { of, before, needs, available } => node.map(|node| {
                    let most = || world.forest().potential_available(node, *of);
                    let left = available.unwrap_or_else(most) - before;
                    Cause::Quota(shortfall(world, node, *of, *needs, Some(left)))
                }),
            };
            add_new(&mut causes, cause.into_iter().collect());
        }
        causes.truncate(CAUSES);
        causes
    }
}

/// The attempts of a gang in a cycle.
#[derive(Default)]
pub(crate) struct Attempts {
    /// Where the next one starts.
    pub(crate) from: Progress,
    /// Where former ones started. Kueue has no such memory, and tries some gangs for ever.
    seen: BTreeSet<Progress>,
}

impl Attempts {
    /// Whether the next attempt finds anything new.
    pub(crate) fn may_continue_at(&self, next: &Progress) -> bool {
        next.iter().any(|from| *from > 0) && *next != self.from && !self.seen.contains(next)
    }

    /// Continues there, or from the first flavors.
    pub(crate) fn continue_at(&mut self, next: Progress) {
        let next = if self.may_continue_at(&next) { next } else { Progress::new() };
        self.seen.insert(std::mem::replace(&mut self.from, next));
    }
}

/// Whether flavors of a gang are chosen one after another: quota alone decides.
pub(crate) fn is_stepwise(world: &World, request: &GangRequest<'_>) -> bool {
    let shape = request.shape;
    let is_plain =
        shape.scale_up.is_none() && shape.replaces.is_none() && !shape.gated && request.charges.is_empty();
    is_plain && needs_quota_alone(world, request)
}

/// Whether the queue of a gang has flavors, and quota alone decides about the gang.
pub(crate) fn needs_quota_alone(world: &World, request: &GangRequest<'_>) -> bool {
    let Some(queue) = world.queues().get(&request.queue) else { return false };
    let mut flavors = queue.groups.iter().flat_map(|group| &group.flavors).peekable();
    flavors.peek().is_some()
        && (request.shape.places_open
            || !queue.places_pods && flavors.all(|flavor| world.is_quota_only(*flavor)))
}

/// One attempt. `chance` tells how an amount can be got that does not exceed what could ever be used.
pub(crate) fn attempt(
    world: &World,
    request: &GangRequest<'_>,
    from: &Progress,
    chance: &mut dyn FnMut(FlavorResource, i128) -> Chance,
) -> Result<Attempt, Refusal> {
    let Some(queue) = world.queues().get(&request.queue) else {
        return Err((Vec::new(), QueueingHint::ClusterChange));
    };
    let choices = choices(world, request, queue)?;
    let (shape, excess) = (request.shape, request.shape.declared_excess());
    let mut attempt = Attempt {
        flavors: vec![BTreeMap::new(); shape.pod_sets.len().max(1)],
        mode: Mode::Fit,
        level: 0,
        lacks: Vec::new(),
        next: Progress::new(),
    };
    let mut used: BTreeMap<FlavorResource, i128> = BTreeMap::new();
    for (at, choice) in choices.iter().enumerate() {
        let first = from.get(at).copied().unwrap_or(0);
        let step = Step { world, request, queue, choice, used: &used }.choose(first, chance);
        attempt.mode = attempt.mode.max(step.mode);
        let Some(flavor) = step.flavor else {
            // These pod sets get no flavor at all, and those behind them are not looked at.
            for (other, next) in choices.iter().zip(&mut attempt.next) {
                *next = if other.pod_sets == choice.pod_sets { 0 } else { *next };
            }
            attempt.lacks.retain(|lack| lack.pod_sets != choice.pod_sets);
            attempt.lacks.extend(step.lacks);
            break;
        };
        attempt.lacks.extend(step.lacks);
        attempt.next.push(step.next);
        attempt.level = attempt.level.max(step.level);
        for (resource, amount) in &choice.needs {
            *used.entry(FlavorResource { flavor, resource: *resource }).or_default() += amount;
        }
        for pod_set in &choice.pod_sets {
            let requested = choice.needs.iter().filter(|(ix, _)| needs(shape, &excess, *pod_set, *ix) > 0);
            attempt.flavors[*pod_set].extend(requested.map(|(ix, _)| (*ix, flavor)));
        }
    }
    Ok(attempt)
}

/// One choice beside those before it.
struct Step<'a, 'w> {
    world: &'w World,
    request: &'a GangRequest<'a>,
    queue: &'w Queue,
    choice: &'a FlavorChoice<'w>,
    /// What the choices before it take.
    used: &'a BTreeMap<FlavorResource, i128>,
}

/// The outcome of a choice.
struct Chosen {
    flavor: Option<FlavorIx>,
    mode: Mode,
    level: u32,
    /// What the choice lacks, flavor by flavor; empty if it fits.
    lacks: Vec<Lack>,
    next: usize,
}

impl Step<'_, '_> {
    /// Tries flavors from the first one on until one is good enough for the queue, and takes the best one.
    fn choose(&self, first: usize, chance: &mut dyn FnMut(FlavorResource, i128) -> Chance) -> Chosen {
        let mut best = Chosen { flavor: None, mode: Mode::Never, level: 0, lacks: Vec::new(), next: 0 };
        let mut lacks = Vec::new();
        for (at, flavor) in self.choice.flavors.iter().enumerate().skip(first) {
            let pod_sets = &self.choice.pod_sets;
            if let Err((causes, _)) = check_compatible(self.world, self.request, pod_sets, *flavor) {
                let refused = |cause| self.lack(LackReason::Refused(cause));
                lacks.extend(causes.into_iter().map(refused));
                continue;
            }
            let (mode, level) = self.judge(*flavor, chance, &mut lacks);
            let ends = stops_search(self.queue, mode, level);
            let is_better = best.flavor.is_none()
                || rank(self.queue, mode, level) < rank(self.queue, best.mode, best.level);
            if mode != Mode::Never && (ends || is_better) {
                best = Chosen { flavor: Some(*flavor), mode, level, lacks: Vec::new(), next: 0 };
            }
            if ends {
                best.next = (at + 1) % self.choice.flavors.len();
                break;
            }
        }
        if best.mode != Mode::Fit {
            best.lacks = lacks;
        }
        best
    }

    /// The worst mode and level among the resources in a flavor.
    fn judge(
        &self,
        flavor: FlavorIx,
        chance: &mut dyn FnMut(FlavorResource, i128) -> Chance,
        lacks: &mut Vec<Lack>,
    ) -> (Mode, u32) {
        let mut worst = (Mode::Fit, 0);
        for (resource, needs) in &self.choice.needs {
            let of = FlavorResource { flavor, resource: *resource };
            let before = self.used.get(&of).copied().unwrap_or_default();
            let Some(node) = self.request.quota(self.world) else { break };
            let lack = |available| LackReason::Quota { of, before, needs: *needs, available };
            let (mode, level) = if exceeds_potential(self.world, node, of, before + needs).is_some() {
                lacks.push(self.lack(lack(None)));
                (Mode::Never, 0)
            } else {
                let Chance { mode, level, available } = chance(of, before + needs);
                if mode != Mode::Fit {
                    lacks.push(self.lack(lack(Some(available))));
                }
                (mode, level)
            };
            if rank(self.queue, worst.0, worst.1) < rank(self.queue, mode, level) {
                worst = (mode, level);
            }
        }
        worst
    }

    fn lack(&self, reason: LackReason) -> Lack {
        Lack { pod_sets: self.choice.pod_sets.clone(), reason }
    }
}
