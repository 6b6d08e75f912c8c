//! The ways in which a gang could be given flavors, listed one by one: whom it may stop depends on them.

use std::collections::BTreeMap;

use model::{FlavorResource, World};

use super::{choices, needs, suits};
use crate::quota::{beyond, is_open};
use crate::request::{Flavors, GangRequest};

/// More ways than these are not listed.
const WAYS: usize = 16;

/// Flavors for every pod set, and what the queue thinks of them.
pub(crate) struct Alternatives {
    /// In the order in which the queue lists them, the last pod set and group of resources varying first.
    pub(crate) all: Vec<Flavors>,
    /// There are no others.
    pub(crate) are_all: bool,
}

impl Alternatives {
    /// Those in which quota would allow the gang if nobody else used anything. One without any flavor where the queue gives
    /// none; none at all where the queue or the quota is closed to the gang.
    pub(crate) fn of(world: &World, request: &GangRequest<'_>) -> Self {
        let queue = world.queues().get(&request.queue).filter(|_| is_open(world, request));
        let Some(queue) = queue else { return Self { all: Vec::new(), are_all: true } };
        if queue.groups.is_empty() {
            return Self { all: vec![Flavors::new()], are_all: true };
        }
        let Ok(choices) = choices(world, request, queue) else {
            return Self { all: Vec::new(), are_all: true };
        };
        let (shape, excess) = (request.shape, request.shape.excess());
        let mut ways = Self { all: vec![vec![BTreeMap::new(); shape.pod_sets.len().max(1)]], are_all: true };
        for choice in &choices {
            let could = |flavor: &&_| {
                let short = |(resource, needs): &(_, i128)| {
                    let of = FlavorResource { flavor: **flavor, resource: *resource };
                    world
                        .quota_of(request.queue)
                        .is_some_and(|node| beyond(world, node, of, *needs).is_some())
                };
                suits(world, shape, &choice.pod_sets, **flavor).is_ok() && !choice.needs.iter().any(short)
            };
            let offered: Vec<_> = choice.flavors.iter().filter(could).collect();
            let mut more: Vec<Flavors> = Vec::new();
            for (before, flavor) in
                ways.all.iter().flat_map(|way| offered.iter().map(move |one| (way, **one)))
            {
                if more.len() == WAYS {
                    ways.are_all = false;
                    break;
                }
                let mut way = before.clone();
                for at in &choice.pod_sets {
                    let asked = choice.needs.iter().filter(|(ix, _)| needs(shape, &excess, *at, *ix) > 0);
                    way[*at].extend(asked.map(|(ix, _)| (*ix, flavor)));
                }
                more.push(way);
            }
            ways.all = more;
        }
        ways
    }
}
