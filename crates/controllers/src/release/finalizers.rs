//! The finalizers that Kueue's API leaves in pods, Workloads, queues and flavors, and that nothing removes without a controller. No
//! object is deleted or stopped.

use api::kueue::jobs::pods::MANAGED;
use api::kueue::{FINALIZER, GROUP, V1BETA2};
use index::Kind;
use kube::Client;
use serde_json::{Value, json};

use super::{CONFLICTS_MAX, Released};
use crate::api_calls::ResourcePath;
use crate::error::Error;

/// The kinds of Kueue's API with the finalizer.
const KINDS: [(&str, &str); 5] = [
    ("Workload", "workloads"),
    ("ClusterQueue", "clusterqueues"),
    ("ResourceFlavor", "resourceflavors"),
    ("AdmissionCheck", "admissionchecks"),
    ("Topology", "topologies"),
];

/// Removes the finalizers from all objects of the cluster, and reports each object that had some.
///
/// # Errors
/// A list fails; an object that cannot be changed is only reported.
pub async fn release_finalizers(client: &Client, mut report: impl FnMut(Released)) -> Result<(), Error> {
    release_all(client, &Kind::new("v1", "Pod"), "pods", &mut report).await?;
    for (kind, plural) in KINDS {
        let kind = Kind::new(format!("{GROUP}/{V1BETA2}"), kind);
        match release_all(client, &kind, plural, &mut report).await {
            // The cluster does not have the kind.
            Err(Error::NotFound(_)) => {}
            result => result?,
        }
    }
    Ok(())
}

async fn release_all(
    client: &Client,
    kind: &Kind,
    plural: &str,
    report: &mut impl FnMut(Released),
) -> Result<(), Error> {
    let all = ResourcePath::of(kind, plural, "");
    let mut token = String::new();
    loop {
        let page = all.list(client, &token).await?;
        for object in page.items.into_iter().filter(|object| change(object).is_some()) {
            let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
            let (namespace, name) = (text("namespace"), text("name"));
            let path = ResourcePath::of(kind, plural, &namespace);
            let result = release_one(client, &path, object, &name).await;
            if !matches!(result, Err(Error::NotFound(_))) {
                let name = if namespace.is_empty() { name } else { format!("{namespace}/{name}") };
                report(Released { kind: kind.kind.clone(), name, result: result.map(|()| 1) });
            }
        }
        if page.metadata.next.is_empty() {
            return Ok(());
        }
        token = page.metadata.next;
    }
}

/// Changes one object, whatever other clients change in between.
async fn release_one(
    client: &Client,
    path: &ResourcePath,
    mut object: Value,
    name: &str,
) -> Result<(), Error> {
    let mut conflicts = 0;
    while let Some(patch) = change(&object) {
        match path.merge::<Value>(client, name, &patch).await {
            Err(Error::Conflict(_)) if conflicts < CONFLICTS_MAX => conflicts += 1,
            result => return result.map(drop),
        }
        object = path.get(client, name).await?;
    }
    Ok(())
}

/// The patch that removes the finalizers of Kueue, if there are any.
fn change(object: &Value) -> Option<Value> {
    let all = object["metadata"]["finalizers"].as_array()?;
    let is_ours = |finalizer: &&Value| **finalizer == FINALIZER || **finalizer == MANAGED;
    let kept: Vec<&Value> = all.iter().filter(|finalizer| !is_ours(finalizer)).collect();
    let version = &object["metadata"]["resourceVersion"];
    (kept.len() < all.len()).then(|| json!({"metadata": {"resourceVersion": version, "finalizers": kept}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_kueues_is_removed() {
        let pod = json!({"metadata": {"resourceVersion": "7", "finalizers": [MANAGED, "example.com/f"]}, "spec": {}});
        let expected = json!({"metadata": {"resourceVersion": "7", "finalizers": ["example.com/f"]}});
        assert_eq!(change(&pod), Some(expected));
        let workload = json!({"metadata": {"resourceVersion": "8", "finalizers": [FINALIZER]}, "spec": {"active": true}});
        let expected = json!({"metadata": {"resourceVersion": "8", "finalizers": []}});
        assert_eq!(change(&workload), Some(expected));
        assert_eq!(change(&json!({"metadata": {"finalizers": ["example.com/f"]}, "spec": {}})), None);
    }
}
