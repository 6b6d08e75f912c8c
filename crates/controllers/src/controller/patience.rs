//! Since when running gangs lack pods, pod by pod.
//!
//! A gang is requeued when one and the same pod was refused for the whole patience, or when it had too few running pods for
//! the whole patience. Time counts from when this process observed the failure, never from an older condition: a restart
//! gives a gang its whole patience again.

use std::collections::BTreeMap;

use api::MicroTime;
use index::{Index, Wrapper};

use crate::step::{self, Shortfall};

/// The key of "too few running pods" among the uids of pods.
const MINIMUM: &str = "";

/// By gang, then by uid of the pod that is refused: since when.
#[derive(Debug, Default)]
pub(super) struct Patience {
    since: BTreeMap<String, BTreeMap<String, MicroTime>>,
}

impl Patience {
    /// What a gang lacks now, and since when it has lacked the oldest part of it.
    pub(super) fn of(
        &mut self,
        index: &Index,
        wrapper: &Wrapper,
        now: MicroTime,
    ) -> Option<(Shortfall, MicroTime)> {
        let Some(shortfall) = step::shortfall(index, wrapper) else {
            self.forget(&wrapper.uid);
            return None;
        };
        let since = self.update(&wrapper.uid, &shortfall, now);
        Some((shortfall, since))
    }

    /// Notes what a gang lacks now. Returns since when it has lacked the oldest part of it.
    fn update(&mut self, gang: &str, shortfall: &Shortfall, now: MicroTime) -> MicroTime {
        let former = self.since.remove(gang).unwrap_or_default();
        let minimum = shortfall.pods.is_empty().then(|| MINIMUM.to_owned());
        let keys = shortfall.pods.iter().cloned().chain(minimum);
        let since: BTreeMap<_, _> = keys
            .map(|key| {
                let since = former.get(&key).copied().unwrap_or(now);
                (key, since)
            })
            .collect();
        let oldest = since.values().min().copied().unwrap_or(now);
        self.since.insert(gang.to_owned(), since);
        oldest
    }

    /// The gang lacks nothing, or is gone.
    pub(super) fn forget(&mut self, gang: &str) {
        self.since.remove(gang);
    }
}

#[cfg(test)]
mod tests {
    use api::appwrapper::transition::RequeueReason;

    use super::*;

    fn refused(pods: &[&str]) -> Shortfall {
        Shortfall {
            cause: RequeueReason::PodsFailedScheduling { failed: 1, running: 1 },
            pods: pods.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn patience_counts_from_the_refusal_of_each_pod() {
        let mut patience = Patience::default();
        assert_eq!(patience.update("g", &refused(&["a"]), MicroTime(1)), MicroTime(1));
        assert_eq!(patience.update("g", &refused(&["a", "b"]), MicroTime(5)), MicroTime(1));
        assert_eq!(patience.update("g", &refused(&["b", "c"]), MicroTime(9)), MicroTime(5));
        assert_eq!(patience.update("g", &refused(&[]), MicroTime(12)), MicroTime(12));
        patience.forget("g");
        assert_eq!(patience.update("g", &refused(&["c"]), MicroTime(20)), MicroTime(20));
    }
}
