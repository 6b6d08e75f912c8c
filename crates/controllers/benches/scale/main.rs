//! Measures the live path at size: `cargo bench -p controllers --bench scale -- NODES [GANG_PODS]`, by default 1,000
//! nodes and 15 pods for each gang.
//!
//! An API server in memory holds nodes of 14 CPUs, and as many AppWrappers as nodes. Each wraps a Job of pods of one
//! CPU. So as many pods run as the nodes hold, 14 for each node, and the other AppWrappers wait. The controller is
//! another process of this program, with leader election on, which talks HTTP. The program measures the dispatch and a
//! restart. It prints a table, and asserts nothing.

mod cluster;
mod controller;

use std::time::Duration;

use cluster::Cluster;
use controller::{Mark, Process};

/// How long no request means that the controller is quiet.
const QUIET: Duration = Duration::from_secs(3);
/// How long writes are counted after a restart.
const AFTER_RESTART: Duration = Duration::from_secs(30);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    if std::env::args().any(|argument| argument == "--test") {
        return; // `cargo test --benches` only checks that it builds.
    }
    let number = |at: usize, default: usize| {
        arguments.get(at).map_or(default, |text| text.parse().expect("a size is a number"))
    };
    match arguments.first().map(String::as_str) {
        Some("controller") => controller::run(&arguments[1]).await,
        _ => measure(number(0, 1_000), number(1, 15)).await,
    }
}

async fn measure(nodes: usize, gang_pods: usize) {
    let cluster = Cluster::start(nodes, gang_pods).await;
    row("nodes, AppWrappers and pods of a gang", &format!("{nodes}, {nodes}, {gang_pods}"));
    let mut process = Process::start(&cluster.address);
    let dispatched = cluster.fitting();
    process.until(|marks| marks.iter().filter(|mark| mark.is_create("/jobs")).count() >= dispatched).await;
    row(&format!("start to the last of {dispatched} dispatches"), &process.since_start());
    cluster.pods_run(dispatched * gang_pods).await;
    process.until_quiet(QUIET).await;
    row("start until all pods run and no request is made", &process.since_start());
    report(&process);
    process.end();

    cluster.delete_one_gang();
    let mut process = Process::start(&cluster.address);
    process.until(|marks| marks.iter().any(|mark| mark.is_create("/jobs"))).await;
    tokio::time::sleep(AFTER_RESTART).await;
    let marks = process.marks();
    let listed =
        marks.iter().filter(|mark| mark.is_initial_watch()).map(|mark| mark.at).max_by(f64::total_cmp);
    let listed = listed.unwrap_or(process.started);
    let first_plan = marks.iter().find(|mark| mark.what == "plan").map_or(listed, |mark| mark.at);
    let first_dispatch = marks.iter().find(|mark| mark.is_create("/jobs")).map_or(listed, |mark| mark.at);
    let seconds = |from: f64, to: f64| format!("{:.2} s", to - from);
    row("restart: process start to the end of the last list", &seconds(process.started, listed));
    row("restart: end of the last list to the first plan", &seconds(listed, first_plan));
    row("restart: end of the last list to the first dispatch", &seconds(listed, first_dispatch));
    report(&process);
    process.end();
}

/// Prints the writes, the CPU time, the memory and the longest gap between two renewals of the lease.
fn report(process: &Process) {
    let marks = process.marks();
    let writes = marks.iter().filter(|mark| mark.is_write() && !mark.is_lease());
    let mut by_kind = std::collections::BTreeMap::new();
    for write in writes {
        *by_kind.entry(write.kind()).or_insert(0) += 1;
    }
    let renewals: Vec<f64> =
        marks.iter().filter(|mark| mark.is_write() && mark.is_lease()).map(|m| m.at).collect();
    let gap = renewals.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
    row("  writes", &format!("{by_kind:?}"));
    row("  longest time between two renewals of the lease", &format!("{gap:.1} s"));
    row("  plans", &marks.iter().filter(|mark| mark.what == "plan").count().to_string());
    row("  CPU time; memory; peak memory", &process.usage());
}

fn row(what: &str, figure: &str) {
    println!("{what:<60} {figure}");
}

impl Mark {
    /// Whether an object is created under a path with this end.
    fn is_create(&self, plural: &str) -> bool {
        self.what
            .strip_prefix("POST ")
            .is_some_and(|path| path.split('?').next().is_some_and(|path| path.ends_with(plural)))
    }

    /// Whether a list has ended and its watch begins.
    fn is_initial_watch(&self) -> bool {
        self.what.starts_with("GET ") && self.what.contains("watch=true")
    }

    fn is_write(&self) -> bool {
        ["POST ", "PUT ", "PATCH ", "DELETE "].iter().any(|method| self.what.starts_with(method))
    }

    fn is_lease(&self) -> bool {
        self.what.contains("/leases")
    }

    /// The method, the resource and the subresource.
    fn kind(&self) -> String {
        let (method, path) = self.what.split_once(' ').unwrap_or(("", &self.what));
        let path = path.split('?').next().unwrap_or_default();
        let namespaced = path.split_once("/namespaces/").and_then(|(_, rest)| rest.split_once('/'));
        let parts: Vec<&str> = namespaced.map_or(path, |(_, rest)| rest).split('/').collect();
        let subresource = parts.get(2).map_or(String::new(), |name| format!("/{name}"));
        format!("{method} {}{subresource}", parts[0])
    }
}
