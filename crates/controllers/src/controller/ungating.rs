//! Writes to the pods of running gangs, repeated until they succeed: a pod is pinned to its planned node and its scheduling gate is
//! removed in one patch, a pod whose place was lost is deleted, or a pod of a Workload that no node takes has failed.

use std::time::Duration;

use api::MicroTime;
use api::kueue::status::seconds;
use index::{GangPod, Index, Kind, PodRow, Ungating, wire};
use kube::Client;
use serde_json::{Value, json};

use super::State;
use crate::api_calls::ResourcePath;
use crate::backoff::ExponentialBackoff;
use crate::error::Error;
use crate::events::Subject;
use crate::kueue::metrics::GateRemoval;
use crate::observations::Observation;

/// Backoff after a failed write.
const BACKOFF: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_millis(100), Duration::from_secs(10));

/// The field manager of pods that have failed.
const FIELD_MANAGER: &str = "kueue";

/// A write to one pod.
enum PodWrite {
    /// The pod may go to the scheduler.
    Ungate(Ungating),
    /// The pod cannot run where it is pinned to. Its controller creates another one, which gets another place.
    Delete { uid: String, namespace: String, name: String },
    /// The pod of a Workload can run on no node. Who creates pods creates another one.
    Fail { namespace: String, name: String, status: Value },
}

impl State {
    /// Ungates pods of an AppWrapper.
    pub(super) fn ungate_pods(&mut self, index: &mut Index, wrapper: &str, ungatings: Vec<Ungating>) {
        index.place_pods(&ungatings);
        for ungating in ungatings {
            self.ungate(ungating, Some(wrapper));
        }
    }

    /// Deletes the pods of a gang that were ungated for a place that is lost since.
    pub(super) fn replace_stranded_pods(&mut self, wrapper: &str, stranded: &[GangPod<'_>]) {
        for pod in stranded {
            if self.deleting_pods.insert(pod.uid.clone()) {
                let (uid, namespace, name) = (pod.uid.clone(), pod.namespace.clone(), pod.name.clone());
                self.start_write(Some(wrapper), PodWrite::Delete { uid, namespace, name });
            }
        }
    }

    /// Lets pods of a Workload fail that are bound to no node and cannot be.
    pub(super) fn fail_pods(&mut self, pods: &[PodRow], now: MicroTime) {
        for pod in pods {
            if !self.deleting_pods.insert(pod.uid.clone()) {
                continue;
            }
            let text = "Pod terminated by Kueue NodeController due to node taint";
            let condition = json!({"type": "TerminatedByKueue", "status": "True",
                "reason": "UnschedulableOnAssignedNode", "message": text, "lastTransitionTime": seconds(now)});
            let (uid, namespace, name) = (pod.uid.clone(), pod.namespace.clone(), pod.name.clone());
            let status = json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": name, "namespace": namespace, "uid": uid},
                "status": {"phase": "Failed", "conditions": [condition]}});
            let about = Subject {
                api_version: "v1".into(),
                kind: "Pod".into(),
                namespace: namespace.clone(),
                name: name.clone(),
                uid,
                resource_version: String::new(),
            };
            self.recorder.record_event(&about, false, "PodTerminatedByKueue", text);
            self.start_write(None, PodWrite::Fail { namespace, name, status });
        }
    }

    /// Ungates one pod in the background.
    pub(super) fn ungate(&mut self, ungating: Ungating, wrapper: Option<&str>) {
        self.start_write(wrapper, PodWrite::Ungate(ungating));
    }

    /// Ungates one pod of a Workload in the background, and measures it.
    pub(super) fn ungate_of_workload(&mut self, ungating: Ungating, removal: Option<GateRemoval>) {
        let (metrics, clock) = (self.kueue.metrics.clone(), self.config.clock.clone());
        let measure = move || {
            if let Some(removal) = removal {
                metrics.gate_removed(&removal, MicroTime::from(clock()));
            }
        };
        self.start_write_and(None, PodWrite::Ungate(ungating), measure);
    }

    fn start_write(&mut self, wrapper: Option<&str>, write: PodWrite) {
        self.start_write_and(wrapper, write, || ());
    }

    /// Starts a write, which is repeated until it succeeds. A missing permission is reported for the AppWrapper of the
    /// pod, if it has one.
    fn start_write_and(
        &mut self,
        wrapper: Option<&str>,
        write: PodWrite,
        then: impl FnOnce() + Send + 'static,
    ) {
        let (client, permits) = (self.client.clone(), self.ungatings.clone());
        let meter = self.config.meter.clone();
        let (observations, wrapper) = (self.observations.clone(), wrapper.map(str::to_owned));
        self.tasks.spawn(async move {
            for (tries, pause) in BACKOFF.enumerate() {
                // The semaphore is never closed.
                let permit = permits.clone().acquire_owned().await.ok();
                let Err(error) = write.send(&client).await else { return then() };
                drop(permit);
                meter.count("retries_total", &[("cause", error.cause()), ("of", "pods")]);
                if let (Error::NotAllowed(forbidden), Some(wrapper)) = (&error, &wrapper)
                    && tries > 0
                {
                    // The receiver is gone when the controller has ended.
                    drop(observations.send(Observation::UngateForbidden(wrapper.clone(), forbidden.clone())));
                }
                tracing::warn!(pod = %write.pod(), %error, "{}, retrying", write.failure());
                tokio::time::sleep(pause).await;
            }
        });
    }
}

impl PodWrite {
    async fn send(&self, client: &Client) -> Result<(), Error> {
        match self {
            Self::Ungate(ungating) => ungate(client, ungating).await,
            Self::Delete { uid, namespace, name } => pods(namespace).delete(client, name, uid).await,
            Self::Fail { namespace, name, status } => {
                match pods(namespace).apply_status::<Value>(client, FIELD_MANAGER, name, status).await {
                    // It is gone, or another pod has its name.
                    Err(Error::NotFound(_) | Error::Conflict(_)) => Ok(()),
                    written => written.map(drop),
                }
            }
        }
    }

    /// Namespace and name of the pod.
    fn pod(&self) -> String {
        let (Self::Ungate(Ungating { namespace, name, .. })
        | Self::Delete { namespace, name, .. }
        | Self::Fail { namespace, name, .. }) = self;
        format!("{namespace}/{name}")
    }

    fn failure(&self) -> &'static str {
        match self {
            Self::Ungate(_) => "cannot remove the scheduling gate",
            Self::Delete { .. } => "cannot delete the pod whose place is lost",
            Self::Fail { .. } => "cannot write that the pod has failed",
        }
    }
}

fn pods(namespace: &str) -> ResourcePath {
    ResourcePath::of(&Kind::new("v1", "Pod"), "pods", namespace)
}

/// Ungates one pod. Nothing is left to do if the pod was deleted or replaced, or if another client has ungated it
/// already: a scheduling gate cannot be added again. A conflict does not tell whether the pod was replaced or only
/// changed at the same time, so the pod is read again.
async fn ungate(client: &Client, ungating: &Ungating) -> Result<(), Error> {
    let pods = pods(&ungating.namespace);
    let is_gated = |pod: &wire::Pod| ungating.gates.iter().any(|gate| pod.has_gate(gate));
    let patch = api::scheduling_gate::remove_gate(&ungating.uid, ungating.gates, &ungating.node_selector);
    match pods.patch(client, &ungating.name, &patch).await {
        Err(Error::NotFound(_)) => Ok(()),
        Err(error @ (Error::Refused(_) | Error::Conflict(_))) => {
            match pods.get::<wire::Pod>(client, &ungating.name).await {
                Ok(pod) if pod.metadata.uid == ungating.uid && is_gated(&pod) => Err(error),
                Ok(_) | Err(Error::NotFound(_)) => Ok(()),
                Err(error) => Err(error),
            }
        }
        answer => answer,
    }
}
