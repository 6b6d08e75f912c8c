//! An API server in memory that answers writes as late as a busy real one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use controllers::{Clock, install_kueue_crds};
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tokio::sync::Semaphore;
use tower::ServiceExt as _;

/// The number of cores of the machine of the API server.
const CORES: usize = 2;

/// What a write costs a kube-apiserver and its store, in milliseconds of one core, by a part of its path; measured.
const COSTS_MS: [(&str, u64); 4] = [("/workloads/", 9), ("/workloads", 5), ("queues/", 3), ("", 1)];

/// The writes of each client by kind.
type Writes = BTreeMap<(String, String), u32>;

/// The server.
pub(crate) struct Server {
    service: apiserver::Service,
    pub(crate) clock: Clock,
    cores: Arc<Semaphore>,
    writes: Arc<Mutex<Writes>>,
}

impl Server {
    /// A server of Kueue's kinds without objects.
    pub(crate) async fn start() -> Self {
        let (started, epoch) = (tokio::time::Instant::now(), jiff::Timestamp::UNIX_EPOCH);
        let clock: Clock = Arc::new(move || epoch + Duration::from_hours(400_000) + started.elapsed());
        let service =
            apiserver::Service::new(apiserver::ApiServer::new(apiserver::Config::default()), clock.clone());
        let conversion = json!({"url": "https://127.0.0.1:1/convert", "caBundle": ""});
        let client = Client::new(service.clone(), "default");
        install_kueue_crds(client, &conversion).await.expect("the definitions are installed");
        // An established definition is served shortly after.
        tokio::time::sleep(Duration::from_secs(5)).await;
        Self { service, clock, cores: Arc::new(Semaphore::new(CORES)), writes: Arc::default() }
    }

    /// A client whose writes are counted, and wait until the server has time for them.
    pub(crate) fn client(&self, name: &str) -> Client {
        let (service, cores, writes) = (self.service.clone(), self.cores.clone(), self.writes.clone());
        let name = name.to_owned();
        let connection = tower::service_fn(move |request: http::Request<Body>| {
            let (service, cores, writes) = (service.clone(), cores.clone(), writes.clone());
            let name = name.clone();
            async move {
                if request.method() != http::Method::GET {
                    let (kind, cost_ms) = kind_and_cost(request.uri().path());
                    let _core = cores.acquire().await;
                    tokio::time::sleep(Duration::from_millis(cost_ms)).await;
                    let mut writes = writes.lock().unwrap_or_else(PoisonError::into_inner);
                    *writes.entry((name, kind)).or_default() += 1;
                }
                service.oneshot(request).await
            }
        });
        Client::new(connection, "default")
    }

    /// How many writes of each kind each client has sent.
    pub(crate) fn writes(&self) -> Writes {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The resource and subresource of a path, and the cost of its write in milliseconds.
fn kind_and_cost(path: &str) -> (String, u64) {
    let cost = COSTS_MS.iter().find(|(part, _)| path.contains(part)).map_or(0, |(_, cost)| *cost);
    let rest = path.split_once("/namespaces/").and_then(|(_, rest)| rest.split_once('/'));
    let of_cluster = path.rsplit_once("v1beta2/").map_or(path, |(_, rest)| rest);
    let mut parts = rest.map_or(of_cluster, |(_, rest)| rest).split('/');
    let resource = parts.next().unwrap_or_default();
    let subresource = parts.nth(1).map_or(String::new(), |name| format!("/{name}"));
    (format!("{resource}{subresource}"), cost)
}
