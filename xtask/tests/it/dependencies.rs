//! Checks the dependencies between the crates of the workspace against the table in `docs/ARCHITECTURE.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};

/// The workspace crates on which each crate depends, by name.
type Dependencies = BTreeMap<String, BTreeSet<String>>;

#[test]
fn normal_dependencies_between_crates_are_listed_on_the_architecture_page() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(root.join("docs/ARCHITECTURE.md")).expect("the page is readable");
    let allowed = parse_table(&page);
    assert!(allowed.contains_key("planner"), "the page has no table of crates");

    let used = dependencies_in(&metadata(&root));
    for (name, uses) in &used {
        let may_use =
            allowed.get(name).unwrap_or_else(|| panic!("crate `{name}` is missing in docs/ARCHITECTURE.md"));
        let extra: Vec<_> = uses.difference(may_use).collect();
        assert!(extra.is_empty(), "`{name}` depends on {extra:?}, which docs/ARCHITECTURE.md does not allow");
    }
    let missing: Vec<_> = allowed.keys().filter(|name| !used.contains_key(*name)).collect();
    assert!(missing.is_empty(), "docs/ARCHITECTURE.md lists crates that do not exist: {missing:?}");
}

#[test]
fn model_planner_and_audit_depend_on_no_kubernetes_client_async_runtime_or_logger() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let banned = ["kube", "k8s-openapi", "tokio", "tracing", "log", "jiff", "serde_json"];
    for package in metadata(&root).packages {
        if !["model", "planner", "audit"].contains(&package.name.as_str()) {
            continue;
        }
        for dependency in &package.dependencies {
            assert!(
                dependency.kind != DependencyKind::Normal || !banned.contains(&dependency.name.as_str()),
                "`{}` must not depend on `{}`",
                package.name,
                dependency.name
            );
        }
    }
}

fn metadata(root: &Path) -> Metadata {
    MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .no_deps()
        .other_options(["--offline".to_owned()])
        .exec()
        .expect("cargo metadata answers")
}

/// The normal dependencies between crates of the workspace.
fn dependencies_in(metadata: &Metadata) -> Dependencies {
    let ours: BTreeSet<String> = metadata.packages.iter().map(|package| package.name.to_string()).collect();
    let uses = |package: &cargo_metadata::Package| {
        package
            .dependencies
            .iter()
            .filter(|dependency| dependency.kind == DependencyKind::Normal && ours.contains(&dependency.name))
            .map(|dependency| dependency.name.clone())
            .collect()
    };
    metadata.packages.iter().map(|package| (package.name.to_string(), uses(package))).collect()
}

/// Parses the table of crates: the rows ``| `crate` | `used`, `used` | text |`` below the header `| crate |`.
fn parse_table(page: &str) -> Dependencies {
    let names = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    page.lines()
        .skip_while(|line| !line.starts_with("| crate |"))
        .take_while(|line| line.starts_with('|'))
        .filter(|line| line.starts_with("| `"))
        .filter_map(|line| {
            let mut cells = line.trim_matches('|').split('|');
            let name = names(cells.next()?).pop()?;
            Some((name, names(cells.next()?).into_iter().collect()))
        })
        .collect()
}
