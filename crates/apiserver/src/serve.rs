//! Sockets: HTTP/1.1 and HTTP/2, plain or with TLS under a certificate authority of the server's own.

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

/// Keys and certificates of a server, made when it starts.
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

/// Why no certificate could be made.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A name cannot stand in a certificate, or a key could not be made.
    #[error("cannot make a certificate")]
    Certificate(#[from] rcgen::Error),
    /// The certificate does not serve.
    #[error("cannot serve with the certificate that was made")]
    Config(#[from] rustls::Error),
}

impl Tls {
    /// Makes a certificate authority, and a certificate of the server for `names`: host names or addresses.
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

    /// The certificate of the authority, in PEM: what clients have to trust.
    pub fn authority(&self) -> &str {
        &self.authority
    }
}

/// A kubeconfig with one context, as text: JSON, which is YAML too.
///
/// `server` is the URL; the token is sent over TLS only, as clients drop credentials on plain connections.
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

/// Serves clients of a listener until `shutdown` completes; open connections, also those of watches, are cut then.
///
/// # Errors
/// None so far: clients that fail are dropped, the others go on.
pub async fn serve(
    listener: TcpListener,
    service: Service,
    tls: Option<Tls>,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let mut shutdown = std::pin::pin!(shutdown);
    let acceptor = tls.map(|tls| TlsAcceptor::from(tls.config));
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
                // Out of descriptors, or a client that is gone already: the next one may fare better.
                tracing::debug!(%error, "cannot accept a connection");
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let (service, acceptor) = (service.clone(), acceptor.clone());
        connections.spawn(async move {
            match acceptor {
                None => converse(stream, service).await,
                Some(acceptor) => match acceptor.accept(stream).await {
                    Ok(stream) => converse(stream, service).await,
                    Err(error) => tracing::debug!(%error, "no TLS"),
                },
            }
        });
    }
    connections.shutdown().await;
    Ok(())
}

async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin + 'static, service: Service) {
    let builder = auto::Builder::new(TokioExecutor::new());
    if let Err(error) =
        builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)).await
    {
        tracing::debug!(%error, "connection ended");
    }
}

/// The names that a certificate for a listener on `address` needs.
pub fn names_for(address: IpAddr) -> Vec<String> {
    let mut names =
        vec![String::from("localhost"), "127.0.0.1".into(), "::1".into(), "kubernetes.default.svc".into()];
    let own = address.to_string();
    if !address.is_unspecified() && !names.contains(&own) {
        names.push(own);
    }
    names
}
