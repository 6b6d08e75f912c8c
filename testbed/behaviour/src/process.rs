//! The controller as a process beside the cluster: `muster controller --kubeconfig FILE`.

use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context as _, Result};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::process::{Child, Command};
use tokio::sync::Mutex;

use crate::environment::Controller;

/// A controller's program, how it is called, and the process while it runs. Ended when this is dropped.
pub struct Process {
    program: PathBuf,
    kubeconfig: PathBuf,
    log: PathBuf,
    child: Mutex<Option<Child>>,
}

impl Process {
    /// The program `muster` for the cluster of a kubeconfig; what it says goes to the end of a file.
    pub fn new(program: PathBuf, kubeconfig: PathBuf, log: PathBuf) -> Self {
        Self { program, kubeconfig, log, child: Mutex::default() }
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
            // Who is killed gives nothing back: its successor would wait until the lease runs out.
            .arg("--leader-elect=false")
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
}
