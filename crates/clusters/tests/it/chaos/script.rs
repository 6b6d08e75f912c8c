//! What users and operators do at the hub and in its workers, drawn from a seed.

use std::fmt;

use super::rng::Rng;

/// The workers, by number.
pub(crate) const NAMES: [&str; 3] = ["east", "north", "west"];

/// A job to be created.
#[derive(Debug, Clone)]
pub(crate) struct Submission {
    pub(crate) pods: u64,
    pub(crate) run_time: &'static str,
}

/// One action. Numbers select one of the objects that exist at that time; names are those of workers.
#[derive(Debug, Clone)]
pub(crate) enum Action {
    Submit(Submission),
    Delete(u64),
    /// A job is deleted, and another one of its name created.
    Recreate(u64, Submission),
    /// A Workload of the hub is deleted; its job gets another one.
    DeleteWorkload(u64),
    Activate(u64, bool),
    Suspend(u64, bool),
    SetHubQuota(u64),
    StopHub(&'static str),
    SetQuota(&'static str, u64),
    Stop(&'static str, &'static str),
    Cut(&'static str),
    Restore(&'static str),
    /// Writes and answers are lost on the line, or no longer.
    Lose(&'static str, bool),
    /// Nothing is left of a worker.
    Reset(&'static str),
    Revoke(&'static str),
    Reinstate(&'static str),
    /// A worker is none any more, as the hub sees it.
    Leave(&'static str),
    Join(&'static str),
    EvictRemote(&'static str, u64),
    DeleteRemoteJob(&'static str, u64),
    DeleteRemoteWorkload(&'static str, u64),
    /// Somebody creates a job of the name that the next job of the hub has, or of one that is there.
    Occupy(&'static str, u64),
    Vacate(&'static str),
    Restart,
    /// The loop is killed after so many writes from now on.
    Crash(usize),
    /// The controllers of the hub begin anew.
    RestartHub,
}

/// A run: the CPUs of the hub and its workers, and what happens.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) seed: u64,
    pub(crate) hub: u64,
    pub(crate) workers: Vec<(&'static str, u64)>,
    /// Clusters are asked one after the other.
    pub(crate) is_incremental: bool,
    /// Each action, and the milliseconds after it.
    pub(crate) actions: Vec<(u64, Action)>,
}

impl Script {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let count = usize::try_from(rng.within(2, 3)).unwrap();
        let workers: Vec<_> = NAMES.into_iter().take(count).map(|name| (name, rng.within(2, 8))).collect();
        let total = workers.iter().map(|(_, cpus)| cpus).sum::<u64>();
        let hub = if rng.percent(50) { total } else { rng.within(3, total + 8) };
        let names: Vec<&'static str> = workers.iter().map(|(name, _)| *name).collect();
        let is_incremental = rng.percent(30);
        let count = rng.within(16, 30);
        let actions = (0..count).map(|_| (pause_ms(&mut rng), draw(&mut rng, &names))).collect();
        Self { seed, hub, workers, is_incremental, actions }
    }
}

impl fmt::Display for Script {
    /// The clusters, and then one action a line before the milliseconds after it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, hub, workers, is_incremental, actions } = self;
        write!(f, "seed {seed}, hub {hub}, workers {workers:?}, incremental {is_incremental}")?;
        actions.iter().try_for_each(|(pause_ms, action)| write!(f, "\n  {action:?}, {pause_ms} ms"))
    }
}

/// Often little, sometimes longer than a worker may be away.
fn pause_ms(rng: &mut Rng) -> u64 {
    match rng.within(0, 9) {
        0..=2 => 1,
        3..=4 => rng.within(1, 500),
        5..=7 => rng.within(500, 20_000),
        8 => rng.within(20_000, 100_000),
        _ => rng.within(100_000, 400_000),
    }
}

fn draw(rng: &mut Rng, names: &[&'static str]) -> Action {
    let nth = rng.next();
    let name = rng.pick(names);
    match rng.within(0, 99) {
        0..=27 => Action::Submit(submission(rng)),
        28..=33 => Action::Delete(nth),
        34..=36 => Action::Recreate(nth, submission(rng)),
        37..=39 => Action::DeleteWorkload(nth),
        40..=44 => Action::Activate(nth, rng.percent(40)),
        45..=46 => Action::Suspend(nth, rng.percent(50)),
        47..=49 => Action::SetHubQuota(rng.within(0, 12)),
        50 => Action::StopHub(rng.pick(&["None", "Hold", "HoldAndDrain"])),
        51..=54 => Action::SetQuota(name, rng.within(0, 8)),
        55..=58 => Action::Stop(name, rng.pick(&["None", "Hold", "HoldAndDrain"])),
        59..=64 => Action::Cut(name),
        65..=69 => Action::Restore(name),
        70..=72 => Action::Lose(name, rng.percent(70)),
        73..=74 => Action::Reset(name),
        75..=76 => Action::Revoke(name),
        77..=78 => Action::Reinstate(name),
        79 => Action::Leave(name),
        80 => Action::Join(name),
        81..=83 => Action::EvictRemote(name, nth),
        84..=85 => Action::DeleteRemoteJob(name, nth),
        86..=87 => Action::DeleteRemoteWorkload(name, nth),
        88..=90 => Action::Occupy(name, nth),
        91 => Action::Vacate(name),
        92..=93 => Action::Restart,
        94..=98 => Action::Crash(usize::try_from(rng.within(1, 10)).unwrap()),
        _ => Action::RestartHub,
    }
}

fn submission(rng: &mut Rng) -> Submission {
    Submission { pods: rng.within(1, 4), run_time: rng.pick(&["10s", "60s", "600s", "600000s", "600000s"]) }
}
