//! Persistent storage: claims are bound to volumes, and volumes are created for claims of every class with a provisioner.
//!
//! After the controllers `persistentvolume-binder`, `pvc-protection` and `ephemeral-volume` of kube-controller-manager and an
//! external provisioner. The scheduler decides about claims that wait for their first pod. Not simulated: resizing, snapshots,
//! attachment, recycling, the protection of bound volumes from deletion, failures of the provisioner.

mod claims;
mod ephemeral;
mod matching;
mod volumes;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::cluster::{Resource, Store};
use crate::wire::{Claim, Key, Namespace, StorageClass, Volume};

pub(crate) use claims::{Claims, reference};
pub(crate) use ephemeral::{EphemeralClaims, claim};
use matching::topology_of;
pub(crate) use matching::{best_volume, is_usable_on, provisions_for};
pub(crate) use volumes::Volumes;

/// The provisioner of the default class. The volumes of every other provisioner are simulated, too.
const PROVISIONER: &str = "sandbox.muster.dev";

/// The objects that decide where pods with claims run, and the namespaces of pods.
#[derive(Clone)]
pub(crate) struct Referenced {
    pub(crate) claims: Arc<Store<Claim>>,
    pub(crate) volumes: Arc<Store<Volume>>,
    pub(crate) classes: Arc<Store<StorageClass>>,
    pub(crate) namespaces: Arc<Store<Namespace>>,
}

impl Default for Referenced {
    fn default() -> Self {
        let (claims, volumes) = (Arc::new(Store::new()), Arc::new(Store::new()));
        Self { claims, volumes, classes: Arc::new(Store::new()), namespaces: Arc::new(Store::new()) }
    }
}

impl std::fmt::Debug for Referenced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Referenced").finish_non_exhaustive()
    }
}

impl Referenced {
    /// The class of a claim, if it has one that exists.
    pub(crate) fn class_of(&self, claim: &Claim) -> Option<Arc<StorageClass>> {
        self.classes.get(&Key::new("", claim.class()))
    }

    /// The volume to which a claim is bound.
    pub(crate) fn volume_of(&self, claim: &Claim) -> Option<Arc<Volume>> {
        self.volumes.get(&Key::new("", &*claim.spec.volume_name))
    }
}

/// The default class, as most clusters have one: its volumes can be used on every node.
pub(crate) fn default_class() -> Value {
    json!({
        "apiVersion": StorageClass::KIND.api_version,
        "kind": StorageClass::KIND.name,
        "metadata": {
            "name": "standard",
            "annotations": { "storageclass.kubernetes.io/is-default-class": "true" },
        },
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    })
}
