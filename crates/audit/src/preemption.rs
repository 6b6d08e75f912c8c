//! Who may be stopped for whom, and whether it was needed.

use std::collections::{BTreeMap, BTreeSet};

use model::{Assignment, Gang, GangState, Preempting, Preemption, Snapshot, Verdict, World};

use crate::books::Books;
use crate::violation::Violation;
use crate::{check_places, rank, rules};

/// The uids of gangs on their way out: they hold nothing any more while their pods are still bound, or are being stopped
/// for a nominated gang.
pub(crate) fn leaving(world: &World) -> BTreeSet<String> {
    let owners = world.pods().filter_map(|pod| pod.gang.as_ref().map(|(uid, _)| uid));
    let gone = |uid: &&String| world.gang(uid).is_none_or(|gang| gang.state == GangState::Waiting);
    let mut leaving: BTreeSet<String> = owners.filter(gone).cloned().collect();
    for gang in world.gangs() {
        if let GangState::Nominated(preemption) = &gang.state {
            let holding = |uid: &&str| world.gang(uid).is_some_and(holds);
            leaving.extend(preemption.stopped().filter(holding).map(str::to_owned));
        }
    }
    leaving
}

fn holds(gang: &Gang) -> bool {
    matches!(gang.state, GangState::Reserved(_) | GangState::Nominated(_))
}

/// Whether one gang may be stopped for another.
fn may_stop(world: &World, gang: &Gang, victim: &Gang) -> bool {
    let allowed = match world.policy().preemption {
        Preempting::Never => false,
        Preempting::LowerPriority => victim.priority < gang.priority,
    };
    allowed && !victim.protected && holds(victim)
}

/// Whether one gang was stopped for another, or for one that was stopped for it, and so on.
fn came_before(world: &World, other: &str, gang: &str) -> bool {
    let mut before: BTreeSet<&str> = BTreeSet::from([gang]);
    loop {
        let more = world.stopped().filter(|(victim, by)| before.contains(victim) && !before.contains(by));
        let more: Vec<&str> = more.map(|(_, by)| by).collect();
        if more.is_empty() {
            return other != gang && before.contains(other);
        }
        before.extend(more);
    }
}

/// Admissions of nominated gangs: at their places, and only when these are free.
pub(crate) fn check_nominated(
    books: &mut Books<'_>,
    snapshot: &Snapshot<'_>,
    decided: &BTreeMap<&str, &Verdict>,
    found: &mut Vec<Violation>,
) {
    let mut gangs: Vec<&Gang> = snapshot.world.gangs().collect();
    gangs.sort_by(|one, other| rank(one, snapshot.now).cmp(&rank(other, snapshot.now)));
    for gang in gangs {
        let GangState::Nominated(preemption) = &gang.state else { continue };
        let Some(Verdict::Admit(assignment)) = decided.get(gang.uid.as_str()) else { continue };
        if *assignment != preemption.assignment {
            found.push(Violation::OtherPlaces { gang: gang.key.clone() });
        }
        books.suspend(&gang.uid);
        if check_places(books, gang, assignment, found) {
            books.check(gang, assignment, found);
        }
        books.resume(&gang.uid);
    }
}

/// One preemption: who is stopped may be and is needed, and then there is room. The victims are noted as leaving.
pub(crate) fn check(
    books: &mut Books<'_>,
    world: &World,
    gang: &Gang,
    preemption: &Preemption,
    leaving: &mut BTreeSet<String>,
    found: &mut Vec<Violation>,
) {
    let assignment = &preemption.assignment;
    let victims: Vec<String> = preemption.stopped().map(str::to_owned).collect();
    if rules::first_fit(books, gang).is_some() {
        found.push(Violation::NeedlessPreemption { gang: gang.key.clone() });
    }
    let before: Vec<String> = leaving.iter().cloned().collect();
    for uid in &victims {
        let may = world.gang(uid).is_some_and(|victim| may_stop(world, gang, victim));
        if came_before(world, uid, &gang.uid) {
            found.push(Violation::TurnsInCircles { gang: gang.key.clone(), victim: uid.clone() });
        }
        if !may || !leaving.insert(uid.clone()) {
            found.push(Violation::NotStoppable { gang: gang.key.clone(), victim: uid.clone() });
            return;
        }
    }
    for uid in before.iter().chain(&victims) {
        books.suspend(uid);
    }
    for victim in &victims {
        books.resume(victim);
        if rules::first_fit(books, gang).is_some() {
            found.push(Violation::NotNeeded { gang: gang.key.clone(), victim: victim.clone() });
        }
        books.suspend(victim);
    }
    if check_places(books, gang, assignment, found) {
        books.check(gang, assignment, found);
        books.charge(gang, assignment);
    }
    for uid in before.iter().chain(&victims) {
        books.resume(uid);
    }
}

/// Where a gang would fit if everybody left who is leaving or could be stopped for it.
pub(crate) fn first_fit_among_weaker(
    books: &mut Books<'_>,
    world: &World,
    gang: &Gang,
    leaving: &BTreeSet<String>,
) -> Option<Assignment> {
    if world.policy().preemption == Preempting::Never {
        return None;
    }
    let may = |other: &&Gang| may_stop(world, gang, other) && !came_before(world, &other.uid, &gang.uid);
    let weaker = world.gangs().filter(may).map(|other| other.uid.clone());
    let gone: BTreeSet<String> = leaving.iter().cloned().chain(weaker).collect();
    for uid in &gone {
        books.suspend(uid);
    }
    let witness = rules::first_fit(books, gang);
    for uid in &gone {
        books.resume(uid);
    }
    witness
}
