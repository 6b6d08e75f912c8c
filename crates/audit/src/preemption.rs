//! Who may be stopped for whom, and whether it was needed.

use std::collections::{BTreeMap, BTreeSet};

use model::{Assignment, Gang, GangState, Preemption, Snapshot, Verdict, World};

use crate::books::Books;
use crate::quota::{Contest, Flavors};
use crate::violation::Violation;
use crate::{check_places, elastic, rank, rules};

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

/// What is known about the need to stop others for a gang with these flavors.
fn contest(books: &Books<'_>, gang: &Gang, flavors: &Flavors, is_generous: bool) -> Contest {
    Contest { has_room: rules::room_for(books, gang, flavors.clone()).is_some(), is_generous }
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
        let places = |assignment| elastic::held(gang, assignment).1.pod_sets;
        if places(assignment) != places(&preemption.assignment) {
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
    if rules::first_fit(books, gang).is_some() {
        found.push(Violation::NeedlessPreemption { gang: gang.key.clone() });
    }
    let before: Vec<String> = leaving.iter().cloned().collect();
    let mut victims: Vec<&Gang> = Vec::new();
    for uid in preemption.stopped() {
        if came_before(world, uid, &gang.uid) {
            found.push(Violation::TurnsInCircles { gang: gang.key.clone(), victim: uid.to_owned() });
        }
        let victim = world.gang(uid).filter(|victim| !victim.protected && holds(victim));
        let Some(victim) = victim.filter(|_| leaving.insert(uid.to_owned())) else {
            found.push(Violation::NotStoppable { gang: gang.key.clone(), victim: uid.to_owned() });
            return;
        };
        victims.push(victim);
    }
    for uid in &before {
        books.suspend(uid);
    }
    let contest = contest(books, gang, &assignment.flavors, true);
    let reasons = books.quotas.reasons(gang, &assignment.flavors, &victims, contest);
    for (victim, reasons) in preemption.victims.iter().zip(&reasons) {
        if !reasons.contains(&victim.reason) {
            found.push(Violation::NotStoppable { gang: gang.key.clone(), victim: victim.uid.clone() });
        }
    }
    check_needed(books, gang, assignment, &victims, found);
    for victim in &victims {
        books.suspend(&victim.uid);
    }
    if check_places(books, gang, assignment, found) {
        books.check(gang, assignment, found);
        books.charge(gang, assignment);
    }
    for uid in before.iter().chain(victims.iter().map(|victim| &victim.uid)) {
        books.resume(uid);
    }
}

/// That the gang would not fit with the same flavors if one of the victims stayed, or the others could not be stopped then.
fn check_needed(
    books: &mut Books<'_>,
    gang: &Gang,
    assignment: &Assignment,
    victims: &[&Gang],
    found: &mut Vec<Violation>,
) {
    let contest = contest(books, gang, &assignment.flavors, false);
    for spared in victims {
        let others: Vec<&Gang> = victims.iter().copied().filter(|other| other.uid != spared.uid).collect();
        for other in &others {
            books.suspend(&other.uid);
        }
        let suffices = books.quotas.combinations(gang).contains(&assignment.flavors)
            && rules::room_for(books, gang, assignment.flavors.clone()).is_some();
        for other in &others {
            books.resume(&other.uid);
        }
        let reasons = books.quotas.reasons(gang, &assignment.flavors, &others, contest);
        if suffices && reasons.iter().all(|reasons| !reasons.is_empty()) {
            let (gang, victim) = (gang.key.clone(), spared.uid.clone());
            found.push(Violation::NotNeeded { gang, victim });
        }
    }
}

/// Where a gang would fit if everybody left who is leaving, and all who could be stopped for it with certain flavors; as far as
/// all of these could be stopped together.
pub(crate) fn first_fit_among_weaker(
    books: &mut Books<'_>,
    world: &World,
    gang: &Gang,
    leaving: &BTreeSet<String>,
) -> Option<Assignment> {
    if !books.quotas.may_stop_others(gang) || books.quotas.is_many_sided(gang) {
        return None;
    }
    for uid in leaving {
        books.suspend(uid);
    }
    let may = |other: &&Gang| {
        !other.protected
            && holds(other)
            && !leaving.contains(&other.uid)
            && !came_before(world, &other.uid, &gang.uid)
    };
    let others: Vec<&Gang> = world.gangs().filter(may).collect();
    let mut ways = books.quotas.combinations_when_empty(gang);
    let witness = loop {
        let Some(flavors) = ways.pop() else { break None };
        let contest = contest(books, gang, &flavors, false);
        let mut stoppable = |other: &&Gang| {
            books.quotas.reasons(gang, &flavors, &[*other], contest).iter().all(|reasons| !reasons.is_empty())
        };
        let weaker: Vec<&Gang> = others.iter().copied().filter(|other| stoppable(other)).collect();
        let reasons = books.quotas.reasons(gang, &flavors, &weaker, contest);
        if reasons.iter().any(Vec::is_empty) {
            continue;
        }
        for uid in &weaker {
            books.suspend(&uid.uid);
        }
        let allowed = books.quotas.combinations(gang).contains(&flavors);
        let witness = rules::room_for(books, gang, flavors).filter(|_| allowed);
        for uid in &weaker {
            books.resume(&uid.uid);
        }
        if witness.is_some() {
            break witness;
        }
    };
    for uid in leaving {
        books.resume(uid);
    }
    witness
}
