//! How many gangs of the hub each worker has, kept as Workloads change.

use std::collections::BTreeMap;

use controllers::Meter;

use crate::hub::Hub;
use crate::watch::Key;

/// The clusters of Workloads that have not ended, and their numbers.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    chosen: BTreeMap<Key, String>,
    gangs: BTreeMap<String, usize>,
}

impl Figures {
    /// A Workload may have changed. Returns the clusters whose number has.
    pub(crate) fn look(&mut self, hub: &Hub, key: &Key) -> Vec<String> {
        let local = hub.local(key).filter(|local| !local.is_finished());
        let chosen = local.and_then(|local| local.status.cluster_name);
        let before = match &chosen {
            Some(cluster) => self.chosen.insert(key.clone(), cluster.clone()),
            None => self.chosen.remove(key),
        };
        if before == chosen {
            return Vec::new();
        }
        if let Some(cluster) = &before
            && let Some(gangs) = self.gangs.get_mut(cluster)
        {
            *gangs -= 1;
        }
        if let Some(cluster) = &chosen {
            *self.gangs.entry(cluster.clone()).or_default() += 1;
        }
        before.into_iter().chain(chosen).collect()
    }

    /// Tells the figures of a cluster; those of one that is no worker are forgotten.
    pub(crate) fn tell(&self, meter: &Meter, hub: &Hub, cluster: &str, is_connected: bool) {
        if hub.clusters.contains_key(cluster) {
            meter.set_cluster(cluster, is_connected, self.gangs.get(cluster).copied().unwrap_or_default());
        } else {
            meter.forget_cluster(cluster);
        }
    }
}
