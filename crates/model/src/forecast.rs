//! The forecast: expected start times of pending gangs.

use std::collections::{BTreeMap, BTreeSet};

use crate::amount::Time;

/// The expected start of a gang, computed from the expected ends of other gangs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForecastStart {
    /// The expected start.
    pub start: Time,
    /// The start depends only on declared run times.
    pub declared: bool,
    /// The uid of the last gang that has to end before the start. `None` when the gangs that are terminating free
    /// enough.
    pub after: Option<String>,
}

/// The expected starts of pending gangs, if every gang ends at its expected end and no new gang arrives. A forecast
/// reserves nothing, and no decision depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forecast {
    /// The time of the forecast.
    pub at: Time,
    /// The expected starts by uid.
    pub starts: BTreeMap<String, ForecastStart>,
    /// The uids of the gangs for which the simulation found no start.
    pub without_start: BTreeSet<String>,
    /// The latest of the expected starts, when gangs behind all simulated gangs were left out. These gangs start
    /// later.
    pub not_before: Option<Time>,
}

impl Forecast {
    /// The expected start of the gang of this uid, which is pending since `queued_at`. A gang that the simulation
    /// left out starts after all simulated gangs. For a gang that was queued after the forecast, the start is
    /// unknown.
    pub fn of(&self, uid: &str, queued_at: Time) -> Option<ForecastStart> {
        let not_before = || {
            let is_behind = queued_at <= self.at && !self.without_start.contains(uid);
            let start = self.not_before.filter(|_| is_behind)?;
            Some(ForecastStart { start, declared: false, after: None })
        };
        self.starts.get(uid).cloned().or_else(not_before)
    }
}
