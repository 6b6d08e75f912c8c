//! The runner of Kueue's benchmark, after `configs/baseline` and `runner` in its `test/performance/scheduler`: it creates the
//! Workloads, ends each when its time is over, and answers evictions, with five writers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::join_all;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::{self, Event};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::server::Server;

const VERSION: &str = "kueue.x-k8s.io/v1beta2";
const COHORTS: usize = 5;
const QUEUES: usize = 6;
/// The number of Workloads that are written at the same time.
const WORKERS: usize = 5;
const RUNS_MS: &str = "runs-ms";

/// Workloads of one class in a queue.
#[derive(Clone, Copy)]
struct Class {
    name: &'static str,
    count: usize,
    interval_ms: u64,
    runs_ms: u64,
    priority: i32,
    cpus: u32,
}

const CLASSES: [Class; 3] = [
    Class { name: "small", count: 350, interval_ms: 100, runs_ms: 200, priority: 50, cpus: 1 },
    Class { name: "medium", count: 100, interval_ms: 500, runs_ms: 500, priority: 100, cpus: 5 },
    Class { name: "large", count: 50, interval_ms: 1200, runs_ms: 1000, priority: 200, cpus: 20 },
];

/// What the runner has seen.
pub(crate) struct Outcome {
    /// From the start until all Workloads have ended and the queues say so.
    pub(crate) time: Duration,
    /// The number of Workloads.
    pub(crate) count: u32,
    /// The mean wait of each class.
    pub(crate) waits: [Duration; CLASSES.len()],
    pub(crate) evictions: u32,
}

/// A Workload as the runner knows it.
struct Known {
    object: DynamicObject,
    seen: Instant,
    admitted: Option<Instant>,
    /// How long it waited for its first admission.
    wait: Option<Duration>,
    is_evicted: bool,
}

#[derive(Default)]
struct State {
    workloads: BTreeMap<String, Known>,
    queue: VecDeque<String>,
    is_queued: BTreeSet<String>,
    ended: usize,
    evictions: u32,
}

#[derive(Clone)]
pub(crate) struct Runner {
    client: Client,
    state: Arc<Mutex<State>>,
    wakeup: Arc<Notify>,
}

pub(crate) fn kind(kind: &str, plural: &str) -> ApiResource {
    let (group, version) = VERSION.split_once('/').unwrap_or_default();
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

pub(crate) fn condition<'a>(object: &'a DynamicObject, kind: &str) -> Option<&'a Value> {
    object.data["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

pub(crate) fn is_true(object: &DynamicObject, kind: &str) -> bool {
    condition(object, kind).is_some_and(|known| known["status"] == "True")
}

impl Runner {
    /// Runs all Workloads.
    pub(crate) async fn run(server: &Server, percent: usize) -> Outcome {
        let began = Instant::now();
        let runner = Self { client: server.client("runner"), state: Arc::default(), wakeup: Arc::default() };
        let watching = tokio::spawn(runner.clone().watch());
        let working: Vec<_> = (0..WORKERS).map(|_| tokio::spawn(runner.clone().work())).collect();
        runner.create("ResourceFlavor", "resourceflavors", "", "rf", json!({})).await;
        let queues = (0..COHORTS * QUEUES).map(|at| runner.generate(at % COHORTS, at / COHORTS, percent));
        let count: usize = join_all(queues).await.into_iter().sum();
        while runner.state().ended < count || runner.has_open_queue().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let time = began.elapsed();
        watching.abort();
        for worker in working {
            worker.abort();
        }
        let state = runner.state();
        let waits = CLASSES.map(|class| {
            let of_class =
                state.workloads.values().filter(|known| known.object.name_any().starts_with(class.name));
            let waits: Vec<Duration> = of_class.filter_map(|known| known.wait).collect();
            waits.iter().sum::<Duration>() / u32::try_from(waits.len().max(1)).unwrap_or(1)
        });
        Outcome { time, count: u32::try_from(count).unwrap_or(0), waits, evictions: state.evictions }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a queue and its Workloads.
    async fn generate(&self, cohort: usize, queue: usize, percent: usize) -> usize {
        let name = format!("cq-0-{queue}-cohort-{cohort}");
        let spec = json!({
            "namespaceSelector": {}, "cohortName": format!("cohort-{cohort}"),
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "rf",
                "resources": [{"name": "cpu", "nominalQuota": "20", "borrowingLimit": "100"}]}]}],
            "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
        });
        self.create("ClusterQueue", "clusterqueues", "", &name, spec).await;
        let namespaces =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Namespace"), "namespaces");
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        create(&Api::all_with(self.client.clone(), &namespaces), namespace).await;
        self.create("LocalQueue", "localqueues", &name, &name, json!({"clusterQueue": name})).await;
        let classes = CLASSES.map(|class| self.generate_class(name.clone(), class, percent));
        join_all(classes).await.into_iter().sum()
    }

    async fn generate_class(&self, queue: String, class: Class, percent: usize) -> usize {
        let count = (class.count * percent).div_ceil(100);
        let api = Api::namespaced_with(self.client.clone(), &queue, &kind("Workload", "workloads"));
        for at in 0..count {
            tokio::time::sleep(Duration::from_millis(class.interval_ms)).await;
            let container = json!({"name": "c", "image": "pause", "resources": {"requests": {"cpu": class.cpus.to_string()}}});
            let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
            let metadata = json!({"name": format!("{}-{at}", class.name), "labels": {RUNS_MS: class.runs_ms.to_string()}});
            let spec = json!({"queueName": queue, "priority": class.priority, "active": true,
                "podSets": [{"name": "main", "count": 1, "template": template}]});
            let body = json!({"apiVersion": VERSION, "kind": "Workload", "metadata": metadata, "spec": spec});
            create(&api, body).await;
        }
        count
    }

    async fn create(&self, name: &str, plural: &str, namespace: &str, object: &str, spec: Value) {
        let kind = kind(name, plural);
        let api = match namespace {
            "" => Api::all_with(self.client.clone(), &kind),
            _ => Api::namespaced_with(self.client.clone(), namespace, &kind),
        };
        create(
            &api,
            json!({"apiVersion": VERSION, "kind": name, "metadata": {"name": object}, "spec": spec}),
        )
        .await;
    }

    /// Whether a queue says that it has Workloads.
    async fn has_open_queue(&self) -> bool {
        let api: Api<DynamicObject> =
            Api::all_with(self.client.clone(), &kind("ClusterQueue", "clusterqueues"));
        let queues = api.list(&kube::api::ListParams::default()).await.expect("the queues are listed");
        let has = |queue: &DynamicObject, field: &str| queue.data["status"][field].as_u64().unwrap_or(0) > 0;
        queues.iter().any(|queue| has(queue, "pendingWorkloads") || has(queue, "reservingWorkloads"))
    }

    async fn watch(self) {
        let all: Api<DynamicObject> = Api::all_with(self.client.clone(), &kind("Workload", "workloads"));
        let mut events = std::pin::pin!(watcher::watcher(all, watcher::Config::default()));
        while let Some(event) = events.next().await {
            if let Ok(Event::Apply(workload) | Event::InitApply(workload)) = event {
                self.see(workload);
            }
        }
    }

    fn see(&self, object: DynamicObject) {
        let uid = object.uid().unwrap_or_default();
        let now = Instant::now();
        let (is_admitted, is_evicted, is_finished) =
            (is_true(&object, "Admitted"), is_true(&object, "Evicted"), is_true(&object, "Finished"));
        let mut state = self.state();
        let state = &mut *state;
        let known = state.workloads.entry(uid.clone()).or_insert_with(|| Known {
            object: object.clone(),
            seen: now,
            admitted: None,
            wait: None,
            is_evicted: false,
        });
        let was_finished = is_true(&known.object, "Finished");
        state.ended += usize::from(is_finished && !was_finished);
        state.evictions += u32::from(is_evicted && !known.is_evicted);
        known.is_evicted = is_evicted;
        known.admitted = is_admitted.then(|| known.admitted.unwrap_or(now));
        if is_admitted {
            known.wait.get_or_insert(now - known.seen);
        }
        known.object = object;
        if is_admitted && !is_finished {
            self.enqueue(state, uid);
        }
    }

    fn enqueue(&self, state: &mut State, uid: String) {
        if state.is_queued.insert(uid.clone()) {
            state.queue.push_back(uid);
            self.wakeup.notify_one();
        }
    }

    async fn work(self) {
        loop {
            let next = {
                let mut state = self.state();
                let next = state.queue.pop_front();
                next.inspect(|uid| assert!(state.is_queued.remove(uid)))
            };
            let Some(uid) = next else {
                self.wakeup.notified().await;
                continue;
            };
            self.reconcile(uid).await;
        }
    }

    async fn reconcile(&self, uid: String) {
        let (object, admitted) = {
            let state = self.state();
            let Some(known) = state.workloads.get(&uid) else { return };
            let Some(admitted) = known.admitted.filter(|_| !is_true(&known.object, "Finished")) else {
                return;
            };
            (known.object.clone(), admitted)
        };
        if is_true(&object, "Evicted") {
            let mut conditions = object.data["status"]["conditions"].clone();
            for condition in conditions.as_array_mut().into_iter().flatten() {
                if ["QuotaReserved", "Admitted"].contains(&condition["type"].as_str().unwrap_or_default()) {
                    condition["status"] = "False".into();
                    condition["reason"] = "Pending".into();
                }
            }
            return self.apply(&object, "kueue-admission", &json!({ "conditions": conditions })).await;
        }
        let runs_ms = object.labels().get(RUNS_MS).and_then(|ms| ms.parse().ok()).unwrap_or(0);
        let end = admitted + Duration::from_millis(runs_ms);
        if end <= Instant::now() {
            let finished = json!({"type": "Finished", "status": "True", "reason": "ByTest", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"});
            return self.apply(&object, "job", &json!({"conditions": [finished]})).await;
        }
        let runner = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep_until(end).await;
            runner.enqueue(&mut runner.state(), uid);
        });
    }

    async fn apply(&self, object: &DynamicObject, manager: &str, status: &Value) {
        let name = object.name_any();
        let api: Api<DynamicObject> = Api::namespaced_with(
            self.client.clone(),
            &object.namespace().unwrap_or_default(),
            &kind("Workload", "workloads"),
        );
        let body =
            json!({"apiVersion": VERSION, "kind": "Workload", "metadata": {"name": name}, "status": status});
        let params = PatchParams::apply(manager).force();
        api.patch_status(&name, &params, &Patch::Apply(body)).await.expect("the status is written");
    }
}

async fn create(api: &Api<DynamicObject>, object: Value) {
    let object = serde_json::from_value(object).expect("an object");
    api.create(&PostParams::default(), &object).await.expect("the object is created");
}
