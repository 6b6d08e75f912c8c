//! The loop over several clusters, beside a controller.

use clusters::{Clusters, ClustersConfig};
use kube::Client;

/// Runs a controller, and the loop over several clusters beside it until the controller ends. Both write through `client`.
pub(crate) async fn beside<T>(
    controller: impl Future<Output = T>,
    client: &Client,
    config: Option<ClustersConfig>,
) -> T {
    let Some(config) = config else { return controller.await };
    let clusters = Box::pin(Clusters::new(client.clone(), config).run());
    tokio::select! {
        ended = controller => ended,
        never = clusters => match never {},
    }
}
