//! Computes the expected start times of pending gangs in the background, on a copy of the world, when the world has
//! changed. A forecast takes at most a tenth of the time; copying the world blocks the loop for at most a hundredth
//! of the time.

use std::sync::PoisonError;
use std::time::Instant;

use api::MicroTime;
use index::Index;
use model::{Forecast, ForecastCopy, Time};

use super::State;
use crate::observations::Observation;

/// Maximum number of pending gangs in a forecast, in queue order.
const GANGS_MAX: usize = 1_000;
/// Minimum delay between two forecasts, in microseconds.
const PAUSE_MIN_US: i64 = 1_000_000;
/// The delay after a forecast, as a multiple of its duration.
const PAUSE_PER_FORECAST: i64 = 10;
/// The delay after a forecast, as a multiple of the time that the copy took.
const PAUSE_PER_COPY: i64 = 100;

/// State of the background forecast.
#[derive(Debug, Default)]
pub(super) struct Forecaster {
    is_running: bool,
    /// Generation of the world in the last forecast.
    last_generation: Option<u64>,
    /// No further forecast before this time.
    not_before: Option<MicroTime>,
    /// When the next forecast is due, if one is needed.
    due: Option<MicroTime>,
}

impl Forecaster {
    /// When the next forecast is due.
    pub(super) fn due(&self) -> Option<MicroTime> {
        self.due
    }
}

/// The part of the world that a forecast needs.
fn forecast_copy(index: &Index, now: MicroTime) -> ForecastCopy {
    index.world().forecast_copy(GANGS_MAX, Time(now.0))
}

/// Computes the forecast at once.
pub(super) fn forecast_now(index: &mut Index, now: MicroTime) {
    let copy = forecast_copy(index, now);
    index.forecast(planner::forecast(copy, Time(now.0)));
}

impl State {
    /// Starts a forecast in the background if the world has changed since the last one.
    pub(super) fn start_forecast(&mut self) {
        let now = self.now();
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        let world = index.world();
        let (generation, forecast) = (world.generation(), &mut self.forecast);
        forecast.due = None;
        if !self.has_synced || forecast.is_running || forecast.last_generation == Some(generation) {
            return;
        }
        if world.active().chain(world.parked()).next().is_none() {
            return; // No gang is pending.
        }
        if let Some(pause) = forecast.not_before.filter(|pause| *pause > now) {
            forecast.due = Some(pause);
            return;
        }
        let began = Instant::now();
        let forecast_copy = forecast_copy(&index, now);
        let copied = micros(began).saturating_mul(PAUSE_PER_COPY);
        drop(index);
        (forecast.is_running, forecast.last_generation) = (true, Some(generation));
        let observations = self.observations.clone();
        tokio::task::spawn_blocking(move || {
            let began = Instant::now();
            let forecast = planner::forecast(forecast_copy, Time(now.0));
            let pause_us = copied.max(micros(began).saturating_mul(PAUSE_PER_FORECAST)).max(PAUSE_MIN_US);
            // The receiver is gone when the controller has ended.
            drop(observations.send(Observation::Forecast { forecast: Box::new(forecast), pause_us }));
        });
    }

    /// Plans, and computes the forecast at once.
    pub(super) fn plan_and_forecast(&mut self) {
        self.plan();
        forecast_now(&mut Self::index(&self.index), self.now());
    }

    /// Applies a forecast. The next one starts after `pause_us` microseconds at the earliest.
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

/// Elapsed time in microseconds.
fn micros(began: Instant) -> i64 {
    i64::try_from(began.elapsed().as_micros()).unwrap_or(i64::MAX)
}
