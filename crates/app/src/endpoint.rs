//! Flags of the controller's endpoint.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use anyhow::{Context, bail};
use server::{BoundEndpoint, Endpoint, Issuer, Planned, Webhook};

use crate::election::duration;

/// The endpoint that answers `muster why` and `muster plan`.
#[derive(clap::Args)]
#[command(next_help_heading = "Endpoint and webhooks")]
pub(crate) struct EndpointArgs {
    /// Serve visibility.muster.dev on this address, such as 0.0.0.0:8443: tenants with rights in one namespace can use `muster
    /// why` and `muster plan`. With the part `scheduler`, visibility.kueue.x-k8s.io is served there, too, unless Kueue's feature
    /// gate `VisibilityOnDemand` is off.
    #[arg(id = "endpoint", long = "endpoint", value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// IP address or DNS name by which the API server reaches the endpoint. Default: the variable `POD_IP`,
    /// or else the address of --endpoint.
    #[arg(id = "endpoint-host", long = "endpoint-host", env = "POD_IP", value_name = "HOST")]
    host: Option<String>,
    /// Namespace of the endpoint's Service.
    #[arg(
        id = "endpoint-namespace",
        long = "endpoint-namespace",
        env = "POD_NAMESPACE",
        value_name = "NAMESPACE",
        default_value = "muster"
    )]
    namespace: String,
    /// Name of the endpoint's Service.
    #[arg(id = "endpoint-service", long = "endpoint-service", value_name = "NAME", default_value = "muster")]
    service: String,
    /// How the author of an AppWrapper is authorized to create what it wraps. `webhook`: the endpoint reviews each new
    /// spec with the permissions of its author (needs --endpoint). `none`: not at all.
    #[arg(long, value_enum, default_value_t = Authorization::None, value_name = "MODE")]
    authorization: Authorization,
    /// The Service that selects all replicas, for --authorization=webhook: deploy/webhook.yaml. If the endpoint has a DNS
    /// name, the leader creates it.
    #[arg(long, value_name = "NAME", default_value = "muster-webhook")]
    webhook_service: String,
    /// Port of --webhook-service. Default: 443, or the port of --endpoint if the endpoint has a DNS name.
    #[arg(long, value_name = "PORT")]
    webhook_port: Option<u16>,
    /// Who makes the certificates of the endpoint and of webhooks in their Secrets: the leader, which renews them, or another
    /// program, such as cert-manager, which keeps `tls.crt`, `tls.key` and `ca.crt` there; the leader registers the authority.
    #[arg(long, value_enum, default_value_t = IssuerName::Muster, value_name = "NAME")]
    certificate_issuer: IssuerName,
    /// Life of the certificates that Muster makes; they are renewed after two thirds of it.
    #[arg(long, value_name = "DURATION", default_value = "8760h", value_parser = certificate_life)]
    certificate_life: Duration,
}

/// Shortest and longest life of a certificate: replicas and API servers need some time to learn about a new one.
const LIVES: RangeInclusive<Duration> = Duration::from_secs(12)..=Duration::from_hours(10 * 365 * 24);

fn certificate_life(text: &str) -> Result<Duration, String> {
    let life = duration(text)?;
    let is_allowed = LIVES.contains(&life);
    is_allowed.then_some(life).ok_or_else(|| "a certificate lives from 12s to 87600h".into())
}

/// How the author of an AppWrapper is authorized to create what it wraps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Authorization {
    /// A validating webhook that the endpoint serves.
    Webhook,
    /// Not at all.
    None,
}

/// Who makes certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum IssuerName {
    /// The leader.
    Muster,
    /// Another program.
    Other,
}

impl EndpointArgs {
    /// Who makes the certificates of the endpoint and of webhooks.
    pub(crate) fn issuer(&self) -> Issuer {
        match self.certificate_issuer {
            IssuerName::Muster => Issuer::Leader(self.certificate_life),
            IssuerName::Other => Issuer::Other,
        }
    }

    /// Binds the address; `None` if there is no endpoint. Authors of AppWrappers are reviewed only if those are planned.
    pub(crate) async fn bind(self, plans: Planned) -> anyhow::Result<Option<BoundEndpoint>> {
        let issuer = self.issuer();
        let authorizes = plans.wrappers && self.authorization == Authorization::Webhook;
        if plans.wrappers && !authorizes {
            eprintln!(
                "muster: --authorization=none: the permissions of authors are not checked; who may create AppWrappers in a namespace can create all kinds there that `muster` may create"
            );
        }
        let Some(listen) = self.listen else {
            if authorizes {
                bail!("--authorization=webhook needs an endpoint that serves the webhook: set --endpoint");
            }
            return Ok(None);
        };
        let host = match self.host {
            Some(host) => host,
            None if listen.ip().is_unspecified() => bail!(
                "the API server cannot reach the endpoint at {listen}: set --endpoint-host to an IP address or a DNS name"
            ),
            None => listen.ip().to_string(),
        };
        let webhook =
            authorizes.then_some(Webhook { service: self.webhook_service, port: self.webhook_port });
        let (namespace, service) = (self.namespace, self.service);
        let endpoint = Endpoint { listen, host, namespace, service, webhook, issuer, plans };
        let bound = endpoint.bind().await.context("the endpoint cannot start; choose another --endpoint")?;
        Ok(Some(bound))
    }
}
