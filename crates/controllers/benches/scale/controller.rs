//! The controller as a process of its own, and what it did and when.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use controllers::{Config, Controller, LeaderElectionConfig};
use kube::Client;

/// A request of the controller, or a plan.
#[derive(Debug, Clone)]
pub(crate) struct Mark {
    /// Seconds since the epoch.
    pub(crate) at: f64,
    /// `plan`, or the method and the path.
    pub(crate) what: String,
}

/// Runs the controller until the process is killed. Prints the time of each plan and request.
pub(crate) async fn run(address: &str) {
    let mut config = kube::Config::new(format!("http://{address}").parse().expect("an address"));
    config.default_namespace = "default".into();
    let inner = Client::try_from(config).expect("a client without TLS");
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        print(&format!("{} {}", request.method(), request.uri()));
        let client = inner.clone();
        async move { client.send(request).await }
    });
    let inspect: controllers::Inspect = Arc::new(|_, _| print("plan"));
    let config = Config { inspect: Some(inspect), ..Config::default() };
    let controller = Controller::new(Client::new(service, "default"), config);
    let identity = format!("scale-{}", std::process::id());
    let election = LeaderElectionConfig::new(identity);
    controller.run_elected(election, std::future::pending()).await.expect("the controller runs");
}

/// Seconds since the epoch.
pub(crate) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn print(what: &str) {
    let mut out = std::io::stdout().lock();
    // The reader is gone when the measurement has ended.
    drop(writeln!(out, "{:.6} {what}", now()));
}

/// A controller in another process.
pub(crate) struct Process {
    child: Child,
    marks: Arc<Mutex<Vec<Mark>>>,
    /// When it was started, in seconds since the epoch.
    pub(crate) started: f64,
}

impl Process {
    /// Starts a controller.
    pub(crate) fn start(address: &str) -> Self {
        let program = std::env::current_exe().expect("the path of this program");
        let mut command = Command::new(program);
        command.args(["controller", address]).stdout(Stdio::piped());
        let started = now();
        let mut child = command.spawn().expect("the controller starts");
        let marks = Arc::<Mutex<Vec<Mark>>>::default();
        let (out, read) = (child.stdout.take().expect("it is piped"), marks.clone());
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let Some((at, what)) = line.split_once(' ') else { continue };
                let mark = Mark { at: at.parse().unwrap_or(0.0), what: what.to_owned() };
                read.lock().expect("no reader panics").push(mark);
            }
        });
        Self { child, marks, started }
    }

    pub(crate) fn marks(&self) -> Vec<Mark> {
        self.marks.lock().expect("no reader panics").clone()
    }

    /// Waits until the requests satisfy a condition.
    pub(crate) async fn until(&mut self, is_met: impl Fn(&[Mark]) -> bool) {
        while !is_met(&self.marks.lock().expect("no reader panics")) {
            assert!(self.child.try_wait().expect("it is a child").is_none(), "the controller has ended");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until the controller wrote nothing but its lease for this time.
    pub(crate) async fn until_quiet(&mut self, quiet: Duration) {
        let last = |marks: &[Mark]| {
            marks.iter().rev().find(|m| m.is_write() && !m.is_lease()).map_or(0.0, |mark| mark.at)
        };
        self.until(|marks| now() - last(marks) > quiet.as_secs_f64()).await;
    }

    /// The time from the start to the last write but those of the lease.
    pub(crate) fn since_start(&self) -> String {
        let marks = self.marks();
        let last = marks.iter().rev().find(|mark| mark.is_write() && !mark.is_lease());
        format!("{:.1} s", last.map_or(0.0, |mark| mark.at - self.started))
    }

    /// CPU time of the process in seconds.
    pub(crate) fn cpu_s(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
        (ticks(11) + ticks(12)) / 100.0
    }

    /// CPU time, resident memory and peak resident memory of the process, from procfs.
    pub(crate) fn usage(&self) -> String {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let mebibytes = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
            line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) / 1024
        };
        let (memory, peak) = (mebibytes("VmRSS:"), mebibytes("VmHWM:"));
        format!("{:.1} s; {memory} MiB; {peak} MiB", self.cpu_s())
    }

    /// Kills the controller.
    pub(crate) fn end(mut self) {
        self.child.kill().expect("it is a child");
        self.child.wait().expect("it is a child");
    }
}
