//! Leader election: of several controllers one acts, the others stand by until its lease is given back or runs out.
//!
//! The rules are client-go's (`tools/leaderelection/leaderelection.go`): a `coordination.k8s.io/v1` Lease names the leader, every write
//! is guarded by the version that was read, and a lease has run out when nobody was *seen* to renew it for as long as it says: clocks
//! of two machines are never compared. A leader stops well before others may take it for dead.

use std::time::Duration;

use api::{Meta, MicroTime};
use index::Kind;
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout_at};

use crate::api_calls::Place;
use crate::config::Clock;
use crate::error::Error;

/// Which lease decides who acts, and how long it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Election {
    /// Namespace of the lease.
    pub namespace: String,
    /// Name of the lease.
    pub name: String,
    /// Who this controller is; no two may be called the same.
    pub identity: String,
    /// How long the others take a leader for alive that is not heard of. Written in whole seconds.
    pub lease: Duration,
    /// How long a leader goes on without having renewed its lease; shorter than that.
    pub renew: Duration,
    /// The pause between two tries; shorter still.
    pub retry: Duration,
}

impl Election {
    /// The lease `kube-system/muster`, with the durations of client-go's users: 15 s, 10 s, 2 s.
    pub fn new(identity: impl Into<String>) -> Self {
        Self {
            namespace: "kube-system".into(),
            name: "muster".into(),
            identity: identity.into(),
            lease: Duration::from_secs(15),
            renew: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }

    /// What is wrong with the durations, if anything is.
    pub fn flaw(&self) -> Option<&'static str> {
        match self {
            _ if self.lease.as_secs() == 0 => Some("a lease takes at least one second"),
            _ if self.lease <= self.renew => Some("the time to renew has to be shorter than the lease"),
            _ if self.renew <= self.retry => {
                Some("the pause between tries has to be shorter than the time to renew")
            }
            _ if self.retry.is_zero() => Some("there has to be a pause between tries"),
            _ => None,
        }
    }
}

/// Takes part in an election.
pub(crate) struct Elector {
    client: Client,
    clock: Clock,
    election: Election,
    place: Place,
    seen: Option<Watched>,
}

/// The lease as it was read or written last, and since when it is known to be like that.
struct Watched {
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
enum Standing {
    Leads,
    Follows(String),
}

impl Elector {
    pub(crate) fn new(client: Client, clock: Clock, election: Election) -> Self {
        let place = Place::of(&Kind::new("coordination.k8s.io/v1", "Lease"), "leases", &election.namespace);
        Self { client, clock, election, place, seen: None }
    }

    /// Completes when this controller leads; with the time from which its lease counts.
    pub(crate) async fn acquire(&mut self) -> Instant {
        let mut told = None;
        loop {
            let begun = Instant::now();
            match self.attempt().await {
                Ok(Standing::Leads) => {
                    tracing::info!(identity = self.election.identity, "leads");
                    return begun;
                }
                Ok(Standing::Follows(leader)) => {
                    if told.as_ref() != Some(&leader) {
                        tracing::info!(leader, "stands by");
                        told = Some(leader);
                    }
                }
                Err(error) => {
                    tracing::warn!(lease = self.name(), %error, "cannot take part in the election, trying again");
                }
            }
            sleep(self.election.retry).await;
        }
    }

    /// Renews the lease until that does not work any more, and returns why. Whoever led has to stop then.
    pub(crate) async fn keep(&mut self, mut renewed: Instant) -> Error {
        loop {
            sleep(self.election.retry).await;
            match timeout_at(renewed + self.election.renew, self.renew()).await {
                Ok(Ok(begun)) => renewed = begun,
                Ok(Err(leader)) => return Error::LeaseLost(format!("{} is held by {leader}", self.name())),
                Err(_) => {
                    let within = self.election.renew;
                    return Error::LeaseLost(format!("{} was not renewed within {within:?}", self.name()));
                }
            }
        }
    }

    /// Tries until the lease is renewed, or somebody else has it.
    async fn renew(&mut self) -> Result<Instant, String> {
        loop {
            let begun = Instant::now();
            match self.attempt().await {
                Ok(Standing::Leads) => return Ok(begun),
                Ok(Standing::Follows(leader)) => return Err(leader),
                Err(error) => {
                    tracing::warn!(lease = self.name(), %error, "the lease was not renewed, trying again");
                }
            }
            sleep(self.election.retry).await;
        }
    }

    /// Gives the lease back, so that nobody has to wait until it runs out.
    pub(crate) async fn release(&mut self) {
        let Some(Watched { lease, .. }) = self.seen.take() else { return };
        let now = self.now();
        let spec =
            json!({"holderIdentity": null, "leaseDurationSeconds": 1, "renewTime": now, "acquireTime": now});
        let given = timeout_at(
            Instant::now() + self.election.renew,
            self.write(&lease.metadata.resource_version, &spec),
        );
        match given.await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(lease = self.name(), %error, "the lease was not given back"),
            Err(_) => tracing::warn!(lease = self.name(), "the lease was not given back in time"),
        }
    }

    async fn attempt(&mut self) -> Result<Standing, Error> {
        // Who leads need not read: that somebody else has written shows as a conflict.
        let own = self.seen.as_ref().filter(|seen| self.is_own(&seen.lease)).map(|seen| seen.lease.clone());
        if let Some(own) = own {
            match self.take(&own).await {
                Err(Error::Conflict(_) | Error::NotFound(_)) => {}
                answer => return answer.map(|()| Standing::Leads),
            }
        }
        let lease = match self.place.get::<Lease>(&self.client, &self.election.name).await {
            Ok(lease) => lease,
            Err(Error::NotFound(_)) => return self.create().await,
            Err(error) => return Err(error),
        };
        let since = self.saw(&lease);
        let holder = lease.spec.holder_identity.clone().unwrap_or_default();
        let lasts = lease.spec.lease_duration_seconds.map_or(self.election.lease, Duration::from_secs);
        if !holder.is_empty() && !self.is_own(&lease) && since.elapsed() < lasts {
            return Ok(Standing::Follows(holder));
        }
        match self.take(&lease).await {
            Ok(()) => Ok(Standing::Leads),
            Err(Error::Conflict(_)) => Ok(Standing::Follows("another controller".into())),
            Err(error) => Err(error),
        }
    }

    /// Remembers a lease that was read; returns since when it is known to be like that.
    fn saw(&mut self, lease: &Lease) -> Instant {
        let version = &lease.metadata.resource_version;
        let known = self.seen.as_ref().filter(|seen| seen.lease.metadata.resource_version == *version);
        let since = known.map_or_else(Instant::now, |seen| seen.since);
        self.seen = Some(Watched { lease: lease.clone(), since });
        since
    }

    async fn create(&mut self) -> Result<Standing, Error> {
        let Election { namespace, name, .. } = &self.election;
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "namespace": namespace},
            "spec": self.spec(&Lease::default()),
        });
        match self.place.create::<Lease>(&self.client, &lease).await {
            Ok(lease) => {
                self.saw(&lease);
                Ok(Standing::Leads)
            }
            Err(Error::Exists(_)) => Ok(Standing::Follows("another controller".into())),
            Err(error) => Err(error),
        }
    }

    /// Makes a lease ours, or renews it.
    async fn take(&mut self, lease: &Lease) -> Result<(), Error> {
        let taken = self.write(&lease.metadata.resource_version, &self.spec(lease)).await?;
        self.saw(&taken);
        Ok(())
    }

    async fn write(&self, resource_version: &str, spec: &Value) -> Result<Lease, Error> {
        let patch = json!({"metadata": {"resourceVersion": resource_version}, "spec": spec});
        self.place.merge(&self.client, &self.election.name, &patch).await
    }

    /// What a lease says that was `before` and is ours from now on.
    fn spec(&self, before: &Lease) -> Value {
        let now = self.now();
        let changes_hands = !self.is_own(before);
        let acquired = before.spec.acquire_time.filter(|_| !changes_hands).unwrap_or(now);
        let transitions = before.spec.lease_transitions.map_or(0, |count| count + u64::from(changes_hands));
        json!({
            "holderIdentity": self.election.identity,
            "leaseDurationSeconds": self.election.lease.as_secs(),
            "acquireTime": acquired,
            "renewTime": now,
            "leaseTransitions": transitions,
        })
    }

    fn is_own(&self, lease: &Lease) -> bool {
        lease.spec.holder_identity.as_ref() == Some(&self.election.identity)
    }

    fn now(&self) -> MicroTime {
        MicroTime::from((self.clock)())
    }

    fn name(&self) -> String {
        format!("lease {}/{}", self.election.namespace, self.election.name)
    }
}
