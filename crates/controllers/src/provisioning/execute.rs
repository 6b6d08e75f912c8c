//! The writes of the check.

use api::Meta;
use api::appwrapper::Group;
use api::kueue::provisioning::CONTROLLER;
use api::kueue::status::CheckState;
use api::kueue::workload::API_VERSION;
use api::provisioning::{self, ProvisioningRequest};
use index::{Kind, KueueKind};
use kube::Client;
use serde_json::{Value, json};

use crate::api_calls::ResourcePath;
use crate::error::Error;
use crate::kueue::write::path;
use crate::watched::Whole;

/// One write.
#[derive(Debug)]
pub(super) enum Write {
    /// The states of the checks of a Workload.
    States(Box<Whole>, Vec<CheckState>),
    /// A template for a check.
    CreateTemplate { check: String, template: Box<Value> },
    /// A request for a check.
    CreateRequest { check: String, request: Box<Value> },
    /// The owners of a template.
    Owners(Box<Whole>, Value),
    /// Deletes a request.
    DeleteRequest(Box<ProvisioningRequest>),
    /// Deletes the template with this uid.
    DeleteTemplate { namespace: String, name: String, uid: String },
    /// Changes the metadata of an AppWrapper.
    Wrapper { group: Group, meta: Box<Meta>, patch: Value },
    /// The conditions of a check.
    Conditions(Box<Whole>, Value),
}

/// What the watches show before a write.
#[derive(Debug, Clone)]
pub(super) enum Before {
    /// An object, by uid, with this resource version.
    Version(String, String),
    /// No request of this namespace and name.
    NoRequest(String, String),
    /// No template of this namespace and name.
    NoTemplate(String, String),
    /// A template, by uid.
    Exists(String),
}

fn name_of(object: &Value) -> (String, String) {
    let field = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (field("namespace"), field("name"))
}

impl Write {
    /// What the watches show before it.
    pub(super) fn before(&self) -> Before {
        let meta = match self {
            Self::CreateTemplate { template, .. } => {
                let (namespace, name) = name_of(template);
                return Before::NoTemplate(namespace, name);
            }
            Self::CreateRequest { request, .. } => {
                let (namespace, name) = name_of(request);
                return Before::NoRequest(namespace, name);
            }
            Self::States(whole, _) | Self::Owners(whole, _) | Self::Conditions(whole, _) => &whole.metadata,
            Self::DeleteRequest(request) => &request.metadata,
            Self::DeleteTemplate { uid, .. } => return Before::Exists(uid.clone()),
            Self::Wrapper { meta, .. } => meta,
        };
        Before::Version(meta.uid.clone(), meta.resource_version.clone())
    }

    /// The check for which the API server has refused an object, and why. `None` if the error tells nothing about the object.
    pub(super) fn refusal(&self, error: &Error) -> Option<(String, String)> {
        let (check, kind, object) = match self {
            Self::CreateTemplate { check, template } => (check, "PodTemplate", template),
            Self::CreateRequest { check, request } => (check, provisioning::KIND, request),
            Self::States(..)
            | Self::Owners(..)
            | Self::DeleteRequest(_)
            | Self::DeleteTemplate { .. }
            | Self::Wrapper { .. }
            | Self::Conditions(..) => return None,
        };
        let is_answer = matches!(
            error,
            Error::Refused(_)
                | Error::NotAdmitted(_)
                | Error::NotAllowed(_)
                | Error::Exists(_)
                | Error::NotFound(_)
        );
        let name = name_of(object).1;
        is_answer.then(|| (check.clone(), format!("Error creating {kind} {name:?}: {error}")))
    }
}

fn requests(namespace: &str) -> ResourcePath {
    let kind = Kind::new(provisioning::API_VERSION, provisioning::KIND);
    ResourcePath::of(&kind, provisioning::PLURAL, namespace)
}

fn templates(namespace: &str) -> ResourcePath {
    ResourcePath::of(&Kind::new("v1", "PodTemplate"), "podtemplates", namespace)
}

/// Performs a write.
pub(super) async fn perform(client: &Client, write: &Write) -> Result<(), Error> {
    match write {
        Write::States(workload, states) => {
            let meta = &workload.metadata;
            let body = json!({"apiVersion": API_VERSION, "kind": "Workload",
                "metadata": {"name": meta.name, "namespace": meta.namespace, "resourceVersion": meta.resource_version},
                "status": {"admissionChecks": states}});
            let workloads = path(KueueKind::Workload, &meta.namespace);
            workloads.apply_status::<Value>(client, CONTROLLER, &meta.name, &body).await.map(drop)
        }
        Write::CreateTemplate { template, .. } => {
            templates(&name_of(template).0).create::<Value>(client, template).await.map(drop)
        }
        Write::CreateRequest { request, .. } => {
            requests(&name_of(request).0).create::<Value>(client, request).await.map(drop)
        }
        Write::Owners(template, owners) => {
            let meta = &template.metadata;
            let patch =
                json!({"metadata": {"resourceVersion": meta.resource_version, "ownerReferences": owners}});
            templates(&meta.namespace).merge::<Value>(client, &meta.name, &patch).await.map(drop)
        }
        Write::DeleteRequest(request) => {
            let meta = &request.metadata;
            requests(&meta.namespace).delete(client, &meta.name, &meta.uid).await
        }
        Write::DeleteTemplate { namespace, name, uid } => {
            templates(namespace).delete(client, name, uid).await
        }
        Write::Wrapper { group, meta, patch } => {
            let wrappers = ResourcePath::wrappers(*group, &meta.namespace);
            wrappers.merge::<Value>(client, &meta.name, patch).await.map(drop)
        }
        Write::Conditions(check, conditions) => {
            let meta = &check.metadata;
            let checks = path(KueueKind::Check, "");
            let status = json!({ "conditions": conditions });
            checks
                .merge_status::<Value>(client, &meta.name, &meta.resource_version, &status, true)
                .await
                .map(drop)
        }
    }
}
