//! What the API server checks besides `create` when an author creates an object.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Permission, text};

/// The group of roles and bindings.
const RBAC: &str = "rbac.authorization.k8s.io";
/// The fields of a Route's `tls` that are a certificate of its host.
const CERTIFICATES: [&str; 4] = ["certificate", "key", "caCertificate", "destinationCACertificate"];

/// The permissions that an object needs besides the one to create it.
///
/// - `escalate` for a role, `bind` for the role of a binding. kube-apiserver accepts all rules of the role instead, which
///   an access review cannot ask for (`pkg/registry/rbac` of Kubernetes).
/// - `routes/custom-host` for a Route with a host or a certificate (the strategy of Routes of `OpenShift`).
pub(super) fn permissions(object: &Value, create: &Permission) -> BTreeSet<Permission> {
    let mut needed = BTreeSet::new();
    match (create.group.as_str(), text(object, "kind")) {
        (RBAC, "Role" | "ClusterRole") => {
            needed.insert(Permission { verb: "escalate", ..create.clone() });
        }
        (RBAC, "RoleBinding" | "ClusterRoleBinding") => {
            let role = &object["roleRef"];
            let resource = if text(role, "kind") == "Role" { "roles" } else { "clusterroles" };
            let (resource, name) = (resource.to_owned(), text(role, "name").to_owned());
            needed.insert(Permission { verb: "bind", resource, name, ..create.clone() });
        }
        ("route.openshift.io", "Route") if has_own_host(&object["spec"]) => {
            needed.insert(Permission { subresource: "custom-host", ..create.clone() });
        }
        _ => {}
    }
    needed
}

fn has_own_host(route: &Value) -> bool {
    let tls = &route["tls"];
    !text(route, "host").is_empty()
        || !text(route, "subdomain").is_empty()
        || CERTIFICATES.iter().any(|field| !text(tls, field).is_empty())
        || !tls["externalCertificate"].is_null()
}
