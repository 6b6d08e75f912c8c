//! Reservations that slip: each is reported, with a true cause.

use model::{Gang, GangState, Plan, Reservation, SlipCause, Snapshot, Verdict};

use crate::queue_order;
use crate::violation::Violation;

/// Checks the slips that a plan reports for the reservations of the last plan.
pub(crate) fn check(snapshot: &Snapshot<'_>, plan: &Plan, found: &mut Vec<Violation>) {
    let (world, now) = (snapshot.world, snapshot.now);
    let starts = |uid: &str| {
        let mut verdicts = plan.verdicts.iter().filter(|(other, _)| other == uid);
        verdicts.any(|(_, verdict)| matches!(verdict, Verdict::Admit(_) | Verdict::Preempt(_)))
    };
    for reservation in world.reserved() {
        let Some(gang) = world.gang(&reservation.gang).filter(|gang| gang.state == GangState::Waiting) else {
            continue;
        };
        let next = plan.reserved.iter().find(|next| next.gang == gang.uid).map(|next| next.start);
        let has_slipped = !starts(&gang.uid) && next.is_none_or(|next| next > reservation.start);
        let reported: Vec<_> = plan.slips.iter().filter(|slip| slip.gang == gang.uid).collect();
        let is_reported = matches!(*reported, [slip] if slip.from == reservation.start && slip.to == next);
        if has_slipped != is_reported || (!has_slipped && !reported.is_empty()) {
            found.push(Violation::SlipNotReported { gang: gang.key.clone() });
        }
    }
    let reserved =
        |all: &[Reservation], other: &Gang| all.iter().find(|all| all.gang == other.uid).map(|all| all.start);
    let next = |other: &Gang| if starts(&other.uid) { Some(now) } else { reserved(&plan.reserved, other) };
    // Starts now or later, after a start that was reserved.
    let is_later = |other: &Gang| {
        next(other).zip(reserved(world.reserved(), other)).is_some_and(|(next, before)| next > before)
    };
    for slip in &plan.slips {
        let Some(gang) = world.gang(&slip.gang) else {
            found.push(Violation::UnknownGang { uid: slip.gang.clone() });
            continue;
        };
        let holds = |key: &model::GangKey, is_true: &dyn Fn(&Gang) -> bool| {
            world
                .gangs()
                .any(|other| other.key == *key && other.state.assignment().is_some() && is_true(other))
        };
        let goes_first = |key: &model::GangKey, has_moved: &dyn Fn(&Gang) -> bool| {
            let is_ahead = |other: &Gang| queue_order(other, now) < queue_order(gang, now);
            world.gangs().any(|other| other.key == *key && has_moved(other) && is_ahead(other))
        };
        let is_true = match &slip.cause {
            SlipCause::Overran { gang } => holds(gang, &|holder| {
                holder.started_at.zip(holder.runs_us).is_some_and(|(since, runs)| since.after(runs) <= now)
            }),
            SlipCause::NoEnd { gang } => holds(gang, &|holder| holder.runs_us.is_none()),
            SlipCause::Outranked { gang: first } => {
                goes_first(first, &|other| next(other).is_some() && !is_later(other))
            }
            SlipCause::Delayed { gang: first } => goes_first(first, &is_later),
            SlipCause::Nodes { nodes } => *nodes > 0,
            SlipCause::Quota | SlipCause::Unplanned => true,
        };
        if !is_true {
            found.push(Violation::WrongSlipCause { gang: gang.key.clone(), cause: slip.cause.to_string() });
        }
    }
}
