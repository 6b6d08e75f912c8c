//! The dashboard: a read-only page with the gangs and nodes of a cluster, and the same data as JSON.
//!
//! The router only gets a function that returns a [`View`], so it cannot change the cluster. The caller chooses the
//! address and binds it.

mod gang_status;
mod page;
mod view;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use futures::Stream;
use tokio::sync::watch;

pub use gang_status::{GangStatusView, PositionView, StartView};
pub use view::{GangView, NodeView, ResourceView, Unplanned, Unqueued, View};

/// Minimum interval between two updates of a page: a burst of changes causes one update.
const UPDATE_INTERVAL: Duration = Duration::from_millis(250);

/// Content-Security-Policy: resources only from the page's own origin, and no embedding in frames.
const CONTENT_SECURITY_POLICY: &str =
    "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// Returns the current view.
pub type Source = Arc<dyn Fn() -> View + Send + Sync>;

#[derive(Clone)]
struct Page {
    source: Source,
    changes: watch::Receiver<u64>,
}

/// Serves the page at `/`, the JSON at `/api/view`, and server-sent events at `/changes`.
///
/// `changes` signals that the view may have changed. The event stream ends when its sender is dropped.
pub fn router(source: Source, changes: watch::Receiver<u64>) -> Router {
    Router::new()
        .route("/", get(html))
        .route("/api/view", get(json))
        .route("/changes", get(events))
        .route(
            "/style.css",
            get(async || with_headers("text/css; charset=utf-8", include_str!("../assets/style.css"))),
        )
        .route(
            "/live.js",
            get(async || with_headers("text/javascript; charset=utf-8", include_str!("../assets/live.js"))),
        )
        .with_state(Page { source, changes })
}

async fn html(State(page): State<Page>) -> Response {
    let html = page::page(&(page.source)()).into_string();
    with_headers("text/html; charset=utf-8", html)
}

async fn json(State(page): State<Page>) -> Json<View> {
    Json((page.source)())
}

fn with_headers(kind: &'static str, content: impl IntoResponse) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_SECURITY_POLICY)),
        (HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff")),
    ];
    (headers, content).into_response()
}

/// Sends one event at once, and one after each change.
async fn events(State(page): State<Page>) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let Page { source, mut changes } = page;
    changes.mark_changed();
    let events = futures::stream::unfold((source, changes), |(source, mut changes)| async {
        changes.changed().await.ok()?;
        let event = update(&source());
        tokio::time::sleep(UPDATE_INTERVAL).await;
        Some((Ok(event), (source, changes)))
    });
    Sse::new(events).keep_alive(KeepAlive::default())
}

fn update(view: &View) -> Event {
    let update = serde_json::json!({ "title": page::summary(view), "body": page::body(view).into_string() });
    Event::default().event("view").data(update.to_string())
}
