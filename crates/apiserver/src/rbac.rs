//! Authorization: role-based access control (RBAC) by the role and binding objects in the store.
//!
//! Members of `system:masters` may do everything. If authentication is disabled, every user is a member unless the
//! request impersonates another user. Authenticated users may use discovery and self reviews; other access needs a
//! role.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::object;
use crate::request::{Call, Target};
use crate::server::ApiServer;
use crate::status::Status;
use crate::store::key_of;
use crate::user::User;

/// The attributes of a request that is authorized.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Access<'a> {
    pub(crate) verb: &'a str,
    pub(crate) group: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// A non-resource URL; the fields other than `verb` are empty then.
    pub(crate) path: &'a str,
}

const ROLES: &str = "roles.rbac.authorization.k8s.io";
const CLUSTER_ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
const ROLE_BINDINGS: &str = "rolebindings.rbac.authorization.k8s.io";
const CLUSTER_ROLE_BINDINGS: &str = "clusterrolebindings.rbac.authorization.k8s.io";

impl ApiServer {
    /// Whether RBAC allows the access.
    pub(crate) fn allows(&self, user: &User, access: &Access<'_>) -> bool {
        if user.is_admin() {
            return true;
        }
        self.rules_of(user, access.namespace).iter().any(|rule| covers(rule, access))
    }

    /// 403 if the user may not access a non-resource URL.
    pub(crate) fn authorize_path(&self, call: &Call<'_>, parts: &[&str]) -> Result<(), Status> {
        let path = format!("/{}", parts.join("/"));
        let verb = call.method.as_str().to_lowercase();
        if self.allows(call.user, &Access { verb: &verb, path: &path, ..Access::default() }) {
            return Ok(());
        }
        let user = &call.user.name;
        Err(Status::forbidden_path(format!("forbidden: User {user:?} cannot {verb} path {path:?}")))
    }

    /// 403 if the user may not access a resource.
    pub(crate) fn authorize(&self, call: &Call<'_>, target: &Target, verb: &str) -> Result<(), Status> {
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        let (namespace, name, part) =
            (text(&target.namespace), text(&target.name), text(&target.subresource));
        let access = Access {
            verb,
            group: &target.group,
            resource: &target.plural,
            subresource: &part,
            namespace: &namespace,
            name: &name,
            path: "",
        };
        if self.allows(call.user, &access) {
            return Ok(());
        }
        let plural = &target.plural;
        let resource = if part.is_empty() { plural.clone() } else { format!("{plural}/{part}") };
        let scope = if namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace {namespace:?}")
        };
        let (user, group) = (&call.user.name, &target.group);
        let why = format!("User {user:?} cannot {verb} resource {resource:?} in API group {group:?} {scope}");
        Err(Status::forbidden(group, plural, &name, &why))
    }

    /// The RBAC rules of a user in a namespace (empty: cluster-wide).
    pub(crate) fn rules_of(&self, user: &User, namespace: &str) -> Vec<Value> {
        let mut rules = built_in_rules(user);
        let mut bound = |bindings: &str, within: Option<&str>| {
            for binding in self.store.range(bindings, within, None) {
                let binding = binding.value();
                if object::items(&binding, &["subjects"]).iter().any(|s| is_subject(s, user, &binding)) {
                    rules.extend(self.role_rules(&binding));
                }
            }
        };
        bound(CLUSTER_ROLE_BINDINGS, None);
        if !namespace.is_empty() {
            bound(ROLE_BINDINGS, Some(namespace));
        }
        rules
    }

    fn role_rules(&self, binding: &Value) -> Vec<Value> {
        let name = object::text(binding, &["roleRef", "name"]);
        let role = match object::text(binding, &["roleRef", "kind"]) {
            "ClusterRole" => self.store.get(CLUSTER_ROLES, name),
            _ => self.store.get(ROLES, &key_of(object::namespace(binding), name)),
        };
        let Some(role) = role.map(|role| role.value()) else { return Vec::new() };
        let mut rules = Vec::new();
        // A part of a role may have parts of its own: `view` is a part of `edit`, and that one of `admin`.
        let (mut open, mut known) = (vec![role], BTreeSet::from([name.to_owned()]));
        while let Some(role) = open.pop() {
            rules.extend(object::items(&role, &["rules"]).to_vec());
            for selector in object::items(&role, &["aggregationRule", "clusterRoleSelectors"]) {
                let selector = crate::selector::Selector::from_value(selector);
                for part in self.store.range(CLUSTER_ROLES, None, None) {
                    if selector.matches(|key| part.label(key)) && known.insert(part.name().to_owned()) {
                        open.push(part.value());
                    }
                }
            }
        }
        rules
    }
}

/// Rules without role objects: health and version for all users, discovery and self reviews for authenticated users.
fn built_in_rules(user: &User) -> Vec<Value> {
    let mut rules = vec![json!({
        "nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"],
        "verbs": ["get"],
    })];
    if user.groups.iter().any(|group| group == "system:authenticated") {
        rules.push(json!({
            "nonResourceURLs": ["/", "/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"],
            "verbs": ["get"],
        }));
        rules.push(json!({
            "apiGroups": ["authentication.k8s.io"],
            "resources": ["selfsubjectreviews"],
            "verbs": ["create"],
        }));
        rules.push(json!({
            "apiGroups": ["authorization.k8s.io"],
            "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
            "verbs": ["create"],
        }));
    }
    rules
}

fn is_subject(subject: &Value, user: &User, binding: &Value) -> bool {
    let name = object::text(subject, &["name"]);
    match object::text(subject, &["kind"]) {
        "User" => name == user.name,
        "Group" => user.groups.iter().any(|group| group == name),
        "ServiceAccount" => {
            let namespace = match object::text(subject, &["namespace"]) {
                "" => object::namespace(binding),
                own => own,
            };
            user.name == format!("system:serviceaccount:{namespace}:{name}")
        }
        _ => false,
    }
}

fn covers(rule: &Value, access: &Access<'_>) -> bool {
    let has = |key: &str, wanted: &str| object::texts(rule, &[key]).any(|one| one == "*" || one == wanted);
    if !has("verbs", access.verb) {
        return false;
    }
    if !access.path.is_empty() {
        return object::texts(rule, &["nonResourceURLs"]).any(|url| match url.strip_suffix('*') {
            Some(prefix) => access.path.starts_with(prefix),
            None => url == access.path,
        });
    }
    let combined = if access.subresource.is_empty() {
        access.resource.to_owned()
    } else {
        format!("{}/{}", access.resource, access.subresource)
    };
    let any_resource = format!("*/{}", access.subresource);
    let resource = has("resources", &combined)
        || (!access.subresource.is_empty() && object::texts(rule, &["resources"]).any(|r| r == any_resource));
    let names = object::items(rule, &["resourceNames"]);
    let name = names.is_empty() || object::texts(rule, &["resourceNames"]).any(|name| name == access.name);
    has("apiGroups", access.group) && resource && name
}
