//! Lets pods go to the scheduler, each with the node that it was planned on.

use std::time::Duration;

use api::gate::GATE;
use index::{Index, Kind, Lift, wire};
use kube::Client;

use super::State;
use crate::api_calls::Place;
use crate::error::Error;
use crate::facts::Fact;
use crate::pauses::Pauses;

/// Pauses after a write that did not work.
const PAUSES: Pauses = Pauses::between(Duration::from_millis(100), Duration::from_secs(10));

impl State {
    /// Lifts the gates of a wrapper's pods that have a place since.
    pub(super) fn lift_gates(&mut self, index: &mut Index, wrapper: &str) {
        for lift in index.seat(wrapper) {
            let (client, permits) = (self.client.clone(), self.lifts.clone());
            let (facts, wrapper) = (self.facts.clone(), wrapper.to_owned());
            self.tasks.spawn(async move {
                for (tries, pause) in PAUSES.enumerate() {
                    // The semaphore is never closed.
                    let permit = permits.clone().acquire_owned().await.ok();
                    let Err(error) = write(&client, &lift).await else { return };
                    drop(permit);
                    if let Error::NotAllowed(denial) = &error
                        && tries > 0
                    {
                        // Nobody listens any more when the controller ends.
                        drop(facts.send(Fact::Denied(wrapper.clone(), denial.clone())));
                    }
                    tracing::warn!(pod = %format!("{}/{}", lift.namespace, lift.name), %error, "its gate was not lifted, trying again");
                    tokio::time::sleep(pause).await;
                }
            });
        }
    }
}

/// Lifts one gate. That the pod is gone, or another by now, is as good; so is that somebody else lifted it and sent it elsewhere, which
/// cannot be changed any more.
async fn write(client: &Client, lift: &Lift) -> Result<(), Error> {
    let pods = Place::of(&Kind::new("v1", "Pod"), "pods", &lift.namespace);
    let patch = api::gate::lift(&lift.uid, lift.host.as_deref());
    match pods.patch(client, &lift.name, &patch).await {
        Err(Error::NotFound(_) | Error::Conflict(_)) => Ok(()),
        Err(error @ Error::Refused(_)) => match pods.get::<wire::Pod>(client, &lift.name).await {
            Ok(pod) if pod.spec.scheduling_gates.iter().any(|gate| gate.name == GATE) => Err(error),
            Ok(_) | Err(Error::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        },
        answer => answer,
    }
}
