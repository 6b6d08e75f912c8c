//! The sandbox as an environment: an API server without sockets, simulated nodes and operators, as `muster up` has them, and the
//! real controller, whose every plan is audited. Time is virtual. Answers to the controller travel for a while, so that it sees
//! its own writes in its watches first, as on a real cluster.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]
#![allow(dead_code, reason = "each file of tests uses a part")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use apiserver::{ApiServer, Service};
use behaviour::faults::outage;
use behaviour::link::Link;
use behaviour::{Environment, Fault, Faults, Manner};
use controllers::{Clock, Config, Election, Inspect};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::Client;
use sandbox::Sandbox;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
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
        let far = ServiceExt::<http::Request<kube::client::Body>>::then(service.clone(), |answer| async {
            tokio::time::sleep(LATENCY).await;
            answer
        });
        let far = Client::new(far, "default");
        let nobody =
            sandbox::Config { nodes: Vec::new(), clock: clock.clone(), ..sandbox::Config::default() };
        let sandbox = Sandbox::start(client.clone(), nobody).await.unwrap();
        let config = Config { clock, ..Config::default() };
        controllers::install_crds(client.clone(), &config.groups).await.unwrap();
        behaviour::rights::grant(&client).await.unwrap();
        let violations: Arc<Mutex<Vec<String>>> = Arc::default();
        let controller = InProcess::new(far, config, Manner::Alone, violations.clone(), Arc::default());
        let faults = Restarts { service, link: controller.link.clone() };
        let environment = Environment {
            controller: Box::new(controller),
            faults: Box::new(faults),
            client,
            word: "case".into(),
            patience: Duration::from_mins(20),
            quiet: Duration::from_secs(10),
            pause: Duration::from_millis(50),
            haste: LATENCY * 3 / 2,
        };
        Self { environment, violations, _sandbox: sandbox }
    }

    /// Fails if any plan so far broke a rule.
    pub(crate) fn assert_plans_were_right(&self) {
        let found = self.violations.lock().unwrap();
        assert_eq!(*found, Vec::<String>::new(), "the auditor disagrees with a plan");
    }
}

/// The API server of the sandbox, which is its own store.
struct Restarts {
    service: Service,
    link: Link,
}

impl Faults for Restarts {
    fn strike(&self, _: Fault) -> BoxFuture<'_, Result<()>> {
        let restart = async {
            self.service.with(|server, _| server.restart());
            Ok(())
        };
        outage(&self.link, restart).boxed()
    }
}

/// A controller as a task.
struct InProcess {
    client: Client,
    link: Link,
    config: Config,
    manner: Manner,
    violations: Arc<Mutex<Vec<String>>>,
    /// How many there are.
    count: Arc<AtomicUsize>,
    task: Mutex<Option<Running>>,
}

struct Running {
    task: JoinHandle<Result<(), controllers::Error>>,
    end: oneshot::Sender<()>,
}

impl InProcess {
    fn new(
        client: Client,
        config: Config,
        manner: Manner,
        violations: Arc<Mutex<Vec<String>>>,
        count: Arc<AtomicUsize>,
    ) -> Self {
        let found = violations.clone();
        let inspect: Inspect = Arc::new(move |snapshot, plan| {
            let violations = audit::violations(snapshot, plan);
            found.lock().unwrap().extend(violations.iter().map(|violation| format!("{violation:?}")));
        });
        let config = Config { inspect: Some(inspect), ..config };
        Self {
            link: Link::new(client.clone()),
            client,
            config,
            manner,
            violations,
            count,
            task: Mutex::default(),
        }
    }

    fn abort(&self) {
        if let Some(running) = self.task.lock().unwrap().take() {
            running.task.abort();
        }
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        self.abort();
    }
}

impl behaviour::Controller for InProcess {
    fn start(&self) -> BoxFuture<'_, Result<()>> {
        let mut task = self.task.lock().unwrap();
        if task.as_ref().is_none_or(|running| running.task.is_finished()) {
            let controller = controllers::Controller::new(self.link.client(), self.config.clone());
            let (end, ended) = oneshot::channel();
            let ended = async move {
                ended.await.ok();
            };
            let started = match self.manner {
                Manner::Alone => tokio::spawn(controller.run(ended)),
                Manner::Elected => {
                    let number = self.count.fetch_add(1, Ordering::Relaxed);
                    let [lease, renew, retry] = [6, 4, 1].map(Duration::from_secs);
                    let election =
                        Election { lease, renew, retry, ..Election::new(format!("controller-{number}")) };
                    tokio::spawn(controller.run_elected(election, ended))
                }
            };
            *task = Some(Running { task: started, end });
        }
        futures::future::ok(()).boxed()
    }

    fn kill(&self) -> BoxFuture<'_, Result<()>> {
        self.abort();
        futures::future::ok(()).boxed()
    }

    fn end(&self) -> BoxFuture<'_, Result<()>> {
        let running = self.task.lock().unwrap().take();
        async move {
            let Some(running) = running else { return Ok(()) };
            running.end.send(()).ok();
            Ok(running.task.await??)
        }
        .boxed()
    }

    fn runs(&self) -> BoxFuture<'_, Result<bool>> {
        let runs = self.task.lock().unwrap().as_ref().is_some_and(|running| !running.task.is_finished());
        futures::future::ok(runs).boxed()
    }

    fn link(&self) -> &Link {
        &self.link
    }

    fn another(&self, manner: Manner) -> BoxFuture<'_, Result<Box<dyn behaviour::Controller>>> {
        let (client, config) = (self.client.clone(), self.config.clone());
        let other = Self::new(client, config, manner, self.violations.clone(), self.count.clone());
        futures::future::ok(Box::new(other) as Box<dyn behaviour::Controller>).boxed()
    }
}
