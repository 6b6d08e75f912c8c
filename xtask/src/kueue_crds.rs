//! `xtask kueue-crds`: compares Muster's definitions of Kueue's kinds with those of Kueue's module.
//!
//! Nothing of Kueue is stored here: the module is downloaded with `go`. Descriptions are not compared, and of a pod template
//! only the fields that Muster's schema names.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, ensure};
use serde_json::{Map, Value, json};

/// Prints the differences, and fails if there are any.
pub(crate) fn compare(version: &str) -> anyhow::Result<ExitCode> {
    let folder = module(version)?.join("config/components/crd/bases");
    let mut differences = Vec::new();
    for own in api::kueue::crds(&json!({})) {
        let plural = own["spec"]["names"]["plural"].as_str().context("a definition has a plural name")?;
        let file = folder.join(format!("kueue.x-k8s.io_{plural}.yaml"));
        let text =
            std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let theirs: Value = serde_saphyr::from_str(&text)?;
        let mut own_spec = own["spec"].clone();
        if let Some(fields) = own_spec.as_object_mut() {
            fields.remove("conversion"); // Kueue's module adds it when it is installed.
        }
        let mut comparison = Comparison { path: plural.to_owned(), differences: &mut differences };
        comparison.values("spec", &own_spec, &theirs["spec"]);
    }
    for difference in &differences {
        println!("{difference}");
    }
    println!("{} differences from Kueue {version}", differences.len());
    Ok(if differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The folder of Kueue's module in the module cache.
fn module(version: &str) -> anyhow::Result<PathBuf> {
    let module = format!("sigs.k8s.io/kueue@{version}");
    let output = Command::new("go").args(["mod", "download", "-json", &module]).current_dir("/").output();
    let output = output.context("cannot run go")?;
    ensure!(output.status.success(), "go mod download {module}: {}", String::from_utf8_lossy(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout)?;
    let folder = answer["Dir"].as_str().context("go mod download names no folder")?;
    Ok(Path::new(folder).to_owned())
}

/// A walk through two values at the same time.
struct Comparison<'a> {
    path: String,
    differences: &'a mut Vec<String>,
}

impl Comparison<'_> {
    fn values(&mut self, key: &str, own: &Value, theirs: &Value) {
        let length = self.path.len();
        self.path.push('.');
        self.path.push_str(key);
        match (own, theirs) {
            (Value::Object(own), Value::Object(theirs)) => self.objects(own, theirs),
            (Value::Array(own), Value::Array(theirs)) if own.len() == theirs.len() => {
                for (index, (own, theirs)) in own.iter().zip(theirs).enumerate() {
                    self.values(&index.to_string(), own, theirs);
                }
            }
            _ if own == theirs => {}
            _ => self.differences.push(format!("{}: {own} here, {theirs} in Kueue", self.path)),
        }
        self.path.truncate(length);
    }

    fn objects(&mut self, own: &Map<String, Value>, theirs: &Map<String, Value>) {
        // An open object keeps what it does not name.
        let is_open = own.contains_key("x-kubernetes-preserve-unknown-fields");
        let is_in_template = self.path.contains(".template.");
        for (key, value) in own {
            let known = key == "x-kubernetes-preserve-unknown-fields" && is_in_template;
            if !known && !is_description(key, value) {
                self.values(key, value, theirs.get(key).unwrap_or(&Value::Null));
            }
        }
        for (key, value) in theirs.iter().filter(|(key, value)| !is_description(key, value)) {
            let is_kept = is_in_template && (is_open || self.is_below_open(own));
            if !own.contains_key(key) && !is_kept {
                self.values(key, &Value::Null, value);
            }
        }
    }

    /// Whether `own` are the properties of an open object of a pod template: it does not have to name all.
    fn is_below_open(&self, own: &Map<String, Value>) -> bool {
        self.path.ends_with(".properties")
            && own.values().any(Value::is_object)
            && !self.path.ends_with(".metadata.properties")
    }
}

/// A field with this name is an object: its schema.
fn is_description(key: &str, value: &Value) -> bool {
    key == "description" && value.is_string()
}
