//! The controller of volumes: their phase, and what becomes of them after their claim.

use serde_json::json;
use tokio::time::Instant;

use super::Referenced;
use crate::cluster::{Cluster, Delete, Error, Precondition, Queue};
use crate::wire::{Claim, Key};

/// The controller of volumes.
pub(crate) struct Volumes {
    cluster: Cluster,
    objects: Referenced,
    pub(crate) queue: Queue<Key>,
}

impl Volumes {
    pub(crate) fn new(cluster: Cluster, objects: Referenced) -> Self {
        Self { cluster, objects, queue: Queue::new() }
    }

    /// Queues the volume of a claim.
    pub(crate) fn claim_changed(&self, claim: &Claim) {
        if !claim.spec.volume_name.is_empty() {
            self.queue.add(Key::new("", &*claim.spec.volume_name));
        }
    }

    pub(crate) async fn reconcile(&self, key: Key) -> Result<Option<Instant>, Error> {
        let (volumes, claims) = (&self.objects.volumes, &self.objects.claims);
        claims.synced().await;
        let Some(volume) = volumes.get(&key).filter(|volume| !volume.metadata.is_deleting()) else {
            return Ok(None);
        };
        let claim_ref = volume.spec.claim_ref.as_ref().filter(|claim| !claim.uid.is_empty());
        let phase = match claim_ref {
            None => "Available",
            Some(claim)
                if claims
                    .get(&Key::new(&*claim.namespace, &*claim.name))
                    .is_some_and(|c| c.metadata.uid == claim.uid) =>
            {
                "Bound"
            }
            Some(_) if volume.spec.persistent_volume_reclaim_policy == "Delete" => {
                let deleted = self.cluster.delete(volumes, &volume.metadata, Delete::default()).await;
                return deleted.map(|()| None);
            }
            Some(_) => "Released",
        };
        if volume.status.phase != phase {
            let status = json!({ "phase": phase });
            self.cluster
                .patch_status(volumes, &volume.metadata, status, Precondition::ResourceVersion)
                .await?;
        }
        Ok(None)
    }
}
