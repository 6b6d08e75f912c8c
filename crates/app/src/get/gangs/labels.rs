//! Gangs by labels: those of the job, AppWrapper or Workload that a row names. The API server selects, with the rights of the user.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use controllers::GangKind;
use kube::Client;
use kube::api::{ApiResource, ListParams};

use crate::connection::{objects, resource};
use crate::gang::Gang;
use crate::visibility::told;
use crate::why::job_resource;

/// The names that carry the labels, by namespace.
type Names = BTreeSet<(String, String)>;

/// Keeps the gangs whose objects have the labels.
pub(super) async fn select(
    client: &Client,
    namespace: Option<&str>,
    selector: &str,
    gangs: &mut Vec<Gang>,
) -> Result<()> {
    let mut selected: BTreeMap<String, Names> = BTreeMap::new();
    for gang in &*gangs {
        let resource = labelled(gang).0;
        if let Entry::Vacant(entry) = selected.entry(key(&resource)) {
            entry.insert(with_labels(client, &resource, namespace, selector).await?);
        }
    }
    gangs.retain(|gang| {
        let (resource, name) = labelled(gang);
        let names = selected.get(&key(&resource));
        names.is_some_and(|names| names.contains(&(gang.namespace().to_owned(), name)))
    });
    Ok(())
}

fn key(resource: &ApiResource) -> String {
    format!("{}/{}", resource.api_version, resource.plural)
}

/// The object whose labels count: that in the column NAME, or the Workload, if its kind is not known.
fn labelled(gang: &Gang) -> (ApiResource, String) {
    let own = GangKind::ALL.into_iter().find(|kind| kind.resource() == gang.resource());
    let own = own.unwrap_or(GangKind::Workload);
    let (kind, name) = gang.kind_and_name();
    if own == GangKind::Workload
        && let Some(job) = job_resource(&kind)
    {
        return (job, name);
    }
    let (kind, plural) = own.names();
    (resource(&own.api_version(), kind, plural), gang.name().to_owned())
}

async fn with_labels(
    client: &Client,
    resource: &ApiResource,
    namespace: Option<&str>,
    selector: &str,
) -> Result<Names> {
    let list =
        objects(client, resource, namespace).list_metadata(&ListParams::default().labels(selector)).await;
    let list = list.map_err(told).with_context(|| format!("cannot select {} by labels", resource.plural))?;
    let name = |meta: kube::api::ObjectMeta| Some((meta.namespace?, meta.name?));
    Ok(list.items.into_iter().filter_map(|item| name(item.metadata)).collect())
}
