//! What operators and authors do, drawn from a seed.

use std::fmt;

use crate::chaos::authors::{self, Submission};
use crate::chaos::link::Weather;
use crate::chaos::rng::Rng;

/// One action. Numbers select one of the objects that exist at that time.
#[derive(Debug, Clone)]
pub(crate) enum Action {
    Submit(Submission),
    DeleteWrapper(u64),
    DeletePod(u64),
    DeleteObject(u64),
    HoldObject(u64),
    RelabelWrapper(u64, &'static str),
    Reprioritize(u64, u64),
    ScaleObject(u64, u64),
    SuspendJob(u64),
    ResumeJob(u64),
    Cordon(u64),
    Uncordon(u64),
    Drain(u64),
    Taint(u64, &'static str),
    LoseNode(u64),
    ReconnectNode(u64),
    DeleteNode(u64),
    AddNode(u64),
    RelabelNode(u64),
    SetQuota(u64),
    RestartController,
    ReleaseLease,
    StepClock(i64),
    CutLink,
    MendLink,
    DropWatches,
    SetWeather(Weather),
    CalmWeather,
}

/// A run: how the controllers are configured, and what happens.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) seed: u64,
    pub(crate) preemption: bool,
    pub(crate) quota: bool,
    /// Two controllers with election, instead of one without.
    pub(crate) election: bool,
    /// Each action, and the milliseconds before it.
    pub(crate) actions: Vec<(u64, Action)>,
}

impl Script {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let (preemption, quota, election) = (rng.percent(50), rng.percent(30), rng.percent(30));
        let count = rng.within(10, 30);
        let mut submitted = 0;
        let actions = (0..count).map(|_| (pause_ms(&mut rng), draw(&mut rng, &mut submitted))).collect();
        Self { seed, preemption, quota, election, actions }
    }
}

impl fmt::Display for Script {
    /// One action a line, after the milliseconds before it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, preemption, quota, election, actions } = self;
        write!(f, "seed {seed}, preemption {preemption}, quota {quota}, election {election}")?;
        actions.iter().try_for_each(|(pause_ms, action)| write!(f, "\n  {pause_ms} ms: {action:?}"))
    }
}

/// Often nothing or little, sometimes minutes.
fn pause_ms(rng: &mut Rng) -> u64 {
    match rng.within(0, 9) {
        0..=2 => 0,
        3..=5 => rng.within(1, 500),
        6..=8 => rng.within(500, 20_000),
        _ => rng.within(20_000, 400_000),
    }
}

fn draw(rng: &mut Rng, submitted: &mut u64) -> Action {
    let nth = rng.next();
    let name = format!("w-{submitted}");
    let other = format!("w-{}", rng.within(0, *submitted));
    match rng.within(0, 99) {
        0..=21 => {
            *submitted += 1;
            Action::Submit(authors::ordinary(rng, &name))
        }
        22..=30 => {
            *submitted += 1;
            Action::Submit(authors::hostile(rng, &name, &other))
        }
        31 => Action::DeleteObject(nth),
        32 => Action::HoldObject(nth),
        33 => Action::RelabelWrapper(nth, rng.pick(&["gold", "bronze"])),
        34 => Action::Reprioritize(nth, rng.within(0, 9)),
        35..=39 => Action::DeleteWrapper(nth),
        40..=44 => Action::DeletePod(nth),
        45..=49 => Action::ScaleObject(nth, rng.within(0, 6)),
        50..=52 => Action::SuspendJob(nth),
        53..=54 => Action::ResumeJob(nth),
        55..=57 => Action::Cordon(nth),
        58..=59 => Action::Uncordon(nth),
        60..=64 => Action::Drain(nth),
        65..=67 => Action::Taint(nth, rng.pick(&["NoSchedule", "PreferNoSchedule", "NoExecute"])),
        68..=70 => Action::LoseNode(nth),
        71..=73 => Action::ReconnectNode(nth),
        74..=76 => Action::DeleteNode(nth),
        77..=79 => Action::AddNode(nth),
        80 => Action::RelabelNode(nth),
        81..=84 => Action::SetQuota(rng.within(0, 16)),
        85..=87 => Action::RestartController,
        88 => Action::ReleaseLease,
        89 => Action::StepClock(rng.pick(&[-3_600, -60, -1, 1, 60, 3_600])),
        90..=91 => Action::CutLink,
        92..=93 => Action::MendLink,
        94..=95 => Action::DropWatches,
        96..=97 => Action::SetWeather(Weather {
            refused_permille: rng.pick(&[0, 50, 300]),
            lost_permille: rng.pick(&[0, 50, 200]),
            delay_ms: rng.pick(&[0, 100, 5_000]),
        }),
        _ => Action::CalmWeather,
    }
}
