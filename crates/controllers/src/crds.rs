//! Installs the custom resource definitions.

use std::time::Duration;

use api::appwrapper::{Columns, Group, definition};
use api::quota;
use futures::StreamExt;
use index::{Kind, wire};
use kube::api::ApiResource;
use kube::runtime::watcher;
use kube::{Api, Client};
use serde_json::Value;

use crate::api_calls::{FIELD_MANAGER, ResourcePath};
use crate::error::Error;
use crate::watched::Watched;

/// Timeout for a CRD to become established.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(30);

/// The resource of CRDs.
pub(crate) fn definitions() -> ApiResource {
    ApiResource {
        group: "apiextensions.k8s.io".into(),
        version: "v1".into(),
        api_version: "apiextensions.k8s.io/v1".into(),
        kind: "CustomResourceDefinition".into(),
        plural: "customresourcedefinitions".into(),
    }
}

/// Installs the `AppWrapper` CRD of each group by server-side apply, and waits until it is established.
///
/// A CRD of another installer is not changed, but used.
pub async fn install_crds(client: Client, groups: &[Group], columns: Columns) -> Result<(), Error> {
    for group in groups {
        install(&client, &group.resource(), &definition(*group, columns)).await?;
    }
    Ok(())
}

/// Installs the `QuotaSubtree` CRD of the newer group in the same way.
pub async fn install_quota_crd(client: Client) -> Result<(), Error> {
    let group = quota::Group::Codeflare;
    install(&client, &group.resource(), &quota::definition(group)).await
}

/// Installs the CRDs of Kueue's kinds in the same way. `client_config` says where their conversion webhook is.
pub async fn install_kueue_crds(client: Client, client_config: &Value) -> Result<(), Error> {
    for definition in api::kueue::crds(client_config) {
        let name = definition["metadata"]["name"].as_str().unwrap_or_default();
        install(&client, name, &definition).await?;
    }
    Ok(())
}

/// Installs the `ProvisioningRequest` CRD in the same way.
pub async fn install_provisioning_crd(client: Client) -> Result<(), Error> {
    install(&client, api::provisioning::RESOURCE, &api::provisioning::definition()).await
}

async fn install(client: &Client, name: &str, definition: &Value) -> Result<(), Error> {
    let resource = definitions();
    let path = ResourcePath::of(&Kind::new(&resource.api_version, &resource.kind), &resource.plural, "");
    let existing: Option<wire::Definition> = match path.get(client, name).await {
        Ok(definition) => Some(definition),
        Err(Error::NotFound(_)) => None,
        Err(error) => return Err(error),
    };
    let is_foreign = existing.as_ref().is_some_and(|definition| {
        definition.metadata.labels.get("app.kubernetes.io/managed-by").map(String::as_str)
            != Some(FIELD_MANAGER)
    });
    if is_foreign {
        tracing::info!(definition = name, "uses the custom resource definition of another installer");
    } else {
        match path.apply::<wire::Definition>(client, name, definition).await {
            Err(Error::NotAllowed(forbidden)) if existing.is_some() => {
                tracing::warn!(definition = name, %forbidden, "cannot update the custom resource definition, uses the installed version");
            }
            answer => drop(answer?),
        }
    }
    established(client.clone(), name).await
}

async fn established(client: Client, name: &str) -> Result<(), Error> {
    let api: Api<Watched> = Api::all_with(client, &definitions());
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut changes = std::pin::pin!(watcher(api, only));
    let serve = async {
        while let Some(change) = changes.next().await {
            if let Ok(watcher::Event::Apply(seen) | watcher::Event::InitApply(seen)) = change
                && seen.decode::<wire::Definition>().is_ok_and(|body| body.is_established())
            {
                return;
            }
        }
    };
    let in_time = tokio::time::timeout(ESTABLISHED_WITHIN, serve).await;
    in_time.map_err(|_| Error::NotEstablished { name: name.into(), within: ESTABLISHED_WITHIN })
}
