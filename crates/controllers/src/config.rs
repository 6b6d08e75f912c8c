//! Configuration of a controller.

use std::fmt;
use std::sync::Arc;

use api::appwrapper::Group;
use index::KueueRules;
use model::{FairSharing, Packing, Plan, Policy, Snapshot, TopologyPolicy};

use crate::jobs::JobsConfig;
use crate::kueue::metrics::MetricsConfig;
use crate::meter::Meter;
use crate::provisioning::ProvisioningConfig;

/// Returns the current time. All timestamps and deadlines use this clock.
pub type Clock = Arc<dyn Fn() -> jiff::Timestamp + Send + Sync>;

/// Called with every plan before the plan is carried out. Tests audit plans with it.
pub type Inspect = Arc<dyn Fn(&Snapshot<'_>, &Plan) + Send + Sync>;

/// Configuration of a controller.
#[derive(Clone)]
pub struct Config {
    /// API groups of `AppWrapper` to reconcile, if the cluster serves them.
    pub groups: Vec<Group>,
    /// Whether gangs preempt gangs of lower priority. No effect together with `dynamic_priority`, as in MCAD.
    pub preemption: bool,
    /// Whether the priority of a pending gang grows by `priorityslope`: MCAD's dynamic priority.
    pub dynamic_priority: bool,
    /// Which feasible node a pod is placed on.
    pub packing: Packing,
    /// How long a gang whose reserved start relies on an end that nobody declared may hold others back, in microseconds.
    pub guessed_hold_us: i64,
    /// Whether the quota trees of MCAD (`QuotaSubtree`) apply, if the cluster serves them.
    pub quota: bool,
    /// Maximum number of steps that write at the same time, and of pods that are ungated at the same time.
    pub writers: usize,
    /// Returns the current time.
    pub clock: Clock,
    /// Called with every plan before the plan is carried out.
    pub inspect: Option<Inspect>,
    /// Whether pod templates get a scheduling gate, which is removed when the pod is pinned to its planned node.
    /// Without the gate, kube-scheduler may bind pods to other nodes than planned.
    pub gates: bool,
    /// What is done for Kueue's objects. No other controller may do the same in the same cluster.
    pub kueue: Kueue,
    /// Which of Kueue's metrics are served.
    pub metrics: MetricsConfig,
    /// What counts and measures the work of this process.
    pub meter: Meter,
    /// How Kueue's objects are treated.
    pub kueue_options: KueueOptions,
    /// The jobs of Kueue's API that are started and stopped with their Workloads.
    pub jobs: JobsConfig,
    /// The admission check that asks for nodes. `None`: another program answers it.
    pub provisioning: Option<ProvisioningConfig>,
    /// The provisioning classes by which AppWrappers may ask a node autoscaler for nodes. The first is that of AppWrappers
    /// without the annotation `muster.dev/provisioning-class`; `none` is for no request. Empty: none asks.
    pub provisioning_classes: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            groups: Group::ALL.to_vec(),
            preemption: false,
            dynamic_priority: false,
            packing: Packing::default(),
            guessed_hold_us: Policy::GUESSED_HOLD_US,
            quota: false,
            writers: 32,
            clock: Arc::new(jiff::Timestamp::now),
            inspect: None,
            gates: true,
            kueue: Kueue::default(),
            metrics: MetricsConfig::default(),
            meter: Meter::default(),
            kueue_options: KueueOptions::default(),
            jobs: JobsConfig::default(),
            provisioning: None,
            provisioning_classes: Vec::new(),
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("groups", &self.groups)
            .field("preemption", &self.preemption)
            .field("dynamic_priority", &self.dynamic_priority)
            .field("packing", &self.packing)
            .field("quota", &self.quota)
            .field("writers", &self.writers)
            .finish_non_exhaustive()
    }
}

/// How Kueue's objects are treated, after its configuration and its feature gates.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct KueueOptions {
    /// Queues of a cohort share by weight. `None`: in the order of their Workloads.
    pub fair_sharing: Option<FairSharing>,
    /// How domains of a topology are selected.
    pub topology: TopologyPolicy,
    /// How long after its end a Workload is deleted, in microseconds. `None`: it is kept.
    pub retention_us: Option<i64>,
    /// How Workloads are counted and ordered.
    pub rules: KueueRules,
    /// How long pods may take to become ready. `None`: as long as they like.
    pub pods_ready: Option<PodsReady>,
    /// Whether conditions name the cause why a Workload is not admitted.
    pub names_causes: bool,
    /// Whether a new Workload gets the conditions at once; with `names_causes` alone.
    pub states_at_once: bool,
}

/// How long the pods of admitted Workloads may take to become ready, and when the Workloads are tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodsReady {
    /// From the admission on, in microseconds.
    pub timeout_us: i64,
    /// After they were ready, in microseconds. `None`: as long as they like.
    pub recovery_us: Option<i64>,
    /// How often a Workload is tried again. `None`: without end.
    pub retries_max: Option<i64>,
    /// The pause before the first retry, in seconds. It doubles with each one.
    pub pause_s: i64,
    /// The longest pause, in seconds.
    pub pause_max_s: i64,
}

/// What the controller does for the objects of Kueue's API.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Kueue {
    /// Nothing: the objects are not watched.
    #[default]
    Off,
    /// It keeps statuses and finalizers, and stops what is to be stopped. Another program admits Workloads.
    Core,
    /// It admits Workloads, too.
    Scheduler,
}
