//! The built-in resources, one entry each, as printed by `kubectl api-resources`.

use super::{Field, Generation, Resource, Rules, Subresource};
use crate::names::NameRule;
use crate::object;

const ALL: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const NO_COLLECTION: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];
const CREATE: &[&str] = &["create"];
const READ_WRITE: &[&str] = &["get", "patch", "update"];

/// Groups by descending priority in kube-aggregator. All other groups follow, sorted by name.
const GROUPS: &[&str] = &[
    "",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "resource.k8s.io",
];

pub(super) fn group_rank(group: &str) -> (usize, String) {
    let rank = GROUPS.iter().position(|g| *g == group).unwrap_or(GROUPS.len());
    (rank, group.to_owned())
}

pub(super) const STATUS: Subresource =
    Subresource { name: "status", group: "", version: "", kind: "", verbs: READ_WRITE };
pub(super) const SCALE: Subresource =
    Subresource { name: "scale", group: "autoscaling", version: "v1", kind: "Scale", verbs: READ_WRITE };
const FINALIZE: Subresource =
    Subresource { name: "finalize", group: "", version: "", kind: "", verbs: &["update"] };
const BINDING: Subresource =
    Subresource { name: "binding", group: "", version: "", kind: "Binding", verbs: CREATE };
const EVICTION: Subresource =
    Subresource { name: "eviction", group: "policy", version: "v1", kind: "Eviction", verbs: CREATE };
const LOG: Subresource = Subresource { name: "log", group: "", version: "", kind: "", verbs: &["get"] };
const RESIZE: Subresource =
    Subresource { name: "resize", group: "", version: "", kind: "", verbs: READ_WRITE };
const EPHEMERAL: Subresource =
    Subresource { name: "ephemeralcontainers", group: "", version: "", kind: "", verbs: READ_WRITE };
const ATTACH: Subresource = stream("attach", "PodAttachOptions");
const EXEC: Subresource = stream("exec", "PodExecOptions");
const PORT_FORWARD: Subresource = stream("portforward", "PodPortForwardOptions");

/// A streaming subresource of pods.
const fn stream(name: &'static str, kind: &'static str) -> Subresource {
    Subresource { name, group: "", version: "v1", kind, verbs: &["create", "get"] }
}

const TOKEN: Subresource = Subresource {
    name: "token",
    group: "authentication.k8s.io",
    version: "v1",
    kind: "TokenRequest",
    verbs: CREATE,
};

/// Builder for an entry: starts with the common values and changes some of them.
struct ResourceBuilder(Resource);

fn resource(api_version: &str, kind: &str, plural: &str) -> ResourceBuilder {
    let (group, version) = object::group_version(api_version);
    ResourceBuilder(Resource {
        group: group.into(),
        version: version.into(),
        plural: plural.into(),
        singular: kind.to_lowercase(),
        kind: kind.into(),
        list_kind: format!("{kind}List"),
        namespaced: true,
        short_names: Vec::new(),
        categories: Vec::new(),
        verbs: ALL,
        subresources: Vec::new(),
        storage: crate::status::qualified(group, plural).into(),
        stored_as: api_version.into(),
        rules: Rules::DEFAULT,
        fields: Vec::new(),
        custom: None,
    })
}

impl ResourceBuilder {
    fn cluster(mut self) -> Self {
        self.0.namespaced = false;
        self
    }

    fn short(mut self, names: &[&str]) -> Self {
        self.0.short_names = names.iter().copied().map(String::from).collect();
        self
    }

    /// Adds the resource to the category `all`, which `kubectl get all` lists.
    fn in_all(mut self) -> Self {
        self.0.categories = vec!["all".into()];
        self
    }

    fn category(mut self, category: &str) -> Self {
        self.0.categories = vec![category.into()];
        self
    }

    fn verbs(mut self, verbs: &'static [&'static str]) -> Self {
        self.0.verbs = verbs;
        self
    }

    fn sub(mut self, subresources: &[Subresource]) -> Self {
        self.0.subresources.extend_from_slice(subresources);
        self
    }

    fn status(self) -> Self {
        self.sub(&[STATUS])
    }

    fn names(mut self, rule: NameRule) -> Self {
        self.0.rules.names = rule;
        self
    }

    fn generation(mut self) -> Self {
        self.0.rules.generation = Generation::Spec;
        self
    }

    fn conditional(mut self) -> Self {
        self.0.rules.unconditional = false;
        self
    }

    fn create_on_update(mut self) -> Self {
        self.0.rules.create_on_update = true;
        self
    }

    fn returns_deleted(mut self) -> Self {
        self.0.rules.returns_deleted = true;
        self
    }

    fn orphans(mut self) -> Self {
        self.0.rules.orphans = true;
        self
    }

    /// Selectable fields as (label, path, value when missing).
    fn fields(mut self, fields: &[(&str, &str, &'static str)]) -> Self {
        let field = |(label, path, unset): &(&str, &str, &'static str)| Field {
            label: (*label).into(),
            path: path.split('.').map(String::from).collect(),
            unset,
            served: true,
        };
        self.0.fields = fields.iter().map(field).collect();
        self
    }

    /// Marks the entry as another version or view of a resource that is stored elsewhere.
    fn stored(mut self, storage: &str, api_version: &str) -> Self {
        self.0.storage = storage.into();
        self.0.stored_as = api_version.into();
        self
    }
}

const POD_FIELDS: &[(&str, &str, &str)] = &[
    ("spec.nodeName", "spec.nodeName", ""),
    ("spec.restartPolicy", "spec.restartPolicy", "Always"),
    ("spec.schedulerName", "spec.schedulerName", ""),
    ("spec.serviceAccountName", "spec.serviceAccountName", ""),
    ("spec.hostNetwork", "spec.hostNetwork", "false"),
    ("status.phase", "status.phase", ""),
    ("status.podIP", "status.podIP", ""),
    ("status.nominatedNodeName", "status.nominatedNodeName", ""),
];
const EVENT_FIELDS: &[(&str, &str, &str)] = &[
    ("involvedObject.kind", "involvedObject.kind", ""),
    ("involvedObject.namespace", "involvedObject.namespace", ""),
    ("involvedObject.name", "involvedObject.name", ""),
    ("involvedObject.uid", "involvedObject.uid", ""),
    ("involvedObject.apiVersion", "involvedObject.apiVersion", ""),
    ("involvedObject.resourceVersion", "involvedObject.resourceVersion", ""),
    ("involvedObject.fieldPath", "involvedObject.fieldPath", ""),
    ("reason", "reason", ""),
    ("reportingComponent", "reportingComponent", ""),
    ("source", "source.component", ""),
    ("type", "type", ""),
];
const EVENT_VIEW_FIELDS: &[(&str, &str, &str)] = &[
    ("regarding.kind", "involvedObject.kind", ""),
    ("regarding.namespace", "involvedObject.namespace", ""),
    ("regarding.name", "involvedObject.name", ""),
    ("regarding.uid", "involvedObject.uid", ""),
    ("regarding.apiVersion", "involvedObject.apiVersion", ""),
    ("regarding.resourceVersion", "involvedObject.resourceVersion", ""),
    ("regarding.fieldPath", "involvedObject.fieldPath", ""),
    ("reason", "reason", ""),
    ("reportingController", "reportingComponent", ""),
    ("source", "source.component", ""),
    ("type", "type", ""),
];

/// All built-in entries.
pub(super) fn resources() -> Vec<Resource> {
    let mut builders = core();
    builders.extend(workloads());
    builders.extend(policies());
    builders.extend(infrastructure());
    builders.extend(reviews());
    builders.into_iter().map(|builder| builder.0).collect()
}

fn core() -> Vec<ResourceBuilder> {
    vec![
        resource("v1", "Pod", "pods")
            .short(&["po"])
            .in_all()
            .sub(&[STATUS, ATTACH, BINDING, EPHEMERAL, EVICTION, EXEC, LOG, PORT_FORWARD, RESIZE])
            .generation()
            .returns_deleted()
            .fields(POD_FIELDS),
        resource("v1", "Service", "services")
            .short(&["svc"])
            .in_all()
            .status()
            .names(NameRule::Label1035)
            .returns_deleted()
            .fields(&[("spec.clusterIP", "spec.clusterIP", ""), ("spec.type", "spec.type", "")]),
        resource("v1", "Node", "nodes").cluster().short(&["no"]).status().fields(&[(
            "spec.unschedulable",
            "spec.unschedulable",
            "false",
        )]),
        resource("v1", "Namespace", "namespaces")
            .cluster()
            .short(&["ns"])
            .verbs(NO_COLLECTION)
            .sub(&[STATUS, FINALIZE])
            .names(NameRule::Label)
            .fields(&[("status.phase", "status.phase", "")]),
        resource("v1", "ConfigMap", "configmaps").short(&["cm"]),
        resource("v1", "Secret", "secrets").fields(&[("type", "type", "")]),
        resource("v1", "ServiceAccount", "serviceaccounts").short(&["sa"]).sub(&[TOKEN]).returns_deleted(),
        resource("v1", "Event", "events").short(&["ev"]).create_on_update().fields(EVENT_FIELDS),
        resource("v1", "Endpoints", "endpoints").short(&["ep"]).create_on_update(),
        resource("v1", "PersistentVolume", "persistentvolumes")
            .cluster()
            .short(&["pv"])
            .status()
            .returns_deleted(),
        resource("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
            .short(&["pvc"])
            .status()
            .returns_deleted(),
        resource("v1", "ResourceQuota", "resourcequotas").short(&["quota"]).status().returns_deleted(),
        resource("v1", "LimitRange", "limitranges").short(&["limits"]),
        resource("v1", "ReplicationController", "replicationcontrollers")
            .short(&["rc"])
            .in_all()
            .sub(&[STATUS, SCALE])
            .generation()
            .orphans()
            .fields(&[("status.replicas", "status.replicas", "0")]),
        resource("v1", "PodTemplate", "podtemplates").generation().returns_deleted(),
        resource("v1", "Binding", "bindings").verbs(CREATE),
    ]
}

fn workloads() -> Vec<ResourceBuilder> {
    vec![
        resource("apps/v1", "Deployment", "deployments")
            .short(&["deploy"])
            .in_all()
            .sub(&[STATUS, SCALE])
            .generation(),
        resource("apps/v1", "ReplicaSet", "replicasets")
            .short(&["rs"])
            .in_all()
            .sub(&[STATUS, SCALE])
            .generation()
            .fields(&[("status.replicas", "status.replicas", "0")]),
        resource("apps/v1", "StatefulSet", "statefulsets")
            .short(&["sts"])
            .in_all()
            .sub(&[STATUS, SCALE])
            .generation(),
        resource("apps/v1", "DaemonSet", "daemonsets").short(&["ds"]).in_all().status().generation(),
        resource("apps/v1", "ControllerRevision", "controllerrevisions"),
        resource("batch/v1", "Job", "jobs").in_all().status().generation().orphans().fields(&[(
            "status.successful",
            "status.succeeded",
            "0",
        )]),
        resource("batch/v1", "CronJob", "cronjobs").short(&["cj"]).in_all().status().generation(),
        resource("autoscaling/v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
            .short(&["hpa"])
            .in_all()
            .status()
            .stored("horizontalpodautoscalers.autoscaling", "autoscaling/v2"),
        resource("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
            .short(&["hpa"])
            .in_all()
            .status(),
        resource("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
            .short(&["pdb"])
            .status()
            .generation()
            .conditional(),
        resource("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses")
            .cluster()
            .generation()
            .short(&["pc"]),
    ]
}

fn policies() -> Vec<ResourceBuilder> {
    const RBAC: &str = "rbac.authorization.k8s.io/v1";
    const ADMISSION: &str = "admissionregistration.k8s.io/v1";
    const FLOW_CONTROL: &str = "flowcontrol.apiserver.k8s.io/v1";
    vec![
        resource(FLOW_CONTROL, "FlowSchema", "flowschemas").cluster().status().generation(),
        resource(FLOW_CONTROL, "PriorityLevelConfiguration", "prioritylevelconfigurations")
            .cluster()
            .status()
            .generation(),
        resource(RBAC, "Role", "roles").names(NameRule::PathSegment).create_on_update(),
        resource(RBAC, "RoleBinding", "rolebindings").names(NameRule::PathSegment).create_on_update(),
        resource(RBAC, "ClusterRole", "clusterroles")
            .cluster()
            .names(NameRule::PathSegment)
            .create_on_update(),
        resource(RBAC, "ClusterRoleBinding", "clusterrolebindings")
            .cluster()
            .names(NameRule::PathSegment)
            .create_on_update(),
        resource(ADMISSION, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations")
            .cluster()
            .category("api-extensions")
            .generation(),
        resource(ADMISSION, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations")
            .cluster()
            .category("api-extensions")
            .generation(),
        resource(ADMISSION, "ValidatingAdmissionPolicy", "validatingadmissionpolicies")
            .cluster()
            .category("api-extensions")
            .status()
            .generation(),
        resource(ADMISSION, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings")
            .cluster()
            .category("api-extensions")
            .generation(),
        resource("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions")
            .cluster()
            .short(&["crd", "crds"])
            .category("api-extensions")
            .status()
            .generation()
            .conditional(),
    ]
}

fn infrastructure() -> Vec<ResourceBuilder> {
    vec![
        resource("coordination.k8s.io/v1", "Lease", "leases").create_on_update().conditional(),
        resource("discovery.k8s.io/v1", "EndpointSlice", "endpointslices").generation(),
        resource("events.k8s.io/v1", "Event", "events")
            .short(&["ev"])
            .create_on_update()
            .fields(EVENT_VIEW_FIELDS)
            .stored("events", "v1"),
        resource("networking.k8s.io/v1", "Ingress", "ingresses").short(&["ing"]).status().generation(),
        resource("networking.k8s.io/v1", "IngressClass", "ingressclasses").cluster().generation(),
        resource("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies").short(&["netpol"]).generation(),
        resource("node.k8s.io/v1", "RuntimeClass", "runtimeclasses").cluster(),
        resource("resource.k8s.io/v1", "DeviceClass", "deviceclasses").cluster().generation(),
        resource("resource.k8s.io/v1", "ResourceClaim", "resourceclaims").status(),
        resource("resource.k8s.io/v1", "ResourceClaimTemplate", "resourceclaimtemplates"),
        resource("resource.k8s.io/v1", "ResourceSlice", "resourceslices").cluster().generation(),
        resource("storage.k8s.io/v1", "StorageClass", "storageclasses").cluster().short(&["sc"]),
        resource("storage.k8s.io/v1", "VolumeAttributesClass", "volumeattributesclasses")
            .cluster()
            .short(&["vac"]),
        resource("storage.k8s.io/v1", "VolumeAttachment", "volumeattachments").cluster().status(),
        resource("storage.k8s.io/v1", "CSIDriver", "csidrivers").cluster().generation(),
        resource("storage.k8s.io/v1", "CSINode", "csinodes").cluster(),
        resource("storage.k8s.io/v1", "CSIStorageCapacity", "csistoragecapacities"),
    ]
}

fn reviews() -> Vec<ResourceBuilder> {
    const AUTHENTICATION: &str = "authentication.k8s.io/v1";
    const AUTHORIZATION: &str = "authorization.k8s.io/v1";
    vec![
        resource(AUTHENTICATION, "TokenReview", "tokenreviews").cluster().verbs(CREATE),
        resource(AUTHENTICATION, "SelfSubjectReview", "selfsubjectreviews").cluster().verbs(CREATE),
        resource(AUTHORIZATION, "SubjectAccessReview", "subjectaccessreviews").cluster().verbs(CREATE),
        resource(AUTHORIZATION, "LocalSubjectAccessReview", "localsubjectaccessreviews").verbs(CREATE),
        resource(AUTHORIZATION, "SelfSubjectAccessReview", "selfsubjectaccessreviews")
            .cluster()
            .verbs(CREATE),
        resource(AUTHORIZATION, "SelfSubjectRulesReview", "selfsubjectrulesreviews").cluster().verbs(CREATE),
    ]
}
