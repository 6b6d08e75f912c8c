//! What Kubernetes asks a controller, over plain HTTP: whether it is alive and ready.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;

/// Something that happens once, such as the first reading of the cluster. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<AtomicBool>);

impl Readiness {
    /// It has happened.
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether it has happened.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// What must hold before a replica is ready.
#[derive(Clone)]
pub struct Condition {
    otherwise: Arc<str>,
    holds: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl std::fmt::Debug for Condition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Condition").field("otherwise", &self.otherwise).finish_non_exhaustive()
    }
}

impl Condition {
    /// A condition. `otherwise` says what is missing when it does not hold.
    pub fn new(otherwise: impl Into<Arc<str>>, holds: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { otherwise: otherwise.into(), holds: Arc::new(holds) }
    }

    /// That something has happened.
    pub fn happened(otherwise: &str, readiness: Readiness) -> Self {
        Self::new(otherwise, move || readiness.is_set())
    }
}

/// Serves the probes under these names, which have no slash. The first answers 200 as long as the process lives, the
/// second while all conditions hold; otherwise it says which ones do not.
pub fn probes(alive: &str, ready: &str, conditions: Vec<Condition>) -> Router {
    Router::new()
        .route(&format!("/{alive}"), get(async || "ok\n"))
        .route(&format!("/{ready}"), get(is_ready).with_state(conditions.into()))
}

async fn is_ready(State(conditions): State<Arc<[Condition]>>) -> (StatusCode, String) {
    let missing = conditions.iter().filter(|condition| !(condition.holds)());
    let missing: Vec<&str> = missing.map(|condition| &*condition.otherwise).collect();
    if missing.is_empty() {
        (StatusCode::OK, "ok\n".into())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, missing.join("\n") + "\n")
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;

    async fn status(router: &Router, path: &str) -> u16 {
        let request = http::Request::get(path).body(Body::empty()).unwrap();
        router.clone().oneshot(request).await.unwrap().status().as_u16()
    }

    #[tokio::test]
    async fn the_controller_is_alive_before_it_is_ready() {
        let (read, served) = (Readiness::default(), Readiness::default());
        let conditions = vec![
            Condition::happened("the cluster is not read yet", read.clone()),
            Condition::happened("there is no certificate yet", served.clone()),
        ];
        let router = probes("healthz", "readyz", conditions);
        assert_eq!((status(&router, "/healthz").await, status(&router, "/readyz").await), (200, 503));
        read.set();
        let request = http::Request::get("/readyz").body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status().as_u16(), 503);
        let missing = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(missing, "there is no certificate yet\n");
        served.set();
        assert_eq!(status(&router, "/readyz").await, 200);
        assert_eq!(status(&router, "/other").await, 404);
    }
}
