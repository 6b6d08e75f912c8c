//! Permissions that this controller lacks, as the API server names them when it refuses a request for want of one.
//!
//! Whoever asks is looked at before the request is (`forbiddenMessage` of `k8s.io/apiserver`,
//! `pkg/endpoints/handlers/responsewriters/errors.go`), in one form that no admission plugin or webhook uses for its own refusals, but
//! one: who blocks the deletion of an owner needs a right on the owner (`OwnerReferencesPermissionEnforcement`).

use std::fmt;

use api::appwrapper::PLURAL;
use serde_json::{Value, json};

/// Begins every text about a lack of rights; by it such a text is found again in a status.
const PREFIX: &str = "not allowed: ";

/// A right that is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForbiddenRequest {
    /// Who lacks it; empty where the API server does not say.
    user: String,
    verb: String,
    group: String,
    /// With its subresource: `appwrappers/status`.
    resource: String,
    /// None: it has to be granted for the whole cluster.
    namespace: Option<String>,
    /// The one object that was meant; empty if it is not known by name.
    name: String,
    /// What the authorizer adds, such as roles that do not exist; often empty.
    detail: String,
}

impl ForbiddenRequest {
    /// The right that a refusal with code 403 is about; nothing if it is about something else.
    pub(crate) fn read(message: &str) -> Option<Self> {
        let (object, why) = message.split_once("forbidden: ")?;
        if object.contains(": ") {
            return None; // Somebody who judges requests quotes what was refused to them.
        }
        if let Some(user) = why.strip_prefix("User \"") {
            Self::of_authorizer(object, user)
        } else if why.contains("an ownerReference refers to a resource you can't set finalizers on") {
            Some(Self::of_owner())
        } else {
            None
        }
    }

    /// Reads `USER" cannot VERB resource "RESOURCE" in API group "GROUP" in the namespace "NAMESPACE": DETAIL`.
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

    /// Our objects block the deletion of the wrapper that owns them.
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

    /// Completes what the API server leaves out of a refusal that concerns the owner of an object.
    #[must_use]
    pub(crate) fn with_owner(mut self, group: &str, namespace: &str) -> Self {
        if self.group.is_empty() && self.resource.starts_with(PLURAL) {
            group.clone_into(&mut self.group);
            self.namespace = Some(namespace.into());
        }
        self
    }

    /// The right that a message of a status says is missing, in its words.
    pub(crate) fn in_message(message: &str) -> Option<&str> {
        let (told, _) = message.split_once(". filled in: ").unwrap_or((message, ""));
        message.starts_with(PREFIX).then_some(told)
    }

    /// A question to the API server whether the right is there by now. It answers everybody about their own rights.
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

    /// Whether the controller needs the right whatever is wrapped.
    fn is_in_base_role(&self) -> bool {
        let resource = self.resource.split('/').next().unwrap_or_default();
        let own = [PLURAL, "quotasubtrees", "nodes", "customresourcedefinitions", "events", "leases"];
        let reads_pods = resource == "pods" && matches!(&*self.verb, "list" | "watch");
        own.contains(&resource) || self.verb == "patch" || reads_pods
    }
}

impl fmt::Display for ForbiddenRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = if self.user.is_empty() { "this controller" } else { &self.user };
        write!(f, "{PREFIX}{user} cannot {} {}", self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, " of {}", self.group)?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " in namespace {namespace}")?,
            None => f.write_str(" in all namespaces")?,
        }
        if !self.detail.is_empty() {
            write!(f, " ({})", self.detail)?;
        }
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
    fn refusals_for_want_of_a_right_are_told_from_all_others() {
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
        for (message, told) in cases {
            assert_eq!(read(message).as_deref(), Some(told));
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
    fn the_question_names_the_very_right() {
        let forbidden = ForbiddenRequest::read(
            r#"appwrappers.mcad.ibm.com "a" is forbidden: User "m" cannot patch resource "appwrappers/status" in API group "mcad.ibm.com" in the namespace "team""#,
        );
        let asked = json!({"verb": "patch", "group": "mcad.ibm.com", "resource": "appwrappers",
            "subresource": "status", "namespace": "team", "name": "a"});
        assert_eq!(forbidden.expect("it is one").access_review()["spec"]["resourceAttributes"], asked);
    }
}
