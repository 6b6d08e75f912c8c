//! `muster plan`: what would become of manifests if they were created now.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use api::appwrapper::{Group, KIND};
use controllers::{WrapperReport, Observer};
use serde_json::Value;

use crate::connection::Connection;
use crate::report::{self, Mood, Output};

/// Flags of `muster plan`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// File with AppWrappers, YAML or JSON, one or several documents; `-` reads standard input. May be repeated.
    #[arg(short, long = "filename", required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Output,
    #[command(flatten)]
    connection: Connection,
}

/// Tells it, and writes nothing.
pub(crate) async fn run(args: Args) -> Result<()> {
    let mut wanted = Vec::new();
    for file in &args.files {
        let text = read(file)?;
        let name = if is_stdin(file) { "standard input".into() } else { file.display().to_string() };
        wanted.extend(wrappers(&text).context(name)?);
    }
    let (mut observer, namespace) = args.connection.observe().await?;
    let accounts = accounts(&mut observer, &namespace, wanted).await;
    observer.close().await;
    report::print(&accounts?, Mood::WouldBe, args.output);
    Ok(())
}

async fn accounts(
    observer: &mut Observer,
    namespace: &str,
    wanted: Vec<(Group, Value)>,
) -> Result<Vec<WrapperReport>> {
    let mut accounts = Vec::new();
    for (group, manifest) in wanted {
        if !observer.serves(group) {
            bail!("this cluster serves no {}; a controller installs it", group.resource());
        }
        let name = manifest["metadata"]["name"].as_str().unwrap_or("an AppWrapper without a name").to_owned();
        let account = observer.what_if(group, namespace, manifest).await;
        accounts.push(account.with_context(|| format!("{name} would not be created"))?);
    }
    Ok(accounts)
}

fn read(file: &Path) -> Result<String> {
    if is_stdin(file) {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

fn is_stdin(file: &Path) -> bool {
    file == Path::new("-")
}

/// The AppWrappers of a text, in order, with their groups.
fn wrappers(text: &str) -> Result<Vec<(Group, Value)>> {
    // As kubectl reads it: 0777 is the mode of a file.
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    let documents: Vec<Value> =
        serde_saphyr::from_multiple_with_options(text, options).map_err(|error| anyhow!("{error}"))?;
    let mut found = Vec::new();
    for (at, document) in documents.into_iter().enumerate().filter(|(_, document)| !document.is_null()) {
        let objects = match document["kind"].as_str() {
            Some("List" | "AppWrapperList") => document["items"].as_array().cloned().unwrap_or_default(),
            _ => vec![document],
        };
        for object in objects {
            let group = group_of(&object).with_context(|| format!("document {}", at + 1))?;
            found.push((group, object));
        }
    }
    if found.is_empty() {
        bail!("there is no AppWrapper in it");
    }
    Ok(found)
}

fn group_of(object: &Value) -> Result<Group> {
    let (version, kind) = (object["apiVersion"].as_str(), object["kind"].as_str());
    let (Some(version), Some(kind)) = (version, kind) else {
        bail!("no Kubernetes object: apiVersion or kind is missing");
    };
    let known = Group::ALL.into_iter().find(|group| group.api_version() == version && kind == KIND);
    known.ok_or_else(|| {
        let versions = Group::ALL.map(Group::api_version).join(" or ");
        anyhow!("{kind} of {version} is not queued: wrap it in an {KIND} of {versions}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRAPPER: &str = "apiVersion: mcad.ibm.com/v1beta1\nkind: AppWrapper\nmetadata: {name: a}\n";

    #[test]
    fn all_documents_and_lists_are_read_in_order() {
        let list = r#"{"kind": "List", "apiVersion": "v1", "items": [
            {"apiVersion": "workload.codeflare.dev/v1beta1", "kind": "AppWrapper", "metadata": {"name": "b"}}]}"#;
        let found = wrappers(&format!("---\n{WRAPPER}---\n# nothing\n---\n{list}\n")).unwrap();
        let found: Vec<_> = found.iter().map(|(group, w)| (*group, w["metadata"]["name"].as_str())).collect();
        assert_eq!(found, [(Group::Mcad, Some("a")), (Group::Codeflare, Some("b"))]);
    }

    #[test]
    fn what_is_no_wrapper_is_refused_with_its_place() {
        for (text, says) in [
            (
                format!("{WRAPPER}---\nkind: Job\napiVersion: batch/v1\n"),
                "document 2: Job of batch/v1 is not queued",
            ),
            ("name: x\n".into(), "document 1: no Kubernetes object"),
            (String::new(), "there is no AppWrapper in it"),
            ("kind: Job\n  apiVersion: [\n".into(), "line 2"),
        ] {
            let error = format!("{:#}", wrappers(&text).unwrap_err());
            assert!(error.contains(says), "{error}");
        }
    }
}
