//! Parts that several kinds have: names, conditions, selectors, tolerations, quotas.

use super::Version;
use super::schema::{Schema, array, choice, integer64, map, object, pattern, quantity, stamp, text};

/// Pattern of a DNS label.
const DNS_LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// Pattern of a DNS subdomain.
const SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// Pattern of a label key.
const LABEL_KEY: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
/// Maximum length of the name of an admission check.
const CHECK_NAME_MAX: u32 = 316;

/// A DNS label.
pub(super) fn dns_label(description: &str) -> Schema {
    pattern(63, DNS_LABEL, description)
}

/// A DNS subdomain, such as the name of an object.
pub(super) fn subdomain(description: &str) -> Schema {
    pattern(253, SUBDOMAIN, description)
}

/// A label key of at most `max` characters.
pub(super) fn label_key(max: u32, description: &str) -> Schema {
    pattern(max, LABEL_KEY, description)
}

/// The name of an admission check.
pub(super) fn check_name(version: Version, description: &str) -> Schema {
    text(description).max_length(CHECK_NAME_MAX).when(version.is_new(), |name| name.min_length(1))
}

/// A map of texts.
pub(super) fn texts(description: &str) -> Schema {
    map(text(""), description)
}

/// `status.conditions`.
pub(super) fn conditions(version: Version) -> Schema {
    let condition = object("One aspect of the state.")
        .field("lastTransitionTime", stamp("Time when the status last changed."))
        .field("message", text("Details for people.").max_length(32768))
        .field(
            "observedGeneration",
            integer64("Generation of the object that the condition is about.").minimum(0),
        )
        .field(
            "reason",
            pattern(
                1024,
                "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                "Reason of the last change, for programs.",
            )
            .min_length(1),
        )
        .field("status", choice(&["True", "False", "Unknown"], "Whether the condition holds."))
        .field("type", label_key(316, "Type of the condition."))
        .required(&["lastTransitionTime", "message", "reason", "status", "type"]);
    array(condition, "Conditions, one for each type.")
        .keyed(&["type"])
        .when(version.is_new(), |list| list.max_items(16))
}

/// A label selector.
pub(super) fn selector(description: &str) -> Schema {
    let requirement = object("A requirement on one label.")
        .field("key", text("Label key."))
        .field("operator", text("In, NotIn, Exists or DoesNotExist."))
        .field("values", array(text(""), "Values for In and NotIn.").atomic())
        .required(&["key", "operator"]);
    object(description)
        .field("matchExpressions", array(requirement, "Requirements; all must hold.").atomic())
        .field("matchLabels", texts("Labels with these values; all must match."))
        .with("x-kubernetes-map-type", "atomic")
}

/// Tolerations with the rules of pods.
pub(super) fn tolerations(description: &str) -> Schema {
    let toleration = object("A toleration, as in a pod.")
        .field("effect", text("Effect of the taints; empty for all effects."))
        .field("key", text("Key of the taints; empty for all keys."))
        .field("operator", text("Equal (default) or Exists."))
        .field(
            "tolerationSeconds",
            integer64("Seconds that a NoExecute taint is tolerated; absent for ever."),
        )
        .field("value", text("Value of the taints, for Equal."));
    array(toleration, description)
        .max_items(8)
        .rule(
            "operator must be Exists when 'key' is empty, which means 'match all values and all keys'",
            "self.all(x, !has(x.key) ? x.operator == 'Exists' : true)",
        )
        .rule(
            "effect must be 'NoExecute' when 'tolerationSeconds' is set",
            "self.all(x, has(x.tolerationSeconds) ? x.effect == 'NoExecute' : true)",
        )
        .rule(
            "supported toleration values: 'Equal'(default), 'Exists'",
            "self.all(x, !has(x.operator) || x.operator in ['Equal', 'Exists'])",
        )
        .rule(
            "a value must be empty when 'operator' is 'Exists'",
            "self.all(x, has(x.operator) && x.operator == 'Exists' ? !has(x.value) : true)",
        )
        .rule(
            "supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'",
            "self.all(x, !has(x.effect) || x.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'])",
        )
}

/// Taints of nodes.
pub(super) fn taints(description: &str) -> Schema {
    let taint = object("A taint, as of a node.")
        .field("effect", text("NoSchedule, PreferNoSchedule or NoExecute."))
        .field("key", text("Key."))
        .field("timeAdded", stamp("Time when the taint was added."))
        .field("value", text("Value."))
        .required(&["effect", "key"]);
    array(taint, description).max_items(8).atomic()
}

/// Labels of nodes.
pub(super) fn node_labels(description: &str) -> Schema {
    texts(description).with("maxProperties", 8).with("x-kubernetes-map-type", "atomic")
}

/// Amounts by resource.
pub(super) fn amounts(description: &str) -> Schema {
    map(quantity(""), description)
}

/// `spec.fairSharing`.
pub(super) fn fair_sharing(description: &str) -> Schema {
    let weight = quantity("Weight in the comparison with others of the same parent; 0 for the last rank.");
    object(description).field("weight", weight.default(1))
}

/// `status.fairSharing`, with the usage for admission fair sharing where the version has it.
pub(super) fn fair_sharing_status(has_usage: bool) -> Schema {
    let usage = object("Usage for admission fair sharing.")
        .field("consumedResources", amounts("Decayed usage of each resource."))
        .field("lastUpdate", stamp("Time of the last update of the usage."))
        .required(&["consumedResources", "lastUpdate"]);
    object("State of fair sharing.")
        .field(
            "weightedShare",
            integer64("Dominant share of what is borrowed, in thousandths, divided by the weight; the largest integer for weight 0."),
        )
        .required(&["weightedShare"])
        .when(has_usage, |status| status.field("admissionFairSharingStatus", usage))
}

/// `spec.resourceGroups`.
pub(super) fn resource_groups(version: Version) -> Schema {
    let quota = object("Quota of one resource.")
        .field("borrowingLimit", quantity("Limit of what may be borrowed; absent for no limit."))
        .field("lendingLimit", quantity("Limit of what others may borrow; absent for no limit."))
        .field("name", text("Name of the resource."))
        .field("nominalQuota", quantity("Own quota."))
        .required(&["name", "nominalQuota"]);
    let quotas =
        array(quota, "Quotas, in the order of coveredResources.").min_items(1).max_items(64).keyed(&["name"]);
    let flavor = object("Quotas of one flavor.")
        .field("name", subdomain("Name of a ResourceFlavor."))
        .field("resources", quotas)
        .required(&["name", "resources"]);
    let covered = array(text(""), "Resources whose flavor is chosen together.").min_items(1).max_items(64);
    let group = object("Resources that have their quota in the same flavors.")
        .field("coveredResources", covered.when(version.is_new(), Schema::atomic))
        .field(
            "flavors",
            array(flavor, "Flavors, in the order in which they are tried.")
                .min_items(1)
                .max_items(64)
                .keyed(&["name"]),
        )
        .required(&["coveredResources", "flavors"])
        .rule(
            "flavors must have the same number of resources as the coveredResources",
            "self.flavors.all(x, size(x.resources) == size(self.coveredResources))",
        );
    array(group, "Quota by flavor and resource.").max_items(16).atomic()
}

/// Usage by flavor and resource, in a status. `borrows` adds the borrowed part.
pub(super) fn usage(borrows: bool, description: &str) -> Schema {
    let resource = object("Usage of one resource.")
        .field("name", text("Name of the resource."))
        .field("total", quantity("Amount in use."))
        .when(borrows, |usage| usage.field("borrowed", quantity("Part of it that is borrowed.")))
        .required(&["name"]);
    let flavor = object("Usage of one flavor.")
        .field("name", subdomain("Name of the flavor."))
        .field("resources", array(resource, "Usage by resource.").max_items(64).keyed(&["name"]))
        .required(&["name", "resources"]);
    array(flavor, description).max_items(64).keyed(&["name"])
}

/// `spec.stopPolicy`.
pub(super) fn stop_policy() -> Schema {
    let description =
        "None; Hold: nothing more is admitted; HoldAndDrain: admitted workloads are evicted as well.";
    choice(&["None", "Hold", "HoldAndDrain"], description).default("None")
}
