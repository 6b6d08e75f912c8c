//! A copy of the world for a forecast: all gangs that hold capacity, and the first pending gangs.

use std::collections::{BTreeMap, BTreeSet};

use super::World;
use super::demand::Demand;
use super::indices::GangIx;
use super::shapes::Shapes;
use super::slips::Slips;
use crate::amount::Time;
use crate::forecast::Forecast;
use crate::gang::{Gang, GangState};
use crate::plan::Reservation;

/// See the module. The copy is completed in [`ForecastCopy::into_world`], so that the owner of the world is blocked
/// only for the first step.
#[derive(Clone, Debug)]
pub struct ForecastCopy {
    /// The world without gangs.
    world: World,
    gangs: Vec<Gang>,
    reserved: Vec<Reservation>,
    is_partial: bool,
}

impl ForecastCopy {
    /// The copied world, whose pending gangs have no verdict yet; and whether pending gangs behind them were left
    /// out.
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
    /// Copies the world with the first `most` pending gangs in the order at `now`. This is much cheaper than a full
    /// copy when many gangs are pending.
    pub fn forecast_copy(&self, most: usize, now: Time) -> ForecastCopy {
        let (first, is_partial) = self.first_waiting(most, now);
        let world = Self {
            generation: self.generation,
            policy: self.policy.clone(),
            reserved: Vec::new(),
            resources: self.resources.clone(),
            pods: self.pods.clone(),
            pods_of: self.pods_of.clone(),
            unsettled: self.unsettled.clone(),
            gangs: BTreeMap::new(),
            ledger: self.ledger.clone(),
            classes: self.classes.clone(),
            demand: Demand::default(),
            domains: self.domains.clone(),
            quotas: self.quotas.clone(),
            usages: self.usages.clone(),
            shapes: Shapes::default(),
            preemptions: self.preemptions.clone(),
            without_room: BTreeMap::new(),
            slips: Slips::default(),
            holds: self.holds.clone(),
            forecast: Forecast::default(),
        };
        let rows = self.gangs.values().map(|ix| (ix, &self.shapes.row(*ix).gang));
        let rows = rows.filter(|(ix, gang)| gang.state != GangState::Waiting || first.contains(ix));
        let gangs = rows.map(|(_, gang)| gang.clone()).collect();
        ForecastCopy { world, gangs, reserved: self.reserved.clone(), is_partial }
    }

    /// The first `most` pending gangs, and whether there are more.
    fn first_waiting(&self, most: usize, now: Time) -> (BTreeSet<GangIx>, bool) {
        let starts = self.shapes.rows().filter(|row| row.shape.scale_up.is_none());
        let mut rows: Vec<_> = starts.map(|row| (row.slope, row.waiting.iter())).collect();
        let (count, mut next) = (rows.len(), BTreeMap::new());
        let mut first = BTreeSet::new();
        let mut advance = |at: usize, next: &mut BTreeMap<_, _>| {
            let (slope, order_keys) = &mut rows[at];
            next.extend(
                order_keys.next().map(|order_key| ((order_key.sort_key(*slope, now), order_key.gang), at)),
            );
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
