//! The controller as a process beside the cluster: `muster controller --kubeconfig FILE`.

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

use crate::environment::{Controller, Manner};
use crate::link::Link;

/// A controller's program, how it is called, and the process while it runs. Ended when this is dropped.
pub struct Process {
    program: PathBuf,
    manner: Manner,
    link: Link,
    kubeconfig: PathBuf,
    log: PathBuf,
    /// How many there are that write to the same log.
    count: Arc<AtomicUsize>,
    child: Mutex<Option<Child>>,
}

impl Process {
    /// The program `muster` for the cluster of a client; what it says goes to the end of a file, beside which lies its kubeconfig.
    pub async fn new(program: PathBuf, client: Client, log: PathBuf) -> Result<Self> {
        Self::connect(program, Link::new(client), log, Manner::Alone, Arc::default()).await
    }

    async fn connect(
        program: PathBuf,
        link: Link,
        log: PathBuf,
        manner: Manner,
        count: Arc<AtomicUsize>,
    ) -> Result<Self> {
        let number = count.fetch_add(1, Ordering::Relaxed);
        let kubeconfig = log.with_extension(format!("{number}.kubeconfig"));
        std::fs::write(&kubeconfig, link.listen().await?)
            .with_context(|| format!("cannot write {}", kubeconfig.display()))?;
        Ok(Self { program, manner, link, kubeconfig, log, count, child: Mutex::default() })
    }

    /// The id of the process while it runs.
    pub async fn id(&self) -> Option<u32> {
        self.child.lock().await.as_ref().and_then(Child::id)
    }

    fn spawn(&self) -> Result<Child> {
        let log = || File::options().create(true).append(true).open(&self.log);
        let log = log().and_then(|log| Ok((log.try_clone()?, log)));
        let (out, err) = log.with_context(|| format!("cannot write {}", self.log.display()))?;
        let flags: &[&str] = match self.manner {
            // Who is killed gives nothing back: its successor would wait until the lease runs out.
            Manner::Alone => &["--leader-elect=false"],
            Manner::Elected => &[
                "--leader-elect-lease-duration=6s",
                "--leader-elect-renew-deadline=4s",
                "--leader-elect-retry-period=1s",
            ],
        };
        Command::new(&self.program)
            .arg("controller")
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(flags)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| {
                format!("cannot start {}: build it, or name it with --muster", self.program.display())
            })
    }
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
                child.kill().await.context("cannot end the controller")?;
            }
            Ok(())
        }
        .boxed()
    }

    fn end(&self) -> BoxFuture<'_, Result<()>> {
        async move {
            let Some(mut child) = self.child.lock().await.take() else { return Ok(()) };
            let id = child.id().context("the controller has ended by itself")?;
            signal("TERM", id).await?;
            let status = child.wait().await?;
            ensure!(status.success(), "the controller was asked to end, and ended with {status}");
            Ok(())
        }
        .boxed()
    }

    fn runs(&self) -> BoxFuture<'_, Result<bool>> {
        async move {
            match self.child.lock().await.as_mut() {
                Some(child) => Ok(child.try_wait()?.is_none()),
                None => Ok(false),
            }
        }
        .boxed()
    }

    fn link(&self) -> &Link {
        &self.link
    }

    fn another(&self, manner: Manner) -> BoxFuture<'_, Result<Box<dyn Controller>>> {
        async move {
            let (program, link, log) = (self.program.clone(), self.link.another(), self.log.clone());
            let other = Self::connect(program, link, log, manner, self.count.clone()).await?;
            Ok(Box::new(other) as Box<dyn Controller>)
        }
        .boxed()
    }
}

/// Sends a signal, such as `TERM`, to one process.
pub(crate) async fn signal(name: &str, process: u32) -> Result<()> {
    let sent = Command::new("kill").arg(format!("-{name}")).arg(process.to_string()).status().await?;
    ensure!(sent.success(), "process {process} takes no signal {name}");
    Ok(())
}
