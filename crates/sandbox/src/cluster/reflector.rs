//! Keeps a store in sync with the API server: lists, watches from the list's version, and lists again when the watch
//! expires.

use std::time::Duration;

use futures::{AsyncBufReadExt, StreamExt};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::client::{Cluster, Error, decode_without_nulls};
use super::kinds::{Cached, Kind};
use super::store::Store;

/// Delay after a failure, so that an unavailable API server is not flooded with requests.
const RETRY: Duration = Duration::from_millis(500);

#[derive(Deserialize)]
struct List<K> {
    metadata: ListMeta,
    items: Vec<K>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ListMeta {
    resource_version: String,
    r#continue: String,
}

#[derive(Deserialize)]
struct WatchEvent<K> {
    r#type: String,
    object: K,
}

#[derive(Deserialize)]
struct Bookmark {
    metadata: ListMeta,
}

/// Keeps the store in sync without end.
pub(crate) async fn reflect<K: Cached>(cluster: Cluster, store: std::sync::Arc<Store<K>>) {
    loop {
        if let Err(error) = list_and_watch(&cluster, &store).await {
            tracing::debug!(kind = store.kind.plural, %error, "restarting the watch");
            tokio::time::sleep(RETRY).await;
        }
    }
}

/// Returns when the watch has expired and a new list is needed.
async fn list_and_watch<K: Cached>(cluster: &Cluster, store: &Store<K>) -> Result<(), Error> {
    let collection = store.kind.collection("");
    let (mut items, mut next) = (Vec::new(), String::new());
    let mut version = loop {
        let text = cluster.get_text(&format!("{collection}?limit=2000{next}")).await?;
        let page: List<Value> = match serde_json::from_str::<List<K>>(&text) {
            Ok(page) => {
                items.extend(page.items);
                List { metadata: page.metadata, items: vec![] }
            }
            Err(_) => parse(&text)?,
        };
        items.extend(page.items.into_iter().filter_map(|object| decode_leniently(store.kind, object)));
        if page.metadata.r#continue.is_empty() {
            break page.metadata.resource_version;
        }
        next = format!("&continue={}", page.metadata.r#continue);
    };
    store.replace(items, version.parse().unwrap_or(0));
    loop {
        let path = format!("{collection}?watch=true&allowWatchBookmarks=true&resourceVersion={version}");
        let mut lines = cluster.stream(&path).await?.lines();
        let mut no_event = true;
        while let Some(line) = lines.next().await {
            let Ok(line) = line else { break };
            no_event = false;
            match apply_event(&line, store)? {
                Some(seen) => version = seen,
                None => return Ok(()),
            }
        }
        if no_event {
            // The server ended the watch without any event. Delay the next watch.
            tokio::time::sleep(RETRY).await;
        }
    }
}

/// Applies one watch event to the store. Returns its resource version, or `None` when the watch has expired.
fn apply_event<K: Cached>(line: &str, store: &Store<K>) -> Result<Option<String>, Error> {
    let (kind, object) = match serde_json::from_str::<WatchEvent<K>>(line) {
        Ok(line) if matches!(line.r#type.as_str(), "ADDED" | "MODIFIED" | "DELETED") => {
            (line.r#type, line.object)
        }
        _ => {
            let line: WatchEvent<Value> = parse(line)?;
            match line.r#type.as_str() {
                "ERROR" => return Ok(None),
                "BOOKMARK" => {
                    let bookmark: Bookmark =
                        serde_json::from_value(line.object).map_err(Error::unreadable)?;
                    store.advance(bookmark.metadata.resource_version.parse().unwrap_or(0));
                    return Ok(Some(bookmark.metadata.resource_version));
                }
                _ => {
                    let version =
                        line.object["metadata"]["resourceVersion"].as_str().unwrap_or("0").to_owned();
                    match decode_leniently(store.kind, line.object) {
                        Some(object) => (line.r#type, object),
                        None => return Ok(Some(version)),
                    }
                }
            }
        }
    };
    let version = object.meta().resource_version.clone();
    if kind == "DELETED" {
        store.remove(&object);
    } else {
        store.upsert(object);
    }
    Ok(Some(version))
}

/// Decodes an object that does not have the expected shape. Nulls are ignored; an object with any other mismatch is
/// skipped.
fn decode_leniently<K: Cached>(kind: Kind, object: Value) -> Option<K> {
    let name = object["metadata"]["name"].clone();
    decode_without_nulls(object)
        .inspect_err(|error| {
            tracing::warn!(kind = kind.plural, %name, %error, "ignoring an object that cannot be decoded");
        })
        .ok()
}

fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(Error::unreadable)
}
