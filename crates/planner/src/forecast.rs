//! Simulates the future on a copy of the cluster state: every gang ends at its expected end, no gang arrives,
//! and after each end `plan` runs as it would then. So no scheduling rule is implemented twice.

use std::collections::{BTreeMap, BTreeSet};

use model::{Event, Forecast, ForecastCopy, ForecastStart, Gang, GangState, Plan, Time, Verdict, World};

use crate::plan;

/// The number of plans in one forecast. Later starts are not predicted.
const PLANS_MAX: usize = 2_000;
/// The number of plans at one point in time.
const ROUNDS_MAX: usize = 16;
/// The least run time of a gang that declares none, in microseconds.
const RUNTIME_MIN_US: i64 = 60_000_000;

/// Predicts when pending gangs start if every gang ends at its expected end and no gang arrives.
///
/// A gang that overruns, or declares no run time, ends as [`Gang::expected_end`] says. A pending gang that
/// declares none runs as long as the running gangs without one do on average. Victims end at once. A start
/// after an undeclared end is marked as such. Total: stops after 2,000 plans.
pub fn forecast(forecast_copy: ForecastCopy, now: Time) -> Forecast {
    let (world, is_partial) = forecast_copy.into_world();
    let mut simulation = Simulation::of(world, now);
    simulation.plan_until_stable();
    while simulation.plans < PLANS_MAX && simulation.has_pending() && simulation.advance() {
        simulation.plan_until_stable();
    }
    let waiting = simulation.world.gangs().filter(|gang| gang.state == GangState::Waiting);
    let without_start =
        waiting.map(|gang| gang.uid.clone()).filter(|uid| !simulation.starts.contains_key(uid));
    let without_start = without_start.collect();
    let last = simulation.starts.values().map(|forecast| forecast.start).max();
    Forecast { at: now, without_start, not_before: last.filter(|_| is_partial), starts: simulation.starts }
}

struct Simulation {
    world: World,
    now: Time,
    plans: usize,
    /// The expected ends of the gangs that hold resources, and whether each was declared.
    ends: BTreeMap<(Time, String), bool>,
    /// Whether all ends so far were declared.
    declared: bool,
    /// The gangs that ended last, all at one time, and the nodes that each one freed.
    ended: Vec<(String, BTreeSet<String>)>,
    /// The run time of a gang that declares none, in microseconds.
    default_runtime_us: i64,
    starts: BTreeMap<String, ForecastStart>,
}

impl Simulation {
    fn of(world: World, now: Time) -> Self {
        let holders = || world.gangs().filter(|gang| gang.state.holds());
        let ends = holders().map(|gang| {
            let (end, declared) = gang.expected_end(now);
            ((end, gang.uid.clone()), declared)
        });
        let undeclared = holders().filter(|gang| gang.runs_us.is_none());
        let runs = undeclared.filter_map(|gang| Some(gang.expected_end(now).0.since(gang.started_at?)));
        let (sum, count) =
            runs.fold((0_i64, 0_i64), |(sum, count), run| (sum.saturating_add(run), count + 1));
        Self {
            now,
            plans: 0,
            ends: ends.collect(),
            declared: true,
            ended: Vec::new(),
            default_runtime_us: (sum / count.max(1)).max(RUNTIME_MIN_US),
            starts: BTreeMap::new(),
            world,
        }
    }

    fn has_pending(&self) -> bool {
        self.world.active().next().is_some() || self.world.parked().next().is_some()
    }

    /// Advances to the next end and removes the gangs that end then, or to the time at which a guessed start no longer
    /// holds others back. Returns false when no end is left.
    fn advance(&mut self) -> bool {
        let Some((&(end, _), _)) = self.ends.first_key_value() else { return false };
        let holds = self.world.reserved().iter().filter_map(|reserved| reserved.hold.until());
        let now = holds.filter(|until| *until > self.now).min().map_or(end, |until| until.min(end));
        self.declared &= now == end;
        self.now = now;
        self.world.apply(Event::Clock(now));
        self.ended.clear();
        while let Some(entry) = self.ends.first_entry().filter(|entry| entry.key().0 == now) {
            let ((_, uid), declared) = entry.remove_entry();
            self.declared &= declared;
            let nodes = self.world.allocated_to(&uid).into_iter();
            let nodes = nodes.map(|(node, _)| self.world.node_name(node).to_string()).collect();
            self.remove_pods(&uid);
            self.world.apply(Event::GangRemoved(uid.clone()));
            self.ended.push((uid, nodes));
        }
        true
    }

    /// Plans until a plan changes nothing at this time.
    fn plan_until_stable(&mut self) {
        for _ in 0..ROUNDS_MAX {
            self.remove_victims();
            self.plans += 1;
            let plan = plan(&self.world.snapshot(self.now));
            let moves = plan.verdicts.iter().any(|(_, verdict)| verdict.shortage().is_none());
            let started: Vec<String> = self.starting(&plan).map(str::to_owned).collect();
            self.world.apply(Event::Planned(plan));
            for uid in started {
                self.start(&uid);
            }
            if !moves {
                break;
            }
        }
    }

    /// The gangs that a plan starts, without scale-ups.
    fn starting<'p>(&self, plan: &'p Plan) -> impl Iterator<Item = &'p str> {
        let admits = plan.verdicts.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Admit(_)));
        admits.map(|(uid, _)| uid.as_str()).filter(|uid| {
            let state = self.world.gang(uid).map(|gang| &gang.state);
            matches!(state, Some(GangState::Waiting | GangState::Nominated(_)))
        })
    }

    fn start(&mut self, uid: &str) {
        let Some(gang) = self.world.gang(uid) else { return };
        let Some(places) = gang.state.assignment() else { return };
        let started = Gang { started_at: Some(self.now), ..gang.clone() };
        let run = gang.runs_us.filter(|run| *run > 0);
        self.ends
            .insert((self.now.after(run.unwrap_or(self.default_runtime_us)), uid.to_owned()), run.is_some());
        let near = |(_, nodes): &&(String, BTreeSet<String>)| places.nodes().any(|node| nodes.contains(node));
        let after = self.ended.iter().rev().find(near).or(self.ended.last()).map(|(uid, _)| uid.clone());
        let forecast = ForecastStart { start: self.now, declared: self.declared, after };
        self.starts.entry(uid.to_owned()).or_insert(forecast);
        self.world.apply(Event::GangUpserted(started));
    }

    /// Requeues victims, and removes bound pods of gangs that hold no assignment.
    fn remove_victims(&mut self) {
        let nominated = self.world.nominated().filter_map(|gang| match &gang.state {
            GangState::Nominated(preemption) => Some(preemption),
            GangState::Waiting | GangState::Reserved(_) | GangState::Unplaced => None,
        });
        let victims: Vec<String> =
            nominated.flat_map(|preemption| preemption.victim_uids().map(str::to_owned)).collect();
        for uid in victims {
            let Some(gang) = self.world.gang(&uid).filter(|gang| gang.state.holds()) else { continue };
            let stopped = Gang { state: GangState::Waiting, started_at: None, ..gang.clone() };
            self.ends.retain(|(_, other), _| *other != uid);
            self.world.apply(Event::GangUpserted(stopped));
        }
        let leaving: Vec<String> = self.world.terminating_gangs().map(str::to_owned).collect();
        for uid in leaving {
            self.remove_pods(&uid);
        }
    }

    /// Removes the pods of a gang.
    fn remove_pods(&mut self, uid: &str) {
        let pods: Vec<String> = self.world.pods_of(uid).map(|pod| pod.uid.clone()).collect();
        for uid in pods {
            self.world.apply(Event::PodRemoved(uid));
        }
    }
}
