//! The future, played on a copy of the world: everybody ends when that is expected, nobody else comes, and after each end is
//! planned as it would be then. So a start is foreseen by the rules that will decide about it, of which there is no second copy.

use std::collections::{BTreeMap, BTreeSet};

use model::{Event, Excerpt, Forecast, ForecastStart, Gang, GangState, Plan, Time, Verdict, World};

use crate::plan;

/// More plans than this are not made: what would be decided later is not foreseen.
const PLANS_MAX: usize = 2_000;
/// More plans than this are not made at one time.
const ROUNDS_MAX: usize = 16;
/// A gang that declares no end runs for so long at least, in microseconds.
const RUN_LEAST_US: i64 = 60_000_000;

/// When those who wait will start if everybody ends when that is expected and nobody else comes.
///
/// Who runs longer than declared, or declared nothing, is expected to end as [`Gang::expected_end`] says; who waits and declares
/// nothing, to run as long as those on average who run and declared nothing. Victims are gone at once. A start that comes
/// after an end that was guessed is no more than a guess. Total: stops looking after 2,000 plans.
pub fn forecast(excerpt: Excerpt, now: Time) -> Forecast {
    let (world, is_partial) = excerpt.into_world();
    let mut future = Future::of(world, now);
    future.unfold();
    while future.plans < PLANS_MAX && future.waits() && future.pass_time() {
        future.unfold();
    }
    let waiting = future.world.gangs().filter(|gang| gang.state == GangState::Waiting);
    let unforeseen = waiting.map(|gang| gang.uid.clone()).filter(|uid| !future.starts.contains_key(uid));
    let unforeseen = unforeseen.collect();
    let last = future.starts.values().map(|forecast| forecast.start).max();
    Forecast { at: now, unforeseen, beyond: last.filter(|_| is_partial), starts: future.starts }
}

struct Future {
    world: World,
    now: Time,
    plans: usize,
    /// The gangs that hold capacity, by when they end; and whether that was declared.
    ends: BTreeMap<(Time, String), bool>,
    /// Whether all ends so far were declared.
    declared: bool,
    /// Who ended last, all at one time: the nodes that each gave back.
    ended: Vec<(String, BTreeSet<String>)>,
    /// How long a gang runs that declares nothing, in microseconds.
    usual_us: i64,
    starts: BTreeMap<String, ForecastStart>,
}

impl Future {
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
            usual_us: (sum / count.max(1)).max(RUN_LEAST_US),
            starts: BTreeMap::new(),
            world,
        }
    }

    fn waits(&self) -> bool {
        self.world.awake().next().is_some() || self.world.parked().next().is_some()
    }

    /// Goes to when the next gangs end, and lets these go. False when nobody ends any more.
    fn pass_time(&mut self) -> bool {
        let Some((&(now, _), _)) = self.ends.first_key_value() else { return false };
        self.now = now;
        self.world.apply(Event::Clock(now));
        self.ended.clear();
        while let Some(entry) = self.ends.first_entry().filter(|entry| entry.key().0 == now) {
            let ((_, uid), declared) = entry.remove_entry();
            self.declared &= declared;
            let nodes = self.world.taken_by(&uid).into_iter();
            let nodes = nodes.map(|(node, _)| self.world.node_name(node).to_string()).collect();
            self.clear(&uid);
            self.world.apply(Event::GangRemoved(uid.clone()));
            self.ended.push((uid, nodes));
        }
        true
    }

    /// Plans until nothing follows any more at this time.
    fn unfold(&mut self) {
        for _ in 0..ROUNDS_MAX {
            self.clear_places();
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

    /// Those whom a plan starts, not those who grow.
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
        self.ends.insert((self.now.after(run.unwrap_or(self.usual_us)), uid.to_owned()), run.is_some());
        let near = |(_, nodes): &&(String, BTreeSet<String>)| places.nodes().any(|node| nodes.contains(node));
        let after = self.ended.iter().rev().find(near).or(self.ended.last()).map(|(uid, _)| uid.clone());
        let forecast = ForecastStart { start: self.now, declared: self.declared, after };
        self.starts.entry(uid.to_owned()).or_insert(forecast);
        self.world.apply(Event::GangUpserted(started));
    }

    /// Victims wait again, and pods of those who hold nothing are gone.
    fn clear_places(&mut self) {
        let nominated = self.world.nominated().filter_map(|gang| match &gang.state {
            GangState::Nominated(preemption) => Some(preemption),
            GangState::Waiting | GangState::Reserved(_) | GangState::Unplaced => None,
        });
        let victims: Vec<String> =
            nominated.flat_map(|preemption| preemption.stopped().map(str::to_owned)).collect();
        for uid in victims {
            let Some(gang) = self.world.gang(&uid).filter(|gang| gang.state.holds()) else { continue };
            let stopped = Gang { state: GangState::Waiting, started_at: None, ..gang.clone() };
            self.ends.retain(|(_, other), _| *other != uid);
            self.world.apply(Event::GangUpserted(stopped));
        }
        let leaving: Vec<String> = self.world.leaving().map(str::to_owned).collect();
        for uid in leaving {
            self.clear(&uid);
        }
    }

    /// The pods of a gang are gone.
    fn clear(&mut self, uid: &str) {
        let pods: Vec<String> = self.world.pods_of(uid).map(|pod| pod.uid.clone()).collect();
        for uid in pods {
            self.world.apply(Event::PodRemoved(uid));
        }
    }
}
