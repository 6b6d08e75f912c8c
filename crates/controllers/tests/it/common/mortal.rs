//! A connection to the API server that ends at a certain write.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kube::Client;
use tokio::sync::Notify;
use tower::Service as _;

use super::Cluster;

/// A connection that fails at a write: the server performs the write, but the client receives no response and can
/// send nothing more.
pub(crate) struct Mortal {
    pub(crate) client: Client,
    /// Notified at the last write.
    pub(crate) death: Arc<Notify>,
}

impl Mortal {
    /// A connection that ends with this write, counted from 1.
    pub(crate) fn after_writes(cluster: &Cluster, lifetime: usize) -> Self {
        let (written, death) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let (service, knell) = (cluster.service.clone(), death.clone());
        let connection = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (mut service, written, knell) = (service.clone(), written.clone(), knell.clone());
            async move {
                if request.method() == http::Method::GET && written.load(Ordering::SeqCst) < lifetime {
                    return service.call(request).await;
                }
                let nth = written.fetch_add(1, Ordering::SeqCst) + 1;
                if nth < lifetime {
                    return service.call(request).await;
                }
                if nth == lifetime {
                    let answer: Result<_, Infallible> = service.call(request).await;
                    drop(answer);
                    knell.notify_one();
                }
                std::future::pending().await
            }
        });
        Self { client: Client::new(connection, "default"), death }
    }
}
