//! What the leader does for the endpoint of all replicas: it keeps the certificates, and the objects through which the API
//! server finds the endpoint.

use std::time::Duration;

use jiff::Timestamp;
use kube::Client;

use crate::certificate::CertificateError;
use crate::certificates::{Certificates, IssuedAuthorities, Issuer, Purpose, Secret};
use crate::kueue::registration::{KueueRegistration, KueueRegistrationError};
use crate::registration::Registration;
use crate::serving::{LAG_MAX, Refresh, Served};

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
    /// The leader's certificates as this process has last seen them. If the Secret is deleted, it gets them back.
    known: Option<Certificates>,
    /// The authorities of another issuer.
    issued: IssuedAuthorities,
    /// The authorities that this process has registered, before the last interval.
    registered: String,
}

/// Why the endpoint could not be registered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RegistrarError {
    #[error("cannot {0} Secret {1}: {2}; {3} permits it")]
    Secret(&'static str, String, #[source] kube::Error, &'static str),
    #[error(
        "Secret {0} has no valid certificate for {1}: its issuer has to write tls.crt, tls.key and ca.crt"
    )]
    NotIssued(String, String),
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
    /// For the certificates that a replica serves.
    pub(crate) fn new(registration: Registered, replica: &Refresh) -> Self {
        let (secret, purpose) = (replica.secret.clone(), replica.purpose.clone());
        let served = replica.served.clone();
        let (known, issued, registered) = (None, IssuedAuthorities::default(), String::new());
        Self { registration, secret, purpose, served, known, issued, registered }
    }

    /// Runs until it is dropped. A failure is logged and retried: the controller goes on meanwhile. `client` may write
    /// while this replica leads.
    pub async fn run(mut self, client: Client) {
        loop {
            if let Err(error) = self.register(&client, Timestamp::now()).await {
                tracing::warn!(%error, "retrying");
            }
            tokio::time::sleep(self.purpose.issuer.interval()).await;
        }
    }

    pub(crate) async fn register(&mut self, client: &Client, now: Timestamp) -> Result<(), RegistrarError> {
        let names = self.purpose.names.clone();
        let is_late = self.served.current().is_some() && !self.served.serves(&names, now);
        let (authorities, is_replaced) = match self.purpose.issuer {
            Issuer::Leader(life) => self.keep_certificates(client, life, now).await?,
            Issuer::Other => (self.issued(client, now).await?, false),
        };
        // The API server calls every replica from then on, by all names.
        self.served.wait_for(&names, now).await;
        if is_late || is_replaced {
            tokio::time::sleep(LAG_MAX).await;
        }
        self.registration.apply(client, &authorities).await?;
        self.registered = authorities;
        Ok(())
    }

    /// The authorities of another issuer to register.
    async fn issued(&mut self, client: &Client, now: Timestamp) -> Result<String, RegistrarError> {
        // This replica reads the Secret often until it has a certificate.
        self.served.wait().await;
        let found = self.secret.read(client).await.map_err(|error| self.secret_error("read", error))?;
        let names = &self.purpose.names;
        let valid = found.certificates.filter(|found| found.present.serves(names, now));
        let all =
            valid.ok_or_else(|| RegistrarError::NotIssued(self.secret.to_string(), names.join(", ")))?;
        let served = self.served.current().map(|handshake| handshake.authorities.clone()).unwrap_or_default();
        Ok(self.issued.register(&all.authorities, &served))
    }

    fn secret_error(&self, verb: &'static str, error: kube::Error) -> RegistrarError {
        RegistrarError::Secret(verb, self.secret.to_string(), error, self.secret.manifest)
    }

    /// Makes and renews the leader's certificates. Returns the authorities to register, and whether replicas have to serve another
    /// certificate before that.
    async fn keep_certificates(
        &mut self,
        client: &Client,
        life: Duration,
        now: Timestamp,
    ) -> Result<(String, bool), RegistrarError> {
        let found = self.secret.read(client).await.map_err(|error| self.secret_error("read", error))?;
        let present = found.certificates.clone().or_else(|| self.known.clone());
        let are_trusted = present.as_ref().is_some_and(|all| all.authorities == self.registered);
        let changed = Certificates::advance(present.as_ref(), (&self.purpose.names, life), now, are_trusted)?;
        let is_lost = found.certificates.is_none();
        let Some(all) = changed.or_else(|| present.clone().filter(|_| is_lost)) else {
            self.known = present;
            return Ok((self.known.as_ref().map(|all| all.authorities.clone()).unwrap_or_default(), false));
        };
        let written = self.secret.write(client, &found, &all).await;
        written.map_err(|error| self.secret_error("write", error))?;
        self.served.refresh();
        let is_replaced = present.is_some_and(|older| all.replaces(&older));
        let authorities = all.authorities.clone();
        self.known = Some(all);
        Ok((authorities, is_replaced))
    }
}

#[cfg(test)]
pub(crate) mod tests {
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
    use crate::certificate::ServingCertificate;
    use crate::registration::{Planned, WebhookService};
    use crate::serving::Clients;

    const NAME: &str = "muster-webhook.muster.svc";
    const LEADER: Issuer = Issuer::Leader(Duration::from_secs(90));

    /// The API server in memory; with what a replica reads of the aggregation layer, or without this layer.
    pub(crate) async fn cluster(aggregates: bool) -> Client {
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

    fn registration() -> Registration {
        Registration {
            namespace: "muster".into(),
            service: "muster".into(),
            host: "localhost".into(),
            port: 8443,
            webhook: Some(WebhookService { name: "muster-webhook".into(), port: 8443 }),
            plans: Planned { wrappers: true, queues: true },
        }
    }

    fn registrar(replica: &Refresh) -> Registrar {
        Registrar::new(Registered::Endpoint(registration()), replica)
    }

    fn replica(client: &Client) -> Refresh {
        replica_of(client, LEADER)
    }

    fn replica_of(client: &Client, issuer: Issuer) -> Refresh {
        let names = registration().server_names();
        Refresh::new(client.clone(), secret(), Purpose { names, issuer }, Clients::All)
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
        let mut leader = registrar(&replica);
        let (registered, refreshed) =
            tokio::join!(leader.register(&client, Timestamp::now()), replica.refresh_until_served());
        registered.unwrap();
        refreshed.unwrap();
        assert!(accepts(&trusted(&client).await, &replica).await);
        let served = replica.served.current().unwrap();
        assert!(served.front_proxy.is_none());
        let purpose = replica.purpose.clone();
        let closed = Refresh::new(client, secret(), purpose, Clients::Forwarded);
        let error = closed.refresh().await.unwrap_err().to_string();
        assert!(
            error.starts_with("cannot read ConfigMap kube-system/extension-apiserver-authentication"),
            "{error}"
        );
    }

    /// Writes a new certificate as another issuer does.
    async fn issue(client: &Client, now: Timestamp, life: Duration) -> String {
        issue_for(client, &registration().server_names(), now, life).await
    }

    /// Writes a new certificate for these names.
    async fn issue_for(client: &Client, names: &[String], now: Timestamp, life: Duration) -> String {
        let (present, authorities) = ServingCertificate::generate(names, now, life).unwrap();
        let issued = Certificates { present, next: None, authorities };
        let found = secret().read(client).await.unwrap();
        secret().write(client, &found, &issued).await.unwrap();
        issued.present.chain
    }

    #[tokio::test(start_paused = true)]
    async fn a_certificate_of_another_issuer_is_served_when_its_authority_is_registered() {
        let client = cluster(true).await;
        let (a, b) = (replica_of(&client, Issuer::Other), replica_of(&client, Issuer::Other));
        let mut leader = registrar(&a);
        let error = a.refresh().await.unwrap_err().to_string();
        assert!(error.starts_with("Secret muster/muster-certificate has no certificate yet"), "{error}");
        let (start, year) = (Timestamp::now(), Duration::from_hours(24 * 365));
        let mut issued = vec![issue(&client, start, year).await];
        let mut served = Vec::new();
        for minute in 0..66_u64 {
            let now = start + SignedDuration::from_secs(60);
            if minute % 12 == 7 {
                issued.push(issue(&client, now, year).await);
            }
            if minute % 12 == 8 {
                // The leader dies; the other replica leads.
                leader = registrar(&b);
            }
            // The replicas read the Secret before the leader does, and at other times than it.
            for (replica, every) in [(&a, 1), (&b, 3)] {
                if minute % every == 0 {
                    replica.refresh().await.unwrap();
                }
            }
            leader.register(&client, now).await.unwrap();
            let trusted = trusted(&client).await;
            assert!(trusted.len() <= 2, "minute {minute}");
            for replica in [&a, &b] {
                assert!(accepts(&trusted, replica).await, "minute {minute}");
                served.push(replica.served.current().unwrap().certificate.chain.clone());
            }
            let secret = secret().read(&client).await.unwrap().certificates.unwrap();
            assert_eq!(Some(&secret.present.chain), issued.last(), "the leader writes no certificate");
            tokio::time::advance(Duration::from_mins(1)).await;
        }
        served.dedup();
        served.sort();
        served.dedup();
        assert_eq!(served.len(), issued.len(), "each certificate was served");
        assert_eq!(trusted(&client).await.len(), 1, "the replaced authorities are gone");
        issue(&client, start, Duration::ZERO).await;
        let error = leader.register(&client, Timestamp::now()).await.unwrap_err().to_string();
        assert!(error.contains("has no valid certificate for muster.muster.svc, muster-webhook"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_webhook_is_registered_when_every_replica_has_a_certificate_for_its_name() {
        for issuer in [LEADER, Issuer::Other] {
            let client = cluster(true).await;
            let (start, year) = (Timestamp::now(), Duration::from_hours(24 * 365));
            // A release without a webhook had this certificate.
            issue_for(&client, &["muster.muster.svc".into()], start, year).await;
            let (a, b) = (replica_of(&client, issuer), replica_of(&client, issuer));
            a.refresh().await.unwrap();
            b.refresh().await.unwrap();
            assert!(!a.served.serves(&[NAME.into()], start));
            let mut leader = registrar(&a);
            if issuer == Issuer::Other {
                let refused = leader.register(&client, start).await.unwrap_err().to_string();
                assert!(refused.contains("has no valid certificate for"), "{refused}");
                issue(&client, start, year).await;
            }
            tokio::select! {
                registered = leader.register(&client, start) => registered.unwrap(),
                () = a.run() => {}
                () = b.run() => {}
            }
            let trusted = trusted(&client).await;
            for replica in [&a, &b] {
                assert!(accepts(&trusted, replica).await, "{issuer:?}");
            }
        }
    }

    #[tokio::test]
    async fn replicas_serve_what_the_api_server_trusts_while_certificates_are_renewed() {
        let client = cluster(true).await;
        let (a, b) = (replica(&client), replica(&client));
        let start = Timestamp::now();
        let mut leader = registrar(&a);
        let (registered, refreshed) = tokio::join!(leader.register(&client, start), a.refresh_until_served());
        registered.unwrap();
        refreshed.unwrap();
        b.refresh().await.unwrap();
        let (mut bundles, mut served) = (Vec::new(), Vec::new());
        for second in 1..=300_i64 {
            let now = start + SignedDuration::from_secs(second);
            if second % 47 == 0 {
                // The leader dies; the other replica leads.
                leader = registrar(&b);
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
