//! Promises that are not kept: each of them is said, with a cause that is so.

use model::{Gang, GangState, Plan, SlipCause, Snapshot, Verdict};

use crate::rank;
use crate::violation::Violation;

/// Checks what a plan says of the promises of the last one.
pub(crate) fn check(snapshot: &Snapshot<'_>, plan: &Plan, found: &mut Vec<Violation>) {
    let (world, now) = (snapshot.world, snapshot.now);
    let starts = |uid: &str| {
        let mut verdicts = plan.verdicts.iter().filter(|(other, _)| other == uid);
        verdicts.any(|(_, verdict)| matches!(verdict, Verdict::Admit(_) | Verdict::Preempt(_)))
    };
    for promised in world.reserved() {
        let Some(gang) = world.gang(&promised.gang).filter(|gang| gang.state == GangState::Waiting) else {
            continue;
        };
        let next = plan.reserved.iter().find(|next| next.gang == gang.uid).map(|next| next.start);
        let is_late = !starts(&gang.uid) && next.is_none_or(|next| next > promised.start);
        let said: Vec<_> = plan.slips.iter().filter(|slip| slip.gang == gang.uid).collect();
        let is_said = matches!(*said, [slip] if slip.from == promised.start && slip.to == next);
        if is_late != is_said || (!is_late && !said.is_empty()) {
            found.push(Violation::PromiseMoved { gang: gang.key.clone() });
        }
    }
    for slip in &plan.slips {
        let Some(gang) = world.gang(&slip.gang) else {
            found.push(Violation::UnknownGang { uid: slip.gang.clone() });
            continue;
        };
        let holds = |key: &model::GangKey, is_so: &dyn Fn(&Gang) -> bool| {
            world.gangs().any(|other| other.key == *key && other.state.assignment().is_some() && is_so(other))
        };
        let is_so = match &slip.cause {
            SlipCause::Overran { gang } => holds(gang, &|holder| {
                holder.started_at.zip(holder.runs_us).is_some_and(|(since, runs)| since.after(runs) <= now)
            }),
            SlipCause::NoEnd { gang } => holds(gang, &|holder| holder.runs_us.is_none()),
            SlipCause::Outranked { gang: first } => {
                let before = |other: &Gang| {
                    let promised = world.reserved().iter().any(|promised| promised.gang == other.uid);
                    !promised && rank(other, now) < rank(gang, now)
                };
                world.gangs().any(|other| other.key == *first && before(other))
            }
            SlipCause::Nodes { nodes } => *nodes > 0,
            SlipCause::Quota | SlipCause::Unplanned => true,
        };
        if !is_so {
            found.push(Violation::WrongCause { gang: gang.key.clone(), cause: slip.cause.to_string() });
        }
    }
}
