//! Installs, upgrades and uninstalls the Helm chart on a cluster with simulated nodes, and uses what is installed as a user does.
//!
//! - `node`: pods of the release run as processes, with the program of the image and the token of their service account
//! - `services`: cluster addresses lead to these processes
//! - `cluster`: requests

mod cluster;
mod node;
mod services;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use kube::config::Kubeconfig;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use self::cluster::{Cluster, text};
use self::node::Node;
use crate::environment::connect;
use crate::objects;

/// What is installed, and where.
#[derive(Debug, Clone)]
pub struct Options {
    /// The kubeconfig of the cluster.
    pub kubeconfig: PathBuf,
    /// The program `helm`.
    pub helm: PathBuf,
    /// The folder of the chart.
    pub chart: PathBuf,
    /// A chart of an earlier version, from which the release is upgraded.
    pub previous: Option<PathBuf>,
    /// The program of the image.
    pub program: PathBuf,
    /// The folder for logs and kubeconfigs.
    pub dir: PathBuf,
    /// How long an expected state may take.
    pub timeout: Duration,
}

/// A release under test.
struct Release {
    options: Options,
    cluster: Cluster,
    node: Node,
    namespace: String,
    running: JoinSet<Result<()>>,
}

/// The namespace of tenants.
const TENANT: &str = "team";
const WRAPPERS: &str = "/apis/workload.codeflare.dev/v1beta1/namespaces/team/appwrappers";
const PODS: &str = "/api/v1/namespaces/team/pods";
const JOBS: &str = "/apis/batch/v1/namespaces/team/jobs";
const GATE: &str = "muster.dev/placement";
const REGISTERED: [&str; 3] = [
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/muster",
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/muster-kueue",
    "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.visibility.muster.dev",
];

/// Runs all checks, and prints one line for each.
///
/// # Errors
/// A check failed.
pub async fn run(options: Options) -> Result<()> {
    std::fs::create_dir_all(&options.dir)?;
    let namespace = format!("muster-{}", crate::environment::run_id());
    let mut release = Release::open(options, namespace).await?;
    let begin = Instant::now();
    let done = |what: &str| println!("ok      {what} ({:.1} s)", begin.elapsed().as_secs_f64());
    release.prepare().await?;

    let first = release.options.previous.clone().unwrap_or_else(|| release.options.chart.clone());
    release.helm(&["install", "muster"], Some(&first), &["--create-namespace"]).await?;
    release.ready(2).await?;
    release.one_leads().await?;
    done("two replicas are ready and one of them leads");
    release.tenants_are_checked().await?;
    done("an author can wrap only what the author may create");
    release.dispatches("first").await?;
    done("a gang runs on the planned nodes");
    release.answers().await?;
    done("the endpoint answers through the API server");
    release.second_install_is_refused().await?;
    done("a second installation is refused and changes nothing");
    release.survives_a_killed_leader().await?;
    done("the standby takes over from a killed leader");
    release.upgrades_under_load().await?;
    done("an upgrade refuses no AppWrapper");
    release.uninstalls().await?;
    done("nothing is left but workloads and definitions, and no pod is gated");
    release.kueue().await?;
    done("Kueue's Workloads are admitted, and after the end nothing holds them");
    Ok(())
}

impl Release {
    async fn open(options: Options, namespace: String) -> Result<Self> {
        let client = connect(&options.kubeconfig).await?;
        let cluster = Cluster { client, timeout: options.timeout };
        let node = Node {
            cluster: cluster.clone(),
            namespace: namespace.clone(),
            program: options.program.canonicalize().context("there is no program")?,
            dir: options.dir.canonicalize()?,
            kubeconfig: Kubeconfig::read_from(&options.kubeconfig)?,
            network: fastrand::u8(100..250),
        };
        let mut running = JoinSet::new();
        running.spawn(node.clone().run());
        running.spawn(services::run(cluster.clone(), node.clone()));
        Ok(Self { options, cluster, node, namespace, running })
    }

    /// Nodes for pods of the release and of tenants, and what tenants need.
    async fn prepare(&self) -> Result<()> {
        for name in ["installation-a", "installation-b"] {
            let node = objects::node(name, "cpu=8");
            self.cluster.create("/api/v1/nodes", &node).await?;
        }
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT}});
        self.cluster.create("/api/v1/namespaces", &namespace).await?;
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "tenant"},
            "rules": [{"apiGroups": ["workload.codeflare.dev"], "resources": ["appwrappers"], "verbs": ["create"]}]});
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "tenant"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tenant"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "tenant"}]});
        let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/team";
        self.cluster.create(&format!("{roles}/roles"), &role).await?;
        self.cluster.create(&format!("{roles}/rolebindings"), &binding).await?;
        Ok(())
    }

    /// Runs Helm for the namespace, and returns what it prints.
    async fn try_helm(
        &self,
        command: &[&str],
        chart: Option<&Path>,
        flags: &[&str],
    ) -> Result<Result<String, String>> {
        // Helm would wait for the readiness that the nodes simulate; a run must not wait for durations of production.
        const LEASE: [&str; 3] = [
            "leaderElection.leaseDuration=6s",
            "leaderElection.renewDeadline=4s",
            "leaderElection.retryPeriod=1s",
        ];
        let mut line = Command::new(&self.options.helm);
        line.args(command).args(chart).args(["--namespace", &self.namespace, "--kubeconfig"]);
        line.arg(&self.options.kubeconfig).args(flags).kill_on_drop(true);
        if chart.is_some() {
            line.args(LEASE.iter().flat_map(|value| ["--set", *value]));
        }
        let output = line.output().await.context("cannot start helm")?;
        let [printed, errors] =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Ok(if output.status.success() { Ok(printed) } else { Err(errors) })
    }

    async fn helm(&self, command: &[&str], chart: Option<&Path>, flags: &[&str]) -> Result<String> {
        let result = self.try_helm(command, chart, flags).await?;
        result.map_err(|error| anyhow::anyhow!("helm {} failed: {error}", command.join(" ")))
    }

    async fn pods(&self) -> Result<Vec<Value>> {
        let pods = self.cluster.list(&format!("/api/v1/namespaces/{}/pods", self.namespace)).await?;
        Ok(pods
            .into_iter()
            .filter(|pod| pod["metadata"]["labels"]["muster.dev/controller"] == "muster")
            .collect())
    }

    /// Waits until exactly so many replicas run, and all are ready by what their probes say.
    async fn ready(&self, count: usize) -> Result<Vec<String>> {
        let what = format!("{count} ready replicas");
        self.cluster
            .until(&what, async || {
                let pods = self.pods().await?;
                // The simulated kubelet sets fewer conditions in another order.
                let is_ready = |pod: &Value| {
                    let conditions = pod["status"]["conditions"].as_array();
                    conditions
                        .into_iter()
                        .flatten()
                        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
                        && self.is_ready_by_probe(pod)
                };
                let mut ready = BTreeSet::new();
                for pod in &pods {
                    if is_ready(pod) {
                        ready.insert(text(&pod["metadata"]["name"]).to_owned());
                    }
                }
                Ok((ready.len() == count && pods.len() == count).then(|| ready.into_iter().collect()))
            })
            .await
    }

    /// Whether the process of a pod says that it is ready.
    fn is_ready_by_probe(&self, pod: &Value) -> bool {
        use std::io::{Read as _, Write as _};
        let Some(address) = self.node.address(text(&pod["status"]["podIP"])) else { return false };
        let ask = || {
            let mut stream = std::net::TcpStream::connect(format!("{address}:8081"))?;
            stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok::<_, std::io::Error>(answer)
        };
        ask().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
    }

    /// The pod that holds the lease.
    async fn leader(&self) -> Result<String> {
        self.cluster
            .until("a leader", async || {
                let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/muster";
                let lease = self.cluster.get(lease).await?.unwrap_or_default();
                let holder =
                    text(&lease["spec"]["holderIdentity"]).split('_').next().unwrap_or_default().to_owned();
                Ok((!holder.is_empty()).then_some(holder))
            })
            .await
    }

    async fn one_leads(&self) -> Result<()> {
        let leader = self.leader().await?;
        let names: Vec<_> =
            self.pods().await?.iter().map(|pod| text(&pod["metadata"]["name"]).to_owned()).collect();
        ensure!(names.contains(&leader), "{leader} leads, but the replicas are {names:?}");
        Ok(())
    }

    async fn tenants_are_checked(&self) -> Result<()> {
        let wrapped = objects::wrap("stolen", [objects::config_map("stolen")]);
        let wrapped = of_codeflare(wrapped);
        // The leader registers the webhook a moment after it leads.
        self.cluster
            .until("a refusal by the webhook", async || {
                match self.cluster.create_as(WRAPPERS, &wrapped, Some("tenant")).await {
                    Ok(_) => {
                        self.cluster.delete(&format!("{WRAPPERS}/stolen")).await?;
                        Ok(None)
                    }
                    Err(error) => {
                        let error = format!("{error:#}");
                        Ok(error.contains("user \"tenant\" cannot create configmaps").then_some(()))
                    }
                }
            })
            .await
    }

    /// A gang of two pods starts.
    async fn dispatches(&self, name: &str) -> Result<()> {
        let wrapper = of_codeflare(objects::wrap(name, [objects::job(name, 2, "cpu=1", "10m")]));
        // A client tries again: for a moment after a crash, the Service still leads to the replica that is gone.
        self.cluster
            .until(&format!("the creation of {name}"), async || {
                self.cluster.create(WRAPPERS, &wrapper).await.map(Some)
            })
            .await?;
        self.running(name, 2).await
    }

    async fn running(&self, name: &str, count: usize) -> Result<()> {
        self.cluster
            .until(&format!("{count} running pods of {name}"), async || {
                let pods = self.pods_of(name).await?;
                let running = pods.iter().filter(|pod| pod["status"]["phase"] == "Running");
                Ok((running.count() == count).then_some(()))
            })
            .await
    }

    async fn pods_of(&self, job: &str) -> Result<Vec<Value>> {
        let pods = self.cluster.list(PODS).await?;
        Ok(pods.into_iter().filter(|pod| pod["metadata"]["labels"]["job-name"] == *job).collect())
    }

    async fn answers(&self) -> Result<()> {
        let path = "/apis/visibility.muster.dev/v1beta1/namespaces/team/appwrapperreports";
        self.cluster
            .until("reports of the endpoint", async || {
                let reports = self.cluster.list(path).await?;
                Ok(reports.iter().any(|report| report["metadata"]["name"] == "first").then_some(()))
            })
            .await
    }

    async fn second_install_is_refused(&self) -> Result<()> {
        let again = self.try_helm(&["install", "again"], Some(&self.options.chart), &[]).await?;
        let Err(error) = again else { bail!("the second installation was not refused") };
        ensure!(error.contains("invalid ownership metadata") || error.contains("exists"), "{error}");
        self.ready(2).await?;
        Ok(())
    }

    async fn survives_a_killed_leader(&self) -> Result<()> {
        let leader = self.leader().await?;
        let processes = std::fs::read_dir("/proc")?.filter_map(|entry| {
            let id: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let environment = std::fs::read(format!("/proc/{id}/environ")).ok()?;
            let is_it = environment
                .split(|byte| *byte == 0)
                .any(|variable| variable == format!("HOSTNAME={leader}").as_bytes());
            is_it.then_some(id)
        });
        let process = processes.collect::<Vec<_>>();
        let [process] = process.as_slice() else { bail!("{leader} has the processes {process:?}") };
        let begin = Instant::now();
        crate::process::signal("KILL", *process).await?;
        self.dispatches("after-the-crash").await?;
        println!(
            "        a gang that came after the crash runs after {:.1} s",
            begin.elapsed().as_secs_f64()
        );
        self.ready(2).await?;
        Ok(())
    }

    /// AppWrappers are created while all replicas are replaced.
    async fn upgrades_under_load(&self) -> Result<()> {
        let before: BTreeSet<_> = self.ready(2).await?.into_iter().collect();
        let upgrade = self.helm(
            &["upgrade", "muster"],
            Some(&self.options.chart),
            &["--set", "podAnnotations.upgrade=yes"],
        );
        let created = AtomicUsize::new(0);
        let replaced = async {
            upgrade.await?;
            self.cluster
                .until("replaced replicas", async || {
                    let now: BTreeSet<_> = self.ready(2).await?.into_iter().collect();
                    Ok(now.is_disjoint(&before).then_some(()))
                })
                .await
        };
        tokio::select! {
            result = replaced => result?,
            result = self.load(&created) => { result?; }
        }
        println!("        {} AppWrappers were created meanwhile", created.into_inner());
        self.dispatches("after-the-upgrade").await
    }

    /// Creates AppWrappers for ever, and counts them.
    async fn load(&self, created: &AtomicUsize) -> Result<Infallible> {
        loop {
            let name = format!("load-{}", created.fetch_add(1, Ordering::Relaxed));
            let wrapper = of_codeflare(objects::wrap(&name, [objects::config_map(&name)]));
            self.cluster.create(WRAPPERS, &wrapper).await.context("during the upgrade")?;
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// With a running gang, a waiting one, and a pod that is still gated.
    async fn uninstalls(&self) -> Result<()> {
        let large = of_codeflare(objects::wrap("large", [objects::job("large", 40, "cpu=1", "10m")]));
        self.cluster.create(WRAPPERS, &large).await?;
        let mut gated = objects::pod("gated", "cpu=1");
        gated["spec"]["schedulingGates"] = json!([{"name": GATE}]);
        self.cluster.create(PODS, &gated).await?;
        let uids = async || -> Result<BTreeSet<String>> {
            let pods = self.cluster.list(PODS).await?;
            Ok(pods.iter().map(|pod| text(&pod["metadata"]["uid"]).to_owned()).collect())
        };
        let before = uids().await?;
        let wrappers = self.cluster.list(WRAPPERS).await?.len();
        self.helm(&["uninstall", "muster"], None, &["--timeout", "3m"]).await?;
        ensure!(self.pods().await?.is_empty(), "replicas are left");
        self.nothing_is_registered().await?;
        let pods = self.cluster.list(PODS).await?;
        let gated: Vec<_> = pods
            .iter()
            .filter(|pod| pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()))
            .map(|pod| text(&pod["metadata"]["name"]))
            .collect();
        ensure!(gated.is_empty(), "pods are gated: {gated:?}");
        ensure!(uids().await? == before, "pods of workloads were touched");
        ensure!(self.cluster.list(WRAPPERS).await?.len() == wrappers, "AppWrappers were touched");
        // Without a webhook, AppWrappers can be created and deleted again.
        let later = of_codeflare(objects::wrap("later", [objects::config_map("later")]));
        self.cluster.create(WRAPPERS, &later).await?;
        for name in ["later", "large"] {
            self.cluster.delete(&format!("{WRAPPERS}/{name}")).await?;
        }
        Ok(())
    }

    async fn nothing_is_registered(&self) -> Result<()> {
        for path in REGISTERED {
            ensure!(self.cluster.get(path).await?.is_none(), "{path} is left");
        }
        for (kind, group) in [
            ("clusterroles", "rbac.authorization.k8s.io/v1"),
            ("flowschemas", "flowcontrol.apiserver.k8s.io/v1"),
        ] {
            let left = self.cluster.list(&format!("/apis/{group}/{kind}")).await?;
            let left: Vec<_> = left
                .iter()
                .map(|object| text(&object["metadata"]["name"]))
                .filter(|name| name.starts_with("muster"))
                .collect();
            ensure!(left.is_empty(), "{kind} are left: {left:?}");
        }
        Ok(())
    }

    /// The same for Kueue's API.
    async fn kueue(&mut self) -> Result<()> {
        let flags = [
            "--set",
            "kueue.enabled=true",
            "--set",
            "appWrappers.enabled=false",
            "--set",
            "kueue.jobs={batch/job,pod}",
        ];
        let chart = self.options.chart.clone();
        self.helm(&["install", "muster"], Some(&chart), &flags).await?;
        self.ready(2).await?;
        let kueue = "/apis/kueue.x-k8s.io/v1beta2";
        let flavor = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "default"}});
        let queue = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "all"},
            "spec": {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"],
                "flavors": [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": "3"}]}]}]}});
        let local = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "q"},
            "spec": {"clusterQueue": "all"}});
        let paths = [
            format!("{kueue}/resourceflavors"),
            format!("{kueue}/clusterqueues"),
            format!("{kueue}/namespaces/team/localqueues"),
        ];
        for (path, object) in paths.iter().zip([flavor, queue, local]) {
            // The leader creates the definitions after it leads.
            self.cluster
                .until(path, async || {
                    self.cluster.create(path, &object).await?;
                    Ok(Some(()))
                })
                .await?;
        }
        for name in ["runs", "waits"] {
            let mut job = objects::job(name, 2, "cpu=1", "10m");
            job["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "q"});
            self.cluster.create(JOBS, &job).await?;
            if name == "runs" {
                self.running("runs", 2).await?;
            }
        }
        let mut pod = objects::pod("waits", "cpu=2");
        pod["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "q"});
        let pod = self.cluster.create(PODS, &pod).await?;
        ensure!(!pod["spec"]["schedulingGates"].is_null(), "the pod does not wait in its queue: {pod}");
        let waits = self.cluster.get(&format!("{JOBS}/waits")).await?.unwrap_or_default();
        ensure!(waits["spec"]["suspend"] == true, "the webhook has not suspended the Job: {waits}");
        self.helm(&["uninstall", "muster"], None, &["--timeout", "3m"]).await?;
        self.nothing_is_registered().await?;
        self.running("runs", 2).await?;
        let waits = self.cluster.get(&format!("{JOBS}/waits")).await?.unwrap_or_default();
        ensure!(waits["spec"]["suspend"] == true, "a Job that waits was started: {waits}");
        let held = [
            PODS.to_owned(),
            format!("{kueue}/workloads"),
            format!("{kueue}/clusterqueues"),
            format!("{kueue}/resourceflavors"),
        ];
        for path in held {
            for object in self.cluster.list(&path).await? {
                let finalizers = object["metadata"]["finalizers"].to_string();
                let gates = object["spec"]["schedulingGates"].to_string();
                ensure!(
                    !finalizers.contains("kueue") && !gates.contains("kueue"),
                    "{path}: {object} is held"
                );
            }
        }
        self.running.shutdown().await;
        Ok(())
    }
}

/// An AppWrapper of the newer group.
fn of_codeflare(mut wrapper: Value) -> Value {
    wrapper["apiVersion"] = "workload.codeflare.dev/v1beta1".into();
    wrapper
}
