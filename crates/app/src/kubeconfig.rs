//! The kubeconfig of the embedded cluster, and the token in it.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result};

/// A secret that nobody can guess.
pub(crate) fn token() -> Result<String> {
    let mut bytes = [0; 24];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .context("no source of secrets")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat())
}

/// Writes the file for its owner's eyes only, in one step, so that nobody reads half of it.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    let draft = path.with_extension("new");
    let save = || -> std::io::Result<()> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        file.write_all(text.as_bytes())?;
        std::fs::rename(&draft, path)
    };
    save().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_is_private_and_written_over() {
        use std::os::unix::fs::PermissionsExt;
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("kubeconfig");
        write(&path, "first, which is longer").unwrap();
        write(&path, "second").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "second");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn tokens_differ() {
        let (one, other) = (token().unwrap(), token().unwrap());
        assert!(one.len() == 48 && one != other);
    }
}
