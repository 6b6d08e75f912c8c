//! The objects through which the API server finds the endpoint: for the questions that only the leader can answer, a
//! Service, an `EndpointSlice` if the endpoint has an IP address, and `APIService`s; for the webhook, which every
//! replica serves, its configuration. The Service of all replicas selects their pods, so it is part of the manifests
//! (`deploy/webhook.yaml`).

use std::net::IpAddr;

use api::appwrapper::{Group, PLURAL};
use base64::Engine as _;
use controllers::api_resource;
use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use crate::admission::{PATH, WEBHOOK};
use crate::pending_workloads::api_services;
use crate::visibility::{GROUP, VERSION};

/// The field manager of the objects.
const FIELD_MANAGER: &str = "muster";
/// Name of the `ValidatingWebhookConfiguration`.
pub(crate) const WEBHOOKS: &str = "muster";
/// Name of the `APIService`: version and group.
pub(crate) const API_SERVICE: &str = "v1beta1.visibility.muster.dev";
/// So long the API server waits for a review before it refuses the AppWrapper.
const TIMEOUT_S: u32 = 10;
/// Whether a request has something to review, in CEL.
const NEW: &str = "request.operation == 'CREATE' || !has(object.spec) || !has(oldObject.spec) || object.spec != oldObject.spec || \
     has(object.status) && (!has(oldObject.status) || object.status != oldObject.status)";
/// Name of the port of the Service.
const PORT_NAME: &str = "https";

/// Where the API server finds the endpoint.
#[derive(Debug, Clone)]
pub(crate) struct Registration {
    /// Namespace of the Service.
    pub(crate) namespace: String,
    /// Name of the Service.
    pub(crate) service: String,
    /// IP address or DNS name of the endpoint.
    pub(crate) host: String,
    /// Port of the endpoint.
    pub(crate) port: u16,
    /// Where the API server finds the webhook, if AppWrappers are reviewed.
    pub(crate) webhook: Option<WebhookService>,
    /// What this controller plans.
    pub(crate) plans: Planned,
}

/// What a controller plans, so far as it matters for its endpoint.
#[derive(Debug, Clone, Copy)]
pub struct Planned {
    /// AppWrappers: no other controller serves the webhook that reviews them.
    pub wrappers: bool,
    /// The queues of Kueue's API, whose visibility API is served.
    pub queues: bool,
}

/// The Service of all replicas.
#[derive(Debug, Clone)]
pub(crate) struct WebhookService {
    pub(crate) name: String,
    pub(crate) port: u16,
}

impl Registration {
    /// The names for which the API server requests a certificate.
    pub(crate) fn server_names(&self) -> Vec<String> {
        let services = [&self.service].into_iter().chain(self.webhook.as_ref().map(|webhook| &webhook.name));
        services.map(|service| format!("{service}.{}.svc", self.namespace)).collect()
    }

    /// Creates or updates the objects. `authority` has the certificates, in PEM, under which the endpoint may serve.
    pub(crate) async fn apply(&self, client: &Client, authority: &str) -> Result<(), kube::Error> {
        let service = resource("", "v1", "Service", "services");
        if let Some(webhook) = &self.webhook {
            if self.has_dns_name() {
                put(client, &service, Some(&self.namespace), &webhook.name, self.external_name()).await?;
            }
            put(client, &webhooks(), None, WEBHOOKS, self.webhooks(webhook, authority)).await?;
        } else if self.plans.wrappers {
            remove_webhook(client).await?;
        }
        put(client, &service, Some(&self.namespace), &self.service, self.service_object()).await?;
        if let Ok(address) = self.host.parse() {
            let slice = resource("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices");
            put(client, &slice, Some(&self.namespace), &self.service, self.endpoints(address)).await?;
        }
        let api_service = resource("apiregistration.k8s.io", "v1", "APIService", "apiservices");
        let name = format!("{VERSION}.{GROUP}");
        let registered = async {
            put(client, &api_service, None, &name, self.api_service(authority)).await?;
            if self.plans.queues {
                return api_services::take(client, &self.service_of_api(), authority).await;
            }
            api_services::leave(client).await.map(drop)
        };
        match registered.await {
            // The API server has no aggregation layer.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            result => result,
        }
    }

    /// The Service as an `APIService` names it.
    fn service_of_api(&self) -> Value {
        json!({"namespace": self.namespace, "name": self.service, "port": self.port})
    }

    fn has_dns_name(&self) -> bool {
        self.host.parse::<IpAddr>().is_err()
    }

    fn external_name(&self) -> Value {
        json!({"spec": {"type": "ExternalName", "externalName": self.host}})
    }

    fn service_object(&self) -> Value {
        if self.has_dns_name() {
            return self.external_name();
        }
        // Without a selector: only the leader has the state of the queue.
        json!({"spec": {"type": "ClusterIP", "ports": [{"name": PORT_NAME, "port": self.port, "targetPort": self.port}]}})
    }

    fn endpoints(&self, address: IpAddr) -> Value {
        json!({
            "metadata": {"labels": {"kubernetes.io/service-name": self.service}},
            "addressType": if address.is_ipv4() { "IPv4" } else { "IPv6" },
            "endpoints": [{"addresses": [address.to_string()], "conditions": {"ready": true}}],
            "ports": [{"name": PORT_NAME, "port": self.port, "protocol": "TCP"}],
        })
    }

    fn api_service(&self, authority: &str) -> Value {
        json!({"spec": {
            "group": GROUP, "version": VERSION, "groupPriorityMinimum": 100, "versionPriority": 100,
            "caBundle": base64::engine::general_purpose::STANDARD.encode(authority),
            "service": self.service_of_api(),
        }})
    }

    /// The configuration of the webhook. It is called for AppWrappers only, and only when a spec or a status is new or has
    /// changed. With a status subresource, the status that is stored never changes with these requests.
    fn webhooks(&self, service: &WebhookService, authority: &str) -> Value {
        let groups = Group::ALL.map(Group::name);
        json!({"webhooks": [{
            "name": WEBHOOK, "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
            "matchPolicy": "Equivalent", "timeoutSeconds": TIMEOUT_S,
            "rules": [{
                "apiGroups": groups, "apiVersions": ["*"], "resources": [PLURAL], "scope": "Namespaced",
                "operations": ["CREATE", "UPDATE"],
            }],
            "matchConditions": [{
                "name": "spec-or-status-is-new",
                "expression": NEW,
            }],
            "clientConfig": {
                "caBundle": base64::engine::general_purpose::STANDARD.encode(authority),
                "service": {"namespace": self.namespace, "name": service.name, "port": service.port, "path": PATH},
            },
        }]})
    }
}

/// Creates or updates an object, by server-side apply.
pub(crate) async fn put(
    client: &Client,
    resource: &ApiResource,
    namespace: Option<&str>,
    name: &str,
    content: Value,
) -> Result<(), kube::Error> {
    let mut object = content;
    object["apiVersion"] = resource.api_version.clone().into();
    object["kind"] = resource.kind.clone().into();
    object["metadata"]["name"] = name.into();
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
        None => Api::all_with(client.clone(), resource),
    };
    let how = PatchParams::apply(FIELD_MANAGER).force();
    api.patch_metadata(name, &how, &Patch::Apply(object)).await.map(drop)
}

/// Removes the webhook of an earlier controller: nothing serves it, and the API server would refuse all AppWrappers.
/// Without the permission to remove it, this is no error.
pub async fn remove_webhook(client: &Client) -> Result<(), kube::Error> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &webhooks());
    match api.delete(WEBHOOKS, &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => Ok(()),
        Err(error) => Err(error),
    }
}

fn webhooks() -> ApiResource {
    let group = "admissionregistration.k8s.io";
    resource(group, "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations")
}

/// A resource of the API.
pub(crate) fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    api_resource(&api_version, kind, plural)
}
