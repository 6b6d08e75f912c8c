//! Serves metrics to Prometheus: over plain HTTP on loopback; elsewhere over TLS, to clients that the API server knows by their
//! token (`TokenReview`) and that may `get` the path `/metrics` (`SubjectAccessReview`), as the filters of controller-runtime
//! do it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use jiff::Timestamp;
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;

use crate::certificate::ServingCertificate;
use crate::certificate_files::{CertificateFiles, CertificateFilesError, TlsOptions};
use crate::connections;
use crate::serving::{Clients, Handshake, ServingError};

/// How long a client that is allowed, or refused, is not asked about again.
const ALLOWED_FOR: Duration = Duration::from_mins(1);
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// Maximum number of tokens whose reviews are remembered.
const REMEMBERED_MAX: usize = 256;
/// Maximum number of reviews at the same time: whoever sends tokens that are made up must not load the API server.
const REVIEWS_MAX: usize = 4;
/// Timeout of a review.
const REVIEW_WITHIN: Duration = Duration::from_secs(10);
/// Maximum length of a token, in bytes.
const TOKEN_BYTES_MAX: usize = 16 * 1024;
/// Life of a certificate that this process signs itself; a new one is made after two thirds of it.
const OWN_CERTIFICATE_LIFE: Duration = Duration::from_hours(365 * 24);

/// The path of the metrics.
const PATH: &str = "/metrics";

/// Serves `/metrics` in the text format of Prometheus; `text` renders them.
pub fn metrics(text: impl Fn() -> String + Clone + Send + Sync + 'static) -> Router {
    let answer = async move || ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text());
    Router::new().route(PATH, get(answer))
}

/// Why metrics cannot be served over TLS.
#[derive(Debug, thiserror::Error)]
pub enum MetricsServerError {
    /// The folder has no usable certificate.
    #[error(transparent)]
    Files(#[from] CertificateFilesError),
    /// No certificate can be made.
    #[error("no certificate can be made: {0}")]
    Own(String),
}

/// Serves metrics over TLS, to clients that may read them.
pub struct MetricsServer {
    listener: TcpListener,
    certificate: Certificate,
    reviews: Reviews,
}

impl std::fmt::Debug for MetricsServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MetricsServer").field("listener", &self.listener).finish_non_exhaustive()
    }
}

enum Certificate {
    /// From a folder.
    Files(CertificateFiles),
    /// One that this process has signed itself, and when.
    Own(TlsOptions, Mutex<(TlsAcceptor, Timestamp)>),
}

impl MetricsServer {
    /// Serves on a listener with the certificate of a folder (`tls.crt` and `tls.key`, which are read again when they
    /// change), or with one that this process signs itself. `client` asks the API server about the clients.
    ///
    /// # Errors
    /// The folder has no usable certificate.
    pub fn new(
        listener: TcpListener,
        folder: Option<&Path>,
        options: TlsOptions,
        client: Client,
    ) -> Result<Self, MetricsServerError> {
        let certificate = if let Some(folder) = folder {
            Certificate::Files(CertificateFiles::open(folder, options)?)
        } else {
            let now = Timestamp::now();
            let own =
                own(options.clone(), now).map_err(|error| MetricsServerError::Own(error.to_string()))?;
            Certificate::Own(options, Mutex::new((own, now)))
        };
        Ok(Self { listener, certificate, reviews: Reviews::new(client) })
    }

    /// Serves until `shutdown` completes.
    pub async fn run(self, router: Router, shutdown: impl Future<Output = ()>) {
        let Self { listener, certificate, reviews } = self;
        let router = router.layer(from_fn_with_state(Arc::new(reviews), authorize));
        let certificate = Arc::new(certificate);
        let connection = |stream, stopping| {
            let (certificate, router) = (certificate.clone(), router.clone());
            async move {
                match connections::handshake(&certificate.acceptor(Timestamp::now()), stream).await {
                    Ok(stream) => connections::serve(stream, router, stopping).await,
                    Err(error) => tracing::debug!(%error, "TLS handshake failed"),
                }
            }
        };
        connections::run(listener, shutdown, connection).await;
    }
}

impl Certificate {
    /// What accepts a connection now.
    fn acceptor(&self, now: Timestamp) -> TlsAcceptor {
        match self {
            Self::Files(files) => TlsAcceptor::from(files.current()),
            Self::Own(options, known) => {
                let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
                let age = Duration::try_from(now.duration_since(known.1)).unwrap_or_default();
                if age > OWN_CERTIFICATE_LIFE * 2 / 3 {
                    match own(options.clone(), now) {
                        Ok(acceptor) => *known = (acceptor, now),
                        Err(error) => {
                            tracing::warn!(%error, "keeping the previous certificate of the metrics");
                        }
                    }
                }
                known.0.clone()
            }
        }
    }
}

/// A certificate of this process. Who scrapes knows the token of the server, not its name: none of the names is checked.
fn own(options: TlsOptions, now: Timestamp) -> Result<TlsAcceptor, ServingError> {
    let names = ["localhost".to_owned()];
    let (certificate, _) = ServingCertificate::generate(&names, now, OWN_CERTIFICATE_LIFE)?;
    Ok(Handshake::new(certificate, None, &Clients::Webhooks(options))?.acceptor)
}

/// Answers a request if its client may read the path.
async fn authorize(State(reviews): State<Arc<Reviews>>, request: Request, next: Next) -> Response {
    let Some(token) = token(request.headers()) else {
        return (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], "Unauthorized\n")
            .into_response();
    };
    let verb = request.method().as_str().to_lowercase();
    match reviews.review(token, &verb, request.uri().path()).await {
        Ok(Review::Allowed) => next.run(request).await,
        Ok(Review::Unknown) => (StatusCode::UNAUTHORIZED, "Unauthorized\n").into_response(),
        Ok(Review::Denied(text)) => (StatusCode::FORBIDDEN, text).into_response(),
        Err(why) => {
            tracing::warn!(why, "a client of the metrics is not known");
            (StatusCode::SERVICE_UNAVAILABLE, "the client cannot be reviewed\n").into_response()
        }
    }
}

/// The bearer token of a request.
fn token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim().split_once(' ')?;
    let token = token.trim();
    let is_token =
        scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.len() <= TOKEN_BYTES_MAX;
    is_token.then_some(token)
}

/// What the API server says about a client.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Review {
    /// It may read the path.
    Allowed,
    /// Nobody has this token.
    Unknown,
    /// It may not; who it is.
    Denied(String),
}

/// Asks the API server about clients, and remembers the answers for a short while.
struct Reviews {
    client: Client,
    permits: Semaphore,
    /// Answers by digest of token, verb and path, and until when they hold.
    known: Mutex<BTreeMap<[u8; 32], (Review, Instant)>>,
}

impl Reviews {
    fn new(client: Client) -> Self {
        Self { client, permits: Semaphore::new(REVIEWS_MAX), known: Mutex::default() }
    }

    async fn review(&self, token: &str, verb: &str, path: &str) -> Result<Review, String> {
        let key: [u8; 32] = Sha256::digest([token, verb, path].join("\n")).into();
        if let Some(known) = self.known(&key) {
            return Ok(known);
        }
        let asked = timeout(REVIEW_WITHIN, async {
            // The semaphore is never closed.
            let _permit = self.permits.acquire().await.ok();
            match self.known(&key) {
                Some(known) => Ok(known),
                None => self.ask(token, verb, path).await,
            }
        });
        let review = asked.await.map_err(|_| "the API server does not answer in time".to_owned())??;
        let lasts = if review == Review::Allowed { ALLOWED_FOR } else { REFUSED_FOR };
        let now = Instant::now();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, (_, until)| *until > now);
        if known.len() >= REMEMBERED_MAX {
            // Allowed clients stay known, whatever others send.
            known.retain(|_, (review, _)| *review == Review::Allowed);
        }
        if known.len() < REMEMBERED_MAX {
            known.insert(key, (review.clone(), now + lasts));
        }
        Ok(review)
    }

    fn known(&self, key: &[u8; 32]) -> Option<Review> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(key).filter(|(_, until)| *until > Instant::now()).map(|(review, _)| review.clone())
    }

    async fn ask(&self, token: &str, verb: &str, path: &str) -> Result<Review, String> {
        let review: TokenReview =
            self.create("authentication.k8s.io/v1", "TokenReview", &json!({"token": token})).await?;
        if !review.status.authenticated || review.status.user.username.is_empty() {
            return Ok(Review::Unknown);
        }
        let user = review.status.user;
        let attributes = json!({"path": path, "verb": verb});
        let spec = json!({"user": user.username, "uid": user.uid, "groups": user.groups, "extra": user.extra,
            "nonResourceAttributes": attributes});
        let review: AccessReview =
            self.create("authorization.k8s.io/v1", "SubjectAccessReview", &spec).await?;
        if review.status.allowed && !review.status.denied {
            return Ok(Review::Allowed);
        }
        Ok(Review::Denied(format!("{} may not {verb} the path {path}\n", user.username)))
    }

    async fn create<T: for<'de> Deserialize<'de>>(
        &self,
        api_version: &str,
        kind: &str,
        spec: &Value,
    ) -> Result<T, String> {
        let review = json!({"apiVersion": api_version, "kind": kind, "metadata": {}, "spec": spec});
        let path = format!("/apis/{api_version}/{}s", kind.to_lowercase());
        let request = http::Request::post(path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(review.to_string().into_bytes())
            .map_err(|error| error.to_string())?;
        // The answer may quote the token, so only the status is told.
        self.client.request(request).await.map_err(|error| {
            let why = if let kube::Error::Api(status) = error {
                format!("{} {}", status.code, status.reason)
            } else {
                "no answer".to_owned()
            };
            format!("cannot create a {kind}: {why}")
        })
    }
}

#[derive(Deserialize)]
struct TokenReview {
    #[serde(default)]
    status: TokenStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenStatus {
    authenticated: bool,
    user: User,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct User {
    username: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
struct AccessReview {
    #[serde(default)]
    status: AccessStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AccessStatus {
    allowed: bool,
    denied: bool,
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::body::Body;
    use http_body_util::{BodyExt as _, Full};
    use tower::ServiceExt as _;

    use super::*;

    /// An API server that knows two tokens: `prometheus`, which may read metrics, and `tenant`. Counts the reviews. Without
    /// `answers` it fails.
    fn api_server(reviews: Arc<AtomicUsize>, answers: bool) -> Client {
        let answer = move |request: http::Request<kube::client::Body>| {
            let reviews = reviews.clone();
            async move {
                let path = request.uri().path().to_owned();
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let review: Value = serde_json::from_slice(&body).unwrap();
                let status = match path.as_str() {
                    "/apis/authentication.k8s.io/v1/tokenreviews" => {
                        reviews.fetch_add(1, Ordering::Relaxed);
                        let token = review["spec"]["token"].as_str().unwrap();
                        let is_known = ["prometheus", "tenant"].contains(&token);
                        json!({"authenticated": is_known, "user": {"username": token, "groups": ["system:authenticated"]}})
                    }
                    "/apis/authorization.k8s.io/v1/subjectaccessreviews" => {
                        let spec = &review["spec"];
                        let attributes = json!({"path": "/metrics", "verb": "get"});
                        let allowed =
                            spec["user"] == "prometheus" && spec["nonResourceAttributes"] == attributes;
                        json!({"allowed": allowed})
                    }
                    other => panic!("unexpected request to {other}"),
                };
                let code = if answers { 201 } else { 500 };
                let body = json!({"kind": "Review", "status": status}).to_string();
                let answer = http::Response::builder().status(code).body(Full::new(bytes::Bytes::from(body)));
                Ok::<_, Infallible>(answer.unwrap())
            }
        };
        Client::new(tower::service_fn(answer), "default")
    }

    fn router(reviews: Arc<AtomicUsize>, answers: bool) -> Router {
        let reviews = Reviews::new(api_server(reviews, answers));
        metrics(|| "muster_leader 1\n".into()).layer(from_fn_with_state(Arc::new(reviews), authorize))
    }

    async fn ask(router: &Router, path: &str, authorization: Option<&str>) -> (u16, String) {
        let mut request = http::Request::get(path);
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        let response = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn metrics_are_text() {
        let router = metrics(|| "muster_leader 1\n".into());
        let request = http::Request::get("/metrics").body(Body::empty()).unwrap();
        let response = router.oneshot(request).await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "muster_leader 1\n");
    }

    #[tokio::test]
    async fn only_who_may_get_the_path_reads_metrics() {
        let router = router(Arc::default(), true);
        let known = "Bearer prometheus";
        assert_eq!(ask(&router, "/metrics", Some(known)).await, (200, "muster_leader 1\n".into()));
        assert_eq!(ask(&router, "/metrics", Some("bearer  prometheus ")).await.0, 200);
        assert_eq!(ask(&router, "/metrics", None).await.0, 401);
        assert_eq!(ask(&router, "/metrics", Some("Basic prometheus")).await.0, 401);
        assert_eq!(ask(&router, "/metrics", Some("Bearer ")).await.0, 401);
        assert_eq!(ask(&router, "/metrics", Some(&format!("Bearer {}", "x".repeat(20_000)))).await.0, 401);
        assert_eq!(ask(&router, "/metrics", Some("Bearer made-up")).await.0, 401);
        let (status, text) = ask(&router, "/metrics", Some("Bearer tenant")).await;
        assert_eq!((status, &*text), (403, "tenant may not get the path /metrics\n"));
        assert_eq!(
            ask(&router, "/other", Some("Bearer tenant")).await.0,
            403,
            "nothing is told about other paths"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_is_reviewed_again_after_a_minute() {
        let reviews = Arc::<AtomicUsize>::default();
        let router = router(reviews.clone(), true);
        let scrape = || ask(&router, "/metrics", Some("Bearer prometheus"));
        for _ in 0..10 {
            assert_eq!(scrape().await.0, 200);
        }
        assert_eq!(reviews.load(Ordering::Relaxed), 1);
        tokio::time::advance(ALLOWED_FOR).await;
        assert_eq!(scrape().await.0, 200);
        assert_eq!(reviews.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_that_are_made_up_do_not_displace_a_client_that_is_known() {
        let reviews = Arc::<AtomicUsize>::default();
        let router = router(reviews.clone(), true);
        assert_eq!(ask(&router, "/metrics", Some("Bearer prometheus")).await.0, 200);
        for number in 0..1_000 {
            assert_eq!(ask(&router, "/metrics", Some(&format!("Bearer {number}"))).await.0, 401);
        }
        let before = reviews.load(Ordering::Relaxed);
        assert_eq!(ask(&router, "/metrics", Some("Bearer prometheus")).await.0, 200);
        assert_eq!(reviews.load(Ordering::Relaxed), before);
    }

    #[tokio::test]
    async fn nobody_reads_metrics_when_the_api_server_fails_and_the_failure_is_not_remembered() {
        let reviews = Arc::<AtomicUsize>::default();
        let router = router(reviews.clone(), false);
        for _ in 0..2 {
            assert_eq!(ask(&router, "/metrics", Some("Bearer prometheus")).await.0, 503);
        }
        assert_eq!(reviews.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn an_own_certificate_is_made_again_before_it_expires() {
        let now = Timestamp::UNIX_EPOCH;
        let made = own(TlsOptions::default(), now).unwrap();
        let certificate = Certificate::Own(TlsOptions::default(), Mutex::new((made, now)));
        let made_at = |days: i64| {
            certificate.acceptor(now + jiff::SignedDuration::from_hours(24 * days));
            let Certificate::Own(_, known) = &certificate else { unreachable!() };
            known.lock().unwrap().1
        };
        assert_eq!(made_at(200), now);
        let renewed = made_at(250);
        assert!(renewed > now);
        assert_eq!(made_at(300), renewed);
    }
}
