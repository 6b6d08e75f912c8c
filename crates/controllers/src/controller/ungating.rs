//! Lets pods go to the scheduler, each with the node that it was planned on.

use std::time::Duration;

use api::scheduling_gate::GATE;
use index::{Index, Kind, Ungating, wire};
use kube::Client;

use super::State;
use crate::api_calls::ResourcePath;
use crate::backoff::ExponentialBackoff;
use crate::error::Error;
use crate::observations::Observation;

/// ExponentialBackoff after a write that did not work.
const BACKOFF: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_millis(100), Duration::from_secs(10));

impl State {
    /// Lifts the gates of a wrapper's pods that have a place since.
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
                        // Nobody listens any more when the controller ends.
                        drop(observations.send(Observation::UngateForbidden(wrapper.clone(), forbidden.clone())));
                    }
                    tracing::warn!(pod = %format!("{}/{}", ungating.namespace, ungating.name), %error, "its gate was not lifted, trying again");
                    tokio::time::sleep(pause).await;
                }
            });
        }
    }
}

/// Lifts one gate. That the pod is gone, or another by now, is as good; so is that somebody else lifted it and sent it elsewhere, which
/// cannot be changed any more.
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
