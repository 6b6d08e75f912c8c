//! Removes the scheduling gates from all pods and pod templates, for `muster release` and `muster uninstall`: when Muster is
//! given up, nothing else ungates the pods that a gated template creates.

mod finalizers;

use std::collections::{BTreeMap, BTreeSet};

use api::scheduling_gate;
use api::wrapped_kinds::WRAPPED_KINDS;
use index::{Kind, wire};
use kube::Client;
use serde::Deserialize;
use serde_json::Value;

use crate::api_calls::{self, ResourcePath};
use crate::discovery::Resources;
use crate::error::Error;

pub use finalizers::release_finalizers;

/// Maximum number of attempts to change one object that other clients change at the same time.
const CONFLICTS_MAX: u32 = 10;

/// The result for one object that had gates.
#[derive(Debug)]
pub struct Released {
    /// Kind of the object.
    pub kind: String,
    /// Its namespace and name, with a slash between.
    pub name: String,
    /// The number of templates whose gate was removed (of a pod: 1), or why the gates stay.
    pub result: Result<usize, Error>,
}

/// What to release.
#[derive(Clone, Copy, Debug)]
pub struct Release<'a> {
    /// One namespace, or (empty) all of them.
    pub namespace: &'a str,
    /// The names of the gates.
    pub gates: &'a [&'a str],
    /// Whether nothing is written.
    pub dry_run: bool,
}

/// Removes the gates from the templates, then from the pods. Reports every object that had gates. Returns an error if a list
/// fails; an object that cannot be changed is only reported.
pub async fn release(
    client: &Client,
    release: Release<'_>,
    mut report: impl FnMut(Released),
) -> Result<(), Error> {
    let groups: BTreeSet<&str> =
        WRAPPED_KINDS.iter().map(|entry| entry.group).filter(|group| !group.is_empty()).collect();
    for group in groups {
        let Some(version) = preferred_version(client, group).await? else { continue };
        let resources = Resources::read(client, &version).await?;
        for entry in WRAPPED_KINDS.iter().filter(|entry| entry.group == group) {
            let kind = Kind::new(&version, entry.kind);
            let Some((plural, _)) = resources.resource(&kind) else { continue };
            release_kind(client, &kind, plural, release, &mut report).await?;
        }
    }
    release_kind(client, &Kind::new("v1", "Pod"), "pods", release, &mut report).await
}

/// The identity of the controller that holds the lease, if one does. The controller may have crashed.
pub async fn lease_holder(client: &Client) -> Result<Option<String>, Error> {
    Ok(held_lease(client).await?.and_then(|lease| lease.holder_identity))
}

/// The same, if it has renewed the lease in time, by the clock of this process.
pub async fn live_lease_holder(client: &Client) -> Result<Option<String>, Error> {
    let Some(lease) = held_lease(client).await? else { return Ok(None) };
    let renewed = lease.renew_time.and_then(|time| time.parse::<jiff::Timestamp>().ok());
    let term = jiff::SignedDuration::from_secs(lease.lease_duration_seconds.into());
    let is_live = renewed.is_some_and(|renewed| jiff::Timestamp::now().duration_since(renewed) <= term);
    Ok(lease.holder_identity.filter(|_| is_live))
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct LeaseSpec {
    holder_identity: Option<String>,
    lease_duration_seconds: u32,
    renew_time: Option<String>,
}

/// The lease of the controllers, if one of them holds it.
async fn held_lease(client: &Client) -> Result<Option<LeaseSpec>, Error> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Lease {
        spec: LeaseSpec,
    }
    let kind = Kind::new("coordination.k8s.io/v1", "Lease");
    let leases = ResourcePath::of(&kind, "leases", "kube-system");
    match leases.get::<Lease>(client, "muster").await {
        Ok(lease) => {
            let is_held = lease.spec.holder_identity.as_ref().is_some_and(|holder| !holder.is_empty());
            Ok(Some(lease.spec).filter(|_| is_held))
        }
        Err(Error::NotFound(_) | Error::NotAllowed(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The preferred version of a group, as `group/version`; none if the cluster does not serve the group.
async fn preferred_version(client: &Client, group: &str) -> Result<Option<String>, Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Group {
        preferred_version: Version,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Version {
        group_version: String,
    }
    match api_calls::get::<Group>(client, &format!("/apis/{group}")).await {
        Ok(group) => Ok(Some(group.preferred_version.group_version)),
        Err(Error::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn release_kind(
    client: &Client,
    kind: &Kind,
    plural: &str,
    release: Release<'_>,
    report: &mut impl FnMut(Released),
) -> Result<(), Error> {
    let all = ResourcePath::of(kind, plural, release.namespace);
    let mut token = String::new();
    loop {
        let page = all.list(client, &token).await?;
        for object in page.items {
            let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
            let (namespace, name) = (text("namespace"), text("name"));
            let templates = gated_templates(kind, object, release.gates);
            if templates == 0 {
                continue;
            }
            let path = ResourcePath::of(kind, plural, &namespace);
            let result = if release.dry_run {
                Ok(templates)
            } else {
                release_object(client, kind, &path, &name, release.gates).await
            };
            // Other clients may have removed it in the meantime.
            if !matches!(result, Ok(0) | Err(Error::NotFound(_))) {
                report(Released { kind: kind.kind.clone(), name: format!("{namespace}/{name}"), result });
            }
        }
        if page.metadata.next.is_empty() {
            return Ok(());
        }
        token = page.metadata.next;
    }
}

/// The number of gated templates of an object that are its own. A Deployment owns the template of its `ReplicaSet`s.
fn gated_templates(kind: &Kind, mut object: Value, gates: &[&str]) -> usize {
    let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let is_derived =
        kind.kind == "ReplicaSet" && owners.into_iter().any(|owner| owner["kind"] == "Deployment");
    if is_derived {
        return 0;
    }
    complete(kind, &mut object);
    scheduling_gate::remove_gates(&mut object, gates)
}

/// Sets the `apiVersion` and kind, which the objects of a list lack.
fn complete(kind: &Kind, object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".into(), kind.api_version.clone().into());
        fields.insert("kind".into(), kind.kind.clone().into());
    }
}

/// Removes the gates of one object, whatever other clients change in between. Returns from how many templates.
async fn release_object(
    client: &Client,
    kind: &Kind,
    path: &ResourcePath,
    name: &str,
    gates: &[&str],
) -> Result<usize, Error> {
    let mut conflicts = 0;
    loop {
        let result = if kind.kind == "Pod" {
            release_pod(client, path, name, gates).await
        } else {
            release_template(client, kind, path, name, gates).await
        };
        match result {
            Err(Error::Conflict(_)) if conflicts < CONFLICTS_MAX => conflicts += 1,
            result => return result,
        }
    }
}

async fn release_pod(
    client: &Client,
    path: &ResourcePath,
    name: &str,
    gates: &[&str],
) -> Result<usize, Error> {
    let pod: wire::Pod = path.get(client, name).await?;
    let present: Vec<&str> = gates.iter().copied().filter(|gate| pod.has_gate(gate)).collect();
    if present.is_empty() {
        return Ok(0);
    }
    path.patch(client, name, &scheduling_gate::remove_gate(&pod.metadata.uid, &present, &BTreeMap::new()))
        .await?;
    Ok(1)
}

async fn release_template(
    client: &Client,
    kind: &Kind,
    path: &ResourcePath,
    name: &str,
    gates: &[&str],
) -> Result<usize, Error> {
    let mut object: Value = path.get(client, name).await?;
    complete(kind, &mut object);
    let templates = scheduling_gate::remove_gates(&mut object, gates);
    if templates > 0 {
        path.replace(client, name, &object).await?;
    }
    Ok(templates)
}
