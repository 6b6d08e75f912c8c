//! Measures the requests of a client, limits how many are under way, and repeats those that the API server refuses for its
//! load: with the pause that it asks for (`Retry-After`), as API priority and fairness wants it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use kube::client::retry::RetryPolicy;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tower::retry::Retry;
use tower::{BoxError, Service, ServiceExt as _};

use super::Meter;

/// Maximum number of requests that are not answered yet. An answer that is a stream, as of a watch, counts until it begins.
const IN_FLIGHT_MAX: usize = 128;

impl Meter {
    /// A client that measures, limits and repeats the requests of another one, which should repeat none itself.
    pub fn client(&self, client: &Client) -> Client {
        let namespace = client.default_namespace().to_owned();
        let client = client.clone();
        let inner = tower::service_fn(move |request: Request<Body>| {
            let client = client.clone();
            async move { client.send(request).await }
        });
        let limit = Arc::new(Semaphore::new(IN_FLIGHT_MAX));
        let metered = MeteredRequests { meter: self.clone(), limit, inner };
        // Outside of the limit: a request that pauses keeps no other one waiting.
        Client::new(Retry::new(RetryPolicy::server_retry(), metered), namespace)
    }
}

/// Measures each request, and lets no more than a number of them be under way.
#[derive(Debug, Clone)]
struct MeteredRequests<S> {
    meter: Meter,
    limit: Arc<Semaphore>,
    inner: S,
}

/// A request under way.
struct InFlight(Meter);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.step("api_requests_in_flight", false);
    }
}

impl<S, B> Service<Request<Body>> for MeteredRequests<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(())) // A request waits for its turn when it is called.
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let meter = self.meter.clone();
        let verb = verb(&request);
        let resource = resource(request.uri().path());
        let (limit, inner) = (self.limit.clone(), self.inner.clone());
        Box::pin(async move {
            // The semaphore is never closed.
            let _permit = limit.acquire_owned().await.ok();
            meter.step("api_requests_in_flight", true);
            let (sent, in_flight) = (Instant::now(), InFlight(meter));
            let answer = inner.oneshot(request).await.map_err(Into::into);
            let code = answer.as_ref().map_or(0, |answer| answer.status().as_u16()).to_string();
            let meter = &in_flight.0;
            meter.count("api_requests_total", &[("code", &code), ("resource", &resource), ("verb", verb)]);
            meter.took("api_request_duration_seconds", &[("verb", verb)], sent.elapsed());
            answer
        })
    }
}

/// The verb of a request, as RBAC names it.
fn verb(request: &Request<Body>) -> &'static str {
    let path = segments(request.uri().path());
    let names_one = object(&path).is_some_and(|rest| rest.len() > 1);
    match *request.method() {
        Method::GET if request.uri().query().is_some_and(|query| query.contains("watch=true")) => "watch",
        Method::GET if object(&path).is_some() && !names_one => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "get",
    }
}

/// The resource of a request, with its group and its subresource, as `pods/status` or `jobs.batch`. Requests beside the
/// resources, as for discovery, have none: an author names groups that do not exist.
fn resource(path: &str) -> String {
    let path = segments(path);
    let Some(rest) = object(&path) else { return String::new() };
    let group = if path[0] == "apis" { format!(".{}", path[1]) } else { String::new() };
    let subresource = rest.get(2).map(|subresource| format!("/{subresource}"));
    format!("{}{group}{}", rest[0], subresource.unwrap_or_default())
}

fn segments(path: &str) -> Vec<&str> {
    path.split('/').filter(|segment| !segment.is_empty()).collect()
}

/// The part of a path from the resource on: resource, name and subresource.
fn object<'a, 'p>(path: &'a [&'p str]) -> Option<&'a [&'p str]> {
    let rest = match path.first() {
        Some(&"api") => path.get(2..)?,
        Some(&"apis") => path.get(3..)?,
        _ => return None,
    };
    let rest = match rest {
        ["namespaces", _, inner @ ..] if !inner.is_empty() && !matches!(inner, ["status" | "finalize"]) => {
            inner
        }
        _ => rest,
    };
    (!rest.is_empty()).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_verb_and_the_resource_of_rbac() {
        let cases = [
            (Method::GET, "/api/v1/pods?watch=true", "watch", "pods"),
            (Method::GET, "/api/v1/pods?limit=500", "list", "pods"),
            (Method::GET, "/api/v1/namespaces/a/pods/b", "get", "pods"),
            (Method::GET, "/api/v1/namespaces/a", "get", "namespaces"),
            (Method::PUT, "/api/v1/namespaces/a/finalize", "update", "namespaces/finalize"),
            (Method::PATCH, "/api/v1/namespaces/a/pods/b/status", "patch", "pods/status"),
            (Method::POST, "/apis/batch/v1/namespaces/a/jobs", "create", "jobs.batch"),
            (
                Method::PATCH,
                "/apis/mcad.ibm.com/v1beta1/namespaces/a/appwrappers/b/status",
                "patch",
                "appwrappers.mcad.ibm.com/status",
            ),
            (Method::DELETE, "/apis/ray.io/v1/namespaces/a/rayjobs/b", "delete", "rayjobs.ray.io"),
            (Method::GET, "/apis/made.up/v1", "get", ""),
            (Method::GET, "/version", "get", ""),
        ];
        for (method, path, expected, of) in cases {
            let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
            assert_eq!((verb(&request), resource(request.uri().path()).as_str()), (expected, of), "{path}");
        }
    }
}
