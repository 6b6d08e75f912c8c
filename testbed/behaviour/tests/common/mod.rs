//! The sandbox as an environment: an API server without sockets, simulated nodes and operators, as `muster up` has them, and the
//! real controller, whose every plan is audited. Time is virtual. Answers to the controller travel for a while, so that it sees
//! its own writes in its watches first, as on a real cluster.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]
#![allow(dead_code, reason = "each file of tests uses a part")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use apiserver::{ApiServer, Service};
use behaviour::Environment;
use controllers::{Clock, Config, Inspect};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::Client;
use sandbox::Sandbox;
use tokio::task::AbortHandle;
use tower::ServiceExt;

/// How long an answer takes to the controller.
const LATENCY: Duration = Duration::from_millis(20);

/// An empty sandbox, and what the auditor says about plans on it. The sandbox ends when it is dropped.
pub(crate) struct OnSandbox {
    pub(crate) environment: Environment,
    violations: Arc<Mutex<Vec<String>>>,
    _sandbox: Sandbox,
}

impl OnSandbox {
    pub(crate) async fn start() -> Self {
        let started = tokio::time::Instant::now();
        let epoch = jiff::Timestamp::from_second(1_700_000_000).unwrap();
        let clock: Clock = Arc::new(move || epoch + started.elapsed());
        let service = Service::new(ApiServer::new(apiserver::Config::default()), clock.clone());
        let client = Client::new(service.clone(), "default");
        let far = ServiceExt::<http::Request<kube::client::Body>>::then(service, |answer| async {
            tokio::time::sleep(LATENCY).await;
            answer
        });
        let far = Client::new(far, "default");
        let nobody =
            sandbox::Config { nodes: Vec::new(), clock: clock.clone(), ..sandbox::Config::default() };
        let sandbox = Sandbox::start(client.clone(), nobody).await.unwrap();
        let config = Config { clock, ..Config::default() };
        controllers::install_crds(client.clone(), &config.groups).await.unwrap();
        let violations: Arc<Mutex<Vec<String>>> = Arc::default();
        let environment = Environment {
            controller: Box::new(InProcess::new(far, config, violations.clone())),
            client,
            word: "case".into(),
            patience: Duration::from_mins(20),
            quiet: Duration::from_secs(10),
            pause: Duration::from_millis(50),
        };
        Self { environment, violations, _sandbox: sandbox }
    }

    /// Fails if any plan so far broke a rule.
    pub(crate) fn assert_plans_were_right(&self) {
        let found = self.violations.lock().unwrap();
        assert_eq!(*found, Vec::<String>::new(), "the auditor disagrees with a plan");
    }
}

/// A controller as a task.
struct InProcess {
    client: Client,
    config: Config,
    task: Mutex<Option<AbortHandle>>,
}

impl InProcess {
    fn new(client: Client, config: Config, violations: Arc<Mutex<Vec<String>>>) -> Self {
        let inspect: Inspect = Arc::new(move |snapshot, plan| {
            let found = audit::violations(snapshot, plan);
            violations.lock().unwrap().extend(found.iter().map(|violation| format!("{violation:?}")));
        });
        Self { client, config: Config { inspect: Some(inspect), ..config }, task: Mutex::default() }
    }
}

impl behaviour::Controller for InProcess {
    fn start(&self) -> BoxFuture<'_, Result<()>> {
        let mut task = self.task.lock().unwrap();
        if task.is_none() {
            let controller = controllers::Controller::new(self.client.clone(), self.config.clone());
            *task = Some(tokio::spawn(controller.run(std::future::pending())).abort_handle());
        }
        futures::future::ok(()).boxed()
    }

    fn kill(&self) -> BoxFuture<'_, Result<()>> {
        if let Some(task) = self.task.lock().unwrap().take() {
            task.abort();
        }
        futures::future::ok(()).boxed()
    }
}
