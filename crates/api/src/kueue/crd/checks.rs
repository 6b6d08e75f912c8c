//! AdmissionCheck and ProvisioningRequestConfig.

use serde_json::json;

use super::Version;
use super::schema::{Schema, array, choice, integer, integer64, map, object, pattern, text};
use super::shared::{conditions, dns_label, label_key, subdomain};

pub(super) fn admission_check(root: impl Fn(&str) -> Schema, version: Version) -> Schema {
    let is_new = version.is_new();
    let filled = |schema: Schema| schema.when(is_new, |schema| schema.min_length(1));
    let parameters = object("An object with parameters for the controller.")
        .field("apiGroup", filled(subdomain("Group of the object.")))
        .field("kind", filled(pattern(63, "^(?i)[a-z]([-a-z0-9]*[a-z0-9])?$", "Kind of the object.")))
        .field("name", filled(dns_label("Name of the object.")))
        .required(&["apiGroup", "kind", "name"]);
    let controller = text("Name of the controller that performs the check.")
        .when(is_new, |name| name.min_length(1).max_length(253))
        .rule("field is immutable", "self == oldSelf");
    let spec = object("The check.")
        .field("controllerName", controller)
        .field("parameters", parameters)
        .when(!is_new, |spec| spec.field("retryDelayMinutes", integer64("Not used any more.").default(15)))
        .required(&["controllerName"]);
    let status = object("State of the check.").field("conditions", conditions(version));
    root("A check that workloads need beside quota; another controller performs it.")
        .field("spec", spec)
        .field("status", status)
}

pub(super) fn provisioning_request_config(root: impl Fn(&str) -> Schema, version: Version) -> Schema {
    let is_new = version.is_new();
    let class = subdomain("Class of the ProvisioningRequests.").when(is_new, |class| class.min_length(1));
    let spec = object("How ProvisioningRequests are made.")
        .field(
            "managedResources",
            array(text(""), "Resources for which nodes are provisioned; empty for all.").max_items(100).set(),
        )
        .field(
            "parameters",
            map(text("").max_length(255), "Parameters of the class.").with("maxProperties", 100),
        )
        .field(
            "podSetMergePolicy",
            choice(
                &["IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements"],
                "Which pod sets share one entry of the request.",
            ),
        )
        .field("podSetUpdates", pod_set_updates(is_new))
        .field("provisioningClassName", class)
        .field("retryStrategy", retry_strategy())
        .required(&["provisioningClassName"]);
    root("Parameters of the admission check that provisions nodes.").field("spec", spec)
}

fn pod_set_updates(is_new: bool) -> Schema {
    let selector = object("One node label.")
        .field("key", label_key(317, "Key of the label.").min_length(1))
        .field(
            "valueFromProvisioningClassDetail",
            text("Key of the detail of the provisioned request whose value the label has.")
                .min_length(1)
                .max_length(32768),
        )
        .required(&["key", "valueFromProvisioningClassDetail"]);
    let selectors = array(selector, "Node labels that pods get.").max_items(8);
    object("Changes of the pods after provisioning.")
        .field("nodeSelector", selectors.when(is_new, |list| list.keyed(&["key"])))
}

fn retry_strategy() -> Schema {
    object("What happens after a failed request.")
        .field(
            "backoffBaseSeconds",
            integer("Delay before the first retry; it doubles with each retry.").default(60),
        )
        .field("backoffLimitCount", integer("Maximum number of retries.").default(3))
        .field("backoffMaxSeconds", integer("Maximum delay.").default(1800))
        .default(json!({"backoffBaseSeconds": 60, "backoffLimitCount": 3, "backoffMaxSeconds": 1800}))
}
