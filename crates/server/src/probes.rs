//! What Kubernetes asks a controller, over plain HTTP: whether it is alive and ready.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;

/// Whether the state of the cluster is read. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<AtomicBool>);

impl Readiness {
    /// From now on, the controller is ready.
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether it is ready.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Serves the probes under these names, which have no slash. The first answers 200 as long as the process lives, the
/// second as soon as it is ready.
pub fn probes(alive: &str, ready: &str, readiness: Readiness) -> Router {
    Router::new()
        .route(&format!("/{alive}"), get(async || "ok\n"))
        .route(&format!("/{ready}"), get(is_ready).with_state(readiness))
}

async fn is_ready(State(readiness): State<Readiness>) -> (StatusCode, &'static str) {
    if readiness.is_set() {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the state of the cluster is not read yet\n")
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use tower::ServiceExt as _;

    use super::*;

    async fn status(router: &Router, path: &str) -> u16 {
        let request = http::Request::get(path).body(Body::empty()).unwrap();
        router.clone().oneshot(request).await.unwrap().status().as_u16()
    }

    #[tokio::test]
    async fn the_controller_is_alive_before_it_is_ready() {
        let readiness = Readiness::default();
        let router = probes("healthz", "readyz", readiness.clone());
        assert_eq!((status(&router, "/healthz").await, status(&router, "/readyz").await), (200, 503));
        readiness.set();
        assert_eq!(status(&router, "/readyz").await, 200);
        assert_eq!(status(&router, "/other").await, 404);
    }
}
