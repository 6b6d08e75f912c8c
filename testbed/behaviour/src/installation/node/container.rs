//! The process of a pod, and what it finds in its file system: its volumes, and the account with its token.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use super::Node;
use crate::installation::cluster::text;

/// The folder with the token of the account in a container.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// A running container.
pub(super) struct Container {
    pub(super) pod: Value,
    pub(super) child: Child,
    pub(super) is_ready: Option<bool>,
    secrets: Vec<SecretFolder>,
}

/// The request for a Secret, the folder of its files, and their version.
type SecretFolder = (String, PathBuf, Value);

impl Node {
    /// Starts the process of a pod.
    pub(super) async fn start(&self, pod: Value) -> Result<Container> {
        let name = text(&pod["metadata"]["name"]);
        let program = self.program(&pod).context("there is no program for a pod")?;
        let address = self.address(text(&pod["status"]["podIP"])).context("a pod has no address")?;
        let spec = &pod["spec"];
        let user = &spec["securityContext"];
        ensure!(
            user["runAsUser"] == 65532
                || text(&pod["metadata"]["labels"]["muster.dev/controller"]).is_empty(),
            "pod {name} has a user with rights"
        );
        let dir = self.dir.join(name);
        let root = dir.join("root");
        self.mount_account(&pod, &root).await?;
        let (mounts, secrets) = self.mount(&pod, &root, &address).await?;
        let inside = |path: String| {
            let path = path.replace("0.0.0.0", &address);
            let mount = mounts.iter().filter(|_| !program.has_root).find(|mount| path.contains(*mount));
            mount.map_or_else(
                || path.clone(),
                |mount| path.replace(mount, &at(&root, mount).display().to_string()),
            )
        };
        let container = &spec["containers"][0];
        let arguments =
            container["args"].as_array().into_iter().flatten().map(|argument| text(argument).to_owned());
        let log = File::options().create(true).append(true).open(dir.join("log"))?;
        let mut command = if program.has_root {
            let inner = root.join("program");
            if !inner.exists() {
                std::fs::hard_link(&program.path, &inner)
                    .or_else(|_| std::fs::copy(&program.path, &inner).map(drop))?;
            }
            let mut command = Command::new("chroot");
            command.arg(&root).arg("/program").env_clear();
            command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").envs(self.server()?);
            command
        } else {
            let mut command = Command::new(&program.path);
            command.env_clear().env("KUBECONFIG", at(&root, ACCOUNT).join("kubeconfig")).current_dir("/");
            command
        };
        command
            .args(arguments.chain(program.arguments.iter().cloned()).map(inside))
            .env("HOSTNAME", name)
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
        let child = command.spawn().with_context(|| format!("cannot start {}", program.path.display()))?;
        self.processes().extend(child.id().map(|id| (name.to_owned(), id)));
        let mut container = Container { pod, child, is_ready: None, secrets };
        self.mount_secrets(&mut container).await?;
        Ok(container)
    }

    /// The volumes of a pod below a folder. Returns their paths in the container, and the Secrets among them.
    async fn mount(
        &self,
        pod: &Value,
        root: &Path,
        address: &str,
    ) -> Result<(Vec<String>, Vec<SecretFolder>)> {
        let (mut mounts, mut secrets) = (vec![ACCOUNT.to_owned()], Vec::new());
        let namespace = text(&pod["metadata"]["namespace"]);
        let spec = &pod["spec"];
        for mount in spec["containers"][0]["volumeMounts"].as_array().into_iter().flatten() {
            let path = text(&mount["mountPath"]);
            let volumes = spec["volumes"].as_array();
            let volume = volumes.into_iter().flatten().find(|volume| volume["name"] == mount["name"]);
            let Some(volume) = volume.filter(|_| path != ACCOUNT) else { continue };
            let target = at(root, path);
            if let Some(name) = volume["configMap"]["name"].as_str() {
                let request = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
                let found = self
                    .cluster
                    .get(&request)
                    .await?
                    .with_context(|| format!("there is no ConfigMap {name}"))?;
                for (file, content) in found["data"].as_object().into_iter().flatten() {
                    let content = with_address(text(content), address)?;
                    match mount["subPath"].as_str() {
                        Some(part) if part == file => write(&target, content.as_bytes())?,
                        Some(_) => {}
                        None => write(&target.join(file), content.as_bytes())?,
                    }
                }
            } else {
                std::fs::create_dir_all(&target)?;
                if let Some(name) = volume["secret"]["secretName"].as_str() {
                    let request = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
                    secrets.push((request, target, Value::Null));
                }
            }
            mounts.push(path.to_owned());
        }
        Ok((mounts, secrets))
    }

    /// Brings the files of Secrets up to date.
    pub(super) async fn mount_secrets(&self, container: &mut Container) -> Result<()> {
        for (request, folder, version) in &mut container.secrets {
            let Some(secret) = self.cluster.get(request).await? else { continue };
            if secret["metadata"]["resourceVersion"] == *version {
                continue;
            }
            for (file, content) in secret["data"].as_object().into_iter().flatten() {
                write(&folder.join(file), &STANDARD.decode(text(content))?)?;
            }
            *version = secret["metadata"]["resourceVersion"].clone();
        }
        Ok(())
    }

    /// The service account of a pod, as in a cluster, and a kubeconfig for programs without a root folder.
    async fn mount_account(&self, pod: &Value, root: &Path) -> Result<()> {
        let account = text(&pod["spec"]["serviceAccountName"]);
        let namespace = text(&pod["metadata"]["namespace"]);
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"expirationSeconds": 3600}});
        let token = &self.cluster.create(&path, &request).await?["status"]["token"];
        let cluster = self.api_server()?;
        let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "pod",
            "clusters": [{"name": "pod", "cluster": cluster}],
            "users": [{"name": "pod", "user": {"token": token}}],
            "contexts": [{"name": "pod", "context": {"cluster": "pod", "user": "pod"}}]});
        let authority = cluster.certificate_authority_data.as_deref().unwrap_or_default();
        let folder = at(root, ACCOUNT);
        write(&folder.join("kubeconfig"), kubeconfig.to_string().as_bytes())?;
        write(&folder.join("ca.crt"), &STANDARD.decode(authority)?)?;
        write(&folder.join("token"), text(token).as_bytes())?;
        write(&folder.join("namespace"), namespace.as_bytes())
    }

    fn api_server(&self) -> Result<&kube::config::Cluster> {
        let cluster = self.kubeconfig.clusters.first().and_then(|named| named.cluster.as_ref());
        cluster.context("the kubeconfig names no cluster")
    }

    /// The variables that lead a pod to the API server.
    fn server(&self) -> Result<[(&'static str, String); 2]> {
        let server = self.api_server()?.server.as_deref().unwrap_or_default();
        let (host, port) =
            server.trim_start_matches("https://").rsplit_once(':').context("the server has no port")?;
        Ok([("KUBERNETES_SERVICE_HOST", host.to_owned()), ("KUBERNETES_SERVICE_PORT", port.to_owned())])
    }
}

/// A path of a container.
fn at(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// Replaces a file, so that nobody reads a part of it.
fn write(file: &Path, content: &[u8]) -> Result<()> {
    let folder = file.parent().context("a file has no folder")?;
    std::fs::create_dir_all(folder)?;
    let new = folder.join(".new");
    std::fs::write(&new, content)?;
    std::fs::rename(new, file).with_context(|| format!("cannot write {}", file.display()))
}

/// A configuration whose servers listen on the address of a process alone.
fn with_address(content: &str, address: &str) -> Result<String> {
    let mut content: Value = serde_saphyr::from_str(content).context("the configuration is no YAML")?;
    if content["webhook"].is_object() {
        content["webhook"]["host"] = address.into();
    }
    Ok(content.to_string().replace("0.0.0.0", address))
}
