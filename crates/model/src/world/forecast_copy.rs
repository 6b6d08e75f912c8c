//! A copy of the world to try the future on: with everybody who holds capacity, and the first of those who wait.

use std::collections::{BTreeMap, BTreeSet};

use super::World;
use super::demand::Demand;
use super::shapes::{GangIx, Shapes};
use super::slips::Slips;
use crate::amount::Time;
use crate::forecast::Forecast;
use crate::gang::{Gang, GangState};
use crate::plan::Reservation;

/// See the module. It is made in two steps, so that whoever keeps the world waits for the first one only.
#[derive(Clone, Debug)]
pub struct ForecastCopy {
    /// Everything but the gangs.
    world: World,
    gangs: Vec<Gang>,
    reserved: Vec<Reservation>,
    is_partial: bool,
}

impl ForecastCopy {
    /// The world; who waits there was told nothing yet. And whether others wait, behind all that wait there.
    pub fn into_world(self) -> (World, bool) {
        let Self { mut world, gangs, reserved, is_partial } = self;
        for gang in gangs {
            world.upsert_gang(gang);
        }
        world.reserved = reserved;
        (world, is_partial)
    }
}

impl World {
    /// A copy in which only the first `most` gangs wait, in the order of their turns at `now`; costs a fraction of a copy of
    /// everything where many wait.
    pub fn forecast_copy(&self, most: usize, now: Time) -> ForecastCopy {
        let (first, is_partial) = self.first_waiting(most, now);
        let world = Self {
            generation: self.generation,
            policy: self.policy.clone(),
            reserved: Vec::new(),
            resources: self.resources.clone(),
            pods: self.pods.clone(),
            pods_of: self.pods_of.clone(),
            gangs: BTreeMap::new(),
            ledger: self.ledger.clone(),
            classes: self.classes.clone(),
            demand: Demand::default(),
            domains: self.domains.clone(),
            quotas: self.quotas.clone(),
            usages: self.usages.clone(),
            shapes: Shapes::default(),
            preemptions: self.preemptions.clone(),
            slips: Slips::default(),
            forecast: Forecast::default(),
        };
        let rows = self.gangs.values().map(|ix| (ix, &self.shapes.row(*ix).gang));
        let rows = rows.filter(|(ix, gang)| gang.state != GangState::Waiting || first.contains(ix));
        let gangs = rows.map(|(_, gang)| gang.clone()).collect();
        ForecastCopy { world, gangs, reserved: self.reserved.clone(), is_partial }
    }

    /// The first `most` of the gangs that wait, and whether there are more.
    fn first_waiting(&self, most: usize, now: Time) -> (BTreeSet<GangIx>, bool) {
        let starts = self.shapes.rows().filter(|row| row.shape.scale_up.is_none());
        let mut rows: Vec<_> = starts.map(|row| (row.slope, row.waiting.iter())).collect();
        let (count, mut next) = (rows.len(), BTreeMap::new());
        let mut first = BTreeSet::new();
        let mut advance = |at: usize, next: &mut BTreeMap<_, _>| {
            let (slope, places) = &mut rows[at];
            next.extend(places.next().map(|place| ((place.sort_key(*slope, now), place.gang), at)));
        };
        (0..count).for_each(|at| advance(at, &mut next));
        while first.len() < most
            && let Some(((_, gang), at)) = next.pop_first()
        {
            first.insert(gang);
            advance(at, &mut next);
        }
        (first, !next.is_empty())
    }
}
