//! The pod sets of a Workload, and the places of their pods.

use super::Version;
use super::schema::{Schema, array, flag, integer, object, text};
use super::shared::{amounts, dns_label, texts};

/// Maximum length of the value of a level of a topology, and of the label of a requested level.
const VALUE_MAX: u32 = 63;
/// Maximum length of a label key.
const KEY_MAX: u32 = 317;
/// Maximum number of domains in a slice.
const DOMAINS_MAX: u32 = 100_000;

/// `spec.podSets`.
pub(super) fn pod_sets(version: Version) -> Schema {
    let required: &[&str] = if version.is_new() { &["template"] } else { &["count", "template"] };
    let pod_set = object("Pods with equal specification.")
        .field("count", integer("Number of pods.").minimum(0).default(1))
        .field(
            "minCount",
            integer("Number of pods with which the workload can start; one pod set may have it.").minimum(1),
        )
        .field("name", dns_label("Name of the pod set.").default("main"))
        .field("template", template())
        .field("topologyRequest", topology_request(version))
        .required(required)
        .rule(
            "minCount should be positive and less or equal to count",
            "has(self.minCount) ? self.minCount <= self.count : true",
        );
    array(pod_set, "Groups of pods; all of them are admitted together.")
        .min_items(1)
        .max_items(18)
        .keyed(&["name"])
}

/// A pod template: the fields that admission reads have types, the others are kept as they are.
fn template() -> Schema {
    let meta = object("Labels and annotations of the pods.")
        .field("annotations", texts("Annotations."))
        .field("finalizers", array(text(""), "Finalizers."))
        .field("labels", texts("Labels."))
        .field("name", text("Not used."))
        .field("namespace", text("Not used."));
    let containers = |description: &str| {
        let container = object("A container.")
            .field("name", text("Name."))
            .field("resources", resources("Resources of the container."))
            .required(&["name"])
            .open();
        array(container, description).keyed(&["name"])
    };
    let spec = object("Specification of the pods.")
        .field("containers", containers("Containers."))
        .field("initContainers", containers("Init containers."))
        .field("nodeSelector", texts("Labels of the nodes.").with("x-kubernetes-map-type", "atomic"))
        .field("overhead", amounts("Resources that the pod needs beside its containers."))
        .field("resources", resources("Resources of the pod as a whole."))
        .required(&["containers"])
        .open();
    object("Template of the pods.").field("metadata", meta).field("spec", spec)
}

fn resources(description: &str) -> Schema {
    object(description)
        .field("limits", amounts("Limits; default for missing requests."))
        .field("requests", amounts("Requests."))
        .open()
}

fn topology_request(version: Version) -> Schema {
    let is_new = version.is_new();
    let at_most = |max: u32, description: &str| text(description).when(is_new, |text| text.max_length(max));
    object("How near to each other the pods must be.")
        .field("podIndexLabel", at_most(KEY_MAX, "Label with the index of a pod."))
        .field(
            "podSetGroupName",
            at_most(256, "Pod sets with an equal group are placed in the same flavor and topology."),
        )
        .field(
            "podSetSliceRequiredTopology",
            at_most(VALUE_MAX, "Label of the level of which one domain holds a whole slice of pods."),
        )
        .field("podSetSliceSize", integer("Number of pods of a slice."))
        .field(
            "preferred",
            at_most(VALUE_MAX, "Label of the level of which one domain should hold all pods."),
        )
        .field("required", at_most(VALUE_MAX, "Label of the level of which one domain must hold all pods."))
        .field("subGroupCount", integer("Number of groups of pods, such as Jobs of a JobSet."))
        .field("subGroupIndexLabel", at_most(KEY_MAX, "Label with the index of the group of a pod."))
        .field("unconstrained", flag("Whether the pods may be in any domains."))
        .when(is_new, |request| request.field("podsetSliceRequiredTopologyConstraints", slice_constraints()))
}

fn slice_constraints() -> Schema {
    let constraint = object("Slices of one layer.")
        .field("size", integer("Number of pods of a slice.").minimum(1))
        .field("topology", text("Label of the level.").min_length(1).max_length(VALUE_MAX))
        .required(&["size", "topology"]);
    array(constraint, "Nested slices, from the largest to the smallest.").max_items(3).atomic()
}

/// `topologyAssignment` of a pod set.
pub(super) fn topology_assignment(version: Version) -> Schema {
    let levels = text("").when(version.is_new(), |label| label.max_length(KEY_MAX));
    let levels = array(levels, "Labels of the levels, from the highest to the lowest.")
        .min_items(1)
        .max_items(16)
        .atomic();
    let places = object("Places of the pods.").field("levels", levels);
    if !version.is_new() {
        let domain = object("A domain.")
            .field("count", integer("Number of pods.").minimum(1))
            .field("values", array(text(""), "Values of the labels.").min_items(1).max_items(16).atomic())
            .required(&["count", "values"]);
        return places.field("domains", array(domain, "Domains with pods.")).required(&["domains", "levels"]);
    }
    let lengths = "self.slices.all(x, size(x.valuesPerLevel) == size(self.levels))";
    places
        .field("slices", array(slice(), "Domains with pods, in groups.").max_items(1000).atomic())
        .required(&["levels", "slices"])
        .rule(
            "valuesPerLevel must have the same length as the number of levels in this TopologyAssignment",
            lengths,
        )
}

fn slice() -> Schema {
    let value = || text("").max_length(VALUE_MAX);
    let described = |description: &str| text(description).max_length(VALUE_MAX);
    let individual = object("Values that differ.")
        .field("prefix", described("Common start of the values."))
        .field(
            "roots",
            array(value(), "Rest of the value of each domain.").min_items(1).max_items(DOMAINS_MAX).atomic(),
        )
        .field("suffix", described("Common end of the values."))
        .required(&["roots"]);
    let one_of = "exactly one of the fields in [universal individual] must be set";
    let values = object("Values of one level.")
        .field("individual", individual)
        .field("universal", described("Value of all domains."))
        .rule(one_of, "has(self.universal) != has(self.individual)");
    let individual_counts = array(integer("").minimum(1), "Number of pods of each domain.");
    let counts = object("Numbers of pods.")
        .field("individual", individual_counts.min_items(1).max_items(DOMAINS_MAX).atomic())
        .field("universal", integer("Number of pods of all domains.").minimum(1))
        .rule(one_of, "[has(self.universal),has(self.individual)].filter(x,x==true).size() == 1");
    object("A group of domains.")
        .field("domainCount", integer("Number of domains.").minimum(1))
        .field("podCounts", counts)
        .field(
            "valuesPerLevel",
            array(values, "Values of the domains, by level.").min_items(1).max_items(16).atomic(),
        )
        .required(&["domainCount", "podCounts", "valuesPerLevel"])
        .rule(
            "podCounts.individual must have length equal to domainCount",
            "!has(self.podCounts.individual) || size(self.podCounts.individual) == self.domainCount",
        )
        .rule(
            "valuesPerLevel.individual, if set, must have roots of length equal to domainCount of this \
             TopologyAssignmentSlice",
            "self.valuesPerLevel.all(x, !has(x.individual) || size(x.individual.roots) == self.domainCount)",
        )
}
