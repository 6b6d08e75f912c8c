//! Words about who is stopped for whom.

use model::{Event, FairSharing, Preemption, PreemptionReason, Victim, World};

const REASONS: [(PreemptionReason, &str); 4] = [
    (PreemptionReason::InClusterQueue, "(in-queue)"),
    (PreemptionReason::InCohortReclamation, "(reclaimed)"),
    (PreemptionReason::InCohortFairSharing, "(fair-share)"),
    (PreemptionReason::InCohortReclaimWhileBorrowing, "(while-borrowing)"),
];

const FAIRNESS: [(FairSharing, &str); 3] = [
    (FairSharing::FinalOrInitialShare, "final-or-initial-share"),
    (FairSharing::FinalShare, "final-share"),
    (FairSharing::InitialShare, "initial-share"),
];

/// `UID(GROUND),…`; without one it is priority.
pub(crate) fn victims(text: &str) -> impl Iterator<Item = Victim> {
    text.split(',').map(|word| {
        let with_ground =
            REASONS.iter().find_map(|(reason, suffix)| Some((word.strip_suffix(suffix)?, *reason)));
        let (uid, reason) = with_ground.unwrap_or((word, PreemptionReason::Priority));
        Victim { uid: uid.to_owned(), reason }
    })
}

/// The victims of a preemption as words.
pub(crate) fn victim_words(preemption: &Preemption) -> Vec<String> {
    let suffix = |reason| REASONS.iter().find(|(other, _)| *other == reason).map_or("", |(_, suffix)| suffix);
    preemption.victims.iter().map(|victim| format!("{}{}", victim.uid, suffix(victim.reason))).collect()
}

/// The rule of this name.
pub(crate) fn fair_sharing(text: &str) -> Option<FairSharing> {
    FAIRNESS.iter().find(|(_, name)| *name == text).map(|(rule, _)| *rule)
}

/// The name of a rule.
pub(crate) fn fair_sharing_word(rule: FairSharing) -> &'static str {
    FAIRNESS.iter().find(|(other, _)| *other == rule).map_or("", |(_, name)| name)
}

/// `stopped GANG for=GANG,…`.
pub(crate) fn stopped(gang: &str, by: &str) -> Vec<Event> {
    by.split(',').map(|by| Event::PreemptionRestored { victim: gang.to_owned(), preemptor: by.to_owned() }).collect()
}

/// The lines that [`stopped`] reads.
pub(crate) fn stopped_lines(world: &World) -> impl Iterator<Item = (&str, String)> {
    world.preemption_history().map(|(gang, by)| (gang, format!("for={by}")))
}
