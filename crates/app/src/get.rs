//! `muster get`: tables of gangs, queues, nodes and clusters.
//!
//! - `gangs`: what is queued, by the name that its author gave it; its options and its order: `gangs/order`
//! - `queues`: quota and what uses it
//! - `nodes`: capacity and what uses it
//! - `clusters`: the worker clusters of a hub

pub(crate) mod clusters;
pub(crate) mod gangs;
pub(crate) mod nodes;
pub(crate) mod queues;

use std::process::ExitCode;

use anyhow::{Result, bail};
use kube::Client;
use serde_json::Value;

use crate::table::{Table, put};

/// Flags of `muster get`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// What is queued: jobs, groups of pods, AppWrappers, Workloads. Each by the name of what its author created.
    #[command(visible_aliases = ["gang", "g"])]
    Gangs(gangs::Args),
    /// Queues of Kueue's API and MCAD's quota trees: their quota and what uses it.
    #[command(visible_aliases = ["queue", "q"])]
    Queues(queues::Args),
    /// Nodes: what they have, what pods use, and what is promised to gangs. Reads the whole cluster.
    #[command(visible_aliases = ["node", "no"])]
    Nodes(nodes::Args),
    /// The worker clusters of a hub (MultiKueueClusters): whether they are reached, what runs there, and what is wrong.
    #[command(visible_aliases = ["cluster"])]
    Clusters(clusters::Args),
}

/// Prints a table.
pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    match args.what {
        What::Gangs(args) => gangs::run(args).await?,
        What::Queues(args) => queues::run(args).await?,
        What::Nodes(args) => nodes::run(args).await?,
        What::Clusters(args) => clusters::run(args).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Flags that select namespaces.
#[derive(clap::Args)]
pub(crate) struct Scope {
    /// All namespaces.
    #[arg(short = 'A', long)]
    pub(crate) all_namespaces: bool,
    /// The namespace. Default: that of the kubeconfig.
    #[arg(short, long, value_name = "NAMESPACE", value_parser = namespace)]
    namespace: Option<String>,
}

/// A name that can be a part of a path.
pub(crate) fn namespace(text: &str) -> Result<String, String> {
    let is_name = !text.is_empty() && text.chars().all(|char| char.is_ascii_alphanumeric() || char == '-');
    if is_name { Ok(text.to_owned()) } else { Err("a namespace has letters, digits and hyphens".into()) }
}

/// The namespace of a flag, or else that of the kubeconfig.
pub(crate) fn scope_of(flag: Option<String>, client: &Client) -> String {
    flag.unwrap_or_else(|| client.default_namespace().to_owned())
}

impl Scope {
    /// The only namespace; `None`: all.
    pub(crate) fn namespace(&self, client: &Client) -> Option<String> {
        (!self.all_namespaces).then(|| scope_of(self.namespace.clone(), client))
    }
}

/// Output format of a list.
#[derive(Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// A table. On a terminal, the last column is cut to its width.
    #[default]
    Table,
    /// A table with more columns, and nothing is cut.
    Wide,
    /// A JSON array.
    Json,
    /// A YAML sequence.
    Yaml,
    /// One `KIND/NAME` per line.
    Name,
}

/// The flags of every list.
#[derive(clap::Args)]
pub(crate) struct Form {
    /// Output format.
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Format,
    /// Print no header.
    #[arg(long)]
    no_headers: bool,
}

/// What a list has, in all forms.
pub(crate) struct List {
    pub(crate) columns: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<String>>,
    pub(crate) names: Vec<String>,
    pub(crate) values: Vec<Value>,
}

impl List {
    /// Prints it. Of a table without rows it is said that there are no such things, unless that `is_told` already.
    fn print(self, form: &Form, is_told: bool, what: &str) -> Result<()> {
        let is_table = matches!(form.output, Format::Table | Format::Wide);
        if !self.rows.is_empty() || !is_table {
            put(&self.text(form)?)?;
        } else if !is_told {
            eprintln!("muster: no {what}");
        }
        Ok(())
    }

    /// The text in a format.
    fn text(self, form: &Form) -> Result<String> {
        Ok(match form.output {
            Format::Table | Format::Wide => {
                let table = Table::new(self.columns, &self.rows, form.output == Format::Wide);
                table.text(&self.rows, !form.no_headers)
            }
            Format::Json => format!("{:#}\n", Value::from(self.values)),
            Format::Yaml => serde_saphyr::to_string(&self.values)?,
            Format::Name => self.names.iter().flat_map(|name| [name, "\n"]).collect(),
        })
    }
}

/// Fails if objects that were asked for do not exist.
pub(crate) fn all_found(missing: &[String], what: &str, namespace: Option<&str>) -> Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    let place = namespace.map_or(String::new(), |namespace| format!(" in namespace {namespace}"));
    bail!("there is no {what} {}{place}", missing.join(", "));
}
