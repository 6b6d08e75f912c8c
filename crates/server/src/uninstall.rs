//! Removes what the leader has registered at the API server, when Muster is given up. The API server would wait for webhooks that
//! nobody serves, and would list the kinds of an endpoint that does not answer.

use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject};

use crate::kueue::remove_registration;
use crate::pending_workloads::api_services::{self, Left};
use crate::registration::{API_SERVICE, WEBHOOKS, resource};

/// Removes the webhook configurations and the endpoint. `namespace` is that of the controller. Returns what is done, a line for each
/// object. Webhook configurations of an installation of Kueue stay, and what it has registered of APIs leads to its Service again.
///
/// # Errors
/// One cannot be removed. The others are gone or are tried by the next call.
pub async fn unregister(client: &Client, namespace: &str) -> Result<Vec<String>, kube::Error> {
    let webhooks = resource(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
    );
    let api_services = resource("apiregistration.k8s.io", "v1", "APIService", "apiservices");
    let mut removed = remove_registration(client).await?;
    let mut returned = Vec::new();
    for left in api_services::leave(client).await? {
        match left {
            Left::Removed(name) => removed.push(format!("APIService {name}")),
            Left::Returned(name, service) => {
                returned.push(format!("returned APIService {name} to Kueue's Service {service}"));
            }
        }
    }
    for (resource, name) in [(webhooks, WEBHOOKS.to_owned()), (api_services, API_SERVICE.to_owned())] {
        removed.extend(remove(client, &resource, None, &name).await?);
    }
    let of_endpoint = [
        (resource("", "v1", "Service", "services"), "muster"),
        (resource("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices"), "muster"),
        (resource("", "v1", "Secret", "secrets"), "muster-certificate"),
    ];
    for (resource, name) in of_endpoint {
        removed.extend(remove(client, &resource, Some(namespace), name).await?);
    }
    Ok(removed.into_iter().map(|name| format!("removed {name}")).chain(returned).collect())
}

async fn remove(
    client: &Client,
    resource: &ApiResource,
    namespace: Option<&str>,
    name: &str,
) -> Result<Option<String>, kube::Error> {
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
        None => Api::all_with(client.clone(), resource),
    };
    match api.delete(name, &DeleteParams::default()).await {
        Ok(_) => Ok(Some(format!("{} {name}", resource.kind))),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}
