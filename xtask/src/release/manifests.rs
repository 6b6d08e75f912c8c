//! Manifests of a release: what `muster install` prints for its profiles, and the plugin of kubectl for krew.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use chart::{Chart, Release, assignment};
use serde_json::{Value, json};

use super::VERSION;
use crate::image::Platform;

/// The files with objects, and the values of each beside the chart's defaults.
pub(super) const PROFILES: [(&str, &[&str]); 3] = [
    ("install.yaml", &[]),
    ("install-kueue.yaml", &["appWrappers.enabled=false", "kueue.enabled=true"]),
    ("install-all.yaml", &["kueue.enabled=true"]),
];
/// The namespace of the objects.
pub(super) const NAMESPACE: &str = "muster-system";

/// The objects of a profile: `muster install --namespace muster-system --set …`.
pub(super) fn install(image: &str, values: &[&str]) -> Result<String> {
    let release = Release { name: "muster".into(), namespace: NAMESPACE.into() };
    let mut changes = vec![json!({"image": {"repository": image}})];
    for value in values {
        changes.push(assignment(value).map_err(anyhow::Error::msg)?);
    }
    let manifest = Chart::new(&release, changes)?.manifest()?;
    let flags = values.iter().fold(String::new(), |flags, value| flags + " --set " + value);
    Ok(format!("# muster install --namespace {NAMESPACE} --image {image}:{VERSION}{flags}\n{manifest}"))
}

/// The manifest of `kubectl muster` for krew, with the archives by name and digest.
pub(super) fn krew(base_url: &str, archives: &BTreeMap<Platform, (String, String)>) -> Result<String> {
    let platforms = archives.iter().map(|(platform, (name, digest))| -> Value {
        json!({
            "selector": {"matchLabels": {"os": "linux", "arch": platform.architecture()}},
            "uri": format!("{}/{name}", base_url.trim_end_matches('/')),
            "sha256": digest.trim_start_matches("sha256:"),
            "files": [{"from": "muster", "to": "kubectl-muster"}, {"from": "LICENSE", "to": "."}],
            "bin": "kubectl-muster",
        })
    });
    let manifest = json!({
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "muster"},
        "spec": {
            "version": format!("v{VERSION}"),
            "shortDescription": "List and explain queued gangs",
            "description": "Lists gangs, queues and nodes, explains why a gang waits and when it starts, and changes what is queued.",
            "platforms": platforms.collect::<Vec<_>>(),
        },
    });
    serde_saphyr::to_string(&manifest).context("cannot write the manifest for krew")
}
