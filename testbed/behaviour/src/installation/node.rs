//! The part of a kubelet for the pods of releases: the nodes are simulated, so nothing runs on them. Each pod whose image has a
//! program runs as a process of it, with the arguments and variables of its container, its volumes and the token of its service
//! account. Its readiness probe is asked, and what it says is the readiness of the pod.
//!
//! - `container`: the process of a pod, and what it finds in its file system
//!
//! The address of a pod, 10.244.x.y, is 127.N.x.y for its process.

mod container;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::Result;
use kube::config::Kubeconfig;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use self::container::Container;
use super::cluster::{Cluster, text};
use crate::process::signal;

/// A pod is there as long as its process.
const FINALIZER: &str = "behaviour.muster.dev/process";

/// What runs for an image.
#[derive(Debug, Clone)]
pub(super) struct Program {
    pub(super) path: PathBuf,
    /// Arguments beside those of the container.
    pub(super) arguments: Vec<String>,
    /// It is static, and runs in a root folder of its own. Others get the paths of their volumes in arguments.
    pub(super) has_root: bool,
}

/// What processes have used.
#[derive(Debug, Default)]
pub(super) struct Usage {
    /// Of all processes.
    pub(super) cpu: Duration,
    /// The peak of the largest process.
    pub(super) memory_mib: u64,
}

/// Where processes run.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) cluster: Cluster,
    /// The programs, by the last name of the image's repository.
    pub(super) programs: BTreeMap<String, Program>,
    /// Folder of kubeconfigs, configurations and logs.
    pub(super) dir: PathBuf,
    /// The API server of the pods.
    pub(super) kubeconfig: Kubeconfig,
    /// The second number of the addresses of processes.
    pub(super) network: u8,
    /// The addresses of pods that are ready by their probe.
    pub(super) ready: Arc<Mutex<BTreeSet<String>>>,
    /// The ids of processes, by the names of their pods.
    pub(super) processes: Arc<Mutex<BTreeMap<String, u32>>>,
    /// Whether processes are killed, and not started.
    pub(super) is_down: Arc<AtomicBool>,
}

impl Node {
    /// The address of the process of a pod with an address.
    pub(super) fn address(&self, pod_ip: &str) -> Option<String> {
        let (_, host) = pod_ip.split_once('.')?.1.split_once('.')?;
        Some(format!("127.{}.{host}", self.network))
    }

    /// Whether the pod with an address is ready by its probe. The simulated kubelets have set a condition, too.
    pub(super) fn is_ready(&self, pod_ip: &str) -> bool {
        self.ready().contains(pod_ip)
    }

    /// The ids of the processes that run now, by the names of their pods.
    pub(super) fn processes(&self) -> MutexGuard<'_, BTreeMap<String, u32>> {
        self.processes.lock().expect("nothing panics while it holds the lock")
    }

    /// Kills all processes, and starts none until [`Self::restore`]. Their pods stay.
    pub(super) async fn kill(&self) -> Result<()> {
        self.is_down.store(true, Ordering::Relaxed);
        let running: Vec<u32> = self.processes().values().copied().collect();
        for process in running {
            signal("KILL", process).await?;
        }
        while !self.processes().is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// What the processes of pods have used since they started.
    pub(super) fn usage(&self) -> Result<Usage> {
        let mut usage = Usage::default();
        for process in self.processes().values() {
            let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
            // The fields after the name, which ends with a bracket: utime and stime are 14 and 15 of all, in hundredths of a second.
            let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
            let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
            usage.cpu += Duration::from_millis(10 * ticks);
            let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
            let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next());
            let kib: u64 = peak.and_then(|kib| kib.parse().ok()).unwrap_or_default();
            usage.memory_mib = usage.memory_mib.max(kib / 1024);
        }
        Ok(usage)
    }

    /// Starts the processes of pods again.
    pub(super) fn restore(&self) {
        self.is_down.store(false, Ordering::Relaxed);
    }

    fn is_down(&self) -> bool {
        self.is_down.load(Ordering::Relaxed)
    }

    fn ready(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.ready.lock().expect("nothing panics while it holds the lock")
    }

    /// What runs for a pod.
    fn program(&self, pod: &Value) -> Option<&Program> {
        let image = text(&pod["spec"]["containers"][0]["image"]).rsplit('/').next()?;
        self.programs.get(image.split([':', '@']).next()?)
    }

    /// Runs the pods until the value is dropped.
    pub(super) async fn run(self) -> Result<()> {
        let mut running: BTreeMap<String, Container> = BTreeMap::new();
        loop {
            let advanced =
                async { self.advance(self.cluster.list("/api/v1/pods").await?, &mut running).await };
            match advanced.await {
                // The API server may restart.
                Err(error) if !error.is::<kube::Error>() => return Err(error),
                _ => {}
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    async fn advance(&self, pods: Vec<Value>, running: &mut BTreeMap<String, Container>) -> Result<()> {
        let pods: BTreeMap<String, Value> = pods
            .into_iter()
            .filter(|pod| self.program(pod).is_some())
            .map(|pod| (text(&pod["metadata"]["uid"]).to_owned(), pod))
            .collect();
        let ended: Vec<String> = running
            .keys()
            .filter(|uid| pods.get(*uid).is_none_or(|pod| !pod["metadata"]["deletionTimestamp"].is_null()))
            .cloned()
            .collect();
        for container in ended.into_iter().filter_map(|uid| running.remove(&uid)) {
            tokio::spawn(self.clone().stop(container));
        }
        for (uid, pod) in pods {
            let has_ended = matches!(text(&pod["status"]["phase"]), "Succeeded" | "Failed");
            if has_ended || text(&pod["status"]["podIP"]).is_empty() {
                continue;
            }
            if let Some(container) = running.get_mut(&uid) {
                let has_ended = self.advance_container(container).await?;
                if has_ended {
                    running.remove(&uid);
                }
            } else if pod["metadata"]["deletionTimestamp"].is_null() && !self.is_down() {
                self.hold(&pod, &[FINALIZER]).await?;
                running.insert(uid, self.start(pod).await?);
            }
        }
        Ok(())
    }

    /// Ends the process of a pod as a kubelet does. The pod is there until then.
    async fn stop(self, mut container: Container) {
        let before = &container.pod["spec"]["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"];
        sleep(Duration::from_secs(before.as_u64().unwrap_or_default())).await;
        if let Some(id) = container.child.id() {
            signal("TERM", id).await.ok();
        }
        if timeout(Duration::from_secs(30), container.child.wait()).await.is_err() {
            container.child.kill().await.ok();
        }
        self.processes().remove(text(&container.pod["metadata"]["name"]));
        self.ready().remove(text(&container.pod["status"]["podIP"]));
        self.hold(&container.pod, &[]).await.ok();
    }

    /// Sets the finalizers of a pod of a Deployment.
    async fn hold(&self, pod: &Value, finalizers: &[&str]) -> Result<()> {
        if text(&pod["spec"]["restartPolicy"]) == "Never" {
            return Ok(());
        }
        self.cluster.patch(&path(pod), &json!({"metadata": {"finalizers": finalizers}})).await.map(drop)
    }

    /// Returns whether the container has ended for good.
    async fn advance_container(&self, container: &mut Container) -> Result<bool> {
        if self.is_down() {
            container.child.start_kill().ok();
        }
        let pod = &container.pod;
        if let Some(status) = container.child.try_wait()? {
            self.processes().remove(text(&pod["metadata"]["name"]));
            self.ready().remove(text(&pod["status"]["podIP"]));
            if text(&pod["spec"]["restartPolicy"]) == "Never" {
                let phase = if status.success() { "Succeeded" } else { "Failed" };
                self.report(pod, json!({"phase": phase})).await?;
                return Ok(true);
            }
            if !self.is_down() {
                *container = self.start(container.pod.clone()).await?;
            }
        }
        self.mount_secrets(container).await.ok();
        let pod = &container.pod;
        let probe = &pod["spec"]["containers"][0]["readinessProbe"]["httpGet"];
        if !probe.is_null() {
            let is_ready = self.probe(pod, probe).await == 200;
            let address = text(&pod["status"]["podIP"]);
            if is_ready {
                self.ready().insert(address.to_owned());
            } else {
                self.ready().remove(address);
            }
            if container.is_ready != Some(is_ready) {
                let now = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second())?.to_string();
                let ready = if is_ready { "True" } else { "False" };
                let conditions: Vec<Value> = ["Initialized", "PodScheduled", "ContainersReady", "Ready"]
                    .into_iter()
                    .map(|of| {
                        let status = if of.contains("Ready") { ready } else { "True" };
                        json!({"type": of, "status": status, "lastTransitionTime": now})
                    })
                    .collect();
                self.report(pod, json!({"phase": "Running", "conditions": conditions})).await?;
                container.is_ready = Some(is_ready);
            }
        }
        Ok(false)
    }

    /// The pod may be gone.
    async fn report(&self, pod: &Value, status: Value) -> Result<()> {
        let path = format!("{}/status", path(pod));
        self.cluster.patch(&path, &json!({"status": status})).await.ok();
        Ok(())
    }

    /// The status of the answer to a probe; 0 without an answer.
    async fn probe(&self, pod: &Value, probe: &Value) -> u16 {
        let ports = pod["spec"]["containers"][0]["ports"].as_array();
        let port = ports.into_iter().flatten().find(|port| port["name"] == probe["port"]);
        let port = port.map_or(&probe["port"], |port| &port["containerPort"]).as_u64().unwrap_or_default();
        let Some(address) = self.address(text(&pod["status"]["podIP"])) else { return 0 };
        let ask = async {
            let mut stream = TcpStream::connect(format!("{address}:{port}")).await?;
            let request =
                format!("GET {} HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n", text(&probe["path"]));
            stream.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            Ok::<_, std::io::Error>(answer)
        };
        let answer = timeout(Duration::from_secs(1), ask).await.ok().and_then(Result::ok).unwrap_or_default();
        answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default()
    }
}

fn path(pod: &Value) -> String {
    let meta = &pod["metadata"];
    format!("/api/v1/namespaces/{}/pods/{}", text(&meta["namespace"]), text(&meta["name"]))
}
