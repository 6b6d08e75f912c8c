//! Every queueing decision, in one pure function: [`plan`].
//!
//! - `order` and the loop here: who is tried, and in which sequence;
//! - `wake`: which parked gangs are worth trying again after what changed;
//! - `ledger`: what this pass has taken out of the world so far;
//! - `terrain` and `pools`: the nodes as one gang sees them, and what is promised on sets of them without a place;
//! - `fit`: whether a gang fits, by bounds that prove it does not, then by placement;
//! - `place` and `search`: pods to nodes, first by rules of thumb, then exhaustively within a budget;
//! - `explain`: why it does not fit, in figures.
//!
//! What the words mean is left to `model`; whether a plan is right is judged by `audit`, which shares no code with this.

#![deny(clippy::float_arithmetic, clippy::float_cmp)]

mod explain;
mod fit;
mod ledger;
mod place;
mod pools;
mod search;
mod terrain;
mod wake;

use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;
use std::ops::Bound;

use model::{OrderKey, Plan, Shape, ShapeIx, ShapeRow, Snapshot, Verdict, Wake};

use crate::ledger::Ledger;

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
    let mut refused: BTreeMap<&Shape, Verdict> = BTreeMap::new();
    let tried: BTreeSet<ShapeIx> = world.awake().chain(wake::woken(world)).collect();
    let mut heads: BTreeSet<(&OrderKey, ShapeIx)> =
        tried.iter().filter_map(|&ix| world.shape(ix).waiting.first().map(|place| (place, ix))).collect();

    while let Some((place, ix)) = heads.pop_first() {
        let row = world.shape(ix);
        let decided = match refused.get(&*row.shape) {
            Some(verdict) => Err(verdict.clone()),
            None => fit::fit(&ledger, &row.shape),
        };
        match decided {
            Ok(placement) => {
                let assignment = ledger.reserve(&row.shape, &placement);
                plan.verdicts.push((place.uid.to_string(), Verdict::Admit(assignment)));
                let next = row.waiting.range((Bound::Excluded(place), Bound::Unbounded)).next();
                heads.extend(next.map(|next| (next, ix)));
            }
            Err(verdict) => {
                tell(&mut plan, row, Some(place), &verdict);
                if verdict.shortage().is_some_and(|shortage| shortage.wake != Wake::Change) {
                    refused.insert(&row.shape, verdict); // Proven, and in one pass capacity only shrinks.
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
