//! The samples of the KubeRay operator's module, given to the real operator and to the simulated one, and what both make of them.
//!
//! A sample is a file of manifests, which is never copied here. Each gets a namespace of its own on both clusters ([`server`]), all at
//! the same time; the clusters are watched until nothing changes there any more ([`story`]); what the operators made is then put
//! into an order of its own ([`look`]) and compared like any other answer. What may differ is a row of
//! `docs/compat/kuberay-samples.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use differential::answer::{Answer, Difference, compare};
use futures::future::try_join;
use serde_json::{Value, json};

pub mod look;
pub mod server;
pub mod story;

use server::Server;

/// Kinds that the simulated operator does not know; documents of theirs are left out.
const NOT_SIMULATED: [&str; 2] = ["RayService", "RayCronJob"];

/// One file of manifests.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Name of the file, without its suffix.
    pub name: String,
    /// Its documents, in order.
    pub documents: Vec<Value>,
}

impl Sample {
    /// All samples of a folder that hold a `RayCluster` or a `RayJob`, in order of their names; only these names, if there are any.
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
        // As kubectl reads it: 0777 is the mode of a file.
        let options = serde_saphyr::options! { legacy_octal_numbers: true };
        let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options)?;
        let wanted =
            |document: &Value| document["kind"].as_str().is_some_and(|kind| !NOT_SIMULATED.contains(&kind));
        Ok(Self { name, documents: documents.into_iter().filter(wanted).collect() })
    }

    /// Where it is applied; `word` keeps runs on one cluster apart.
    fn namespace(&self, word: &str) -> String {
        let stem: String = self.name.replace(['.', '_'], "-").chars().take(50).collect();
        format!("{}-{word}", stem.trim_end_matches('-'))
    }
}

fn is_ray(object: &Value) -> bool {
    matches!(object["kind"].as_str(), Some("RayCluster" | "RayJob"))
}

/// Nodes on which all pods of the samples find a place: one for each node selector, and one for those without.
fn nodes(samples: &[Sample]) -> Vec<Value> {
    let mut selectors = BTreeSet::from(["{}".to_owned()]);
    for document in samples.iter().flat_map(|sample| &sample.documents) {
        node_selectors(document, &mut selectors);
    }
    let resources = "cpu=100000 memory=1Pi pods=100000 nvidia.com/gpu=10000 google.com/tpu=100000";
    let node = |selector: String| {
        // The same name for the same labels, whichever samples are played: an earlier run may have left the node.
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

/// What became of one sample.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The sample.
    pub name: String,
    /// Documents that neither server took, and why.
    pub left_out: Vec<String>,
    /// What the two servers differ in.
    pub differences: Vec<Difference>,
}

/// Plays samples on the real cluster and on the simulated one at the same time, and compares what both made of them.
pub async fn play(real: &Server, simulated: &Server, samples: &[Sample], word: &str) -> Result<Vec<Outcome>> {
    let nodes = nodes(samples);
    let (expected, found) =
        try_join(story::play(real, samples, &nodes, word), story::play(simulated, samples, &nodes, word))
            .await?;
    let outcome = |(sample, (expected, found)): (&Sample, (Vec<Answer>, Vec<Answer>))| Outcome {
        name: sample.name.clone(),
        left_out: left_out(&expected, &found),
        differences: compare(&expected, &found),
    };
    Ok(samples.iter().zip(expected.into_iter().zip(found)).map(outcome).collect())
}

/// Documents that neither server took.
fn left_out(expected: &[Answer], found: &[Answer]) -> Vec<String> {
    let applied = |answers: &[Answer]| answers.first().map_or(Value::Null, |answer| answer.body.clone());
    let (real, ours) = (applied(expected), applied(found));
    let documents = real.as_object().into_iter().flatten();
    let refused = documents.filter(|(name, answer)| **answer != 201 && ours[name.as_str()] == **answer);
    refused.map(|(name, answer)| format!("{name}: {answer}")).collect()
}
