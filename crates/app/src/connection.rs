//! The connection to a cluster.

use std::path::PathBuf;

use anyhow::{Context, Result};
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
        let client = Client::try_from(config).context("cannot create a client from the kubeconfig")?;
        let client = meter.client(&client);
        let version = client.apiserver_version().await.context("the cluster does not answer")?;
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
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        match (&self.kubeconfig, &self.context) {
            (None, None) => kube::Config::infer().await.context("no cluster is configured: set --kubeconfig"),
            (None, Some(_)) => {
                kube::Config::from_kubeconfig(&options).await.context("cannot use the kubeconfig")
            }
            (Some(file), _) => {
                let kubeconfig = Kubeconfig::read_from(file)
                    .with_context(|| format!("cannot read the kubeconfig {}", file.display()))?;
                kube::Config::from_custom_kubeconfig(kubeconfig, &options)
                    .await
                    .with_context(|| format!("cannot use the kubeconfig {}", file.display()))
            }
        }
    }
}
