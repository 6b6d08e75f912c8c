//! Accepts connections of the API server, over TLS. Every replica listens, whether it leads or not.

use std::net::SocketAddr;

use controllers::Reports;
use kube::Client;
use tokio::net::{TcpListener, TcpStream};

use crate::admission;
use crate::certificates::{Issuer, Purpose, Secret};
use crate::connections::{self, Stopping};
use crate::probes::Condition;
use crate::registrar::{Registered, Registrar};
use crate::registration::{Planned, Registration, WebhookService};
use crate::serving::{Clients, Handshake, Refresh, Served};
use crate::visibility;

/// The port of the Service for the webhook, if a manifest defines the Service.
const WEBHOOK_PORT: u16 = 443;

/// Where and under which names the endpoint serves.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// Address on which it listens.
    pub listen: SocketAddr,
    /// IP address or DNS name by which the API server reaches it.
    pub host: String,
    /// Namespace of its Services; it must exist.
    pub namespace: String,
    /// Name of the Service of the leader, which answers questions about the queue.
    pub service: String,
    /// The Service of all replicas, if they review AppWrappers: the permissions of the author are checked for what is
    /// wrapped.
    pub webhook: Option<Webhook>,
    /// Who makes the serving certificate.
    pub issuer: Issuer,
    /// What the controller plans.
    pub plans: Planned,
}

/// The Service through which the API server finds the webhook.
#[derive(Debug, Clone)]
pub struct Webhook {
    /// Name of the Service.
    pub service: String,
    /// Its port. None: 443, or the port of the endpoint if that has a DNS name.
    pub port: Option<u16>,
}

/// Why the endpoint cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The address cannot be bound.
    #[error("cannot listen on {0}")]
    Listen(SocketAddr, #[source] std::io::Error),
}

/// What the endpoint serves.
#[derive(Clone)]
struct Routers {
    /// For requests that the API server forwards.
    forwarded: axum::Router,
    /// For clients without a certificate: the API server calls webhooks like this. None: they are refused.
    webhook: Option<axum::Router>,
}

impl Endpoint {
    /// Binds the address.
    pub async fn bind(self) -> Result<BoundEndpoint, EndpointError> {
        let listener = TcpListener::bind(self.listen)
            .await
            .map_err(|error| EndpointError::Listen(self.listen, error))?;
        let port = listener.local_addr().map_err(|error| EndpointError::Listen(self.listen, error))?.port();
        let Self { host, namespace, service, webhook, issuer, plans, .. } = self;
        let default = if host.parse::<std::net::IpAddr>().is_ok() { WEBHOOK_PORT } else { port };
        let webhook = webhook
            .map(|Webhook { service, port }| WebhookService { name: service, port: port.unwrap_or(default) });
        let registration = Registration { namespace, service, host, port, webhook, plans };
        Ok(BoundEndpoint { listener, registration, issuer })
    }
}

/// An endpoint with a bound address.
#[derive(Debug)]
pub struct BoundEndpoint {
    listener: TcpListener,
    registration: Registration,
    issuer: Issuer,
}

impl BoundEndpoint {
    /// Prepares to serve: what every replica runs, and what the leader runs besides. `client` may read at any time.
    pub fn open(self, client: Client, reports: Reports) -> (Server, Registrar) {
        let Self { listener, registration, issuer } = self;
        let secret = Secret {
            namespace: registration.namespace.clone(),
            name: format!("{}-certificate", registration.service),
            manifest: "deploy/rbac.yaml",
        };
        let purpose = Purpose { names: registration.server_names(), issuer };
        let webhook = registration.webhook.as_ref().map(|_| admission::router(client.clone()));
        let clients = if webhook.is_some() { Clients::All } else { Clients::Forwarded };
        let routers = Routers { forwarded: visibility::router(reports, registration.plans.queues), webhook };
        let refresh = Refresh::new(client, secret, purpose, clients);
        let registrar = Registrar::new(Registered::Endpoint(registration), &refresh);
        (Server { listener, refresh, routers }, registrar)
    }
}

/// The server of one replica.
pub struct Server {
    listener: TcpListener,
    refresh: Refresh,
    routers: Routers,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("listener", &self.listener).finish_non_exhaustive()
    }
}

impl Server {
    /// That it can answer: it has the certificate.
    pub fn serves(&self) -> Condition {
        let served = self.refresh.served.clone();
        Condition::new("the endpoint has no certificate yet", move || served.current().is_some())
    }

    /// Serves until `shutdown` completes; then answers the requests that have arrived.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let Self { listener, refresh, routers } = self;
        let served = refresh.served.clone();
        let ended = async {
            tokio::select! {
                () = shutdown => {}
                () = refresh.run() => {}
            }
        };
        serve(listener, served, routers, ended).await;
    }
}

async fn serve(listener: TcpListener, served: Served, routers: Routers, ended: impl Future<Output = ()>) {
    let serve = |stream, stopping| {
        let (served, routers) = (served.clone(), routers.clone());
        async move {
            // A replica accepts connections from its start. The first ones wait for its certificate.
            if let Some(handshake) = served.first().await {
                connection(stream, &handshake, routers, stopping).await;
            }
        }
    };
    connections::run(listener, ended, serve).await;
}

async fn connection(stream: TcpStream, handshake: &Handshake, routers: Routers, stopping: Stopping) {
    let stream = match connections::handshake(&handshake.acceptor, stream).await {
        Ok(stream) => stream,
        Err(error) => return tracing::debug!(%error, "TLS handshake failed"),
    };
    let (_, session) = stream.get_ref();
    let certificate = session.peer_certificates().and_then(<[_]>::first);
    let is_forwarded = handshake.front_proxy.as_ref().is_some_and(|proxy| proxy.allows(certificate));
    let router = if is_forwarded { Some(routers.forwarded) } else { routers.webhook };
    let Some(router) = router else {
        return tracing::debug!("the client certificate is not one of the API server");
    };
    connections::serve(stream, router, stopping).await;
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use axum::routing::get;
    use http_body_util::{BodyExt as _, Empty};
    use hyper_util::rt::TokioIo;
    use jiff::Timestamp;
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
    use rustls::{ClientConfig, RootCertStore};
    use tokio_rustls::TlsConnector;
    use tokio_rustls::client::TlsStream;

    use super::*;
    use crate::certificate::ServingCertificate;
    use crate::front_proxy::FrontProxy;

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

    /// Opens a connection with a client certificate, if the server accepts it.
    async fn connect(
        address: SocketAddr,
        authority: &str,
        client: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
    ) -> Option<TlsStream<TcpStream>> {
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
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()
    }

    /// Requests `/healthz` with a client certificate; the body of the response.
    async fn body(
        address: SocketAddr,
        authority: &str,
        client: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
    ) -> Option<String> {
        let stream = connect(address, authority, client).await?;
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
        let life = Duration::from_hours(1);
        let (serving, trusted) = ServingCertificate::generate(&names, Timestamp::now(), life).unwrap();
        let served = Served::default();
        let clients = if routers.webhook.is_some() { Clients::All } else { Clients::Forwarded };
        served.serve(Handshake::new(serving, Some(front_proxy), &clients).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(super::serve(listener, served, routers, std::future::pending()));
        (address, trusted)
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
    async fn the_first_connections_wait_for_the_certificate() {
        let life = Duration::from_hours(1);
        let names = ["muster.muster.svc".to_owned()];
        let (serving, trusted) = ServingCertificate::generate(&names, Timestamp::now(), life).unwrap();
        let (served, routers) =
            (Served::default(), Routers { forwarded: says("reports"), webhook: Some(says("webhook")) });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(super::serve(listener, served.clone(), routers, std::future::pending()));
        let certify = async {
            for _ in 0..1_000 {
                tokio::task::yield_now().await; // The connection is accepted meanwhile.
            }
            served.serve(Handshake::new(serving, None, &Clients::All).unwrap());
        };
        let (answer, ()) = tokio::join!(body(address, &trusted, None), certify);
        assert_eq!(answer.as_deref(), Some("webhook"));
    }

    #[tokio::test]
    async fn idle_connections_keep_no_other_away() {
        let authority = Authority::new();
        let routers = Routers { forwarded: says("reports"), webhook: Some(says("webhook")) };
        let (address, serving) = serve(&authority, routers).await;
        let mut idle = Vec::new();
        for _ in 0..connections::CONNECTIONS_MAX + 10 {
            idle.push(connect(address, &serving, None).await.unwrap());
        }
        assert_eq!(body(address, &serving, None).await.as_deref(), Some("webhook"));
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
