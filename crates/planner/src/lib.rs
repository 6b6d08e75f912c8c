//! Every queueing decision, in one pure function: [`plan`].
//!
//! - `order` and the loop here: who is tried, and in which sequence;
//! - `wake`: which parked gangs are worth trying again after what changed;
//! - `ledger`: what this pass has taken out of the world so far;
//! - `terrain` and `pools`: the nodes as one gang sees them, and what is promised on sets of them without a place;
//! - `fit`: whether a gang fits, by bounds that prove it does not, then by placement;
//! - `place` and `search`: pods to nodes, first by rules of thumb, then exhaustively within a budget;
//! - `preempt` and `nominate`: whom to stop for a gang, and whether its places are free at last;
//! - `explain`: why it does not fit, in figures.
//!
//! What the words mean is left to `model`; whether a plan is right is judged by `audit`, which shares no code with this.

#![deny(clippy::float_arithmetic, clippy::float_cmp)]

mod explain;
mod fit;
mod ledger;
mod nominate;
mod place;
mod pools;
mod preempt;
mod search;
mod terrain;
mod wake;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;
use std::ops::Bound;

use model::{
    Cause, Gang, GangState, OrderKey, Plan, Preempting, Preemption, Shape, ShapeIx, ShapeRow, Shortage,
    Snapshot, Verdict, Wake, World,
};

use crate::ledger::Ledger;
use crate::preempt::{Leave, Room};

/// Decides what becomes of every waiting gang that was not decided yet or that could fare better than last time.
///
/// Gangs are tried in order: priority, then time of queueing, then name. One that does not fit holds up nobody. A gang
/// that fits is admitted with a node for every pod, and what it takes is gone for those after it.
///
/// Pure and total: equal snapshots give equal plans, and a gang that cannot start is not an error but a verdict.
pub fn plan(snapshot: &Snapshot<'_>) -> Plan {
    let world = snapshot.world;
    let mut plan = Plan { generation: world.generation(), verdicts: Vec::new() };
    let mut ledger = Ledger::of(world);
    let mut nominated: Vec<&Gang> = world.nominated().collect();
    nominated.sort_by_key(|gang| (Reverse(gang.priority), gang.queued_at, &gang.key, &gang.uid));
    for gang in nominated {
        let GangState::Nominated(preemption) = &gang.state else { continue };
        let verdict = nominate::settle(&mut ledger, gang, preemption);
        plan.verdicts.extend(verdict.map(|verdict| (gang.uid.clone(), verdict)));
    }

    let mut stopped: BTreeSet<String> = BTreeSet::new();
    let mut refused: BTreeMap<&Shape, Verdict> = BTreeMap::new();
    let mut tried: BTreeSet<ShapeIx> = world.awake().chain(wake::woken(world)).collect();
    let mut heads: BTreeSet<(&OrderKey, ShapeIx)> =
        tried.iter().filter_map(|&ix| world.shape(ix).waiting.first().map(|place| (place, ix))).collect();
    while let Some((place, ix)) = heads.pop_first() {
        let row = world.shape(ix);
        let next =
            row.waiting.range((Bound::Excluded(place), Bound::Unbounded)).next().map(|next| (next, ix));
        if let Some(verdict) = still_stopping(world, &place.uid) {
            if row.untold.contains(place) {
                plan.verdicts.push((place.uid.to_string(), verdict));
            }
            heads.extend(next);
            continue;
        }
        let verdict = match refused.get(&*row.shape) {
            Some(verdict) => verdict.clone(),
            None => decide(&mut ledger, snapshot, row, place, &mut stopped),
        };
        match verdict {
            Verdict::Admit(_) | Verdict::Preempt(_) => {
                if matches!(&verdict, Verdict::Preempt(preemption) if !preemption.victims.is_empty()) {
                    // Who comes later may be given what the victims leave over.
                    let parked = world.parked().flat_map(|(_, rows)| rows).filter(|ix| tried.insert(**ix));
                    let first = |ix: &ShapeIx| {
                        world
                            .shape(*ix)
                            .waiting
                            .range((Bound::Excluded(place), Bound::Unbounded))
                            .next()
                            .map(|first| (first, *ix))
                    };
                    heads.extend(parked.filter_map(first));
                }
                plan.verdicts.push((place.uid.to_string(), verdict));
                heads.extend(next);
            }
            Verdict::Wait(ref shortage) | Verdict::Never(ref shortage) => {
                let proven = shortage.wake != Wake::Change;
                tell(&mut plan, row, Some(place), &verdict);
                if proven {
                    // In one pass there is ever less free, and ever fewer could be stopped for those who come later.
                    refused.insert(&row.shape, verdict);
                }
            }
        }
    }

    let mut untold: Vec<&ShapeRow> =
        world.untold().filter(|ix| !tried.contains(ix)).map(|ix| world.shape(ix)).collect();
    untold.sort_by_key(|row| row.waiting.first()); // Indices depend on history, plans must not.
    for row in untold {
        if let Some(verdict) = &row.parked {
            tell(&mut plan, row, None, verdict);
        }
    }
    plan
}

/// A gang that ran before does not start again while pods of its former life are still there.
fn still_stopping(world: &World, gang: &str) -> Option<Verdict> {
    let pods = world.pods_of(gang).filter(|pod| pod.node.is_some()).count();
    let causes = [Cause::StillStopping { pods: u32::try_from(pods).unwrap_or(u32::MAX) }];
    (pods > 0).then(|| Verdict::Wait(Shortage { causes: causes.into(), wake: Wake::Pods }))
}

/// Decides about the next gang of a shape, and takes what it is given out of the ledger. `stopped` are the victims of
/// this pass.
fn decide<'s>(
    ledger: &mut Ledger<'s>,
    snapshot: &Snapshot<'s>,
    row: &ShapeRow,
    place: &OrderKey,
    stopped: &mut BTreeSet<String>,
) -> Verdict {
    let shortage = match fit::fit(ledger, &row.shape) {
        Ok(placement) => return Verdict::Admit(ledger.reserve(&row.shape, &placement)),
        Err(Verdict::Wait(shortage)) if snapshot.world.policy().preemption != Preempting::Never => shortage,
        Err(refusal) => return refusal,
    };
    let leave = Leave::of(ledger, stopped);
    let spared = |uid: &str| stopped.contains(uid) || *uid == *place.uid;
    let Room { victims, placement } =
        match preempt::make_room(ledger, snapshot, &row.shape, row.priority, &spared) {
            Ok(room) => room,
            Err(wake) => {
                leave.undo(ledger, &[]);
                return Verdict::Wait(Shortage { wake: wake.max(shortage.wake), ..shortage });
            }
        };
    let assignment = ledger.reserve(&row.shape, &placement);
    leave.undo(ledger, &victims);
    stopped.extend(victims.iter().map(|gang| gang.uid.clone()));
    let victims = victims.into_iter().map(|gang| gang.uid.clone()).collect();
    Verdict::Preempt(Preemption { victims, assignment })
}

/// Notes a verdict for the gang at `place` and for those behind it that share it and do not know: all of them if it is
/// of another kind than the last one, else those that have not been told any.
fn tell(plan: &mut Plan, row: &ShapeRow, place: Option<&OrderKey>, verdict: &Verdict) {
    if let Some(place) = place {
        plan.verdicts.push((place.uid.to_string(), verdict.clone()));
    }
    let turned = row.parked.as_ref().is_some_and(|parked| discriminant(parked) != discriminant(verdict));
    let unaware = if turned { &row.waiting } else { &row.untold };
    let after = place.map_or(Bound::Unbounded, Bound::Excluded);
    for place in unaware.range::<OrderKey, _>((after, Bound::Unbounded)) {
        plan.verdicts.push((place.uid.to_string(), verdict.clone()));
    }
}
