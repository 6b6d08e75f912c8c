//! Metrics and probes of `muster controller`: flags, addresses and servers.

use std::io;
use std::path::PathBuf;

use anyhow::{Context, Result};
use controllers::{Metrics, Role};
use kube::Client;
use server::{Condition, MetricsServer, Readiness, TlsOptions};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Flags of metrics and probes, with the names that controllers of kubebuilder use.
#[derive(clap::Args)]
#[command(next_help_heading = "Metrics and probes")]
pub(crate) struct TelemetryArgs {
    /// Serve metrics for Prometheus on this address, such as :8443. On loopback over plain HTTP; elsewhere over TLS, to
    /// clients that may get the path /metrics. 0: nowhere. Default: `metrics.bindAddress` of --config, or nowhere.
    #[arg(long, value_name = "ADDRESS")]
    metrics_bind_address: Option<String>,
    /// The folder with the certificate of the metrics, tls.crt and tls.key. Default: the process signs one itself.
    #[arg(long, value_name = "DIR")]
    metrics_cert_path: Option<PathBuf>,
    /// Serve /healthz and /readyz on this address over plain HTTP, such as :8081. 0: nowhere. Default: `health` of
    /// --config, or nowhere.
    #[arg(long, value_name = "ADDRESS")]
    health_probe_bind_address: Option<String>,
}

/// An address, and the flag or field that names it.
pub(crate) struct Address {
    pub(crate) text: String,
    pub(crate) named_by: &'static str,
}

/// What is served where.
pub(crate) struct Telemetry {
    pub(crate) metrics: Address,
    /// The folder with the certificate of the metrics.
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) tls: TlsOptions,
    pub(crate) probes: Address,
    /// The paths of the probes.
    pub(crate) alive: String,
    pub(crate) ready: String,
}

/// What the process is doing.
#[derive(Clone, Default)]
pub(crate) struct Activity {
    /// It acts only with a lease.
    pub(crate) elects: bool,
    /// It acts.
    pub(crate) leads: Readiness,
    /// What must hold before it is ready.
    pub(crate) conditions: Vec<Condition>,
}

impl Activity {
    fn role(&self) -> Role {
        match (self.elects, self.leads.is_set()) {
            (false, _) => Role::Standalone,
            (true, true) => Role::Leader,
            (true, false) => Role::Follower,
        }
    }
}

impl Default for Telemetry {
    fn default() -> Self {
        let nowhere = |named_by| Address { text: "0".into(), named_by };
        Self {
            metrics: nowhere("--metrics-bind-address"),
            certificate: None,
            tls: TlsOptions::default(),
            probes: nowhere("--health-probe-bind-address"),
            alive: "healthz".into(),
            ready: "readyz".into(),
        }
    }
}

impl TelemetryArgs {
    /// Flags win over a configuration.
    pub(crate) fn over(self, mut telemetry: Telemetry) -> Telemetry {
        if let Some(text) = self.metrics_bind_address {
            telemetry.metrics = Address { text, named_by: "--metrics-bind-address" };
        }
        if let Some(text) = self.health_probe_bind_address {
            telemetry.probes = Address { text, named_by: "--health-probe-bind-address" };
        }
        telemetry.certificate = self.metrics_cert_path.or(telemetry.certificate);
        telemetry
    }
}

impl Telemetry {
    /// Serves until the value is dropped. The set of servers ends when one of them fails.
    pub(crate) async fn serve(
        self,
        client: Client,
        metrics: Metrics,
        activity: Activity,
    ) -> Result<JoinSet<io::Result<()>>> {
        let mut servers = JoinSet::new();
        if let Some(listener) = bind(&self.probes.text, self.probes.named_by).await? {
            let router = server::probes(&self.alive, &self.ready, activity.conditions.clone());
            servers.spawn(async move { axum::serve(listener, router).await });
        }
        let Some(listener) = bind(&self.metrics.text, self.metrics.named_by).await? else {
            return Ok(servers);
        };
        let router = server::metrics(move || metrics.text(activity.role()));
        let address = listener.local_addr().context("the metrics cannot be served")?;
        let scheme = if address.ip().is_loopback() { "http" } else { "https" };
        println!("metrics are served at {scheme}://{address}/metrics");
        if address.ip().is_loopback() {
            servers.spawn(async move { axum::serve(listener, router).await });
            return Ok(servers);
        }
        let server = MetricsServer::new(listener, self.certificate.as_deref(), self.tls, client)
            .with_context(|| format!("{}: the metrics cannot be served", self.metrics.named_by))?;
        servers.spawn(async move {
            server.run(router, std::future::pending()).await;
            Ok(())
        });
        Ok(servers)
    }
}

/// Listens on an address as Go writes it: `:8443` is all interfaces, `0` is none.
pub(crate) async fn bind(address: &str, named_by: &str) -> Result<Option<TcpListener>> {
    if address == "0" {
        return Ok(None);
    }
    let full = if address.starts_with(':') { format!("0.0.0.0{address}") } else { address.to_owned() };
    let listener = TcpListener::bind(&full).await;
    listener.map(Some).with_context(|| format!("{named_by}: cannot listen on {address:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_is_one_of_go() {
        assert!(bind("0", "health").await.unwrap().is_none());
        assert!(bind(":0", "health").await.unwrap().is_some());
        assert!(bind("127.0.0.1:0", "health").await.unwrap().is_some());
        let wrong = bind("8443", "metrics.bindAddress").await.unwrap_err();
        assert_eq!(wrong.to_string(), "metrics.bindAddress: cannot listen on \"8443\"");
    }

    #[test]
    fn a_flag_wins_over_the_configuration() {
        let configured = || Telemetry {
            metrics: Address { text: ":8443".into(), named_by: "metrics.bindAddress" },
            ..Telemetry::default()
        };
        let flags = |metrics: Option<&str>| TelemetryArgs {
            metrics_bind_address: metrics.map(Into::into),
            metrics_cert_path: None,
            health_probe_bind_address: None,
        };
        assert_eq!(flags(None).over(configured()).metrics.text, ":8443");
        let changed = flags(Some("127.0.0.1:9090")).over(configured()).metrics;
        assert_eq!((&*changed.text, changed.named_by), ("127.0.0.1:9090", "--metrics-bind-address"));
    }
}
