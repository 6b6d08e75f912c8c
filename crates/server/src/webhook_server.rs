//! The HTTPS server of Kueue's webhooks. Every replica serves, leader or not.

use std::path::Path;
use std::sync::Arc;

use axum::Router;
use kube::Client;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::certificate_files::{self, CertificateFiles, CertificateFilesError, TlsOptions};
use crate::certificates::{Issuer, Purpose, Secret};
use crate::connections;
use crate::kueue::RegisteredJobs;
use crate::kueue::registration::KueueRegistration;
use crate::probes::Condition;
use crate::registrar::{Registered, Registrar};
use crate::serving::{Clients, Refresh};

/// A webhook server with an address and a certificate.
pub struct WebhookServer {
    listener: TcpListener,
    certificate: Certificate,
}

impl std::fmt::Debug for WebhookServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebhookServer").field("listener", &self.listener).finish_non_exhaustive()
    }
}

/// Where the certificate comes from.
#[derive(Clone)]
enum Certificate {
    /// From a folder.
    Files(Arc<CertificateFiles>),
    /// From a Secret that all replicas share.
    Shared(Arc<Refresh>),
}

/// Names of the objects by which Kueue's webhooks are found, as in Kueue's configuration.
#[derive(Debug, Clone)]
pub struct WebhookNames {
    /// Their namespace; it must exist.
    pub namespace: String,
    /// The Service.
    pub service: String,
    /// The Secret with the certificate.
    pub secret: String,
}

/// What Muster keeps for webhooks that nobody else registers.
#[derive(Debug, Clone)]
pub struct Managed {
    /// Who makes the certificate.
    pub issuer: Issuer,
    /// Whether missing definitions are created.
    pub installs: bool,
    /// The jobs whose creation and changes are reviewed.
    pub jobs: RegisteredJobs,
}

impl WebhookServer {
    /// Serves on a listener with the certificate of a folder: `tls.crt` and `tls.key`, which are read again when they
    /// change.
    ///
    /// # Errors
    /// The folder has no usable certificate.
    pub fn new(
        listener: TcpListener,
        folder: &Path,
        options: TlsOptions,
    ) -> Result<Self, CertificateFilesError> {
        let certificate = Certificate::Files(Arc::new(CertificateFiles::open(folder, options)?));
        Ok(Self { listener, certificate })
    }

    /// Serves on a listener with the certificate that all replicas share. The registrar, which the leader runs, makes and renews
    /// it, unless another program does, and registers the webhooks. `client` may read at any time.
    ///
    /// # Errors
    /// The options of TLS are not supported.
    pub fn managed(
        listener: TcpListener,
        client: Client,
        names: WebhookNames,
        Managed { issuer, installs, jobs }: Managed,
        options: TlsOptions,
    ) -> Result<(Self, Registrar), CertificateFilesError> {
        certificate_files::provider(&options)?;
        let WebhookNames { namespace, service, secret } = names;
        let secret =
            Secret { namespace: namespace.clone(), name: secret, manifest: "deploy/kueue-rbac.yaml" };
        let registration = KueueRegistration { namespace, service, installs, jobs, defined: Arc::default() };
        let purpose = Purpose { names: registration.server_names(), issuer };
        let refresh = Refresh::new(client, secret, purpose, Clients::Webhooks(options));
        let registrar = Registrar::new(Registered::Kueue(registration), &refresh);
        Ok((Self { listener, certificate: Certificate::Shared(Arc::new(refresh)) }, registrar))
    }

    /// That it can answer: it has the certificate.
    pub fn serves(&self) -> Condition {
        let certificate = self.certificate.clone();
        Condition::new("the webhooks have no certificate yet", move || match &certificate {
            Certificate::Files(_) => true,
            Certificate::Shared(refresh) => refresh.served.current().is_some(),
        })
    }

    /// Serves until `shutdown` completes; then answers the requests that have arrived.
    pub async fn run(self, router: Router, shutdown: impl Future<Output = ()>) {
        let Self { listener, certificate } = self;
        let refreshing = certificate.clone();
        let ended = async {
            tokio::select! {
                () = shutdown => {}
                () = refreshing.refresh() => {}
            }
        };
        let connection = |stream, stopping| {
            let (certificate, router) = (certificate.clone(), router.clone());
            async move {
                let Some(acceptor) = certificate.acceptor().await else { return };
                match connections::handshake(&acceptor, stream).await {
                    Ok(stream) => connections::serve(stream, router, stopping).await,
                    Err(error) => tracing::debug!(%error, "TLS handshake failed"),
                }
            }
        };
        connections::run(listener, ended, connection).await;
    }
}

impl Certificate {
    /// What accepts a connection; `None` if there is no certificate in time.
    async fn acceptor(&self) -> Option<TlsAcceptor> {
        match self {
            Self::Files(files) => Some(TlsAcceptor::from(files.current())),
            Self::Shared(refresh) => Some(refresh.served.first().await?.acceptor.clone()),
        }
    }

    /// Reads a shared certificate again and again.
    async fn refresh(&self) {
        match self {
            Self::Files(_) => std::future::pending().await,
            Self::Shared(refresh) => refresh.run().await,
        }
    }
}
