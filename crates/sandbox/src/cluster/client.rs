//! Requests to the API server, with typed answers and errors that name the request.

use std::sync::Arc;

use futures::AsyncBufRead;
use http::{Method, Request};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::events::Recorder;
use super::kinds::{Cached, Kind};
use super::merge_patch::merge_patch;
use super::room::{Counted, Room};
use super::store::Store;
use crate::Clock;
use crate::wire::{Key, Meta, Stamp};

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The API server rejected the request or did not answer.
    #[error("cannot {verb} {path}: {cause}")]
    Api { verb: Method, path: String, cause: Box<kube::Error> },
    /// The answer does not have the documented shape.
    #[error("cannot decode the answer of the API server")]
    Unreadable(#[source] serde_json::Error),
}

impl Error {
    pub(super) fn unreadable(cause: serde_json::Error) -> Self {
        Self::Unreadable(cause)
    }

    fn code(&self) -> u16 {
        if let Self::Api { cause, .. } = self
            && let kube::Error::Api(status) = cause.as_ref()
        {
            return status.code;
        }
        0
    }

    /// The object has changed since it was read, or already exists. The caller has to read it again.
    pub(crate) fn is_conflict(&self) -> bool {
        self.code() == 409
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.code() == 404
    }

    /// The message of the API server, for Events.
    pub(crate) fn reason(&self) -> String {
        if let Self::Api { cause, .. } = self
            && let kube::Error::Api(status) = cause.as_ref()
        {
            return status.message.clone();
        }
        self.to_string()
    }
}

/// Options of a delete request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delete {
    /// Grace period in seconds; the default of the object if absent.
    pub(crate) grace: Option<i64>,
    /// Propagation policy; `Background` if absent.
    pub(crate) propagation: Option<&'static str>,
}

/// A client of the API server, with the clock for timestamps.
#[derive(Clone)]
pub(crate) struct Cluster {
    client: kube::Client,
    clock: Clock,
    room: Room,
}

impl Cluster {
    pub(crate) fn new(client: kube::Client, clock: Clock, room: Room) -> Self {
        Self { client, clock, room }
    }

    /// See [`Room::limit`].
    pub(crate) fn limit<K: Counted>(&self, object: Arc<K>, recorder: &Recorder) -> Arc<K> {
        self.room.limit(object, recorder)
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    pub(crate) fn stamp(&self) -> Stamp {
        Stamp::of(self.now())
    }

    /// Creates an object and adds it to the store.
    pub(crate) async fn create<K: Cached>(
        &self,
        store: &Store<K>,
        ns: &str,
        body: &Value,
    ) -> Result<Arc<K>, Error> {
        let created: K = self.send(Method::POST, store.kind.collection(ns), Some(body)).await?;
        Ok(store.observe_write(created))
    }

    /// Creates an object of a kind that is not cached.
    pub(crate) async fn create_uncached(&self, kind: Kind, ns: &str, body: &Value) -> Result<(), Error> {
        self.send::<Value>(Method::POST, kind.collection(ns), Some(body)).await.map(drop)
    }

    /// Creates an object of a kind that is not cached, unless it exists. Returns whether it was created.
    pub(crate) async fn create_if_absent(&self, kind: Kind, ns: &str, body: &Value) -> Result<bool, Error> {
        match self.create_uncached(kind, ns, body).await {
            Ok(()) => Ok(true),
            Err(error) if error.is_conflict() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The path of the collection of a kind that the API server serves in this version.
    pub(crate) async fn collection_of(
        &self,
        api_version: &str,
        kind: &str,
        ns: &str,
    ) -> Result<Option<String>, Error> {
        let root = if api_version.contains('/') { "/apis" } else { "/api" };
        let path = format!("{root}/{api_version}");
        let known: Value = match self.send(Method::GET, path.clone(), None).await {
            Err(error) if error.is_not_found() => return Ok(None),
            known => known?,
        };
        let is_it = |known: &&Value| {
            known["kind"] == kind && known["name"].as_str().is_some_and(|name| !name.contains('/'))
        };
        let found = known["resources"].as_array().into_iter().flatten().find(is_it);
        Ok(found.map(|found| {
            let plural = found["name"].as_str().unwrap_or_default();
            let scope = if found["namespaced"] == true { format!("/namespaces/{ns}") } else { String::new() };
            format!("{path}{scope}/{plural}")
        }))
    }

    /// The object at a path.
    pub(crate) async fn get_at(&self, path: String) -> Result<Option<Value>, Error> {
        match self.send(Method::GET, path, None).await {
            Err(error) if error.is_not_found() => Ok(None),
            object => object.map(Some),
        }
    }

    /// Creates an object in a collection.
    pub(crate) async fn create_at(&self, collection: String, body: &Value) -> Result<(), Error> {
        self.send::<Value>(Method::POST, collection, Some(body)).await.map(drop)
    }

    /// Deletes the object with this uid at a path, and what it owns. One that is gone is no error.
    pub(crate) async fn delete_at(&self, path: String, uid: &Value) -> Result<(), Error> {
        let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid},
            "propagationPolicy": "Background"});
        match self.send::<Value>(Method::DELETE, path, Some(&body)).await {
            Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error),
            _ => Ok(()),
        }
    }

    /// See [`Room::pods`].
    pub(crate) fn room(&self) -> i64 {
        self.room.pods()
    }

    pub(crate) async fn get(&self, kind: Kind, key: &Key) -> Result<Option<Value>, Error> {
        self.get_at(kind.path(key)).await
    }

    /// Sends a merge patch of an object. The precondition makes it fail with a conflict if the object was replaced or
    /// changed.
    pub(crate) async fn patch<K: Cached>(
        &self,
        store: &Store<K>,
        meta: &Meta,
        patch: Value,
        precondition: Precondition,
    ) -> Result<Arc<K>, Error> {
        self.patch_at(store, meta, store.kind.path(&meta.key()), patch, precondition).await
    }

    /// Sends a merge patch of the status of an object.
    pub(crate) async fn patch_status<K: Cached>(
        &self,
        store: &Store<K>,
        meta: &Meta,
        status: Value,
        precondition: Precondition,
    ) -> Result<Arc<K>, Error> {
        let path = format!("{}/status", store.kind.path(&meta.key()));
        self.patch_at(store, meta, path, json!({ "status": status }), precondition).await
    }

    /// Writes the status of an object that has this one, if it is another one. An object that is gone needs none.
    pub(crate) async fn change_status<K: Cached>(
        &self,
        store: &Store<K>,
        meta: &Meta,
        known: &Value,
        status: &Value,
    ) -> Result<(), Error> {
        if status == known {
            return Ok(());
        }
        let patch = merge_patch(known, status);
        match self.patch_status(store, meta, patch, Precondition::ResourceVersion).await {
            Err(error) if error.is_not_found() => Ok(()),
            written => written.map(drop),
        }
    }

    async fn patch_at<K: Cached>(
        &self,
        store: &Store<K>,
        meta: &Meta,
        path: String,
        mut patch: Value,
        precondition: Precondition,
    ) -> Result<Arc<K>, Error> {
        patch["metadata"]["uid"] = json!(meta.uid);
        if precondition == Precondition::ResourceVersion {
            patch["metadata"]["resourceVersion"] = json!(meta.resource_version);
        }
        let patched: K = self.send(Method::PATCH, path, Some(&patch)).await?;
        Ok(store.observe_write(patched))
    }

    /// Sends a merge patch of an object of a kind that is not cached.
    pub(crate) async fn patch_uncached(&self, kind: Kind, key: &Key, patch: &Value) -> Result<(), Error> {
        self.send::<Value>(Method::PATCH, kind.path(key), Some(patch)).await.map(drop)
    }

    /// Sends a POST to a subresource.
    pub(crate) async fn post(
        &self,
        kind: Kind,
        key: &Key,
        subresource: &str,
        body: &Value,
    ) -> Result<(), Error> {
        let path = format!("{}/{subresource}", kind.path(key));
        self.send::<Value>(Method::POST, path, Some(body)).await.map(drop)
    }

    /// Deletes the object with this uid. An object that is already gone is no error.
    pub(crate) async fn delete<K: Cached>(
        &self,
        store: &Store<K>,
        meta: &Meta,
        how: Delete,
    ) -> Result<(), Error> {
        let mut body = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": { "uid": meta.uid },
            "propagationPolicy": how.propagation.unwrap_or("Background"),
        });
        if let Some(grace) = how.grace {
            body["gracePeriodSeconds"] = json!(grace);
        }
        let key = meta.key();
        match self.send::<Value>(Method::DELETE, store.kind.path(&key), Some(&body)).await {
            Ok(left) => {
                let terminating = left["metadata"]["deletionTimestamp"].is_string();
                match decode_without_nulls::<K>(left) {
                    Ok(object) if terminating && survives_delete(&object) => {
                        drop(store.observe_write(object));
                    }
                    _ => store.observe_delete(&key, &meta.uid),
                }
                Ok(())
            }
            Err(error) if error.is_not_found() => {
                store.observe_delete(&key, &meta.uid);
                Ok(())
            }
            // Another object has this name now, so the object to delete is gone.
            Err(error) if error.is_conflict() => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn get_text(&self, path: &str) -> Result<String, Error> {
        let request = request(Method::GET, path, None);
        self.client.request_text(request).await.map_err(|cause| api_error(Method::GET, path, cause))
    }

    pub(super) async fn stream(&self, path: &str) -> Result<impl AsyncBufRead + Unpin + use<>, Error> {
        let request = request(Method::GET, path, None);
        let stream =
            self.client.request_stream(request).await.map_err(|cause| api_error(Method::GET, path, cause))?;
        Ok(Box::pin(stream))
    }

    async fn send<T: DeserializeOwned>(
        &self,
        verb: Method,
        path: String,
        body: Option<&Value>,
    ) -> Result<T, Error> {
        let request = request(verb.clone(), &path, body);
        let text = self.client.request_text(request).await.map_err(|cause| api_error(verb, &path, cause))?;
        serde_json::from_str(&text).or_else(|_| {
            let object = serde_json::from_str(&text).map_err(Error::Unreadable)?;
            decode_without_nulls(object).map_err(Error::Unreadable)
        })
    }
}

/// Decodes an object after removing all null fields, for objects that do not decode as they are.
pub(super) fn decode_without_nulls<T: DeserializeOwned>(mut object: Value) -> Result<T, serde_json::Error> {
    fn without_nulls(value: &mut Value) {
        if let Value::Object(fields) = value {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(without_nulls);
        } else if let Value::Array(items) = value {
            items.iter_mut().for_each(without_nulls);
        }
    }
    without_nulls(&mut object);
    serde_json::from_value(object)
}

/// Precondition of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precondition {
    /// The uid is unchanged. For fields that no other component writes.
    Uid,
    /// The uid and the resource version are unchanged.
    ResourceVersion,
}

/// Whether the API server keeps the object after a delete request, because of a grace period or finalizers.
fn survives_delete<K: Cached>(object: &K) -> bool {
    let meta = object.meta();
    !meta.finalizers.is_empty() || meta.deletion_grace_period_seconds.is_some_and(|grace| grace > 0)
}

fn api_error(verb: Method, path: &str, cause: kube::Error) -> Error {
    let path = path.split('?').next().unwrap_or(path).to_owned();
    Error::Api { verb, path, cause: Box::new(cause) }
}

fn request(verb: Method, path: &str, body: Option<&Value>) -> Request<Vec<u8>> {
    let content = if verb == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
    Request::builder()
        .method(verb)
        .uri(path)
        .header("accept", "application/json")
        .header("content-type", content)
        .header("user-agent", "muster-sandbox")
        .body(body)
        .expect("API paths are valid URIs")
}
