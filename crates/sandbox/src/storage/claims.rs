//! The controller of claims: binds them, creates their volumes, and keeps those that pods use.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{PROVISIONER, Referenced, best_volume, topology_of};
use crate::cluster::{Change, Cluster, Error, Precondition, Queue, Recorder, Resource, Store};
use crate::wire::{Claim, ClaimRef, Key, Node, Pod, StorageClass, TopologyTerm, Volume};

/// The finalizer that keeps a claim until no pod uses it.
const PROTECTION: &str = "kubernetes.io/pvc-protection";

/// The controller of claims.
pub(crate) struct Claims {
    cluster: Cluster,
    objects: Referenced,
    nodes: Arc<Store<Node>>,
    pods: Arc<Store<Pod>>,
    recorder: Recorder,
    pub(crate) queue: Queue<Key>,
}

impl Claims {
    pub(crate) fn new(
        cluster: Cluster,
        objects: Referenced,
        nodes: Arc<Store<Node>>,
        pods: Arc<Store<Pod>>,
        recorder: &Recorder,
    ) -> Self {
        let recorder = recorder.for_component("persistentvolume-controller");
        Self { cluster, objects, nodes, pods, recorder, queue: Queue::new() }
    }

    /// Queues the claims of a pod that is gone.
    pub(crate) fn pod_changed(&self, change: Change<'_, Pod>) {
        if change.new.is_none() {
            let pod = change.latest();
            for (claim, _) in pod.claims() {
                self.queue.add(Key::new(&*pod.metadata.namespace, claim));
            }
        }
    }

    /// Queues the claim of a volume, or all that may get it.
    pub(crate) fn volume_changed(&self, volume: &Volume) {
        match &volume.spec.claim_ref {
            Some(claim) => self.queue.add(Key::new(&*claim.namespace, &*claim.name)),
            None => self.class_changed(&volume.spec.storage_class_name),
        }
    }

    /// Queues the claims of a class that are not bound.
    pub(crate) fn class_changed(&self, class: &str) {
        let claims = self.objects.claims.all().into_iter();
        for claim in claims.filter(|claim| !claim.is_bound() && claim.class() == class) {
            self.queue.add(claim.metadata.key());
        }
    }

    pub(crate) async fn reconcile(&self, key: Key) -> Result<Option<Instant>, Error> {
        let objects = &self.objects;
        objects.volumes.synced().await;
        objects.classes.synced().await;
        let Some(claim) = objects.claims.get(&key) else { return Ok(None) };
        let is_protected = claim.metadata.finalizers.iter().any(|name| name == PROTECTION);
        if claim.metadata.is_deleting() {
            let is_used = |pod: &Arc<Pod>| !pod.spec.node_name.is_empty();
            let pods = self.pods.indexed(&format!("claim/{}/{}", key.namespace, key.name));
            if is_protected && !pods.iter().any(is_used) {
                let rest: Vec<_> =
                    claim.metadata.finalizers.iter().filter(|name| *name != PROTECTION).collect();
                self.patch(&claim, json!({ "metadata": { "finalizers": rest } })).await?;
            }
            return Ok(None);
        }
        let claim = if is_protected {
            claim
        } else {
            let mut finalizers = claim.metadata.finalizers.clone();
            finalizers.push(PROTECTION.to_owned());
            self.patch(&claim, json!({ "metadata": { "finalizers": finalizers } })).await?
        };
        match self.volume_for(&claim).await? {
            Some(volume) => self.bind(&claim, &volume).await?,
            None if claim.status.phase.is_empty() => {
                self.set_status(&claim, json!({ "phase": "Pending" })).await?;
            }
            None => {}
        }
        Ok(None)
    }

    /// The volume to which the claim is to be bound. It may be created for the claim.
    async fn volume_for(&self, claim: &Arc<Claim>) -> Result<Option<Arc<Volume>>, Error> {
        let name = &claim.spec.volume_name;
        if !name.is_empty() {
            let Some(volume) = self.objects.volume_of(claim) else {
                if claim.status.phase == "Bound" {
                    self.set_status(claim, json!({ "phase": "Lost" })).await?;
                    let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
                    self.recorder.warning(&**claim, "ClaimLost", message);
                }
                return Ok(None);
            };
            let is_free = volume.spec.claim_ref.as_ref().is_none_or(|reference| reference.is_of(claim));
            if !is_free && claim.status.phase != "Bound" {
                let message = format!("volume {name:?} already bound to a different claim.");
                self.recorder.warning(&**claim, "FailedBinding", message);
            }
            return Ok(is_free.then_some(volume));
        }
        let class = self.objects.class_of(claim);
        let waits = class.as_ref().is_some_and(|class| class.waits_for_pod());
        let may = |volume: &Volume| !waits || volume.spec.claim_ref.is_some();
        if let Some(found) = best_volume(self.objects.volumes.all(), claim, may) {
            return Ok(Some(found));
        }
        let tell = |is_warning, reason, message: String| {
            self.recorder.tell(&**claim, is_warning, reason, message);
            Ok(None)
        };
        match class {
            _ if claim.class().is_empty() => {
                let message = "no persistent volumes available for this claim and no storage class is set";
                tell(false, "FailedBinding", message.to_owned())
            }
            None => {
                let message = format!("storageclass.storage.k8s.io {:?} not found", claim.class());
                tell(true, "ProvisioningFailed", message)
            }
            Some(_) if waits && claim.selected_node().is_none() => {
                let message = "waiting for first consumer to be created before binding";
                tell(false, "WaitForFirstConsumer", message.to_owned())
            }
            Some(class) if !class.provisions() => {
                let message = format!(
                    "no persistent volumes available for this claim, and the storage class {} creates none",
                    claim.class()
                );
                tell(false, "FailedBinding", message)
            }
            Some(class) => self.provision(claim, &class).await,
        }
    }

    /// Creates the volume of a claim.
    async fn provision(
        &self,
        claim: &Arc<Claim>,
        class: &StorageClass,
    ) -> Result<Option<Arc<Volume>>, Error> {
        let node = claim.selected_node().and_then(|name| self.nodes.get(&Key::new("", name)));
        let topology = match &node {
            Some(node) => topology_of(class, node),
            None => class.allowed_topologies.first(),
        };
        let name = format!("pvc-{}", claim.metadata.uid);
        let mut volume = json!({
            "apiVersion": Volume::KIND.api_version,
            "kind": Volume::KIND.name,
            "metadata": {
                "name": name,
                "annotations": { "pv.kubernetes.io/provisioned-by": class.provisioner },
            },
            "spec": {
                "capacity": claim.spec.resources.requests,
                "accessModes": claim.spec.access_modes,
                "storageClassName": class.metadata.name,
                "volumeMode": claim.spec.volume_mode.as_deref().unwrap_or("Filesystem"),
                "persistentVolumeReclaimPolicy": class.reclaim_policy.as_deref().unwrap_or("Delete"),
                "claimRef": reference(claim),
                "csi": { "driver": PROVISIONER, "volumeHandle": name },
            },
        });
        if let Some(topology) = topology {
            let terms = json!([{ "matchExpressions": requirements(topology, node.as_deref()) }]);
            volume["spec"]["nodeAffinity"] = json!({ "required": { "nodeSelectorTerms": terms } });
        }
        match self.cluster.create(&self.objects.volumes, "", &volume).await {
            Ok(volume) => {
                let message = format!("Successfully provisioned volume {name}");
                self.recorder.normal(&**claim, "ProvisioningSucceeded", message);
                Ok(Some(volume))
            }
            // The watch has not shown it yet.
            Err(error) if error.is_conflict() => Ok(None),
            Err(error) => {
                self.recorder.warning(&**claim, "ProvisioningFailed", error.reason());
                Err(error)
            }
        }
    }

    /// Binds a claim and a volume to each other.
    async fn bind(&self, claim: &Arc<Claim>, volume: &Arc<Volume>) -> Result<(), Error> {
        let is_whole = volume.spec.claim_ref.as_ref().is_some_and(|claim| !claim.uid.is_empty());
        if !is_whole {
            let patch = json!({ "spec": { "claimRef": reference(claim) } });
            self.cluster
                .patch(&self.objects.volumes, &volume.metadata, patch, Precondition::ResourceVersion)
                .await?;
        }
        let claim = if claim.spec.volume_name.is_empty() {
            let annotations = json!({ "pv.kubernetes.io/bind-completed": "yes" });
            let spec = json!({ "volumeName": volume.metadata.name });
            self.patch(claim, json!({ "metadata": { "annotations": annotations }, "spec": spec })).await?
        } else {
            claim.clone()
        };
        if claim.status.phase == "Bound" {
            return Ok(());
        }
        let (modes, capacity) = (&volume.spec.access_modes, &volume.spec.capacity);
        self.set_status(&claim, json!({ "phase": "Bound", "accessModes": modes, "capacity": capacity })).await
    }

    async fn patch(&self, claim: &Arc<Claim>, patch: Value) -> Result<Arc<Claim>, Error> {
        let precondition = Precondition::ResourceVersion;
        self.cluster.patch(&self.objects.claims, &claim.metadata, patch, precondition).await
    }

    async fn set_status(&self, claim: &Arc<Claim>, status: Value) -> Result<(), Error> {
        let precondition = Precondition::ResourceVersion;
        self.cluster.patch_status(&self.objects.claims, &claim.metadata, status, precondition).await.map(drop)
    }
}

/// The reference of a volume to its claim.
pub(crate) fn reference(claim: &Claim) -> Value {
    let Key { namespace, name } = claim.metadata.key();
    let mut reference = json!(ClaimRef { namespace, name, uid: claim.metadata.uid.clone() });
    reference["apiVersion"] = json!(Claim::KIND.api_version);
    reference["kind"] = json!(Claim::KIND.name);
    reference
}

/// The node requirements of a volume in a topology: those of the node, if it is known.
fn requirements(topology: &TopologyTerm, node: Option<&Node>) -> Vec<Value> {
    let expressions = topology.match_label_expressions.iter();
    let requirement = |key: &str, values: Value| json!({ "key": key, "operator": "In", "values": values });
    let of = expressions.map(|expression| {
        let here = node.and_then(|node| node.metadata.label(&expression.key));
        requirement(&expression.key, here.map_or_else(|| json!(expression.values), |value| json!([value])))
    });
    of.collect()
}
