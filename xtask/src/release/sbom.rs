//! The software bill of materials of a program: `CycloneDX` 1.5 in JSON, from the dependencies that cargo resolves.
//!
//! After <https://cyclonedx.org/docs/1.5/json/>.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result};
use cargo_metadata::{CargoOpt, DependencyKind, MetadataCommand, Node, Package, PackageId};
use serde_json::{Value, json};

use super::VERSION;
use crate::image::Platform;

/// The package of the program.
const PROGRAM: &str = "app";

/// The bill for a platform. Packages that only tests use are not in it.
pub(super) fn text(platform: Platform, time_s: u64) -> Result<Vec<u8>> {
    let metadata = MetadataCommand::new()
        .manifest_path(Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml"))
        .features(CargoOpt::SomeFeatures(Vec::new()))
        .other_options(["--locked".to_owned(), format!("--filter-platform={}", platform.target())])
        .exec()
        .context("cannot ask cargo for the dependencies")?;
    let packages: BTreeMap<&PackageId, &Package> =
        metadata.packages.iter().map(|package| (&package.id, package)).collect();
    let resolve = metadata.resolve.as_ref().context("cargo resolves no dependencies")?;
    let nodes: BTreeMap<&PackageId, &Node> = resolve.nodes.iter().map(|node| (&node.id, node)).collect();
    let program = metadata.packages.iter().find(|package| package.name.as_str() == PROGRAM);
    let program = &program.context("the program is no package")?.id;
    let used = used(program, &nodes);
    let components: Vec<Value> =
        used.iter().filter(|id| **id != program).map(|id| component(packages[id])).collect();
    let dependencies: Vec<Value> = used
        .iter()
        .map(|id| {
            let on: BTreeSet<String> =
                linked(nodes[id]).filter(|id| used.contains(id)).map(|id| reference(packages[id])).collect();
            json!({"ref": reference(packages[id]), "dependsOn": on})
        })
        .collect();
    let bill = json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {
            "timestamp": jiff::Timestamp::from_second(time_s.try_into()?)?.to_string(),
            "component": {
                "type": "application", "name": "muster", "version": VERSION,
                "bom-ref": reference(packages[program]),
                "licenses": [{"expression": env!("CARGO_PKG_LICENSE")}],
            },
        },
        "components": components,
        "dependencies": dependencies,
    });
    Ok(format!("{bill:#}\n").into_bytes())
}

/// The packages that a program is built from, itself included.
fn used<'a>(program: &'a PackageId, nodes: &BTreeMap<&'a PackageId, &'a Node>) -> BTreeSet<&'a PackageId> {
    let (mut found, mut open) = (BTreeSet::new(), vec![program]);
    while let Some(id) = open.pop() {
        if found.insert(id) {
            open.extend(linked(nodes[id]));
        }
    }
    found
}

/// What a package needs to be built and to run.
fn linked(node: &Node) -> impl Iterator<Item = &PackageId> {
    let is_used = |dependency: &&cargo_metadata::NodeDep| {
        dependency.dep_kinds.iter().any(|of| of.kind != DependencyKind::Development)
    };
    node.deps.iter().filter(is_used).map(|dependency| &dependency.pkg)
}

fn component(package: &Package) -> Value {
    let mut component = json!({
        "type": "library", "name": package.name.as_str(), "version": package.version.to_string(),
        "bom-ref": reference(package),
    });
    if package.source.is_some() {
        component["purl"] = reference(package).into();
    }
    if let Some(license) = &package.license {
        // An older form of the field has a slash for OR.
        component["licenses"] = json!([{"expression": license.replace('/', " OR ")}]);
    }
    if let Some(url) = &package.repository {
        component["externalReferences"] = json!([{"type": "vcs", "url": url}]);
    }
    component
}

/// The package URL, which names the component within the bill, too.
fn reference(package: &Package) -> String {
    format!("pkg:cargo/{}@{}", package.name, package.version)
}
