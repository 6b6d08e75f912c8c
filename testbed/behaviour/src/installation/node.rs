//! The part of a kubelet for the pods of a release: the nodes are simulated, so nothing runs on them. Each pod runs as a process
//! with the program of the image, the arguments and variables of its container and the token of its service account. Its
//! probes are asked, and what they say is the readiness of the pod.
//!
//! The address of a pod, 10.244.x.y, is 127.N.x.y for its process.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::config::Kubeconfig;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use super::cluster::{Cluster, text};
use crate::process::signal;

/// A pod is there as long as its process.
const FINALIZER: &str = "behaviour.muster.dev/process";

/// Where processes run.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) cluster: Cluster,
    /// The namespace whose pods run.
    pub(super) namespace: String,
    /// The program of the image.
    pub(super) program: PathBuf,
    /// Folder of kubeconfigs, configurations and logs.
    pub(super) dir: PathBuf,
    /// The kubeconfig of the cluster.
    pub(super) kubeconfig: Kubeconfig,
    /// The second number of the addresses of processes.
    pub(super) network: u8,
}

/// A running container.
struct Container {
    pod: Value,
    child: Child,
    restarts: u32,
    is_ready: Option<bool>,
}

impl Node {
    /// The address of the process of a pod with an address.
    pub(super) fn address(&self, pod_ip: &str) -> Option<String> {
        let (_, host) = pod_ip.split_once('.')?.1.split_once('.')?;
        Some(format!("127.{}.{host}", self.network))
    }

    /// Runs the pods until the value is dropped.
    pub(super) async fn run(self) -> Result<()> {
        let mut running: BTreeMap<String, Container> = BTreeMap::new();
        loop {
            let pods = self.cluster.list(&format!("/api/v1/namespaces/{}/pods", self.namespace)).await;
            // The API server may restart.
            if let Ok(pods) = pods {
                self.advance(pods, &mut running).await?;
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    async fn advance(&self, pods: Vec<Value>, running: &mut BTreeMap<String, Container>) -> Result<()> {
        let pods: BTreeMap<String, Value> =
            pods.into_iter().map(|pod| (text(&pod["metadata"]["uid"]).to_owned(), pod)).collect();
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
            } else if pod["metadata"]["deletionTimestamp"].is_null() {
                self.hold(&pod, &[FINALIZER]).await?;
                let child = self.start(&pod).await?;
                running.insert(uid, Container { pod, child, restarts: 0, is_ready: None });
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
        self.hold(&container.pod, &[]).await.ok();
    }

    /// Sets the finalizers of a pod of the Deployment.
    async fn hold(&self, pod: &Value, finalizers: &[&str]) -> Result<()> {
        if text(&pod["spec"]["restartPolicy"]) == "Never" {
            return Ok(());
        }
        let path = format!("/api/v1/namespaces/{}/pods/{}", self.namespace, text(&pod["metadata"]["name"]));
        self.cluster.patch(&path, &json!({"metadata": {"finalizers": finalizers}})).await.map(drop)
    }

    /// Returns whether the container has ended for good.
    async fn advance_container(&self, container: &mut Container) -> Result<bool> {
        let pod = &container.pod;
        if let Some(status) = container.child.try_wait()? {
            if text(&pod["spec"]["restartPolicy"]) == "Never" {
                let phase = if status.success() { "Succeeded" } else { "Failed" };
                self.report(pod, json!({"phase": phase})).await?;
                return Ok(true);
            }
            container.restarts += 1;
            container.child = self.start(&container.pod).await?;
        }
        let pod = &container.pod;
        let probe = &pod["spec"]["containers"][0]["readinessProbe"]["httpGet"];
        if !probe.is_null() {
            let is_ready = self.probe(pod, probe).await == 200;
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
        let name = text(&pod["metadata"]["name"]);
        let path = format!("/api/v1/namespaces/{}/pods/{name}/status", self.namespace);
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

    /// Starts the process of a pod.
    async fn start(&self, pod: &Value) -> Result<Child> {
        let name = text(&pod["metadata"]["name"]);
        let address = self.address(text(&pod["status"]["podIP"])).context("a pod has no address")?;
        let spec = &pod["spec"];
        ensure!(spec["securityContext"]["runAsUser"] == 65532, "pod {name} has a user with rights");
        let dir = self.dir.join(name);
        std::fs::create_dir_all(&dir)?;
        let kubeconfig = dir.join("kubeconfig");
        std::fs::write(&kubeconfig, self.kubeconfig(text(&spec["serviceAccountName"])).await?)?;
        let folders = self.mount(spec, &dir, &address).await?;
        let container = &spec["containers"][0];
        let arguments = container["args"].as_array().into_iter().flatten().map(text).map(|argument| {
            let argument = argument.replace("0.0.0.0", &address);
            folders
                .iter()
                .fold(argument, |argument, (from, to)| argument.replace(from, &to.display().to_string()))
        });
        let log = File::options().create(true).append(true).open(dir.join("log"))?;
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .env_clear()
            .env("KUBECONFIG", &kubeconfig)
            .env("HOSTNAME", name)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true);
        for variable in container["env"].as_array().into_iter().flatten() {
            let value = match text(&variable["valueFrom"]["fieldRef"]["fieldPath"]) {
                "status.podIP" => text(&pod["status"]["podIP"]),
                "metadata.namespace" => text(&pod["metadata"]["namespace"]),
                _ => text(&variable["value"]),
            };
            command.env(text(&variable["name"]), value);
        }
        command.spawn().with_context(|| format!("cannot start {}", self.program.display()))
    }

    /// The `ConfigMap`s of a pod as folders, with addresses of the process. Returns where they are.
    async fn mount(&self, spec: &Value, dir: &Path, address: &str) -> Result<Vec<(String, PathBuf)>> {
        let mut folders = Vec::new();
        for mount in spec["containers"][0]["volumeMounts"].as_array().into_iter().flatten() {
            let volume = spec["volumes"]
                .as_array()
                .into_iter()
                .flatten()
                .find(|volume| volume["name"] == mount["name"]);
            let Some(config) = volume.and_then(|volume| volume["configMap"]["name"].as_str()) else {
                continue;
            };
            let path = format!("/api/v1/namespaces/{}/configmaps/{config}", self.namespace);
            let found =
                self.cluster.get(&path).await?.with_context(|| format!("there is no ConfigMap {config}"))?;
            let folder = dir.join(text(&mount["name"]));
            std::fs::create_dir_all(&folder)?;
            for (file, content) in found["data"].as_object().into_iter().flatten() {
                let mut content: Value =
                    serde_json::from_str(text(content)).context("the configuration is no JSON")?;
                content["webhook"]["host"] = address.into();
                std::fs::write(folder.join(file), content.to_string())?;
            }
            folders.push((text(&mount["mountPath"]).to_owned(), folder));
        }
        Ok(folders)
    }

    /// A kubeconfig with a token of a service account.
    async fn kubeconfig(&self, account: &str) -> Result<String> {
        let path = format!("/api/v1/namespaces/{}/serviceaccounts/{account}/token", self.namespace);
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"expirationSeconds": 3600}});
        let token = self.cluster.create(&path, &request).await?;
        let cluster = self.kubeconfig.clusters.first().and_then(|named| named.cluster.clone());
        let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "pod",
            "clusters": [{"name": "pod", "cluster": cluster.context("the kubeconfig names no cluster")?}],
            "users": [{"name": "pod", "user": {"token": token["status"]["token"]}}],
            "contexts": [{"name": "pod", "context": {"cluster": "pod", "user": "pod"}}]});
        Ok(kubeconfig.to_string())
    }
}
