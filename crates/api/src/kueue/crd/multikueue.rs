//! MultiKueueCluster and MultiKueueConfig.

use super::Version;
use super::schema::{Schema, array, choice, object, text};
use super::shared::conditions;

pub(super) fn cluster(root: impl Fn(&str) -> Schema, version: Version) -> Schema {
    let is_new = version.is_new();
    let profile = object("A ClusterProfile.")
        .field("name", text("Name of the ClusterProfile.").min_length(1).max_length(256))
        .required(&["name"]);
    let location = text("Name of the Secret, or path of the file.");
    let required: &[&str] = if is_new { &["location"] } else { &["location", "locationType"] };
    let config = object("A kubeconfig.")
        .field("location", location.when(is_new, |location| location.min_length(1).max_length(256)))
        .field("locationType", choice(&["Secret", "Path"], "Where the kubeconfig is.").default("Secret"))
        .required(required);
    let spec = object("How the cluster is reached.");
    let spec = if is_new {
        let source = object("One way to reach the cluster.")
            .field("clusterProfileRef", profile)
            .field("kubeConfig", config)
            .rule(
                "exactly one of the fields in [kubeConfig clusterProfileRef] must be set",
                "[has(self.kubeConfig),has(self.clusterProfileRef)].filter(x,x==true).size() == 1",
            );
        spec.field("clusterSource", source).required(&["clusterSource"])
    } else {
        spec.field("clusterProfileRef", profile).field("kubeConfig", config).required(&["kubeConfig"])
    };
    let status = object("State of the cluster.").field("conditions", conditions(version));
    root("A worker cluster.").field("spec", spec).field("status", status)
}

pub(super) fn config(root: impl Fn(&str) -> Schema, version: Version) -> Schema {
    let is_new = version.is_new();
    let clusters = array(text("").when(is_new, |name| name.max_length(256)), "Names of worker clusters.")
        .min_items(1)
        .max_items(20);
    let clusters = if is_new {
        let unique = "size(self.filter(i, size(self.filter(j, j == i)) > 1)) == 0";
        clusters.atomic().rule("must be unique", unique)
    } else {
        clusters.set()
    };
    let spec = object("The worker clusters of an admission check.")
        .field("clusters", clusters)
        .when(is_new, |spec| {
            let description = "Whether quota of the manager is set by hand, or is the sum of the workers.";
            spec.field("quotaManagement", choice(&["Manual", "Automated"], description))
        })
        .required(&["clusters"]);
    root("Parameters of the admission check that runs workloads on other clusters.").field("spec", spec)
}
