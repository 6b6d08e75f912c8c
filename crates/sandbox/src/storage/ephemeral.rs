//! Creates the claims of ephemeral volumes. They are deleted with their pod.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::cluster::{Cluster, Error, Queue, Recorder, Resource, Store};
use crate::wire::{Claim, Key, Owner, Pod};

/// The controller of claims of ephemeral volumes.
pub(crate) struct EphemeralClaims {
    cluster: Cluster,
    claims: Arc<Store<Claim>>,
    pods: Arc<Store<Pod>>,
    recorder: Recorder,
    pub(crate) queue: Queue<Key>,
}

impl EphemeralClaims {
    pub(crate) fn new(
        cluster: Cluster,
        claims: Arc<Store<Claim>>,
        pods: Arc<Store<Pod>>,
        recorder: &Recorder,
    ) -> Self {
        let recorder = recorder.for_component("ephemeral_volume");
        Self { cluster, claims, pods, recorder, queue: Queue::new() }
    }

    /// Queues a pod with ephemeral volumes.
    pub(crate) fn pod_changed(&self, pod: &Pod) {
        if pod.claims().any(|(_, is_created)| is_created) {
            self.queue.add(pod.metadata.key());
        }
    }

    pub(crate) async fn reconcile(&self, key: Key) -> Result<Option<Instant>, Error> {
        self.claims.synced().await;
        let Some(pod) = self.pods.get(&key).filter(|pod| pod.is_active()) else { return Ok(None) };
        for volume in &pod.spec.volumes {
            let Some(source) = &volume.ephemeral else { continue };
            let name = format!("{}-{}", pod.metadata.name, volume.name);
            match self.claims.get(&Key::new(&*key.namespace, &*name)) {
                Some(claim) if claim.is_created_for(&pod) => continue,
                Some(_) => {
                    let message = format!(
                        "PVC {}/{name} was not created for pod {key} (pod is not owner)",
                        key.namespace
                    );
                    self.recorder.warning(&*pod, "EphemeralVolumeConflict", message);
                    continue;
                }
                None => {}
            }
            let mut claim = claim(&source.volume_claim_template, &name);
            claim["metadata"]["ownerReferences"] =
                json!([Owner::controller_of(Pod::KIND.api_version, Pod::KIND.name, &pod.metadata)]);
            self.cluster.create(&self.claims, &key.namespace, &claim).await?;
        }
        Ok(None)
    }
}

/// A claim from a template.
pub(crate) fn claim(template: &Value, name: &str) -> Value {
    let mut metadata = json!({ "name": name });
    for field in ["labels", "annotations"] {
        if template["metadata"][field].is_object() {
            metadata[field] = template["metadata"][field].clone();
        }
    }
    json!({
        "apiVersion": Claim::KIND.api_version,
        "kind": Claim::KIND.name,
        "metadata": metadata,
        "spec": template["spec"],
    })
}
