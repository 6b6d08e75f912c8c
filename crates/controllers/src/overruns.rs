//! The record of overruns, beside the configuration in the `ConfigMap` `kube-system/muster`. The AppWrappers that overran
//! may be deleted; the next process starts with the record.

use std::collections::BTreeMap;
use std::time::Duration;

use index::Overrun;
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::published_config::{NAME, NAMESPACE, path};

/// The field manager of the record: the configuration has another one, so that neither removes the other.
const FIELD_MANAGER: &str = "muster-overruns";
/// Key of the record in the `ConfigMap`.
const KEY: &str = "overruns";
/// Interval between two writes, and after a write that failed.
const INTERVAL: Duration = Duration::from_secs(1);

/// Overruns by namespace.
type Record = BTreeMap<String, Overrun>;

/// Keeps the record in the background.
pub(crate) struct OverrunRecord {
    newest: watch::Sender<Record>,
    writer: JoinHandle<()>,
}

impl OverrunRecord {
    pub(crate) fn new(client: Client) -> Self {
        let (newest, mut changes) = watch::channel(Record::new());
        let writer = tokio::spawn(async move {
            while changes.changed().await.is_ok() {
                let record = changes.borrow_and_update().clone();
                if let Err(error) = write(&client, &record).await {
                    tracing::warn!(%error, "cannot record overruns in ConfigMap {NAMESPACE}/{NAME}, retrying");
                    changes.mark_changed();
                }
                tokio::time::sleep(INTERVAL).await;
            }
        });
        Self { newest, writer }
    }

    /// Writes the record soon.
    pub(crate) fn keep(&self, record: Record) {
        self.newest.send_replace(record);
    }
}

impl Drop for OverrunRecord {
    fn drop(&mut self) {
        self.writer.abort();
    }
}

/// The record in the data of the `ConfigMap`. Text that cannot be read counts as none.
pub(crate) fn read(data: &BTreeMap<String, String>) -> Record {
    data.get(KEY).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

async fn write(client: &Client, record: &Record) -> Result<(), crate::Error> {
    let text = json!(record).to_string();
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": NAME, "namespace": NAMESPACE}, "data": {KEY: text},
    });
    path().apply_as::<Value>(client, FIELD_MANAGER, NAME, &map).await.map(drop)
}
