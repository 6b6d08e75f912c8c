//! Victims, preemption history and fair sharing as words.

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

/// Parses `UID(REASON),…`; without a reason, the reason is priority.
pub(crate) fn victims(text: &str) -> impl Iterator<Item = Victim> {
    text.split(',').map(|word| {
        let with_reason =
            REASONS.iter().find_map(|(reason, suffix)| Some((word.strip_suffix(suffix)?, *reason)));
        let (uid, reason) = with_reason.unwrap_or((word, PreemptionReason::Priority));
        Victim { uid: uid.to_owned(), reason }
    })
}

/// Renders the victims of a preemption.
pub(crate) fn victim_words(preemption: &Preemption) -> Vec<String> {
    let suffix = |reason| REASONS.iter().find(|(other, _)| *other == reason).map_or("", |(_, suffix)| suffix);
    preemption.victims.iter().map(|victim| format!("{}{}", victim.uid, suffix(victim.reason))).collect()
}

/// The fair sharing rule of this name.
pub(crate) fn fair_sharing(text: &str) -> Option<FairSharing> {
    FAIRNESS.iter().find(|(_, name)| *name == text).map(|(rule, _)| *rule)
}

/// The name of a fair sharing rule.
pub(crate) fn fair_sharing_word(rule: FairSharing) -> &'static str {
    FAIRNESS.iter().find(|(other, _)| *other == rule).map_or("", |(_, name)| name)
}

/// Parses `stopped GANG for=GANG,…`.
pub(crate) fn preemption_events(gang: &str, by: &str) -> Vec<Event> {
    by.split(',')
        .map(|by| Event::PreemptionRestored { victim: gang.to_owned(), preemptor: by.to_owned() })
        .collect()
}

/// Renders the preemption history as lines that [`preemption_events`] parses.
pub(crate) fn preemption_lines(world: &World) -> impl Iterator<Item = (&str, String)> {
    world.preemption_history().map(|(gang, by)| (gang, format!("for={by}")))
}
