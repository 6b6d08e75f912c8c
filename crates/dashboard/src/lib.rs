//! The read-only page of a cluster: its gangs, why they wait, and its nodes; and the same as JSON.
//!
//! Read-only by construction: it is given a function that makes a [`View`], and nothing that could change anything.
//! Where it listens is left to the caller.

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
pub use view::{GangView, NodeView, ResourceView, View};

/// Changes are shown at most this often, so that a burst costs one drawing.
const DRAW_EVERY: Duration = Duration::from_millis(250);

/// Everything comes from the page's own address; nothing may be framed or sniffed.
const POLICY: &str = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// Makes the view of the moment.
pub type Source = Arc<dyn Fn() -> View + Send + Sync>;

#[derive(Clone)]
struct Page {
    source: Source,
    changes: watch::Receiver<u64>,
}

/// The page at `/`, its JSON at `/api/view`, and a stream of changes at `/changes`.
///
/// `changes` tells that the view may have changed; the stream ends when its sender is gone.
pub fn router(source: Source, changes: watch::Receiver<u64>) -> Router {
    Router::new()
        .route("/", get(whole))
        .route("/api/view", get(json))
        .route("/changes", get(stream))
        .route(
            "/style.css",
            get(async || with_policy("text/css; charset=utf-8", include_str!("../assets/style.css"))),
        )
        .route(
            "/live.js",
            get(async || with_policy("text/javascript; charset=utf-8", include_str!("../assets/live.js"))),
        )
        .with_state(Page { source, changes })
}

async fn whole(State(page): State<Page>) -> Response {
    let html = page::page(&(page.source)()).into_string();
    with_policy("text/html; charset=utf-8", html)
}

async fn json(State(page): State<Page>) -> Json<View> {
    Json((page.source)())
}

fn with_policy(kind: &'static str, content: impl IntoResponse) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff")),
    ];
    (headers, content).into_response()
}

/// One event at once, and one after each change.
async fn stream(State(page): State<Page>) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let Page { source, mut changes } = page;
    changes.mark_changed();
    let events = futures::stream::unfold((source, changes), |(source, mut changes)| async {
        changes.changed().await.ok()?;
        let event = drawing(&source());
        tokio::time::sleep(DRAW_EVERY).await;
        Some((Ok(event), (source, changes)))
    });
    Sse::new(events).keep_alive(KeepAlive::default())
}

fn drawing(view: &View) -> Event {
    let drawing = serde_json::json!({ "title": page::summary(view), "body": page::body(view).into_string() });
    Event::default().event("view").data(drawing.to_string())
}
