//! Whether a gang fits into what is free.
//!
//! Bounds come first: when one of them is broken, the gang provably does not fit, and the bound says why. Then
//! placement, by rules of thumb and by search.

use model::{Cause, Doubt, Shape, Shortage, Verdict, Wake};

use crate::explain;
use crate::ledger::Ledger;
use crate::place::{Placement, place};
use crate::pools::Pools;
use crate::search::{Found, search};
use crate::terrain::Terrain;

/// A placement of every pod of the gang, or the verdict that there is none.
pub(crate) fn fit(ledger: &Ledger<'_>, shape: &Shape) -> Result<Placement, Verdict> {
    look(ledger, shape).map_err(|(causes, wake)| {
        let never = explain::never(ledger.world, shape);
        if never.is_empty() {
            Verdict::Wait(Shortage { causes: causes.into(), wake })
        } else {
            Verdict::Never(Shortage { causes: never.into(), wake: Wake::Nodes })
        }
    })
}

/// A placement, or why there is none and what could help.
pub(crate) fn look(ledger: &Ledger<'_>, shape: &Shape) -> Result<Placement, (Vec<Cause>, Wake)> {
    let pools = Pools::of(ledger, shape);
    let terrain = Terrain::of(ledger, shape, &pools);
    let short = |at: &usize| {
        let count = u64::from(shape.pod_sets[*at].count);
        terrain.room(*at, count) < count
    };
    let short: Vec<usize> = (0..shape.pod_sets.len()).filter(short).collect();
    if !short.is_empty() {
        return Err((explain::short(ledger, shape, &short), Wake::Room));
    }
    if let Some((cause, wake)) = pools.shortage(ledger, shape) {
        return Err((vec![cause], wake));
    }
    if let Some(placement) = place(&terrain) {
        return Ok(placement);
    }
    let some = shape.pod_sets.iter().filter(|pod_set| pod_set.count > 0);
    let pod_sets: Vec<String> = some.map(|pod_set| pod_set.name.clone()).collect();
    let (doubt, wake) = match search(&terrain) {
        Found::Placed(placement) => return Ok(placement),
        Found::Nowhere => (Doubt::None, Wake::Room),
        Found::OnlyPromised => (Doubt::Promised, Wake::Change),
        Found::Undecided => (Doubt::CutShort, Wake::Change),
    };
    Err((vec![Cause::Together { pod_sets, doubt }], wake))
}
