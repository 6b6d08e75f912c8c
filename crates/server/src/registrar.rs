//! What the leader does for the endpoint of all replicas: it keeps the certificates, and the objects through which the API
//! server finds the endpoint.

use std::time::Duration;

use jiff::Timestamp;
use kube::Client;

use crate::certificate::CertificateError;
use crate::certificates::{Certificates, Purpose, Secret};
use crate::kueue::registration::{KueueRegistration, KueueRegistrationError};
use crate::registration::Registration;
use crate::serving::Served;

/// What is registered.
#[derive(Debug)]
pub(crate) enum Registered {
    /// The endpoint.
    Endpoint(Registration),
    /// Kueue's webhooks.
    Kueue(KueueRegistration),
}

/// Keeps the certificates and the registration.
#[derive(Debug)]
pub struct Registrar {
    pub(crate) registration: Registered,
    pub(crate) secret: Secret,
    pub(crate) purpose: Purpose,
    /// What this replica serves.
    pub(crate) served: Served,
    pub(crate) interval: Duration,
    /// The certificates as this process has last seen them. If the Secret is deleted, it gets them back.
    known: Option<Certificates>,
    /// The authorities that this process has registered, before the last interval.
    registered: String,
}

/// Why the endpoint could not be registered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RegistrarError {
    #[error("cannot {0} Secret {1}: {2}; {3} permits it")]
    Secret(&'static str, String, #[source] kube::Error, &'static str),
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error("the endpoint is not registered: {0}")]
    Register(#[source] kube::Error),
    #[error("Kueue's webhooks are not registered: {0}")]
    Kueue(#[from] KueueRegistrationError),
}

impl Registered {
    async fn apply(&self, client: &Client, authorities: &str) -> Result<(), RegistrarError> {
        match self {
            Self::Endpoint(endpoint) => {
                endpoint.apply(client, authorities).await.map_err(RegistrarError::Register)
            }
            Self::Kueue(webhooks) => Ok(webhooks.apply(client, authorities).await?),
        }
    }
}

impl Registrar {
    pub(crate) fn new(
        registration: Registered,
        secret: Secret,
        purpose: Purpose,
        served: Served,
        interval: Duration,
    ) -> Self {
        Self { registration, secret, purpose, served, interval, known: None, registered: String::new() }
    }

    /// Runs until it is dropped. A failure is logged and retried: the controller goes on meanwhile. `client` may write
    /// while this replica leads.
    pub async fn run(mut self, client: Client) {
        loop {
            if let Err(error) = self.register(&client, Timestamp::now()).await {
                tracing::warn!(%error, "retrying");
            }
            tokio::time::sleep(self.interval).await;
        }
    }

    pub(crate) async fn register(&mut self, client: &Client, now: Timestamp) -> Result<(), RegistrarError> {
        let authorities = self.keep_certificates(client, now).await?;
        // The API server calls the endpoint from then on.
        self.served.wait().await;
        self.registration.apply(client, &authorities).await?;
        self.registered = authorities;
        Ok(())
    }

    /// Returns the authorities to register.
    async fn keep_certificates(&mut self, client: &Client, now: Timestamp) -> Result<String, RegistrarError> {
        let Secret { namespace, name, manifest } = &self.secret;
        let (secret, manifest) = (format!("{namespace}/{name}"), *manifest);
        let failed = |verb| move |error| RegistrarError::Secret(verb, secret, error, manifest);
        let found = self.secret.read(client).await.map_err(failed.clone()("read"))?;
        let present = found.certificates.clone().or_else(|| self.known.clone());
        let are_trusted = present.as_ref().is_some_and(|all| all.authorities == self.registered);
        let changed = Certificates::advance(present.as_ref(), &self.purpose, now, are_trusted)?;
        let is_lost = found.certificates.is_none();
        let Some(all) = changed.or_else(|| present.clone().filter(|_| is_lost)) else {
            self.known = present;
            return Ok(self.known.as_ref().map(|all| all.authorities.clone()).unwrap_or_default());
        };
        self.secret.write(client, &found, &all).await.map_err(failed("write"))?;
        self.served.refresh();
        let authorities = all.authorities.clone();
        self.known = Some(all);
        Ok(authorities)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use apiserver::{ApiServer, Service, User};
    use base64::Engine as _;
    use jiff::SignedDuration;
    use kube::Client;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, ServerName};
    use rustls::{ClientConfig, RootCertStore};
    use serde_json::{Value, json};
    use tokio_rustls::TlsConnector;

    use super::*;
    use crate::registration::WebhookService;
    use crate::serving::{Clients, Refresh};

    const NAME: &str = "muster-webhook.muster.svc";
    /// Life of a certificate, in seconds.
    const LIFE_S: u64 = 90;

    /// The API server in memory; with what a replica reads of the aggregation layer, or without this layer.
    async fn cluster(aggregates: bool) -> Client {
        let server = ApiServer::new(apiserver::Config::default());
        let service = Service::new(server, Arc::new(Timestamp::now));
        let client = Client::new(service.as_user(User::admin()), "default");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem();
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "extension-apiserver-authentication"},
            "data": {"requestheader-client-ca-file": authority}});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "muster"}});
        // The API server in memory has no APIServices of its own.
        let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let api_services = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "apiservices.apiregistration.k8s.io",
                "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}},
            "spec": {"group": "apiregistration.k8s.io", "scope": "Cluster",
                "names": {"plural": "apiservices", "singular": "apiservice", "kind": "APIService", "listKind": "APIServiceList"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": any}}]}});
        let aggregation = [
            ("/api/v1/namespaces/kube-system/configmaps", map),
            ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", api_services),
        ];
        let aggregation = aggregation.into_iter().filter(|_| aggregates);
        for (path, object) in [("/api/v1/namespaces", namespace)].into_iter().chain(aggregation) {
            let request = http::Request::post(path)
                .header("content-type", "application/json")
                .body(object.to_string().into_bytes());
            client.request::<Value>(request.unwrap()).await.unwrap();
        }
        client
    }

    fn secret() -> Secret {
        Secret { namespace: "muster".into(), name: "muster-certificate".into(), manifest: "deploy/rbac.yaml" }
    }

    fn registrar(served: Served) -> Registrar {
        let registration = Registration {
            namespace: "muster".into(),
            service: "muster".into(),
            host: "localhost".into(),
            port: 8443,
            webhook: Some(WebhookService { name: "muster-webhook".into(), port: 8443 }),
        };
        let purpose = Purpose { names: registration.server_names(), life: Duration::from_secs(LIFE_S) };
        Registrar::new(Registered::Endpoint(registration), secret(), purpose, served, Duration::from_secs(1))
    }

    fn replica(client: &Client) -> Refresh {
        let (client, served) = (client.clone(), Served::default());
        let clients = Clients::All;
        Refresh { client, secret: secret(), clients, interval: Duration::from_secs(1), served }
    }

    /// The authorities in the configuration of the webhook.
    async fn trusted(client: &Client) -> Vec<CertificateDer<'static>> {
        let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/muster";
        let found =
            client.request::<Value>(http::Request::get(path).body(Vec::new()).unwrap()).await.unwrap();
        let bundle = found["webhooks"][0]["clientConfig"]["caBundle"].as_str().unwrap();
        let bundle = base64::engine::general_purpose::STANDARD.decode(bundle).unwrap();
        CertificateDer::pem_slice_iter(&bundle).map(Result::unwrap).collect()
    }

    /// Whether the API server accepts the certificate of a replica.
    async fn accepts(trusted: &[CertificateDer<'static>], replica: &Refresh) -> bool {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(trusted.iter().cloned());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let (near, far) = tokio::io::duplex(64 << 10);
        let handshake = replica.served.current().unwrap();
        let connect = TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(NAME).unwrap(), near);
        let (connected, accepted) = tokio::join!(connect, handshake.acceptor.accept(far));
        connected.is_ok() && accepted.is_ok()
    }

    #[tokio::test]
    async fn webhooks_are_served_without_an_aggregation_layer() {
        let client = cluster(false).await;
        let replica = replica(&client);
        let mut leader = registrar(replica.served.clone());
        let (registered, refreshed) =
            tokio::join!(leader.register(&client, Timestamp::now()), replica.refresh_until_served());
        registered.unwrap();
        refreshed.unwrap();
        assert!(accepts(&trusted(&client).await, &replica).await);
        let served = replica.served.current().unwrap();
        assert!(served.front_proxy.is_none());
        let closed = Refresh { clients: Clients::Forwarded, served: Served::default(), ..replica };
        let error = closed.refresh().await.unwrap_err().to_string();
        assert!(
            error.starts_with("cannot read ConfigMap kube-system/extension-apiserver-authentication"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn replicas_serve_what_the_api_server_trusts_while_certificates_are_renewed() {
        let client = cluster(true).await;
        let (a, b) = (replica(&client), replica(&client));
        let start = Timestamp::now();
        let mut leader = registrar(a.served.clone());
        let (registered, refreshed) = tokio::join!(leader.register(&client, start), a.refresh_until_served());
        registered.unwrap();
        refreshed.unwrap();
        b.refresh().await.unwrap();
        let (mut bundles, mut served) = (Vec::new(), Vec::new());
        for second in 1..=300_i64 {
            let now = start + SignedDuration::from_secs(second);
            if second % 47 == 0 {
                // The leader dies; the other replica leads.
                leader = registrar(b.served.clone());
            }
            if second % 31 == 0 {
                let path = "/api/v1/namespaces/muster/secrets/muster-certificate";
                let delete = http::Request::delete(path).body(Vec::new()).unwrap();
                leader.register(&client, now).await.unwrap();
                client.request::<Value>(delete).await.unwrap();
            }
            leader.register(&client, now).await.unwrap();
            let trusted = trusted(&client).await;
            // Replicas read the Secret at different times; in between, what they serve is trusted, too.
            for (replica, lag) in [(&a, 1), (&b, 5)] {
                assert!(accepts(&trusted, replica).await, "second {second}");
                if second % lag == 0 {
                    replica.refresh().await.unwrap();
                    assert!(accepts(&trusted, replica).await, "second {second}, refreshed");
                }
                let current = replica.served.current().unwrap();
                assert!(current.certificate.serves(&[NAME.into()], now), "second {second}");
                served.push(current.certificate.chain.clone());
            }
            bundles.push(trusted.len());
        }
        served.sort();
        served.dedup();
        assert!(served.len() >= 4, "{} certificates were served", served.len());
        assert_eq!(bundles.iter().max(), Some(&2), "the old and the new authority");
    }
}
