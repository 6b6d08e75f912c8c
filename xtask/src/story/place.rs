//! Where pages run one after the other: a folder, addresses, and the programs that commands call.
//!
//! Several places work at the same time. The first has the folder of the caller and the addresses of the pages; each of the others has
//! a folder with links to all that is there, so that `.muster` is its own, and another address of loopback.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

/// The names that are not linked: what a page creates, and what it does not read.
const OWN: [&str; 2] = [".muster", ".git"];

/// A place for one page at a time.
pub(super) struct Place {
    /// From 1.
    number: u8,
    muster: PathBuf,
    /// A folder with symbolic links named `kubectl` and `muster`, first on the PATH.
    bin: tempfile::TempDir,
    /// The folder in which commands run, unless it is that of the caller.
    folder: Option<tempfile::TempDir>,
}

impl Place {
    pub(super) fn new(number: u8, muster: &Path, kubectl: &Path) -> Result<Self> {
        let muster = muster.canonicalize().with_context(|| format!("no program {}", muster.display()))?;
        let bin = tempfile::tempdir()?;
        std::os::unix::fs::symlink(&muster, bin.path().join("muster"))?;
        if kubectl.components().count() > 1 {
            std::os::unix::fs::symlink(kubectl.canonicalize()?, bin.path().join("kubectl"))?;
        }
        let folder = (number > 1).then(linked_folder).transpose()?;
        Ok(Self { number, muster, bin, folder })
    }

    /// The shell command for one command line of a page, preceded by the page's `export` lines.
    pub(super) fn shell(&self, exports: &[String], command: &str) -> Command {
        let command = command.replace("cargo run --release --", &format!("'{}'", self.muster.display()));
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = Command::new("bash");
        shell
            .args(["-c", &[exports, &[command]].concat().join("\n")])
            .env("PATH", format!("{}:{path}", self.bin.path().display()))
            .env("NO_COLOR", "1")
            .stdin(Stdio::null());
        if let Some(folder) = &self.folder {
            shell.current_dir(folder.path());
        }
        shell
    }

    /// The command `muster up` of a page with the addresses of this place.
    pub(super) fn with_addresses(&self, command: &str) -> String {
        match self.number {
            1 => command.to_owned(),
            number => format!("{command} --listen 127.0.0.{number}:7443 --dashboard 127.0.0.{number}:7480"),
        }
    }
}

fn linked_folder() -> Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    for entry in std::env::current_dir()?.read_dir()? {
        let entry = entry?;
        if !OWN.iter().any(|&own| entry.file_name() == own) {
            std::os::unix::fs::symlink(entry.path(), folder.path().join(entry.file_name()))?;
        }
    }
    Ok(folder)
}
