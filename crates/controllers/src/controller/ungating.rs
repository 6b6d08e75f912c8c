//! Ungates pods: pins each pod to its planned node and removes its scheduling gate in one patch.

use std::time::Duration;

use api::scheduling_gate::GATE;
use index::{Index, Kind, Ungating, wire};
use kube::Client;

use super::State;
use crate::api_calls::ResourcePath;
use crate::backoff::ExponentialBackoff;
use crate::error::Error;
use crate::observations::Observation;

/// Backoff after a failed patch.
const BACKOFF: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_millis(100), Duration::from_secs(10));

impl State {
    /// Ungates the pods of an AppWrapper that have a planned node.
    pub(super) fn ungate_pods(&mut self, index: &mut Index, wrapper: &str) {
        for ungating in index.place_pods(wrapper) {
            let (client, permits) = (self.client.clone(), self.ungatings.clone());
            let (observations, wrapper) = (self.observations.clone(), wrapper.to_owned());
            self.tasks.spawn(async move {
                for (tries, pause) in BACKOFF.enumerate() {
                    // The semaphore is never closed.
                    let permit = permits.clone().acquire_owned().await.ok();
                    let Err(error) = write(&client, &ungating).await else { return };
                    drop(permit);
                    if let Error::NotAllowed(forbidden) = &error
                        && tries > 0
                    {
                        // The receiver is gone when the controller has ended.
                        drop(observations.send(Observation::UngateForbidden(wrapper.clone(), forbidden.clone())));
                    }
                    tracing::warn!(pod = %format!("{}/{}", ungating.namespace, ungating.name), %error, "cannot remove the scheduling gate, retrying");
                    tokio::time::sleep(pause).await;
                }
            });
        }
    }
}

impl State {
    /// Deletes the pods of a gang that were ungated for a place that is lost since. The controller of such a pod creates
    /// another one, which gets another place.
    pub(super) fn replace_stranded_pods(&mut self, index: &Index, wrapper: &str) {
        for pod in index.stranded_pods(wrapper) {
            if !self.deleting_pods.insert(pod.uid.clone()) {
                continue;
            }
            let (client, permits) = (self.client.clone(), self.ungatings.clone());
            let (uid, namespace, name) = (pod.uid.clone(), pod.namespace.clone(), pod.name.clone());
            self.tasks.spawn(async move {
                let pods = ResourcePath::of(&Kind::new("v1", "Pod"), "pods", &namespace);
                for pause in BACKOFF {
                    // The semaphore is never closed.
                    let permit = permits.clone().acquire_owned().await.ok();
                    let Err(error) = pods.delete(&client, &name, &uid).await else { return };
                    drop(permit);
                    tracing::warn!(pod = %format!("{namespace}/{name}"), %error, "the pod whose place is lost was not deleted, trying again");
                    tokio::time::sleep(pause).await;
                }
            });
        }
    }
}

/// Ungates one pod. Nothing is left to do if the pod was deleted or replaced, or if another client has ungated it
/// already: a scheduling gate cannot be added again.
async fn write(client: &Client, ungating: &Ungating) -> Result<(), Error> {
    let pods = ResourcePath::of(&Kind::new("v1", "Pod"), "pods", &ungating.namespace);
    let patch = api::scheduling_gate::remove_gate(&ungating.uid, ungating.host.as_deref());
    match pods.patch(client, &ungating.name, &patch).await {
        Err(Error::NotFound(_) | Error::Conflict(_)) => Ok(()),
        Err(error @ Error::Refused(_)) => match pods.get::<wire::Pod>(client, &ungating.name).await {
            Ok(pod) if pod.spec.scheduling_gates.iter().any(|gate| gate.name == GATE) => Err(error),
            Ok(_) | Err(Error::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        },
        answer => answer,
    }
}
