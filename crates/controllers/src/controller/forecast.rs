//! When waiting gangs are expected to start: looked at beside the loop, on a copy of the world, once something has changed; for no
//! more than a tenth of the time, and the loop waits for no more than a hundredth of it.

use std::sync::PoisonError;
use std::time::Instant;

use api::MicroTime;
use index::Index;
use model::{Excerpt, Forecast, Time};

use super::State;
use crate::observations::Observation;

/// Most waiting gangs that are looked at, the first ones.
const GANGS_MAX: usize = 1_000;
/// Least pause between two looks, microseconds.
const PAUSE_MIN_US: i64 = 1_000_000;
/// A look that took long is followed by a pause so many times as long.
const PAUSE_PER_FORECAST: i64 = 10;
/// Likewise for the copy that the loop has to wait for.
const PAUSE_PER_COPY: i64 = 100;

/// What was looked at last.
#[derive(Debug, Default)]
pub(super) struct Forecaster {
    is_running: bool,
    /// Generation of the world that was looked at.
    last_generation: Option<u64>,
    /// No further look before.
    not_before: Option<MicroTime>,
    /// When the next look is due, if anything is to be looked at.
    due: Option<MicroTime>,
}

impl Forecaster {
    /// When the next look is due.
    pub(super) fn due(&self) -> Option<MicroTime> {
        self.due
    }
}

/// A copy of what is known, to be looked at.
pub(super) fn excerpt(index: &Index, now: MicroTime) -> Excerpt {
    index.world().excerpt(GANGS_MAX, Time(now.0))
}

impl State {
    /// Begins to look ahead, if there is anything new.
    pub(super) fn start_forecast(&mut self) {
        let now = self.now();
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        let world = index.world();
        let (generation, forecast) = (world.generation(), &mut self.forecast);
        forecast.due = None;
        if !self.has_synced || forecast.is_running || forecast.last_generation == Some(generation) {
            return;
        }
        if world.awake().chain(world.parked()).next().is_none() {
            return; // Nobody waits.
        }
        if let Some(pause) = forecast.not_before.filter(|pause| *pause > now) {
            forecast.due = Some(pause);
            return;
        }
        let began = Instant::now();
        let excerpt = excerpt(&index, now);
        let copied = micros(began).saturating_mul(PAUSE_PER_COPY);
        drop(index);
        (forecast.is_running, forecast.last_generation) = (true, Some(generation));
        let observations = self.observations.clone();
        tokio::task::spawn_blocking(move || {
            let began = Instant::now();
            let forecast = planner::forecast(excerpt, Time(now.0));
            let pause_us = copied.max(micros(began).saturating_mul(PAUSE_PER_FORECAST)).max(PAUSE_MIN_US);
            // Nobody listens any more when the controller ends.
            drop(observations.send(Observation::Forecast { forecast: Box::new(forecast), pause_us }));
        });
    }

    /// Plans, and looks ahead at once.
    pub(super) fn plan_and_forecast(&mut self) {
        self.plan();
        let now = self.now();
        let mut index = Self::index(&self.index);
        let excerpt = excerpt(&index, now);
        index.forecast(planner::forecast(excerpt, Time(now.0)));
    }

    /// What a look has shown; and how long not to look again, microseconds.
    pub(super) fn fold_forecast(
        &mut self,
        index: &mut Index,
        forecast: Forecast,
        pause_us: i64,
        now: MicroTime,
    ) {
        self.forecast.is_running = false;
        self.forecast.not_before = Some(MicroTime(now.0.saturating_add(pause_us)));
        index.forecast(forecast);
        self.has_new_forecast = true;
    }
}

/// How long ago that was, microseconds.
fn micros(began: Instant) -> i64 {
    i64::try_from(began.elapsed().as_micros()).unwrap_or(i64::MAX)
}
