//! Serves HTTP/1.1 and HTTP/2 on a socket, in plain text or with TLS under a self-signed certificate authority.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::service::Service;

/// TLS key and certificates of a server, generated at start.
#[derive(Clone)]
pub struct Tls {
    authority: String,
    config: Arc<rustls::ServerConfig>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

/// Why TLS could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A name is not valid in a certificate, or a key could not be generated.
    #[error("cannot generate a certificate")]
    Certificate(#[from] rcgen::Error),
    /// rustls rejects the generated certificate.
    #[error("cannot use the generated certificate")]
    Config(#[from] rustls::Error),
}

impl Tls {
    /// Generates a certificate authority, and a server certificate for `names` (host names or IP addresses).
    pub fn generate(names: &[impl AsRef<str>]) -> Result<Self, TlsError> {
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        authority.distinguished_name.push(DnType::CommonName, "kubernetes-ca");
        let authority_key = KeyPair::generate()?;
        let certificate = authority.self_signed(&authority_key)?;
        let issuer = Issuer::new(authority, authority_key);
        let names: Vec<String> = names.iter().map(|name| name.as_ref().to_owned()).collect();
        let mut server = CertificateParams::new(names)?;
        server.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        let server_key = KeyPair::generate()?;
        let own = server.signed_by(&server_key, &issuer)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(server_key.serialize_der()));
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![own.der().clone()], key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { authority: certificate.pem(), config: Arc::new(config) })
    }

    /// Accepts TLS connections.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config.clone())
    }

    /// The certificate of the authority in PEM, which clients have to trust.
    pub fn authority(&self) -> &str {
        &self.authority
    }
}

/// A kubeconfig with one context, as JSON text (JSON is valid YAML).
///
/// `server` is the URL. Clients send the token over TLS only; they drop credentials on plain connections.
pub fn kubeconfig(name: &str, server: &str, tls: Option<&Tls>, token: Option<&str>) -> String {
    use base64::Engine as _;
    let mut cluster = serde_json::json!({ "server": server });
    if let Some(tls) = tls {
        let encoded = base64::engine::general_purpose::STANDARD.encode(tls.authority());
        cluster["certificate-authority-data"] = encoded.into();
    }
    let mut user = serde_json::json!({});
    if let Some(token) = token {
        user["token"] = token.into();
    }
    let config = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": name, "cluster": cluster }],
        "users": [{ "name": name, "user": user }],
        "contexts": [{ "name": name, "context": { "cluster": name, "user": name } }],
        "current-context": name,
    });
    format!("{config:#}\n")
}

/// Serves the connections of a listener until `shutdown` completes, then closes all open connections, including
/// watches.
///
/// # Errors
/// Currently none: a failed connection is closed, and the other connections continue.
pub async fn serve(
    listener: TcpListener,
    service: Service,
    tls: Option<Tls>,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let mut shutdown = std::pin::pin!(shutdown);
    let acceptor = tls.map(|tls| tls.acceptor());
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, or the client has already disconnected: retry after a short delay.
                tracing::debug!(%error, "cannot accept a connection");
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let (service, acceptor) = (service.clone(), acceptor.clone());
        connections.spawn(async move {
            match acceptor {
                None => serve_connection(stream, service).await,
                Some(acceptor) => match acceptor.accept(stream).await {
                    Ok(stream) => serve_connection(stream, service).await,
                    Err(error) => tracing::debug!(%error, "TLS handshake failed"),
                },
            }
        });
    }
    connections.shutdown().await;
    Ok(())
}

async fn serve_connection(stream: impl AsyncRead + AsyncWrite + Unpin + 'static, service: Service) {
    let builder = auto::Builder::new(TokioExecutor::new());
    if let Err(error) =
        builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)).await
    {
        tracing::debug!(%error, "connection ended");
    }
}

/// The names that the certificate of a listener on `address` has to contain.
pub fn names_for(address: IpAddr) -> Vec<String> {
    let mut names =
        vec![String::from("localhost"), "127.0.0.1".into(), "::1".into(), "kubernetes.default.svc".into()];
    let own = address.to_string();
    if !address.is_unspecified() && !names.contains(&own) {
        names.push(own);
    }
    names
}
