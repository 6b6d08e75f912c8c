//! Dispatch of requests to subresources.

mod binding;
mod eviction;
mod log;
pub(crate) mod scale;
mod token;

use std::sync::Arc;

use http::Method;

use crate::object;
use crate::registry::{Resource, Subresource};
use crate::request::{Call, Target};
use crate::response::Answer;
use crate::server::ApiServer;
use crate::status::Status;

impl ApiServer {
    /// Rejects `attach`, `exec` and `portforward`: no kubelet runs the containers.
    fn reject_stream(&self, target: &Target, resource: &Resource, what: &str) -> Status {
        match self.find(target, resource) {
            Err(status) => status,
            Ok(pod) if object::text(&pod.value(), &["spec", "nodeName"]).is_empty() => {
                Status::bad_request(format!("pod {} does not have a host assigned", pod.name()))
            }
            Ok(pod) => Status::other(
                501,
                "NotImplemented",
                &format!("{what} is not possible: the containers of pod {} are simulated", pod.name()),
            ),
        }
    }

    /// Serves a request to a subresource of the resource.
    pub(crate) fn serve_subresource(
        &mut self,
        call: &mut Call<'_>,
        target: &Target,
        resource: &Arc<Resource>,
        subresource: Subresource,
    ) -> Result<Answer, Status> {
        let verb = match call.method {
            Method::GET | Method::HEAD => "get",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            _ => "",
        };
        if !subresource.verbs.contains(&verb) {
            return Err(Status::method_not_allowed());
        }
        if let Some(api) = self.aggregated.get(&(target.group.clone(), target.version.clone())) {
            return Ok(Answer::Aggregated(api.clone()));
        }
        match (subresource.name, verb) {
            ("status" | "resize" | "ephemeralcontainers", "get") => self.read(call, target, resource),
            ("status" | "resize" | "ephemeralcontainers", "patch") => {
                self.patch(call, target, resource, subresource.name)
            }
            ("status" | "resize" | "ephemeralcontainers" | "finalize", "update") => {
                self.update(call, target, resource, subresource.name)
            }
            ("scale", "get") => self.read_scale(target, resource),
            ("scale", _) => self.write_scale(call, target, resource),
            ("binding", _) => self.bind(call, target, resource),
            ("eviction", _) => self.evict(call, target, resource),
            ("log", _) => self.read_log(call, target, resource),
            ("attach" | "exec" | "portforward", _) => {
                Err(self.reject_stream(target, resource, subresource.name))
            }
            ("token", _) => self.request_token(call, target, resource),
            _ => Err(Status::no_such_resource()),
        }
    }
}
