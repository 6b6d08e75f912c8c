//! What a controller is told at its start.

use std::fmt;
use std::sync::Arc;

use api::appwrapper::Group;
use model::{Packing, Plan, Snapshot};

/// Tells the time. Stamps and deadlines are measured with it.
pub type Clock = Arc<dyn Fn() -> jiff::Timestamp + Send + Sync>;

/// Looks at every plan before it is carried out; for audits.
pub type Inspect = Arc<dyn Fn(&Snapshot<'_>, &Plan) + Send + Sync>;

/// What a controller is told at its start.
#[derive(Clone)]
pub struct Config {
    /// Groups of `AppWrapper` to look after, as far as the cluster serves them.
    pub groups: Vec<Group>,
    /// Whether a gang may take the place of gangs of lower priority. Not while ranks rise, as in MCAD.
    pub preemption: bool,
    /// Whether ranks rise by `priorityslope` while gangs wait: MCAD's dynamic priority.
    pub dynamic_priority: bool,
    /// Which of the nodes that have room a pod goes to.
    pub packing: Packing,
    /// Whether MCAD's quota trees count, as far as the cluster serves them.
    pub quota: bool,
    /// Most gangs that are written about at once, and most pods that are let go to the scheduler at once.
    pub writers: usize,
    /// The time.
    pub clock: Clock,
    /// Looks at every plan.
    pub inspect: Option<Inspect>,
    /// Keep pods from the scheduler until each was told its node; else the scheduler may put them elsewhere than planned.
    pub gates: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            groups: Group::ALL.to_vec(),
            preemption: false,
            dynamic_priority: false,
            packing: Packing::default(),
            quota: false,
            writers: 32,
            clock: Arc::new(jiff::Timestamp::now),
            inspect: None,
            gates: true,
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
