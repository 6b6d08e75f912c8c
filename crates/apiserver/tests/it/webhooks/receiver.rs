//! A webhook server over HTTPS that answers by a function and keeps what it was sent.

use std::sync::{Arc, Mutex};

use apiserver::Tls;
use base64::Engine as _;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Answers a request of a review, at a path, with a response without its uid.
pub(crate) type Answer = Arc<dyn Fn(&str, &Value) -> Value + Send + Sync>;

/// The name in the certificate: that of the Service `hooks` in `default`, and the address.
const NAMES: [&str; 2] = ["hooks.default.svc", "127.0.0.1"];

pub(crate) struct Receiver {
    pub(crate) port: u16,
    /// The authority in PEM and base64, as in `caBundle`.
    pub(crate) bundle: String,
    received: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Receiver {
    pub(crate) async fn start(answer: impl Fn(&str, &Value) -> Value + Send + Sync + 'static) -> Self {
        let tls = Tls::generate(&NAMES).unwrap();
        let bundle = base64::engine::general_purpose::STANDARD.encode(tls.authority());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let received = Arc::new(Mutex::new(Vec::new()));
        tokio::spawn(run(listener, tls.acceptor(), Arc::new(answer), received.clone()));
        Self { port, bundle, received }
    }

    /// The requests so far, as `PATH OPERATION SUBRESOURCE NAME`.
    pub(crate) fn received(&self) -> Vec<String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let shown = |(path, request): &(String, Value)| {
            let parts = ["operation", "subResource", "name"].map(|field| text(&request[field]));
            let parts = parts.into_iter().filter(|part| !part.is_empty());
            std::iter::once(path.clone()).chain(parts).collect::<Vec<_>>().join(" ")
        };
        self.received.lock().unwrap().iter().map(shown).collect()
    }

    /// The last request.
    pub(crate) fn last(&self) -> Value {
        self.received.lock().unwrap().last().unwrap().1.clone()
    }
}

async fn run(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    answer: Answer,
    received: Arc<Mutex<Vec<(String, Value)>>>,
) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        let (acceptor, answer, received) = (acceptor.clone(), answer.clone(), received.clone());
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = tower::service_fn(move |request: Request<hyper::body::Incoming>| {
                respond(request, answer.clone(), received.clone())
            });
            let builder = auto::Builder::new(TokioExecutor::new());
            let _ = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)).await;
        });
    }
}

async fn respond(
    request: Request<hyper::body::Incoming>,
    answer: Answer,
    received: Arc<Mutex<Vec<(String, Value)>>>,
) -> Result<Response<Full<Bytes>>, std::convert::Infallible> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap();
    let asked = review["request"].clone();
    let mut response = answer(&path, &asked);
    if response.get("uid").is_none() {
        response["uid"] = asked["uid"].clone();
    }
    received.lock().unwrap().push((path, asked));
    let review = json!({"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response});
    Ok(Response::new(Full::new(Bytes::from(review.to_string()))))
}
