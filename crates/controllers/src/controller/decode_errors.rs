//! AppWrappers that cannot be decoded: their authors are told which field is wrong.

use std::collections::BTreeMap;

use index::WrapperKey;
use kube::Client;
use serde::de::IgnoredAny;
use serde_json::json;

use super::{State, decisions};
use crate::api_calls::ResourcePath;
use crate::step::NewEvent;

/// An AppWrapper that cannot be decoded.
#[derive(Debug, Clone)]
pub(crate) struct DecodeError {
    /// Group, namespace and name.
    pub(crate) key: WrapperKey,
    /// Uid.
    pub(crate) uid: String,
    /// Resource version.
    pub(crate) resource_version: String,
    /// Which field is wrong.
    pub(crate) cause: String,
}

/// The decode errors that are not told yet, and the cause that was told last, by uid of the AppWrapper.
#[derive(Debug, Default)]
pub(super) struct DecodeErrors {
    found: Vec<DecodeError>,
    told: BTreeMap<String, String>,
}

impl DecodeErrors {
    /// Applies that an AppWrapper cannot be decoded.
    pub(super) fn add(&mut self, error: DecodeError) {
        self.found.push(error);
    }

    /// Applies that an AppWrapper was decoded or deleted.
    pub(super) fn forget(&mut self, uid: &str) {
        self.told.remove(uid);
    }
}

impl State {
    /// Records an Event about each AppWrapper that cannot be decoded, once for each cause. Writes its status message if
    /// no earlier version of it is known, whose status the controller keeps.
    pub(super) fn report_decode_errors(&mut self) {
        for error in std::mem::take(&mut self.decode_errors.found) {
            let told = self.decode_errors.told.insert(error.uid.clone(), error.cause.clone());
            if told.as_ref() == Some(&error.cause) {
                continue;
            }
            let text = format!("this AppWrapper cannot be read and is not queued: {}", error.cause);
            let DecodeError { key, uid, resource_version, .. } = error;
            let event = NewEvent { is_warning: true, reason: "NotQueued", text: text.clone() };
            decisions::refused(&key, event.reason, &event.text);
            self.recorder.record_about(&key, &uid, &resource_version, &event);
            let shared = self.index.clone();
            if Self::index(&shared).wrapper(&uid).is_some() {
                continue;
            }
            let client = self.client.clone();
            let has_status = !self.without_status_subresource.contains(&key.group);
            self.tasks.spawn(async move {
                write_message(&client, &key, &resource_version, &text, has_status).await;
            });
        }
    }
}

/// Writes the message, unless the AppWrapper has changed. It is only a help: the Event says the same.
async fn write_message(
    client: &Client,
    key: &WrapperKey,
    resource_version: &str,
    text: &str,
    has_status: bool,
) {
    let path = ResourcePath::wrappers(key.group, &key.namespace);
    let status = json!({"message": text});
    let written =
        path.merge_status::<IgnoredAny>(client, &key.name, resource_version, &status, has_status).await;
    if let Err(error) = written {
        tracing::warn!(wrapper = %key, %error, "cannot write the status of an AppWrapper that cannot be read");
    }
}
