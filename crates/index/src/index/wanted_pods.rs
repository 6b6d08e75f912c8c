//! The number of pods that wrapped objects ask for at present: users, autoscalers and progress change it while a gang runs.

use std::collections::BTreeMap;

use super::Index;
use crate::objects::{ObjectKey, ObjectRow};
use crate::wrapper::Wrapper;

/// Condition types of a Job that has ended.
const ENDED: [&str; 2] = ["Complete", "Failed"];

impl Index {
    /// For each pod set, the number of pods that its object asks for; `None` if that is not known, for instance because the
    /// object does not exist. Nothing creates the pods of a deleted object again: it asks for the pods that are left.
    pub(super) fn wanted_pods(&self, wrapper: &Wrapper) -> Vec<Option<u32>> {
        let keys: Vec<&ObjectKey> = wrapper.summary.objects().collect();
        let rows: Vec<Option<&ObjectRow>> = keys.iter().map(|key| self.object(wrapper, key)).collect();
        let pods = self.pods.of_owner(&wrapper.key.namespace, &wrapper.uid);
        let pods: BTreeMap<&str, bool> = pods.map(|pod| (pod.name.as_str(), pod.is_live())).collect();
        let left = self.pods_with_deleted_objects(wrapper);
        let sources = wrapper.summary.sources.iter().enumerate();
        sources
            .map(|(set, source)| {
                let key = keys.get(source.object)?;
                if wrapper.deleted.contains_key(*key) {
                    return Some(left.get(&set).copied().unwrap_or_default());
                }
                match (key.kind.group(), key.kind.kind.as_str()) {
                    // A wrapped Pod that has ended is not needed any more.
                    ("", "Pod") => pods.get(key.name.as_str()).map(|is_live| u32::from(*is_live)),
                    _ => self.wanted_of_object(rows.get(source.object).copied().flatten()?, &source.role),
                }
            })
            .collect()
    }

    fn wanted_of_object(&self, row: &ObjectRow, role: &str) -> Option<u32> {
        if row.is_deleting {
            return None;
        }
        match (row.key.kind.group(), row.key.kind.kind.as_str()) {
            ("batch", "Job") => row.pods_needed(),
            ("apps", "Deployment" | "ReplicaSet" | "StatefulSet") => row.spec.replicas,
            ("ray.io", "RayCluster") => {
                let mut groups = row.spec.worker_groups.iter();
                groups.find(|group| group.name == role).map(|group| group.pods)
            }
            ("ray.io", "RayJob") => {
                let mut clusters = self
                    .objects
                    .of_owner(&row.namespace, &row.uid)
                    .filter(|child| child.key.kind.kind == "RayCluster");
                // While a job is retried it has two clusters.
                let cluster = clusters.next()?;
                clusters.next().is_none().then(|| self.wanted_of_object(cluster, role))?
            }
            _ => None,
        }
    }
}

impl ObjectRow {
    /// The number of pods that a Job needs at the same time from now on; `None` if it is not known.
    pub(super) fn pods_needed(&self) -> Option<u32> {
        let mut holding = self.conditions.iter().filter(|condition| condition.status == "True");
        if holding.any(|condition| ENDED.contains(&condition.kind.as_str())) {
            return Some(0);
        }
        let left = self.spec.completions?.saturating_sub(self.succeeded);
        Some(left.min(self.spec.parallelism.unwrap_or(1)))
    }
}
