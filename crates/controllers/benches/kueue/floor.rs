//! The floor: admits every Workload as soon as it is seen, with one write, and plans nothing; see `testbed/kueue/floor`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::runtime::watcher::{self, Event};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::runner::{condition, is_true, kind};

/// The number of patches at the same time.
const WRITERS: usize = 32;

/// The open Workloads of each queue, and the queues with a change.
type Open = Arc<Mutex<(BTreeMap<String, BTreeSet<String>>, BTreeSet<String>)>>;

pub(crate) async fn run(client: Client) {
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &kind("Workload", "workloads"));
    let mut events = std::pin::pin!(watcher::watcher(all, watcher::Config::default()));
    let writers = Arc::new(Semaphore::new(WRITERS));
    let open = Open::default();
    tokio::spawn(tell(client.clone(), open.clone()));
    while let Some(event) = events.next().await {
        let Ok(Event::Apply(workload) | Event::InitApply(workload)) = event else { continue };
        let (queue, uid) = (workload.namespace().unwrap_or_default(), workload.uid().unwrap_or_default());
        let mut counts = open.lock().unwrap_or_else(PoisonError::into_inner);
        let (of_queues, changed) = &mut *counts;
        if is_true(&workload, "Finished") {
            of_queues.entry(queue.clone()).or_default().remove(&uid);
            changed.insert(queue);
        } else if condition(&workload, "Admitted").is_none()
            && of_queues.entry(queue.clone()).or_default().insert(uid)
        {
            changed.insert(queue);
            let (client, writers) = (client.clone(), writers.clone());
            tokio::spawn(async move {
                let _writer = writers.acquire().await;
                admit(client, &workload).await;
            });
        }
    }
}

async fn admit(client: Client, workload: &DynamicObject) {
    let queue = workload.namespace().unwrap_or_default();
    let condition = |kind: &str| {
        json!({"type": kind, "status": "True", "reason": kind, "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let sets = json!([{"name": "main", "flavors": {"cpu": "rf"}, "count": 1}]);
    let status = json!({"admission": {"clusterQueue": queue, "podSetAssignments": sets},
        "conditions": [condition("QuotaReserved"), condition("Admitted")]});
    let api = Api::namespaced_with(client, &queue, &kind("Workload", "workloads"));
    patch(&api, &workload.name_any(), status).await;
}

/// Writes twice a second how many Workloads of each changed queue are open.
async fn tell(client: Client, open: Open) {
    let api = Api::all_with(client, &kind("ClusterQueue", "clusterqueues"));
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let counts: Vec<(String, usize)> = {
            let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
            let changed = std::mem::take(&mut open.1);
            changed
                .into_iter()
                .map(|queue| (queue.clone(), open.0.get(&queue).map_or(0, BTreeSet::len)))
                .collect()
        };
        for (queue, count) in counts {
            patch(&api, &queue, json!({"reservingWorkloads": count})).await;
        }
    }
}

async fn patch(api: &Api<DynamicObject>, name: &str, status: Value) {
    let patch = Patch::Merge(json!({ "status": status }));
    api.patch_status(name, &PatchParams::default(), &patch).await.expect("the status is written");
}
