//! Reports the reserved starts of the last plan that this plan moves later, and why.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use model::{Gang, GangState, Plan, Reservation, Slip, SlipCause, Snapshot, Time, Verdict};

/// The reserved starts that moved later or were lost, in the order of the reservations.
pub(crate) fn slips(snapshot: &Snapshot<'_>, plan: &Plan) -> Vec<Slip> {
    let world = snapshot.world;
    let moves =
        |uid: &str| plan.verdicts.iter().any(|(other, verdict)| other == uid && verdict.shortage().is_none());
    let mut slips = Vec::new();
    for Reservation { gang: uid, start, .. } in world.reserved() {
        let waits = world.gang(uid).filter(|gang| gang.state == GangState::Waiting && !moves(uid));
        let to = plan.reserved.iter().find(|reserved| reserved.gang == *uid).map(|reserved| reserved.start);
        if let Some(gang) = waits.filter(|_| to.is_none_or(|to| to > *start)) {
            slips.push(Slip {
                gang: uid.clone(),
                from: *start,
                to,
                cause: cause(snapshot, plan, gang, *start),
            });
        }
    }
    slips
}

/// The cause: the first one that applies of those that arose after the start was reserved.
fn cause(snapshot: &Snapshot<'_>, plan: &Plan, gang: &Gang, start: Time) -> SlipCause {
    let Snapshot { world, now } = *snapshot;
    let holders = || world.placed_gangs().filter(|holder| holder.started_at.is_some());
    let overran = |holder: &&Gang| {
        let declared = holder.started_at.zip(holder.runs_us).map(|(since, runs)| since.after(runs));
        declared.is_some_and(|end| end <= now && end <= start)
    };
    if let Some(holder) = holders().find(overran) {
        return SlipCause::Overran { gang: holder.key.clone() };
    }
    let changed = world.dirty_nodes().filter(|(_, dirty_node)| dirty_node.changed).count();
    if changed > 0 {
        return SlipCause::Nodes { nodes: u32::try_from(changed).unwrap_or(u32::MAX) };
    }
    if world.have_quotas_changed() {
        return SlipCause::Quota;
    }
    let first_of = |wanted: Ordering| {
        let ahead = moved(snapshot, plan).filter(|(_, moved)| *moved == wanted);
        let ahead = ahead.filter_map(|(uid, _)| world.gang(uid));
        let ahead = ahead.filter(|first| first.sort_key(now) < gang.sort_key(now));
        ahead.min_by_key(|first| first.sort_key(now)).map(|first| first.key.clone())
    };
    if let Some(gang) = first_of(Ordering::Less) {
        return SlipCause::Outranked { gang };
    }
    if let Some(gang) = first_of(Ordering::Greater) {
        return SlipCause::Delayed { gang };
    }
    if let Some(holder) = holders().find(|holder| holder.runs_us.is_none()) {
        return SlipCause::NoEnd { gang: holder.key.clone() };
    }
    // At the same time as before, but on other nodes: a gang that overran has ended at another time than was guessed.
    first_of(Ordering::Equal).map_or(SlipCause::Unplanned, |gang| SlipCause::Outranked { gang })
}

/// The gangs that start in this plan, now or by reservation, and whether they do so before, at or after the start that the last plan
/// reserved. One without such a start is before it. A gang starts sooner if one that overran has ended before its guessed end, and
/// later if the guess was too short.
fn moved<'a>(snapshot: &Snapshot<'a>, plan: &'a Plan) -> impl Iterator<Item = (&'a str, Ordering)> {
    let before: BTreeMap<&str, Time> =
        snapshot.world.reserved().iter().map(|reserved| (reserved.gang.as_str(), reserved.start)).collect();
    let started = plan
        .verdicts
        .iter()
        .filter(|(_, verdict)| matches!(verdict, Verdict::Admit(_) | Verdict::Preempt(_)))
        .map(|(uid, _)| (uid.as_str(), snapshot.now));
    let reserved = plan.reserved.iter().map(|reserved| (reserved.gang.as_str(), reserved.start));
    started
        .chain(reserved)
        .map(move |(uid, start)| (uid, before.get(uid).map_or(Ordering::Less, |before| start.cmp(before))))
}
