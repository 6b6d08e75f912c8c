//! `muster describe`: all about one gang, queue or node.

use std::process::ExitCode;

use anyhow::{Context, Result};
use apiserver::human_duration;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client};
use server::Report;

use crate::connection::Connection;
use crate::gang::Gang;
use crate::get::{all_found, nodes, queues, scope_of};
use crate::table::{NONE, Table, put};
use crate::visibility::told;
use crate::why;

/// Flags of `muster describe`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// A gang: what `muster why` says, what it is, and its Events.
    #[command(visible_aliases = ["gangs", "g"])]
    Gang(Named),
    /// A queue: its quota and what uses it, and its Events.
    #[command(visible_aliases = ["queues", "q"])]
    Queue(Named),
    /// A node: what it has, what pods use, what is promised to gangs, and its Events.
    #[command(visible_aliases = ["nodes", "no"])]
    Node(Named),
}

#[derive(clap::Args)]
struct Named {
    /// Its name; of a gang or a queue, the kind may precede it.
    #[arg(value_name = "[KIND/]NAME")]
    name: String,
    /// The namespace. Default: that of the kubeconfig.
    #[arg(short, long, value_name = "NAMESPACE", value_parser = crate::get::namespace)]
    namespace: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

/// Prints the description.
pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let text = match args.what {
        What::Gang(named) => gang(named).await,
        What::Queue(named) => queue(named).await,
        What::Node(named) => node(named).await,
    }?;
    put(&text)?;
    Ok(ExitCode::SUCCESS)
}

async fn gang(named: Named) -> Result<String> {
    let (client, _) = named.connection.open().await?;
    let mut text = String::new();
    for report in why::reports(&client, &named.name, named.namespace.as_deref()).await? {
        let (Report { text: says, .. }, gang) = (report.clone(), Gang(report.status));
        if !text.is_empty() {
            text.push('\n');
        }
        let queue = match (gang.queue(), gang.cluster_queue()) {
            (local, "") => local.to_owned(),
            (local, cluster) => format!("{local} of ClusterQueue {cluster}"),
        };
        let (kind, name) = gang.kind_and_name();
        text.push_str(&fields(&[
            ("Name", gang.object()),
            ("Namespace", gang.namespace().to_owned()),
            ("Object", format!("{}/{}", gang.resource(), gang.name())),
            ("Queue", queue),
            ("Priority", gang.number("priority")),
            ("Pods", gang.number("pods")),
            ("Created", gang.created().map(|at| at.to_string()).unwrap_or_default()),
            ("State", gang.state()),
        ]));
        text.push_str("Status:\n");
        text.push_str(&indented(&says));
        let objects = [(Some(kind), name), (None, gang.name().to_owned())];
        text.push_str(&events(&client, Some(gang.namespace()), &objects).await);
    }
    Ok(text)
}

async fn queue(named: Named) -> Result<String> {
    let (client, _) = named.connection.open().await?;
    let namespace = scope_of(named.namespace, &client);
    let mut rows = queues::read(&client, Some(&namespace)).await?;
    rows.retain(|row| row.is_named(&named.name));
    if rows.is_empty() {
        all_found(&[named.name], "queue", Some(&namespace))?;
    }
    let mut text = String::new();
    for rows in rows.chunk_by(|one, next| one.object == next.object) {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&fields(&rows[0].facts()));
        text.push_str("Quota:\n");
        let (columns, cells) = queues::amounts(rows);
        text.push_str(&indented(&Table::new(columns, &cells, true).text(&cells, true)));
        let (kind, name) = rows[0].object.split_once('/').unwrap_or_default();
        // Events about a ClusterQueue are in the namespace default.
        let within = if kind == "localqueue" { &namespace } else { "default" };
        text.push_str(&events(&client, Some(within), &[(Some(kind.to_owned()), name.to_owned())]).await);
    }
    Ok(text)
}

async fn node(named: Named) -> Result<String> {
    let (client, _) = named.connection.open().await?;
    let name = named.name.strip_prefix("node/").unwrap_or(&named.name).to_owned();
    let mut found = nodes::read(client.clone()).await?;
    found.retain(|node| node.name == name);
    let Some(node) = found.first() else {
        all_found(&[name], "node", None)?;
        return Ok(String::new());
    };
    let mut text = fields(&[
        ("Name", node.name.clone()),
        ("State", nodes::state(node).to_owned()),
        ("Flavors", node.flavors.join(", ")),
    ]);
    text.push_str("Resources:\n");
    let (columns, cells) = nodes::amounts(node);
    text.push_str(&indented(&Table::new(columns, &cells, true).text(&cells, true)));
    text.push_str(&events(&client, None, &[(Some("node".into()), name)]).await);
    Ok(text)
}

fn fields(fields: &[(&str, String)]) -> String {
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or_default() + 1;
    let line = |(name, value): &(&str, String)| {
        let value = if value.is_empty() { NONE } else { value };
        format!("{:<width$}  {value}\n", format!("{name}:"))
    };
    fields.iter().map(line).collect()
}

fn indented(text: &str) -> String {
    text.lines().flat_map(|line| ["  ", line, "\n"]).collect()
}

/// The Events about objects with these kinds, in lower case, and names; oldest first.
async fn events(client: &Client, namespace: Option<&str>, objects: &[(Option<String>, String)]) -> String {
    let api: Api<Event> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let mut found = Vec::new();
    let mut names: Vec<&String> = objects.iter().map(|(_, name)| name).collect();
    names.dedup();
    for name in names {
        let named = ListParams::default().fields(&format!("involvedObject.name={name}"));
        match api.list(&named).await.map_err(told).context("cannot list the Events") {
            Ok(list) => found.extend(list.items),
            Err(error) => return format!("Events:  {error:#}\n"),
        }
    }
    let is_meant = |event: &Event| {
        let of = &event.involved_object;
        let kind = of.kind.as_deref().unwrap_or_default().to_lowercase();
        objects.iter().any(|(meant, name)| {
            let is_kind = meant.as_ref().is_none_or(|meant| *meant == kind);
            is_kind && of.name.as_ref() == Some(name)
        })
    };
    found.retain(is_meant);
    let at = |event: &Event| {
        let last = event.last_timestamp.as_ref().map(|time| time.0);
        let of_series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
        last.or(of_series.map(|time| time.0)).or(event.event_time.as_ref().map(|time| time.0))
    };
    found.sort_by_key(at);
    if found.is_empty() {
        return "Events:  <none>\n".into();
    }
    let now = Timestamp::now();
    let rows: Vec<Vec<String>> = found
        .iter()
        .map(|event| {
            let age = at(event).map(|at| human_duration(now.duration_since(at).as_secs()));
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            let object = text(&event.involved_object.kind);
            vec![
                age.unwrap_or_default(),
                text(&event.type_),
                object,
                text(&event.reason),
                text(&event.message),
            ]
        })
        .collect();
    let table = Table::new(vec!["AGE", "TYPE", "OBJECT", "REASON", "MESSAGE"], &rows, true);
    format!("Events:\n{}", indented(&table.text(&rows, true)))
}
