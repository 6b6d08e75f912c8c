//! Enumerates the flavor assignments of a gang; the possible victims depend on the assignment.

use std::collections::BTreeMap;

use model::{FlavorResource, World};

use super::{check_compatible, choices, needs};
use crate::quota::{exceeds_potential, is_open};
use crate::request::{Flavors, GangRequest};

/// The number of assignments that are enumerated.
const ALTERNATIVES_MAX: usize = 16;

/// The flavor assignments of a gang.
pub(crate) struct Alternatives {
    /// In the order of the queue; the last pod set and resource group vary first.
    pub(crate) all: Vec<Flavors>,
    /// Whether no assignment was omitted.
    pub(crate) is_complete: bool,
}

impl Alternatives {
    /// The assignments that quota allows if no other gang used any. One assignment without flavors if the
    /// queue has no resource groups. None if the queue or its quota does not admit the gang.
    pub(crate) fn of(world: &World, request: &GangRequest<'_>) -> Self {
        let queue = world.queues().get(&request.queue).filter(|_| is_open(world, request));
        let Some(queue) = queue else { return Self { all: Vec::new(), is_complete: true } };
        if queue.groups.is_empty() {
            return Self { all: vec![Flavors::new()], is_complete: true };
        }
        let Ok(choices) = choices(world, request, queue) else {
            return Self { all: Vec::new(), is_complete: true };
        };
        let (shape, excess) = (request.shape, request.shape.declared_excess());
        let mut alternatives =
            Self { all: vec![vec![BTreeMap::new(); shape.pod_sets.len().max(1)]], is_complete: true };
        for choice in &choices {
            let could = |flavor: &&_| {
                let short = |(resource, needs): &(_, i128)| {
                    let of = FlavorResource { flavor: **flavor, resource: *resource };
                    world
                        .quota_of(request.queue)
                        .is_some_and(|node| exceeds_potential(world, node, of, *needs).is_some())
                };
                check_compatible(world, request, &choice.pod_sets, **flavor).is_ok()
                    && !choice.needs.iter().any(short)
            };
            let offered: Vec<_> = choice.flavors.iter().filter(could).collect();
            let mut more: Vec<Flavors> = Vec::new();
            for (before, flavor) in alternatives
                .all
                .iter()
                .flat_map(|alternative| offered.iter().map(move |one| (alternative, **one)))
            {
                if more.len() == ALTERNATIVES_MAX {
                    alternatives.is_complete = false;
                    break;
                }
                let mut alternative = before.clone();
                for at in &choice.pod_sets {
                    let requested = choice.needs.iter().filter(|(ix, _)| needs(shape, &excess, *at, *ix) > 0);
                    alternative[*at].extend(requested.map(|(ix, _)| (*ix, flavor)));
                }
                more.push(alternative);
            }
            alternatives.all = more;
        }
        alternatives
    }
}
