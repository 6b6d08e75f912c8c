//! Compares the real KubeRay operator with the simulated one on the samples of KubeRay's module.
//!
//! A sample is a file of manifests, which is read from the module and not copied here. All samples are applied at the same time,
//! each to a namespace of its own on both clusters ([`server`]). Both clusters are polled until their objects are stable ([`run`]).
//! The objects are normalised ([`observation`]) and compared. `docs/compat/kuberay-samples.md` lists the accepted differences.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use differential::answer::{Answer, Difference, compare};
use futures::future::try_join;
use serde_json::{Value, json};

pub mod observation;
pub mod run;
pub mod server;

use server::Server;

/// Kinds that the simulated operator does not implement. Documents of these kinds are skipped.
const NOT_SIMULATED: [&str; 2] = ["RayService", "RayCronJob"];

/// One file of manifests.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The name of the file, without its extension.
    pub name: String,
    /// The documents of the file, in order.
    pub documents: Vec<Value>,
}

impl Sample {
    /// Reads the samples of a folder that have a `RayCluster` or a `RayJob`, sorted by name. If `names` is not empty, reads only these.
    pub fn read(folder: &Path, names: &[String]) -> Result<Vec<Self>> {
        let mut samples = Vec::new();
        let files = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
        for file in files {
            let path = file?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let chosen = names.is_empty() || names.contains(&name);
            if !chosen || path.extension().is_none_or(|suffix| suffix != "yaml") {
                continue;
            }
            let sample = Self::parse(name, &std::fs::read_to_string(&path)?)
                .with_context(|| format!("cannot read {}", path.display()))?;
            if sample.documents.iter().any(is_ray) {
                samples.push(sample);
            }
        }
        samples.sort_by(|a, b| a.name.cmp(&b.name));
        let missing = names.iter().find(|name| samples.iter().all(|sample| sample.name != **name));
        ensure!(missing.is_none(), "no sample {} in {}", missing.map_or("", |name| name), folder.display());
        ensure!(!samples.is_empty(), "no sample with a RayCluster or a RayJob in {}", folder.display());
        Ok(samples)
    }

    fn parse(name: String, text: &str) -> Result<Self> {
        // kubectl parses 0777 as an octal number.
        let options = serde_saphyr::options! { legacy_octal_numbers: true };
        let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options)?;
        let is_simulated =
            |document: &Value| document["kind"].as_str().is_some_and(|kind| !NOT_SIMULATED.contains(&kind));
        Ok(Self { name, documents: documents.into_iter().filter(is_simulated).collect() })
    }

    /// The namespace of the sample; `run_id` makes it unique among runs on the same cluster.
    fn namespace(&self, run_id: &str) -> String {
        let stem: String = self.name.replace(['.', '_'], "-").chars().take(50).collect();
        format!("{}-{run_id}", stem.trim_end_matches('-'))
    }
}

fn is_ray(object: &Value) -> bool {
    matches!(object["kind"].as_str(), Some("RayCluster" | "RayJob"))
}

/// Nodes on which all pods of the samples fit: one for each node selector, and one without labels.
fn nodes(samples: &[Sample]) -> Vec<Value> {
    let mut selectors = BTreeSet::from(["{}".to_owned()]);
    for document in samples.iter().flat_map(|sample| &sample.documents) {
        node_selectors(document, &mut selectors);
    }
    let resources = "cpu=100000 memory=1Pi pods=100000 nvidia.com/gpu=10000 google.com/tpu=100000";
    let node = |selector: String| {
        // The name depends only on the labels, because an earlier run with other samples may have left the node.
        let number = selector.bytes().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        let mut node = crate::objects::node(&format!("ample-{number:x}"), resources);
        let labels: BTreeMap<String, Value> = serde_json::from_str(&selector).unwrap_or_default();
        for (label, value) in labels {
            node["metadata"]["labels"][label] = value;
        }
        for amounts in ["capacity", "allocatable"] {
            node["status"][amounts]["ephemeral-storage"] = json!("1Pi");
        }
        node
    };
    selectors.into_iter().map(node).collect()
}

fn node_selectors(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("nodeSelector").filter(|value| value.is_object()).map(Value::to_string));
            fields.values().for_each(|value| node_selectors(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| node_selectors(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The result of one sample.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The name of the sample.
    pub name: String,
    /// The documents that both servers reject in the same way, with the response.
    pub left_out: Vec<String>,
    /// The differences between the two servers.
    pub differences: Vec<Difference>,
}

/// Runs samples on the real cluster and on the simulated one at the same time, and compares the results.
pub async fn run(
    real: &Server,
    simulated: &Server,
    samples: &[Sample],
    run_id: &str,
) -> Result<Vec<Outcome>> {
    let nodes = nodes(samples);
    let (expected, found) =
        try_join(run::run(real, samples, &nodes, run_id), run::run(simulated, samples, &nodes, run_id))
            .await?;
    let outcome = |(sample, (expected, found)): (&Sample, (Vec<Answer>, Vec<Answer>))| Outcome {
        name: sample.name.clone(),
        left_out: left_out(&expected, &found),
        differences: compare(&expected, &found),
    };
    Ok(samples.iter().zip(expected.into_iter().zip(found)).map(outcome).collect())
}

/// The documents that both servers reject in the same way.
fn left_out(expected: &[Answer], found: &[Answer]) -> Vec<String> {
    let applied = |answers: &[Answer]| answers.first().map_or(Value::Null, |answer| answer.body.clone());
    let (real, ours) = (applied(expected), applied(found));
    let documents = real.as_object().into_iter().flatten();
    let rejected = documents.filter(|(name, answer)| **answer != 201 && ours[name.as_str()] == **answer);
    rejected.map(|(name, answer)| format!("{name}: {answer}")).collect()
}
