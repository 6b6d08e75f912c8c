//! Which client certificates the API server has when it forwards a request. kube-apiserver publishes its
//! `--requestheader-*` flags in the `ConfigMap` `kube-system/extension-apiserver-authentication`.

use kube::Client;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The `ConfigMap` of the API server.
const PATH: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

/// The API server's client certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FrontProxy {
    /// The certificates of their authority, in PEM.
    authority: String,
    /// Their common names. If it is empty, all certificates of the authority are accepted.
    allowed_names: Vec<String>,
}

/// Why the client certificates of the API server are not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrontProxyError {
    #[error("cannot read ConfigMap kube-system/extension-apiserver-authentication: {0}")]
    Read(#[from] kube::Error),
    #[error("the API server has no --requestheader-client-ca-file, so it does not serve aggregated APIs")]
    NoAuthority,
    #[error(
        "requestheader-{0} of ConfigMap kube-system/extension-apiserver-authentication is not valid: {1}"
    )]
    Invalid(&'static str, String),
}

impl FrontProxy {
    #[cfg(test)]
    pub(crate) fn new(authority: String, allowed_names: Vec<String>) -> Self {
        Self { authority, allowed_names }
    }

    /// Reads the configuration of the API server, if it has the aggregation layer.
    pub(crate) async fn find(client: &Client) -> Result<Option<Self>, FrontProxyError> {
        match Self::read(client).await {
            Ok(found) => Ok(Some(found)),
            Err(FrontProxyError::NoAuthority) => Ok(None),
            Err(FrontProxyError::Read(kube::Error::Api(status))) if status.code == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads the configuration of the API server.
    pub(crate) async fn read(client: &Client) -> Result<Self, FrontProxyError> {
        #[derive(Deserialize)]
        struct ConfigMap {
            #[serde(default)]
            data: BTreeMap<String, String>,
        }
        let request = http::Request::get(PATH).body(Vec::new());
        let request = request.map_err(kube::Error::HttpError)?;
        let mut map: ConfigMap = client.request(request).await?;
        let authority = map.data.remove("requestheader-client-ca-file").filter(|pem| !pem.is_empty());
        let names = map.data.remove("requestheader-allowed-names").unwrap_or_default();
        let allowed_names = match &*names {
            "" => Vec::new(),
            names => serde_json::from_str(names)
                .map_err(|error| FrontProxyError::Invalid("allowed-names", error.to_string()))?,
        };
        Ok(Self { authority: authority.ok_or(FrontProxyError::NoAuthority)?, allowed_names })
    }

    /// The certificates of the authority.
    pub(crate) fn roots(&self) -> Result<RootCertStore, FrontProxyError> {
        let invalid = |error: String| FrontProxyError::Invalid("client-ca-file", error);
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(self.authority.as_bytes()) {
            let certificate = certificate.map_err(|error| invalid(error.to_string()))?;
            roots.add(certificate).map_err(|error| invalid(error.to_string()))?;
        }
        Ok(roots)
    }

    /// Whether the common name of a verified certificate is one of the API server's.
    pub(crate) fn allows(&self, certificate: Option<&CertificateDer<'_>>) -> bool {
        let Some(certificate) = certificate else { return false };
        let Ok((_, certificate)) = x509_parser::parse_x509_certificate(certificate) else { return false };
        let mut names = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok());
        self.allowed_names.is_empty()
            || names.any(|name| self.allowed_names.iter().any(|allowed| allowed == name))
    }
}
