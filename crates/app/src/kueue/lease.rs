//! The lease that Kueue holds while it acts.

use std::time::Duration;

use anyhow::{Result, bail};
use api::kueue::config::GoDuration;
use controllers::LeaderElectionConfig;

use super::Kueue;
use crate::election::{LeaseName, identity};

impl Kueue {
    /// The lease that a Kueue with this configuration holds while it acts; none if its leader election is off, or if this process
    /// does not write about Kueue's objects.
    ///
    /// # Errors
    /// The configuration names a lock that is no lease.
    pub(super) fn lease(&self) -> Result<Option<LeaseName>> {
        let fields = &self.configuration.fields;
        let election = fields.leader_election.clone().unwrap_or_default();
        if !self.acts() || election.leader_elect != Some(true) {
            return Ok(None);
        }
        if election.resource_lock.as_deref() != Some("leases") {
            bail!("leaderElection.resourceLock: only leases are supported");
        }
        let own = fields.namespace.clone().unwrap_or_default();
        Ok(Some(LeaseName {
            namespace: election.resource_namespace.filter(|name| !name.is_empty()).unwrap_or(own),
            name: election.resource_name.unwrap_or_default(),
        }))
    }

    /// The configuration of leader election; `None` if it is off, or if no part needs it.
    pub(super) fn election(&self) -> Result<Option<LeaderElectionConfig>> {
        let Some(LeaseName { namespace, name }) = self.lease()?.filter(|_| !self.is_shared) else {
            return Ok(None);
        };
        let election = self.configuration.fields.leader_election.clone().unwrap_or_default();
        let config = LeaderElectionConfig {
            namespace,
            name,
            lease_duration: duration(election.lease_duration),
            renew_deadline: duration(election.renew_deadline),
            retry_period: duration(election.retry_period),
            ..LeaderElectionConfig::new(identity()?)
        };
        match config.invalid_reason() {
            Some(reason) => bail!("leaderElection: {reason}"),
            None => Ok(Some(config)),
        }
    }
}

/// A negative duration is zero, which leader election refuses.
fn duration(duration: Option<GoDuration>) -> Duration {
    duration.and_then(|duration| Duration::try_from(duration.0).ok()).unwrap_or_default()
}
