//! Completions with the names that a cluster has: gangs, queues, nodes, namespaces, and the contexts of the kubeconfig.

use std::ffi::OsStr;
use std::time::Duration;

use api::Meta;
use clap::{Arg, ArgMatches, Command, FromArgMatches as _};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use controllers::GangKind;
use kube::Client;
use kube::api::{ApiResource, DynamicObject, ListParams};

use crate::connection::{Connection, objects, resource};

/// How long a shell waits for names. An unreachable cluster has none.
const PATIENCE: Duration = Duration::from_secs(3);
/// The names of one kind, at most.
const NAMES_MAX: u32 = 500;

/// What an argument names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Names {
    Gangs,
    Queues,
    Nodes,
    Clusters,
    PriorityClasses,
    Namespaces,
    Contexts,
}

/// Completes the arguments of all commands that name something.
pub(super) fn complete(command: Command) -> Command {
    with_names(command, &[])
}

fn with_names(command: Command, path: &[&str]) -> Command {
    let name = command.get_name().to_owned();
    let path = [path, &[&*name]].concat();
    let command = command.mut_args(|arg| match named(&path, &arg) {
        Some(names) => arg.add(ArgValueCompleter::new(move |written: &OsStr| candidates(names, written))),
        None => arg,
    });
    command.mut_subcommands(|command| with_names(command, &path))
}

/// What an argument of a command names: `path` is the command, from the program on.
fn named(path: &[&str], arg: &Arg) -> Option<Names> {
    match arg.get_id().as_str() {
        "namespace" => return Some(Names::Namespaces),
        "context" => return Some(Names::Contexts),
        "priority" if arg.is_positional() => return Some(Names::PriorityClasses),
        "name" | "names" if arg.is_positional() => {}
        _ => return None,
    }
    match path {
        [_, "why" | "hold" | "unhold" | "requeue" | "prioritize"]
        | [_, "get" | "describe", "gang" | "gangs"] => Some(Names::Gangs),
        [_, "queue", _] | [_, "get" | "describe", "queue" | "queues"] => Some(Names::Queues),
        [_, "get" | "describe", "node" | "nodes"] => Some(Names::Nodes),
        [_, "get", "clusters"] => Some(Names::Clusters),
        _ => None,
    }
}

/// The names that begin as what is written. None if the cluster does not answer.
fn candidates(names: Names, written: &OsStr) -> Vec<CompletionCandidate> {
    let written = written.to_string_lossy();
    let mut found = on_line(names).unwrap_or_default();
    found.retain(|name| name.starts_with(&*written));
    found.sort();
    found.dedup();
    found.into_iter().map(CompletionCandidate::new).collect()
}

/// The names in the cluster and the namespace that the line selects.
fn on_line(names: Names) -> Option<Vec<String>> {
    let words = std::env::args_os().skip_while(|word| word != "--").skip(1);
    let matches = crate::command().ignore_errors(true).try_get_matches_from(words).ok()?;
    let selected = selected(&matches);
    let connection = Connection::from_arg_matches(selected).ok()?;
    if names == Names::Contexts {
        return connection.contexts().ok();
    }
    let namespace = selected.try_get_one::<String>("namespace").ok().flatten();
    let is_everywhere = selected.try_get_one::<bool>("all_namespaces").ok().flatten() == Some(&true);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    runtime.block_on(async {
        let read = async {
            let client = Client::try_from(connection.config().await.ok()?).ok()?;
            let default = client.default_namespace().to_owned();
            let namespace = namespace.map_or(&*default, String::as_str);
            Some(read(&client, names, (!is_everywhere).then_some(namespace)).await)
        };
        tokio::time::timeout(PATIENCE, read).await.ok()?
    })
}

/// The command that is written, without those that it is part of.
fn selected(matches: &ArgMatches) -> &ArgMatches {
    matches.subcommand().map_or(matches, |(_, inner)| selected(inner))
}

async fn read(client: &Client, names: Names, namespace: Option<&str>) -> Vec<String> {
    let kueue = |kind, plural| resource(api::kueue::workload::API_VERSION, kind, plural);
    let plain = |_: &ApiResource, object: &DynamicObject| name(object);
    let with_kind =
        |of: &ApiResource, object: &DynamicObject| format!("{}/{}", of.kind.to_lowercase(), name(object));
    let core = |kind, plural| resource("v1", kind, plural);
    match names {
        Names::Gangs => {
            let kinds = GangKind::ALL.map(|kind| {
                let (of, plural) = kind.names();
                resource(&kind.api_version(), of, plural)
            });
            all(client, &kinds, namespace, |of, object| gang(of, object, namespace.is_none())).await
        }
        Names::Queues => {
            let mut found = all(client, &[kueue("LocalQueue", "localqueues")], namespace, with_kind).await;
            found.extend(all(client, &[kueue("ClusterQueue", "clusterqueues")], None, with_kind).await);
            found
        }
        Names::Nodes => all(client, &[core("Node", "nodes")], None, plain).await,
        Names::Clusters => {
            all(client, &[kueue("MultiKueueCluster", "multikueueclusters")], None, plain).await
        }
        Names::PriorityClasses => {
            all(client, &[kueue("WorkloadPriorityClass", "workloadpriorityclasses")], None, plain).await
        }
        Names::Namespaces => all(client, &[core("Namespace", "namespaces")], None, plain).await,
        Names::Contexts => Vec::new(),
    }
}

/// The names of the objects of some kinds, as far as the user may list them and the cluster serves them.
async fn all(
    client: &Client,
    kinds: &[ApiResource],
    namespace: Option<&str>,
    name: impl Fn(&ApiResource, &DynamicObject) -> String,
) -> Vec<String> {
    let mut found = Vec::new();
    for kind in kinds {
        let listed = objects(client, kind, namespace).list(&ListParams::default().limit(NAMES_MAX)).await;
        found.extend(listed.into_iter().flatten().map(|object| name(kind, &object)));
    }
    found
}

fn name(object: &DynamicObject) -> String {
    object.metadata.name.clone().unwrap_or_default()
}

/// What its author calls a gang: its job, or itself.
fn gang(of: &ApiResource, object: &DynamicObject, is_everywhere: bool) -> String {
    let meta: Option<Meta> = serde_json::to_value(&object.metadata).and_then(serde_json::from_value).ok();
    let (kind, name) = match meta.filter(|_| of.kind == "Workload") {
        Some(meta) => controllers::workload_named(&meta),
        None => (of.kind.to_lowercase(), name(object)),
    };
    let namespace = object.metadata.namespace.as_deref().filter(|_| is_everywhere);
    let namespace = namespace.map_or_else(String::new, |namespace| format!("{namespace}/"));
    format!("{kind}/{namespace}{name}")
}
