//! ClusterQueue, Cohort and LocalQueue.

use serde_json::json;

use super::Version;
use super::schema::{Schema, array, choice, integer, object, stamp, text};
use super::shared::{
    check_name, conditions, fair_sharing, fair_sharing_status, node_labels, resource_groups, selector,
    stop_policy, subdomain, taints, usage,
};

pub(super) fn cluster_queue(root: impl Fn(&str) -> Schema, version: Version) -> Schema {
    root("A queue with quota. Workloads get to it through a LocalQueue.")
        .field("spec", cluster_queue_spec(version))
        .field("status", cluster_queue_status(version))
}

fn cluster_queue_spec(version: Version) -> Schema {
    let is_new = version.is_new();
    let cohort =
        subdomain("The cohort whose unused quota the queue shares; no Cohort object needs to exist.");
    let name = if is_new { "cohortName" } else { "cohort" };
    let mut strategies = object("Admission checks, with the flavors for which they are needed.")
        .field("admissionChecks", checks_strategy(version));
    if is_new {
        strategies = strategies.required(&["admissionChecks"]);
    }
    let modes = ["UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"];
    let mode =
        "UsageBasedAdmissionFairSharing: local queues with less usage come first; NoAdmissionFairSharing.";
    let mode = if is_new { choice(&modes, mode) } else { text(mode) };
    object("What the queue admits, and in which order.")
        .field("admissionChecksStrategy", strategies)
        .field(
            "admissionScope",
            object("Admission fair sharing.").field("admissionMode", mode).required(&["admissionMode"]),
        )
        .field(name, cohort)
        .field("fairSharing", fair_sharing("Weight of the queue in its cohort."))
        .field("flavorFungibility", fungibility(version))
        .field("namespaceSelector", selector("Namespaces whose workloads are admitted; absent for none, empty for all."))
        .field("preemption", preemption())
        .field(
            "queueingStrategy",
            choice(
                &["StrictFIFO", "BestEffortFIFO"],
                "StrictFIFO: a workload that does not fit blocks those behind it; BestEffortFIFO: it does not.",
            )
            .default("BestEffortFIFO"),
        )
        .field("resourceGroups", resource_groups(version))
        .field("stopPolicy", stop_policy())
        .when(!is_new, |spec| {
            let names = array(check_name(version, ""), "Admission checks for all flavors; becomes admissionChecksStrategy.");
            spec.field("admissionChecks", names)
        })
        .when(is_new, |spec| spec.field("concurrentAdmissionPolicy", concurrent_admission()))
        .rule(
            "borrowingLimit must be nil when cohort is empty",
            &format!(
                "!has(self.{name}) && has(self.resourceGroups) ? self.resourceGroups.all(rg, rg.flavors.all(f, \
                 f.resources.all(r, !has(r.borrowingLimit)))) : true"
            ),
        )
}

fn checks_strategy(version: Version) -> Schema {
    let is_new = version.is_new();
    let flavors = array(subdomain(""), "Flavors for which the check is needed; empty for all.");
    let rule = object("One admission check.")
        .field("name", check_name(version, "Name of an AdmissionCheck."))
        .field("onFlavors", flavors.when(is_new, |list| list.max_items(64).set()))
        .required(&["name"]);
    array(rule, "Admission checks that a workload needs.")
        .when(is_new, |list| list.min_items(1).max_items(64).keyed(&["name"]))
}

fn concurrent_admission() -> Schema {
    let constraints = object("Limits of the migration.")
        .field("lastAcceptableFlavorName", subdomain("The last flavor to which a workload may migrate."));
    let mode = choice(
        &["TryPreferredFlavors", "RetainFirstAdmission"],
        "TryPreferredFlavors: a running workload moves to a preferred flavor; RetainFirstAdmission: it stays.",
    );
    let migration = object("What happens after the first admission.")
        .field("constraints", constraints)
        .field("mode", mode.max_length(253))
        .required(&["mode"]);
    object("Tries several flavors at the same time.").field("migration", migration).required(&["migration"])
}

fn fungibility(version: Version) -> Schema {
    let choices = |former: &'static str| {
        let mut choices = vec!["MayStopSearch", "TryNextFlavor"];
        if !version.is_new() {
            choices.push(former);
        }
        choices
    };
    object("When the next flavor is tried before the queue borrows or preempts.")
        .field(
            "preference",
            choice(
                &["BorrowingOverPreemption", "PreemptionOverBorrowing"],
                "What is better if no flavor fits without one of them; BorrowingOverPreemption if absent.",
            ),
        )
        .field(
            "whenCanBorrow",
            choice(&choices("Borrow"), "Whether the search ends at a flavor that fits by borrowing.")
                .default("MayStopSearch"),
        )
        .field(
            "whenCanPreempt",
            choice(&choices("Preempt"), "Whether the search ends at a flavor that fits by preemption.")
                .default("TryNextFlavor"),
        )
        .default(json!({}))
        .rule(
            "preference can only be set when both whenCanBorrow and whenCanPreempt are TryNextFlavor",
            "!has(self.preference) || (self.whenCanBorrow == 'TryNextFlavor' && self.whenCanPreempt == 'TryNextFlavor')",
        )
}

fn preemption() -> Schema {
    let borrow = object("Preemption in other queues by a workload that borrows.")
        .field("maxPriorityThreshold", integer("Workloads above this priority are not preempted."))
        .field(
            "policy",
            choice(&["Never", "LowerPriority"], "Never; LowerPriority: workloads of lower priority.")
                .default("Never"),
        )
        .default(json!({}));
    object("Which admitted workloads may be preempted.")
        .field("borrowWithinCohort", borrow)
        .field(
            "reclaimWithinCohort",
            choice(
                &["Never", "LowerPriority", "Any"],
                "Workloads of other queues that borrow: Never; LowerPriority; Any.",
            )
            .default("Never"),
        )
        .field(
            "withinClusterQueue",
            choice(
                &["Never", "LowerPriority", "LowerOrNewerEqualPriority"],
                "Workloads of the same queue: Never; LowerPriority; LowerOrNewerEqualPriority: also newer ones of equal \
                 priority.",
            )
            .default("Never"),
        )
        .default(json!({}))
        .rule(
            "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never",
            "!(self.reclaimWithinCohort == 'Never' && has(self.borrowWithinCohort) &&  self.borrowWithinCohort.policy != \
             'Never')",
        )
}

fn cluster_queue_status(version: Version) -> Schema {
    object("State of the queue.")
        .field("admittedWorkloads", integer("Number of admitted workloads that have not finished."))
        .field("conditions", conditions(version))
        .field("fairSharing", fair_sharing_status(!version.is_new()))
        .field("flavorsReservation", usage(true, "Reserved quota by flavor."))
        .field("flavorsUsage", usage(true, "Quota of admitted workloads by flavor."))
        .field("pendingWorkloads", integer("Number of workloads that wait."))
        .field("reservingWorkloads", integer("Number of workloads with reserved quota."))
        .when(!version.is_new(), |status| status.field("pendingWorkloadsStatus", pending_workloads()))
}

/// Of `v1beta1`; nothing writes it any more.
fn pending_workloads() -> Schema {
    let workload = object("A workload that waits.")
        .field("name", text("Name."))
        .field("namespace", text("Namespace."))
        .required(&["name", "namespace"]);
    object("Not written any more.")
        .field("clusterQueuePendingWorkload", array(workload, "Workloads that wait.").atomic())
        .field("lastChangeTime", stamp("Time of the last change."))
        .required(&["lastChangeTime"])
}

pub(super) fn cohort(root: impl Fn(&str) -> Schema, version: Version) -> Schema {
    let spec = object("Place in the tree, and quota of its own.")
        .field("fairSharing", fair_sharing("Weight of the cohort in its parent."))
        .field("parentName", subdomain("The parent; absent for the root of a tree."))
        .field("resourceGroups", resource_groups(version));
    let status = object("State of the cohort.").field("fairSharing", fair_sharing_status(!version.is_new()));
    root("An inner node of a quota tree: its cluster queues and cohorts share unused quota.")
        .field("spec", spec)
        .field("status", status)
}

pub(super) fn local_queue(root: impl Fn(&str) -> Schema, version: Version) -> Schema {
    let spec = object("The cluster queue behind the local queue.")
        .field(
            "clusterQueue",
            subdomain("Name of the ClusterQueue.").rule("field is immutable", "self == oldSelf"),
        )
        .field("fairSharing", fair_sharing("Weight of the local queue for admission fair sharing."))
        .field("stopPolicy", stop_policy());
    root("The entrance of a namespace to a cluster queue.")
        .field("spec", spec)
        .field("status", local_queue_status(version))
}

fn local_queue_status(version: Version) -> Schema {
    let used = usage(false, "Quota of admitted workloads by flavor.");
    object("State of the local queue.")
        .field("admittedWorkloads", integer("Number of admitted workloads that have not finished."))
        .field("conditions", conditions(version))
        .field("fairSharing", fair_sharing_status(true))
        .field("flavorsReservation", usage(false, "Reserved quota by flavor."))
        .field(if version.is_new() { "flavorsUsage" } else { "flavorUsage" }, used)
        .field("pendingWorkloads", integer("Number of workloads that wait."))
        .field("reservingWorkloads", integer("Number of workloads with reserved quota."))
        .when(!version.is_new(), |status| status.field("flavors", flavors_of_local_queue()))
}

/// Of `v1beta1`; nothing writes it any more.
fn flavors_of_local_queue() -> Schema {
    let topology = object("Topology of the flavor.")
        .field("levels", array(text(""), "Levels.").min_items(1).max_items(16).atomic())
        .field("name", subdomain("Name of the Topology."))
        .required(&["levels", "name"]);
    let flavor = object("One flavor.")
        .field("name", subdomain("Name of the flavor."))
        .field("nodeLabels", node_labels("Labels of its nodes."))
        .field("nodeTaints", taints("Taints of its nodes."))
        .field("resources", array(text(""), "Resources with quota.").max_items(64).set())
        .field("topology", topology)
        .required(&["name"]);
    array(flavor, "Not written any more.").max_items(64).keyed(&["name"])
}
