//! The connection of one controller to the API server: it can be cut, slow it down, and fail requests. It notes which
//! controller holds the lease, and every write of a controller that does not.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::Either;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

use crate::chaos::rng::Rng;

/// How long a lease counts after a renewal.
const LEASE: Duration = Duration::from_secs(15);

/// How many requests fail, and how long others take.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Weather {
    /// Requests of a thousand that are answered with an error and have no effect.
    pub(crate) refused_permille: u64,
    /// Requests of a thousand that take effect, but whose answer is lost.
    pub(crate) lost_permille: u64,
    /// Longest delay before and after a request, in milliseconds.
    pub(crate) delay_ms: u64,
}

/// The leases as the API server has accepted them, over the links of all controllers.
#[derive(Debug, Default)]
pub(crate) struct Leadership {
    /// The number of the controller that holds the lease, and its last renewal.
    holder: Option<(usize, Instant)>,
    /// Writes of controllers that did not hold the lease.
    pub(crate) trespasses: Vec<String>,
}

/// The reserved starts that controllers have written to the status of `AppWrappers`.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    /// By controller and path of the `AppWrapper`: the last promise.
    starts: BTreeMap<(usize, String), jiff::Timestamp>,
    /// Promises that moved without a cause.
    pub(crate) broken: Vec<String>,
}

impl Promises {
    /// A controller has written this message to the status of an `AppWrapper`.
    fn note(&mut self, controller: usize, path: &str, message: &str) {
        let key = (controller, path.to_owned());
        let Some(start) = promise(message) else {
            self.starts.remove(&key);
            return;
        };
        let former = self.starts.insert(key, start);
        if former.is_some_and(|former| former < start) && !message.contains("was reserved, but") {
            self.broken.push(format!("{path}, reserved for {former:?} before: {message}"));
        }
    }
}

/// The reserved start in a message, if it is a promise: it depends on no undeclared run time.
fn promise(message: &str) -> Option<jiff::Timestamp> {
    let (_, rest) = message.split_once("start reserved for ")?;
    let (start, rest) = rest.split_once(", ")?;
    rest.starts_with("when ").then(|| start.parse().ok())?
}

/// The connection of one controller.
pub(crate) struct Link {
    number: usize,
    /// Whether the controller may write only while it holds the lease.
    is_elected: bool,
    is_cut: Mutex<bool>,
    weather: Mutex<Weather>,
    rng: Mutex<Rng>,
    leadership: Arc<Mutex<Leadership>>,
    promises: Arc<Mutex<Promises>>,
    /// Requests that failed on purpose, by kind of failure.
    pub(crate) failures: Mutex<BTreeMap<&'static str, u32>>,
}

/// The body of an answer: of the API server, or of a failure on purpose.
type Answer = Either<apiserver::Body, Body>;

/// What happens to a request.
enum Fate {
    Answered,
    Lost,
    Refused(u16, &'static str),
}

impl Link {
    pub(crate) fn new(
        number: usize,
        is_elected: bool,
        seed: u64,
        leadership: Arc<Mutex<Leadership>>,
        promises: Arc<Mutex<Promises>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            number,
            is_elected,
            is_cut: Mutex::default(),
            weather: Mutex::default(),
            rng: Mutex::new(Rng::new(seed)),
            leadership,
            promises,
            failures: Mutex::default(),
        })
    }

    pub(crate) fn set_cut(&self, is_cut: bool) {
        *self.is_cut.lock().unwrap() = is_cut;
    }

    pub(crate) fn set_weather(&self, weather: Weather) {
        *self.weather.lock().unwrap() = weather;
    }

    /// A client over this connection.
    pub(crate) fn client(self: &Arc<Self>, service: &apiserver::Service) -> Client {
        let (link, service) = (self.clone(), service.clone());
        let transport = tower::service_fn(move |request: http::Request<Body>| {
            let (link, service) = (link.clone(), service.clone());
            async move { link.carry(service, request).await }
        });
        Client::new(transport, "default")
    }

    async fn carry(
        &self,
        service: apiserver::Service,
        request: http::Request<Body>,
    ) -> Result<http::Response<Answer>, std::io::Error> {
        let (before, fate, after) = self.draw(&request);
        if !before.is_zero() {
            sleep(before).await;
        }
        if *self.is_cut.lock().unwrap() {
            return Err(std::io::Error::other("cut off"));
        }
        if let Fate::Refused(code, reason) = fate {
            return Ok(refusal(code, reason));
        }
        let call = format!("{} {}", request.method(), request.uri().path());
        let is_write = *request.method() != http::Method::GET;
        let is_lease = request.uri().path().contains("/leases");
        if is_write && !is_lease {
            self.note_write(&call);
        }
        let request = if is_write && request.uri().path().contains("/appwrappers/") {
            self.note_status(request).await
        } else {
            request
        };
        let answer = service.oneshot(request).await.unwrap();
        if is_write && is_lease && answer.status().is_success() {
            self.leadership.lock().unwrap().holder = Some((self.number, Instant::now()));
        }
        if matches!(fate, Fate::Lost) {
            return Err(std::io::Error::other("connection reset"));
        }
        if !after.is_zero() {
            sleep(after).await;
        }
        Ok(answer.map(Either::Left))
    }

    fn draw(&self, request: &http::Request<Body>) -> (Duration, Fate, Duration) {
        let weather = *self.weather.lock().unwrap();
        let mut rng = self.rng.lock().unwrap();
        let mut delay =
            || Duration::from_millis(if weather.delay_ms == 0 { 0 } else { rng.within(0, weather.delay_ms) });
        let (before, after) = (delay(), delay());
        let drawn = rng.within(0, 999);
        let fate = if drawn < weather.refused_permille {
            let mut codes = vec![
                (429, "TooManyRequests"),
                (500, "InternalError"),
                (503, "ServiceUnavailable"),
                (504, "Timeout"),
            ];
            if *request.method() != http::Method::GET {
                codes.push((409, "Conflict"));
            }
            let (code, reason) = rng.pick(&codes);
            Fate::Refused(code, reason)
        } else if drawn < weather.refused_permille + weather.lost_permille {
            Fate::Lost
        } else {
            Fate::Answered
        };
        let name = match fate {
            Fate::Answered => return (before, fate, after),
            Fate::Lost => "lost",
            Fate::Refused(_, reason) => reason,
        };
        *self.failures.lock().unwrap().entry(name).or_default() += 1;
        (before, fate, after)
    }

    /// Reads the message of a status that is written.
    async fn note_status(&self, request: http::Request<Body>) -> http::Request<Body> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap();
        let patch: Value = serde_json::from_slice(&body).unwrap_or_default();
        if let Some(status) = patch.get("status") {
            let message = status["message"].as_str().unwrap_or_default();
            self.promises.lock().unwrap().note(self.number, parts.uri.path(), message);
        }
        http::Request::from_parts(parts, body.into())
    }

    fn note_write(&self, call: &str) {
        let mut leadership = self.leadership.lock().unwrap();
        let holds = leadership
            .holder
            .is_some_and(|(holder, renewed)| holder == self.number && renewed.elapsed() < LEASE);
        if self.is_elected && !holds {
            let text = format!(
                "controller {} wrote while the lease was held by {:?}: {call}",
                self.number, leadership.holder
            );
            leadership.trespasses.push(text);
        }
    }
}

fn refusal(code: u16, reason: &str) -> http::Response<Answer> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("{reason} on purpose"), "reason": reason, "code": code});
    let builder = http::Response::builder().status(code).header("Content-Type", "application/json");
    builder.body(Either::Right(Body::from(status.to_string().into_bytes()))).unwrap()
}
