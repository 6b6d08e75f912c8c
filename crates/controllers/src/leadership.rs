//! Leadership: until when this process may write. At most one controller acts.
//!
//! The leadership ends at an instant of the monotonic clock, unless the lease is renewed before. Every write of the
//! leader goes through [`Leadership::guard`]: it is refused after that instant, and a write in flight is abandoned
//! then. The instant precedes the expiry of the lease, by 5 s with the default durations; a write that was abandoned
//! has this long to arrive or to get lost. A leadership that has ended never resumes.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::client::Body;
use tokio::sync::{RwLock, watch};
use tokio::time::{Instant, timeout_at};

use crate::error::Error;
use crate::lease::LeaderElectionConfig;

/// Completes when the process is to shut down and none of its writes is in flight any more.
pub type Shutdown = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The leadership of this process. Clones share it: the task that keeps the lease, and all clients that write.
#[derive(Debug, Clone)]
pub struct Leadership {
    term: Arc<watch::Sender<Term>>,
    /// Each write in flight holds it for reading.
    in_flight: Arc<RwLock<()>>,
    /// The API server has answered about the lease.
    has_answer: Arc<watch::Sender<bool>>,
    renew_deadline: Duration,
    /// The cause if the leadership ends for lack of a renewal.
    not_renewed: Arc<str>,
}

#[derive(Debug, Clone, PartialEq)]
enum Term {
    /// Another controller may be the leader.
    Candidate,
    /// This process may write until this instant.
    Leader(Instant),
    /// This process starts no write any more. Writes in flight may be answered until this instant.
    Draining(Instant),
    /// This process has given up the leadership.
    Resigned {
        /// Whether no write of it can arrive at the API server any more.
        is_drained: bool,
    },
    /// This process has lost the leadership; the cause.
    Lost(String),
}

impl Leadership {
    pub(crate) fn new(config: &LeaderElectionConfig) -> Self {
        let not_renewed = format!("{config} was not renewed within {:?}", config.renew_deadline);
        Self {
            term: Arc::new(watch::Sender::new(Term::Candidate)),
            in_flight: Arc::default(),
            has_answer: Arc::default(),
            renew_deadline: config.renew_deadline,
            not_renewed: not_renewed.into(),
        }
    }

    /// Waits for the leadership, runs `act`, then gives the leadership up. The client of `act` writes only as long as
    /// the leadership lasts. The `Shutdown` of `act` completes when `shutdown` has completed and the writes in flight
    /// have been answered.
    ///
    /// # Errors
    /// The error of `act`; [`Error::LeaseLost`] at once when the leadership ends: `act` is dropped then.
    pub async fn lead<E: From<Error>, F: Future<Output = Result<(), E>>>(
        &self,
        client: &Client,
        shutdown: impl Future<Output = ()> + Send + 'static,
        act: impl FnOnce(Client, Shutdown) -> F,
    ) -> Result<(), E> {
        let mut shutdown: Shutdown = Box::pin(shutdown);
        tokio::select! {
            biased;
            () = &mut shutdown => {
                self.resign(true);
                return Ok(());
            }
            () = self.begun() => {}
        }
        let leadership = self.clone();
        let drained = Box::pin(async move {
            shutdown.await;
            leadership.drain().await;
        });
        let ended = tokio::select! {
            biased;
            lost = self.lost() => return Err(lost.into()),
            ended = act(self.guard(client), drained) => ended,
        };
        let is_drained = self.drain().await;
        self.resign(is_drained);
        ended
    }

    /// A client that writes only as long as the leadership lasts. Reads are not restricted.
    pub(crate) fn guard(&self, client: &Client) -> Client {
        let (leadership, unguarded) = (self.clone(), client.clone());
        let guarded = tower::service_fn(move |request: http::Request<Body>| {
            let (leadership, client) = (leadership.clone(), unguarded.clone());
            async move {
                if request.method().is_safe() {
                    return Ok(client.send(request).await?);
                }
                leadership.write(async move { client.send(request).await }).await
            }
        });
        Client::new(guarded, client.default_namespace())
    }

    /// Performs a write. It stays in flight until it is answered or the leadership ends, even if the caller does not
    /// wait for the answer.
    async fn write<T: Send + 'static>(
        &self,
        request: impl Future<Output = Result<T, kube::Error>> + Send + 'static,
    ) -> Result<T, tower::BoxError> {
        let in_flight = self.in_flight.clone().read_owned().await;
        self.check()?;
        let leadership = self.clone();
        let task = tokio::spawn(async move {
            let _in_flight = in_flight;
            tokio::select! {
                biased;
                lost = leadership.lost() => Err(lost.into()),
                answer = request => Ok(answer?),
            }
        });
        task.await?
    }

    /// Whether a write may start now.
    fn check(&self) -> Result<(), Error> {
        let why = match &*self.term.borrow() {
            Term::Leader(until) if Instant::now() < *until => return Ok(()),
            Term::Leader(_) => self.not_renewed.to_string(),
            Term::Candidate => "it has not acquired the lease".into(),
            Term::Draining(_) | Term::Resigned { .. } => "it is shutting down".into(),
            Term::Lost(why) => why.clone(),
        };
        Err(Error::LeaseLost(why))
    }

    /// Prevents further writes and waits for those in flight. Returns whether none is in flight any more; the others
    /// are abandoned, because the leadership ends.
    async fn drain(&self) -> bool {
        self.term.send_if_modified(|term| {
            let Term::Leader(until) = *term else { return false };
            *term = Term::Draining(until);
            true
        });
        tokio::select! {
            biased;
            _ = self.lost() => false,
            _ = self.in_flight.write() => true,
        }
    }

    /// The API server has answered about the lease: this process leads, or can when the lease is free.
    pub(crate) fn answered(&self) {
        self.has_answer.send_if_modified(|known| !std::mem::replace(known, true));
    }

    /// Whether this process takes part in the election: the API server has answered about the lease.
    pub fn takes_part(&self) -> bool {
        *self.has_answer.borrow()
    }

    /// Ends the leadership or the candidacy.
    fn resign(&self, is_drained: bool) {
        self.term.send_if_modified(|term| match term {
            Term::Candidate | Term::Leader(_) | Term::Draining(_) => {
                *term = Term::Resigned { is_drained };
                true
            }
            Term::Resigned { .. } | Term::Lost(_) => false,
        });
    }

    /// Ends the leadership or the candidacy against the will of this process.
    pub(crate) fn lose(&self, why: String) {
        self.term.send_if_modified(|term| match term {
            Term::Candidate | Term::Leader(_) | Term::Draining(_) => {
                *term = Term::Lost(why);
                true
            }
            Term::Resigned { .. } | Term::Lost(_) => false,
        });
    }

    /// Begins or extends the leadership: the request that acquired or renewed the lease was sent at `sent`.
    pub(crate) fn renewed(&self, sent: Instant) {
        let (until, now) = (sent + self.renew_deadline, Instant::now());
        self.term.send_if_modified(|term| {
            *term = match term {
                Term::Candidate => {
                    tracing::info!(target: "leadership", "became the leader");
                    Term::Leader(until)
                }
                Term::Leader(before) if now < *before => Term::Leader(until),
                Term::Draining(before) if now < *before => Term::Draining(until),
                Term::Leader(_) | Term::Draining(_) => Term::Lost(self.not_renewed.to_string()),
                Term::Resigned { .. } | Term::Lost(_) => return false,
            };
            true
        });
    }

    /// Whether this process is or was the leader.
    pub(crate) fn has_begun(&self) -> bool {
        *self.term.borrow() != Term::Candidate
    }

    /// Whether the lease may be released: no write of this process can arrive any more.
    pub(crate) fn permits_release(&self) -> bool {
        *self.term.borrow() == Term::Resigned { is_drained: true }
    }

    /// Completes when this process is no candidate any more.
    async fn begun(&self) {
        // The sender is not dropped while `self` exists.
        self.term.subscribe().wait_for(|term| *term != Term::Candidate).await.ok();
    }

    /// Completes when the leadership or the candidacy has ended.
    pub(crate) async fn ended(&self) {
        let mut resigned = self.term.subscribe();
        tokio::select! {
            _ = self.lost() => {}
            _ = resigned.wait_for(|term| matches!(term, Term::Resigned { .. })) => {}
        }
    }

    /// Completes when the leadership is lost: another controller holds the lease, or it was not renewed in time.
    pub(crate) async fn lost(&self) -> Error {
        let mut changes = self.term.subscribe();
        loop {
            let term = changes.borrow_and_update().clone();
            match term {
                Term::Lost(why) => return Error::LeaseLost(why),
                Term::Leader(until) | Term::Draining(until) => {
                    if timeout_at(until, changes.changed()).await.is_err() {
                        self.expire();
                    }
                }
                Term::Candidate | Term::Resigned { .. } => {
                    changes.changed().await.ok();
                }
            }
        }
    }

    /// Ends the leadership if its instant has passed.
    fn expire(&self) {
        let now = Instant::now();
        self.term.send_if_modified(|term| match term {
            Term::Leader(until) | Term::Draining(until) if *until <= now => {
                *term = Term::Lost(self.not_renewed.to_string());
                true
            }
            Term::Leader(_) | Term::Draining(_) | Term::Candidate | Term::Resigned { .. } | Term::Lost(_) => {
                false
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{sleep, sleep_until};

    use super::*;

    /// A leadership that began now and ends in 10 s.
    fn leadership() -> Leadership {
        let leadership = Leadership::new(&LeaderElectionConfig::new("me"));
        leadership.renewed(Instant::now());
        leadership
    }

    /// A write whose answer takes so many seconds.
    async fn write(leadership: &Leadership, answer_s: u64) -> Result<(), String> {
        let request = async move {
            sleep(Duration::from_secs(answer_s)).await;
            Ok(())
        };
        leadership.write(request).await.map_err(|error| error.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_lasts_no_longer_than_the_leadership() {
        let begun = Instant::now();
        let leadership = leadership();
        assert_eq!(write(&leadership, 9).await, Ok(()));
        let lost = "this controller is not the leader: lease kube-system/muster was not renewed within 10s";
        assert_eq!(write(&leadership, 9).await, Err(lost.into()), "abandoned at the end of the leadership");
        assert_eq!(begun.elapsed().as_secs(), 10);
        assert_eq!(write(&leadership, 0).await, Err(lost.into()), "refused after the end");
        // A late answer to a renewal does not resume it.
        leadership.renewed(begun + Duration::from_secs(9));
        assert_eq!(write(&leadership, 0).await, Err(lost.into()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_extends_a_write_and_counts_from_its_sending() {
        let begun = Instant::now();
        let leadership = leadership();
        let renewing = leadership.clone();
        tokio::spawn(async move {
            // Sent after 3 s, answered after 8 s.
            sleep_until(begun + Duration::from_secs(8)).await;
            renewing.renewed(begun + Duration::from_secs(3));
        });
        assert_eq!(write(&leadership, 12).await, Ok(()));
        write(&leadership, 12).await.unwrap_err();
        assert_eq!(begun.elapsed().as_secs(), 13);
    }

    #[tokio::test(start_paused = true)]
    async fn a_candidate_writes_nothing() {
        let leadership = Leadership::new(&LeaderElectionConfig::new("me"));
        let refused = write(&leadership, 0).await.unwrap_err();
        assert_eq!(refused, "this controller is not the leader: it has not acquired the lease");
    }

    #[tokio::test(start_paused = true)]
    async fn draining_waits_for_answers_also_of_writes_whose_caller_is_gone() {
        let begun = Instant::now();
        let leadership = leadership();
        let dropped = tokio::time::timeout(Duration::from_secs(1), write(&leadership, 5)).await;
        assert!(dropped.is_err());
        let drained = tokio::spawn({
            let leadership = leadership.clone();
            async move { leadership.drain().await }
        });
        sleep(Duration::from_secs(1)).await;
        write(&leadership, 0).await.unwrap_err();
        assert!(drained.await.unwrap());
        assert_eq!(begun.elapsed().as_secs(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn draining_ends_with_the_leadership() {
        let begun = Instant::now();
        let leadership = leadership();
        let pending = tokio::spawn({
            let leadership = leadership.clone();
            async move { write(&leadership, 60).await }
        });
        sleep(Duration::from_secs(1)).await;
        assert!(!leadership.drain().await);
        assert_eq!(begun.elapsed().as_secs(), 10);
        pending.await.unwrap().unwrap_err();
        assert!(!leadership.permits_release());
    }
}
