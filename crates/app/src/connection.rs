//! The connection to a cluster.

use std::env;
use std::error::Error;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use controllers::{Config, Kueue, Meter, Observer};
use kube::Client;
use kube::api::ApiResource;
use kube::config::{KubeConfigOptions, Kubeconfig};

/// Flags that select a cluster.
#[derive(clap::Args)]
pub(crate) struct Connection {
    /// Kubeconfig. Default: that of kubectl, or else the service account of the pod.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig. Default: its current context.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

/// The resource with these names; `api_version` is `group/version`, or `v1`.
pub(crate) fn resource(api_version: &str, kind: &str, plural: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource {
        group: group.into(),
        version: version.into(),
        api_version: api_version.into(),
        kind: kind.into(),
        plural: plural.into(),
    }
}

impl Connection {
    /// A client of the cluster, and the version of its API server.
    pub(crate) async fn open(&self) -> Result<(Client, String)> {
        Self::open_with(self.config().await?, &Meter::default()).await
    }

    /// The same from the configuration of a client. Its requests are measured.
    pub(crate) async fn open_with(mut config: kube::Config, meter: &Meter) -> Result<(Client, String)> {
        config.default_retry = false; // The client of the meter repeats requests, and counts them.
        let url = config.cluster_url.clone();
        let client = Client::try_from(config).context("cannot create a client from the kubeconfig")?;
        let client = meter.client(&client);
        let version = client.apiserver_version().await.map_err(|error| no_version(url, &error))?;
        Ok((client, version.git_version))
    }

    /// An observer with the published configuration of the controller. It reads all nodes and pods, and Workloads if a
    /// controller has published how it plans them or if they are wanted.
    pub(crate) async fn observe(client: Client, wants_workloads: bool) -> Result<Observer> {
        let published = controllers::published_config(&client).await.context(
            "cannot read the configuration of the controller, and the controller serves no endpoint \
             (`muster controller --endpoint`)",
        )?;
        let mut config = published.unwrap_or_else(|| {
            eprintln!("muster: no controller has published its configuration in this cluster; assuming the default, without --preemption");
            Config::default()
        });
        if wants_workloads {
            config.kueue = Kueue::Scheduler;
        }
        Observer::of(client, config).await.context("cannot read the cluster")
    }

    /// The configuration of a client.
    pub(crate) async fn config(&self) -> Result<kube::Config> {
        let found = match &self.kubeconfig {
            Some(file) => Some(read(file)?),
            None => default_kubeconfig()?,
        };
        let Some(kubeconfig) = found else {
            if let Some(context) = &self.context {
                bail!("there is no kubeconfig, so no context {context}: set --kubeconfig or KUBECONFIG");
            }
            return kube::Config::incluster()
                .map_err(|_| anyhow!("no cluster is configured: set --kubeconfig or KUBECONFIG"));
        };
        let names: Vec<&str> = kubeconfig.contexts.iter().map(|known| known.name.as_str()).collect();
        if let Some(context) = self.context.as_deref().filter(|context| !names.contains(context)) {
            bail!("the kubeconfig has no context {context}; it has {}", listed(&names));
        }
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
        config.context("cannot use the kubeconfig")
    }
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

/// Reads one file.
fn read(file: &Path) -> Result<Kubeconfig> {
    let about = || format!("cannot read the kubeconfig {}", file.display());
    File::open(file).with_context(about)?;
    Kubeconfig::read_from(file).with_context(about)
}

/// The files of `KUBECONFIG` together, or that of the home directory. As in kubectl, those that do not exist are passed over. Of
/// the files of `KUBECONFIG`, one must exist.
fn default_kubeconfig() -> Result<Option<Kubeconfig>> {
    let Some(paths) = env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty()) else {
        let file = env::home_dir().map(|home| home.join(".kube/config"));
        return file.filter(|file| file.exists()).map(|file| read(&file)).transpose();
    };
    let mut merged: Option<Kubeconfig> = None;
    for file in env::split_paths(&paths).filter(|file| file.exists()) {
        let next = read(&file)?;
        merged = Some(match merged {
            Some(before) => before.merge(next).context("cannot merge the files of KUBECONFIG")?,
            None => next,
        });
    }
    if merged.is_none() {
        bail!("KUBECONFIG names {}, which does not exist", paths.to_string_lossy());
    }
    Ok(merged)
}

/// A cluster does not answer.
#[derive(Debug)]
pub(crate) struct Unreachable {
    url: http::Uri,
    cause: String,
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot reach the cluster at {}: {}", self.url, self.cause)
    }
}

impl Error for Unreachable {}

/// Why the version of a cluster is not known.
fn no_version(url: http::Uri, error: &kube::Error) -> anyhow::Error {
    if let kube::Error::Api(status) = error {
        return anyhow!("the cluster at {url} refuses: {}", status.message);
    }
    let mut root: &dyn Error = error;
    while let Some(cause) = root.source() {
        root = cause;
    }
    Unreachable { url, cause: root.to_string() }.into()
}
