//! The controller as a separate process: `muster controller --kubeconfig FILE`.

use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, ensure};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::Client;
use tokio::process::{Child, Command};
use tokio::sync::Mutex;

use crate::environment::{Controller, Flags, LeaderElection, Review};
use crate::proxy::Proxy;

/// A controller process with its program and flags. The process is killed on drop.
pub struct Process {
    program: PathBuf,
    flags: Flags,
    proxy: Proxy,
    kubeconfig: PathBuf,
    /// Kueue's configuration, for a controller that admits Workloads.
    configuration: PathBuf,
    log: PathBuf,
    /// The number of controllers that write to the same log.
    count: Arc<AtomicUsize>,
    child: Mutex<Option<Child>>,
}

impl Process {
    /// A controller for the cluster of a client. Its output is appended to `log`; its kubeconfig is written to the same folder.
    pub async fn new(program: PathBuf, client: Client, log: PathBuf) -> Result<Self> {
        Self::connect(program, Proxy::new(client), log, Flags::default(), Arc::default()).await
    }

    async fn connect(
        program: PathBuf,
        proxy: Proxy,
        log: PathBuf,
        flags: Flags,
        count: Arc<AtomicUsize>,
    ) -> Result<Self> {
        let number = count.fetch_add(1, Ordering::Relaxed);
        let kubeconfig = log.with_extension(format!("{number}.kubeconfig"));
        std::fs::write(&kubeconfig, proxy.listen().await?)
            .with_context(|| format!("cannot write {}", kubeconfig.display()))?;
        let configuration = log.with_extension("kueue.yaml");
        if flags.queues {
            std::fs::write(&configuration, CONFIGURATION)
                .with_context(|| format!("cannot write {}", configuration.display()))?;
        }
        let child = Mutex::default();
        Ok(Self { program, flags, proxy, kubeconfig, configuration, log, count, child })
    }

    /// The id of the process while it runs.
    pub async fn id(&self) -> Option<u32> {
        self.child.lock().await.as_ref().and_then(Child::id)
    }

    fn spawn(&self) -> Result<Child> {
        let log = || File::options().create(true).append(true).open(&self.log);
        let log = log().and_then(|log| Ok((log.try_clone()?, log)));
        let (out, err) = log.with_context(|| format!("cannot write {}", self.log.display()))?;
        Command::new(&self.program)
            .arg("controller")
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(arguments(self.flags))
            .args(self.queue_arguments())
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}: build it, or set --muster", self.program.display()))
    }

    fn queue_arguments(&self) -> Vec<String> {
        let configuration = || format!("--config={}", self.configuration.display());
        if self.flags.queues { vec![format!("--parts={PARTS}"), configuration()] } else { Vec::new() }
    }
}

/// What a controller with queues does.
const PARTS: &str =
    "appwrappers,core,scheduler,provisioning,job=batch/job,job=ray.io/rayjob,job=ray.io/raycluster";

/// Kueue's configuration without servers, so that several controllers can run beside each other.
const CONFIGURATION: &str = "\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
health: {healthProbeBindAddress: '0'}
metrics: {bindAddress: '0'}
leaderElection: {leaderElect: false}
";

fn arguments(flags: Flags) -> Vec<String> {
    // The arguments for queues have a file, so they are not here.
    let Flags { leader_election, preemption, quota, queues: _, review } = flags;
    let election: &[&str] = match leader_election {
        // A killed controller does not release its lease, so its successor would wait for the lease to expire.
        LeaderElection::Disabled => &["--leader-elect=false"],
        LeaderElection::Enabled => &[
            "--leader-elect-lease-duration=6s",
            "--leader-elect-renew-deadline=4s",
            "--leader-elect-retry-period=1s",
        ],
    };
    let mut arguments: Vec<String> = election.iter().map(ToString::to_string).collect();
    arguments.extend([format!("--preemption={preemption}"), format!("--quota={quota}")]);
    arguments.extend(review.iter().flat_map(review_arguments));
    arguments
}

fn review_arguments(review: &Review) -> [String; 5] {
    let Review { port, service_port, certificate_life } = review;
    [
        "--authorization=webhook".to_owned(),
        "--endpoint-host=localhost".to_owned(),
        format!("--endpoint=127.0.0.1:{port}"),
        format!("--webhook-port={service_port}"),
        format!("--certificate-life={}s", certificate_life.as_secs()),
    ]
}

impl Controller for Process {
    fn start(&self) -> BoxFuture<'_, Result<()>> {
        async move {
            let mut child = self.child.lock().await;
            if let Some(running) = child.as_mut()
                && running.try_wait()?.is_none()
            {
                return Ok(());
            }
            *child = Some(self.spawn()?);
            Ok(())
        }
        .boxed()
    }

    fn kill(&self) -> BoxFuture<'_, Result<()>> {
        async move {
            if let Some(mut child) = self.child.lock().await.take() {
                child.kill().await.context("cannot kill the controller")?;
            }
            Ok(())
        }
        .boxed()
    }

    fn terminate(&self) -> BoxFuture<'_, Result<()>> {
        async move {
            let Some(mut child) = self.child.lock().await.take() else { return Ok(()) };
            let id = child.id().context("the controller has already exited")?;
            signal("TERM", id).await?;
            let status = child.wait().await?;
            ensure!(status.success(), "the controller exited with {status} after SIGTERM");
            Ok(())
        }
        .boxed()
    }

    fn is_running(&self) -> BoxFuture<'_, Result<bool>> {
        async move {
            match self.child.lock().await.as_mut() {
                Some(child) => Ok(child.try_wait()?.is_none()),
                None => Ok(false),
            }
        }
        .boxed()
    }

    fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    fn replica(&self, flags: Flags) -> BoxFuture<'_, Result<Box<dyn Controller>>> {
        async move {
            let (program, proxy, log) = (self.program.clone(), self.proxy.replica(), self.log.clone());
            let other = Self::connect(program, proxy, log, flags, self.count.clone()).await?;
            Ok(Box::new(other) as Box<dyn Controller>)
        }
        .boxed()
    }
}

/// Sends a signal, such as `TERM`, to one process.
pub(crate) async fn signal(name: &str, process: u32) -> Result<()> {
    let sent = Command::new("kill").arg(format!("-{name}")).arg(process.to_string()).status().await?;
    ensure!(sent.success(), "cannot send signal {name} to process {process}");
    Ok(())
}
