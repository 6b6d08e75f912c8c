//! The table of Kueue's kinds.

use super::GROUP;

/// One kind of the group. All kinds are served as `v1beta1` and `v1beta2`, and stored as `v1beta2`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// Name of the kind, such as `ClusterQueue`.
    pub kind: &'static str,
    /// Plural name of the resource, as in request paths.
    pub plural: &'static str,
    /// Singular name of the resource.
    pub singular: &'static str,
    /// Short names for `kubectl`.
    pub short_names: &'static [&'static str],
    /// Whether objects belong to a namespace.
    pub is_namespaced: bool,
    /// Which subresources the definition declares.
    pub subresources: Subresources,
    /// Whether the two versions have different fields, so that the definition needs a conversion webhook. The versions of
    /// the other kinds differ only in `apiVersion`; what `v1beta1` lacks is pruned.
    pub is_converted: bool,
    /// Whether requests in `v1beta1` get a deprecation warning.
    pub is_deprecated: bool,
    /// Whether the objects get [`super::FINALIZER`], so that they are not deleted while others refer to them.
    pub has_finalizer: bool,
    /// JSON paths of selectable fields; only `v1beta2` has them.
    pub selectable_fields: &'static [&'static str],
    /// Printer columns.
    pub columns: &'static [Column],
}

/// The key `subresources` of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subresources {
    /// The key is absent.
    Absent,
    /// The key is there, and empty.
    Empty,
    /// `status`: the status is written by requests of its own.
    Status,
}

/// A printer column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Title.
    pub name: &'static str,
    /// Type: `string`, `integer` or `date`.
    pub kind: &'static str,
    /// JSON path in `v1beta2`.
    pub path: &'static str,
    /// JSON path in `v1beta1`, if it is another one.
    pub path_v1beta1: Option<&'static str>,
    /// Whether only `kubectl get -o wide` shows the column.
    pub is_wide: bool,
}

impl Column {
    const fn new(name: &'static str, kind: &'static str, path: &'static str) -> Self {
        Self { name, kind, path, path_v1beta1: None, is_wide: false }
    }

    const fn wide(self) -> Self {
        Self { is_wide: true, ..self }
    }
}

impl Kind {
    /// The name of the definition, such as `clusterqueues.kueue.x-k8s.io`.
    pub fn resource(&self) -> String {
        format!("{}.{GROUP}", self.plural)
    }

    /// The kind with this plural name.
    pub fn of_resource(plural: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.plural == plural)
    }

    /// The kind with this name.
    pub fn of_kind(name: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.kind == name)
    }
}

/// A kind that is cluster-scoped, converted by its `apiVersion` alone, deprecated in `v1beta1`, without a status,
/// finalizer, short names or columns.
const PLAIN: Kind = Kind {
    kind: "",
    plural: "",
    singular: "",
    short_names: &[],
    is_namespaced: false,
    subresources: Subresources::Absent,
    is_converted: false,
    is_deprecated: true,
    has_finalizer: false,
    selectable_fields: &[],
    columns: &[],
};

const AGE: Column = Column::new("Age", "date", ".metadata.creationTimestamp");

/// All kinds of the group that are stored, sorted by name.
pub const KINDS: [Kind; 11] = [
    Kind {
        kind: "AdmissionCheck",
        plural: "admissionchecks",
        singular: "admissioncheck",
        short_names: &["ac"],
        subresources: Subresources::Status,
        has_finalizer: true,
        ..PLAIN
    },
    Kind {
        kind: "ClusterQueue",
        plural: "clusterqueues",
        singular: "clusterqueue",
        short_names: &["cq"],
        subresources: Subresources::Status,
        is_converted: true,
        has_finalizer: true,
        columns: &[
            Column {
                path_v1beta1: Some(".spec.cohort"),
                ..Column::new("Cohort", "string", ".spec.cohortName")
            },
            Column::new("Strategy", "string", ".spec.queueingStrategy").wide(),
            Column::new("Pending Workloads", "integer", ".status.pendingWorkloads"),
            Column::new("Admitted Workloads", "integer", ".status.admittedWorkloads").wide(),
        ],
        ..PLAIN
    },
    Kind {
        kind: "Cohort",
        plural: "cohorts",
        singular: "cohort",
        short_names: &["co"],
        subresources: Subresources::Status,
        is_converted: true,
        ..PLAIN
    },
    Kind {
        kind: "LocalQueue",
        plural: "localqueues",
        singular: "localqueue",
        short_names: &["queue", "queues", "lq"],
        is_namespaced: true,
        subresources: Subresources::Status,
        is_converted: true,
        columns: &[
            Column::new("ClusterQueue", "string", ".spec.clusterQueue"),
            Column::new("Pending Workloads", "integer", ".status.pendingWorkloads"),
            Column::new("Admitted Workloads", "integer", ".status.admittedWorkloads"),
        ],
        ..PLAIN
    },
    Kind {
        kind: "MultiKueueCluster",
        plural: "multikueueclusters",
        singular: "multikueuecluster",
        short_names: &["mkc"],
        subresources: Subresources::Status,
        is_converted: true,
        columns: &[Column::new("Connected", "string", ".status.conditions[?(@.type=='Active')].status"), AGE],
        ..PLAIN
    },
    Kind {
        kind: "MultiKueueConfig",
        plural: "multikueueconfigs",
        singular: "multikueueconfig",
        short_names: &["mkconf"],
        is_deprecated: false,
        ..PLAIN
    },
    Kind {
        kind: "ProvisioningRequestConfig",
        plural: "provisioningrequestconfigs",
        singular: "provisioningrequestconfig",
        short_names: &["prc"],
        ..PLAIN
    },
    Kind {
        kind: "ResourceFlavor",
        plural: "resourceflavors",
        singular: "resourceflavor",
        short_names: &["flavor", "flavors", "rf"],
        has_finalizer: true,
        ..PLAIN
    },
    Kind {
        kind: "Topology",
        plural: "topologies",
        singular: "topology",
        short_names: &["topo"],
        has_finalizer: true,
        ..PLAIN
    },
    Kind {
        kind: "Workload",
        plural: "workloads",
        singular: "workload",
        short_names: &["kwl", "kueueworkload", "kueueworkloads"],
        is_namespaced: true,
        subresources: Subresources::Status,
        is_converted: true,
        has_finalizer: true,
        selectable_fields: &[".status.admission.clusterQueue"],
        columns: &[
            Column::new("Queue", "string", ".spec.queueName"),
            Column::new("Reserved in", "string", ".status.admission.clusterQueue"),
            Column::new("Admitted", "string", ".status.conditions[?(@.type=='Admitted')].status"),
            Column::new("Finished", "string", ".status.conditions[?(@.type=='Finished')].status"),
            AGE,
        ],
        ..PLAIN
    },
    Kind {
        kind: "WorkloadPriorityClass",
        plural: "workloadpriorityclasses",
        singular: "workloadpriorityclass",
        short_names: &["wpc"],
        subresources: Subresources::Empty,
        columns: &[Column::new("Value", "integer", ".value")],
        ..PLAIN
    },
];
