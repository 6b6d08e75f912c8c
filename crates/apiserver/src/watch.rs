//! Watches: a cursor over the change log of one resource.
//!
//! A cursor holds no borrow and no task. Each pull returns the encoded events that are due, or the time until which
//! there are none. A watch ends at its timeout, when its resource is no longer served, or when its revision is
//! compacted.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::encode::ObjectEncoder;
use crate::list_options::{Filter, check_options, revision_of};
use crate::negotiate::Format;
use crate::object;
use crate::registry::Resource;
use crate::request::{Call, Target};
use crate::server::ApiServer;
use crate::status::Status;
use crate::store::{Change, ChangeKind, Object};

/// A pull returns when it has gathered this many bytes, or all events that are due.
const CHUNK_BYTES: usize = 64 << 10;
/// Interval of bookmarks in a watch without events.
const BOOKMARK_EVERY: SignedDuration = SignedDuration::from_secs(60);

/// A running watch.
#[derive(Debug)]
pub struct Watch {
    resource: Arc<Resource>,
    filter: Filter,
    encoder: ObjectEncoder,
    /// Initial objects that are not sent yet.
    initial: VecDeque<Arc<Object>>,
    /// The bookmark with `k8s.io/initial-events-end` is not sent yet.
    initial_end_pending: bool,
    /// The events up to this revision are sent.
    sent: u64,
    bookmarks: bool,
    next_bookmark: Timestamp,
    deadline: Timestamp,
    /// The number of simulated restarts when the watch began; a later restart ends the watch.
    restarts: u64,
    /// The watch cannot start: it sends this error event, then ends.
    initial_error: Option<Status>,
    ended: bool,
}

/// The result of a pull.
#[derive(Debug)]
pub enum Pull {
    /// Encoded events to send; pull again immediately.
    Chunk(Bytes),
    /// No events before this time, unless the resource changes.
    Idle(Timestamp),
    /// The watch has ended.
    End,
}

impl Watch {
    /// The stored resource that is watched, e.g. `pods`.
    pub fn storage(&self) -> &Arc<str> {
        &self.resource.storage
    }
}

impl ApiServer {
    pub(crate) fn watch(
        &mut self,
        call: &Call<'_>,
        target: &Target,
        resource: &Arc<Resource>,
        format: Format,
    ) -> Result<Watch, Status> {
        let query = &call.query;
        check_options(query, true)?;
        let filter = Filter::parse(target, query, resource)?;
        let asked = revision_of(query.text("resourceVersion")).map_err(|why| Status::other(500, "", &why))?;
        let current = self.store.revision();
        let streaming = query.flag("sendInitialEvents");
        let any = asked.unwrap_or(0) == 0;
        let with_state = if query.has("sendInitialEvents") { streaming } else { any };
        let mut initial_error = None;
        if let Some(asked) = asked
            && asked > current
            && with_state
        {
            initial_error = Some(Status::too_large_version(asked, current));
        }
        let sent = if with_state || any { current } else { asked.unwrap_or(current) };
        let initial = if with_state && initial_error.is_none() {
            self.selected(resource, &filter).cloned().collect()
        } else {
            VecDeque::new()
        };
        let timeout = match query.number("timeoutSeconds")? {
            Some(seconds) if seconds > 0 => seconds.min(1 << 31),
            // A random timeout of 30 to 60 minutes, so that clients do not all reconnect at the same time.
            Some(_) | None => 1800 + i64::try_from(self.rng.below(1800)).unwrap_or(0),
        };
        let bookmarks = query.flag("allowWatchBookmarks");
        Ok(Watch {
            resource: resource.clone(),
            filter,
            encoder: ObjectEncoder::new(format, resource, query),
            initial,
            initial_end_pending: streaming && bookmarks,
            sent,
            bookmarks,
            next_bookmark: after(call.now, BOOKMARK_EVERY),
            deadline: after(call.now, SignedDuration::from_secs(timeout)),
            restarts: self.restarts,
            initial_error,
            ended: false,
        })
    }

    /// Reads the next events of a watch.
    pub fn pull(&self, now: Timestamp, watch: &mut Watch) -> Pull {
        if watch.ended || watch.restarts != self.restarts {
            return Pull::End;
        }
        let mut chunk = BytesMut::new();
        if let Some(status) = watch.initial_error.take() {
            return watch.fail(chunk, &status);
        }
        watch.pull_initial(now, &mut chunk);
        if chunk.len() < CHUNK_BYTES
            && let Err(status) = self.pull_changes(now, watch, &mut chunk)
        {
            return watch.fail(chunk, &status);
        }
        if !chunk.is_empty() {
            watch.next_bookmark = after(now, BOOKMARK_EVERY);
            return Pull::Chunk(chunk.freeze());
        }
        if now >= watch.deadline || !self.store.has(&watch.resource.storage) {
            watch.ended = true;
            return Pull::End;
        }
        if watch.bookmarks && now >= watch.next_bookmark {
            watch.next_bookmark = after(now, BOOKMARK_EVERY);
            watch.bookmark(&mut chunk, false);
            return Pull::Chunk(chunk.freeze());
        }
        let until = if watch.bookmarks { watch.deadline.min(watch.next_bookmark) } else { watch.deadline };
        Pull::Idle(until)
    }

    fn pull_changes(&self, now: Timestamp, watch: &mut Watch, chunk: &mut BytesMut) -> Result<(), Status> {
        if !watch.initial.is_empty() {
            return Ok(());
        }
        let revision = self.store.revision();
        let storage = watch.resource.storage.clone();
        let changes = self.store.changes_after(&storage, watch.sent).map_err(|compacted| {
            Status::expired(format!(
                "too old resource version: {} ({})",
                watch.sent, compacted.compact_revision
            ))
        })?;
        let mut sent = revision;
        for change in changes {
            watch.change(chunk, change, now);
            if chunk.len() >= CHUNK_BYTES {
                sent = change.revision;
                break;
            }
        }
        // A watch may start at a future revision; its events begin after that revision.
        watch.sent = watch.sent.max(sent);
        Ok(())
    }
}

impl Watch {
    fn pull_initial(&mut self, now: Timestamp, chunk: &mut BytesMut) {
        while chunk.len() < CHUNK_BYTES {
            let Some(object) = self.initial.pop_front() else { break };
            self.event(chunk, "ADDED", &object, now);
        }
        if self.initial.is_empty() && self.initial_end_pending {
            self.initial_end_pending = false;
            self.bookmark(chunk, true);
        }
    }

    fn change(&mut self, chunk: &mut BytesMut, change: &Change, now: Timestamp) {
        let matches = |object: &Arc<Object>| self.filter.matches(object);
        let before = change.previous.as_ref().is_some_and(matches);
        let after = change.kind != ChangeKind::Deleted && matches(&change.object);
        match (before, after) {
            (false, false) => {}
            (false, true) => self.event(chunk, "ADDED", &change.object, now),
            (true, true) => self.event(chunk, "MODIFIED", &change.object, now),
            (true, false) if change.kind == ChangeKind::Deleted => {
                self.event(chunk, "DELETED", &change.object, now);
            }
            (true, false) => {
                // The object no longer matches: DELETED with its last matching state, at the revision of the change.
                let Some(previous) = &change.previous else { return };
                let mut value = previous.value();
                let left = Object::new(change.revision, &mut value, previous.fields.clone());
                self.event(chunk, "DELETED", &left, now);
            }
        }
    }

    fn event(&mut self, chunk: &mut BytesMut, kind: &str, object: &Object, now: Timestamp) {
        let shown = self.encoder.event(object, now);
        put_event(chunk, kind, &shown);
    }

    fn bookmark(&mut self, chunk: &mut BytesMut, end_of_initial: bool) {
        let mut metadata = json!({ "resourceVersion": self.sent.to_string() });
        if end_of_initial {
            object::set(&mut metadata, &["annotations", "k8s.io/initial-events-end"], "true");
        }
        let value = json!({
            "kind": self.resource.kind,
            "apiVersion": self.resource.api_version(),
            "metadata": metadata,
        });
        put_event(chunk, "BOOKMARK", &self.encoder.bookmark(&value));
    }

    fn fail(&mut self, mut chunk: BytesMut, status: &Status) -> Pull {
        self.ended = true;
        put_event(&mut chunk, "ERROR", &to_bytes(&status.to_value()));
        Pull::Chunk(chunk.freeze())
    }
}

fn put_event(chunk: &mut BytesMut, kind: &str, object: &[u8]) {
    chunk.reserve(object.len() + 48);
    chunk.put_slice(b"{\"type\":\"");
    chunk.put_slice(kind.as_bytes());
    chunk.put_slice(b"\",\"object\":");
    chunk.put_slice(object);
    chunk.put_slice(b"}\n");
}

fn to_bytes(value: &Value) -> Bytes {
    serde_json::to_vec(value).expect("values serialize to memory").into()
}

fn after(now: Timestamp, duration: SignedDuration) -> Timestamp {
    now.checked_add(duration).unwrap_or(Timestamp::MAX)
}
