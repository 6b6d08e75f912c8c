//! A worker of a hub: a simulated cluster on an address of its own.

use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, Result};
use api::kueue::jobs::JobKind;
use apiserver::{ApiServer, Service};
use jiff::Timestamp;
use sandbox::NodeGroup;
use tokio::sync::watch;

use super::endpoint::{Bound, Endpoint, bind};
use super::member::{Member, Shape};
use super::{Args, ended_early, hub, lead, stopped_by};
use crate::embedded_kueue::{self, Queues};

/// The memory of a node if its shape names none.
const MEMORY: &str = "64Gi";
/// The longest name.
const NAME_MAX: usize = 40;

/// A worker, as it is named on the command line.
#[derive(Debug, Clone)]
pub(crate) struct ClusterShape {
    /// Its name at the hub.
    pub(super) name: String,
    /// Its nodes.
    pub(super) nodes: NodeGroup,
}

impl FromStr for ClusterShape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, shape) = text.split_once(',').unwrap_or((text, ""));
        let is_inner = |char: char| char.is_ascii_lowercase() || char.is_ascii_digit() || char == '-';
        let is_name = !name.is_empty()
            && name.len() <= NAME_MAX
            && name.chars().all(is_inner)
            && !name.starts_with('-')
            && !name.ends_with('-');
        if !is_name || name == "kubeconfig" {
            return Err(format!(
                "{name:?} is no name of a cluster: write NAME,count=N,RESOURCE=QUANTITY,… with a name of lower-case letters, digits and hyphens"
            ));
        }
        let mut shape = shape.to_owned();
        for (key, value) in [("memory", MEMORY), ("cpu", "16"), ("name", name)] {
            if !has_key(&shape, key) {
                shape = format!("{shape},{key}={value}");
            }
        }
        let nodes = shape.parse().map_err(|error: sandbox::NodeError| error.to_string())?;
        Ok(Self { name: name.to_owned(), nodes })
    }
}

fn has_key(shape: &str, key: &str) -> bool {
    shape.split(',').any(|part| part.trim().split('=').next() == Some(key))
}

/// A worker that does not run yet.
pub(super) struct Worker {
    pub(super) endpoint: Endpoint,
    member: Member,
    service: Service,
    bound: Bound,
}

impl Worker {
    /// Starts it. No two clusters have an object of the same uid: each has a seed of its own.
    pub(super) async fn start(
        shape: &ClusterShape,
        seed: u64,
        args: &Args,
        queues: &Queues,
        kinds: &[&'static JobKind],
    ) -> Result<Self> {
        let address = SocketAddr::new(args.listen.ip(), 0);
        let bound = bind(address, "API server of a worker", "--listen").await?;
        let endpoint = Endpoint::new(args.tls, bound.address)?;
        let server = ApiServer::new(apiserver::Config {
            seed,
            auth: endpoint.auth.clone(),
            counts_quotas: true,
            ..apiserver::Config::default()
        });
        let service = Service::new(server, Arc::new(Timestamp::now));
        let duties = embedded_kueue::duties(queues)?;
        let nodes = shape.nodes.manifests();
        let shape = Shape { nodes, pools: Vec::new(), kinds: kinds.to_vec(), is_hub: false };
        let quota = hub::quota(&shape.nodes);
        let member = Member::start(&service, args, shape, queues, duties).await?;
        hub::queue(&member.client, &quota, None).await.context("cannot create the queue of a worker")?;
        Ok(Self { endpoint, member, service, bound })
    }

    /// Serves and controls the cluster until the sender of `stopping` is dropped.
    pub(super) async fn run(self, stopping: watch::Receiver<()>) -> Result<()> {
        let Self { endpoint, member: Member { client, controller, sandbox }, service, bound } = self;
        let stopped = || stopped_by(stopping.clone());
        let mut controlling = tokio::spawn(lead(client, controller, None, stopped()));
        let mut serving = tokio::spawn(apiserver::serve(bound.listener, service, endpoint.tls, stopped()));
        let result = tokio::select! {
            biased;
            () = stopped() => Ok(()),
            ended = &mut controlling => Err(ended_early("controller of a worker", ended)),
            ended = &mut serving => Err(ended_early("API server of a worker", ended)),
        };
        sandbox.shutdown().await;
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_has_a_name_and_nodes() {
        let east: ClusterShape = "east,count=4,cpu=16,nvidia.com/gpu=8".parse().unwrap();
        assert_eq!((east.name.as_str(), east.nodes.names().len()), ("east", 4));
        assert_eq!(east.nodes.names()[0], "east-0");
        let quota = hub::quota(&east.nodes.manifests());
        assert_eq!(quota["nvidia.com/gpu"], "32");
        assert_eq!(quota["cpu"], "64");
        for (text, why) in [
            ("East,cpu=1", "is no name of a cluster"),
            ("", "is no name of a cluster"),
            ("a/b", "is no name of a cluster"),
            ("east,gpus=1", "is unknown"),
        ] {
            assert!(text.parse::<ClusterShape>().unwrap_err().contains(why), "{text}");
        }
    }
}
