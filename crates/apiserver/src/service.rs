//! The server as a `tower::Service`: a lock around it, a clock, wake-ups for watches, and a task that keeps house.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, Limited};
use jiff::Timestamp;
use tokio::sync::Notify;

use crate::server::{ApiServer, Reply};
use crate::status::Status;
use crate::user::{Auth, User};
use crate::watch::{Pull, Watch};

/// Tells the time; a function, so that tests bring their own.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Largest request body, as a real server's.
const BODY_BYTES_MAX: usize = 3 << 20;

/// A Kubernetes API that clients attach to without a socket, e.g. `kube::Client::new(service, "default")`. Clones share
/// one server. The task that keeps house ends with the last of them.
#[derive(Clone)]
pub struct Service {
    shared: Arc<Shared>,
    /// Every request comes from this user, whatever it carries.
    user: Option<Arc<User>>,
}

struct Shared {
    server: Mutex<ApiServer>,
    clock: Clock,
    auth: Auth,
    wakes: Mutex<BTreeMap<Arc<str>, Arc<Notify>>>,
    house: Arc<Notify>,
}

impl Shared {
    /// A panic under the lock would be a bug; the others go on with what is there.
    fn lock(&self) -> MutexGuard<'_, ApiServer> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_of(&self, storage: &Arc<str>) -> Arc<Notify> {
        let mut wakes = self.wakes.lock().unwrap_or_else(PoisonError::into_inner);
        wakes.entry(storage.clone()).or_default().clone()
    }

    /// Runs something on the server, then wakes whom it concerns.
    fn with<T>(&self, act: impl FnOnce(&mut ApiServer, Timestamp) -> T) -> T {
        let now = (self.clock)();
        let mut server = self.lock();
        let result = act(&mut server, now);
        let touched: Vec<Arc<str>> = server.take_touched().collect();
        drop(server);
        if !touched.is_empty() {
            for storage in &touched {
                self.wake_of(storage).notify_waiters();
            }
            self.house.notify_one();
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
    /// Puts a server to work.
    ///
    /// # Panics
    /// Outside of a tokio runtime, as housekeeping is a task.
    pub fn new(server: ApiServer, clock: Clock) -> Self {
        let shared = Arc::new(Shared {
            auth: server.config.auth.clone(),
            server: Mutex::new(server),
            clock,
            wakes: Mutex::default(),
            house: Arc::default(),
        });
        shared.with(ApiServer::housekeep);
        tokio::spawn(keep_house(Arc::downgrade(&shared), shared.house.clone()));
        Self { shared, user: None }
    }

    /// The same server, taking every request as coming from `user`: for clients within the process.
    #[must_use]
    pub fn as_user(&self, user: User) -> Self {
        Self { shared: self.shared.clone(), user: Some(Arc::new(user)) }
    }

    /// Runs something on the server itself, and wakes whom its writes concern.
    pub fn with<T>(&self, act: impl FnOnce(&mut ApiServer, Timestamp) -> T) -> T {
        self.shared.with(act)
    }

    /// Who sends a request, or whom an administrator among them speaks for.
    fn user(&self, headers: &http::HeaderMap) -> Result<User, Status> {
        let user = self.sender(headers)?;
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

    fn sender(&self, headers: &http::HeaderMap) -> Result<User, Status> {
        if let Some(user) = &self.user {
            return Ok(User::clone(user));
        }
        let Auth::Tokens(tokens) = &self.shared.auth else { return Ok(User::admin()) };
        let Some(header) = headers.get(header::AUTHORIZATION) else { return Ok(User::anonymous()) };
        let token = header.to_str().ok().and_then(|h| h.strip_prefix("Bearer "));
        let user = token.and_then(|token| {
            let given_out = || self.shared.lock().token_user((self.shared.clock)(), token.trim());
            tokens.get(token.trim()).cloned().or_else(given_out)
        });
        user.ok_or_else(Status::unauthorized)
    }

    async fn answer<B>(self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        let body = match Limited::new(body, BODY_BYTES_MAX).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => {
                return refusal(&Status::too_large(BODY_BYTES_MAX));
            }
            Err(error) => {
                return refusal(&Status::bad_request(format!("cannot read the request body: {error}")));
            }
        };
        let who = match self.user(&parts.headers) {
            Ok(who) => who,
            Err(status) => return refusal(&status),
        };
        let request = Request::from_parts(parts, body);
        match self.shared.with(|server, now| server.handle(now, &who, request)) {
            Reply::Response(response) => response.map(Body::whole),
            Reply::Watch(watch) => Response::builder()
                .header(header::CONTENT_TYPE, "application/json")
                .header(header::CACHE_CONTROL, "no-cache, private")
                .body(Body::stream(watch, self.shared))
                .expect("the content type is valid"),
        }
    }
}

fn refusal(status: &Status) -> Response<Body> {
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
        Box::pin(async move { Ok(service.answer(request).await) })
    }
}

/// Keeps house after writes and when something expires, until the service is gone.
async fn keep_house(shared: Weak<Shared>, wake: Arc<Notify>) {
    loop {
        let Some(service) = shared.upgrade() else { return };
        let (more, expiry, now) =
            service.with(|server, now| (server.housekeep(now), server.next_expiry(), now));
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

/// How long to sleep, a little over so that the time has come afterwards.
fn until(now: Timestamp, at: Timestamp) -> Duration {
    let wait = Duration::try_from(at.duration_since(now)).unwrap_or_default();
    wait.min(Duration::from_hours(24)) + Duration::from_millis(1)
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.house.notify_one();
    }
}

/// The body of a response: whole, or the stream of a watch.
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
        let wake = shared.wake_of(watch.storage());
        let state = (watch, shared, wake);
        let stream = futures::stream::unfold(state, |(mut watch, shared, wake)| async move {
            loop {
                // Before the pull, so that a write in between is not missed.
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
