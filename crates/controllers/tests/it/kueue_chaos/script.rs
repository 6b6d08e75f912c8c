//! What users and operators do with queues and jobs, drawn from a seed.

use std::fmt;

use serde_json::{Value, json};

use super::disturbances::{self, Disturbance};
use super::operations::{self, Operation};
use crate::chaos::rng::Rng;

/// A cluster queue and the local queue of the same name.
#[derive(Debug, Clone)]
pub(crate) struct Queue {
    pub(crate) cpus: u64,
    pub(crate) in_cohort: bool,
    pub(crate) borrows_at_most: Option<u64>,
    pub(crate) preemption: Value,
}

/// A job to be created.
#[derive(Debug, Clone)]
pub(crate) struct Submission {
    pub(crate) kind: &'static str,
    pub(crate) pods: u64,
    pub(crate) queue: u64,
    pub(crate) priority: &'static str,
    pub(crate) is_elastic: bool,
    pub(crate) least: Option<u64>,
    pub(crate) run_time: &'static str,
}

/// One action. Numbers select one of the objects that exist at that time.
#[derive(Debug, Clone)]
pub(crate) enum Action {
    Submit(Submission),
    DeleteJob(u64),
    /// A job is deleted, and what it owns stays.
    OrphanJob(u64),
    /// A job gets a finalizer that nobody removes before the end.
    AddFinalizer(u64),
    /// A job loses the label of its queue.
    LeaveQueue(u64),
    DeleteWorkload(u64),
    ChangeQueue(u64, u64),
    Suspend(u64, bool),
    Resize(u64, u64),
    Activate(u64, bool),
    DeletePod(u64),
    FailPod(u64),
    Drain(u64),
    Uncordon(u64),
    SetQuota(u64, u64),
    Stop(u64, &'static str),
    RestartController,
    /// The controller is killed after so many writes from now on.
    Crash(usize),
    Disturb(Disturbance),
    Operate(Operation),
}

/// From this seed on, there are disturbances as well, and every second cluster is small.
const DISTURBED: u64 = 1_000;
/// From this seed on, there are sets of pods and quotas of namespaces among them.
const WITH_SETS: u64 = 3_000;

/// From this seed on, there are checks, topologies, and times without webhooks among them.
const WITH_OPERATIONS: u64 = 5_000;
/// From this seed on, topologies may end at racks.
const WITH_RACKS: u64 = 9_000;

/// A run: the queues, and what happens.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) seed: u64,
    pub(crate) flavors: usize,
    /// Pods get nodes, of which there are few.
    pub(crate) places_pods: bool,
    /// Workloads of all queues need an admission check.
    pub(crate) has_check: bool,
    /// The nodes of the first flavor are in racks.
    pub(crate) has_topology: bool,
    /// Its lowest level is a rack.
    pub(crate) has_racks_alone: bool,
    pub(crate) queues: Vec<Queue>,
    /// Each action, and the milliseconds after it.
    pub(crate) actions: Vec<(u64, Action)>,
}

impl Script {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let flavors = if rng.percent(40) { 2 } else { 1 };
        let queues = (0..rng.within(1, 3)).map(|_| queue(&mut rng)).collect();
        let count = rng.within(18, 32);
        let mut actions: Vec<_> = (0..count).map(|_| (pause_ms(&mut rng), draw(&mut rng))).collect();
        let is_disturbed = seed >= DISTURBED;
        if is_disturbed {
            for _ in 0..rng.within(4, 12) {
                let at = rng.within(0, u64::try_from(actions.len()).unwrap());
                let one = if seed < WITH_SETS {
                    disturbances::draw(&mut rng)
                } else {
                    disturbances::draw_more(&mut rng)
                };
                let disturbance = Action::Disturb(one);
                actions.insert(usize::try_from(at).unwrap(), (pause_ms(&mut rng), disturbance));
            }
        }
        let places_pods = is_disturbed && seed.is_multiple_of(2);
        let (mut has_check, mut has_topology) = (false, false);
        if seed >= WITH_OPERATIONS {
            has_check = rng.percent(40);
            has_topology = places_pods && rng.percent(60);
            for _ in 0..rng.within(4, 12) {
                let at = rng.within(0, u64::try_from(actions.len()).unwrap());
                let operation = Action::Operate(operations::draw(&mut rng));
                actions.insert(usize::try_from(at).unwrap(), (pause_ms(&mut rng), operation));
            }
        }
        let has_racks_alone = has_topology && seed >= WITH_RACKS && rng.percent(60);
        Self { seed, flavors, places_pods, has_check, has_topology, has_racks_alone, queues, actions }
    }
}

impl fmt::Display for Script {
    /// The queues, and then one action a line before the milliseconds after it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, flavors, places_pods, has_check, has_topology, has_racks_alone, .. } = self;
        write!(
            f,
            "seed {seed}, flavors {flavors}, places pods {places_pods}, check {has_check}, topology {has_topology}, \
             racks alone {has_racks_alone}"
        )?;
        self.queues.iter().try_for_each(|queue| write!(f, "\n  {queue:?}"))?;
        self.actions.iter().try_for_each(|(pause_ms, action)| write!(f, "\n  {action:?}, {pause_ms} ms"))
    }
}

fn queue(rng: &mut Rng) -> Queue {
    let mut preemption =
        json!({"withinClusterQueue": rng.pick(&["Never", "LowerPriority", "LowerOrNewerEqualPriority"])});
    let in_cohort = rng.percent(60);
    if in_cohort {
        preemption["reclaimWithinCohort"] = json!(rng.pick(&["Never", "LowerPriority", "Any"]));
    }
    let borrows_at_most = (in_cohort && rng.percent(40)).then(|| rng.within(0, 4));
    Queue { cpus: rng.within(2, 8), in_cohort, borrows_at_most, preemption }
}

/// Often little, sometimes minutes.
fn pause_ms(rng: &mut Rng) -> u64 {
    match rng.within(0, 9) {
        0..=2 => 1,
        3..=5 => rng.within(1, 500),
        6..=8 => rng.within(500, 20_000),
        _ => rng.within(20_000, 200_000),
    }
}

fn draw(rng: &mut Rng) -> Action {
    let nth = rng.next();
    match rng.within(0, 99) {
        0..=28 => Action::Submit(submission(rng)),
        29..=30 => Action::OrphanJob(nth),
        31..=32 => Action::AddFinalizer(nth),
        33..=34 => Action::LeaveQueue(nth),
        35..=39 => Action::DeleteJob(nth),
        40..=44 => Action::DeleteWorkload(nth),
        45..=48 => Action::ChangeQueue(nth, rng.next()),
        49..=55 => Action::Suspend(nth, rng.percent(50)),
        56..=61 => Action::Resize(nth, rng.within(1, 6)),
        62..=65 => Action::Activate(nth, false),
        66..=68 => Action::Activate(nth, true),
        69..=71 => Action::DeletePod(nth),
        72..=74 => Action::FailPod(nth),
        75..=77 => Action::Drain(nth),
        78..=79 => Action::Uncordon(nth),
        80..=85 => Action::SetQuota(nth, rng.within(0, 12)),
        86..=91 => Action::Stop(nth, rng.pick(&["None", "Hold", "HoldAndDrain"])),
        92..=94 => Action::RestartController,
        _ => Action::Crash(usize::try_from(rng.within(1, 12)).unwrap()),
    }
}

fn submission(rng: &mut Rng) -> Submission {
    let kind = rng.pick(&["Job", "Job", "Job", "RayJob", "RayCluster", "JobSet", "Pods"]);
    let pods = rng.within(1, 6);
    let is_elastic = kind == "Job" && rng.percent(30);
    let least = (kind == "Job" && !is_elastic && rng.percent(30)).then(|| rng.within(1, pods));
    let priority = rng.pick(&["", "low", "high"]);
    let run_time = rng.pick(&["10s", "60s", "600s", "600000s"]);
    Submission { kind, pods, queue: rng.next(), priority, is_elastic, least, run_time }
}
