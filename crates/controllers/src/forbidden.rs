//! Parses the messages of forbidden requests (403) to find the RBAC permission that the controller lacks.
//!
//! The API server authorizes a user before it looks at the request (`forbiddenMessage` of `k8s.io/apiserver`,
//! `pkg/endpoints/handlers/responsewriters/errors.go`). No admission plugin or webhook uses this form of message for
//! its own refusals. One admission plugin checks a permission, too: an owner reference with `blockOwnerDeletion`
//! needs a permission on the owner (`OwnerReferencesPermissionEnforcement`).

use std::fmt;

use api::appwrapper::PLURAL;
use serde_json::{Value, json};

/// Prefix of all texts about a missing permission. A status message with this prefix is recognized again.
const PREFIX: &str = "not allowed: ";

/// A missing permission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForbiddenRequest {
    /// The user that lacks the permission; empty if the API server does not name it.
    user: String,
    verb: String,
    group: String,
    /// With the subresource: `appwrappers/status`.
    resource: String,
    /// None: the permission is needed cluster-wide.
    namespace: Option<String>,
    /// Name of the requested object; empty if unknown.
    name: String,
    /// Details of the authorizer, such as roles that do not exist; often empty.
    detail: String,
}

impl ForbiddenRequest {
    /// The permission that the message of a 403 response names; none if the message has another cause.
    pub(crate) fn read(message: &str) -> Option<Self> {
        let (object, why) = message.split_once("forbidden: ")?;
        if object.contains(": ") {
            return None; // A webhook quotes a request of its own that was forbidden.
        }
        if let Some(user) = why.strip_prefix("User \"") {
            Self::of_authorizer(object, user)
        } else if why.contains("an ownerReference refers to a resource you can't set finalizers on") {
            Some(Self::of_owner())
        } else {
            None
        }
    }

    /// Parses `USER" cannot VERB resource "RESOURCE" in API group "GROUP" in the namespace "NAMESPACE": DETAIL`.
    fn of_authorizer(object: &str, text: &str) -> Option<Self> {
        let (user, text) = text.split_once("\" cannot ")?;
        let (verb, text) = text.split_once(" resource \"")?;
        let (resource, text) = text.split_once("\" in API group \"")?;
        let (group, text) = text.split_once('"')?;
        let (namespace, detail) = match text.strip_prefix(" in the namespace \"") {
            Some(text) => text.split_once('"').map(|(namespace, detail)| (Some(namespace), detail))?,
            None => (None, text.strip_prefix(" at the cluster scope")?),
        };
        let name = object.split('"').nth(1).unwrap_or_default();
        Some(Self {
            user: user.into(),
            verb: verb.into(),
            group: group.into(),
            resource: resource.into(),
            namespace: namespace.map(Into::into),
            name: name.into(),
            detail: detail.trim_start_matches(": ").into(),
        })
    }

    /// The permission to set `blockOwnerDeletion` on an owner reference to an AppWrapper.
    fn of_owner() -> Self {
        Self {
            user: String::new(),
            verb: "update".into(),
            group: String::new(),
            resource: format!("{PLURAL}/finalizers"),
            namespace: None,
            name: String::new(),
            detail: String::new(),
        }
    }

    /// Adds the group and namespace, which the API server omits when the permission concerns the owner of an object.
    #[must_use]
    pub(crate) fn with_owner(mut self, group: &str, namespace: &str) -> Self {
        if self.group.is_empty() && self.resource.starts_with(PLURAL) {
            group.clone_into(&mut self.group);
            self.namespace = Some(namespace.into());
        }
        self
    }

    /// The text about a missing permission in a status message.
    pub(crate) fn in_message(message: &str) -> Option<&str> {
        let (text, _) = message.split_once(". filled in: ").unwrap_or((message, ""));
        message.starts_with(PREFIX).then_some(text)
    }

    /// A `SelfSubjectAccessReview` of this permission. Every user may create one.
    pub(crate) fn access_review(&self) -> Value {
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((&self.resource, ""));
        json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "verb": self.verb, "group": self.group, "resource": resource, "subresource": subresource,
                "namespace": self.namespace.as_deref().unwrap_or_default(), "name": self.name,
            }},
        })
    }

    /// Whether the controller needs the permission for any AppWrapper, so that the base role grants it.
    fn is_in_base_role(&self) -> bool {
        let resource = self.resource.split('/').next().unwrap_or_default();
        let own =
            [PLURAL, "quotasubtrees", "nodes", "namespaces", "customresourcedefinitions", "events", "leases"];
        let reads_pods = resource == "pods" && matches!(&*self.verb, "list" | "watch");
        own.contains(&resource) || self.verb == "patch" || reads_pods
    }
}

impl ForbiddenRequest {
    /// Who lacks which permission.
    pub fn missing(&self) -> String {
        let user = if self.user.is_empty() { "this controller" } else { &self.user };
        let group = if self.group.is_empty() { String::new() } else { format!(" of {}", self.group) };
        let place = match &self.namespace {
            Some(namespace) => format!("in namespace {namespace}"),
            None => "in all namespaces".into(),
        };
        let detail = if self.detail.is_empty() { String::new() } else { format!(" ({})", self.detail) };
        format!("{user} cannot {} {}{group} {place}{detail}", self.verb, self.resource)
    }
}

impl fmt::Display for ForbiddenRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.missing())?;
        if self.is_in_base_role() {
            f.write_str("; the roles in deploy/rbac.yaml grant it")
        } else {
            f.write_str("; a ClusterRole labelled muster.dev/wrapped: \"true\" can grant it")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(message: &str) -> Option<String> {
        ForbiddenRequest::read(message).map(|forbidden| forbidden.to_string())
    }

    #[test]
    fn only_messages_of_the_authorizer_name_a_missing_permission() {
        let cases = [
            (
                r#"jobs.batch is forbidden: User "system:serviceaccount:muster:muster" cannot create resource "jobs" in API group "batch" in the namespace "team""#,
                "not allowed: system:serviceaccount:muster:muster cannot create jobs of batch in namespace team; a ClusterRole labelled muster.dev/wrapped: \"true\" can grant it",
            ),
            (
                r#"appwrappers.mcad.ibm.com "a" is forbidden: User "m" cannot patch resource "appwrappers/status" in API group "mcad.ibm.com" in the namespace "team""#,
                "not allowed: m cannot patch appwrappers/status of mcad.ibm.com in namespace team; the roles in deploy/rbac.yaml grant it",
            ),
            (
                r#"pods is forbidden: User "m" cannot list resource "pods" in API group "" at the cluster scope: RBAC: clusterrole.rbac.authorization.k8s.io "muster" not found"#,
                "not allowed: m cannot list pods in all namespaces (RBAC: clusterrole.rbac.authorization.k8s.io \"muster\" not found); the roles in deploy/rbac.yaml grant it",
            ),
            (
                r#"pods "p" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>"#,
                "not allowed: this controller cannot update appwrappers/finalizers in all namespaces; the roles in deploy/rbac.yaml grant it",
            ),
        ];
        for (message, expected) in cases {
            assert_eq!(read(message).as_deref(), Some(expected));
        }
        for other in [
            r#"pods "p" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"#,
            r#"pods "p" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false"#,
            r#"admission webhook "w" denied the request: User "a" cannot create resource "b" in API group "c""#,
            r#"roles.rbac.authorization.k8s.io "r" is forbidden: user "m" (groups=["g"]) is attempting to grant RBAC permissions not currently held"#,
            r#"admission webhook "w" denied the request: jobs is forbidden: User "w" cannot list resource "jobs" in API group "batch" at the cluster scope"#,
            r#"configmaps "c" is forbidden: unable to create new content in namespace n because it is being terminated"#,
            "forbidden",
        ] {
            assert_eq!(read(other), None, "{other}");
        }
    }

    #[test]
    fn the_access_review_names_the_missing_permission() {
        let forbidden = ForbiddenRequest::read(
            r#"appwrappers.mcad.ibm.com "a" is forbidden: User "m" cannot patch resource "appwrappers/status" in API group "mcad.ibm.com" in the namespace "team""#,
        );
        let expected = json!({"verb": "patch", "group": "mcad.ibm.com", "resource": "appwrappers",
            "subresource": "status", "namespace": "team", "name": "a"});
        assert_eq!(
            forbidden.expect("the message names a permission").access_review()["spec"]["resourceAttributes"],
            expected
        );
    }
}
