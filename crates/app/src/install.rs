//! `muster install`: prints the objects of the Helm chart.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use chart::{Chart, Release, assignment};
use serde_json::{Value, json};

/// Flags of `muster install`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Namespace of Muster.
    #[arg(short, long, value_name = "NAME", default_value = "muster")]
    namespace: String,
    /// The image, such as registry.example.com/muster:0.1.0. Default: muster, with the version of this program.
    #[arg(long, value_name = "IMAGE", value_parser = image)]
    image: Option<Value>,
    /// A file with values of the chart; may be repeated. `-` is the standard input.
    #[arg(short = 'f', long = "values", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// A value of the chart, such as kueue.enabled=true; may be repeated.
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = assignment)]
    assignments: Vec<Value>,
    /// Print the values of the chart with their comments instead, and its defaults.
    #[arg(long)]
    show_values: bool,
}

/// Prints the objects, in YAML.
pub(crate) fn run(args: Args) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if args.show_values {
        out.write_all(chart::values_file().as_bytes())?;
        return Ok(());
    }
    let mut changes = Vec::new();
    for file in &args.files {
        changes.push(read(file)?);
    }
    changes.extend(args.image);
    changes.extend(args.assignments);
    let release = Release { name: "muster".into(), namespace: args.namespace };
    let chart = Chart::new(&release, changes)?;
    out.write_all(chart.manifest()?.as_bytes())?;
    Ok(())
}

fn read(file: &PathBuf) -> Result<Value> {
    let mut text = String::new();
    if file.as_os_str() == "-" {
        std::io::stdin().read_to_string(&mut text).context("cannot read the standard input")?;
    } else {
        text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    }
    let values: Value =
        serde_saphyr::from_str(&text).with_context(|| format!("{} is not YAML", file.display()))?;
    match values {
        Value::Null => Ok(json!({})),
        Value::Object(_) => Ok(values),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            bail!("{} holds no values: write name: value", file.display())
        }
    }
}

/// The values that name an image.
fn image(text: &str) -> Result<Value, String> {
    if text.is_empty() || text.contains(char::is_whitespace) {
        return Err("this is no image".into());
    }
    if let Some((repository, digest)) = text.split_once('@') {
        return Ok(json!({"image": {"repository": repository, "digest": digest}}));
    }
    let name_at = text.rfind('/').map_or(0, |at| at + 1);
    Ok(match text[name_at..].split_once(':') {
        Some((name, tag)) => {
            json!({"image": {"repository": format!("{}{name}", &text[..name_at]), "tag": tag}})
        }
        None => json!({"image": {"repository": text}}),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_has_a_tag_or_a_digest() {
        for (text, expected) in [
            ("muster", json!({"repository": "muster"})),
            ("localhost:5000/muster", json!({"repository": "localhost:5000/muster"})),
            ("localhost:5000/a/muster:1", json!({"repository": "localhost:5000/a/muster", "tag": "1"})),
            ("a/muster@sha256:00", json!({"repository": "a/muster", "digest": "sha256:00"})),
        ] {
            assert_eq!(image(text).unwrap()["image"], expected, "{text}");
        }
        assert!(image("").is_err());
    }
}
