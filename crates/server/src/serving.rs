//! What a replica serves with: the certificate that all replicas share, for the API server's client certificates. Read
//! again at intervals.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use crate::certificate::{CertificateError, ServingCertificate};
use crate::certificate_files::{self, CertificateFilesError, TlsOptions};
use crate::certificates::{Certificates, Purpose, Secret};
use crate::front_proxy::{FrontProxy, FrontProxyError};

/// Interval of the attempts to serve for the first time, or for names that the certificate does not have yet.
const FIRST: Duration = Duration::from_secs(1);
/// Within this time after a certificate was written, every replica serves it that lacked one for its names.
pub(crate) const LAG_MAX: Duration = Duration::from_secs(2);
/// How long a connection waits for the first certificate. The API server waits for an answer of a webhook for 10 s.
const FIRST_MAX: Duration = Duration::from_secs(8);

/// What a handshake needs.
pub(crate) struct Handshake {
    pub(crate) acceptor: TlsAcceptor,
    /// None: the API server has no aggregation layer, and the replica serves webhooks alone.
    pub(crate) front_proxy: Option<FrontProxy>,
    pub(crate) certificate: ServingCertificate,
    /// Its authorities in the Secret, in PEM.
    pub(crate) authorities: String,
}

/// What the replica serves with, if it serves. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Served {
    current: watch::Sender<Option<Arc<Handshake>>>,
    /// The certificate has changed.
    changed: Arc<Notify>,
}

impl std::fmt::Debug for Handshake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handshake").finish_non_exhaustive()
    }
}

impl Served {
    /// The present handshake.
    pub(crate) fn current(&self) -> Option<Arc<Handshake>> {
        self.current.borrow().clone()
    }

    /// The present handshake. A replica that has none yet may get it soon.
    pub(crate) async fn first(&self) -> Option<Arc<Handshake>> {
        tokio::time::timeout(FIRST_MAX, self.wait()).await.ok();
        self.current()
    }

    /// Completes when the replica serves.
    pub(crate) async fn wait(&self) {
        // The error case cannot occur: this value holds the sender.
        self.current.subscribe().wait_for(Option::is_some).await.ok();
    }

    /// Whether the replica has a valid certificate for these names.
    pub(crate) fn serves(&self, names: &[String], now: Timestamp) -> bool {
        self.current.borrow().as_ref().is_some_and(|handshake| handshake.certificate.serves(names, now))
    }

    /// Completes when the replica has a valid certificate for these names.
    pub(crate) async fn wait_for(&self, names: &[String], now: Timestamp) {
        let serves = |current: &Option<Arc<Handshake>>| {
            current.as_ref().is_some_and(|handshake| handshake.certificate.serves(names, now))
        };
        // The error case cannot occur: this value holds the sender.
        self.current.subscribe().wait_for(serves).await.ok();
    }

    /// Reads the certificate again, without waiting for the interval.
    pub(crate) fn refresh(&self) {
        self.changed.notify_one();
    }

    pub(crate) fn serve(&self, handshake: Handshake) {
        self.current.send_replace(Some(Arc::new(handshake)));
    }
}

/// Why the replica does not serve at the moment.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServingError {
    #[error(transparent)]
    FrontProxy(#[from] FrontProxyError),
    #[error("cannot read Secret {0}: {1}; {2} permits it")]
    Secret(String, #[source] kube::Error, &'static str),
    #[error(
        "Secret {0} has no certificate yet: the leader writes it, or another issuer tls.crt, tls.key and ca.crt"
    )]
    NoCertificate(String),
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error("the client authority of the API server is not usable: {0}")]
    Verifier(#[from] rustls::client::VerifierBuilderError),
    #[error("the serving certificate is not usable: {0}")]
    Tls(#[from] rustls::Error),
    #[error(transparent)]
    Options(#[from] CertificateFilesError),
}

/// The clients that may connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Clients {
    /// The API server, when it forwards requests.
    Forwarded,
    /// The API server, and clients without a certificate: it calls webhooks as such a client.
    All,
    /// Clients without a certificate, with these versions and ciphers of TLS.
    Webhooks(TlsOptions),
}

/// Reads what the replica serves with.
pub(crate) struct Refresh {
    pub(crate) client: Client,
    pub(crate) secret: Secret,
    pub(crate) purpose: Purpose,
    pub(crate) clients: Clients,
    pub(crate) served: Served,
    /// The certificate that was found, and since when.
    next: Mutex<Option<(ServingCertificate, Instant)>>,
}

impl Refresh {
    /// For the certificates in a Secret. `client` may read at any time.
    pub(crate) fn new(client: Client, secret: Secret, purpose: Purpose, clients: Clients) -> Self {
        Self { client, secret, purpose, clients, served: Served::default(), next: Mutex::default() }
    }

    /// Runs until it is dropped. A failure is logged and retried; what was served before is still served.
    pub(crate) async fn run(&self) {
        let mut last = String::new();
        loop {
            let result = self.refresh().await.map_err(|error| error.to_string());
            let error = result.err().unwrap_or_default();
            if !error.is_empty() && error != last {
                tracing::warn!(%error, "not served, retrying");
            }
            last = error;
            let serves = self.served.serves(&self.purpose.names, Timestamp::now());
            let interval = if serves { self.purpose.issuer.interval() } else { FIRST };
            tokio::time::timeout(interval, self.served.changed.notified()).await.ok();
        }
    }

    #[cfg(test)]
    pub(crate) async fn refresh_until_served(&self) -> Result<(), ServingError> {
        while self.served.current().is_none() {
            self.served.changed.notified().await;
            self.refresh().await?;
        }
        Ok(())
    }

    pub(crate) async fn refresh(&self) -> Result<(), ServingError> {
        let front_proxy = match self.clients {
            Clients::Forwarded => Some(FrontProxy::read(&self.client).await?),
            Clients::All => FrontProxy::find(&self.client).await?,
            Clients::Webhooks(_) => None,
        };
        let secret = self.secret.to_string();
        let found = self.secret.read(&self.client).await;
        let found =
            found.map_err(|error| ServingError::Secret(secret.clone(), error, self.secret.manifest))?;
        let Certificates { present, authorities, .. } =
            found.certificates.ok_or(ServingError::NoCertificate(secret))?;
        let certificate = self.due(present, Timestamp::now());
        let is_same = |current: &Arc<Handshake>| {
            current.certificate == certificate && current.front_proxy == front_proxy
        };
        if !self.served.current().as_ref().is_some_and(is_same) {
            let handshake = Handshake::new(certificate, front_proxy, &self.clients)?;
            self.served.serve(Handshake { authorities, ..handshake });
        }
        Ok(())
    }
}

impl Refresh {
    /// What to serve: the found certificate, or for the delay the one that is served, if it is valid for the names.
    fn due(&self, found: ServingCertificate, now: Timestamp) -> ServingCertificate {
        let Some(handshake) = self.served.current() else { return found };
        let present = &handshake.certificate;
        let delay = self.purpose.issuer.delay();
        if delay.is_zero() || *present == found || !present.serves(&self.purpose.names, now) {
            return found;
        }
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = next.take().filter(|(seen, _)| *seen == found);
        let since = next.insert(seen.unwrap_or_else(|| (found.clone(), Instant::now()))).1;
        if since.elapsed() < delay { present.clone() } else { found }
    }
}

impl Handshake {
    /// With this certificate, for these clients.
    pub(crate) fn new(
        certificate: ServingCertificate,
        front_proxy: Option<FrontProxy>,
        clients: &Clients,
    ) -> Result<Self, ServingError> {
        let options = match clients {
            Clients::Webhooks(options) => options.clone(),
            Clients::Forwarded | Clients::All => TlsOptions::default(),
        };
        let is_open = *clients != Clients::Forwarded;
        let provider = Arc::new(certificate_files::provider(&options)?);
        let versions = certificate_files::versions(&options);
        let builder =
            ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(versions)?;
        let builder = if let Some(front_proxy) = &front_proxy {
            let roots = Arc::new(front_proxy.roots()?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
            let verifier = if is_open { verifier.allow_unauthenticated() } else { verifier }.build()?;
            builder.with_client_cert_verifier(verifier)
        } else {
            builder.with_no_client_auth()
        };
        let (chain, key) = certificate.der()?;
        let mut config = builder.with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Ok(Self { acceptor, front_proxy, certificate, authorities: String::new() })
    }
}
