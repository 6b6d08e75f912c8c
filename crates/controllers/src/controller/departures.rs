//! Pods that stay when their AppWrapper is deleted, for instance because of a finalizer. Preemptors wait for terminating
//! pods, but not without end.

use std::collections::BTreeMap;

use api::MicroTime;
use index::Index;

use crate::step::STUCK_AFTER_S;

/// Since when deleted AppWrappers, by uid, have had remaining pods.
#[derive(Debug, Default)]
pub(super) struct Departures(BTreeMap<String, MicroTime>);

impl Departures {
    /// Releases the pods of AppWrappers that were deleted long ago.
    pub(super) fn release(&mut self, index: &mut Index, now: MicroTime) {
        let departed = index.departed().clone();
        self.0.retain(|uid, _| departed.contains(uid));
        for uid in departed {
            let since = *self.0.entry(uid.clone()).or_insert(now);
            if since.plus_s(STUCK_AFTER_S) <= now {
                tracing::warn!(
                    uid,
                    "pods of a deleted AppWrapper are not deleted; their finalizers or those of their owners may keep them"
                );
                index.release_departed(&uid);
                self.0.remove(&uid);
            }
        }
    }

    /// When the next pods are released.
    pub(super) fn due(&self) -> Option<MicroTime> {
        self.0.values().min().map(|since| since.plus_s(STUCK_AFTER_S))
    }
}
