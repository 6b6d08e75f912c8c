//! Leader election: of several controllers, only the holder of the lease is active.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Cluster, Connection, Group, resource};
use controllers::{Config, Controller, Error, LeaderElectionConfig};
use kube::api::{Patch, PatchParams};
use kube::core::ApiResource;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

/// A controller with leader election.
struct Candidate {
    task: JoinHandle<Result<(), Error>>,
    end: Option<oneshot::Sender<()>>,
    connection: Connection,
}

impl Candidate {
    /// Starts a controller whose clock is ahead by so many seconds.
    fn start(cluster: &Cluster, identity: &str, ahead_s: i64) -> Self {
        let connection = cluster.connection();
        let clock = cluster.clock.clone();
        let clock: controllers::Clock = Arc::new(move || clock() + jiff::SignedDuration::from_secs(ahead_s));
        let controller = Controller::new(connection.client.clone(), Config { clock, ..Config::default() });
        let (end, ended) = oneshot::channel::<()>();
        let task = tokio::spawn(controller.run_elected(LeaderElectionConfig::new(identity), async move {
            ended.await.ok();
        }));
        Self { task, end: Some(end), connection }
    }

    /// Stops it as a crash would.
    fn kill(self) {
        self.task.abort();
    }

    /// Requests the shutdown and waits until it is complete.
    async fn end(mut self) -> Result<(), Error> {
        self.end.take().unwrap().send(()).unwrap();
        self.task.await.unwrap()
    }
}

fn leases() -> ApiResource {
    resource("coordination.k8s.io/v1", "Lease", "leases")
}

async fn cluster() -> Cluster {
    let cluster = Cluster::new().await;
    cluster.node("n", &json!({"cpu": "16", "memory": "64Gi", "pods": "110"})).await;
    cluster
}

async fn lease(cluster: &Cluster) -> Value {
    cluster.api(&leases(), "kube-system").get("muster").await.unwrap().data["spec"].clone()
}

async fn wait_leader(cluster: &Cluster, identity: &str) {
    cluster
        .wait(&leases(), "kube-system", "muster", |lease| lease.data["spec"]["holderIdentity"] == identity)
        .await;
}

/// A leader, and a standby that has observed it for a minute.
async fn leader_and_standby() -> (Cluster, Candidate, Candidate) {
    let cluster = cluster().await;
    let first = Candidate::start(&cluster, "first", 0);
    wait_leader(&cluster, "first").await;
    let second = Candidate::start(&cluster, "second", 0);
    tokio::time::sleep(Duration::from_mins(1)).await;
    (cluster, first, second)
}

/// Submits a gang, and returns the time until it is dispatched.
async fn dispatch(cluster: &Cluster, name: &str) -> Duration {
    let begun = Instant::now();
    cluster.submit_config_map(name).await;
    cluster.wait_state(Group::Mcad, name, "Running", "Dispatched").await;
    begun.elapsed()
}

#[tokio::test(start_paused = true)]
async fn the_second_controller_takes_over_when_the_lease_has_expired() {
    let cluster = cluster().await;
    let first = Candidate::start(&cluster, "first", 0);
    wait_leader(&cluster, "first").await;
    let second = Candidate::start(&cluster, "second", 0);
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert!(dispatch(&cluster, "a").await < SECOND);
    assert_eq!(lease(&cluster).await["holderIdentity"], "first");
    first.kill();
    let took = dispatch(&cluster, "b").await;
    // The last renewal is at most 2 s old, and the second controller tries every 2 s.
    assert!((13 * SECOND..18 * SECOND).contains(&took), "it took {took:?}");
    let lease = lease(&cluster).await;
    assert_eq!((&lease["holderIdentity"], &lease["leaseTransitions"]), (&json!("second"), &json!(1)));
    assert_eq!(lease["leaseDurationSeconds"], 15);
    second.end().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_controller_releases_the_lease_at_shutdown() {
    let cluster = cluster().await;
    let first = Candidate::start(&cluster, "first", 0);
    wait_leader(&cluster, "first").await;
    let second = Candidate::start(&cluster, "second", 0);
    assert!(dispatch(&cluster, "a").await < SECOND);
    first.end().await.unwrap();
    assert_eq!(lease(&cluster).await["holderIdentity"], Value::Null);
    let took = dispatch(&cluster, "b").await;
    assert!(took < 3 * SECOND, "it took {took:?}");
    // The waiting controller can shut down, too.
    let third = Candidate::start(&cluster, "third", 0);
    tokio::time::sleep(5 * SECOND).await;
    third.end().await.unwrap();
    assert_eq!(lease(&cluster).await["holderIdentity"], "second");
    second.end().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_leader_without_connection_stops_before_the_next_leader_starts() {
    let (cluster, first, _second) = leader_and_standby().await;
    first.connection.cut();
    let cut = Instant::now();
    let lost = first.task.await.unwrap().unwrap_err();
    let stopped = cut.elapsed();
    assert!((8 * SECOND..=10 * SECOND).contains(&stopped), "it stopped after {stopped:?}");
    assert_eq!(
        lost.to_string(),
        "this controller is not the leader: lease kube-system/muster was not renewed within 10s"
    );
    wait_leader(&cluster, "second").await;
    let followed = cut.elapsed();
    assert!((13 * SECOND..17 * SECOND).contains(&followed), "the next leader started after {followed:?}");
    assert!(dispatch(&cluster, "a").await < SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_standby_without_connection_asks_as_often_as_before() {
    let (cluster, first, second) = leader_and_standby().await;
    second.connection.cut();
    tokio::time::sleep(Duration::from_mins(1)).await;
    // Four times in a retry period of 2 s, also after the lease that it has observed has expired.
    let failed = second.connection.failed();
    assert!((110..=121).contains(&failed), "{failed} requests");
    second.connection.restore();
    assert!(dispatch(&cluster, "a").await < SECOND);
    first.end().await.unwrap();
    wait_leader(&cluster, "second").await;
}

#[tokio::test(start_paused = true)]
async fn a_controller_with_a_wrong_clock_does_not_take_over_a_held_lease() {
    let cluster = cluster().await;
    let _behind = Candidate::start(&cluster, "behind", -3_600);
    wait_leader(&cluster, "behind").await;
    let _ahead = Candidate::start(&cluster, "ahead", 3_600);
    tokio::time::sleep(Duration::from_mins(5)).await;
    let lease = lease(&cluster).await;
    assert_eq!((&lease["holderIdentity"], &lease["leaseTransitions"]), (&json!("behind"), &json!(0)));
}

#[tokio::test(start_paused = true)]
async fn a_modified_or_deleted_lease_does_not_end_the_leadership() {
    let cluster = cluster().await;
    let leader = Candidate::start(&cluster, "leader", 0);
    wait_leader(&cluster, "leader").await;
    let note = json!({"metadata": {"annotations": {"note": "seen"}}});
    let leases = cluster.api(&leases(), "kube-system");
    leases.patch("muster", &PatchParams::default(), &Patch::Merge(note)).await.unwrap();
    tokio::time::sleep(5 * SECOND).await;
    let kept = leases.get("muster").await.unwrap();
    assert_eq!(kept.metadata.annotations.unwrap()["note"], "seen");
    leases.delete("muster", &<_>::default()).await.unwrap();
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(lease(&cluster).await["holderIdentity"], "leader");
    // The leader stops when another controller has taken the lease.
    let taken = json!({"spec": {"holderIdentity": "other", "leaseDurationSeconds": 60}});
    leases.patch("muster", &PatchParams::default(), &Patch::Merge(taken)).await.unwrap();
    let lost = leader.task.await.unwrap().unwrap_err();
    assert_eq!(
        lost.to_string(),
        "this controller is not the leader: lease kube-system/muster is held by other"
    );
    assert_eq!(lease(&cluster).await["holderIdentity"], "other");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_is_not_taken_while_its_holder_may_act() {
    let (cluster, first, _second) = leader_and_standby().await;
    first.connection.cut();
    let cut = Instant::now();
    cluster.api(&leases(), "kube-system").delete("muster", &<_>::default()).await.unwrap();
    first.task.await.unwrap().unwrap_err();
    wait_leader(&cluster, "second").await;
    let followed = cut.elapsed();
    assert!((13 * SECOND..17 * SECOND).contains(&followed), "the next leader started after {followed:?}");
}

#[test]
fn invalid_durations_are_rejected_with_a_reason() {
    let of = |lease: u64, renew: u64, retry: u64| {
        let [lease_duration, renew_deadline, retry_period] = [lease, renew, retry].map(Duration::from_secs);
        LeaderElectionConfig {
            lease_duration,
            renew_deadline,
            retry_period,
            ..LeaderElectionConfig::new("me")
        }
        .invalid_reason()
    };
    assert_eq!(of(15, 10, 2), None);
    assert_eq!(of(0, 0, 0), Some("the lease duration must be at least one second"));
    assert_eq!(of(10, 10, 2), Some("the renew deadline must be shorter than the lease duration"));
    assert_eq!(of(15, 2, 2), Some("the retry period must be shorter than the renew deadline"));
    assert_eq!(of(15, 2, 0), Some("the retry period must not be zero"));
}
