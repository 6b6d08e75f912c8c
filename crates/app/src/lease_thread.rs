//! The thread that keeps the lease. It has its own runtime and its own connection, so that a busy controller or a slow
//! request cannot delay a renewal.

use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use anyhow::{Context, Result};
use controllers::{LeaderElectionConfig, Leadership, LeaseKeeper};
use kube::{Client, Config};
use tokio::runtime;

/// The running thread.
pub(crate) struct LeaseThread {
    leadership: Leadership,
    thread: JoinHandle<()>,
}

impl LeaseThread {
    /// Starts to acquire the lease.
    pub(crate) fn start(config: Config, election: LeaderElectionConfig) -> Result<Self> {
        let keeper = LeaseKeeper::new(Arc::new(jiff::Timestamp::now), election);
        let leadership = keeper.leadership();
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot create the runtime of the lease")?;
        // The client uses the runtime in which it is created.
        let client = {
            let _in_runtime = runtime.enter();
            Client::try_from(config).context("cannot create a client for the lease")?
        };
        let thread = Builder::new()
            .name("lease".into())
            .spawn(move || {
                runtime.block_on(keeper.run(client));
                // A name lookup may still be blocked.
                runtime.shutdown_background();
            })
            .context("cannot start the thread that keeps the lease")?;
        Ok(Self { leadership, thread })
    }

    /// What this process may do.
    pub(crate) fn leadership(&self) -> &Leadership {
        &self.leadership
    }

    /// Waits until the lease is released. Call it when the leadership has ended.
    pub(crate) async fn end(self) -> Result<()> {
        let ended = tokio::task::spawn_blocking(move || self.thread.join()).await;
        ended.ok().and_then(Result::ok).context("the thread that keeps the lease failed")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

    use std::time::Duration;

    use apiserver::{ApiServer, Service};
    use controllers::Error;
    use k8s_openapi::api::coordination::v1::Lease;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::PostParams;
    use tokio::net::TcpListener;

    use super::*;

    /// Serves the Kubernetes API in a thread until the end of the process. Returns the configuration of a client.
    fn serve() -> Config {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        std::thread::spawn(move || {
            runtime().block_on(async {
                let server = ApiServer::new(apiserver::Config::default());
                let service = Service::new(server, Arc::new(jiff::Timestamp::now));
                let listener = TcpListener::from_std(listener).unwrap();
                apiserver::serve(listener, service, None, std::future::pending()).await.unwrap();
            });
        });
        Config::new(url)
    }

    fn runtime() -> runtime::Runtime {
        runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    fn election(identity: &str) -> LeaderElectionConfig {
        LeaderElectionConfig {
            lease_duration: Duration::from_secs(4),
            renew_deadline: Duration::from_secs(3),
            retry_period: Duration::from_millis(300),
            ..LeaderElectionConfig::new(identity)
        }
    }

    #[test]
    fn the_lease_is_kept_while_the_runtime_of_the_controller_is_blocked() {
        let config = serve();
        runtime().block_on(async {
            let client = Client::try_from(config.clone()).unwrap();
            let lease = LeaseThread::start(config.clone(), election("leader")).unwrap();
            let block_and_write = |client: Client, _| async move {
                let _standby = LeaseThread::start(config, election("standby")).unwrap();
                std::thread::sleep(Duration::from_secs(6));
                let held: Lease = Api::namespaced(client.clone(), "kube-system").get("muster").await.unwrap();
                assert_eq!(held.spec.unwrap().holder_identity.as_deref(), Some("leader"));
                let mut written = ConfigMap::default();
                written.metadata.name = Some("written".into());
                Api::default_namespaced(client).create(&PostParams::default(), &written).await.unwrap();
                Ok::<(), Error>(())
            };
            lease.leadership().lead(&client, std::future::pending(), block_and_write).await.unwrap();
            lease.end().await.unwrap();
        });
    }
}
