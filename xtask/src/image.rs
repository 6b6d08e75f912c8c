//! The container image of `muster`: a static program, alone in one layer, as an archive of an OCI image layout. No daemon and no
//! other tool is needed, and the same sources give the same bytes.
//!
//! After <https://github.com/opencontainers/image-spec>, versions 1.0 and 1.1.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The user of the program; no user of the node.
const USER: u32 = 65532;
/// Where the program is in the image.
const PROGRAM: &str = "muster";

/// The beginning of media types.
const TYPES: &str = "application/vnd.oci.image";
/// The segment of an ELF file that names its interpreter.
const INTERPRETER: usize = 3;

/// A processor that images are built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Platform {
    /// x86-64
    Amd64,
    /// ARM of 64 bits
    Arm64,
}

impl Platform {
    /// That of the machine that runs this task.
    pub(crate) fn of_this_machine() -> Option<Self> {
        match (std::env::consts::OS, std::env::consts::ARCH) {
            ("linux", "x86_64") => Some(Self::Amd64),
            ("linux", "aarch64") => Some(Self::Arm64),
            _ => None,
        }
    }

    /// The target of the compiler.
    pub(crate) fn target(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-unknown-linux-musl",
            Self::Arm64 => "aarch64-unknown-linux-musl",
        }
    }

    /// The compiler and linker of C parts that is used unless `CC_…` names another one: that of Debian.
    fn compiler(self) -> &'static str {
        match (self, std::env::consts::ARCH) {
            (Self::Amd64, "x86_64") | (Self::Arm64, "aarch64") => "cc",
            (Self::Amd64, _) => "x86_64-linux-gnu-gcc",
            (Self::Arm64, _) => "aarch64-linux-gnu-gcc",
        }
    }

    /// The name in images, archives and Kubernetes.
    pub(crate) fn architecture(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }
}

/// Builds the program and writes `muster.tar` to a folder.
pub(crate) fn build(out: &Path, platform: Platform, program: Option<PathBuf>) -> Result<()> {
    let program = match program {
        Some(program) => program,
        None => compile(platform)?,
    };
    let content =
        std::fs::read(&program).with_context(|| format!("cannot read the program {}", program.display()))?;
    check_static(&content).with_context(|| format!("{} is no program for an image", program.display()))?;
    let created_s = epoch_s()?;
    let image = archive(&content, platform.architecture(), created_s)?;
    std::fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
    let file = out.join("muster.tar");
    std::fs::write(&file, &image.archive).with_context(|| format!("cannot write {}", file.display()))?;
    println!(
        "{}: {}, program {:.1} MiB, archive {:.1} MiB",
        file.display(),
        image.digest,
        mebibytes(content.len()),
        mebibytes(image.archive.len())
    );
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "printed with one digit")]
fn mebibytes(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// The time of the image: `SOURCE_DATE_EPOCH`, or that of the last commit.
pub(crate) fn epoch_s() -> Result<u64> {
    let text = if let Ok(text) = std::env::var("SOURCE_DATE_EPOCH") {
        text
    } else {
        let log = Command::new("git")
            .args(["log", "-1", "--format=%ct"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output();
        let log = log.context("cannot ask git for the time of the last commit: set SOURCE_DATE_EPOCH")?;
        String::from_utf8_lossy(&log.stdout).into_owned()
    };
    text.trim().parse().context("SOURCE_DATE_EPOCH is no number of seconds")
}

/// Compiles the program for a platform, without paths of this machine in it.
pub(crate) fn compile(platform: Platform) -> Result<PathBuf> {
    let target = platform.target();
    let root = crate::root();
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let home = |name: &str, default: &str| {
        let user = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        std::env::var_os(name).map_or_else(|| user.join(default), PathBuf::from)
    };
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).current_dir(root).output();
    let sysroot = String::from_utf8_lossy(&sysroot.context("cannot ask rustc for its folder")?.stdout)
        .trim()
        .to_owned();
    let renamed = [
        (root.to_path_buf(), "/muster"),
        (home("CARGO_HOME", ".cargo"), "/cargo"),
        (PathBuf::from(sysroot), "/rust"),
    ];
    let flags: Vec<String> =
        renamed.iter().map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display())).collect();
    // The C parts of dependencies need a compiler; the C library is Rust's.
    let name = target.replace('-', "_");
    let variable = format!("CC_{name}");
    let compiler = std::env::var(&variable).unwrap_or_else(|_| platform.compiler().into());
    let linker = format!("CARGO_TARGET_{}_LINKER", name.to_uppercase());
    if let Err(error) = Command::new(&compiler).arg("--version").output() {
        bail!(
            "cannot start the compiler {compiler}, which {target} needs: {error}. Install it (Debian: the package gcc-{}-linux-gnu), or name another one with {variable}",
            if platform == Platform::Arm64 { "aarch64" } else { "x86-64" }
        );
    }
    let status = Command::new(cargo)
        .current_dir(root)
        .args(["build", "--locked", "--profile", "image", "--package", "app", "--target", target])
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .env("CARGO_INCREMENTAL", "0")
        .env(&variable, &compiler)
        .env(&linker, std::env::var(&linker).unwrap_or(compiler))
        .status()
        .context("cannot start cargo")?;
    ensure!(status.success(), "cargo failed; for a missing target: rustup target add {target}");
    let target_folder =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(target_folder.join(target).join("image").join(PROGRAM))
}

/// That a program needs no interpreter, and so no file of the image beside it.
fn check_static(program: &[u8]) -> Result<()> {
    ensure!(program.starts_with(b"\x7fELF\x02\x01"), "it is no ELF file of 64 bits");
    let number = |at: usize, length: usize| -> Result<usize> {
        let bytes = program.get(at..at + length).context("the file is too short")?;
        Ok(bytes.iter().rev().fold(0, |sum, byte| (sum << 8) | usize::from(*byte)))
    };
    let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for at in 0..count {
        if number(table + at * size, 4)? == INTERPRETER {
            bail!("it is linked dynamically: build it for a musl target");
        }
    }
    Ok(())
}

/// The archive of an image for a program, which is checked to be static.
pub(crate) fn of_program(program: &[u8], platform: Platform, created_s: u64) -> Result<Vec<u8>> {
    check_static(program)?;
    Ok(archive(program, platform.architecture(), created_s)?.archive)
}

/// An image.
#[derive(Debug, PartialEq, Eq)]
struct Image {
    /// The digest of its manifest.
    digest: String,
    archive: Vec<u8>,
}

fn archive(program: &[u8], architecture: &str, created_s: u64) -> Result<Image> {
    let layer = tar([(PROGRAM, program, 0o755)], created_s)?;
    let mut compressed = GzEncoder::new(Vec::new(), Compression::best());
    compressed.write_all(&layer)?;
    let compressed = compressed.finish()?;
    let created = jiff::Timestamp::from_second(created_s.try_into()?)?.to_string();
    let config = json!({
        "architecture": architecture, "os": "linux", "created": created,
        "config": {
            "User": format!("{USER}:{USER}"), "Entrypoint": [format!("/{PROGRAM}")], "WorkingDir": "/",
            "Labels": {"org.opencontainers.image.title": PROGRAM, "org.opencontainers.image.licenses": env!("CARGO_PKG_LICENSE")},
        },
        "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
        "history": [{"created": created, "created_by": "cargo run -p xtask -- image"}],
    });
    let config = config.to_string().into_bytes();
    let described = |media: &str, content: &[u8]| -> Value {
        json!({"mediaType": format!("{TYPES}.{media}"), "digest": digest(content), "size": content.len()})
    };
    let manifest = json!({
        "schemaVersion": 2, "mediaType": format!("{TYPES}.manifest.v1+json"),
        "config": described("config.v1+json", &config),
        "layers": [described("layer.v1.tar+gzip", &compressed)],
    });
    let manifest = manifest.to_string().into_bytes();
    let version = env!("CARGO_PKG_VERSION");
    let mut entry = described("manifest.v1+json", &manifest);
    entry["platform"] = json!({"architecture": architecture, "os": "linux"});
    entry["annotations"] = json!({"org.opencontainers.image.ref.name": version});
    let index =
        json!({"schemaVersion": 2, "mediaType": format!("{TYPES}.index.v1+json"), "manifests": [entry]});
    let index = index.to_string().into_bytes();
    let layout = json!({"imageLayoutVersion": "1.0.0"}).to_string().into_bytes();
    let mut blobs: Vec<(String, &[u8])> = [&config, &manifest, &compressed]
        .into_iter()
        .map(|content| (format!("blobs/sha256/{}", &digest(content)[7..]), content.as_slice()))
        .collect();
    blobs.sort();
    let files = blobs.iter().map(|(name, content)| (name.as_str(), *content, 0o644));
    let files =
        files.chain([("index.json", index.as_slice(), 0o644), ("oci-layout", layout.as_slice(), 0o644)]);
    Ok(Image { digest: digest(&manifest), archive: tar(files, created_s)? })
}

/// An archive of files with a name, a content and a mode.
pub(crate) fn tar<'a>(
    files: impl IntoIterator<Item = (&'a str, &'a [u8], u32)>,
    time_s: u64,
) -> Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, content, mode) in files {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::Regular);
        header.set_size(content.len().try_into()?);
        header.set_mode(mode);
        header.set_mtime(time_s);
        header.set_uid(0);
        header.set_gid(0);
        archive.append_data(&mut header, name, content)?;
    }
    Ok(archive.into_inner()?)
}

/// The SHA-256 digest, as `sha256:…`.
pub(crate) fn digest(content: &[u8]) -> String {
    let digest = Sha256::digest(content);
    digest.iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;

    fn files(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut archive = tar::Archive::new(archive);
        let read = |entry: std::io::Result<tar::Entry<'_, &[u8]>>| {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().display().to_string();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            (name, content)
        };
        archive.entries().unwrap().map(read).collect()
    }

    fn blob<'a>(files: &'a BTreeMap<String, Vec<u8>>, described: &Value) -> &'a [u8] {
        let name = described["digest"].as_str().unwrap();
        let content = &files[&format!("blobs/sha256/{}", name.strip_prefix("sha256:").unwrap())];
        assert_eq!(described["size"], content.len());
        assert_eq!(digest(content), name);
        content
    }

    #[test]
    fn an_image_has_one_layer_with_the_program_for_a_user_without_rights() {
        let image = archive(b"program", "amd64", 1_700_000_000).unwrap();
        let files = files(&image.archive);
        let index: Value = serde_json::from_slice(&files["index.json"]).unwrap();
        assert_eq!(index["manifests"][0]["digest"], image.digest);
        let manifest: Value = serde_json::from_slice(blob(&files, &index["manifests"][0])).unwrap();
        let config: Value = serde_json::from_slice(blob(&files, &manifest["config"])).unwrap();
        assert_eq!(config["config"]["User"], "65532:65532");
        assert_eq!(config["config"]["Entrypoint"], json!(["/muster"]));
        assert_eq!(config["created"], "2023-11-14T22:13:20Z");
        assert_eq!(manifest["layers"].as_array().unwrap().len(), 1);
        let mut layer = Vec::new();
        GzDecoder::new(blob(&files, &manifest["layers"][0])).read_to_end(&mut layer).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"][0], digest(&layer));
        let content = super::tests::files(&layer);
        assert_eq!(content.into_iter().collect::<Vec<_>>(), [("muster".to_owned(), b"program".to_vec())]);
    }

    #[test]
    fn the_same_program_gives_the_same_bytes() {
        assert_eq!(archive(b"program", "amd64", 7).unwrap(), archive(b"program", "amd64", 7).unwrap());
        assert_ne!(archive(b"program", "amd64", 7).unwrap(), archive(b"program", "arm64", 7).unwrap());
    }

    #[test]
    fn a_program_that_needs_an_interpreter_is_refused() {
        // The tests are linked with the C library of the machine.
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(check_static(&own).unwrap_err().to_string().starts_with("it is linked dynamically"));
        assert!(check_static(b"#!/bin/sh").unwrap_err().to_string().contains("no ELF file"));
    }
}
