//! The directory of one `muster up`: its lock file and its kubeconfig.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// A directory that this process has locked. The lock is released on drop and at the end of the process.
pub(crate) struct WorkDir {
    path: PathBuf,
    /// Further kubeconfigs.
    others: Vec<PathBuf>,
    _lock: File,
}

impl WorkDir {
    /// Creates the directory if it is missing, and locks it. Fails if another process has locked it.
    pub(crate) fn lock(path: &Path) -> Result<Self> {
        std::fs::create_dir_all(path)
            .with_context(|| format!("cannot create the directory {}", path.display()))?;
        let file = path.join("lock");
        let lock = File::create(&file).with_context(|| format!("cannot write {}", file.display()))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), others: Vec::new(), _lock: lock }),
            Err(TryLockError::WouldBlock) => bail!(
                "another `muster up` runs in {}: stop it, or choose another directory with --dir",
                path.display()
            ),
            Err(TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("cannot lock {}", file.display()))
            }
        }
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.path.join("kubeconfig")
    }

    /// The kubeconfig of another cluster of this process.
    pub(crate) fn add(&mut self, name: &str) -> PathBuf {
        let path = self.path.join(format!("{name}.kubeconfig"));
        self.others.push(path.clone());
        path
    }
}

impl Drop for WorkDir {
    /// Removes the kubeconfigs: the clusters end with the process.
    fn drop(&mut self) {
        for path in self.others.iter().chain([&self.kubeconfig()]) {
            std::fs::remove_file(path).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_locked_until_drop() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("nested/.muster");
        let first = WorkDir::lock(&path).unwrap();
        let error = WorkDir::lock(&path).err().unwrap().to_string();
        assert!(error.contains("another `muster up` runs in") && error.contains("--dir"), "{error}");
        drop(first);
        assert!(WorkDir::lock(&path).is_ok());
    }
}
