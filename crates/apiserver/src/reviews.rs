//! Virtual resources: the server handles a created object and returns it with a status, but does not store it.

use serde_json::{Value, json};

use crate::object;
use crate::rbac::Access;
use crate::registry::Resource;
use crate::request::{Call, Target};
use crate::response::Answer;
use crate::server::ApiServer;
use crate::status::{Cause, Status};
use crate::user::{Auth, User};
use crate::write::check_type;

impl ApiServer {
    /// Handles a POST to a resource that is not stored.
    pub(crate) fn review(
        &mut self,
        call: &mut Call<'_>,
        target: &Target,
        resource: &Resource,
    ) -> Result<Answer, Status> {
        let mut review = call.decode_body()?;
        check_type(resource, &mut review)?;
        let status = match resource.plural.as_str() {
            "selfsubjectreviews" => json!({ "userInfo": user_info(call.user) }),
            "tokenreviews" => self.review_token(call, &review),
            "selfsubjectaccessreviews" => self.review_access(call.user, &review, resource)?,
            "subjectaccessreviews" | "localsubjectaccessreviews" => {
                let spec = &review["spec"];
                let user = User {
                    name: object::text(spec, &["user"]).into(),
                    uid: object::text(spec, &["uid"]).into(),
                    groups: object::texts(spec, &["groups"]).map(String::from).collect(),
                };
                self.review_access(&user, &review, resource)?
            }
            "selfsubjectrulesreviews" => self.review_rules(call.user, &review),
            "bindings" => return self.bind_by_body(call, target, &review),
            _ => return Err(Status::no_such_resource()),
        };
        object::set(&mut review, &["status"], status);
        if object::get(&review, &["metadata"]).is_none_or(Value::is_null) {
            object::set(&mut review, &["metadata"], json!({}));
        }
        if resource.plural == "selfsubjectreviews" {
            object::set(&mut review, &["metadata", "creationTimestamp"], object::stamp(call.now));
        }
        Ok(Answer::Value { code: 201, value: review })
    }

    fn review_access(&self, user: &User, review: &Value, resource: &Resource) -> Result<Value, Status> {
        let spec = &review["spec"];
        let text = |path: &[&'static str]| object::text(spec, path);
        let about_resource = object::get(spec, &["resourceAttributes"]).is_some_and(Value::is_object);
        let about_path = object::get(spec, &["nonResourceAttributes"]).is_some_and(Value::is_object);
        if about_resource == about_path {
            let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            let cause = Cause::invalid("spec.resourceAttributes", &Value::Null, why);
            return Err(Status::invalid(&resource.group, &resource.kind, "", vec![cause]));
        }
        let access = if about_resource {
            Access {
                verb: text(&["resourceAttributes", "verb"]),
                group: text(&["resourceAttributes", "group"]),
                resource: text(&["resourceAttributes", "resource"]),
                subresource: text(&["resourceAttributes", "subresource"]),
                namespace: text(&["resourceAttributes", "namespace"]),
                name: text(&["resourceAttributes", "name"]),
                path: "",
            }
        } else {
            Access {
                verb: text(&["nonResourceAttributes", "verb"]),
                path: text(&["nonResourceAttributes", "path"]),
                ..Access::default()
            }
        };
        Ok(json!({ "allowed": self.allows(user, &access) }))
    }

    fn review_rules(&self, user: &User, review: &Value) -> Value {
        let namespace = object::text(review, &["spec", "namespace"]);
        let all = [
            json!({ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }),
            json!({ "nonResourceURLs": ["*"], "verbs": ["*"] }),
        ];
        let mut rules = self.rules_of(user, namespace);
        if user.is_admin() && !rules.contains(&all[0]) {
            rules.extend(all);
        }
        let (of_paths, of_resources): (Vec<Value>, Vec<Value>) =
            rules.into_iter().partition(|rule| object::get(rule, &["nonResourceURLs"]).is_some());
        json!({ "resourceRules": of_resources, "nonResourceRules": of_paths, "incomplete": false })
    }

    fn review_token(&self, call: &Call<'_>, review: &Value) -> Value {
        let token = object::text(review, &["spec", "token"]);
        let known = match &self.config.auth {
            Auth::Tokens(tokens) => tokens.get(token).cloned(),
            Auth::Open => None,
        };
        match known.or_else(|| self.token_user(call.now, token)) {
            Some(user) => json!({ "authenticated": true, "user": user_info(&user) }),
            None => json!({ "user": {}, "error": "invalid bearer token" }),
        }
    }

    /// Handles a POST to `bindings`: the same as a POST to the `binding` subresource of the pod.
    fn bind_by_body(
        &mut self,
        call: &mut Call<'_>,
        target: &Target,
        binding: &Value,
    ) -> Result<Answer, Status> {
        let pods = self.registry.get("", "v1", "pods").cloned().ok_or_else(Status::no_such_resource)?;
        let target =
            Target { name: Some(object::name(binding).to_owned()), plural: "pods".into(), ..target.clone() };
        self.bind(call, &target, &pods)
    }
}

fn user_info(user: &User) -> Value {
    let mut info = json!({ "username": user.name, "groups": user.groups });
    if !user.uid.is_empty() {
        info["uid"] = user.uid.as_str().into();
    }
    info
}
