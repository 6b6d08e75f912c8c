//! ResourceFlavor, Topology and WorkloadPriorityClass.

use super::Version;
use super::schema::{Schema, array, integer, object, text};
use super::shared::{label_key, node_labels, subdomain, taints, tolerations};

pub(super) fn resource_flavor(root: impl Fn(&str) -> Schema) -> Schema {
    let taints = taints("Taints of the nodes; workloads must tolerate them to use the flavor.").rule(
        "supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'",
        "self.all(x, x.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'])",
    );
    let immutable = |spec: Schema, field: &str| {
        spec.rule(
            &format!("{field} are immutable when topologyName is set"),
            &format!(
                "!has(oldSelf.topologyName) || (has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || \
                 self.{field} == oldSelf.{field}))"
            ),
        )
    };
    let spec = object("The nodes of the flavor.")
        .field("nodeLabels", node_labels("Labels of the nodes; pods get them as node affinity."))
        .field("nodeTaints", taints)
        .field("tolerations", tolerations("Tolerations that pods get.").atomic())
        .field("topologyName", subdomain("Name of the Topology of the nodes."))
        .rule(
            "at least one nodeLabel is required when topology is set",
            "!has(self.topologyName) || self.nodeLabels.size() >= 1",
        );
    let spec = immutable(immutable(spec, "nodeLabels"), "tolerations").rule(
        "topologyName is immutable when topologyName is set",
        "!has(oldSelf.topologyName) || (has(self.topologyName) && self.topologyName == oldSelf.topologyName)",
    );
    root("A class of nodes with its own quota.").field("spec", spec)
}

pub(super) fn topology(root: impl Fn(&str) -> Schema) -> Schema {
    let level = object("One level.")
        .field(
            "nodeLabel",
            label_key(316, "Label of nodes; nodes with equal values are one domain.").min_length(1),
        )
        .required(&["nodeLabel"]);
    let levels = array(level, "Levels, from the highest to the lowest.")
        .min_items(1)
        .max_items(16)
        .atomic()
        .rule("field is immutable", "self == oldSelf")
        .rule("must be unique", "size(self.filter(i, size(self.filter(j, j == i)) > 1)) == 0")
        .rule(
            "the kubernetes.io/hostname label can only be used at the lowest level of topology",
            "size(self.filter(i, i.nodeLabel == 'kubernetes.io/hostname')) == 0 || self[size(self) - 1].nodeLabel == \
             'kubernetes.io/hostname'",
        );
    let spec = object("The hierarchy.").field("levels", levels).required(&["levels"]);
    root("A hierarchy of node labels, such as block, rack and host.").field("spec", spec)
}

pub(super) fn priority_class(root: impl Fn(&str) -> Schema, version: Version) -> Schema {
    let description = text("Purpose of the class.").when(version.is_new(), |text| text.max_length(2048));
    root("A priority for workloads, independent of the priority of their pods.")
        .field("description", description)
        .field("value", integer("The priority; workloads with a higher one come first."))
        .required(&["value"])
}
