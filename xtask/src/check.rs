//! Formatting, lints and tests of the crates that a change affects.
//!
//! A changed file belongs to the crate in whose folder it is. Files outside of the crates belong to the crates that declare them, because their
//! sources or tests read them:
//!
//! ```toml
//! [package.metadata.check]
//! reads = ["docs", "examples/kueue"]
//! ```
//!
//! Affected are these crates, and all that depend on one of them, in tests, too. A file that decides how everything is built
//! (`Cargo.lock`, `clippy.toml`, …) affects all crates.
//!
//! Lints and builds are those of the whole workspace: cargo does nothing for crates that are up to date, while a selection of crates (`-p`) has other
//! features and so other dependencies to compile. Of the test programs, those of the affected crates run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use cargo_metadata::{Message, Metadata, MetadataCommand};

/// Files at the root that change how every crate is built or linted.
const OF_ALL: [&str; 5] = ["Cargo.toml", "Cargo.lock", "clippy.toml", "rustfmt.toml", ".cargo"];

/// Runs the checks of what differs from `base` (by default the upstream branch, or else the last commit), or only prints them.
pub(crate) fn run(base: Option<&str>, print_only: bool) -> Result<ExitCode> {
    let started = Instant::now();
    let workspace = Workspace::read(Path::new("."))?;
    let changed = changed_files(base)?;
    let affected = workspace.affected(&changed);
    let names = affected.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
    println!("{} changed files affect {} crates: {names}", changed.len(), affected.len());
    let mut steps = Steps { print_only, failed: false };
    steps.cargo("formatting", &["fmt", "--all", "--check"])?;
    if !affected.is_empty() {
        let lints = ["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];
        steps.cargo("lints", &lints)?;
        steps.test_programs(&workspace, &affected)?;
        if workspace.documented.iter().any(|name| affected.contains(name)) {
            steps.cargo("doc tests", &["test", "--workspace", "--locked", "--doc", "--quiet"])?;
        }
    }
    if !steps.failed && !print_only {
        println!("\ncheck passed after {:.0} s", started.elapsed().as_secs_f64());
    }
    Ok(if steps.failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Builds all test programs, and says where they are.
const BUILD: [&str; 6] =
    ["test", "--workspace", "--locked", "--no-run", "--quiet", "--message-format=json-render-diagnostics"];

/// Runs steps until the first one that fails.
struct Steps {
    print_only: bool,
    failed: bool,
}

impl Steps {
    fn cargo(&mut self, name: &str, arguments: &[&str]) -> Result<()> {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(arguments);
        self.run(name, &format!("cargo {}", arguments.join(" ")), &mut cargo)
    }

    /// Builds all test programs and runs those of these crates, each in the folder of its crate, as cargo does.
    fn test_programs(&mut self, workspace: &Workspace, crates: &BTreeSet<String>) -> Result<()> {
        if self.failed {
            return Ok(());
        }
        println!("\n== build of the tests: cargo {}", BUILD.join(" "));
        if self.print_only {
            println!("\n== tests of {}", crates.iter().map(String::as_str).collect::<Vec<_>>().join(" "));
            return Ok(());
        }
        let before = Instant::now();
        let output = Command::new(env!("CARGO"))
            .args(BUILD)
            .stderr(Stdio::inherit())
            .output()
            .context("cargo starts")?;
        println!("== build of the tests: {:.0} s", before.elapsed().as_secs_f64());
        if !output.status.success() {
            println!("\ncheck failed in the step \"build of the tests\"");
            self.failed = true;
            return Ok(());
        }
        for message in Message::parse_stream(output.stdout.as_slice()) {
            let Message::CompilerArtifact(artifact) = message.context("cargo prints no JSON")? else {
                continue;
            };
            let (Some(program), true) = (&artifact.executable, artifact.profile.test) else { continue };
            let folder = artifact.manifest_path.parent().context("a manifest is in a folder")?;
            let relative = folder.strip_prefix(&workspace.root).context("a crate is in the workspace")?;
            if let Some(name) =
                workspace.folders.get(relative.as_std_path()).filter(|name| crates.contains(*name))
            {
                let mut tests = Command::new(program);
                tests.current_dir(folder).arg("--quiet");
                self.run(&format!("tests of {name}"), artifact.target.name.as_str(), &mut tests)?;
            }
        }
        Ok(())
    }

    fn run(&mut self, name: &str, told: &str, command: &mut Command) -> Result<()> {
        if self.failed {
            return Ok(());
        }
        println!("\n== {name}: {told}");
        if self.print_only {
            return Ok(());
        }
        let before = Instant::now();
        let status = command.status().with_context(|| format!("cannot start {told}"))?;
        println!("== {name}: {:.0} s", before.elapsed().as_secs_f64());
        if !status.success() {
            println!("\ncheck failed in the step \"{name}\"");
            self.failed = true;
        }
        Ok(())
    }
}

/// The files that differ from `base`, with those that git does not know yet.
fn changed_files(base: Option<&str>) -> Result<BTreeSet<String>> {
    let base = match base {
        Some(base) => base.to_owned(),
        None => {
            git(&["merge-base", "HEAD", "@{upstream}"]).map_or("HEAD".to_owned(), |it| it.trim().to_owned())
        }
    };
    let mut files = git(&["diff", "--name-only", "--no-renames", &base])?;
    files.push_str(&git(&["ls-files", "--others", "--exclude-standard"])?);
    Ok(files.lines().map(str::to_owned).collect())
}

fn git(arguments: &[&str]) -> Result<String> {
    let output = Command::new("git").args(arguments).output().context("git starts")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {} failed: {}", arguments.join(" "), error.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The crates of the workspace. Their paths are relative to its root.
#[derive(Default)]
struct Workspace {
    root: PathBuf,
    /// The folder of each crate.
    folders: BTreeMap<PathBuf, String>,
    /// Files and folders outside of the crates, and the crates that read them.
    reads: Vec<(PathBuf, String)>,
    /// The crates that depend on each crate, directly, in any way.
    dependents: BTreeMap<String, BTreeSet<String>>,
    /// The crates with doc tests.
    documented: BTreeSet<String>,
}

impl Workspace {
    fn read(root: &Path) -> Result<Self> {
        let metadata = MetadataCommand::new()
            .manifest_path(root.join("Cargo.toml"))
            .no_deps()
            .exec()
            .context("cargo metadata fails; run it by hand to see why")?;
        Self::of(&metadata)
    }

    fn of(metadata: &Metadata) -> Result<Self> {
        let names: BTreeSet<&str> = metadata.packages.iter().map(|package| package.name.as_str()).collect();
        let mut workspace = Self { root: metadata.workspace_root.clone().into(), ..Self::default() };
        for package in &metadata.packages {
            let name = package.name.to_string();
            let manifest = package
                .manifest_path
                .strip_prefix(&metadata.workspace_root)
                .with_context(|| format!("the crate {name} is outside of the workspace"))?;
            let folder = manifest.parent().with_context(|| format!("the crate {name} has no folder"))?;
            workspace.folders.insert(folder.into(), name.clone());
            let reads = package.metadata["check"]["reads"].as_array().into_iter().flatten();
            // `.` is the root, the beginning of every relative path.
            let reads = reads.filter_map(|path| Some(path.as_str()?.trim_start_matches('.').into()));
            workspace.reads.extend(reads.map(|path: PathBuf| (path, name.clone())));
            if package.targets.iter().any(|target| target.doctest && target.is_lib()) {
                workspace.documented.insert(name.clone());
            }
            for dependency in &package.dependencies {
                if names.contains(dependency.name.as_str()) {
                    workspace.dependents.entry(dependency.name.clone()).or_default().insert(name.clone());
                }
            }
        }
        Ok(workspace)
    }

    /// The crates whose checks the changed files can affect.
    fn affected(&self, changed: &BTreeSet<String>) -> BTreeSet<String> {
        if changed.iter().any(|file| OF_ALL.iter().any(|path| Path::new(file).starts_with(path))) {
            return self.folders.values().cloned().collect();
        }
        let mut open: Vec<String> = changed.iter().flat_map(|file| self.owners(Path::new(file))).collect();
        let mut affected = BTreeSet::new();
        while let Some(name) = open.pop() {
            if affected.insert(name.clone()) {
                open.extend(self.dependents.get(&name).into_iter().flatten().cloned());
            }
        }
        affected
    }

    /// The crate that has a file in its folder, and the crates that read it.
    fn owners(&self, file: &Path) -> Vec<String> {
        let home = file.ancestors().find_map(|folder| self.folders.get(folder));
        let readers = self.reads.iter().filter(|(path, _)| file.starts_with(path)).map(|(_, name)| name);
        home.into_iter().chain(readers).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn affected(changed: &[&str]) -> BTreeSet<String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let changed = changed.iter().map(|&file| file.to_owned()).collect();
        Workspace::read(&root).unwrap().affected(&changed)
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn a_change_affects_the_crates_that_depend_on_it_also_in_tests() {
        let dashboard = names(&["app", "behaviour", "dashboard", "server", "xtask"]);
        assert_eq!(affected(&["crates/dashboard/src/page.rs"]), dashboard);
        let planner = affected(&["crates/planner/src/lib.rs"]);
        assert!(planner.is_superset(&names(&["planner", "controllers", "replay", "app"])), "{planner:?}");
        assert!(!planner.contains("apiserver"), "{planner:?}");
    }

    #[test]
    fn a_file_outside_of_the_crates_affects_those_that_read_it() {
        assert_eq!(affected(&[]), names(&[]));
        assert!(affected(&["docs/metrics.md"]).contains("controllers"));
        assert!(!affected(&["docs/metrics.md"]).contains("planner"));
        assert!(affected(&["Cargo.lock"]).contains("planner"));
    }

    /// Sources that read files outside of their crate: by a path from `CARGO_MANIFEST_DIR`, or with `include_str!`.
    #[test]
    fn crates_declare_the_files_that_they_read_outside_of_their_folder() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap();
        let workspace = Workspace::read(&root).unwrap();
        let reads =
            regex::Regex::new(r"(?:\.\./)+((?:docs|examples|deploy|charts|testbed)\b[a-z/]*)").unwrap();
        let files = Command::new("git").args(["ls-files", "*.rs"]).current_dir(&root).output().unwrap();
        let mut found = 0;
        for file in String::from_utf8(files.stdout).unwrap().lines() {
            let Some(name) = Path::new(file).ancestors().find_map(|folder| workspace.folders.get(folder))
            else {
                continue;
            };
            let Ok(source) = std::fs::read_to_string(root.join(file)) else { continue };
            for path in reads.captures_iter(&source).map(|found| found[1].trim_end_matches('/').to_owned()) {
                found += 1;
                let declared = |(read, reader): &(PathBuf, String)| {
                    reader == name && (Path::new(&path).starts_with(read) || read.starts_with(&path))
                };
                assert!(
                    workspace.reads.iter().any(declared),
                    "{file} reads {path}: add it to `package.metadata.check.reads` of the crate {name}"
                );
            }
        }
        assert!(found > 5, "only {found} paths were found: the expression no longer matches");
    }
}
