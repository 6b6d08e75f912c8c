//! Counts the requests of one client: a proxy on loopback between it and the API server.
//!
//! The server's own metrics do not tell who wrote. The proxy speaks plain HTTP, so the client is spared TLS, and every
//! request takes some tenths of a millisecond more.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use http::{Method, StatusCode, header};
use kube::Client;
use tokio::net::TcpListener;

/// Number of requests, by method and resource: `PATCH pods`, `PATCH appwrappers/status`, `PATCH pods (409)` if refused.
pub type Requests = BTreeMap<String, u64>;

/// A proxy that counts. It ends with the program.
pub struct Counter {
    address: SocketAddr,
    requests: Arc<Mutex<Requests>>,
}

impl Counter {
    /// Listens on a free port of loopback, and passes on to the cluster of a client, with that client's rights.
    pub async fn listen(client: Client) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen on loopback")?;
        let address = listener.local_addr()?;
        let requests = Arc::<Mutex<Requests>>::default();
        let router = Router::new().fallback(pass_on).with_state((client, Arc::clone(&requests)));
        tokio::spawn(axum::serve(listener, router).into_future());
        Ok(Self { address, requests })
    }

    /// The text of a kubeconfig that leads through this proxy.
    pub fn kubeconfig(&self) -> String {
        let address = self.address;
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: counted\n\
             clusters: [{{name: counted, cluster: {{server: \"http://{address}\"}}}}]\n\
             contexts: [{{name: counted, context: {{cluster: counted, user: counted}}}}]\n\
             users: [{{name: counted, user: {{}}}}]\n"
        )
    }

    /// What was asked so far.
    pub fn requests(&self) -> Requests {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

type Shared = (Client, Arc<Mutex<Requests>>);

async fn pass_on(State((client, requests)): State<Shared>, request: Request) -> Response {
    let mut what = format!("{} {}", request.method(), resource(request.uri().path()));
    let answer = send(&client, request).await.unwrap_or_else(|error| {
        (StatusCode::BAD_GATEWAY, format!("the API server does not answer: {error:#}")).into_response()
    });
    if !answer.status().is_success() {
        what = format!("{what} ({})", answer.status().as_u16());
    }
    *requests.lock().unwrap_or_else(PoisonError::into_inner).entry(what).or_default() += 1;
    answer
}

async fn send(client: &Client, request: Request) -> Result<Response> {
    let (mut parts, body) = request.into_parts();
    parts.headers.remove(header::HOST);
    let body = axum::body::to_bytes(body, usize::MAX).await?;
    let answer = client.send(Request::from_parts(parts, body.to_vec().into())).await?;
    Ok(answer.map(Body::new))
}

/// Requests that change something.
pub fn is_write(what: &str) -> bool {
    !what.starts_with(Method::GET.as_str())
}

/// The resource of a path, with its subresource: `/api/v1/namespaces/a/pods/b/status` is of `pods/status`.
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
