//! Writes the finalizers and statuses of queues, and forgets those that are gone.

use std::collections::BTreeSet;

use api::MicroTime;
use index::{Index, QueueKey};
use serde_json::Value;

use super::super::State;
use super::{KueueOutcome, figures};
use crate::kueue::statuses;
use crate::kueue::write::{self, QueueWrite};
use crate::observations::Observation;

impl State {
    /// Forgets the totals of queues and cohorts that are gone. A cohort without an object is, when no queue is in it.
    pub(super) fn forget_gone(&self, index: &Index, changed: &BTreeSet<QueueKey>) {
        // A changed queue or cohort changes flavors, too; Workloads change the figures of queues alone.
        let are_figures = |key: &QueueKey| {
            matches!(key, QueueKey::Cluster(_) | QueueKey::Local(..)) && !is_gone(index, key)
        };
        if changed.iter().all(are_figures) {
            return;
        }
        let mut totals = self.kueue.metrics.totals();
        for key in changed.iter().filter(|key| is_gone(index, key)) {
            totals.forget(key);
        }
        let known = index.quota_nodes().cohorts;
        for cohort in totals.cohorts() {
            if !known.contains_key(cohort.as_str()) && index.cohort(&cohort).is_none() {
                totals.forget(&QueueKey::Cohort(cohort));
            }
        }
    }

    /// Lets the status of a queue be written, which may have changed.
    pub(super) fn figures_changed(&mut self, index: &Index, key: QueueKey, now: MicroTime) {
        let uid = index.queue_uid(&key).unwrap_or_default();
        self.kueue.figures.change(key, uid, now);
    }

    /// With fair sharing, the shares of the cohorts above changed queues, and of all queues in them, may have changed.
    pub(super) fn note_shares(&mut self, index: &Index, changed: &BTreeSet<QueueKey>) {
        if self.config.kueue_options.fair_sharing.is_none() {
            return;
        }
        let roots: BTreeSet<&str> = changed
            .iter()
            .filter_map(|key| match key {
                QueueKey::Cluster(name) => index.cohorts_of(name).last().copied(),
                QueueKey::Cohort(name) => index.cohort_path(name).last().copied(),
                QueueKey::Flavor(_) | QueueKey::Topology(_) | QueueKey::Check(_) | QueueKey::Local(..) => {
                    None
                }
            })
            .collect();
        let now = self.now();
        let cohorts = index.cohorts().map(|cohort| cohort.metadata.name.as_str());
        let cohorts =
            cohorts.filter(|name| index.cohort_path(name).last().is_some_and(|root| roots.contains(root)));
        let queues = index.cluster_queues().map(|queue| queue.metadata.name.as_str());
        let queues =
            queues.filter(|name| index.cohorts_of(name).last().is_some_and(|root| roots.contains(root)));
        let keys = cohorts.map(|name| QueueKey::Cohort(name.to_owned()));
        for key in keys.chain(queues.map(|name| QueueKey::Cluster(name.to_owned()))) {
            self.figures_changed(index, key, now);
        }
    }

    pub(super) fn write_queues(&mut self, index: &Index, now: MicroTime) {
        while let Some(key) = self.kueue.figures.pop(now) {
            let Some(write) = self.queue_write(index, &key, now) else { continue };
            let uid = index.queue_uid(&key).unwrap_or_default().to_owned();
            let is_status = matches!(write, QueueWrite::Status(_));
            self.kueue.figures.begin(key.clone(), is_status.then(|| (uid.clone(), now)));
            let (client, observations) = (self.client.clone(), self.observations.clone());
            self.tasks.spawn(async move {
                let written = write::queue(&client, &key, &write).await;
                drop(
                    observations.send(Observation::KueueDone(KueueOutcome::Queue(key, uid, write, written))),
                );
            });
        }
    }

    /// What is to be written about a queue or flavor: first its finalizers, then its status if it is another one.
    fn queue_write(&mut self, index: &Index, key: &QueueKey, now: MicroTime) -> Option<QueueWrite> {
        if let Some(finalizers) = index.wanted_finalizers(key) {
            return Some(QueueWrite::Finalizers(finalizers));
        }
        let shares = self.config.kueue_options.fair_sharing.is_some();
        let Some(status) = statuses::of(index, key, now, shares) else {
            self.kueue.written.remove(key);
            self.kueue.figures.forget(key);
            self.kueue.sampled.remove(key);
            return None;
        };
        let written = self.kueue.written.get(key).filter(|(uid, _)| index.queue_uid(key) == Some(uid));
        let written = written.map(|(_, written)| written);
        if let Some(rules) =
            self.config.kueue_options.rules.usage.as_ref().filter(|_| !status["fairSharing"].is_null())
            && matches!(key, QueueKey::Local(..))
        {
            let sampling_us = rules.sampling_us;
            let changes = written.map(|written| statuses::compare_usage(written, &status));
            return self.sample(key, status, changes.unwrap_or((false, true)), now, sampling_us);
        }
        (written != Some(&status)).then_some(QueueWrite::Status(status))
    }

    /// A status with the usage of a local queue: it is written when the rest has changed, and once per sampling interval
    /// while the usage changes. Whether the rest is as it was written, and whether the usage has changed.
    fn sample(
        &mut self,
        key: &QueueKey,
        status: Value,
        (is_alike, has_usage_changed): (bool, bool),
        now: MicroTime,
        sampling_us: i64,
    ) -> Option<QueueWrite> {
        if is_alike && !has_usage_changed {
            return None;
        }
        let sampled = self.kueue.sampled.get(key).copied();
        let due = sampled.map_or(now, |sampled| MicroTime(sampled.0.saturating_add(sampling_us)));
        if is_alike && due > now {
            self.kueue.figures.note(key.clone(), due);
            return None;
        }
        self.kueue.sampled.insert(key.clone(), now);
        let next = MicroTime(now.0.saturating_add(sampling_us.max(figures::DELAY_US)));
        self.kueue.figures.note(key.clone(), next);
        Some(QueueWrite::Status(status))
    }
}

/// Whether a queue is deleted.
fn is_gone(index: &Index, key: &QueueKey) -> bool {
    matches!(key, QueueKey::Cluster(_) | QueueKey::Local(..)) && index.queue_uid(key).is_none()
}
