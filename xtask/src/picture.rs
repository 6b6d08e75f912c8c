//! The picture of the README, from a real run: `muster up` with a few nodes, a gang that runs, and one that fits in total and on no
//! nodes, so that it waits with a promised start.
//!
//! - `drawing`: the SVG of a report

mod drawing;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use self::drawing::{Gang, Report, draw};

/// What a device is called in the manifests, and in the picture.
const DEVICE: &str = "nvidia.com/gpu";
const NODES: &str = "count=4,name=node,cpu=16,memory=64Gi,nvidia.com/gpu=2";
/// Runs from the start on, for 40 minutes.
const RUNNING: Gang = Gang { name: "tune", pods: 4, devices: 1, run_time_s: 2400 };
/// Comes later.
const WAITING: Gang = Gang { name: "train", pods: 2, devices: 2, run_time_s: 600 };
/// How long the cluster may take for a step.
const PATIENCE: Duration = Duration::from_mins(1);

/// Runs the cluster, and writes the picture of its report.
pub(crate) fn make(muster: &Path, out: &Path) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let muster =
        muster.canonicalize().with_context(|| format!("there is no program {}", muster.display()))?;
    let cluster = Cluster::start(muster, folder.path())?;
    cluster.submit(&RUNNING)?;
    cluster.until("tune has its nodes", |gangs| gang(gangs, &RUNNING)["places"].is_object())?;
    cluster.submit(&WAITING)?;
    let gangs = cluster
        .until("train has a promised start", |gangs| gang(gangs, &WAITING)["start"]["reserved"] == true)?;
    let nodes = cluster.list("nodes")?;
    let text =
        draw(&Report { nodes: &nodes, gangs: &gangs, device: DEVICE, running: RUNNING, waiting: WAITING })?;
    if let Some(parent) = out.parent() {
        std::fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    }
    std::fs::write(out, text).with_context(|| format!("cannot write {}", out.display()))
}

/// A gang of a list.
fn gang<'a>(gangs: &'a Value, of: &Gang) -> &'a Value {
    let found = gangs.as_array().into_iter().flatten().find(|gang| gang["name"] == of.name);
    found.unwrap_or(&Value::Null)
}

/// `muster up`, which ends with this value.
struct Cluster {
    muster: PathBuf,
    kubeconfig: PathBuf,
    process: Child,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Cluster {
    fn start(muster: PathBuf, folder: &Path) -> Result<Self> {
        let process = Command::new(&muster)
            .args(["up", "--listen", "127.0.0.1:0", "--dashboard", "127.0.0.1:0", "--packing", "spread"])
            .args(["--node", NODES, "--dir"])
            .arg(folder)
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", muster.display()))?;
        let mut cluster = Self { muster, kubeconfig: folder.join("kubeconfig"), process };
        let output = cluster.process.stdout.take().context("the output of muster up is not read")?;
        let is_ready =
            BufReader::new(output).lines().any(|line| line.is_ok_and(|line| line.contains("dashboard")));
        ensure!(is_ready, "muster up has ended; its reason is above");
        Ok(cluster)
    }

    fn submit(&self, gang: &Gang) -> Result<()> {
        let file = self.kubeconfig.with_file_name(format!("{}.json", gang.name));
        std::fs::write(&file, manifest(gang).to_string())?;
        let status = Command::new("kubectl")
            .args(["create", "--filename"])
            .arg(&file)
            .env("KUBECONFIG", &self.kubeconfig)
            .stdout(Stdio::null())
            .status()
            .context("cannot start kubectl")?;
        ensure!(status.success(), "kubectl cannot create the gang {}", gang.name);
        Ok(())
    }

    fn list(&self, what: &str) -> Result<Value> {
        let output = Command::new(&self.muster)
            .args(["get", what, "--output", "json"])
            .env("KUBECONFIG", &self.kubeconfig)
            .output()
            .with_context(|| format!("cannot start {}", self.muster.display()))?;
        ensure!(output.status.success(), "muster get {what}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).with_context(|| format!("muster get {what} prints no JSON"))
    }

    /// The gangs, as soon as they are as expected.
    fn until(&self, expected: &str, holds: impl Fn(&Value) -> bool) -> Result<Value> {
        let begin = Instant::now();
        loop {
            let gangs = self.list("gangs")?;
            if holds(&gangs) {
                return Ok(gangs);
            }
            if begin.elapsed() > PATIENCE {
                bail!("after {} s it does not hold that {expected}: {gangs}", PATIENCE.as_secs());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// An AppWrapper with a Job.
fn manifest(gang: &Gang) -> Value {
    let resources = json!({"requests": {"cpu": 4, DEVICE: gang.devices}, "limits": {DEVICE: gang.devices}});
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": gang.name},
        "spec": {"parallelism": gang.pods, "completions": gang.pods, "template": {
            "metadata": {"annotations": {"sandbox.muster.dev/run-time": format!("{}s", gang.run_time_s)}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "work", "image": "work", "resources": resources}]},
        }},
    });
    json!({
        "apiVersion": "workload.codeflare.dev/v1beta1", "kind": "AppWrapper", "metadata": {"name": gang.name},
        "spec": {
            "schedulingSpec": {"dispatchDuration": {"expected": gang.run_time_s}},
            "resources": {"GenericItems": [{"completionstatus": "Complete", "generictemplate": job}]},
        },
    })
}
