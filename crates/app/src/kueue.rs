//! The parts of the controller for Kueue's API: flags, addresses and servers.
//!
//! - `embedded`: all parts for a cluster in this process
//! - `installed`: the plan in the place of an installation of Kueue
//! - `parts`: what the process does, by name
//! - `options`: what the configuration says about the plan and about metrics
//! - `jobs`: what it says about jobs
//! - `lease`: the lease of Kueue

mod embedded;
mod installed;
mod jobs;
mod lease;
mod options;
mod parts;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use api::kueue::config::{Configuration, Tls};
use api::kueue::jobs::{JobKind, declare};
use api::kueue::webhooks::ReviewedKind;
use clusters::ClustersConfig;
use controllers::{
    Controller, JobsConfig, KueueOptions, Meter, Metrics, MetricsConfig, ProvisioningConfig, Shutdown,
};
use kube::Client;
use serde_json::Value;
use server::kueue::{Namespaces, Webhooks};
use server::{
    BoundEndpoint, Condition, Issuer, Managed, Readiness, Registrar, TlsOptions, WebhookNames, WebhookServer,
};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::clusters_loop::beside;
use crate::controller::until_dropped;
use crate::election::LeaseName;
use crate::lease_thread::LeaseThread;
use crate::telemetry::{Activity, Address, Telemetry, bind};
use parts::{Kinds, Part};

/// The folder with the certificate of the metrics, if Kueue does not manage certificates: as in Kueue.
const METRICS_CERTIFICATE: &str = "/etc/kueue/metrics/certs";

/// Flags of Kueue's API.
#[derive(clap::Args)]
#[command(next_help_heading = "Kueue's API")]
pub(crate) struct KueueArgs {
    /// What the controller does: `appwrappers`; of Kueue's API `core` (statuses, finalizers), `scheduler`, `tas` (topologies),
    /// `provisioning` (asks for nodes), `multikueue` (other clusters), `webhooks`; for a kind of jobs `job=batch/job`
    /// (starts, stops) and `webhook=batch/job` (suspends).
    #[arg(long, value_delimiter = ',', default_value = "appwrappers", value_name = "LIST", value_parser = Part::parse)]
    parts: Vec<Part>,
    /// Kueue's configuration file, for the parts of Kueue's API: a Configuration of config.kueue.x-k8s.io/v1beta1 or
    /// v1beta2. Without it, the defaults of Kueue apply.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Kinds of jobs that are started and stopped as this file declares (docs/compat/kueue-job-kinds.md): where the fields of
    /// their objects are.
    #[arg(long = "job-kinds", value_name = "FILE")]
    job_kinds: Option<PathBuf>,
    /// Admit a Workload of Kueue's API only if every pod of it has a place on a node, and send its pods there. Otherwise
    /// quota alone decides, as in Kueue, except in flavors with a topology. The annotation muster.dev/place-pods of a
    /// ClusterQueue (true or false) wins over this flag.
    #[arg(long)]
    place_pods: bool,
    /// Serve metrics on this port of the loopback interface, instead of the address in the configuration. 0: as the configuration
    /// says.
    #[arg(
        long = "metricsPort",
        alias = "metrics-port",
        default_value_t = 0,
        value_name = "PORT",
        hide = true
    )]
    metrics_port: u16,
    /// Accepted for scripts that start Kueue. It has no effect: --log selects what is logged.
    #[arg(long = "zap-log-level", value_name = "LEVEL", hide = true)]
    zap_log_level: Option<String>,
    /// Accepted for Kueue's benchmark. No profile is written.
    #[arg(long, value_name = "FILE", hide = true)]
    cpuprofile: Option<PathBuf>,
    /// Accepted for Kueue's benchmark. No profile is written.
    #[arg(long, value_name = "FILE", hide = true)]
    memprofile: Option<PathBuf>,
    /// Accepted for Kueue's benchmark: topologies are always planned.
    #[arg(long = "enableTAS", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", hide = true)]
    enable_tas: Option<bool>,
}

/// The parts for Kueue's API, with their configuration.
pub(crate) struct Kueue {
    configuration: Configuration,
    /// What the process does for Kueue's objects.
    acts: controllers::Kueue,
    /// The controller of AppWrappers does it: one plan for one cluster.
    is_shared: bool,
    webhooks: bool,
    /// The kinds of jobs that are started and stopped.
    jobs: Kinds<&'static JobKind>,
    /// The admission check that asks for nodes is answered.
    provisions: bool,
    /// The admission check that runs Workloads in other clusters is answered.
    clusters: bool,
    /// The jobs that the webhooks suspend and check.
    reviewed: Kinds<ReviewedKind>,
    metrics_port: Option<u16>,
    /// Pods get nodes in all flavors.
    places_pods: bool,
    /// The file names `waitForPodsReady`. Kueue's default is not applied: of most kinds of jobs, no part reports that pods are
    /// ready.
    waits_for_pods: bool,
    /// Missing definitions of its kinds are created, and own ones updated.
    installs: bool,
    /// Who makes the certificate of the webhooks.
    issuer: Issuer,
}

impl KueueArgs {
    /// Whether AppWrappers are dispatched.
    pub(crate) fn dispatches(&self) -> bool {
        self.has(|part| matches!(part, Part::AppWrappers))
    }

    /// What is done for Kueue's objects.
    fn acts(&self) -> controllers::Kueue {
        let schedules = self.has(|part| matches!(part, Part::Scheduler));
        let keeps = self.has(|part| matches!(part, Part::Core));
        match [schedules, keeps] {
            [true, _] => controllers::Kueue::Scheduler,
            [false, true] => controllers::Kueue::Core,
            [false, false] => controllers::Kueue::Off,
        }
    }

    fn has(&self, is_it: impl Fn(&Part) -> bool) -> bool {
        self.parts.iter().any(is_it)
    }

    /// Reads the configuration; `None` if no part of Kueue's API is wanted.
    /// Missing definitions of its kinds are created if it `installs`.
    pub(crate) fn load(self, installs: bool, issuer: Issuer) -> Result<Option<Kueue>> {
        if self.cpuprofile.is_some() || self.memprofile.is_some() {
            eprintln!("muster: --cpuprofile and --memprofile have no effect: no profile is written");
        }
        let acts = self.acts();
        let webhooks = self.has(|part| matches!(part, Part::Webhooks | Part::JobWebhook(_)));
        let dispatches = self.dispatches();
        let mut jobs = parts::managed(&self.parts);
        if let Some(file) = &self.job_kinds {
            jobs.kinds.extend(declared(file)?);
        }
        let reviewed = parts::reviewed(&self.parts);
        let provisions = self.has(|part| matches!(part, Part::Provisioning));
        let clusters = self.has(|part| matches!(part, Part::Clusters));
        let _ = (self.zap_log_level, self.enable_tas);
        if acts == controllers::Kueue::Off && !webhooks && jobs.kinds.is_empty() && !provisions && !clusters {
            if self.config.is_some() {
                bail!("--config is for the parts of Kueue's API: name them, such as --parts core,webhooks");
            }
            return Ok(None);
        }
        let document = match &self.config {
            Some(file) => read(file)?,
            None => {
                serde_json::json!({"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"})
            }
        };
        let waits_for_pods = waits_for_pods(&document);
        let configuration = parse(document, self.config.as_deref().unwrap_or(Path::new("default")))?;
        let metrics_port = (self.metrics_port != 0).then_some(self.metrics_port);
        let is_shared = dispatches;
        Ok(Some(Kueue {
            configuration,
            acts,
            is_shared,
            webhooks,
            jobs,
            provisions,
            clusters,
            reviewed,
            metrics_port,
            places_pods: self.place_pods,
            waits_for_pods,
            installs,
            issuer,
        }))
    }
}

/// The kinds of jobs that a file declares.
pub(crate) fn declared(file: &Path) -> Result<Vec<&'static JobKind>> {
    declare(&read(file)?).map_err(|why| anyhow!("{} is not valid: {why}", file.display()))
}

/// Whether a configuration names `waitForPodsReady`.
fn waits_for_pods(document: &Value) -> bool {
    !document["waitForPodsReady"].is_null()
}

fn parse(document: Value, file: &Path) -> Result<Configuration> {
    let namespace = std::env::var("POD_NAMESPACE").unwrap_or_else(|_| "kueue-system".into());
    Configuration::parse(document, &namespace).map_err(|errors| {
        let list = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n  ");
        anyhow!("the configuration {} is not valid:\n  {list}", file.display())
    })
}

fn read(file: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read the configuration {}", file.display()))?;
    serde_saphyr::from_str(&text).with_context(|| format!("the configuration {} is not YAML", file.display()))
}

/// What a controller does for Kueue's objects.
#[derive(Default)]
pub(crate) struct Duties {
    pub(crate) acts: controllers::Kueue,
    pub(crate) metrics: MetricsConfig,
    pub(crate) options: KueueOptions,
    pub(crate) jobs: JobsConfig,
    pub(crate) provisioning: Option<ProvisioningConfig>,
    pub(crate) clusters: Option<ClustersConfig>,
    /// The lease that Kueue holds while it acts.
    pub(crate) lease: Option<LeaseName>,
}

/// The controller of AppWrappers, if it plans Workloads, too.
pub(crate) struct SharedController {
    pub(crate) metrics: Metrics,
    /// What must hold before it is ready.
    pub(crate) conditions: Vec<Condition>,
    /// Whether it acts only with a lease.
    pub(crate) elects: bool,
    /// Whether it has the lease.
    pub(crate) leads: Readiness,
}

impl Kueue {
    /// What the controller of AppWrappers does for Kueue's objects, if it plans both.
    ///
    /// # Errors
    /// See [`Self::lease`].
    pub(crate) fn duties(&self) -> Result<Duties> {
        Ok(Duties {
            acts: self.acts,
            metrics: self.metrics_config(),
            options: self.options(),
            jobs: self.jobs_config(),
            provisioning: self.provisioning_config(),
            clusters: self.clusters_config(),
            lease: self.lease()?,
        })
    }

    /// Whether Workloads are admitted.
    pub(crate) fn schedules(&self) -> bool {
        self.acts == controllers::Kueue::Scheduler
    }

    /// Whether the queues are shown by Kueue's visibility API.
    pub(crate) fn shows_queues(&self) -> bool {
        self.schedules() && self.configuration.gates.enabled("VisibilityOnDemand")
    }

    /// Serves and acts until `stopped` completes. With a shared controller, it only serves.
    pub(crate) async fn run(
        self,
        Cluster { connection, client, meter, endpoint }: Cluster,
        shared: Option<SharedController>,
        telemetry: Telemetry,
        stopping: watch::Receiver<()>,
    ) -> Result<()> {
        let election = self.election()?;
        let controller = self.controller(client.clone(), meter);
        let (mut metrics, mut activity) = (controller.metrics(), Activity::default());
        activity.elects = election.is_some();
        if let Some(shared) = shared {
            metrics = shared.metrics;
            (activity.elects, activity.leads) = (shared.elects, shared.leads);
            activity.conditions = shared.conditions;
        }
        let leads = activity.leads.clone();
        let (mut serving, mut registrars, mut watching) = (Vec::new(), Vec::new(), JoinSet::new());
        if let Some(endpoint) = endpoint.filter(|_| self.acts_alone()) {
            let (server, keeps) = endpoint.open(client.clone(), controller.reports());
            // Only the leader is asked, and no leader makes a certificate while a Kueue holds the lease: a standby is ready without one.
            serving.push(tokio::spawn(server.run(until_dropped(&stopping))));
            registrars.push(keeps);
        }
        if self.webhooks {
            let (server, keeps) = self.webhook_server(client.clone()).await?;
            activity.conditions.push(server.serves());
            let mut webhooks = Webhooks::new(&self.configuration.gates, self.job_rules());
            if !self.reviewed.kinds.is_empty() {
                let (namespaces, watches) = Namespaces::watch(&client, self.clusters);
                watching.spawn(watches);
                webhooks = webhooks.knowing(namespaces);
            }
            serving.push(tokio::spawn(server.run(webhooks.router(), until_dropped(&stopping))));
            registrars.extend(keeps);
        }
        let lease = match election {
            _ if !self.acts_alone() => None,
            None => {
                activity.conditions.push(is_read(&controller));
                None
            }
            Some(election) => {
                eprintln!("muster: this process acts while it holds {election}, which Kueue holds, too");
                let named = election.to_string();
                let lease = LeaseThread::start(connection, election)?;
                activity.conditions.push(takes_part(&named, &lease));
                Some(lease)
            }
        };
        let mut servers = telemetry.serve(client.clone(), metrics, activity).await?;
        let actor = Actor { controller, registrars, lease };
        let acting = self.act(client, actor, leads, until_dropped(&stopping));
        let ended = tokio::select! {
            result = acting => result,
            Some(ended) = servers.join_next() => ended.context("a server failed")?.context("a server failed"),
        };
        // When the process stops, reviews that have arrived are answered.
        for serving in serving.into_iter().filter(|_| ended.is_ok()) {
            serving.await.context("the server of webhooks or of the endpoint failed")?;
        }
        ended
    }

    async fn act(
        &self,
        client: Client,
        Actor { controller, registrars, lease }: Actor,
        leads: Readiness,
        stopped: Shutdown,
    ) -> Result<()> {
        if !self.acts_alone() {
            let _keeping = keep(registrars, &client);
            stopped.await;
            return Ok(());
        }
        let Some(lease) = lease else {
            let _keeping = keep(registrars, &client);
            let running = controller.publish_config_and_run(stopped);
            return Ok(beside(running, &client, self.clusters_config()).await?);
        };
        let clusters = self.clusters_config();
        let act = |client: Client, shutdown| async move {
            leads.set();
            let _keeping = keep(registrars, &client);
            let running = controller.with_client(client.clone()).publish_config_and_run(shutdown);
            beside(running, &client, clusters).await
        };
        let led = lease.leadership().lead(&client, stopped, act).await;
        let released = lease.end().await;
        led.map_err(anyhow::Error::from).and(released)
    }

    fn controller(&self, client: Client, meter: Meter) -> Controller {
        let config = controllers::Config {
            groups: Vec::new(),
            kueue: self.acts,
            metrics: self.metrics_config(),
            meter,
            kueue_options: self.options(),
            jobs: self.jobs_config(),
            provisioning: self.provisioning_config(),
            ..controllers::Config::default()
        };
        Controller::new(client, config)
    }

    /// Whether this process writes about Kueue's objects.
    fn acts(&self) -> bool {
        self.acts != controllers::Kueue::Off
            || !self.jobs.kinds.is_empty()
            || self.provisions
            || self.clusters
    }

    /// Whether it does so by no shared controller.
    fn acts_alone(&self) -> bool {
        !self.is_shared && self.acts()
    }

    /// Where the configuration has metrics and probes served.
    pub(crate) fn telemetry(&self) -> Telemetry {
        let fields = &self.configuration.fields;
        let (metrics, health) =
            (fields.metrics.clone().unwrap_or_default(), fields.health.clone().unwrap_or_default());
        let metrics = match self.metrics_port {
            Some(port) => Address { text: format!("127.0.0.1:{port}"), named_by: "--metricsPort" },
            None => {
                Address { text: metrics.bind_address.unwrap_or_default(), named_by: "metrics.bindAddress" }
            }
        };
        let probes = Address {
            text: health.health_probe_bind_address.unwrap_or_default(),
            named_by: "health.healthProbeBindAddress",
        };
        let management = fields.internal_cert_management.clone().unwrap_or_default();
        let is_external = management.enable == Some(false);
        let trimmed = |name: Option<String>| name.unwrap_or_default().trim_matches('/').to_owned();
        Telemetry {
            metrics,
            certificate: (is_external && Path::new(METRICS_CERTIFICATE).exists())
                .then(|| METRICS_CERTIFICATE.into()),
            tls: self.tls(),
            probes,
            alive: trimmed(health.liveness_endpoint_name),
            ready: trimmed(health.readiness_endpoint_name),
        }
    }

    /// The options of TLS that the configuration names.
    fn tls(&self) -> TlsOptions {
        let options = self.configuration.fields.tls.as_ref();
        let options = options.filter(|_| self.configuration.gates.enabled("TLSOptions"));
        options.map(tls_options).unwrap_or_default()
    }

    /// The server of the webhooks; and what keeps its certificate and registers them, unless the admin does.
    async fn webhook_server(&self, client: Client) -> Result<(WebhookServer, Option<Registrar>)> {
        let fields = &self.configuration.fields;
        let webhook = fields.webhook.clone().unwrap_or_default();
        let host = webhook.host.unwrap_or_default();
        let address = format!("{host}:{}", webhook.port.unwrap_or_default());
        let Some(listener) = bind(&address, "webhook.host").await? else {
            bail!("webhook.host: {host:?} is not an address");
        };
        let options = self.tls();
        let management = fields.internal_cert_management.clone().unwrap_or_default();
        if management.enable == Some(true) {
            let names = WebhookNames {
                namespace: fields.namespace.clone().unwrap_or_default(),
                service: management.webhook_service_name.unwrap_or_default(),
                secret: management.webhook_secret_name.unwrap_or_default(),
            };
            let managed =
                Managed { issuer: self.issuer, installs: self.installs, jobs: self.registered_jobs() };
            let (server, registrar) = WebhookServer::managed(listener, client, names, managed, options)
                .context("tls: the webhooks cannot be served")?;
            return Ok((server, Some(registrar)));
        }
        let folder = webhook.cert_dir.unwrap_or_default();
        let server = WebhookServer::new(listener, Path::new(&folder), options)
            .context("webhook.certDir: the webhooks cannot be served")?;
        Ok((server, None))
    }
}

/// A cluster, how it is reached, and what measures the requests to it.
pub(crate) struct Cluster {
    pub(crate) connection: kube::Config,
    pub(crate) client: Client,
    pub(crate) meter: Meter,
    /// The endpoint of a controller that plans Workloads alone.
    pub(crate) endpoint: Option<BoundEndpoint>,
}

/// What acts while this process leads.
struct Actor {
    controller: Controller,
    /// Keep the certificates of the webhooks and of the endpoint, and register them.
    registrars: Vec<Registrar>,
    lease: Option<LeaseThread>,
}

/// That a controller has read the state of the cluster.
pub(crate) fn is_read(controller: &Controller) -> Condition {
    let synced = controller.synced();
    Condition::new("the state of the cluster is not read yet", move || *synced.borrow())
}

/// That this process leads, or can as soon as the lease is free. A standby is ready: it serves webhooks.
pub(crate) fn takes_part(election: &str, lease: &LeaseThread) -> Condition {
    let leadership = lease.leadership().clone();
    let otherwise = format!("the API server has not answered about {election} yet, see the log");
    Condition::new(otherwise, move || leadership.takes_part())
}

/// Runs registrars until the value is dropped.
fn keep(registrars: Vec<Registrar>, client: &Client) -> JoinSet<()> {
    registrars.into_iter().map(|registrar| registrar.run(client.clone())).collect()
}

fn tls_options(tls: &Tls) -> TlsOptions {
    let key_exchanges = tls.curve_preferences.iter().flatten();
    TlsOptions {
        only_tls13: tls.min_version.as_deref() == Some("VersionTLS13"),
        cipher_suites: tls.cipher_suites.clone().unwrap_or_default(),
        // A number that is no key exchange is refused as 0.
        key_exchanges: key_exchanges.map(|&number| u16::try_from(number).unwrap_or(0)).collect(),
    }
}
