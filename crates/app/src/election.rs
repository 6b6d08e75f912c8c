//! Flags of leader election, with the names that Kubernetes components use.

use std::time::Duration;

use anyhow::{Result, bail};
use controllers::LeaderElectionConfig;
use jiff::SignedDuration;

use crate::kubeconfig;

/// Leader election among several controllers.
#[derive(clap::Args)]
#[command(next_help_heading = "Leader election")]
pub(crate) struct LeaderElection {
    /// Act only while holding a lease. Several controllers may run; only the leader acts.
    #[arg(long = "leader-elect", num_args = 0..=1, require_equals = true, default_value_t = true,
        default_missing_value = "true", value_name = "BOOL", action = clap::ArgAction::Set)]
    is_on: bool,
    /// Namespace of the lease. Default: kube-system; with parts that act for Kueue's API, that of Kueue's
    /// lease, if the configuration elects a leader.
    #[arg(long = "leader-elect-resource-namespace", value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Name of the lease. Default: muster; with parts that act for Kueue's API, that of Kueue's lease, if the
    /// configuration elects a leader.
    #[arg(long = "leader-elect-resource-name", value_name = "NAME")]
    name: Option<String>,
    /// How long candidates wait after the last renewal before they take the lease.
    #[arg(long = "leader-elect-lease-duration", value_name = "DURATION", default_value = "12s", value_parser = duration)]
    lease: Duration,
    /// How long a leader tries to renew its lease before it exits.
    #[arg(long = "leader-elect-renew-deadline", value_name = "DURATION", default_value = "8s", value_parser = duration)]
    renew: Duration,
    /// Interval between two attempts to acquire or renew the lease.
    #[arg(long = "leader-elect-retry-period", value_name = "DURATION", default_value = "2s", value_parser = duration)]
    retry: Duration,
}

/// Which lease is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeaseName {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl LeaderElection {
    /// The configuration of leader election; `None` if it is disabled. A controller in Kueue's place holds `kueues` lease, unless
    /// flags name another one, so that the two never act together.
    pub(crate) fn election(self, kueues: Option<LeaseName>) -> Result<Option<LeaderElectionConfig>> {
        if !self.is_on {
            return Ok(None);
        }
        let own = || LeaseName { namespace: "kube-system".into(), name: "muster".into() };
        let default = kueues.unwrap_or_else(own);
        let election = LeaderElectionConfig {
            namespace: self.namespace.unwrap_or(default.namespace),
            name: self.name.unwrap_or(default.name),
            lease_duration: self.lease,
            renew_deadline: self.renew,
            retry_period: self.retry,
            ..LeaderElectionConfig::new(identity()?)
        };
        if let Some(reason) = election.invalid_reason() {
            bail!(
                "{reason}: see --leader-elect-lease-duration, --leader-elect-renew-deadline and --leader-elect-retry-period"
            );
        }
        Ok(Some(election))
    }
}

/// The host name (in a cluster: the pod name) with a random suffix, so that it is unique to the process.
pub(crate) fn identity() -> Result<String> {
    let host = std::env::var("HOSTNAME").or_else(|_| std::fs::read_to_string("/proc/sys/kernel/hostname"));
    let host = host.unwrap_or_else(|_| "muster".into());
    Ok(format!("{}_{}", host.trim(), &kubeconfig::token()?[..16]))
}

/// Parses a duration such as `15s` or `1m30s`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = |error: jiff::Error| format!("{error}; write a duration such as 15s or 1m30s");
    let duration: SignedDuration = text.parse().map_err(wrong)?;
    Duration::try_from(duration).map_err(wrong)
}
