//! Installation of `CustomResourceDefinition`s.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::Notify;

use super::{Cluster, Error, Store};
use crate::wire::{CustomResourceDefinition, Key, condition};

/// Creates the definitions unless they exist, and waits until they are established.
pub(crate) async fn install(
    cluster: &Cluster,
    store: &Store<CustomResourceDefinition>,
    changed: &Arc<Notify>,
    definitions: &[Value],
) -> Result<(), Error> {
    for definition in definitions {
        match cluster.create(store, "", definition).await {
            Err(error) if !error.is_conflict() => return Err(error),
            _ => {}
        }
    }
    for definition in definitions {
        let key = Key::new("", definition["metadata"]["name"].as_str().unwrap_or_default());
        loop {
            let notified = changed.notified();
            let established = store.get(&key).is_some_and(|definition| {
                condition(&definition.status.conditions, "Established").is_some_and(|c| c.status == "True")
            });
            if established {
                break;
            }
            notified.await;
        }
    }
    Ok(())
}
