//! Leader election: of several controllers one acts, the others stand by until its lease is given back or runs out.
//!
//! The rules are client-go's (`tools/leaderelection/leaderelection.go`): a `coordination.k8s.io/v1` Lease names the leader, every write
//! is guarded by the version that was read, and a lease has run out when nobody was *observed* to renew it for as long as it says: clocks
//! of two machines are never compared. A leader stops well before others may update it for dead.

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

/// Which lease decides who acts, and how long it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderElectionConfig {
    /// Namespace of the lease.
    pub namespace: String,
    /// Name of the lease.
    pub name: String,
    /// Who this controller is; no two may be called the same.
    pub identity: String,
    /// How long the others update a leader for alive that is not heard of. Written in whole seconds.
    pub lease_duration: Duration,
    /// How long a leader goes on without having renewed its lease; shorter than that.
    pub renew_deadline: Duration,
    /// The pause between two tries; shorter still.
    pub retry_period: Duration,
}

impl LeaderElectionConfig {
    /// The lease `kube-system/muster`, with the durations of client-go's users: 15 s, 10 s, 2 s.
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

    /// What is wrong with the durations, if anything is.
    pub fn invalid_reason(&self) -> Option<&'static str> {
        match self {
            _ if self.lease_duration.as_secs() == 0 => Some("a lease takes at least one second"),
            _ if self.lease_duration <= self.renew_deadline => {
                Some("the time to renew has to be shorter than the lease")
            }
            _ if self.renew_deadline <= self.retry_period => {
                Some("the pause between tries has to be shorter than the time to renew")
            }
            _ if self.retry_period.is_zero() => Some("there has to be a pause between tries"),
            _ => None,
        }
    }
}

/// Takes part in an election.
pub(crate) struct Elector {
    client: Client,
    clock: Clock,
    config: LeaderElectionConfig,
    path: ResourcePath,
    observed: Option<ObservedLease>,
}

/// The lease as it was read or written last, and since when it is known to be like that.
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

/// How a try ended.
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

    /// Completes when this controller leads; with the time from which its lease counts.
    pub(crate) async fn acquire(&mut self) -> Instant {
        let mut logged = None;
        loop {
            let started = Instant::now();
            match self.try_acquire_or_renew().await {
                Ok(Leadership::Leader) => {
                    tracing::info!(identity = self.config.identity, "leads");
                    return started;
                }
                Ok(Leadership::Follower(leader)) => {
                    if logged.as_ref() != Some(&leader) {
                        tracing::info!(leader, "stands by");
                        logged = Some(leader);
                    }
                }
                Err(error) => {
                    tracing::warn!(lease = self.name(), %error, "cannot update part in the election, trying again");
                }
            }
            sleep(self.config.retry_period).await;
        }
    }

    /// Renews the lease until that does not work any more, and returns why. Whoever led has to stop then.
    pub(crate) async fn renew_until_lost(&mut self, mut renewed: Instant) -> Error {
        loop {
            sleep(self.config.retry_period).await;
            match timeout_at(renewed + self.config.renew_deadline, self.renew_once()).await {
                Ok(Ok(started)) => renewed = started,
                Ok(Err(leader)) => return Error::LeaseLost(format!("{} is held by {leader}", self.name())),
                Err(_) => {
                    let within = self.config.renew_deadline;
                    return Error::LeaseLost(format!("{} was not renewed within {within:?}", self.name()));
                }
            }
        }
    }

    /// Tries until the lease is renewed, or somebody else has it.
    async fn renew_once(&mut self) -> Result<Instant, String> {
        loop {
            let started = Instant::now();
            match self.try_acquire_or_renew().await {
                Ok(Leadership::Leader) => return Ok(started),
                Ok(Leadership::Follower(leader)) => return Err(leader),
                Err(error) => {
                    tracing::warn!(lease = self.name(), %error, "the lease was not renewed, trying again");
                }
            }
            sleep(self.config.retry_period).await;
        }
    }

    /// Gives the lease back, so that nobody has to wait until it runs out.
    pub(crate) async fn release(&mut self) {
        let Some(ObservedLease { lease, .. }) = self.observed.take() else { return };
        let now = self.now();
        let spec =
            json!({"holderIdentity": null, "leaseDurationSeconds": 1, "renewTime": now, "acquireTime": now});
        let given = timeout_at(
            Instant::now() + self.config.renew_deadline,
            self.write(&lease.metadata.resource_version, &spec),
        );
        match given.await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(lease = self.name(), %error, "the lease was not given back"),
            Err(_) => tracing::warn!(lease = self.name(), "the lease was not given back in time"),
        }
    }

    async fn try_acquire_or_renew(&mut self) -> Result<Leadership, Error> {
        // Who leads need not read: that somebody else has written shows as a conflict.
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

    /// Remembers a lease that was read; returns since when it is known to be like that.
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

    /// Makes a lease ours, or renews it.
    async fn update(&mut self, lease: &Lease) -> Result<(), Error> {
        let taken = self.write(&lease.metadata.resource_version, &self.spec(lease)).await?;
        self.observe(&taken);
        Ok(())
    }

    async fn write(&self, resource_version: &str, spec: &Value) -> Result<Lease, Error> {
        let patch = json!({"metadata": {"resourceVersion": resource_version}, "spec": spec});
        self.path.merge(&self.client, &self.config.name, &patch).await
    }

    /// What a lease says that was `before` and is ours from now on.
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
