//! Since when running gangs lack pods, pod by pod.
//!
//! A gang is requeued when one and the same pod was refused for the whole patience, when it had too few running pods for
//! the whole patience, or when no missing pod was created during the whole patience. Time counts from when this process
//! observed the failure, never from an older condition: a restart gives a gang its whole patience again.

use std::collections::BTreeMap;

use api::MicroTime;
use api::appwrapper::transition::RequeueReason;
use index::{Index, Phase, Wrapper};

use crate::step::{OpenShortfall, Shortfall};

/// One thing that a gang lacks.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Lack {
    /// The pod with this uid has no node.
    Node(String),
    /// Too few pods run.
    RunningPods,
    /// So many pods do not exist.
    Pods(i64),
}

/// What each gang lacks, by uid of the gang, and since when.
#[derive(Debug, Default)]
pub(super) struct Patience {
    since: BTreeMap<String, BTreeMap<Lack, MicroTime>>,
    /// Why pods of a gang are missing, by the Events about its objects.
    explanations: BTreeMap<String, String>,
    /// Since when stopped gangs wait for the deletion of their objects.
    removals: BTreeMap<String, MicroTime>,
}

impl Patience {
    /// Notes what a gang lacks now. Returns it with the time since when the gang has lacked the oldest part of it.
    pub(super) fn of(
        &mut self,
        gang: &str,
        shortfall: Option<Shortfall>,
        now: MicroTime,
    ) -> Option<OpenShortfall> {
        let Some(shortfall) = shortfall else {
            self.forget(gang);
            return None;
        };
        let since = self.update(gang, &shortfall, now);
        let explanation = self.explanations.get(gang).cloned();
        Some(OpenShortfall { shortfall, since, explanation })
    }

    /// Since when a stopped gang waits for the deletion of its objects, if it does.
    pub(super) fn of_removal(
        &mut self,
        index: &Index,
        wrapper: &Wrapper,
        now: MicroTime,
    ) -> Option<MicroTime> {
        if matches!(wrapper.phase, Phase::Stopped(..)) && !index.is_removed(&wrapper.uid) {
            return Some(*self.removals.entry(wrapper.uid.clone()).or_insert(now));
        }
        self.removals.remove(&wrapper.uid);
        None
    }

    /// The gang is gone.
    pub(super) fn forget_removal(&mut self, gang: &str) {
        self.removals.remove(gang);
    }

    /// Stores why pods of a gang are missing.
    pub(super) fn explain(&mut self, gang: &str, explanation: String) {
        self.explanations.insert(gang.to_owned(), explanation);
    }

    /// Notes what a gang lacks now. Returns since when it has lacked the oldest part of it.
    fn update(&mut self, gang: &str, shortfall: &Shortfall, now: MicroTime) -> MicroTime {
        let former = self.since.remove(gang).unwrap_or_default();
        let with_time = |lack: Lack| {
            let since = lack.since(&former).unwrap_or(now);
            (lack, since)
        };
        let since: BTreeMap<_, _> = Lack::all_of(shortfall).into_iter().map(with_time).collect();
        let oldest = since.values().min().copied().unwrap_or(now);
        self.since.insert(gang.to_owned(), since);
        oldest
    }

    /// The gang lacks nothing, or is gone.
    pub(super) fn forget(&mut self, gang: &str) {
        self.since.remove(gang);
        self.explanations.remove(gang);
    }
}

impl Lack {
    fn all_of(shortfall: &Shortfall) -> Vec<Self> {
        match shortfall.cause {
            RequeueReason::MinPodsNotRunning { .. } => vec![Self::RunningPods],
            RequeueReason::PodsFailedScheduling { .. } => {
                shortfall.pods.iter().cloned().map(Self::Node).collect()
            }
            RequeueReason::PodsNotCreated { missing, .. } => vec![Self::Pods(missing)],
            RequeueReason::PodsDisrupted { .. } => Vec::new(), // Requeued at once.
        }
    }

    /// Since when the gang has lacked this. Patience for missing pods starts again when one of them was created.
    fn since(&self, former: &BTreeMap<Self, MicroTime>) -> Option<MicroTime> {
        match self {
            Self::Node(_) | Self::RunningPods => former.get(self).copied(),
            Self::Pods(missing) => former.iter().find_map(|(lack, since)| match lack {
                Self::Pods(before) => (before <= missing).then_some(*since),
                Self::Node(_) | Self::RunningPods => None,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn refused(pods: &[&str]) -> Shortfall {
        Shortfall {
            cause: RequeueReason::PodsFailedScheduling { failed: 1, running: 1 },
            pods: pods.iter().map(ToString::to_string).collect(),
            refusal: None,
            missing: Vec::new(),
        }
    }

    #[test]
    fn patience_counts_from_the_refusal_of_each_pod() {
        let mut patience = Patience::default();
        assert_eq!(patience.update("g", &refused(&["a"]), MicroTime(1)), MicroTime(1));
        assert_eq!(patience.update("g", &refused(&["a", "b"]), MicroTime(5)), MicroTime(1));
        assert_eq!(patience.update("g", &refused(&["b", "c"]), MicroTime(9)), MicroTime(5));
        patience.forget("g");
        assert_eq!(patience.update("g", &refused(&["c"]), MicroTime(20)), MicroTime(20));
    }

    #[test]
    fn patience_for_missing_pods_starts_again_when_one_is_created() {
        let missing = |missing| Shortfall {
            cause: RequeueReason::PodsNotCreated { missing, running: 0 },
            pods: BTreeSet::new(),
            refusal: None,
            missing: Vec::new(),
        };
        let mut patience = Patience::default();
        for (count, at, since) in [(3, 1, 1), (3, 4, 1), (5, 5, 1), (2, 9, 9), (4, 12, 9)] {
            assert_eq!(patience.update("g", &missing(count), MicroTime(at)), MicroTime(since));
        }
    }
}
