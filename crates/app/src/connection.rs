//! The connection to a cluster.

use std::env;
use std::error::Error;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
pub(crate) use controllers::api_resource as resource;
use controllers::{Config, Kueue, Meter, Observer};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};

use crate::election::duration;

/// Flags that select a cluster.
#[derive(clap::Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct Connection {
    /// Kubeconfig. Default: that of kubectl, or else the service account of the pod.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig. Default: its current context.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Act as this user. Needs the right to impersonate it.
    #[arg(long = "as", value_name = "USER")]
    user: Option<String>,
    /// Act as a member of this group; may be repeated. Needs --as.
    #[arg(long = "as-group", value_name = "GROUP", requires = "user")]
    groups: Vec<String>,
    /// How long to wait for the answer to a request, such as 10s. 0: for ever.
    #[arg(long, value_name = "DURATION", value_parser = timeout, default_value = "0")]
    request_timeout: Duration,
}

/// A duration; a number without a unit is of seconds, as in kubectl.
fn timeout(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) => Ok(Duration::from_secs(seconds)),
        Err(_) => duration(text),
    }
}

/// An object; `None` if it does not exist, or if the cluster does not serve its kind. Of a group that is not served, the API server says
/// so by a text, which [`Api::get_opt`] takes for a failure.
pub(crate) async fn read_one(api: &Api<DynamicObject>, name: &str) -> kube::Result<Option<DynamicObject>> {
    match api.get_opt(name).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        answer => answer,
    }
}

/// The objects of a resource in a namespace; `None`: those of all namespaces, or of a resource without namespaces.
pub(crate) fn objects(
    client: &Client,
    resource: &ApiResource,
    namespace: Option<&str>,
) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
        None => Api::all_with(client.clone(), resource),
    }
}

impl Connection {
    /// The cluster of a kubeconfig. A request may take half a minute.
    pub(crate) fn of(kubeconfig: Option<PathBuf>, context: Option<String>) -> Self {
        let request_timeout = Duration::from_secs(30);
        Self { kubeconfig, context, user: None, groups: Vec::new(), request_timeout }
    }

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
        let published = controllers::published_config(&client).await.map_err(unreadable)?;
        let mut config = published.unwrap_or_else(|| {
            eprintln!("muster: no controller has published its configuration in this cluster; assuming the default, without --preemption");
            Config::default()
        });
        // Who may not read the nodes is told so at once.
        let nodes = Api::<DynamicObject>::all_with(client.clone(), &resource("v1", "Node", "nodes"));
        let first = nodes.list(&ListParams::default().limit(1)).await;
        first.map_err(|error| unreadable(error.into()))?;
        if wants_workloads {
            config.kueue = Kueue::Scheduler;
        }
        Observer::of(client, config).await.context("cannot read the cluster")
    }

    /// The configuration of a client.
    pub(crate) async fn config(&self) -> Result<kube::Config> {
        let mut config = self.found().await?;
        if let Some(user) = &self.user {
            config.auth_info.impersonate = Some(user.clone());
            config.auth_info.impersonate_groups =
                Some(self.groups.clone()).filter(|groups| !groups.is_empty());
        }
        if !self.request_timeout.is_zero() {
            config.connect_timeout = Some(self.request_timeout);
            config.read_timeout = Some(self.request_timeout);
            config.reset_reader_on_write = true;
        }
        Ok(config)
    }

    fn kubeconfig(&self) -> Result<Option<Kubeconfig>> {
        match &self.kubeconfig {
            Some(file) => Ok(Some(read(file)?)),
            None => default_kubeconfig(),
        }
    }

    /// The contexts of the kubeconfig.
    pub(crate) fn contexts(&self) -> Result<Vec<String>> {
        let contexts = self.kubeconfig()?.map(|kubeconfig| kubeconfig.contexts);
        Ok(contexts.into_iter().flatten().map(|context| context.name).collect())
    }

    /// The configuration that the kubeconfig or the pod has.
    async fn found(&self) -> Result<kube::Config> {
        let Some(kubeconfig) = self.kubeconfig()? else {
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

/// Names in one line.
pub(crate) fn listed(names: &[&str]) -> String {
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

/// Reads one file.
pub(crate) fn read(file: &Path) -> Result<Kubeconfig> {
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

/// Why the whole cluster cannot be read, and with which right it can, or need not be.
fn unreadable(error: controllers::Error) -> anyhow::Error {
    if let controllers::Error::NotAllowed(forbidden) = &error {
        return anyhow!(
            "{}. To read the whole cluster, a user may list and watch nodes, pods and the queued kinds in all namespaces, as with \
             cluster-admin. Where a controller serves its endpoint (muster controller --endpoint), the role view is enough for why, \
             plan and get gangs",
            forbidden.missing()
        );
    }
    anyhow::Error::from(error).context("cannot read the configuration of the controller")
}

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
