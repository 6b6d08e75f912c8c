//! The objects of `install.yaml`, by kubectl: they are installed and used, applied again while the replicas are replaced, and removed.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use tokio::process::Command;

use super::release::{REPLICAS, Release};
use super::{PODS, Progress};

/// The namespace of the objects.
const NAMESPACE: &str = "muster-system";

/// Runs the checks.
pub(super) async fn run(release: &Release, manifest: &Path, done: &Progress) -> Result<()> {
    let release = Release { namespace: NAMESPACE.into(), ..release.clone() };
    release.apply(manifest).await?;
    release.ready(REPLICAS).await?;
    release.dispatches("from-the-manifest").await?;
    done.say("a gang runs under what kubectl has installed");
    release.is_replaced(manifest).await?;
    done.say("the manifest is applied again, and the replicas are replaced");
    release.is_removed(manifest).await?;
    done.say("nothing of the manifest is left, and pods run on");
    Ok(())
}

impl Release {
    async fn apply(&self, manifest: &Path) -> Result<()> {
        self.command(
            "kubectl",
            ["apply".as_ref(), "--server-side".as_ref(), "-f".as_ref(), manifest.as_os_str()],
        )
        .await
    }

    async fn is_replaced(&self, manifest: &Path) -> Result<()> {
        let before: BTreeSet<_> = self.ready(REPLICAS).await?.into_iter().collect();
        self.apply(manifest).await?;
        let restart = ["rollout", "restart", "deployment/muster", "--namespace", NAMESPACE];
        self.command("kubectl", restart.map(OsStr::new)).await?;
        self.cluster
            .until("replaced replicas", async || {
                let now: BTreeSet<_> = self.ready(REPLICAS).await?.into_iter().collect();
                Ok(now.is_disjoint(&before).then_some(()))
            })
            .await?;
        self.dispatches("under-new-replicas").await
    }

    /// With the steps of `docs/install.md`.
    async fn is_removed(&self, manifest: &Path) -> Result<()> {
        let pods = self.cluster.list(PODS).await?.len();
        self.command(&self.options.program, ["uninstall".as_ref()]).await?;
        self.command("kubectl", ["delete".as_ref(), "-f".as_ref(), manifest.as_os_str()]).await?;
        ensure!(self.pods().await?.is_empty(), "replicas are left");
        self.nothing_is_registered().await?;
        ensure!(self.cluster.list(PODS).await?.len() == pods, "pods of workloads were touched");
        Ok(())
    }

    /// Runs a program as the admin of the cluster.
    async fn command<const N: usize>(
        &self,
        program: impl AsRef<OsStr>,
        arguments: [&OsStr; N],
    ) -> Result<()> {
        let program = program.as_ref();
        let mut line = Command::new(program);
        line.args(arguments).env("KUBECONFIG", &self.options.kubeconfig).kill_on_drop(true);
        let named = program.display();
        let output = line.output().await.with_context(|| format!("cannot start {named}"))?;
        ensure!(
            output.status.success(),
            "{named} {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }
}
