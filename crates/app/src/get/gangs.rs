//! `muster get gangs`: the reports that `muster why` prints, as a table. With the endpoint of the controller, or else by reading the
//! cluster.

mod labels;
mod order;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use apiserver::human_duration;
use controllers::GangKind;
use jiff::Timestamp;
use kube::Client;
use server::{Mode, Report};

use super::{Form, Format, List, Scope, all_found};
use crate::connection::Connection;
use crate::gang::Gang;
use crate::table::{Table, put};
use crate::visibility::Visibility;
use crate::why::kind_word;
use order::Sort;

/// Between two readings of `--watch`, at least.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Of the time, at most one part in so many is spent reading.
const PAUSE_PER_READING: u32 = 10;

/// Flags of `muster get gangs`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only these, such as `train`, `job/train` or `appwrapper/train`. Default: all.
    #[arg(value_name = "[KIND/]NAME")]
    names: Vec<String>,
    #[command(flatten)]
    scope: Scope,
    /// Only those with these labels, as for kubectl: labels of the object in the column NAME.
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,
    /// After the table, print the rows that change.
    #[arg(short, long)]
    watch: bool,
    /// The order of the rows.
    #[arg(long, value_enum, default_value_t, value_name = "COLUMN")]
    sort: Sort,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    connection: Connection,
}

/// Prints the gangs.
pub(crate) async fn run(args: Args) -> Result<()> {
    if args.watch && matches!(args.form.output, Format::Json | Format::Yaml) {
        bail!("--watch prints rows: use it with -o table, wide or name");
    }
    let (client, _) = args.connection.open().await?;
    let endpoint = Visibility::of(&client).await;
    let namespace = args.scope.namespace(&client);
    let read = async || args.selected(&client, endpoint.as_ref(), namespace.as_deref()).await;
    let begin = Instant::now();
    let (gangs, missing) = read().await?;
    let place = namespace.as_ref().map_or(String::new(), |namespace| format!(" in namespace {namespace}"));
    list(&args, &gangs).print(&args.form, !missing.is_empty(), &format!("gangs found{place}"))?;
    all_found(&missing, "gang", namespace.as_deref())?;
    if args.watch { watch(&args, gangs, begin.elapsed(), read).await } else { Ok(()) }
}

/// Prints the rows that change, until nobody reads them. An error is told once; the cluster may be back later.
async fn watch(
    args: &Args,
    gangs: Vec<Gang>,
    mut took: Duration,
    read: impl AsyncFn() -> Result<(Vec<Gang>, Vec<String>)>,
) -> Result<()> {
    let layout = layout(args, &gangs);
    let mut has_header = !gangs.is_empty() || args.form.no_headers || args.form.output == Format::Name;
    let mut known = by_name(gangs);
    let mut last_error = None;
    loop {
        tokio::time::sleep((took * PAUSE_PER_READING).max(PAUSE_MIN)).await;
        let begin = Instant::now();
        let answer = read().await;
        took = begin.elapsed();
        let gangs = match answer {
            Ok((gangs, _)) => gangs,
            Err(error) => {
                let text = crate::visibility::line(&error);
                if last_error.as_ref() != Some(&text) {
                    eprintln!("muster: {text}");
                }
                last_error = Some(text);
                continue;
            }
        };
        last_error = None;
        let mut text = String::new();
        for gang in changes(&mut known, gangs) {
            if !has_header {
                text.push_str(&layout.header());
                has_header = true;
            }
            let name = || gang.object() + "\n";
            let line = || layout.line(&row(args, &gang));
            text.push_str(&if args.form.output == Format::Name { name() } else { line() });
        }
        if !put(&text)? {
            return Ok(());
        }
    }
}

/// The reports about all gangs of a namespace, or of all.
pub(crate) async fn read(
    client: &Client,
    endpoint: Option<&Visibility>,
    namespace: Option<&str>,
) -> Result<Vec<Gang>> {
    let reports = if let Some(endpoint) = endpoint {
        at_endpoint(endpoint, namespace).await?
    } else {
        let observer = Connection::observe(client.clone(), false).await?;
        let reports =
            observer.all(namespace).iter().map(|report| Report::new(report, Mode::Actual)).collect();
        observer.close().await;
        reports
    };
    Ok(reports.into_iter().map(|report| Gang(report.status)).collect())
}

/// A reader may have the permission for one of the kinds only; then it is said that the other is left out.
async fn at_endpoint(endpoint: &Visibility, namespace: Option<&str>) -> Result<Vec<Report>> {
    let wrapper = GangKind::ALL[0];
    let workloads = async {
        if endpoint.serves(GangKind::Workload) {
            endpoint.list(GangKind::Workload, namespace).await
        } else {
            Ok(Vec::new())
        }
    };
    match tokio::join!(endpoint.list(wrapper, namespace), workloads) {
        (Ok(wrappers), Ok(workloads)) => Ok([wrappers, workloads].concat()),
        (Ok(found), Err(error)) if endpoint.serves(GangKind::Workload) => {
            eprintln!("muster: Workloads are left out: {error}");
            Ok(found)
        }
        (Err(error), Ok(found)) if endpoint.serves(GangKind::Workload) => {
            eprintln!("muster: AppWrappers are left out: {error}");
            Ok(found)
        }
        (Err(error), _) | (_, Err(error)) => Err(error),
    }
}

impl Args {
    /// The gangs that are meant, in order, and the names for which there is none.
    async fn selected(
        &self,
        client: &Client,
        endpoint: Option<&Visibility>,
        namespace: Option<&str>,
    ) -> Result<(Vec<Gang>, Vec<String>)> {
        let mut gangs = read(client, endpoint, namespace).await?;
        let missing = named(&mut gangs, &self.names);
        if let Some(selector) = &self.selector {
            labels::select(client, namespace, selector, &mut gangs).await?;
        }
        self.sort.apply(&mut gangs);
        Ok((gangs, missing))
    }
}

/// Keeps the gangs of some names, if there are any. The names without a gang.
pub(crate) fn named(gangs: &mut Vec<Gang>, names: &[String]) -> Vec<String> {
    if names.is_empty() {
        return Vec::new();
    }
    let mut is_found = vec![false; names.len()];
    gangs.retain(|gang| {
        let mut is_meant = false;
        for (found, asked) in is_found.iter_mut().zip(names) {
            if is_named(gang, asked) {
                (*found, is_meant) = (true, true);
            }
        }
        is_meant
    });
    names.iter().zip(is_found).filter(|(_, found)| !found).map(|(name, _)| name.clone()).collect()
}

/// Whether a gang has this name: that of its job, or its own.
fn is_named(gang: &Gang, asked: &str) -> bool {
    let (kind, name) = gang.kind_and_name();
    let own_kind = kind_word(gang.resource());
    match asked.split_once('/') {
        None => asked == name || asked == gang.name(),
        Some((asked_kind, asked)) => {
            let asked_kind = kind_word(asked_kind);
            (asked == name && asked_kind == kind) || (asked == gang.name() && asked_kind == own_kind)
        }
    }
}

/// Namespace, resource and name.
type Key = (String, String, String);

fn key(gang: &Gang) -> Key {
    (gang.namespace().to_owned(), gang.resource().to_owned(), gang.name().to_owned())
}

fn by_name(gangs: Vec<Gang>) -> BTreeMap<Key, Gang> {
    gangs.into_iter().map(|gang| (key(&gang), gang)).collect()
}

/// The gangs whose row changes: those that are new or differ, and those that are gone.
fn changes(known: &mut BTreeMap<Key, Gang>, gangs: Vec<Gang>) -> Vec<Gang> {
    let now = by_name(gangs.clone());
    let gone = known.iter().filter(|(key, _)| !now.contains_key(*key)).map(|(_, gang)| {
        let mut gone = gang.clone();
        gone.0["state"] = "deleted".into();
        gone
    });
    let gone: Vec<Gang> = gone.collect();
    let differs = |gang: &Gang| known.get(&key(gang)) != Some(gang);
    let changed: Vec<Gang> = gangs.into_iter().filter(differs).chain(gone).collect();
    *known = now;
    changed
}

fn columns(args: &Args) -> Vec<&'static str> {
    let mut columns = if args.scope.all_namespaces { vec!["NAMESPACE"] } else { Vec::new() };
    columns.extend(["NAME", "STATE", "QUEUE", "POSITION", "START", "AGE"]);
    if args.form.output == Format::Wide {
        columns.extend(["CLUSTERQUEUE", "PRIORITY", "PODS", "OBJECT"]);
    }
    columns.push("REASON");
    columns
}

fn row(args: &Args, gang: &Gang) -> Vec<String> {
    let mut cells = Vec::new();
    if args.scope.all_namespaces {
        cells.push(gang.namespace().to_owned());
    }
    let position = gang.position().map_or_else(String::new, |(place, of)| format!("{place}/{of}"));
    let age =
        gang.created().map(|created| human_duration(Timestamp::now().duration_since(created).as_secs()));
    cells.extend([
        gang.object(),
        gang.state(),
        gang.queue().to_owned(),
        position,
        gang.start_text(),
        age.unwrap_or_default(),
    ]);
    if args.form.output == Format::Wide {
        let own = format!("{}/{}", gang.resource(), gang.name());
        cells.extend([gang.cluster_queue().to_owned(), gang.number("priority"), gang.number("pods"), own]);
    }
    cells.push(gang.reason());
    cells
}

fn list(args: &Args, gangs: &[Gang]) -> List {
    List {
        columns: columns(args),
        rows: gangs.iter().map(|gang| row(args, gang)).collect(),
        names: gangs.iter().map(Gang::object).collect(),
        values: gangs.iter().map(|gang| gang.0.clone()).collect(),
    }
}

/// The layout of the table, for the rows that follow.
fn layout(args: &Args, gangs: &[Gang]) -> Table {
    let rows: Vec<_> = gangs.iter().map(|gang| row(args, gang)).collect();
    Table::new(columns(args), &rows, args.form.output == Format::Wide)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn gang(kind: &str, name: &str, object: &str) -> Gang {
        Gang(json!({"kind": kind, "namespace": "a", "name": name, "object": object, "state": "waits"}))
    }

    #[test]
    fn a_gang_is_named_by_its_job_or_by_its_own_name() {
        let job = gang("workloads.kueue.x-k8s.io", "job-train-1f", "job/train");
        for (asked, is_meant) in [
            ("train", true),
            ("job/train", true),
            ("jobs/train", true),
            ("job.batch/train", true),
            ("rayjob/train", false),
            ("wl/job-train-1f", true),
            ("job-train-1f", true),
            ("workload/train", false),
            ("job/", false),
            ("", false),
            ("a/b/c", false),
        ] {
            assert_eq!(is_named(&job, asked), is_meant, "{asked}");
        }
        let mut all = vec![job.clone(), gang("appwrappers.mcad.ibm.com", "other", "appwrapper/other")];
        assert_eq!(named(&mut all, &["aw/other".into(), "none".into()]), ["none"]);
        assert_eq!(all.len(), 1);
    }

    #[test]
    fn a_watch_tells_what_is_new_what_differs_and_what_is_gone() {
        let (first, second) = (gang("w", "1", "job/1"), gang("w", "2", "job/2"));
        let mut known = by_name(vec![first.clone(), second.clone()]);
        assert_eq!(changes(&mut known, vec![first.clone(), second.clone()]), []);
        let mut runs = second.clone();
        runs.0["state"] = "admitted".into();
        let third = gang("w", "3", "job/3");
        let changed = changes(&mut known, vec![runs.clone(), third.clone()]);
        assert_eq!(changed[..2], [runs, third]);
        assert_eq!((changed[2].name(), changed[2].state()), ("1", "Deleted".into()));
        assert_eq!(known.len(), 2);
    }
}
