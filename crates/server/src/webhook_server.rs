//! The HTTPS server of Kueue's webhooks. Every replica serves, leader or not.

use std::path::Path;
use std::sync::Arc;

use axum::Router;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::certificate_files::{CertificateFiles, CertificateFilesError, TlsOptions};
use crate::connections;

/// A webhook server with an address and a certificate.
#[derive(Debug)]
pub struct WebhookServer {
    listener: TcpListener,
    certificate: Arc<CertificateFiles>,
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
        let certificate = Arc::new(CertificateFiles::open(folder, options)?);
        Ok(Self { listener, certificate })
    }

    /// Serves until `shutdown` completes; then answers the requests that have arrived.
    pub async fn run(self, router: Router, shutdown: impl Future<Output = ()>) {
        let Self { listener, certificate } = self;
        let connection = |stream, stopping| {
            let (certificate, router) = (certificate.clone(), router.clone());
            async move {
                let acceptor = TlsAcceptor::from(certificate.current());
                match connections::handshake(&acceptor, stream).await {
                    Ok(stream) => connections::serve(stream, router, stopping).await,
                    Err(error) => tracing::debug!(%error, "TLS handshake failed"),
                }
            }
        };
        connections::run(listener, shutdown, connection).await;
    }
}
