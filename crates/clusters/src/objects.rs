//! What decisions read: the observed objects, and what has become of writes.

use std::collections::BTreeMap;

use api::MicroTime;

use crate::dispatch::{HubWrite, SeenJob};
use crate::hub::Hub;
use crate::items::Step;
use crate::watch::Key;
use crate::worker::Worker;

/// What decisions read.
#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) hub: Hub,
    pub(crate) workers: BTreeMap<String, Worker>,
    pub(crate) origin: String,
    /// When this loop has begun.
    pub(crate) started: MicroTime,
    /// What no object says of the Workloads of the hub.
    pub(crate) memories: BTreeMap<Key, Memory>,
}

/// What has become of the writes about a Workload of the hub.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// The uid of the Workload.
    uid: String,
    /// Why workers have not taken it or its job, by cluster.
    pub(crate) refusals: BTreeMap<String, String>,
    /// Why its job is not to run in other clusters.
    pub(crate) unmanaged: Option<String>,
    /// What of its job in a worker has come back.
    pub(crate) synced: Option<SeenJob>,
    /// The eviction whose end the status of its job says.
    pub(crate) stopped: Option<String>,
    /// When clusters were nominated last.
    pub(crate) nominated: Option<MicroTime>,
}

impl Objects {
    /// What is remembered of a Workload that is there.
    pub(crate) fn memory(&self, key: &Key) -> Option<&Memory> {
        let uid = &self.hub.workloads.get(key)?.metadata.uid;
        self.memories.get(key).filter(|memory| memory.uid == *uid)
    }

    /// The same, to be changed. Nothing is remembered of an earlier Workload of this name.
    pub(crate) fn memory_mut(&mut self, key: &Key) -> Option<&mut Memory> {
        let uid = &self.hub.workloads.get(key)?.metadata.uid;
        let memory = self.memories.entry(key.clone()).or_default();
        if memory.uid != *uid {
            *memory = Memory { uid: uid.clone(), ..Memory::default() };
        }
        Some(memory)
    }
}

impl Memory {
    /// A write has succeeded.
    pub(crate) fn written(&mut self, step: &Step, now: MicroTime) {
        match step {
            Step::Hub(HubWrite::Nominate { .. }) => self.nominated = Some(now),
            Step::Hub(HubWrite::SyncJob { seen, .. }) => self.synced = Some(seen.clone()),
            Step::Hub(HubWrite::StopJob { stop, .. }) => self.stopped = Some(stop.clone()),
            Step::Remote(cluster, _) => {
                self.refusals.remove(cluster);
            }
            Step::Hub(HubWrite::Status { .. }) | Step::Conditions(..) => {}
        }
    }
}
