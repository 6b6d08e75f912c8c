//! The lease of leader election: acquires, renews and releases it. What the holder may do, and until when, is in
//! `leadership`.
//!
//! The rules are those of client-go (`tools/leaderelection/leaderelection.go`). A `coordination.k8s.io/v1` Lease
//! names the leader. Every write is conditional on the resource version that was read. A lease has expired when this
//! process has not *observed* a renewal for the duration of the lease; clocks of different machines are never
//! compared. The leadership counts from when the last successful renewal was *sent*, and ends earlier than the lease.

use std::fmt;
use std::time::Duration;

use api::{Meta, MicroTime};
use index::Kind;
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::api_calls::ResourcePath;
use crate::config::Clock;
use crate::error::Error;
use crate::leadership::Leadership;

/// How often a candidate looks at the lease within a retry period.
const LOOKS: u32 = 4;
/// The shortest pause between two looks.
const LOOK_MIN: Duration = Duration::from_millis(10);

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

impl fmt::Display for LeaderElectionConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lease {}/{}", self.namespace, self.name)
    }
}

/// Acquires, renews and releases the lease of one candidate. Nothing may hold up the task that runs it: in a process
/// with other work it has a thread, a runtime and a connection of its own.
pub struct LeaseKeeper {
    clock: Clock,
    config: LeaderElectionConfig,
    leadership: Leadership,
}

impl LeaseKeeper {
    /// A candidate. It sends no request before [`LeaseKeeper::run`].
    pub fn new(clock: Clock, config: LeaderElectionConfig) -> Self {
        let leadership = Leadership::new(&config);
        Self { clock, config, leadership }
    }

    /// What this candidate may do. Shared with the keeper.
    pub fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// Acquires the lease and renews it until the leadership ends. Releases the lease then, unless writes of this
    /// process may still arrive at the API server.
    pub async fn run(self, client: Client) {
        Elector::new(client, self.clock.clone(), self.config.clone()).keep(&self.leadership).await;
    }
}

impl Drop for LeaseKeeper {
    fn drop(&mut self) {
        self.leadership.lose("the task that keeps the lease has ended".into());
    }
}

/// The client side of one lease.
struct Elector {
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
enum Attempt {
    /// This controller holds the lease. The request that acquired or renewed it was sent at this instant.
    Held(Instant),
    /// Another controller holds it.
    HeldBy(String),
    /// Another client has changed the lease in the meantime.
    Changed,
}

impl Elector {
    fn new(client: Client, clock: Clock, config: LeaderElectionConfig) -> Self {
        let path =
            ResourcePath::of(&Kind::new("coordination.k8s.io/v1", "Lease"), "leases", &config.namespace);
        Self { client, clock, config, path, observed: None }
    }

    /// Attempts to acquire the lease, then renews it. A resignation does not abort an attempt: its request might arrive
    /// after the release.
    async fn keep(&mut self, leadership: &Leadership) {
        let mut logged = None;
        loop {
            let attempt = tokio::select! {
                biased;
                _ = leadership.lost() => return,
                attempt = self.attempt_in_time() => attempt,
            };
            let is_answered = attempt.is_ok();
            if is_answered {
                leadership.answered();
            }
            match attempt {
                Ok(Attempt::Held(sent)) => leadership.renewed(sent),
                Ok(Attempt::HeldBy(leader)) if leadership.has_begun() => {
                    leadership.lose(format!("{} is held by {leader}", self.config));
                }
                Ok(Attempt::HeldBy(leader)) => {
                    if logged.as_ref() != Some(&leader) {
                        tracing::info!(target: "leadership", leader, "waits for leadership");
                        logged = Some(leader);
                    }
                }
                Ok(Attempt::Changed) => {}
                Err(error) => {
                    tracing::warn!(lease = %self.config, %error, "the lease was not acquired or renewed, retrying");
                }
            }
            let pause = if leadership.has_begun() {
                self.config.retry_period
            } else if is_answered {
                self.candidate_pause()
            } else {
                // The lease may have expired, but who gets no answer learns nothing by asking more often.
                self.config.retry_period / LOOKS
            };
            tokio::select! {
                () = leadership.ended() => break,
                () = sleep(pause) => {}
            }
        }
        if leadership.permits_release() {
            self.release().await;
        }
    }

    /// How long a candidate waits until its next attempt: it notices within a quarter of the retry period that the lease is
    /// released, and at once that it has expired.
    fn candidate_pause(&self) -> Duration {
        let Some(ObservedLease { lease, since }) = &self.observed else { return self.config.retry_period };
        let left = self.duration_of(lease).saturating_sub(since.elapsed());
        (self.config.retry_period / LOOKS).min(left).max(LOOK_MIN)
    }

    /// For how long a lease counts as held after it was observed.
    fn duration_of(&self, lease: &Lease) -> Duration {
        lease.spec.lease_duration_seconds.map_or(self.config.lease_duration, Duration::from_secs)
    }

    /// One attempt. It may take half of the renew deadline, as in client-go: the next one uses another connection.
    async fn attempt_in_time(&mut self) -> Result<Attempt, Error> {
        let limit = self.config.renew_deadline / 2;
        let attempt = timeout(limit, self.attempt()).await;
        attempt.unwrap_or_else(|_| Err(Error::Unreachable(format!("no answer within {limit:?}"))))
    }

    /// Releases the lease if this controller holds it, so that the next leader does not have to wait until it expires.
    async fn release(&mut self) {
        let held = self.observed.take().filter(|observed| self.is_held_by_self(&observed.lease));
        let Some(ObservedLease { lease, .. }) = held else { return };
        let now = self.now();
        let spec =
            json!({"holderIdentity": null, "leaseDurationSeconds": 1, "renewTime": now, "acquireTime": now});
        let write = self.write(&lease.metadata.resource_version, &spec);
        match timeout(self.config.renew_deadline, write).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(lease = %self.config, %error, "the lease was not released"),
            Err(_) => tracing::warn!(lease = %self.config, "the lease was not released in time"),
        }
    }

    async fn attempt(&mut self) -> Result<Attempt, Error> {
        // The holder writes without reading first. A write of another controller causes a conflict.
        let held = self.observed.as_ref().map(|observed| &observed.lease);
        if let Some(held) = held.filter(|lease| self.is_held_by_self(lease)).cloned() {
            match self.update(&held).await {
                Err(Error::Conflict(_) | Error::NotFound(_)) => {}
                answer => return answer.map(Attempt::Held),
            }
        }
        let lease = match self.path.get::<Lease>(&self.client, &self.config.name).await {
            Ok(lease) => {
                self.observe(&lease, Instant::now());
                Some(lease)
            }
            Err(Error::NotFound(_)) => None,
            Err(error) => return Err(error),
        };
        // Also the holder of a lease that was deleted acts until its next renewal.
        if let Some(leader) = self.live_holder() {
            return Ok(Attempt::HeldBy(leader));
        }
        let written = match &lease {
            Some(lease) => self.update(lease).await,
            None => self.create().await,
        };
        match written {
            Ok(sent) => Ok(Attempt::Held(sent)),
            Err(Error::Conflict(_) | Error::Exists(_)) => Ok(Attempt::Changed),
            Err(error) => Err(error),
        }
    }

    /// The other controller that holds the lease as it was observed last, unless the lease has expired.
    fn live_holder(&self) -> Option<String> {
        let ObservedLease { lease, since } = self.observed.as_ref()?;
        let duration = self.duration_of(lease);
        let holder = lease.spec.holder_identity.clone().filter(|holder| !holder.is_empty())?;
        (!self.is_held_by_self(lease) && since.elapsed() < duration).then_some(holder)
    }

    /// Stores an observed lease. Its resource version counts from the first observation.
    fn observe(&mut self, lease: &Lease, now: Instant) {
        let version = &lease.metadata.resource_version;
        let known =
            self.observed.as_ref().filter(|observed| observed.lease.metadata.resource_version == *version);
        let since = known.map_or(now, |observed| observed.since);
        self.observed = Some(ObservedLease { lease: lease.clone(), since });
    }

    /// Creates the lease. Returns when the request was sent.
    async fn create(&mut self) -> Result<Instant, Error> {
        let LeaderElectionConfig { namespace, name, .. } = &self.config;
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "namespace": namespace},
            "spec": self.spec(&Lease::default()),
        });
        let sent = Instant::now();
        let created = self.path.create::<Lease>(&self.client, &lease).await?;
        self.observe(&created, sent);
        Ok(sent)
    }

    /// Acquires or renews the lease. Returns when the request was sent.
    async fn update(&mut self, lease: &Lease) -> Result<Instant, Error> {
        let sent = Instant::now();
        let taken = self.write(&lease.metadata.resource_version, &self.spec(lease)).await?;
        self.observe(&taken, sent);
        Ok(sent)
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
}
