//! The registered webhooks.

use std::fmt;

use serde_json::Value;

use super::Review;
use crate::object;
use crate::registry::Resource;
use crate::server::ApiServer;

const GROUP: &str = "admissionregistration.k8s.io";

/// When webhooks are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Before an object is validated. Webhooks are called one after the other, and may change it.
    Mutation,
    /// Before an object is stored. Webhooks are called at once.
    Validation,
}

impl Phase {
    fn storage(self) -> &'static str {
        match self {
            Self::Mutation => "mutatingwebhookconfigurations.admissionregistration.k8s.io",
            Self::Validation => "validatingwebhookconfigurations.admissionregistration.k8s.io",
        }
    }
}

/// One webhook of a configuration.
#[derive(Debug, Clone)]
pub(crate) struct Webhook {
    /// Name of the configuration; empty for a function.
    pub(super) configuration: String,
    pub(super) name: String,
    /// An item of `webhooks` of the configuration.
    pub(super) spec: Value,
    pub(super) receiver: Receiver,
}

/// What a webhook calls.
#[derive(Clone)]
pub(super) enum Receiver {
    Function(Review),
    /// The `clientConfig` of the webhook.
    Endpoint,
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Function(_) => "Function",
            Self::Endpoint => "Endpoint",
        })
    }
}

impl Webhook {
    /// Whether a write proceeds if the webhook cannot be called.
    pub(super) fn ignores_failures(&self) -> bool {
        object::text(&self.spec, &["failurePolicy"]) == "Ignore"
    }

    /// Whether the webhook is called again if a later webhook changes the object.
    pub(super) fn is_reinvoked(&self) -> bool {
        object::text(&self.spec, &["reinvocationPolicy"]) == "IfNeeded"
    }
}

impl ApiServer {
    pub(super) fn has_webhooks(&self) -> bool {
        let is_registered = |phase: Phase| self.store.len(phase.storage()) > 0;
        !self.webhooks.is_empty() || is_registered(Phase::Mutation) || is_registered(Phase::Validation)
    }

    /// The webhooks of a phase, ordered by the name of their configuration. Functions are called first.
    pub(super) fn webhooks_of(&self, phase: Phase) -> Vec<Webhook> {
        let functions = self.webhooks.iter().filter(|_| phase == Phase::Validation).cloned();
        let registered = self.store.range(phase.storage(), None, None).flat_map(|stored| {
            let configuration = stored.value();
            let webhook = |spec: &Value| Webhook {
                configuration: stored.name().to_owned(),
                name: object::text(spec, &["name"]).to_owned(),
                spec: spec.clone(),
                receiver: Receiver::Endpoint,
            };
            object::items(&configuration, &["webhooks"]).iter().map(webhook).collect::<Vec<_>>()
        });
        functions.chain(registered).collect()
    }
}

/// Whether no webhook is called for the resource: otherwise a broken webhook could not be removed.
pub(super) fn is_exempt(resource: &Resource) -> bool {
    resource.group == GROUP
}
