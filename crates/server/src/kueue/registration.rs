//! The objects through which the API server finds Kueue's webhooks: webhook configurations, and the conversion in the
//! definitions of the kinds.
//!
//! On an installation of Kueue, its objects stay as they are and get the authority of the certificate, as Kueue's own
//! rotation gives it. Without one, Muster's own are created, for Kueue's kinds and for managed jobs alone, so that nothing
//! else waits for a webhook.

use std::sync::{Arc, Mutex, MutexGuard};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, PostParams};
use serde_json::{Value, json};

use super::configurations::{RegisteredJobs, Verb};
use crate::registration::{put, resource};

/// Name of the configurations without an installation of Kueue.
const NAME: &str = "muster-kueue";
/// The end of the name of Kueue's Service, in the place of which its configurations have their own.
const SERVICE_SUFFIX: &str = "-webhook-service";
/// The label of a definition that names who has created it, and its value if that is Muster.
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const MANAGER: &str = "muster";
/// The port of the Service.
const PORT: u16 = 443;

/// Where the API server finds Kueue's webhooks.
#[derive(Debug, Clone)]
pub(crate) struct KueueRegistration {
    /// Namespace of the Service.
    pub(crate) namespace: String,
    /// Name of the Service.
    pub(crate) service: String,
    /// Whether missing definitions are created.
    pub(crate) installs: bool,
    /// Jobs.
    pub(crate) jobs: RegisteredJobs,
    /// The authorities with which this leader has brought Muster's own definitions up to date.
    pub(crate) defined: Arc<Mutex<String>>,
}

/// Why the webhooks are not registered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KueueRegistrationError {
    #[error(
        "Service {0} does not exist, through which the API server calls Kueue's webhooks: deploy/kueue-webhook.yaml creates it"
    )]
    NoService(String),
    #[error("{0}; deploy/kueue-rbac.yaml permits it")]
    Api(#[from] kube::Error),
}

impl KueueRegistration {
    /// The names for which the API server requests a certificate.
    pub(crate) fn server_names(&self) -> Vec<String> {
        vec![format!("{}.{}.svc", self.service, self.namespace)]
    }

    /// Creates or updates the objects. `authorities` has the certificates, in PEM, under which the webhooks may be served.
    pub(crate) async fn apply(
        &self,
        client: &Client,
        authorities: &str,
    ) -> Result<(), KueueRegistrationError> {
        let bundle = STANDARD.encode(authorities);
        let mut foreign = Vec::new();
        for verb in Verb::ALL {
            foreign.push(find(client, &verb.resource(), &self.installed_name(verb)).await?);
        }
        if foreign.iter().any(Option::is_none) {
            self.check_service(client).await?;
        }
        self.define(client, &bundle).await?;
        for (verb, found) in Verb::ALL.into_iter().zip(foreign) {
            let resource = verb.resource();
            let Some(mut object) = found else {
                let configuration = self.jobs.configuration(verb, &|path| self.client_config(path, &bundle));
                put(client, &resource, None, NAME, configuration).await?;
                continue;
            };
            if trust(object.data["webhooks"].as_array_mut().into_iter().flatten(), &bundle) {
                replace(client, &resource, &object).await?;
            }
            remove(client, verb).await?;
        }
        Ok(())
    }

    /// The name of the configuration in an installation of Kueue.
    fn installed_name(&self, verb: Verb) -> String {
        let base = self.service.strip_suffix(SERVICE_SUFFIX).unwrap_or(&self.service);
        format!("{base}-{}-webhook-configuration", verb.word())
    }

    /// Without the Service, the API server would refuse all writes of Kueue's kinds.
    async fn check_service(&self, client: &Client) -> Result<(), KueueRegistrationError> {
        let services = resource("", "v1", "Service", "services");
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &self.namespace, &services);
        let name = || format!("{}/{}", self.namespace, self.service);
        api.get_opt(&self.service).await?.map(drop).ok_or_else(|| KueueRegistrationError::NoService(name()))
    }

    /// The definitions: missing ones are created, and those that Muster has created are those of this version. Those of an
    /// installation get the authority.
    async fn define(&self, client: &Client, bundle: &str) -> Result<(), kube::Error> {
        let group = "apiextensions.k8s.io";
        let definitions = resource(group, "v1", "CustomResourceDefinition", "customresourcedefinitions");
        for definition in api::kueue::crds(&self.client_config("/convert", bundle)) {
            let name = definition["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let found = find(client, &definitions, &name).await?;
            let is_current = *self.defined() == bundle;
            let is_wanted = found.as_ref().is_none_or(|found| is_own(found) && !is_current);
            if is_wanted && self.installs {
                put(client, &definitions, None, &name, definition).await?;
                continue;
            }
            let Some(mut found) = found else { continue };
            let conversion = &mut found.data["spec"]["conversion"];
            if conversion["strategy"] == "Webhook" && trust([&mut conversion["webhook"]], bundle) {
                replace(client, &definitions, &found).await?;
            }
        }
        bundle.clone_into(&mut self.defined());
        Ok(())
    }

    fn defined(&self) -> MutexGuard<'_, String> {
        self.defined.lock().expect("nothing panics while it holds the lock")
    }

    fn client_config(&self, path: &str, bundle: &str) -> Value {
        let service = json!({"namespace": self.namespace, "name": self.service, "path": path, "port": PORT});
        json!({"caBundle": bundle, "service": service})
    }
}

/// Removes the webhook configurations that Muster has created. Nothing may serve them any longer: the API server would
/// refuse all writes of Kueue's kinds. Returns the removed ones, as kind and name.
///
/// # Errors
/// One cannot be removed.
pub async fn remove_registration(client: &Client) -> Result<Vec<String>, kube::Error> {
    let mut removed = Vec::new();
    for verb in Verb::ALL {
        if remove(client, verb).await? {
            removed.push(format!("{} {NAME}", verb.resource().kind));
        }
    }
    Ok(removed)
}

async fn remove(client: &Client, verb: Verb) -> Result<bool, kube::Error> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &verb.resource());
    match api.delete(NAME, &DeleteParams::default()).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether Muster has created a definition.
fn is_own(definition: &DynamicObject) -> bool {
    let labels = definition.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(MANAGED_BY)).is_some_and(|manager| manager == MANAGER)
}

/// Sets the authority of webhooks. Returns whether anything changed.
fn trust<'a>(webhooks: impl IntoIterator<Item = &'a mut Value>, bundle: &str) -> bool {
    let mut changed = false;
    for webhook in webhooks {
        let known = &mut webhook["clientConfig"]["caBundle"];
        if known.as_str() != Some(bundle) {
            *known = bundle.into();
            changed = true;
        }
    }
    changed
}

async fn find(
    client: &Client,
    resource: &ApiResource,
    name: &str,
) -> Result<Option<DynamicObject>, kube::Error> {
    Api::all_with(client.clone(), resource).get_opt(name).await
}

/// Replaces an object, unless it has changed since it was read.
async fn replace(client: &Client, resource: &ApiResource, object: &DynamicObject) -> Result<(), kube::Error> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    let name = object.metadata.name.clone().unwrap_or_default();
    api.replace(&name, &PostParams::default(), object).await.map(drop)
}

#[cfg(test)]
mod tests;
