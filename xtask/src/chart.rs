//! The Helm chart: its objects as `muster install` prints them against those that Helm renders, and the files of `deploy/` that are
//! parts of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, ensure};
use chart::{Chart, Release};
use serde_json::{Value, json};

use crate::{definitions, root};

const CHART: &str = "charts/muster";
const NAMESPACE: &str = "muster-system";
/// The version of Kubernetes for which Helm renders. Built from its module, Helm assumes 1.20.
const KUBERNETES: &str = "1.36.0";

/// The header of a file of `deploy/`.
const RBAC: &str = "\
# The complete RBAC permissions of `muster controller` for a process outside of the cluster: kubectl apply -f deploy/rbac.yaml
# Generated from charts/muster by `cargo run -p xtask -- deploy`. The chart and `muster install` have the permissions for their values.
#
# Some roles have the permissions for the controller's own work. A further, aggregated ClusterRole has the permissions for wrapped kinds: it
# selects all ClusterRoles with the label muster.dev/wrapped: \"true\". To permit AppWrappers of a further kind, add a ClusterRole with this
# label. Without --authorization=webhook, a user who may create AppWrappers in a namespace can create objects of all these kinds there. Secrets
# and Roles are therefore not included.
apiVersion: v1
kind: Namespace
metadata:
  name: muster
---
";
const KUEUE_RBAC: &str = "\
# The permissions of the parts of `muster controller --parts core,scheduler,provisioning,multikueue,webhooks,job=batch/job,job=ray.io/rayjob`, and of the other kinds of jobs, beside deploy/rbac.yaml: kubectl apply -f deploy/kueue-rbac.yaml
# Generated from charts/muster by `cargo run -p xtask -- deploy`. The chart and `muster install` have the permissions for their values.
#
# The lease is in the namespace of Kueue (`namespace` of the configuration), because a Kueue that runs there must not act at the same time.
";

/// The files that are generated, with their text: the definitions of the chart, and the files of `deploy/` that are parts of the chart.
fn deployed() -> Result<Vec<(&'static str, String)>> {
    let release = Release { name: "muster".into(), namespace: "muster".into() };
    let groups = json!({"appWrappers": {"groups": ["mcad.ibm.com", "workload.codeflare.dev"], "quota": true,
        "provisioningClasses": ["none"]}, "metrics": {"enabled": true}});
    let own = Chart::new(&release, [groups])?;
    let schema: Value =
        serde_json::from_str(&std::fs::read_to_string(root().join(CHART).join("values.schema.json"))?)?;
    let jobs = &schema["properties"]["kueue"]["properties"]["jobs"]["items"]["enum"];
    let kueue = json!({"kueue": {"enabled": true, "inPlace": true, "namespace": "kueue-system", "provisioning": true, "multikueue": true, "jobs": jobs}});
    let of_kueue = Chart::new(&release, [kueue])?;
    let text = |chart: &Chart, header: &str, templates: [&str; 2]| -> Result<String> {
        let parts: Vec<String> = templates
            .iter()
            .map(|name| Ok(chart.render(&format!("templates/{name}.yaml"))?.trim().to_owned()))
            .collect::<Result<_>>()?;
        Ok(format!("{header}{}\n", parts.join("\n---\n")))
    };
    Ok(vec![
        (definitions::FILE, definitions::template()),
        ("deploy/rbac.yaml", text(&own, RBAC, ["rbac", "lease"])?),
        ("deploy/kueue-rbac.yaml", text(&of_kueue, KUEUE_RBAC, ["kueue-rbac", "lease"])?),
    ])
}

/// Writes the generated files of the chart and of `deploy/`.
pub(crate) fn deploy() -> Result<()> {
    for (file, text) in deployed()? {
        std::fs::write(root().join(file), text).with_context(|| format!("cannot write {file}"))?;
        println!("{file}");
    }
    Ok(())
}

/// Compares the objects for the default values, and for all values in `charts/muster/ci`, with those of each Helm.
pub(crate) fn compare(helms: &[PathBuf]) -> Result<ExitCode> {
    let chart = root().join(CHART);
    let mut files = vec![None];
    for entry in std::fs::read_dir(chart.join("ci"))? {
        files.push(Some(entry?.path()));
    }
    files.sort();
    let (mut compared, mut differences) = (0, Vec::new());
    for helm in helms {
        helm_command(helm, &["lint", "--strict"], None, &chart)?;
        for file in &files {
            let theirs = helm_command(helm, &["template", "muster"], file.as_deref(), &chart)?;
            let theirs: Vec<Value> =
                serde_saphyr::from_multiple(&theirs).context("the output of Helm is no YAML")?;
            let ours = objects(file.as_deref())?;
            let named = file.as_ref().and_then(|file| file.file_name()).unwrap_or("values.yaml".as_ref());
            compared += ours.len();
            let found = differing(&by_name(theirs), &by_name(ours));
            differences.extend(found.into_iter().map(|text| format!("{}: {text}", named.display())));
        }
    }
    for difference in &differences {
        println!("{difference}");
    }
    println!(
        "chart: {compared} objects for {} sets of values and {} versions of Helm, {} differences",
        files.len(),
        helms.len(),
        differences.len()
    );
    Ok(if differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn helm_command(helm: &Path, command: &[&str], values: Option<&Path>, chart: &Path) -> Result<String> {
    let mut command_line = Command::new(helm);
    command_line.args(command).arg(chart).args(["--namespace", NAMESPACE, "--kube-version", KUBERNETES]);
    if let Some(values) = values {
        command_line.arg("--values").arg(values);
    }
    let output = command_line.output().with_context(|| format!("cannot start {}", helm.display()))?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "helm {} failed:\n{printed}{errors}", command.join(" "));
    Ok(printed)
}

fn objects(values: Option<&Path>) -> Result<Vec<Value>> {
    let change = match values {
        Some(file) => serde_saphyr::from_str(&std::fs::read_to_string(file)?)?,
        None => json!({}),
    };
    let release = Release { name: "muster".into(), namespace: NAMESPACE.into() };
    Ok(Chart::new(&release, [change])?.all_objects()?)
}

/// Objects by kind, namespace and name.
fn by_name(objects: Vec<Value>) -> BTreeMap<String, Value> {
    let name = |object: &Value| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        format!("{} {}/{}", text(&object["kind"]), text(&metadata["namespace"]), text(&metadata["name"]))
    };
    objects.into_iter().filter(|object| !object.is_null()).map(|object| (name(&object), object)).collect()
}

fn differing(theirs: &BTreeMap<String, Value>, ours: &BTreeMap<String, Value>) -> Vec<String> {
    let mut names: Vec<&String> = theirs.keys().chain(ours.keys()).collect();
    names.sort();
    names.dedup();
    let difference = |name: &String| match (theirs.get(name), ours.get(name)) {
        (Some(theirs), Some(ours)) if theirs == ours => None,
        (Some(theirs), Some(ours)) => Some(format!("{name}: Helm has {theirs}, muster install {ours}")),
        (Some(_), None) => Some(format!("{name}: only Helm has it")),
        (None, _) => Some(format!("{name}: Helm does not have it")),
    };
    names.into_iter().filter_map(difference).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_files_are_up_to_date() {
        for (file, expected) in deployed().unwrap() {
            let found = std::fs::read_to_string(root().join(file)).unwrap();
            assert!(found == expected, "{file} is not what the chart says: cargo run -p xtask -- deploy");
        }
    }

    #[test]
    fn all_values_of_ci_are_valid() {
        for entry in std::fs::read_dir(root().join(CHART).join("ci")).unwrap() {
            let file = entry.unwrap().path();
            objects(Some(&file)).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        }
    }
}
