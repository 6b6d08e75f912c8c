//! At most one leader acts: every write reaches the API server while its sender holds the lease.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{Cluster, Group, resource};
use controllers::{Clock, Config, Controller, Error, LeaderElectionConfig};
use kube::Client;
use kube::client::Body;
use kube::core::ApiResource;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tower::ServiceExt;

const SECOND: Duration = Duration::from_secs(1);
/// The longest way of a request to the API server: less than the lease duration minus the renew deadline.
const DELAY_MAX_MS: u64 = 4_500;

/// How requests of one controller reach the API server.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Network {
    /// After this delay, even if the sender does not wait any more. The answer takes the same time again.
    Delayed(Duration),
    /// Not at all: an error at once.
    Failing,
    /// Not at all, and no answer comes.
    Hanging,
}

const OPEN: Network = Network::Delayed(Duration::ZERO);

/// A write that has reached the API server.
#[derive(Debug, Clone)]
struct Write {
    by: String,
    #[allow(dead_code, reason = "printed when the test fails")]
    what: String,
    at: Instant,
    /// The holder of the lease at this instant.
    holder: Option<String>,
}

type Writes = Arc<Mutex<Vec<Write>>>;

/// A controller with leader election.
struct Candidate {
    task: JoinHandle<Result<(), Error>>,
    end: Option<oneshot::Sender<()>>,
    network: Arc<Mutex<Network>>,
}

impl Candidate {
    /// Starts a controller whose clock is ahead by so many seconds.
    fn start(cluster: &Cluster, writes: &Writes, identity: &str, ahead_s: i64) -> Self {
        let network = Arc::new(Mutex::new(OPEN));
        let client = client(cluster, writes, identity, &network);
        let clock = cluster.clock.clone();
        let clock: Clock = Arc::new(move || clock() + jiff::SignedDuration::from_secs(ahead_s));
        let controller = Controller::new(client, Config { clock, ..Config::default() });
        let (end, ended) = oneshot::channel::<()>();
        let task = tokio::spawn(controller.run_elected(LeaderElectionConfig::new(identity), async move {
            ended.await.ok();
        }));
        Self { task, end: Some(end), network }
    }

    fn set(&self, network: Network) {
        *self.network.lock().unwrap() = network;
    }

    /// Requests the shutdown. Does not wait.
    fn shut_down(&mut self) {
        if let Some(end) = self.end.take() {
            end.send(()).ok();
        }
    }
}

/// A client of one controller. Records its writes, without those of the lease.
fn client(cluster: &Cluster, writes: &Writes, identity: &str, network: &Arc<Mutex<Network>>) -> Client {
    let (service, direct) = (cluster.service.clone(), cluster.client.clone());
    let (writes, identity, network) = (writes.clone(), identity.to_owned(), network.clone());
    let deliver = move |request: http::Request<Body>| {
        let (service, direct) = (service.clone(), direct.clone());
        let (writes, identity, network) = (writes.clone(), identity.clone(), network.clone());
        async move {
            let delay = match *network.lock().unwrap() {
                Network::Delayed(delay) => Some(delay),
                Network::Failing => return Err(std::io::Error::other("cut off")),
                Network::Hanging => None,
            };
            let Some(delay) = delay else { return std::future::pending().await };
            let arrived = tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                let is_lease = request.uri().path().contains("/leases");
                if !request.method().is_safe() && !is_lease {
                    let holder = holder(&direct).await;
                    let what = format!("{} {}", request.method(), request.uri().path());
                    writes.lock().unwrap().push(Write { by: identity, what, at: Instant::now(), holder });
                }
                service.oneshot(request).await.unwrap()
            });
            let answer = arrived.await.unwrap();
            tokio::time::sleep(delay).await;
            Ok(answer)
        }
    };
    Client::new(tower::service_fn(deliver), "default")
}

fn leases() -> ApiResource {
    resource("coordination.k8s.io/v1", "Lease", "leases")
}

async fn holder(client: &Client) -> Option<String> {
    let leases =
        kube::Api::<kube::api::DynamicObject>::namespaced_with(client.clone(), "kube-system", &leases());
    let lease = leases.get_opt("muster").await.unwrap();
    lease.and_then(|lease| lease.data["spec"]["holderIdentity"].as_str().map(str::to_owned))
}

async fn cluster() -> Cluster {
    let cluster = Cluster::new().await;
    cluster.node("n", &json!({"cpu": "16", "memory": "64Gi", "pods": "110"})).await;
    cluster
}

async fn wait_leader(cluster: &Cluster, identity: &str) {
    cluster
        .wait(&leases(), "kube-system", "muster", |lease| lease.data["spec"]["holderIdentity"] == identity)
        .await;
}

/// Submits a gang every two seconds, so that the leader has something to write.
fn keep_busy(cluster: &Arc<Cluster>) -> JoinHandle<()> {
    let cluster = cluster.clone();
    tokio::spawn(async move {
        for at in 0_u32.. {
            cluster.submit_config_map(&format!("busy-{at}")).await;
            tokio::time::sleep(2 * SECOND).await;
        }
    })
}

/// Asserts that every write arrived while its sender held the lease.
fn check(writes: &Writes) {
    let writes = writes.lock().unwrap();
    let stray: Vec<_> = writes.iter().filter(|write| write.holder.as_ref() != Some(&write.by)).collect();
    assert!(
        stray.is_empty(),
        "{} of {} writes arrived without the lease: {stray:#?}",
        stray.len(),
        writes.len()
    );
}

/// The instant of the last write of a controller.
fn last_write(writes: &Writes, by: &str) -> Instant {
    writes.lock().unwrap().iter().filter(|write| write.by == by).map(|write| write.at).max().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_requests_hang_or_fail_writes_no_more_before_another_one_may() {
    // A request that takes 8 s exceeds the timeout of one attempt.
    for network in [Network::Hanging, Network::Failing, Network::Delayed(4 * SECOND)] {
        let (cluster, writes) = (Arc::new(cluster().await), Writes::default());
        let first = Candidate::start(&cluster, &writes, "first", 0);
        wait_leader(&cluster, "first").await;
        let _second = Candidate::start(&cluster, &writes, "second", 0);
        let busy = keep_busy(&cluster);
        tokio::time::sleep(30 * SECOND).await;
        first.set(network);
        let cut = Instant::now();
        let lost = first.task.await.unwrap().unwrap_err();
        let stopped = cut.elapsed();
        assert!(stopped <= 10 * SECOND, "{network:?}: it stopped after {stopped:?}");
        assert_eq!(
            lost.to_string(),
            "this controller is not the leader: lease kube-system/muster was not renewed within 10s"
        );
        wait_leader(&cluster, "second").await;
        let followed = Instant::now();
        tokio::time::sleep(60 * SECOND).await;
        check(&writes);
        assert!(last_write(&writes, "first") < followed);
        assert!(last_write(&writes, "second") > followed);
        busy.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_the_writes_in_flight_before_it_releases_the_lease() {
    let (cluster, writes) = (Arc::new(cluster().await), Writes::default());
    let mut first = Candidate::start(&cluster, &writes, "first", 0);
    wait_leader(&cluster, "first").await;
    let _second = Candidate::start(&cluster, &writes, "second", 0);
    let busy = keep_busy(&cluster);
    tokio::time::sleep(10 * SECOND).await;
    first.set(Network::Delayed(Duration::from_millis(1_500)));
    // Shuts down when a write is on its way.
    tokio::time::sleep(Duration::from_millis(2_100)).await;
    first.shut_down();
    let begun = Instant::now();
    first.task.await.unwrap().unwrap();
    wait_leader(&cluster, "second").await;
    let took = begun.elapsed();
    assert!(took < 9 * SECOND, "the next leader started after {took:?}");
    tokio::time::sleep(20 * SECOND).await;
    check(&writes);
    assert!(last_write(&writes, "first") > begun, "no write was on its way");
    busy.abort();
}

/// A random sequence that a seed determines (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % end
    }

    fn network(&mut self) -> Network {
        match self.below(5) {
            0 => Network::Failing,
            1 => Network::Hanging,
            2 => OPEN,
            _ => Network::Delayed(Duration::from_millis(self.below(DELAY_MAX_MS))),
        }
    }
}

/// Cuts, delays, crashes, shutdowns and restarts of three controllers with different clocks, for four minutes.
/// Returns the number of writes and of leaders.
async fn disturbed(seed: u64) -> (usize, usize) {
    let (cluster, writes) = (Arc::new(cluster().await), Writes::default());
    let mut random = Random(seed);
    let mut candidates: Vec<Candidate> = Vec::new();
    let mut started = 0;
    let busy = keep_busy(&cluster);
    let ends = Instant::now() + Duration::from_mins(4);
    while Instant::now() < ends {
        candidates.retain(|candidate| !candidate.task.is_finished());
        while candidates.len() < 3 {
            let ahead_s = i64::try_from(random.below(7_200)).unwrap() - 3_600;
            candidates.push(Candidate::start(&cluster, &writes, &format!("c{started}"), ahead_s));
            started += 1;
        }
        let at = usize::try_from(random.below(3)).unwrap();
        match random.below(12) {
            0 => candidates.remove(at).task.abort(),
            1 | 2 => candidates[at].shut_down(),
            _ => candidates[at].set(random.network()),
        }
        tokio::time::sleep(Duration::from_millis(random.below(8_000))).await;
    }
    for candidate in &candidates {
        candidate.set(OPEN);
    }
    if candidates.iter().all(|candidate| candidate.end.is_none()) {
        candidates.push(Candidate::start(&cluster, &writes, "last", 0));
    }
    cluster.submit_config_map("at-the-end").await;
    cluster.wait_state(Group::Mcad, "at-the-end", "Running", "Dispatched").await;
    busy.abort();
    check(&writes);
    let writes = writes.lock().unwrap();
    let by: BTreeSet<&str> = writes.iter().map(|write| &*write.by).collect();
    (writes.len(), by.len())
}

#[tokio::test(start_paused = true)]
async fn no_two_controllers_both_write_whatever_the_network_and_the_clocks_do() {
    let seeds = std::env::var("SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(6);
    let first = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    let (mut writes, mut leaders) = (0, 0);
    for seed in first..first + seeds {
        eprintln!("seed {seed}: SEED={seed} SEEDS=1 cargo test -p controllers leadership::no_two");
        let (of_writes, of_leaders) = disturbed(seed).await;
        writes += of_writes;
        leaders += of_leaders;
    }
    eprintln!("{seeds} seeds: {writes} writes by {leaders} leaders");
    assert!(
        leaders >= 2 * usize::try_from(seeds).unwrap(),
        "the leadership hardly changed: {leaders} leaders"
    );
}
