//! The files of a release: a folder that can be put on any file server. The same sources and programs give the same bytes.
//!
//! - `files`: archives, and which of the repository's files are in them
//! - `manifests`: the profiles of `install.yaml`, and the manifest for krew
//! - `sbom`: what the program is made of

mod files;
mod manifests;
mod sbom;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use crate::image::{self, Platform};

/// The version of the workspace.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The file with the checksums of all others, as `sha256sum --check` reads it.
const SUMS: &str = "SHA256SUMS";

/// Flags of `release`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder to write to. It must not have other files.
    #[arg(long, value_name = "DIR", default_value = "target/release-files")]
    out: PathBuf,
    /// The processors; may be repeated.
    #[arg(long = "target", value_name = "PLATFORM", value_enum, default_values_t = [Platform::Amd64, Platform::Arm64])]
    targets: Vec<Platform>,
    /// A static program to use for a processor instead of compiling it; may be repeated.
    #[arg(long = "program", value_name = "PLATFORM=FILE", value_parser = program)]
    programs: Vec<(Platform, PathBuf)>,
    /// A program that runs here and prints the completions and man pages. Default: that of the release for this machine.
    #[arg(long, value_name = "FILE")]
    muster: Option<PathBuf>,
    /// Where the files will be, for the manifest of krew: the URL of a file without its name.
    #[arg(long, value_name = "URL")]
    base_url: String,
    /// Where the image will be, without a tag: for the chart and the manifests.
    #[arg(long, value_name = "REPOSITORY", default_value = "muster")]
    image: String,
}

fn program(text: &str) -> Result<(Platform, PathBuf), String> {
    let (platform, file) = text.split_once('=').ok_or("write amd64=FILE or arm64=FILE")?;
    Ok((clap::ValueEnum::from_str(platform, false)?, file.into()))
}

/// The files by name.
type Files = BTreeMap<String, Vec<u8>>;

/// Makes the files and writes them.
pub(crate) fn make(args: &Args) -> Result<()> {
    let is_empty = std::fs::read_dir(&args.out).map_or(Ok(true), |mut files| match files.next() {
        None => Ok(true),
        Some(file) => file.map(|_| false),
    });
    ensure!(
        is_empty?,
        "{} has files already: remove them, or name another folder with --out",
        args.out.display()
    );
    let mut programs = BTreeMap::new();
    for target in &args.targets {
        let given = args.programs.iter().find(|(platform, _)| platform == target);
        let file = given.map_or_else(|| image::compile(*target), |(_, file)| Ok(file.clone()))?;
        programs.insert(*target, file);
    }
    let own = Platform::of_this_machine().and_then(|platform| programs.get(&platform));
    let Some(muster) = args.muster.as_ref().or(own) else {
        bail!(
            "no program of the release runs on this machine: name one with --muster, which prints the completions"
        );
    };
    let files = assemble(args, &programs, muster, image::epoch_s()?)?;
    std::fs::create_dir_all(&args.out).with_context(|| format!("cannot create {}", args.out.display()))?;
    for (name, content) in &files {
        let file = args.out.join(name);
        std::fs::write(&file, content).with_context(|| format!("cannot write {}", file.display()))?;
        println!("{:>12} {}", content.len(), file.display());
    }
    Ok(())
}

/// All files of a release from its programs.
fn assemble(
    args: &Args,
    programs: &BTreeMap<Platform, PathBuf>,
    muster: &Path,
    time_s: u64,
) -> Result<Files> {
    let mut files = Files::new();
    let mut archives = BTreeMap::new();
    for (platform, file) in programs {
        let content =
            std::fs::read(file).with_context(|| format!("cannot read the program {}", file.display()))?;
        let named = platform.architecture();
        let image = image::of_program(&content, *platform, time_s)
            .with_context(|| format!("{} is no program for a release", file.display()))?;
        files.insert(format!("muster-{VERSION}-image-{named}.tar"), image);
        let archive = files::program(&content, time_s)?;
        let name = format!("muster-{VERSION}-linux-{named}.tar.gz");
        archives.insert(*platform, (name.clone(), image::digest(&archive)));
        files.insert(name, archive);
        files.insert(format!("muster-{VERSION}-linux-{named}.cdx.json"), sbom::text(*platform, time_s)?);
    }
    files.insert(format!("muster-{VERSION}.tgz"), files::chart(&args.image, time_s)?);
    files.insert(format!("muster-{VERSION}-shell.tar.gz"), files::shell(muster, time_s)?);
    for (name, values) in manifests::PROFILES {
        files.insert(name.into(), manifests::install(&args.image, values)?.into_bytes());
    }
    files.insert("muster.krew.yaml".into(), manifests::krew(&args.base_url, &archives)?.into_bytes());
    let sum = |(name, content): (&String, &Vec<u8>)| {
        format!("{}  {name}\n", &image::digest(content)["sha256:".len()..])
    };
    let sums: String = files.iter().map(sum).collect();
    files.insert(SUMS.into(), sums.into_bytes());
    Ok(files)
}

#[cfg(test)]
mod tests;
