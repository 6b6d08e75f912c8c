//! The archives of a release: sorted, with a fixed time and owner.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::{image, root};

/// The shells with completions, and how the file of each is called.
const SHELLS: [(&str, &str); 4] =
    [("bash", "muster"), ("fish", "muster.fish"), ("powershell", "muster.ps1"), ("zsh", "_muster")];
/// The value of the chart that names the image.
const REPOSITORY: &str = "\n  repository: muster\n";

/// A compressed archive of files with their modes.
fn compressed(files: &BTreeMap<String, (Vec<u8>, u32)>, time_s: u64) -> Result<Vec<u8>> {
    let entries = files.iter().map(|(name, (content, mode))| (name.as_str(), content.as_slice(), *mode));
    let mut compressed = GzEncoder::new(Vec::new(), Compression::best());
    compressed.write_all(&image::tar(entries, time_s)?)?;
    Ok(compressed.finish()?)
}

fn read(file: &Path) -> Result<Vec<u8>> {
    std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}

/// The program with its license.
pub(super) fn program(content: &[u8], time_s: u64) -> Result<Vec<u8>> {
    let license = read(&root().join("LICENSE"))?;
    let files = [("LICENSE".into(), (license, 0o644)), ("muster".into(), (content.to_vec(), 0o755))];
    compressed(&files.into(), time_s)
}

/// The packed chart, as `helm package` makes it, with the repository of the image.
pub(super) fn chart(image: &str, time_s: u64) -> Result<Vec<u8>> {
    let folder = root().join("charts/muster");
    let mut files = BTreeMap::new();
    for name in chart_files(&folder)? {
        let mut content = read(&folder.join(&name))?;
        if name == Path::new("values.yaml") {
            let text = String::from_utf8(content)?;
            ensure!(
                text.matches(REPOSITORY).count() == 1,
                "values.yaml of the chart does not name the image once"
            );
            content = text.replace(REPOSITORY, &format!("\n  repository: {image}\n")).into_bytes();
        }
        files.insert(format!("muster/{}", name.display()), (content, 0o644));
    }
    compressed(&files, time_s)
}

/// The files of the chart without what `.helmignore` names: the values for tests.
fn chart_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for part in ["", "files", "templates"] {
        let entries = std::fs::read_dir(folder.join(part))
            .with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                files.push(Path::new(part).join(entry.file_name()));
            }
        }
    }
    Ok(files)
}

/// The completions and man pages that a program prints.
pub(super) fn shell(muster: &Path, time_s: u64) -> Result<Vec<u8>> {
    let mut files = BTreeMap::new();
    for (shell, name) in SHELLS {
        files.insert(format!("completions/{shell}/{name}"), (output(muster, &["completion", shell])?, 0o644));
    }
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    output(muster, &["man", folder.path().to_str().context("the temporary folder has an odd name")?])?;
    for entry in std::fs::read_dir(folder.path())? {
        let entry = entry?;
        let name = format!("man/man1/{}", entry.file_name().display());
        files.insert(name, (read(&entry.path())?, 0o644));
    }
    compressed(&files, time_s)
}

fn output(muster: &Path, arguments: &[&str]) -> Result<Vec<u8>> {
    let output = Command::new(muster).args(arguments).output();
    let output = output.with_context(|| format!("cannot start {}", muster.display()))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} {} failed: {errors}", muster.display(), arguments.join(" "));
    Ok(output.stdout)
}
