//! Reserved starts that rely on guessed ends: they hold others back for a limited time, and never from what these own.

use std::collections::BTreeMap;

use model::{Cause, Gang, GangKey, GangState, Hold, Plan, Reservation, Snapshot, Verdict, World};

use crate::cluster_state::ClusterState;
use crate::quota::Flavors;
use crate::violation::Violation;

/// Checks how long the reservations of a plan hold, and whom the plan holds back for them. Before its admissions are charged.
pub(crate) fn check(
    cluster: &ClusterState<'_>,
    snapshot: &Snapshot<'_>,
    plan: &Plan,
    decided: &BTreeMap<&str, &Verdict>,
    found: &mut Vec<Violation>,
) {
    let Snapshot { world, now } = *snapshot;
    let limit = world.policy().guessed_hold_us;
    for reserved in &plan.reserved {
        let Some(head) = world.gang(&reserved.gang) else { continue };
        let begun = world.hold_of(&reserved.gang);
        let delayed = delayed_for(world, decided, &head.key);
        let holds_back = !delayed.is_empty();
        let is_right = match reserved.hold {
            Hold::UntilStart => true,
            Hold::Unused => !reserved.declared && begun.is_none() && limit > 0 && !holds_back,
            Hold::Until(until) => {
                let begins = begun.is_none() && holds_back && limit > 0 && until == now.after(limit);
                !reserved.declared && until > now && (begun == Some(until) || begins)
            }
            Hold::Over => !reserved.declared && !holds_back && begun.map_or(limit <= 0, |until| until <= now),
        };
        if !is_right {
            found.push(Violation::WrongHold { gang: head.key.clone() });
        }
        if reserved.hold == Hold::UntilStart {
            continue;
        }
        let admitted = admitted(world, &plan.verdicts);
        for gang in delayed.into_iter().filter(|gang| gang.state == GangState::Waiting) {
            // With all that the plan admits, and whatever flavors it would get.
            let flavors = cluster.quotas.combinations(gang);
            let owns = |flavors| cluster.quotas.is_owned(gang, flavors, head, &admitted);
            if !flavors.is_empty() && flavors.iter().all(owns) && !cluster.quotas.may_be_held(gang) {
                found.push(Violation::HeldFromOwnQuota { gang: gang.key.clone(), first: head.key.clone() });
            }
        }
    }
}

/// The gangs that the plan holds back for a gang: pending ones, and running ones that need places for further pods.
fn delayed_for<'a>(world: &'a World, decided: &BTreeMap<&str, &Verdict>, key: &GangKey) -> Vec<&'a Gang> {
    let delays = |cause: &Cause| matches!(cause, Cause::WouldDelay { gang } if gang == key);
    let waits =
        |verdict: &&Verdict| verdict.shortage().is_some_and(|shortage| shortage.causes.iter().any(delays));
    let held = decided.iter().filter(|(_, verdict)| waits(verdict));
    held.filter_map(|(uid, _)| world.gang(uid)).collect()
}

/// Whether a gang that the plan admits may take what a reserved gang needs.
pub(crate) fn may_pass(
    cluster: &ClusterState<'_>,
    plan: &Plan,
    reserved: &Reservation,
    head: &Gang,
    gang: &Gang,
) -> bool {
    match reserved.hold {
        Hold::UntilStart => false,
        Hold::Over => true,
        Hold::Unused | Hold::Until(_) => {
            let Some(at) = plan.verdicts.iter().position(|(uid, _)| *uid == gang.uid) else { return false };
            plan.verdicts[at].1.assignment().is_some_and(|assignment| {
                let before = admitted(cluster.world(), &plan.verdicts[..at]);
                cluster.quotas.is_owned(gang, &assignment.flavors, head, &before)
            })
        }
    }
}

/// The gangs that get capacity by these verdicts, with their flavors.
fn admitted<'p>(world: &'p World, verdicts: &'p [(String, Verdict)]) -> Vec<(&'p Gang, &'p Flavors)> {
    let started = verdicts.iter().filter_map(|(uid, verdict)| {
        let gang = world.gang(uid).filter(|gang| gang.state == GangState::Waiting)?;
        Some((gang, &verdict.assignment()?.flavors))
    });
    started.collect()
}
