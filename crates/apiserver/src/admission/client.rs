//! The HTTPS client of webhooks: one connection for each call, HTTP/1.1, as kube-apiserver to the address of a Service.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::endpoint::Endpoint;

/// Longest response of a webhook; the limit of kube-apiserver for a request.
const RESPONSE_BYTES_MAX: usize = 3 << 20;

/// Sends a review, and waits for its response.
///
/// # Errors
/// Why there is none. The text begins as that of kube-apiserver.
pub(super) async fn post(endpoint: &Endpoint, review: &Value, timeout: Duration) -> Result<Value, String> {
    let seconds = timeout.as_secs();
    let asked = format!("Post \"{}?timeout={seconds}s\"", endpoint.url);
    let failed = |why: String| format!("{asked}: {why}");
    match tokio::time::timeout(timeout, exchange(endpoint, review, seconds)).await {
        Err(_) => Err(failed("context deadline exceeded".into())),
        Ok(Err(why)) => Err(failed(why)),
        Ok(Ok((StatusCode::OK, body))) => serde_json::from_slice(&body)
            .map_err(|error| format!("couldn't get version/kind; json parse error: {error}")),
        Ok(Ok((StatusCode::NOT_FOUND, _))) => Err("the server could not find the requested resource".into()),
        Ok(Ok((status, body))) => {
            let text = String::from_utf8_lossy(&body);
            Err(format!(
                "the server responded with the status code {} ({:?})",
                status.as_u16(),
                text.chars().take(1024).collect::<String>().trim()
            ))
        }
    }
}

async fn exchange(endpoint: &Endpoint, review: &Value, seconds: u64) -> Result<(StatusCode, Bytes), String> {
    let stream = connect(endpoint).await?;
    let broken = |error: hyper::Error| error.to_string();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let separator = if endpoint.path.contains('?') { '&' } else { '?' };
    let request = Request::post(format!("{}{separator}timeout={seconds}s", endpoint.path))
        .header(header::HOST, format!("{}:{}", endpoint.server_name, endpoint.port))
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json, */*")
        .body(Full::new(Bytes::from(review.to_string())))
        .map_err(|error| error.to_string())?;
    let response = async {
        let response: Response<Incoming> = sender.send_request(request).await.map_err(broken)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), RESPONSE_BYTES_MAX).collect().await;
        Ok((status, body.map_err(|error| error.to_string())?.to_bytes()))
    };
    // The connection ends with the response.
    tokio::select! {
        response = response => response,
        Err(error) = connection => Err(error.to_string()),
    }
}

async fn connect(endpoint: &Endpoint) -> Result<TlsStream<TcpStream>, String> {
    let mut roots = RootCertStore::empty();
    let authorities = CertificateDer::pem_slice_iter(&endpoint.authorities).flatten();
    roots.add_parsable_certificates(authorities);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(endpoint.server_name.clone()).map_err(|error| error.to_string())?;
    let (host, port) = (endpoint.host.as_str(), endpoint.port);
    let stream = TcpStream::connect((host, port))
        .await
        .map_err(|error| format!("dial tcp {host}:{port}: connect: {}", dial_error(&error)))?;
    let tls = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    tls.map_err(|error| format!("tls: {error}"))
}

fn dial_error(error: &std::io::Error) -> String {
    let is_refused = error.kind() == std::io::ErrorKind::ConnectionRefused;
    if is_refused { "connection refused".into() } else { error.to_string() }
}
