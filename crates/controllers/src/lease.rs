//! Leader election: one controller is active; the others wait until its lease is released or expires.
//!
//! The rules are those of client-go (`tools/leaderelection/leaderelection.go`). A `coordination.k8s.io/v1` Lease
//! names the leader. Every write is conditional on the resource version that was read. A lease has expired when this
//! process has not *observed* a renewal for the duration of the lease; clocks of different machines are never
//! compared. The leader stops before other controllers may take over its lease.

use std::time::Duration;

use api::{Meta, MicroTime};
use index::Kind;
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout_at};

use crate::api_calls::ResourcePath;
use crate::config::Clock;
use crate::error::Error;

/// Configuration of the leader election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderElectionConfig {
    /// Namespace of the lease.
    pub namespace: String,
    /// Name of the lease.
    pub name: String,
    /// Identity of this controller; unique among all controllers.
    pub identity: String,
    /// How long other controllers wait after the last observed renewal before they take over the lease. Whole
    /// seconds.
    pub lease_duration: Duration,
    /// How long the leader stays active without a successful renewal. Shorter than `lease_duration`.
    pub renew_deadline: Duration,
    /// Delay between two attempts. Shorter than `renew_deadline`.
    pub retry_period: Duration,
}

impl LeaderElectionConfig {
    /// The lease `kube-system/muster`, with the default durations of Kubernetes components: 15 s, 10 s, 2 s.
    pub fn new(identity: impl Into<String>) -> Self {
        Self {
            namespace: "kube-system".into(),
            name: "muster".into(),
            identity: identity.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }

    /// Why the durations are invalid, if they are.
    pub fn invalid_reason(&self) -> Option<&'static str> {
        match self {
            _ if self.lease_duration.as_secs() == 0 => Some("the lease duration must be at least one second"),
            _ if self.lease_duration <= self.renew_deadline => {
                Some("the renew deadline must be shorter than the lease duration")
            }
            _ if self.renew_deadline <= self.retry_period => {
                Some("the retry period must be shorter than the renew deadline")
            }
            _ if self.retry_period.is_zero() => Some("the retry period must not be zero"),
            _ => None,
        }
    }
}

/// Acquires, renews and releases the lease.
pub(crate) struct Elector {
    client: Client,
    clock: Clock,
    config: LeaderElectionConfig,
    path: ResourcePath,
    observed: Option<ObservedLease>,
}

/// The lease as it was read or written last, and when this resource version was observed first.
struct ObservedLease {
    lease: Lease,
    since: Instant,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Lease {
    metadata: Meta,
    spec: Spec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<u64>,
    acquire_time: Option<MicroTime>,
    lease_transitions: Option<u64>,
}

/// The result of an attempt.
enum Leadership {
    Leader,
    Follower(String),
}

impl Elector {
    pub(crate) fn new(client: Client, clock: Clock, config: LeaderElectionConfig) -> Self {
        let path =
            ResourcePath::of(&Kind::new("coordination.k8s.io/v1", "Lease"), "leases", &config.namespace);
        Self { client, clock, config, path, observed: None }
    }

    /// Completes when this controller is the leader. Returns the time from which the lease counts.
    pub(crate) async fn acquire(&mut self) -> Instant {
        let mut logged = None;
        loop {
            let started = Instant::now();
            match self.try_acquire_or_renew().await {
                Ok(Leadership::Leader) => {
                    tracing::info!(identity = self.config.identity, "became the leader");
                    return started;
                }
                Ok(Leadership::Follower(leader)) => {
                    if logged.as_ref() != Some(&leader) {
                        tracing::info!(leader, "waits for leadership");
                        logged = Some(leader);
                    }
                }
                Err(error) => {
                    tracing::warn!(lease = self.name(), %error, "leader election failed, retrying");
                }
            }
            sleep(self.config.retry_period).await;
        }
    }

    /// Renews the lease until the renewal fails. Returns the cause. The controller must stop then.
    pub(crate) async fn renew_until_lost(&mut self, mut renewed: Instant) -> Error {
        loop {
            sleep(self.config.retry_period).await;
            match timeout_at(renewed + self.config.renew_deadline, self.renew()).await {
                Ok(Ok(started)) => renewed = started,
                Ok(Err(leader)) => return Error::LeaseLost(format!("{} is held by {leader}", self.name())),
                Err(_) => {
                    let within = self.config.renew_deadline;
                    return Error::LeaseLost(format!("{} was not renewed within {within:?}", self.name()));
                }
            }
        }
    }

    /// Retries until the lease is renewed or another controller holds it.
    async fn renew(&mut self) -> Result<Instant, String> {
        loop {
            let started = Instant::now();
            match self.try_acquire_or_renew().await {
                Ok(Leadership::Leader) => return Ok(started),
                Ok(Leadership::Follower(leader)) => return Err(leader),
                Err(error) => {
                    tracing::warn!(lease = self.name(), %error, "the lease was not renewed, retrying");
                }
            }
            sleep(self.config.retry_period).await;
        }
    }

    /// Releases the lease, so that the next leader does not have to wait until it expires.
    pub(crate) async fn release(&mut self) {
        let Some(ObservedLease { lease, .. }) = self.observed.take() else { return };
        let now = self.now();
        let spec =
            json!({"holderIdentity": null, "leaseDurationSeconds": 1, "renewTime": now, "acquireTime": now});
        let released = timeout_at(
            Instant::now() + self.config.renew_deadline,
            self.write(&lease.metadata.resource_version, &spec),
        );
        match released.await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(lease = self.name(), %error, "the lease was not released"),
            Err(_) => tracing::warn!(lease = self.name(), "the lease was not released in time"),
        }
    }

    async fn try_acquire_or_renew(&mut self) -> Result<Leadership, Error> {
        // The leader writes without reading first. A write of another controller causes a conflict.
        let held = self
            .observed
            .as_ref()
            .filter(|observed| self.is_held_by_self(&observed.lease))
            .map(|observed| observed.lease.clone());
        if let Some(held) = held {
            match self.update(&held).await {
                Err(Error::Conflict(_) | Error::NotFound(_)) => {}
                answer => return answer.map(|()| Leadership::Leader),
            }
        }
        let lease = match self.path.get::<Lease>(&self.client, &self.config.name).await {
            Ok(lease) => lease,
            Err(Error::NotFound(_)) => return self.create().await,
            Err(error) => return Err(error),
        };
        let since = self.observe(&lease);
        let holder = lease.spec.holder_identity.clone().unwrap_or_default();
        let duration =
            lease.spec.lease_duration_seconds.map_or(self.config.lease_duration, Duration::from_secs);
        if !holder.is_empty() && !self.is_held_by_self(&lease) && since.elapsed() < duration {
            return Ok(Leadership::Follower(holder));
        }
        match self.update(&lease).await {
            Ok(()) => Ok(Leadership::Leader),
            Err(Error::Conflict(_)) => Ok(Leadership::Follower("another controller".into())),
            Err(error) => Err(error),
        }
    }

    /// Stores an observed lease. Returns when its resource version was observed first.
    fn observe(&mut self, lease: &Lease) -> Instant {
        let version = &lease.metadata.resource_version;
        let known =
            self.observed.as_ref().filter(|observed| observed.lease.metadata.resource_version == *version);
        let since = known.map_or_else(Instant::now, |observed| observed.since);
        self.observed = Some(ObservedLease { lease: lease.clone(), since });
        since
    }

    async fn create(&mut self) -> Result<Leadership, Error> {
        let LeaderElectionConfig { namespace, name, .. } = &self.config;
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "namespace": namespace},
            "spec": self.spec(&Lease::default()),
        });
        match self.path.create::<Lease>(&self.client, &lease).await {
            Ok(lease) => {
                self.observe(&lease);
                Ok(Leadership::Leader)
            }
            Err(Error::Exists(_)) => Ok(Leadership::Follower("another controller".into())),
            Err(error) => Err(error),
        }
    }

    /// Acquires or renews the lease.
    async fn update(&mut self, lease: &Lease) -> Result<(), Error> {
        let taken = self.write(&lease.metadata.resource_version, &self.spec(lease)).await?;
        self.observe(&taken);
        Ok(())
    }

    async fn write(&self, resource_version: &str, spec: &Value) -> Result<Lease, Error> {
        let patch = json!({"metadata": {"resourceVersion": resource_version}, "spec": spec});
        self.path.merge(&self.client, &self.config.name, &patch).await
    }

    /// The new spec of a lease that was `before`, with this controller as the holder.
    fn spec(&self, before: &Lease) -> Value {
        let now = self.now();
        let changes_hands = !self.is_held_by_self(before);
        let acquired = before.spec.acquire_time.filter(|_| !changes_hands).unwrap_or(now);
        let transitions = before.spec.lease_transitions.map_or(0, |count| count + u64::from(changes_hands));
        json!({
            "holderIdentity": self.config.identity,
            "leaseDurationSeconds": self.config.lease_duration.as_secs(),
            "acquireTime": acquired,
            "renewTime": now,
            "leaseTransitions": transitions,
        })
    }

    fn is_held_by_self(&self, lease: &Lease) -> bool {
        lease.spec.holder_identity.as_ref() == Some(&self.config.identity)
    }

    fn now(&self) -> MicroTime {
        MicroTime::from((self.clock)())
    }

    fn name(&self) -> String {
        format!("lease {}/{}", self.config.namespace, self.config.name)
    }
}
