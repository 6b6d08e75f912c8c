//! Who may do what: role-based access control over the RBAC objects that the server stores.
//!
//! Members of `system:masters` may do everything, and where authentication is off that is everybody who does not speak
//! for another. Everybody authenticated may discover and review themselves; the rest is what roles grant.

use serde_json::{Value, json};

use crate::object;
use crate::request::{Call, Target};
use crate::server::ApiServer;
use crate::status::Status;
use crate::store::key_of;
use crate::user::User;

/// What is about to be done.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Access<'a> {
    pub(crate) verb: &'a str,
    pub(crate) group: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// A path that is no resource; everything else but the verb is empty then.
    pub(crate) path: &'a str,
}

const ROLES: &str = "roles.rbac.authorization.k8s.io";
const CLUSTER_ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
const ROLE_BINDINGS: &str = "rolebindings.rbac.authorization.k8s.io";
const CLUSTER_ROLE_BINDINGS: &str = "clusterrolebindings.rbac.authorization.k8s.io";

impl ApiServer {
    /// Whether a user may do something.
    pub(crate) fn allows(&self, who: &User, access: &Access<'_>) -> bool {
        if who.is_admin() {
            return true;
        }
        self.rules_of(who, access.namespace).iter().any(|rule| covers(rule, access))
    }

    /// Refuses a request for a path that is no resource, unless its user may ask.
    pub(crate) fn authorize_path(&self, call: &Call<'_>, parts: &[&str]) -> Result<(), Status> {
        let path = format!("/{}", parts.join("/"));
        let verb = call.method.as_str().to_lowercase();
        if self.allows(call.who, &Access { verb: &verb, path: &path, ..Access::default() }) {
            return Ok(());
        }
        let who = &call.who.name;
        Err(Status::forbidden_path(format!("forbidden: User {who:?} cannot {verb} path {path:?}")))
    }

    /// Refuses a request for a resource, unless its user may make it.
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
        if self.allows(call.who, &access) {
            return Ok(());
        }
        let plural = &target.plural;
        let resource = if part.is_empty() { plural.clone() } else { format!("{plural}/{part}") };
        let place = if namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace {namespace:?}")
        };
        let (who, group) = (&call.who.name, &target.group);
        let why = format!("User {who:?} cannot {verb} resource {resource:?} in API group {group:?} {place}");
        Err(Status::forbidden(group, plural, &name, &why))
    }

    /// The rules that bind a user in a namespace (empty: in the cluster).
    pub(crate) fn rules_of(&self, who: &User, namespace: &str) -> Vec<Value> {
        let mut rules = built_in_rules(who);
        let mut bound = |bindings: &str, within: Option<&str>| {
            for binding in self.store.range(bindings, within, None) {
                let binding = binding.value();
                if object::items(&binding, &["subjects"]).iter().any(|s| is_subject(s, who, &binding)) {
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
        let mut rules = object::items(&role, &["rules"]).to_vec();
        for selector in object::items(&role, &["aggregationRule", "clusterRoleSelectors"]) {
            let selector = crate::selector::Selector::from_value(selector);
            for part in self.store.range(CLUSTER_ROLES, None, None) {
                if selector.matches(|key| part.label(key)) && part.name() != name {
                    rules.extend(object::items(&part.value(), &["rules"]).to_vec());
                }
            }
        }
        rules
    }
}

/// What discovery and self reviews need: granted to everybody who is authenticated.
fn built_in_rules(who: &User) -> Vec<Value> {
    let mut rules = vec![json!({
        "nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"],
        "verbs": ["get"],
    })];
    if who.groups.iter().any(|group| group == "system:authenticated") {
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

fn is_subject(subject: &Value, who: &User, binding: &Value) -> bool {
    let name = object::text(subject, &["name"]);
    match object::text(subject, &["kind"]) {
        "User" => name == who.name,
        "Group" => who.groups.iter().any(|group| group == name),
        "ServiceAccount" => {
            let namespace = match object::text(subject, &["namespace"]) {
                "" => object::namespace(binding),
                own => own,
            };
            who.name == format!("system:serviceaccount:{namespace}:{name}")
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
