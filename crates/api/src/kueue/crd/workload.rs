//! Workload.

use super::Version;
use super::pod_sets::{pod_sets, topology_assignment};
use super::schema::{Schema, array, choice, flag, integer, map, object, stamp, text};
use super::shared::{amounts, check_name, conditions, dns_label, subdomain, texts, tolerations};
use crate::kueue::workload::POD_SETS_MAX;

/// Maximum length of the name of a worker cluster.
const CLUSTER_NAME_MAX: u32 = 256;

pub(super) fn workload(root: impl Fn(&str) -> Schema, version: Version) -> Schema {
    let root = root("A gang of pods that is admitted as a whole.")
        .field("spec", spec(version))
        .field("status", status(version))
        .rule(
            "podSetAssignments must have the same number of podSets as the spec",
            &format!(
                "{} && has(self.status.admission) ? size(self.spec.podSets) == size(self.status.admission.podSetAssignments) : \
                 true",
                holds("self", "QuotaReserved")
            ),
        );
    immutable_after_admission(immutable_priority(root, version))
}

/// A CEL expression: the condition has the status `True`.
fn holds(object: &str, condition: &str) -> String {
    format!(
        "has({object}.status) && has({object}.status.conditions) && {object}.status.conditions.exists(c, c.type == \
         '{condition}' && c.status == 'True')"
    )
}

fn immutable_priority(root: Schema, version: Version) -> Schema {
    let reserved = holds("oldSelf", "QuotaReserved");
    if !version.is_new() {
        let both = "has(oldSelf.spec.priorityClassSource) && has(self.spec.priorityClassSource)";
        return root
            .rule(
                "priorityClassSource is immutable while workload quota reserved",
                &format!(
                    "({reserved} && {both}) ? (oldSelf.spec.priorityClassSource == self.spec.priorityClassSource) : true"
                ),
            )
            .rule(
                "priorityClassName is immutable while workload quota reserved and priorityClassSource is not equal to \
                 kueue.x-k8s.io/workloadpriorityclass",
                &format!(
                    "({reserved} && {both} && (self.spec.priorityClassSource != 'kueue.x-k8s.io/workloadpriorityclass') && \
                     has(oldSelf.spec.priorityClassName) && has(self.spec.priorityClassName)) ? \
                     (oldSelf.spec.priorityClassName == self.spec.priorityClassName) : true"
                ),
            );
    }
    let both = "has(oldSelf.spec.priorityClassRef) && has(self.spec.priorityClassRef)";
    let part = |root: Schema, part: &str| {
        root.rule(
            &format!("priorityClassRef.{part} is immutable while workload quota reserved"),
            &format!(
                "({reserved} && {both}) ? oldSelf.spec.priorityClassRef.{part} == self.spec.priorityClassRef.{part} : true"
            ),
        )
    };
    let root = root.rule(
        "priorityClassRef is immutable while workload quota reserved",
        &format!(
            "({reserved}) ? (!has(oldSelf.spec.priorityClassRef) && !has(self.spec.priorityClassRef)) || ({both}) : true"
        ),
    );
    part(part(root, "group"), "kind").rule(
        "priorityClassRef.name is immutable for scheduling.k8s.io/priorityclass while workload quota reserved",
        &format!(
            "({reserved} && {both} && self.spec.priorityClassRef.group == 'scheduling.k8s.io' && \
             self.spec.priorityClassRef.kind == 'PriorityClass') ? oldSelf.spec.priorityClassRef.name == \
             self.spec.priorityClassRef.name : true"
        ),
    )
}

fn immutable_after_admission(root: Schema) -> Schema {
    let both =
        |condition: &str| format!("({}) && ({})", holds("oldSelf", condition), holds("self", condition));
    root.rule(
        "queueName is immutable while workload quota reserved",
        &format!(
            "({}) ? ((has(oldSelf.spec.queueName) == has(self.spec.queueName)) && (!has(oldSelf.spec.queueName) || \
             oldSelf.spec.queueName == self.spec.queueName)) : true",
            both("QuotaReserved")
        ),
    )
    .rule(
        "maximumExecutionTimeSeconds is immutable while workload quota reserved",
        &format!(
            "({})?((has(oldSelf.spec.maximumExecutionTimeSeconds)?oldSelf.spec.maximumExecutionTimeSeconds:0) ==  \
             (has(self.spec.maximumExecutionTimeSeconds)?self.spec.maximumExecutionTimeSeconds:0)):true",
            both("Admitted")
        ),
    )
}

fn spec(version: Version) -> Schema {
    let spec = object("The pods of the workload, and its queue.")
        .field(
            "active",
            flag("Whether the workload may be admitted; if it is set to false later, it is evicted.")
                .default(true),
        )
        .field(
            "maximumExecutionTimeSeconds",
            integer("Time after which an admitted workload is deactivated.").minimum(1),
        )
        .field("podSets", pod_sets(version))
        .field("priority", integer("Priority; set from the class."))
        .field("queueName", subdomain("Name of the LocalQueue."));
    if version.is_new() {
        spec.field("preemptionGates", gates()).field("priorityClassRef", priority_class()).rule(
            "priority should not be nil when priorityClassRef is set",
            "!has(self.priorityClassRef) || has(self.priority)",
        )
    } else {
        let sources = ["kueue.x-k8s.io/workloadpriorityclass", "scheduling.k8s.io/priorityclass", ""];
        spec.field("priorityClassName", subdomain("Name of the priority class."))
            .field("priorityClassSource", choice(&sources, "Kind of the priority class.").default(""))
            .required(&["podSets"])
            .rule(
                "priority should not be nil when priorityClassName is set",
                "has(self.priorityClassName) ? has(self.priority) : true",
            )
    }
}

fn gates() -> Schema {
    let name = text("Name of the gate.").min_length(1).max_length(63);
    let gate = object("A gate.").field("name", name).required(&["name"]);
    array(gate, "Gates that keep the workload from preempting others.").max_items(8).keyed(&["name"])
}

fn priority_class() -> Schema {
    object("The priority class.")
        .field("group", choice(&["kueue.x-k8s.io", "scheduling.k8s.io"], "Group of the class."))
        .field("kind", choice(&["WorkloadPriorityClass", "PriorityClass"], "Kind of the class."))
        .field("name", subdomain("Name of the class.").min_length(1))
        .required(&["group", "kind", "name"])
        .rule(
            "only the PriorityClass kind is allowed for the scheduling.k8s.io group",
            "(self.group == 'scheduling.k8s.io') ? self.kind == 'PriorityClass' : true",
        )
        .rule(
            "only the WorkloadPriorityClass kind is allowed for the kueue.x-k8s.io group",
            "(self.group == 'kueue.x-k8s.io') ? self.kind == 'WorkloadPriorityClass' : true",
        )
}

fn status(version: Version) -> Schema {
    let is_new = version.is_new();
    let cluster =
        |description: &str| text(description).when(is_new, |name| name.max_length(CLUSTER_NAME_MAX));
    let time =
        if is_new { "accumulatedPastExecutionTimeSeconds" } else { "accumulatedPastExexcutionTimeSeconds" };
    object("State of the workload.")
        .field(time, integer("Time of execution in earlier admissions, in seconds."))
        .field("admission", admission(version))
        .field("admissionChecks", admission_checks(version))
        .field("clusterName", cluster("Worker cluster that runs the workload."))
        .field("conditions", conditions(version))
        .field(
            "nominatedClusterNames",
            array(cluster(""), "Worker clusters that may run the workload.").max_items(20).atomic(),
        )
        .field("reclaimablePods", reclaimable_pods())
        .field("requeueState", requeue_state())
        .field("resourceRequests", resource_requests())
        .field("schedulingStats", scheduling_stats(version))
        .field("unhealthyNodes", unhealthy_nodes(version))
        .when(is_new, |status| status.field("preemptionGates", gate_states()))
        .rule(
            "clusterName is immutable once set",
            "!has(oldSelf.clusterName) || !has(self.clusterName) || oldSelf.clusterName == self.clusterName",
        )
        .rule(
            "clusterName and nominatedClusterNames are mutually exclusive",
            "!has(self.clusterName) || (!has(self.nominatedClusterNames) || (has(self.nominatedClusterNames) && \
             size(self.nominatedClusterNames) == 0))",
        )
}

fn admission(version: Version) -> Schema {
    let is_new = version.is_new();
    let delayed = "Whether places follow after the admission checks: Pending, then Ready.";
    let delayed = if is_new { choice(&["Pending", "Ready"], delayed).max_length(7) } else { text(delayed) };
    let assignment = object("Flavors and places of one pod set.")
        .field("count", integer("Number of admitted pods.").minimum(0))
        .field("delayedTopologyRequest", delayed)
        .field("flavors", map(subdomain(""), "Flavor of each resource."))
        .field("name", dns_label("Name of the pod set.").default("main"))
        .field("resourceUsage", amounts("Quota of all pods of the pod set."))
        .field("topologyAssignment", topology_assignment(version))
        .when(!is_new, |assignment| assignment.required(&["name"]));
    object("The quota that the workload holds.")
        .field("clusterQueue", subdomain("Name of the ClusterQueue."))
        .field(
            "podSetAssignments",
            array(assignment, "One entry for each pod set.").max_items(POD_SETS_MAX.into()).keyed(&["name"]),
        )
        .when(!is_new, |admission| admission.required(&["clusterQueue", "podSetAssignments"]))
}

fn admission_checks(version: Version) -> Schema {
    let update = object("Changes of the pods of one pod set.")
        .field("annotations", texts("Annotations to add."))
        .field("labels", texts("Labels to add."))
        .field("name", dns_label("Name of the pod set."))
        .field("nodeSelector", texts("Node labels to require."))
        .field("tolerations", tolerations("Tolerations to add.").when(version.is_new(), Schema::atomic))
        .required(&["name"]);
    let check = object("State of one admission check.")
        .field("lastTransitionTime", stamp("Time when the state last changed."))
        .field("message", text("Details for people.").max_length(32768))
        .field("name", check_name(version, "Name of the AdmissionCheck."))
        .field("podSetUpdates", array(update, "Changes of the pods.").max_items(POD_SETS_MAX.into()).atomic())
        .field("requeueAfterSeconds", integer("Delay before the workload is requeued.").minimum(0))
        .field("retryCount", integer("Number of retries.").minimum(0))
        .field(
            "state",
            choice(
                &["Pending", "Ready", "Retry", "Rejected"],
                "Pending; Ready; Retry: the workload is evicted and tried again; Rejected: it is deactivated.",
            ),
        )
        .required(&["lastTransitionTime", "message", "name", "state"]);
    array(check, "States of the admission checks.").max_items(8).keyed(&["name"])
}

fn reclaimable_pods() -> Schema {
    let pods = object("Pods of one pod set.")
        .field("count", integer("Number of pods that need their quota no more.").minimum(0))
        .field("name", dns_label("Name of the pod set."))
        .required(&["count", "name"]);
    array(pods, "Pods that have succeeded, so that their quota is free.")
        .max_items(POD_SETS_MAX.into())
        .keyed(&["name"])
}

fn requeue_state() -> Schema {
    object("Requeueing after evictions.")
        .field("count", integer("Number of requeues.").minimum(0))
        .field("requeueAt", stamp("Time when the workload is requeued."))
}

fn resource_requests() -> Schema {
    let request = object("Request of one pod set.")
        .field("name", dns_label("Name of the pod set."))
        .field("resources", amounts("Requests of all pods of the pod set."))
        .required(&["name"]);
    array(request, "Requests that were considered, while quota is not reserved.")
        .max_items(POD_SETS_MAX.into())
        .keyed(&["name"])
}

fn scheduling_stats(version: Version) -> Schema {
    let evictions = object("Evictions for one reason.")
        .field("count", integer("Number of evictions.").minimum(0))
        .field("reason", text("Reason.").max_length(316))
        .field("underlyingCause", text("Cause below the reason; may be empty.").max_length(316))
        .required(&["count", "reason", "underlyingCause"]);
    let evictions = array(evictions, "Evictions by reason.")
        .keyed(&["reason", "underlyingCause"])
        .when(version.is_new(), |list| list.max_items(256));
    object("Counters.").field("evictions", evictions)
}

fn unhealthy_nodes(version: Version) -> Schema {
    let is_new = version.is_new();
    let name = text("Name of the node.").when(is_new, |name| name.max_length(63));
    let node = object("A node.").field("name", name).required(&["name"]);
    array(node, "Nodes of the workload that have failed.")
        .when(is_new, |list| list.max_items(8).keyed(&["name"]))
}

fn gate_states() -> Schema {
    let gate = object("State of one gate.")
        .field("lastTransitionTime", stamp("Time when the position last changed."))
        .field("name", text("Name of the gate.").min_length(1).max_length(63))
        .field("position", choice(&["Closed", "Open"], "Position."))
        .required(&["lastTransitionTime", "name", "position"]);
    array(gate, "States of the preemption gates.").max_items(8).keyed(&["name"])
}
