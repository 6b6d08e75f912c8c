//! The watch of one resource, until it ends.

use std::time::Duration;

use controllers::{Watched, Whole, describe_error};
use futures::StreamExt as _;
use kube::Api;
use kube::runtime::watcher::{self, Config, Error, Event, watcher};
use tokio::sync::mpsc::Sender;

/// How long a list may take until its next page.
const PAGE_MAX: Duration = Duration::from_mins(1);

/// Namespace and name.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    pub(crate) fn of(whole: &Whole) -> Self {
        Self::new(&whole.metadata.namespace, &whole.metadata.name)
    }
}

/// What a watch has shown.
#[derive(Debug)]
pub(crate) enum Seen {
    /// All objects there are.
    Listed(Vec<Whole>),
    /// An object was added or has changed.
    Applied(Box<Whole>),
    /// An object is gone.
    Deleted(Key),
}

/// Why a watch has ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The API server does not serve the resource, or not to this client.
    Unserved(String),
    /// The API server did not answer, or with an error.
    Failed(String),
    /// The loop has ended.
    Unheard,
}

/// Watches until an error. A list that is too old is not one: it begins anew.
pub(crate) async fn watch<T>(
    api: Api<Watched>,
    selection: Config,
    tell: &Sender<T>,
    of: impl Fn(Seen) -> T,
) -> Ended {
    let mut changes = std::pin::pin!(watcher(api, selection));
    let mut listed = Vec::new();
    let mut is_listing = true;
    loop {
        let next = if is_listing {
            match tokio::time::timeout(PAGE_MAX, changes.next()).await {
                Ok(next) => next,
                Err(_) => return Ended::Failed(format!("no answer within {} s", PAGE_MAX.as_secs())),
            }
        } else {
            changes.next().await
        };
        let seen = match next {
            None => return Ended::Failed("the watch has ended".into()),
            Some(Err(error)) if is_too_old(&error) => continue,
            Some(Err(error)) => return ended(&error),
            Some(Ok(Event::Init)) => {
                (listed, is_listing) = (Vec::new(), true);
                continue;
            }
            Some(Ok(Event::InitApply(object))) => {
                listed.extend(decoded(&object));
                continue;
            }
            Some(Ok(Event::InitDone)) => {
                is_listing = false;
                Seen::Listed(std::mem::take(&mut listed))
            }
            Some(Ok(Event::Apply(object))) => match decoded(&object) {
                Some(whole) => Seen::Applied(Box::new(whole)),
                None => continue,
            },
            Some(Ok(Event::Delete(object))) => Seen::Deleted(Key::new(&object.namespace(), &object.name())),
        };
        if tell.send(of(seen)).await.is_err() {
            return Ended::Unheard;
        }
    }
}

/// One object must not stop the watch of all.
fn decoded(object: &Watched) -> Option<Whole> {
    object
        .whole()
        .map_err(|why| {
            tracing::warn!(name = object.name(), why, "an object cannot be decoded, it is ignored");
        })
        .ok()
}

fn is_too_old(error: &watcher::Error) -> bool {
    matches!(error, Error::WatchError(status) if status.code == 410)
}

fn ended(error: &watcher::Error) -> Ended {
    match error {
        Error::InitialListFailed(kube::Error::Api(status))
        | Error::WatchStartFailed(kube::Error::Api(status))
            if matches!(status.code, 403 | 404) =>
        {
            Ended::Unserved(status.message.clone())
        }
        Error::InitialListFailed(error) | Error::WatchStartFailed(error) | Error::WatchFailed(error) => {
            Ended::Failed(describe_error(error))
        }
        Error::WatchError(status) => Ended::Failed(status.message.clone()),
        Error::NoResourceVersion => Ended::Failed("a list has no resource version".into()),
    }
}
