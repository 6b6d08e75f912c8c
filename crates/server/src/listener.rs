//! Accepts connections of the API server, over TLS with client certificates.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use controllers::Reports;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::admission;
use crate::certificate::{CertificateError, LIFE_DAYS, ServingCertificate};
use crate::front_proxy::{FrontProxy, FrontProxyError};
use crate::registration::Registration;
use crate::visibility;

/// Interval at which the configuration of the API server is read again.
const REFRESH: Duration = Duration::from_mins(1);
/// Timeout of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Maximum number of connections. The API server shares one for many requests.
const CONNECTIONS_MAX: usize = 256;

/// Where and under which name the endpoint serves.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// Address on which it listens.
    pub listen: SocketAddr,
    /// IP address or DNS name by which the API server reaches it.
    pub host: String,
    /// Namespace of its Service; it must exist.
    pub namespace: String,
    /// Name of its Service.
    pub service: String,
    /// Whether it reviews AppWrappers: the permissions of the author are checked for what is wrapped.
    pub authorizes: bool,
}

/// Why the endpoint cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The address cannot be bound.
    #[error("cannot listen on {0}")]
    Listen(SocketAddr, #[source] std::io::Error),
}

/// Why the endpoint is not registered at the moment.
#[derive(Debug, thiserror::Error)]
enum RefreshError {
    #[error(transparent)]
    FrontProxy(#[from] FrontProxyError),
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error("the client authority of the API server is not usable: {0}")]
    Verifier(#[from] rustls::client::VerifierBuilderError),
    #[error("the serving certificate is not usable: {0}")]
    Tls(#[from] rustls::Error),
    #[error("cannot register the endpoint: {0}")]
    Register(#[source] kube::Error),
}

/// What a handshake needs.
struct Handshake {
    acceptor: TlsAcceptor,
    front_proxy: FrontProxy,
}

/// What the endpoint serves.
#[derive(Clone)]
struct Routers {
    /// For requests that the API server forwards.
    forwarded: axum::Router,
    /// For clients without a certificate: the API server calls webhooks like this. None: they are refused.
    webhook: Option<axum::Router>,
}

/// Keeps the certificate and the registration up to date.
struct Refresh {
    client: Client,
    registration: Registration,
    certificate: Option<(ServingCertificate, Timestamp)>,
    /// A certificate whose authority is registered beside the present one. It is used from the next refresh on: until
    /// then all API servers know the authority.
    next: Option<ServingCertificate>,
    front_proxy: Option<FrontProxy>,
}

impl Endpoint {
    /// Binds the address.
    pub async fn bind(self) -> Result<BoundEndpoint, EndpointError> {
        let listener = TcpListener::bind(self.listen)
            .await
            .map_err(|error| EndpointError::Listen(self.listen, error))?;
        let port = listener.local_addr().map_err(|error| EndpointError::Listen(self.listen, error))?.port();
        let Self { host, namespace, service, authorizes, .. } = self;
        let registration = Registration { namespace, service, host, port, authorizes };
        Ok(BoundEndpoint { listener, registration })
    }
}

/// An endpoint with a bound address.
#[derive(Debug)]
pub struct BoundEndpoint {
    listener: TcpListener,
    registration: Registration,
}

impl BoundEndpoint {
    /// Registers the endpoint when the controller has read the cluster, and serves. Never completes. A failure is
    /// logged and retried: the controller goes on without the endpoint.
    pub async fn serve(self, client: Client, reports: Reports) {
        reports.ready().await;
        let current: Arc<RwLock<Option<Arc<Handshake>>>> = Arc::default();
        let shared = current.clone();
        let webhook = self.registration.authorizes.then(|| admission::router(client.clone()));
        let routers = Routers { forwarded: visibility::router(reports), webhook };
        let registration = self.registration;
        let refresh = async move {
            let mut refresh =
                Refresh { client, registration, certificate: None, next: None, front_proxy: None };
            loop {
                match refresh.run(&shared).await {
                    Ok(()) => {}
                    Err(error) => tracing::warn!(%error, "the endpoint is not served, retrying"),
                }
                tokio::time::sleep(REFRESH).await;
            }
        };
        let accept = accept(self.listener, current, routers);
        tokio::join!(refresh, accept);
    }
}

impl Refresh {
    /// Reads the configuration of the API server, and registers the endpoint anew if something has changed.
    async fn run(&mut self, shared: &RwLock<Option<Arc<Handshake>>>) -> Result<(), RefreshError> {
        let now = Timestamp::now();
        let front_proxy = FrontProxy::read(&self.client).await?;
        let renew_after = SignedDuration::from_hours(24 * LIFE_DAYS * 2 / 3);
        let is_old = |(_, since): &(_, Timestamp)| now.duration_since(*since) > renew_after;
        if let Some(next) = self.next.take() {
            self.certificate = Some((next, now));
        } else if let Some((present, _)) = self.certificate.as_ref().filter(|certificate| is_old(certificate))
        {
            let next = self.generate(now)?;
            let authorities = format!("{}{}", next.authority, present.authority);
            self.register(&authorities).await?;
            self.next = Some(next);
            return Ok(());
        } else if self.front_proxy.as_ref() == Some(&front_proxy) {
            return Ok(());
        }
        let is_first = self.certificate.is_none();
        let (certificate, since) = match self.certificate.take() {
            Some(certificate) => certificate,
            None => (self.generate(now)?, now),
        };
        let acceptor = acceptor(&certificate, &front_proxy, self.registration.authorizes)?;
        let handshake = Handshake { acceptor, front_proxy: front_proxy.clone() };
        *shared.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(handshake));
        if is_first {
            self.register(&certificate.authority).await?;
        }
        (self.certificate, self.front_proxy) = (Some((certificate, since)), Some(front_proxy));
        Ok(())
    }

    fn generate(&self, now: Timestamp) -> Result<ServingCertificate, CertificateError> {
        let names = vec![self.registration.server_name(), self.registration.host.clone()];
        ServingCertificate::generate(names, now)
    }

    async fn register(&self, authorities: &str) -> Result<(), RefreshError> {
        self.registration.apply(&self.client, authorities).await.map_err(RefreshError::Register)
    }
}

/// `is_open`: clients without a certificate may connect, too.
fn acceptor(
    certificate: &ServingCertificate,
    front_proxy: &FrontProxy,
    is_open: bool,
) -> Result<TlsAcceptor, RefreshError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let roots = Arc::new(front_proxy.roots()?);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
    let verifier = if is_open { verifier.allow_unauthenticated() } else { verifier }.build()?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(certificate.chain.clone(), certificate.key.clone_key())?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn accept(listener: TcpListener, current: Arc<RwLock<Option<Arc<Handshake>>>>, routers: Routers) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        // The semaphore is never closed.
        let permit = permits.clone().acquire_owned().await.ok();
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
        };
        let handshake = current.read().unwrap_or_else(PoisonError::into_inner).clone();
        let routers = routers.clone();
        tokio::spawn(async move {
            if let Some(handshake) = handshake {
                connection(stream, &handshake, routers).await;
            }
            drop(permit);
        });
    }
}

async fn connection(stream: TcpStream, handshake: &Handshake, routers: Routers) {
    let stream = match tokio::time::timeout(HANDSHAKE, handshake.acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => return tracing::debug!("TLS handshake timed out"),
    };
    let (_, session) = stream.get_ref();
    let is_forwarded = handshake.front_proxy.allows(session.peer_certificates().and_then(<[_]>::first));
    let router = if is_forwarded { Some(routers.forwarded) } else { routers.webhook };
    let Some(router) = router else {
        return tracing::debug!("the client certificate is not one of the API server");
    };
    let builder = auto::Builder::new(TokioExecutor::new());
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).await
    {
        tracing::debug!(%error, "connection ended");
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use http_body_util::{BodyExt as _, Empty};
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
    use rustls::{ClientConfig, RootCertStore};
    use tokio_rustls::TlsConnector;

    use super::*;

    /// An authority for client certificates.
    struct Authority {
        pem: String,
        issuer: Issuer<'static, KeyPair>,
    }

    impl Authority {
        fn new() -> Self {
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let key = KeyPair::generate().unwrap();
            let pem = params.self_signed(&key).unwrap().pem();
            Self { pem, issuer: Issuer::new(params, key) }
        }

        fn client(&self, name: &str) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
            let mut params = CertificateParams::default();
            params.distinguished_name.push(DnType::CommonName, name);
            let key = KeyPair::generate().unwrap();
            let certificate = params.signed_by(&key, &self.issuer).unwrap().der().clone();
            (certificate, PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())))
        }
    }

    /// Requests `/healthz` with a client certificate; the body of the response.
    async fn body(
        address: SocketAddr,
        authority: &str,
        client: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
    ) -> Option<String> {
        use rustls::pki_types::pem::PemObject as _;
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match client {
            Some((certificate, key)) => config.with_client_auth_cert(vec![certificate], key).unwrap(),
            None => config.with_no_client_auth(),
        };
        let stream = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from("muster.muster.svc").unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
        tokio::spawn(connection);
        let request =
            http::Request::get("/healthz").header("host", "muster").body(Empty::<bytes::Bytes>::new());
        let response = sender.send_request(request.unwrap()).await.ok()?;
        let bytes = response.into_body().collect().await.ok()?.to_bytes();
        String::from_utf8(bytes.to_vec()).ok()
    }

    fn says(text: &'static str) -> axum::Router {
        axum::Router::new().route("/healthz", get(async move || text))
    }

    /// Serves for the API server with this client authority. Returns the address and the authority of the endpoint.
    async fn serve(authority: &Authority, routers: Routers) -> (SocketAddr, String) {
        let front_proxy = FrontProxy::new(authority.pem.clone(), vec!["front-proxy-client".into()]);
        let names = vec!["muster.muster.svc".to_owned()];
        let serving = ServingCertificate::generate(names, Timestamp::now()).unwrap();
        let acceptor = acceptor(&serving, &front_proxy, routers.webhook.is_some()).unwrap();
        let handshake = Handshake { acceptor, front_proxy };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(accept(listener, Arc::new(RwLock::new(Some(Arc::new(handshake)))), routers));
        (address, serving.authority)
    }

    #[tokio::test]
    async fn only_the_api_servers_client_certificate_gets_an_answer() {
        let authority = Authority::new();
        let (address, serving) = serve(&authority, Routers { forwarded: says("ok"), webhook: None }).await;
        let ask = async |client| body(address, &serving, client).await;
        assert_eq!(ask(Some(authority.client("front-proxy-client"))).await.as_deref(), Some("ok"));
        assert_eq!(ask(Some(authority.client("a-user"))).await, None, "not an allowed name");
        assert_eq!(ask(Some(Authority::new().client("front-proxy-client"))).await, None, "another authority");
        assert_eq!(ask(None).await, None, "no client certificate");
        assert_eq!(ask(Some(authority.client("front-proxy-client"))).await.as_deref(), Some("ok"));
    }

    #[tokio::test]
    async fn a_client_without_a_certificate_reaches_the_webhook_only() {
        let authority = Authority::new();
        let routers = Routers { forwarded: says("reports"), webhook: Some(says("webhook")) };
        let (address, serving) = serve(&authority, routers).await;
        let ask = async |client| body(address, &serving, client).await;
        assert_eq!(ask(Some(authority.client("front-proxy-client"))).await.as_deref(), Some("reports"));
        assert_eq!(ask(None).await.as_deref(), Some("webhook"));
        assert_eq!(ask(Some(authority.client("a-user"))).await.as_deref(), Some("webhook"));
        assert_eq!(ask(Some(Authority::new().client("a-user"))).await, None, "another authority");
    }
}
