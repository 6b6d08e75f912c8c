//! `xtask schemas`: generates the checked-in schemas of built-in kinds from Kubernetes' own modules.
//!
//! Downloads the modules with `go` and writes three assets: the `OpenAPI` components with descriptions (for `OpenAPI` documents
//! and `kubectl explain`), the same components without descriptions but with the Go types of fields (for decoding), and the
//! protobuf descriptors. The crate `apiserver` embeds the assets.

mod enums;
mod gotypes;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use prost_reflect::prost::Message as _;
use serde_json::{Map, Value};

use self::gotypes::GoTypes;

/// The API groups that the API server serves, in the spelling of the file names of Kubernetes' `OpenAPI` documents, and the
/// directories of their Go packages.
const GROUPS: [(&str, &str); 18] = [
    ("api__v1", "k8s.io/api/core/v1"),
    ("apis__admissionregistration.k8s.io__v1", "k8s.io/api/admissionregistration/v1"),
    ("apis__apiextensions.k8s.io__v1", "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"),
    ("apis__apps__v1", "k8s.io/api/apps/v1"),
    ("apis__authentication.k8s.io__v1", "k8s.io/api/authentication/v1"),
    ("apis__authorization.k8s.io__v1", "k8s.io/api/authorization/v1"),
    ("apis__autoscaling__v1", "k8s.io/api/autoscaling/v1"),
    ("apis__autoscaling__v2", "k8s.io/api/autoscaling/v2"),
    ("apis__batch__v1", "k8s.io/api/batch/v1"),
    ("apis__coordination.k8s.io__v1", "k8s.io/api/coordination/v1"),
    ("apis__discovery.k8s.io__v1", "k8s.io/api/discovery/v1"),
    ("apis__events.k8s.io__v1", "k8s.io/api/events/v1"),
    ("apis__networking.k8s.io__v1", "k8s.io/api/networking/v1"),
    ("apis__node.k8s.io__v1", "k8s.io/api/node/v1"),
    ("apis__policy__v1", "k8s.io/api/policy/v1"),
    ("apis__rbac.authorization.k8s.io__v1", "k8s.io/api/rbac/v1"),
    ("apis__resource.k8s.io__v1", "k8s.io/api/resource/v1"),
    ("apis__scheduling.k8s.io__v1", "k8s.io/api/scheduling/v1"),
];
/// A further API group. It is a constant of its own to keep the array above short.
const STORAGE: (&str, &str) = ("apis__storage.k8s.io__v1", "k8s.io/api/storage/v1");
/// And another one.
const FLOW_CONTROL: (&str, &str) = ("apis__flowcontrol.apiserver.k8s.io__v1", "k8s.io/api/flowcontrol/v1");
/// Go packages that all groups use.
const SHARED: [&str; 4] = [
    "k8s.io/apimachinery/pkg/apis/meta/v1",
    "k8s.io/apimachinery/pkg/runtime",
    "k8s.io/apimachinery/pkg/api/resource",
    "k8s.io/apimachinery/pkg/util/intstr",
];

/// Writes the assets to `out`. `version` is the version of Kubernetes, such as `1.36.3`.
pub(crate) fn generate(version: &str, out: &Path) -> anyhow::Result<()> {
    let work = tempfile::tempdir()?;
    let minor = version.strip_prefix("1.").context("version must begin with 1.")?;
    let kubernetes = download(work.path(), &format!("k8s.io/kubernetes@v1.{minor}"))?;
    let includes = work.path().join("include");
    std::fs::create_dir_all(includes.join("k8s.io"))?;
    for module in ["api", "apimachinery", "apiextensions-apiserver"] {
        let sources = download(work.path(), &format!("k8s.io/{module}@v0.{minor}"))?;
        std::os::unix::fs::symlink(sources, includes.join("k8s.io").join(module))?;
    }
    let mut components = components(&kubernetes.join("api/openapi-spec/v3"))?;
    let types = types(&components, &GoTypes::read(&includes, packages())?)?;
    enums::add(&kubernetes, &mut components)?;
    std::fs::create_dir_all(out)?;
    store(out, "schemas.json.gz", &serde_json::to_vec(&components)?)?;
    store(out, "types.json.gz", &serde_json::to_vec(&types)?)?;
    store(out, "descriptors.bin.gz", &descriptors(&includes)?)?;
    let notice = format!(
        "The files beside this one are generated from Kubernetes {version} (https://github.com/kubernetes/kubernetes),\n\
         Copyright The Kubernetes Authors, licensed under the Apache License, Version 2.0.\n\
         They are made by `cargo run -p xtask -- schemas`, which keeps the API groups that this server serves.\n"
    );
    std::fs::write(out.join("NOTICE"), notice)?;
    Ok(())
}

fn groups() -> impl Iterator<Item = (&'static str, &'static str)> {
    GROUPS.into_iter().chain([STORAGE, FLOW_CONTROL])
}

fn packages() -> impl Iterator<Item = &'static str> {
    groups().map(|(_, package)| package).chain(SHARED)
}

/// The source directory of a Go module, downloaded if it is not in Go's cache.
fn download(work: &Path, module: &str) -> anyhow::Result<PathBuf> {
    let output = Command::new("go")
        .args(["mod", "download", "-json", module])
        .current_dir(work)
        .env("GOFLAGS", "-mod=mod")
        .output()
        .context("cannot run go")?;
    ensure!(output.status.success(), "cannot download {module}: {}", String::from_utf8_lossy(&output.stdout));
    let answer: Value = serde_json::from_slice(&output.stdout)?;
    let directory = answer["Dir"]
        .as_str()
        .with_context(|| format!("`go mod download` returns no directory for {module}"))?;
    Ok(directory.into())
}

/// The `OpenAPI` component schemas of all groups, by name.
fn components(documents: &Path) -> anyhow::Result<BTreeMap<String, Value>> {
    let mut all = BTreeMap::new();
    for (file, _) in groups() {
        let path = documents.join(format!("{file}_openapi.json"));
        let document: Value =
            serde_json::from_slice(&std::fs::read(&path).with_context(|| path.display().to_string())?)?;
        let Some(schemas) = document["components"]["schemas"].as_object() else {
            bail!("{} has no schemas", path.display());
        };
        all.extend(schemas.iter().map(|(name, schema)| (name.clone(), schema.clone())));
    }
    let served: BTreeSet<(String, String)> = groups().map(|(file, _)| group_version(file)).collect();
    for schema in all.values_mut() {
        keep_served(schema, &served);
    }
    Ok(all)
}

fn group_version(file: &str) -> (String, String) {
    let mut parts = file.split("__").skip(1);
    match (parts.next(), parts.next()) {
        (Some(group), Some(version)) => (group.to_owned(), version.to_owned()),
        (version, _) => (String::new(), version.unwrap_or_default().to_owned()),
    }
}

/// Removes the group versions that are not served. Kinds such as `DeleteOptions` list all groups of Kubernetes, which makes the
/// asset larger.
fn keep_served(schema: &mut Value, served: &BTreeSet<(String, String)>) {
    let Some(Value::Array(kinds)) = schema.get_mut("x-kubernetes-group-version-kind") else { return };
    let text = |kind: &Value, name: &str| kind[name].as_str().unwrap_or_default().to_owned();
    kinds.retain(|kind| served.contains(&(text(kind, "group"), text(kind, "version"))));
}

/// The components without descriptions, with the Go types of fields.
fn types(components: &BTreeMap<String, Value>, go: &GoTypes) -> anyhow::Result<BTreeMap<String, Value>> {
    let mut types = BTreeMap::new();
    let mut unknown = Vec::new();
    for (name, schema) in components {
        let mut bare = bare(schema);
        let fields = go.fields(name);
        if let Some(properties) = bare.get_mut("properties").and_then(Value::as_object_mut) {
            for (property, schema) in properties {
                let Some(field) = fields.get(property) else {
                    unknown.push(format!("{name}.{property}"));
                    continue;
                };
                schema["x-go-type"] = field.kind.clone().into();
                for (flag, name) in [(field.omit_empty, "x-go-omitempty"), (field.omit_zero, "x-go-omitzero")]
                {
                    if flag {
                        schema[name] = true.into();
                    }
                }
            }
        }
        types.insert(name.clone(), bare);
    }
    ensure!(unknown.is_empty(), "no Go field for {}", unknown.join(", "));
    Ok(types)
}

/// A schema without descriptions. A reference wrapped in `allOf` becomes a plain `$ref`.
fn bare(schema: &Value) -> Value {
    match schema {
        Value::Object(fields) => {
            let mut kept = Map::new();
            for (name, value) in fields {
                match (name.as_str(), value) {
                    ("description" | "title", Value::String(_)) => {}
                    ("default", Value::Object(empty)) if empty.is_empty() => {}
                    ("allOf", Value::Array(branches))
                        if branches.len() == 1 && branches[0]["$ref"].is_string() =>
                    {
                        kept.insert("$ref".to_owned(), short(&branches[0]["$ref"]));
                    }
                    ("$ref", reference @ Value::String(_)) => {
                        kept.insert("$ref".to_owned(), short(reference));
                    }
                    ("properties", Value::Object(properties)) => {
                        let bare = properties.iter().map(|(name, property)| (name.clone(), bare(property)));
                        kept.insert(name.clone(), Value::Object(bare.collect()));
                    }
                    _ => {
                        kept.insert(name.clone(), bare(value));
                    }
                }
            }
            Value::Object(kept)
        }
        Value::Array(items) => Value::Array(items.iter().map(bare).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => schema.clone(),
    }
}

fn short(reference: &Value) -> Value {
    reference.as_str().unwrap_or_default().trim_start_matches("#/components/schemas/").into()
}

fn descriptors(includes: &Path) -> anyhow::Result<Vec<u8>> {
    let files: Vec<String> = packages().map(|package| format!("{package}/generated.proto")).collect();
    let mut compiler = protox::Compiler::new([includes])?;
    compiler.include_imports(true).include_source_info(false).open_files(files)?;
    let mut set = compiler.file_descriptor_set();
    for file in &mut set.file {
        file.options = None;
        let messages = &mut file.message_type;
        for field in messages.iter_mut().flat_map(|message| &mut message.field) {
            field.json_name = None;
        }
    }
    Ok(set.encode_to_vec())
}

fn store(out: &Path, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    let compressed = encoder.finish()?;
    println!("{name}: {} bytes, {} compressed", bytes.len(), compressed.len());
    std::fs::write(out.join(name), compressed)?;
    Ok(())
}
