//! The server as a `tower::Service`: a lock around [`ApiServer`], a clock, wake-ups for watches, and a task that runs
//! the built-in controllers.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, Limited};
use jiff::Timestamp;
use tokio::sync::Notify;

use crate::response::Reply;
use crate::server::ApiServer;
use crate::status::Status;
use crate::user::{Auth, User};
use crate::watch::{Pull, Watch};

/// Returns the current time. It is a function so that tests can supply a virtual clock.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Largest request body that is accepted; the limit of kube-apiserver.
const BODY_BYTES_MAX: usize = 3 << 20;

/// Clients reach the server at the path `CLUSTERS/NAME`, too, whatever NAME is.
pub const CLUSTERS: &str = "/clusters";

/// An API server that clients use without a socket, e.g. `kube::Client::new(service, "default")`.
///
/// Clones share one server. The controller task ends when the last clone is dropped.
#[derive(Clone)]
pub struct Service {
    shared: Arc<Shared>,
    /// If set, the user of every request; credentials in the request are ignored.
    user: Option<Arc<User>>,
}

struct Shared {
    server: Mutex<ApiServer>,
    clock: Clock,
    auth: Auth,
    wakeups: Mutex<BTreeMap<Arc<str>, Arc<Notify>>>,
    controllers_wakeup: Arc<Notify>,
}

impl Shared {
    /// Ignores lock poisoning: a panic under the lock is a bug, and other requests continue with the current state.
    fn lock(&self) -> MutexGuard<'_, ApiServer> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wakeup_of(&self, storage: &Arc<str>) -> Arc<Notify> {
        let mut wakeups = self.wakeups.lock().unwrap_or_else(PoisonError::into_inner);
        wakeups.entry(storage.clone()).or_default().clone()
    }

    /// Runs `act` on the server, then wakes the watches of the changed resources and the controllers.
    fn with<T>(&self, act: impl FnOnce(&mut ApiServer, Timestamp) -> T) -> T {
        let now = (self.clock)();
        let mut server = self.lock();
        let result = act(&mut server, now);
        let changed: Vec<Arc<str>> = server.take_changed().collect();
        drop(server);
        if !changed.is_empty() {
            for storage in &changed {
                self.wakeup_of(storage).notify_waiters();
            }
            self.controllers_wakeup.notify_one();
        }
        result
    }
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Service {
    /// Wraps a server and spawns its controller task.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub fn new(server: ApiServer, clock: Clock) -> Self {
        let shared = Arc::new(Shared {
            auth: server.config.auth.clone(),
            server: Mutex::new(server),
            clock,
            wakeups: Mutex::default(),
            controllers_wakeup: Arc::default(),
        });
        shared.with(ApiServer::run_controllers);
        tokio::spawn(controller_loop(Arc::downgrade(&shared), shared.controllers_wakeup.clone()));
        Self { shared, user: None }
    }

    /// A handle on the same server that authenticates every request as `user`; for clients in the same process.
    #[must_use]
    pub fn as_user(&self, user: User) -> Self {
        Self { shared: self.shared.clone(), user: Some(Arc::new(user)) }
    }

    /// Runs `act` on the server, then wakes the watches of the resources that it changed.
    pub fn with<T>(&self, act: impl FnOnce(&mut ApiServer, Timestamp) -> T) -> T {
        self.shared.with(act)
    }

    /// The user of a request: the authenticated user, or the impersonated user if an administrator impersonates one.
    fn user(&self, headers: &http::HeaderMap) -> Result<User, Status> {
        let user = self.authenticate(headers)?;
        let Some(name) = headers.get("impersonate-user").and_then(|h| h.to_str().ok()) else {
            return Ok(user);
        };
        if !user.is_admin() {
            let why = format!(
                "User {:?} cannot impersonate resource \"users\" in API group \"\" at the cluster scope",
                user.name
            );
            return Err(Status::forbidden("", "users", name, &why));
        }
        let groups = headers.get_all("impersonate-group").iter().filter_map(|h| h.to_str().ok());
        let uid = headers.get("impersonate-uid").and_then(|h| h.to_str().ok()).unwrap_or_default();
        Ok(User { uid: uid.into(), ..User::new(name, &groups.collect::<Vec<_>>()) })
    }

    fn authenticate(&self, headers: &http::HeaderMap) -> Result<User, Status> {
        if let Some(user) = &self.user {
            return Ok(User::clone(user));
        }
        let Auth::Tokens(tokens) = &self.shared.auth else { return Ok(User::admin()) };
        let Some(header) = headers.get(header::AUTHORIZATION) else { return Ok(User::anonymous()) };
        let token = header.to_str().ok().and_then(|h| h.strip_prefix("Bearer "));
        let user = token.and_then(|token| {
            let issued = || self.shared.lock().token_user((self.shared.clock)(), token.trim());
            tokens.get(token.trim()).cloned().or_else(issued)
        });
        user.ok_or_else(Status::unauthorized)
    }

    async fn respond<B>(self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (mut parts, body) = request.into_parts();
        if let Some(direct) = below_cluster(&parts.uri) {
            parts.uri = direct;
        }
        let body = match Limited::new(body, BODY_BYTES_MAX).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => {
                return status_response(&Status::too_large(BODY_BYTES_MAX));
            }
            Err(error) => {
                return status_response(&Status::bad_request(format!(
                    "cannot read the request body: {error}"
                )));
            }
        };
        let user = match self.user(&parts.headers) {
            Ok(user) => user,
            Err(status) => return status_response(&status),
        };
        let request = Request::from_parts(parts, body);
        let forwarded = request.clone();
        match self.admit(&user, request).await {
            Reply::Aggregated(api) => api.answer(forwarded).await.map(Body::whole),
            Reply::Response(response) => response.map(Body::whole),
            Reply::Watch(watch) => Response::builder()
                .header(header::CONTENT_TYPE, "application/json")
                .header(header::CACHE_CONTROL, "no-cache, private")
                .body(Body::stream(watch, self.shared))
                .expect("the content type is valid"),
        }
    }
}

impl Service {
    /// Executes a request. If webhooks have to be called, it is executed again with their answers.
    async fn admit(&self, user: &User, request: Request<Bytes>) -> Reply {
        let admission = self.shared.lock().admission_of((self.shared.clock)(), user, &request);
        let Some(mut admission) = admission else {
            return self.shared.with(|server, now| server.handle(now, user, request));
        };
        loop {
            match self.shared.with(|server, _| server.handle_admitted(&request, admission)) {
                Ok(reply) => return reply,
                Err(unanswered) => admission = unanswered,
            }
            admission.call().await;
        }
    }
}

/// What a URI below `/clusters/NAME` addresses; `None` if it is not below one.
///
/// As behind a proxy of several clusters (Rancher has `/k8s/clusters/NAME`), a kubeconfig may name this server under any NAME. kubectl
/// keeps what a server serves for 6 hours by the host, the port and the path in the kubeconfig (`computeDiscoverCacheDir` in
/// k8s.io/cli-runtime `pkg/genericclioptions/config_flags.go`), so that a server of a new name is not taken for an older one at its port.
fn below_cluster(uri: &Uri) -> Option<Uri> {
    let below = uri.path().strip_prefix(CLUSTERS)?.strip_prefix('/')?;
    let path = below.find('/').map_or("/", |at| &below[at..]);
    let query = uri.query().map_or_else(String::new, |query| format!("?{query}"));
    format!("{path}{query}").parse().ok()
}

fn status_response(status: &Status) -> Response<Body> {
    let body = Bytes::from(status.to_value().to_string());
    Response::builder()
        .status(status.code())
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::whole(body))
        .expect("the status code is valid")
}

impl<B> tower::Service<Request<B>> for Service
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(service.respond(request).await) })
    }
}

/// Runs the controllers after every write and at every expiry, until the service is dropped.
async fn controller_loop(shared: Weak<Shared>, wake: Arc<Notify>) {
    loop {
        let Some(service) = shared.upgrade() else { return };
        let (more, expiry, now) =
            service.with(|server, now| (server.run_controllers(now), server.next_expiry(), now));
        drop(service);
        if more {
            tokio::task::yield_now().await;
            continue;
        }
        match expiry {
            Some(at) => {
                let _ = tokio::time::timeout(until(now, at), wake.notified()).await;
            }
            None => wake.notified().await,
        }
    }
}

/// Time to sleep until `at`, at most a day; plus 1 ms so that `at` has passed after the sleep.
fn until(now: Timestamp, at: Timestamp) -> Duration {
    let wait = Duration::try_from(at.duration_since(now)).unwrap_or_default();
    wait.min(Duration::from_hours(24)) + Duration::from_millis(1)
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.controllers_wakeup.notify_one();
    }
}

/// The body of a response: complete, or the event stream of a watch.
pub struct Body(Kind);

enum Kind {
    Whole(Option<Bytes>),
    Stream(Stream),
}

type Stream = Pin<Box<dyn futures::Stream<Item = Bytes> + Send>>;

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            Kind::Whole(_) => "Body::Whole",
            Kind::Stream(_) => "Body::Stream",
        })
    }
}

impl Body {
    fn whole(bytes: Bytes) -> Self {
        Self(Kind::Whole(Some(bytes).filter(|bytes| !bytes.is_empty())))
    }

    fn stream(watch: Box<Watch>, shared: Arc<Shared>) -> Self {
        let wake = shared.wakeup_of(watch.storage());
        let state = (watch, shared, wake);
        let stream = futures::stream::unfold(state, |(mut watch, shared, wake)| async move {
            loop {
                // Register before the pull, so that a write between the pull and the wait is not missed.
                let woken = wake.notified();
                let now = (shared.clock)();
                let pull = shared.lock().pull(now, &mut watch);
                match pull {
                    Pull::Chunk(bytes) => {
                        return Some((bytes, (watch, shared, wake.clone())));
                    }
                    Pull::Idle(at) => {
                        let _ = tokio::time::timeout(until(now, at), woken).await;
                    }
                    Pull::End => return None,
                }
            }
        });
        Self(Kind::Stream(Box::pin(stream)))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.0 {
            Kind::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Stream(stream) => {
                stream.as_mut().poll_next(context).map(|next| next.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.0, Kind::Whole(None))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        match &self.0 {
            Kind::Whole(bytes) => {
                http_body::SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64))
            }
            Kind::Stream(_) => http_body::SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_below_a_name_of_the_cluster_is_what_the_server_has_at_its_root() {
        for (uri, expected) in [
            ("/clusters/a/api/v1/pods?watch=1", Some("/api/v1/pods?watch=1")),
            ("/clusters/a/clusters/b", Some("/clusters/b")),
            ("http://h:1/clusters/a/apis", Some("/apis")),
            ("/clusters/a", Some("/")),
            ("/clusters/a/?x", Some("/?x")),
            ("/clusters//api", Some("/api")),
            ("/clusters", None),
            ("/clustersa/b", None),
            ("/api/v1/clusters/a", None),
        ] {
            let found = below_cluster(&uri.parse().unwrap()).map(|found| found.to_string());
            assert_eq!(found.as_deref(), expected, "{uri}");
        }
    }
}
