//! The `APIService`s of Kueue's visibility API.
//!
//! Where Kueue has registered them, they lead to its Service, which nobody serves while Muster is in its place. An API that does not answer
//! keeps every namespace from being deleted, so the leader takes them over. What they were is kept in an annotation, and they are given back
//! when Muster is given up, as Kueue's webhook configurations stay.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use super::{GROUP, VERSIONS};
use crate::registration::{put, resource};

/// The annotation of an `APIService` that was taken over: what it was, as JSON.
const BEFORE: &str = "muster.dev/before-takeover";
/// The label of an object that names who has created it, and its value if that is Muster.
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const MANAGER: &str = "muster";
/// The prefix of annotations by which cert-manager writes an authority.
const INJECTED: &str = "cert-manager.io/inject-";

/// What became of an `APIService`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Left {
    /// It is removed: Muster had created it.
    Removed(String),
    /// It leads to Kueue's Service again, `NAMESPACE/NAME`.
    Returned(String, String),
}

/// Makes the group lead to the endpoint. `service` is that of an `APIService`.
pub(crate) async fn take(client: &Client, service: &Value, authority: &str) -> Result<(), kube::Error> {
    for version in VERSIONS {
        take_one(client, version, service, &STANDARD.encode(authority)).await?;
    }
    Ok(())
}

async fn take_one(client: &Client, version: &str, service: &Value, bundle: &str) -> Result<(), kube::Error> {
    let name = name(version);
    let api = api(client);
    let found = api.get_opt(&name).await?;
    let Some(mut object) = found.filter(|found| !is_own(found)) else {
        let content = json!({"metadata": {"labels": {MANAGED_BY: MANAGER}}, "spec": {
            "group": GROUP, "version": version, "groupPriorityMinimum": 100, "versionPriority": 100,
            "caBundle": bundle, "service": service,
        }});
        return put(client, &api_services(), None, &name, content).await;
    };
    let is_current = object.data["spec"]["service"] == *service && object.data["spec"]["caBundle"] == bundle;
    let is_injected = object.annotations().keys().any(|key| key.starts_with(INJECTED));
    if is_current && !is_injected {
        return Ok(());
    }
    if object.data["spec"]["service"] != *service {
        let mut annotations = object.annotations().clone();
        annotations.retain(|key, _| key.starts_with(INJECTED));
        let before = json!({"spec": object.data["spec"], "annotations": annotations});
        object.annotations_mut().insert(BEFORE.into(), before.to_string());
    }
    object.annotations_mut().retain(|key, _| !key.starts_with(INJECTED));
    let spec = &mut object.data["spec"];
    spec["service"] = service.clone();
    spec["caBundle"] = bundle.into();
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("insecureSkipTLSVerify");
    }
    api.replace(&name, &PostParams::default(), &object).await.map(drop)
}

/// Removes the `APIService`s that Muster has created, and gives back those that it has taken over. Without the permission to read
/// them, there is none.
pub(crate) async fn leave(client: &Client) -> Result<Vec<Left>, kube::Error> {
    let mut left = Vec::new();
    for version in VERSIONS {
        match leave_one(client, &name(version)).await {
            Ok(one) => left.extend(one),
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(left)
}

async fn leave_one(client: &Client, name: &str) -> Result<Option<Left>, kube::Error> {
    let api = api(client);
    let Some(mut object) = api.get_opt(name).await? else { return Ok(None) };
    if is_own(&object) {
        api.delete(name, &DeleteParams::default()).await?;
        return Ok(Some(Left::Removed(name.to_owned())));
    }
    let Some(before) = object.annotations_mut().remove(BEFORE) else { return Ok(None) };
    let before: Value = serde_json::from_str(&before).unwrap_or_default();
    if before["spec"].is_object() {
        object.data["spec"] = before["spec"].clone();
    }
    for (key, value) in before["annotations"].as_object().into_iter().flatten() {
        let value = value.as_str().unwrap_or_default().to_owned();
        object.annotations_mut().insert(key.clone(), value);
    }
    api.replace(name, &PostParams::default(), &object).await?;
    let text = |field: &str| object.data["spec"]["service"][field].as_str().unwrap_or_default().to_owned();
    let service = format!("{}/{}", text("namespace"), text("name"));
    Ok(Some(Left::Returned(name.to_owned(), service)))
}

fn is_own(object: &DynamicObject) -> bool {
    object.labels().get(MANAGED_BY).is_some_and(|manager| manager == MANAGER)
}

fn name(version: &str) -> String {
    format!("{version}.{GROUP}")
}

fn api(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &api_services())
}

fn api_services() -> ApiResource {
    resource("apiregistration.k8s.io", "v1", "APIService", "apiservices")
}

#[cfg(test)]
mod tests {
    use kube::api::ListParams;

    use super::*;
    use crate::registrar::tests::cluster;
    use crate::unregister;

    fn service(name: &str) -> Value {
        json!({"namespace": "muster", "name": name, "port": 8443})
    }

    /// The API server in memory, as soon as it serves `APIService`s.
    async fn aggregating() -> Client {
        let client = cluster(true).await;
        while api(&client).list(&ListParams::default()).await.is_err() {
            tokio::task::yield_now().await;
        }
        client
    }

    async fn found(client: &Client, version: &str) -> Option<DynamicObject> {
        api(client).get_opt(&name(version)).await.unwrap()
    }

    /// Creates the `APIService` of a version as Kueue's chart with cert-manager does.
    async fn create(client: &Client, version: &str) -> DynamicObject {
        let object = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": name(version), "labels": {"app.kubernetes.io/name": "kueue"},
                "annotations": {"cert-manager.io/inject-ca-from": "kueue-system/kueue-visibility-server-cert"}},
            "spec": {"group": GROUP, "version": version, "groupPriorityMinimum": 100, "versionPriority": 100,
                "insecureSkipTLSVerify": true, "service": {"name": "kueue-visibility-server", "namespace": "kueue-system", "port": 443}}});
        api(client).create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
    }

    #[tokio::test]
    async fn an_api_service_of_kueue_is_taken_over_and_given_back_as_it_was() {
        let client = aggregating().await;
        let before = create(&client, "v1beta2").await;
        for authority in ["first", "second", "second"] {
            take(&client, &service("muster"), authority).await.unwrap();
            let taken = found(&client, "v1beta2").await.unwrap();
            assert_eq!(taken.data["spec"]["service"], service("muster"));
            assert_eq!(taken.data["spec"]["caBundle"], STANDARD.encode(authority));
            assert!(taken.data["spec"]["insecureSkipTLSVerify"].is_null());
            assert!(!taken.annotations().contains_key("cert-manager.io/inject-ca-from"));
        }
        let created = found(&client, "v1beta1").await.unwrap();
        assert_eq!(created.data["spec"]["service"], service("muster"), "the other version is created");

        let lines = unregister(&client, "muster").await.unwrap();
        let returned = "returned APIService v1beta2.visibility.kueue.x-k8s.io to Kueue's Service kueue-system/kueue-visibility-server";
        assert!(lines.iter().any(|line| line == returned), "{lines:?}");
        let removed = "removed APIService v1beta1.visibility.kueue.x-k8s.io";
        assert!(lines.iter().any(|line| line == removed), "{lines:?}");
        let after = found(&client, "v1beta2").await.unwrap();
        assert_eq!((&after.data, after.annotations()), (&before.data, before.annotations()));
        assert!(found(&client, "v1beta1").await.is_none());
        assert_eq!(leave(&client).await.unwrap(), [], "those of others stay");
    }

    #[tokio::test]
    async fn an_upgrade_of_kueue_that_writes_its_service_again_is_what_is_given_back() {
        let client = aggregating().await;
        create(&client, "v1beta2").await;
        take(&client, &service("muster"), "a").await.unwrap();
        let mut upgraded = found(&client, "v1beta2").await.unwrap();
        upgraded.data["spec"]["service"] = json!({"namespace": "kueue-system", "name": "other", "port": 443});
        api(&client).replace(&name("v1beta2"), &PostParams::default(), &upgraded).await.unwrap();
        take(&client, &service("muster"), "a").await.unwrap();
        assert_eq!(found(&client, "v1beta2").await.unwrap().data["spec"]["service"], service("muster"));
        leave(&client).await.unwrap();
        assert_eq!(found(&client, "v1beta2").await.unwrap().data["spec"]["service"]["name"], "other");
    }

    #[tokio::test]
    async fn without_an_aggregation_layer_nothing_is_left() {
        let client = cluster(false).await;
        assert_eq!(leave(&client).await.unwrap(), []);
    }
}
