//! Flags of leader election, named as those of Kubernetes' own components.

use std::time::Duration;

use anyhow::{Result, bail};
use controllers::LeaderElectionConfig;
use jiff::SignedDuration;

use crate::kubeconfig;

/// Whether, and by which lease, several controllers agree on one that acts.
#[derive(clap::Args)]
pub(crate) struct LeaderElection {
    /// Act only while holding a lease, so that several controllers can run and one at a time acts.
    #[arg(long = "leader-elect", num_args = 0..=1, require_equals = true, default_value_t = true,
        default_missing_value = "true", value_name = "BOOL", action = clap::ArgAction::Set)]
    is_on: bool,
    /// Namespace of the lease.
    #[arg(long = "leader-elect-resource-namespace", value_name = "NAMESPACE", default_value = "kube-system")]
    namespace: String,
    /// Name of the lease.
    #[arg(long = "leader-elect-resource-name", value_name = "NAME", default_value = "muster")]
    name: String,
    /// How long the others take a leader for alive that is not heard of.
    #[arg(long = "leader-elect-lease-duration", value_name = "DURATION", default_value = "15s", value_parser = duration)]
    lease: Duration,
    /// How long a leader goes on without having renewed its lease; it ends then.
    #[arg(long = "leader-elect-renew-deadline", value_name = "DURATION", default_value = "10s", value_parser = duration)]
    renew: Duration,
    /// The pause between two tries to get or to renew the lease.
    #[arg(long = "leader-elect-retry-period", value_name = "DURATION", default_value = "2s", value_parser = duration)]
    retry: Duration,
}

impl LeaderElection {
    /// The election to take part in, if any.
    pub(crate) fn election(self) -> Result<Option<LeaderElectionConfig>> {
        if !self.is_on {
            return Ok(None);
        }
        let election = LeaderElectionConfig {
            namespace: self.namespace,
            name: self.name,
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

/// The host, which is the pod in a cluster, and a word that no other process of it has.
fn identity() -> Result<String> {
    let host = std::env::var("HOSTNAME").or_else(|_| std::fs::read_to_string("/proc/sys/kernel/hostname"));
    let host = host.unwrap_or_else(|_| "muster".into());
    Ok(format!("{}_{}", host.trim(), &kubeconfig::token()?[..16]))
}

fn duration(text: &str) -> Result<Duration, String> {
    let wrong = |error: jiff::Error| format!("{error}; write it like 15s or 1m30s");
    let duration: SignedDuration = text.parse().map_err(wrong)?;
    Duration::try_from(duration).map_err(wrong)
}
