//! A proxy between one controller and the API server. It impersonates the controller's service account, or keeps the token of a pod,
//! counts requests, and can disconnect.
//!
//! A controller in this process uses [`Proxy::client`]. A controller process uses a kubeconfig with the address of an HTTP proxy on
//! loopback. It has no TLS, so the CPU time of the controller excludes TLS. Each request takes some tenths of a millisecond more.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use axum::Router;
use axum::body::Body as HttpBody;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response as HttpResponse};
use futures::StreamExt as _;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::rbac::{self, Permission};

/// The number of requests by method, resource and error status: `PATCH pods`, `PATCH appwrappers/status`, `PATCH pods (409)`.
pub type Requests = BTreeMap<String, u64>;

/// A proxy to the cluster of a client. Clones share the connection state and the counters.
#[derive(Clone)]
pub struct Proxy {
    to: Client,
    /// Whether requests are those of the controller's service account, or have credentials of their own.
    impersonates: bool,
    requests: Arc<Mutex<Requests>>,
    /// The permissions of all requests that were not forbidden, including those of replicas.
    permissions: Arc<Mutex<BTreeSet<Permission>>>,
    is_connected: watch::Sender<bool>,
}

impl Proxy {
    /// A connected proxy, to the cluster of a client that may impersonate users.
    pub fn new(to: Client) -> Self {
        Self {
            to,
            impersonates: true,
            requests: Arc::default(),
            permissions: Arc::default(),
            is_connected: watch::Sender::new(true),
        }
    }

    /// A second connected proxy to the same cluster. It shares the set of used permissions.
    #[must_use]
    pub fn replica(&self) -> Self {
        Self { permissions: self.permissions.clone(), ..Self::new(self.to.clone()) }
    }

    /// A connected proxy for processes that have tokens, to the same cluster by a client without credentials. It shares the set of
    /// used permissions.
    #[must_use]
    pub fn of_pods(&self, to: Client) -> Self {
        Self { permissions: self.permissions.clone(), impersonates: false, ..Self::new(to) }
    }

    /// A client that sends its requests through this proxy.
    pub fn client(&self) -> Client {
        let proxy = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let proxy = proxy.clone();
            async move { proxy.pass(request).await }
        });
        Client::new(service, self.to.default_namespace())
    }

    /// Listens on loopback until the program ends, and returns a kubeconfig for this address.
    pub async fn listen(&self) -> Result<String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen on loopback")?;
        let address = listener.local_addr()?;
        let router = Router::new().fallback(pass_on).with_state(self.clone());
        tokio::spawn(axum::serve(listener, router).into_future());
        Ok(kubeconfig(address))
    }

    /// The requests so far.
    pub fn requests(&self) -> Requests {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The permissions that this proxy and its replicas have used so far.
    pub fn permissions(&self) -> BTreeSet<Permission> {
        self.permissions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the proxy forwards requests.
    pub fn is_connected(&self) -> bool {
        *self.is_connected.borrow()
    }

    /// Ends all responses in progress, including watches, and rejects requests until [`Self::reconnect`].
    pub fn disconnect(&self) {
        self.is_connected.send_replace(false);
    }

    /// Forwards requests again.
    pub fn reconnect(&self) {
        self.is_connected.send_replace(true);
    }

    async fn pass(&self, request: Request<Body>) -> Result<HttpResponse, tower::BoxError> {
        let mut what = format!("{} {}", request.method(), resource(request.uri().path()));
        let permission = Permission::of(&request);
        let answer = self.send(request).await;
        if answer.as_ref().is_ok_and(|answer| answer.status() != StatusCode::FORBIDDEN) {
            self.permissions.lock().unwrap_or_else(PoisonError::into_inner).extend(permission);
        }
        match &answer {
            Ok(answer) if answer.status().is_success() => {}
            Ok(answer) => what = format!("{what} ({})", answer.status().as_u16()),
            Err(_) => what = format!("{what} (no answer)"),
        }
        *self.requests.lock().unwrap_or_else(PoisonError::into_inner).entry(what).or_default() += 1;
        answer
    }

    async fn send(&self, mut request: Request<Body>) -> Result<HttpResponse, tower::BoxError> {
        if self.impersonates {
            request.headers_mut().insert("Impersonate-User", HeaderValue::from_static(rbac::ACCOUNT));
            for group in rbac::groups() {
                request.headers_mut().append("Impersonate-Group", HeaderValue::from_static(group));
            }
        }
        let mut is_connected = self.is_connected.subscribe();
        let cut = async move {
            // The error case cannot occur: this proxy holds the sender.
            is_connected.wait_for(|is_connected| !is_connected).await.ok();
        };
        let mut cut = Box::pin(cut);
        let answer = tokio::select! {
            biased;
            () = &mut cut => return Err("the proxy to the API server is disconnected".into()),
            answer = self.to.send(request) => answer?,
        };
        Ok(answer.map(|body| HttpBody::from_stream(body.into_data_stream().take_until(cut))))
    }
}

fn kubeconfig(address: SocketAddr) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: proxy\n\
         clusters: [{{name: proxy, cluster: {{server: \"http://{address}\"}}}}]\n\
         contexts: [{{name: proxy, context: {{cluster: proxy, user: proxy}}}}]\n\
         users: [{{name: proxy, user: {{}}}}]\n"
    )
}

async fn pass_on(State(proxy): State<Proxy>, request: Request<HttpBody>) -> HttpResponse {
    let (mut parts, body) = request.into_parts();
    parts.headers.remove(header::HOST);
    let answer = async {
        let body = axum::body::to_bytes(body, usize::MAX).await?;
        proxy.pass(Request::from_parts(parts, body.to_vec().into())).await
    };
    match answer.await {
        Ok(answer) => answer,
        Err(error) => {
            (StatusCode::BAD_GATEWAY, format!("the API server does not answer: {error:#}")).into_response()
        }
    }
}

/// Whether a request counted under this key is a write.
pub fn is_write(what: &str) -> bool {
    !what.starts_with(Method::GET.as_str())
}

/// The resource and subresource of a path: `pods/status` for `/api/v1/namespaces/a/pods/b/status`.
fn resource(path: &str) -> String {
    let mut segments = path.trim_matches('/').split('/').peekable();
    let skipped = if segments.peek() == Some(&"apis") { 3 } else { 2 };
    let segments: Vec<&str> = segments.skip(skipped).collect();
    match segments.as_slice() {
        ["namespaces", _, resource, _, subresource, ..] => format!("{resource}/{subresource}"),
        ["namespaces", _, resource, ..] => (*resource).to_owned(),
        [resource, _, subresource, ..] => format!("{resource}/{subresource}"),
        [resource, ..] => (*resource).to_owned(),
        [] => path.to_owned(),
    }
}
