//! A mutating webhook on loopback that adds a container to each pod, as service meshes do.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use axum::routing::post;
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// A running webhook. It ends when it is dropped.
pub struct Webhook {
    url: String,
    certificate: String,
    task: JoinHandle<()>,
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Webhook {
    /// Serves HTTPS on a free port. The added container requests these CPUs.
    pub async fn start(cpu: &'static str) -> Result<Self> {
        let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        let key = PrivateKeyDer::Pkcs8(own.signing_key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let config = config.with_no_client_auth().with_single_cert(vec![own.cert.der().clone()], key)?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("https://{}/mutate", listener.local_addr()?);
        let listener = TlsListener { listener, acceptor: TlsAcceptor::from(Arc::new(config)) };
        let router = Router::new()
            .route("/mutate", post(async move |Json(review): Json<Value>| Json(answer(&review, cpu))));
        let task = tokio::spawn(async move {
            // Ends with the task.
            drop(axum::serve(listener, router).await);
        });
        Ok(Self { url, certificate: own.cert.pem(), task })
    }

    /// The configuration that registers it for the pods of one namespace.
    pub fn configuration(&self, name: &str, namespace: &str) -> Value {
        let rule = json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]});
        let client = json!({"url": self.url, "caBundle": STANDARD.encode(&self.certificate)});
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": {"name": name},
            "webhooks": [{"name": "sidecar.example.com", "rules": [rule], "clientConfig": client, "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}],
        })
    }
}

/// Allows the pod with one container more.
fn answer(review: &Value, cpu: &str) -> Value {
    let sidecar = json!({"name": "proxy", "image": "proxy", "resources": {"requests": {"cpu": cpu}}});
    let patch = json!([{"op": "add", "path": "/spec/containers/-", "value": sidecar}]);
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {"uid": review["request"]["uid"], "allowed": true, "patchType": "JSONPatch",
            "patch": STANDARD.encode(patch.to_string())},
    })
}

/// Accepts TLS connections.
struct TlsListener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            if let Ok((stream, address)) = self.listener.accept().await
                && let Ok(stream) = self.acceptor.accept(stream).await
            {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}
