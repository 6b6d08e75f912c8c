//! The kinds that components access: their API paths and the indexes of their stores.

use api::kueue::jobs::operator::WRAPPER_LABEL;
use serde::de::DeserializeOwned;

use crate::ray;
use crate::wire::{
    Claim, CustomResourceDefinition, DaemonSet, Deployment, Job, Key, Meta, Namespace, Node, Pod, ReplicaSet,
    StatefulSet, StorageClass, Volume,
};

/// API path and kind of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// Group and version, as in the field `apiVersion`.
    pub(crate) api_version: &'static str,
    pub(crate) name: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) namespaced: bool,
}

impl Kind {
    /// A kind of the table of jobs.
    pub(crate) const fn of_jobs(kind: &api::kueue::jobs::JobKind) -> Self {
        Self::namespaced(kind.api_version, kind.kind, kind.plural)
    }

    /// A kind of objects that describe pods of jobs.
    pub(crate) const fn referenced(kind: &api::kueue::jobs::ReferencedKind) -> Self {
        Self {
            api_version: kind.api_version,
            name: kind.kind,
            plural: kind.plural,
            namespaced: kind.is_namespaced,
        }
    }

    const fn namespaced(api_version: &'static str, name: &'static str, plural: &'static str) -> Self {
        Self { api_version, name, plural, namespaced: true }
    }

    /// A kind of the training operator.
    pub(crate) const fn training(name: &'static str, plural: &'static str) -> Self {
        Self::namespaced("kubeflow.org/v1", name, plural)
    }

    const fn global(api_version: &'static str, name: &'static str, plural: &'static str) -> Self {
        Self { api_version, name, plural, namespaced: false }
    }

    pub(crate) const EVENT: Self = Self::namespaced("v1", "Event", "events");
    pub(crate) const SERVICE: Self = Self::namespaced("v1", "Service", "services");
    pub(crate) const SECRET: Self = Self::namespaced("v1", "Secret", "secrets");
    pub(crate) const JOB: Self = Self::namespaced("batch/v1", "Job", "jobs");
    pub(crate) const POD_TEMPLATE: Self = Self::namespaced("v1", "PodTemplate", "podtemplates");
    pub(crate) const PROVISIONING_REQUEST: Self =
        Self::namespaced(api::provisioning::API_VERSION, api::provisioning::KIND, api::provisioning::PLURAL);
    pub(crate) const JOB_SET: Self = Self::namespaced("jobset.x-k8s.io/v1alpha2", "JobSet", "jobsets");
    pub(crate) const LEADER_WORKER_SET: Self =
        Self::namespaced("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "leaderworkersets");
    pub(crate) const MPI_JOB: Self = Self::namespaced("kubeflow.org/v2beta1", "MPIJob", "mpijobs");
    pub(crate) const INGRESS: Self = Self::namespaced("networking.k8s.io/v1", "Ingress", "ingresses");
    pub(crate) const SERVICE_ACCOUNT: Self = Self::namespaced("v1", "ServiceAccount", "serviceaccounts");
    pub(crate) const ROLE: Self = Self::namespaced("rbac.authorization.k8s.io/v1", "Role", "roles");
    pub(crate) const ROLE_BINDING: Self =
        Self::namespaced("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings");
    pub(crate) const LEASE: Self = Self::namespaced("coordination.k8s.io/v1", "Lease", "leases");
    pub(crate) const REVISION: Self =
        Self::namespaced("apps/v1", "ControllerRevision", "controllerrevisions");

    /// The path of the collection in a namespace, or in all namespaces if `namespace` is empty.
    pub(crate) fn collection(&self, namespace: &str) -> String {
        let root = if self.api_version.contains('/') { "apis" } else { "api" };
        let (version, plural) = (self.api_version, self.plural);
        if self.namespaced && !namespace.is_empty() {
            format!("/{root}/{version}/namespaces/{namespace}/{plural}")
        } else {
            format!("/{root}/{version}/{plural}")
        }
    }

    /// The path of one object.
    pub(crate) fn path(&self, key: &Key) -> String {
        format!("{}/{}", self.collection(&key.namespace), key.name)
    }
}

/// An object that is watched and cached.
pub(crate) trait Cached: DeserializeOwned + PartialEq + Send + Sync + 'static {
    fn meta(&self) -> &Meta;

    /// Adds the index keys of the object. Default: the uid of its controller.
    fn index(&self, add: &mut dyn FnMut(String)) {
        if let Some(owner) = self.meta().controller() {
            add(owner.uid.clone());
        }
    }
}

/// An object of a single kind.
pub(crate) trait Resource: Cached {
    const KIND: Kind;
}

macro_rules! resource {
    ($($type:ty => $scope:ident($version:literal, $name:literal, $plural:literal);)*) => {
        $(impl Resource for $type {
            const KIND: Kind = Kind::$scope($version, $name, $plural);
        }

        impl Cached for $type {
            fn meta(&self) -> &Meta {
                &self.metadata
            }
        })*
    };
}

resource! {
    Node => global("v1", "Node", "nodes");
    Namespace => global("v1", "Namespace", "namespaces");
    Claim => namespaced("v1", "PersistentVolumeClaim", "persistentvolumeclaims");
    Volume => global("v1", "PersistentVolume", "persistentvolumes");
    StorageClass => global("storage.k8s.io/v1", "StorageClass", "storageclasses");
    Job => namespaced("batch/v1", "Job", "jobs");
    Deployment => namespaced("apps/v1", "Deployment", "deployments");
    ReplicaSet => namespaced("apps/v1", "ReplicaSet", "replicasets");
    StatefulSet => namespaced("apps/v1", "StatefulSet", "statefulsets");
    DaemonSet => namespaced("apps/v1", "DaemonSet", "daemonsets");
    ray::RayCluster => namespaced("ray.io/v1", "RayCluster", "rayclusters");
    ray::RayJob => namespaced("ray.io/v1", "RayJob", "rayjobs");
    CustomResourceDefinition =>
        global("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions");
}

/// The index key of pods with a label that names their job.
pub(crate) fn labelled(label: &str, namespace: &str, name: &str) -> String {
    format!("{label}/{namespace}/{name}")
}

impl Resource for Pod {
    const KIND: Kind = Kind::namespaced("v1", "Pod", "pods");
}

impl Cached for Pod {
    fn meta(&self) -> &Meta {
        &self.metadata
    }

    /// Indexed by controller uid, Job (`job/NAMESPACE/NAME`), node (`node/NAME`), claim
    /// (`claim/NAMESPACE/NAME`), Ray cluster (`ray/NAMESPACE/NAME`) and AppWrapper ([`labelled`]).
    fn index(&self, add: &mut dyn FnMut(String)) {
        if let Some(owner) = self.metadata.controller() {
            add(owner.uid.clone());
            if owner.kind == "Job" {
                add(format!("job/{}/{}", self.metadata.namespace, owner.name));
            }
        }
        if !self.spec.node_name.is_empty() {
            add(format!("node/{}", self.spec.node_name));
        }
        for (claim, _) in self.claims() {
            add(format!("claim/{}/{claim}", self.metadata.namespace));
        }
        if let Some(cluster) = self.metadata.label("ray.io/cluster") {
            add(format!("ray/{}/{cluster}", self.metadata.namespace));
        }
        if let Some(wrapper) = self.metadata.label(WRAPPER_LABEL) {
            add(labelled(WRAPPER_LABEL, &self.metadata.namespace, wrapper));
        }
    }
}
