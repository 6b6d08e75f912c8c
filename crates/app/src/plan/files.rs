//! Manifests in files, folders and on standard input.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

use super::{Planned, kind_of};

/// The names of files with manifests, in a folder.
const SUFFIXES: [&str; 3] = ["yaml", "yml", "json"];

/// The manifests of all files, in order.
pub(super) fn read(files: &[PathBuf]) -> Result<Vec<(Planned, Value)>> {
    let mut manifests = Vec::new();
    for file in files {
        if file.is_dir() {
            manifests.extend(of_folder(file)?);
            continue;
        }
        let (text, name) = if file == Path::new("-") {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
            (text, "standard input".into())
        } else {
            (of_file(file)?, file.display().to_string())
        };
        manifests.extend(planned(&text, &mut |error| Err(error)).context(name)?);
    }
    Ok(manifests)
}

fn of_file(file: &Path) -> Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// What is queued in the files of a folder. The rest is named.
fn of_folder(folder: &Path) -> Result<Vec<(Planned, Value)>> {
    let entries = std::fs::read_dir(folder).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
    let entries = entries.with_context(|| format!("cannot read {}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    files.retain(|file| {
        let suffix = file.extension().and_then(|suffix| suffix.to_str());
        file.is_file() && suffix.is_some_and(|suffix| SUFFIXES.contains(&suffix))
    });
    files.sort();
    let mut manifests = Vec::new();
    for file in files {
        let name = file.display().to_string();
        let mut leave_out = |error: anyhow::Error| {
            eprintln!("muster: left out: {name}: {}", crate::visibility::line(&error));
            Ok(())
        };
        match planned(&of_file(&file)?, &mut leave_out) {
            Ok(found) => manifests.extend(found),
            Err(error) if error.is::<Empty>() => {}
            Err(error) => return Err(error).context(name),
        }
    }
    if manifests.is_empty() {
        bail!("{}: {Empty}", folder.display());
    }
    Ok(manifests)
}

/// A text has nothing that can be planned.
#[derive(Debug)]
struct Empty;

impl std::fmt::Display for Empty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("it contains no AppWrapper, no Workload, and no job or pod that a queue holds")
    }
}

impl std::error::Error for Empty {}

/// Parses all AppWrappers, Workloads and jobs of a text, with their kinds. What is not queued goes to `refuse`, which may fail.
fn planned(text: &str, refuse: &mut dyn FnMut(anyhow::Error) -> Result<()>) -> Result<Vec<(Planned, Value)>> {
    // YAML 1.1 as in kubectl: 0777 is an octal number.
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    let documents: Vec<Value> =
        serde_saphyr::from_multiple_with_options(text, options).map_err(|error| anyhow!("{error}"))?;
    let mut found = Vec::new();
    for (at, document) in documents.into_iter().enumerate().filter(|(_, document)| !document.is_null()) {
        let objects = match document["kind"].as_str() {
            Some("List" | "AppWrapperList" | "WorkloadList") => {
                document["items"].as_array().cloned().unwrap_or_default()
            }
            _ => vec![document],
        };
        for object in objects {
            match kind_of(&object).with_context(|| format!("document {}", at + 1)) {
                Ok(kind) => found.push((kind, object)),
                Err(error) => refuse(error)?,
            }
        }
    }
    if found.is_empty() {
        return Err(Empty.into());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> Result<Vec<(Planned, Value)>> {
        planned(text, &mut |error| Err(error))
    }

    const WRAPPER: &str = "apiVersion: mcad.ibm.com/v1beta1\nkind: AppWrapper\nmetadata: {name: a}\n";

    #[test]
    fn documents_and_lists_parse_in_order() {
        let list = r#"{"kind": "List", "apiVersion": "v1", "items": [
            {"apiVersion": "workload.codeflare.dev/v1beta1", "kind": "AppWrapper", "metadata": {"name": "b"}}]}"#;
        let found = whole(&format!("---\n{WRAPPER}---\n# nothing\n---\n{list}\n")).unwrap();
        let found: Vec<_> =
            found.iter().map(|(kind, w)| (format!("{kind:?}"), w["metadata"]["name"].as_str())).collect();
        assert_eq!(
            found,
            [("Gang(Wrapper(Mcad))".into(), Some("a")), ("Gang(Wrapper(Codeflare))".into(), Some("b"))]
        );
    }

    #[test]
    fn pods_and_sets_of_pods_in_queues_are_planned() {
        for (version, kind, expected) in [
            ("v1", "Pod", "Job"),
            ("apps/v1", "StatefulSet", "Set"),
            ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "Set"),
            ("apps/v1", "Deployment", "Deployment"),
        ] {
            let labels = "{kueue.x-k8s.io/queue-name: team}";
            let text = format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{labels: {labels}}}\n");
            let found = format!("{:?}", whole(&text).unwrap()[0].0);
            assert!(found.starts_with(expected), "{kind}: {found}");
        }
    }

    #[test]
    fn a_document_without_an_appwrapper_is_an_error_with_its_position() {
        for (text, says) in [
            (
                format!("{WRAPPER}---\nkind: Job\napiVersion: batch/v1\n"),
                "document 2: Job of batch/v1 is in no queue: give it the label kueue.x-k8s.io/queue-name",
            ),
            ("name: x\n".into(), "document 1: not a Kubernetes object"),
            (String::new(), "it contains no AppWrapper, no Workload, and no job"),
            ("kind: Pod\napiVersion: v1\n".into(), "Pod of v1 is in no queue: give it the label"),
            ("kind: Deployment\napiVersion: apps/v1\n".into(), "Deployment of apps/v1 is in no queue"),
            ("kind: ReplicaSet\napiVersion: apps/v1\n".into(), "ReplicaSet of apps/v1 cannot be queued"),
            ("kind: CronJob\napiVersion: batch/v1\n".into(), "CronJob of batch/v1 cannot be queued"),
            (
                "kind: WorkloadPriorityClass\napiVersion: kueue.x-k8s.io/v1beta2\n".into(),
                "is no workload: create it",
            ),
            ("kind: Job\n  apiVersion: [\n".into(), "line 2"),
        ] {
            let error = format!("{:#}", whole(&text).unwrap_err());
            assert!(error.contains(says), "{error}");
        }
    }
}
