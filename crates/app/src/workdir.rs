//! The folder of one `muster up`: its lock and the kubeconfig in it.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// A folder that this process holds; released when dropped or when the process ends, however it ends.
pub(crate) struct WorkDir {
    path: PathBuf,
    _lock: File,
}

impl WorkDir {
    /// Creates the folder where it is missing, and holds it; an error when another process does.
    pub(crate) fn hold(path: &Path) -> Result<Self> {
        std::fs::create_dir_all(path)
            .with_context(|| format!("cannot create the folder {}", path.display()))?;
        let file = path.join("lock");
        let lock = File::create(&file).with_context(|| format!("cannot write {}", file.display()))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => bail!(
                "another `muster up` runs in {}: end it, or choose another folder with --dir",
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
}

impl Drop for WorkDir {
    /// The cluster is gone with the process: a kubeconfig that stays would only mislead.
    fn drop(&mut self) {
        std::fs::remove_file(self.kubeconfig()).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_held_by_one_and_free_again_afterwards() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("nested/.muster");
        let first = WorkDir::hold(&path).unwrap();
        let error = WorkDir::hold(&path).err().unwrap().to_string();
        assert!(error.contains("another `muster up` runs in") && error.contains("--dir"), "{error}");
        drop(first);
        assert!(WorkDir::hold(&path).is_ok());
    }
}
