//! The sandbox as an environment: an API server without sockets, the simulated nodes and operators of `muster up`, and the real
//! controller, whose every plan is audited. Time is virtual. Responses to the controller are delayed, so that it sees its own writes
//! in its watches first, as on a real cluster.

#![allow(clippy::unwrap_used, reason = "a panic shows where the test failed")]
#![allow(dead_code, reason = "each test binary uses a part")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use api::appwrapper::{Group, PLURAL};
use api::kueue::jobs::JobKind;
use apiserver::{ApiServer, Service, User, ValidatingWebhook};
use behaviour::faults::outage;
use behaviour::proxy::Proxy;
use behaviour::{Environment, Fault, FaultInjector, Flags, LeaderElection};
use controllers::{Clock, Config, Inspect, JobsConfig, LeaderElectionConfig, ProvisioningConfig};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::Client;
use sandbox::Sandbox;
use server::admission::{Admission, WEBHOOK};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tower::ServiceExt;

/// The delay of responses to the controller.
const LATENCY: Duration = Duration::from_millis(20);

/// The kinds of jobs that a controller with queues starts and stops.
const QUEUED: [&str; 3] = ["batch/job", "ray.io/rayjob", "ray.io/raycluster"];

/// An empty sandbox and the audit violations of its plans. The sandbox stops on drop.
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
        let delayed =
            ServiceExt::<http::Request<kube::client::Body>>::then(service.clone(), |answer| async {
                tokio::time::sleep(LATENCY).await;
                answer
            });
        let delayed = Client::new(delayed, "default");
        let no_nodes =
            sandbox::Config { nodes: Vec::new(), clock: clock.clone(), ..sandbox::Config::default() };
        let sandbox = Sandbox::start(client.clone(), no_nodes).await.unwrap();
        let config = Config { clock, ..Config::default() };
        controllers::install_crds(client.clone(), &config.groups, api::appwrapper::Columns::default())
            .await
            .unwrap();
        behaviour::rbac::grant(&client).await.unwrap();
        let violations: Arc<Mutex<Vec<String>>> = Arc::default();
        let controller = InProcess::new(
            service.clone(),
            delayed,
            config,
            LeaderElection::Disabled,
            violations.clone(),
            Arc::default(),
        );
        let faults = Restarts { service, proxy: controller.proxy.clone() };
        let environment = Environment {
            controller: Box::new(controller),
            faults: Box::new(faults),
            client,
            run_id: "case".into(),
            timeout: Duration::from_mins(20),
            stable_period: Duration::from_secs(10),
            poll_interval: Duration::from_millis(50),
            write_interval: LATENCY * 3 / 2,
        };
        Self { environment, violations, _sandbox: sandbox }
    }

    /// Fails if the auditor found a violation in any plan.
    pub(crate) fn assert_no_violations(&self) {
        let found = self.violations.lock().unwrap();
        assert_eq!(*found, Vec::<String>::new(), "the auditor found violations");
    }
}

/// Simulates restarts of the sandbox's API server, which has no separate store.
struct Restarts {
    service: Service,
    proxy: Proxy,
}

impl FaultInjector for Restarts {
    fn inject(&self, _: Fault) -> BoxFuture<'_, Result<()>> {
        let restart = async {
            self.service.with(|server, _| server.restart());
            Ok(())
        };
        outage(&self.proxy, restart).boxed()
    }
}

/// A controller that runs as a task.
struct InProcess {
    service: Service,
    client: Client,
    proxy: Proxy,
    config: Config,
    leader_election: LeaderElection,
    violations: Arc<Mutex<Vec<String>>>,
    /// The number of controllers.
    count: Arc<AtomicUsize>,
    task: Mutex<Option<Running>>,
}

struct Running {
    task: JoinHandle<Result<(), controllers::Error>>,
    end: oneshot::Sender<()>,
}

impl InProcess {
    fn new(
        service: Service,
        client: Client,
        config: Config,
        leader_election: LeaderElection,
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
            proxy: Proxy::new(client.clone()),
            service,
            client,
            config,
            leader_election,
            violations,
            count,
            task: Mutex::default(),
        }
    }

    /// Reviews authors from now on: a function in the process takes the place of the webhook.
    fn review(&self) {
        let admission = Admission::new(Client::new(self.service.as_user(User::admin()), "default"));
        for group in Group::ALL {
            let admission = admission.clone();
            let webhook = ValidatingWebhook::new(WEBHOOK, group.name(), PLURAL, move |review| {
                let admission = admission.clone();
                Box::pin(async move { admission.review(&review).await })
            });
            self.service.with(|server, _| server.validate_with(webhook));
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
            let controller = controllers::Controller::new(self.proxy.client(), self.config.clone());
            let (end, ended) = oneshot::channel();
            let ended = async move {
                ended.await.ok();
            };
            let started = match self.leader_election {
                LeaderElection::Disabled => tokio::spawn(controller.run(ended)),
                LeaderElection::Enabled => {
                    let number = self.count.fetch_add(1, Ordering::Relaxed);
                    let [lease_duration, renew_deadline, retry_period] = [6, 4, 1].map(Duration::from_secs);
                    let election = LeaderElectionConfig {
                        lease_duration,
                        renew_deadline,
                        retry_period,
                        ..LeaderElectionConfig::new(format!("controller-{number}"))
                    };
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

    fn terminate(&self) -> BoxFuture<'_, Result<()>> {
        let running = self.task.lock().unwrap().take();
        async move {
            let Some(running) = running else { return Ok(()) };
            running.end.send(()).ok();
            Ok(running.task.await??)
        }
        .boxed()
    }

    fn is_running(&self) -> BoxFuture<'_, Result<bool>> {
        let runs = self.task.lock().unwrap().as_ref().is_some_and(|running| !running.task.is_finished());
        futures::future::ok(runs).boxed()
    }

    fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    fn replica(&self, flags: Flags) -> BoxFuture<'_, Result<Box<dyn behaviour::Controller>>> {
        let Flags { leader_election, preemption, quota, queues, review } = flags;
        if review.is_some() {
            self.review();
        }
        async move {
            if quota {
                controllers::install_quota_crd(self.client.clone()).await?;
            }
            let mut config = Config { preemption, quota, ..self.config.clone() };
            if queues {
                let kinds = QUEUED.iter().filter_map(|name| JobKind::of_framework(name)).collect();
                config.kueue = controllers::Kueue::Scheduler;
                config.jobs = JobsConfig { kinds, ..JobsConfig::default() };
                config.provisioning = Some(ProvisioningConfig::default());
            }
            let (service, violations) = (self.service.clone(), self.violations.clone());
            let client = self.client.clone();
            let other = Self::new(service, client, config, leader_election, violations, self.count.clone());
            Ok(Box::new(other) as Box<dyn behaviour::Controller>)
        }
        .boxed()
    }
}
