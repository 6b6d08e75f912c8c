//! Dispatch of a request to the handler of its verb and resource.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use jiff::Timestamp;

use crate::converter::check_convertible;
use crate::discovery;
use crate::negotiate;
use crate::registry::Resource;
use crate::request::{Call, Target};
use crate::response::{Answer, Reply, reply};
use crate::server::ApiServer;
use crate::status::Status;
use crate::user::User;

impl ApiServer {
    /// Handles a request of `user` at the time `now`. Its writes are visible to watches when it returns.
    pub fn handle(&mut self, now: Timestamp, user: &User, request: http::Request<Bytes>) -> Reply {
        self.boot(now);
        let mut call = Call::new(now, user, request);
        let answer = self.route(&mut call).unwrap_or_else(Answer::Status);
        reply(&call, answer)
    }

    fn route(&mut self, call: &mut Call<'_>) -> Result<Answer, Status> {
        let segments = std::mem::take(&mut call.segments);
        let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
        let target = match parts.as_slice() {
            ["api", version, _, ..] => Target::parse("", version, &segments[2..]),
            ["apis", group, version, _, ..] => Target::parse(group, version, &segments[3..]),
            _ => {
                self.authorize_path(call, &parts)?;
                return discovery::answer(self, call, &parts);
            }
        };
        let target = target.ok_or_else(Status::no_such_path)?;
        let resource = self.registry.get(&target.group, &target.version, &target.plural).cloned();
        let served = || self.registry.all().any(|r| r.group == target.group);
        let resource = resource
            .ok_or_else(|| if served() { Status::no_such_resource() } else { Status::no_such_path() })?;
        self.serve(call, &target, &resource)
    }

    fn serve(
        &mut self,
        call: &mut Call<'_>,
        target: &Target,
        resource: &Arc<Resource>,
    ) -> Result<Answer, Status> {
        let wrong_scope = match (&target.namespace, resource.namespaced) {
            (Some(_), false) => true,
            (None, true) => target.name.is_some(),
            (Some(_), true) | (None, false) => false,
        };
        if wrong_scope {
            return Err(Status::no_such_resource());
        }
        let one = target.name.is_some();
        let verb = match (&call.method, one) {
            // A GET of one object is not a watch, even with `watch=true`.
            (&Method::GET | &Method::HEAD, true) => "get",
            (&Method::GET | &Method::HEAD, false) if call.query.flag("watch") => "watch",
            (&Method::GET | &Method::HEAD, false) => "list",
            (&Method::POST, _) => "create",
            (&Method::PUT, _) => "update",
            (&Method::PATCH, _) => "patch",
            (&Method::DELETE, true) => "delete",
            (&Method::DELETE, false) => "deletecollection",
            _ => "",
        };
        self.authorize(call, target, verb)?;
        check_convertible(resource)?;
        negotiate::format(&call.headers, verb == "list", false)?;
        if *resource.storage == *"endpoints" {
            let warning = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice";
            call.warnings.push(warning.into());
        }
        if let Some(warning) = resource.custom.as_ref().and_then(|c| c.deprecation.clone()) {
            call.warnings.push(warning);
        }
        if let Some(subresource) = &target.subresource {
            let known = resource.subresource(subresource).copied().ok_or_else(Status::no_such_resource)?;
            return self.serve_subresource(call, target, resource, known);
        }
        // A request across all namespaces can only read.
        let has_scope = target.namespace.is_some() || !resource.namespaced;
        let allowed = match verb {
            "create" => !one && has_scope,
            "deletecollection" => has_scope,
            "update" | "patch" => one,
            _ => true,
        };
        if !allowed || !resource.verbs.contains(&verb) {
            return Err(Status::method_not_allowed());
        }
        if let Some(api) = self.aggregated.get(&(target.group.clone(), target.version.clone())) {
            return Ok(Answer::Aggregated(api.clone()));
        }
        match verb {
            "watch" => {
                let format = negotiate::format(&call.headers, false, false)?;
                self.watch(call, target, resource, format).map(Answer::Watch)
            }
            "get" => self.read(call, target, resource),
            "list" => self.list(call, target, resource),
            "create" if resource.is_virtual() => self.review(call, target, resource),
            "create" => self.create(call, target, resource),
            "update" => self.update(call, target, resource, ""),
            "patch" => self.patch(call, target, resource, ""),
            "delete" => self.delete(call, target, resource),
            _ => self.delete_collection(call, target, resource),
        }
    }
}
