//! The way of one controller to the API server: it speaks for the controller's account, counts the requests, and can be cut.
//!
//! A controller in this process takes [`Link::client`]; one beside it a kubeconfig, which leads through a proxy on loopback. That
//! speaks plain HTTP, so the client is spared TLS, and every request takes some tenths of a millisecond more.

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

use crate::rights::{self, Right};

/// Number of requests, by method and resource: `PATCH pods`, `PATCH appwrappers/status`, `PATCH pods (409)` if refused.
pub type Requests = BTreeMap<String, u64>;

/// A way to the cluster of a client, which may speak for others. Clones are the same way.
#[derive(Clone)]
pub struct Link {
    to: Client,
    requests: Arc<Mutex<Requests>>,
    /// What was allowed so far, on this way and those beside it.
    rights: Arc<Mutex<BTreeSet<Right>>>,
    is_open: watch::Sender<bool>,
}

impl Link {
    /// An open way.
    pub fn new(to: Client) -> Self {
        Self { to, requests: Arc::default(), rights: Arc::default(), is_open: watch::Sender::new(true) }
    }

    /// Another open way to the same cluster.
    #[must_use]
    pub fn another(&self) -> Self {
        Self { rights: self.rights.clone(), ..Self::new(self.to.clone()) }
    }

    /// A client that goes this way.
    pub fn client(&self) -> Client {
        let link = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let link = link.clone();
            async move { link.pass(request).await }
        });
        Client::new(service, self.to.default_namespace())
    }

    /// Lets others go this way as well, as long as the program runs: the text of a kubeconfig that leads here.
    pub async fn listen(&self) -> Result<String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen on loopback")?;
        let address = listener.local_addr()?;
        let router = Router::new().fallback(pass_on).with_state(self.clone());
        tokio::spawn(axum::serve(listener, router).into_future());
        Ok(kubeconfig(address))
    }

    /// What was asked so far.
    pub fn requests(&self) -> Requests {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Which rights were used so far, on this way and those that began beside it.
    pub fn rights(&self) -> BTreeSet<Right> {
        self.rights.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether requests come through.
    pub fn is_open(&self) -> bool {
        *self.is_open.borrow()
    }

    /// Ends all answers that are under way, those of watches too, and lets nothing through until it is mended.
    pub fn cut(&self) {
        self.is_open.send_replace(false);
    }

    /// Lets requests through again.
    pub fn mend(&self) {
        self.is_open.send_replace(true);
    }

    async fn pass(&self, request: Request<Body>) -> Result<HttpResponse, tower::BoxError> {
        let mut what = format!("{} {}", request.method(), resource(request.uri().path()));
        let right = Right::of(&request);
        let answer = self.send(request).await;
        if answer.as_ref().is_ok_and(|answer| answer.status() != StatusCode::FORBIDDEN) {
            self.rights.lock().unwrap_or_else(PoisonError::into_inner).extend(right);
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
        request.headers_mut().insert("Impersonate-User", HeaderValue::from_static(rights::ACCOUNT));
        for group in rights::groups() {
            request.headers_mut().append("Impersonate-Group", HeaderValue::from_static(group));
        }
        let mut is_open = self.is_open.subscribe();
        let cut = async move {
            // The sender is a part of this link.
            is_open.wait_for(|is_open| !is_open).await.ok();
        };
        let mut cut = Box::pin(cut);
        let answer = tokio::select! {
            biased;
            () = &mut cut => return Err("the way to the API server is cut".into()),
            answer = self.to.send(request) => answer?,
        };
        Ok(answer.map(|body| HttpBody::from_stream(body.into_data_stream().take_until(cut))))
    }
}

fn kubeconfig(address: SocketAddr) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: link\n\
         clusters: [{{name: link, cluster: {{server: \"http://{address}\"}}}}]\n\
         contexts: [{{name: link, context: {{cluster: link, user: link}}}}]\n\
         users: [{{name: link, user: {{}}}}]\n"
    )
}

async fn pass_on(State(link): State<Link>, request: Request<HttpBody>) -> HttpResponse {
    let (mut parts, body) = request.into_parts();
    parts.headers.remove(header::HOST);
    let answer = async {
        let body = axum::body::to_bytes(body, usize::MAX).await?;
        link.pass(Request::from_parts(parts, body.to_vec().into())).await
    };
    match answer.await {
        Ok(answer) => answer,
        Err(error) => {
            (StatusCode::BAD_GATEWAY, format!("the API server does not answer: {error:#}")).into_response()
        }
    }
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
