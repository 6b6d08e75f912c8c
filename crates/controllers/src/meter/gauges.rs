//! Gauges, computed from the index when they are read: they end with the gangs that they are about.

use std::collections::BTreeMap;

use api::MicroTime;
use index::{Index, Phase, WORKLOADS};
use model::{Gang, GangState, Verdict};

use super::series::{Families, Labels, Number};

/// Adds all gauges. The time is `now`.
pub(super) fn write(index: &Index, now: MicroTime, families: &mut Families) {
    let none = Labels::new();
    let world = index.world();
    let mut pending: BTreeMap<(&str, &str, &str), u64> = BTreeMap::new();
    let mut running: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let mut oldest: BTreeMap<&str, i64> = BTreeMap::new();
    for gang in world.gangs() {
        let (namespace, queue) = (gang.key.namespace.as_str(), queue_of(index, gang));
        let Some(state) = pending_state(index, gang) else {
            *running.entry((namespace, queue)).or_default() += 1;
            continue;
        };
        *pending.entry((namespace, queue, state)).or_default() += 1;
        let since = oldest.entry(queue).or_insert(gang.queued_at.0);
        *since = gang.queued_at.0.min(*since);
    }
    for wrapper in index.wrappers().filter(|wrapper| matches!(wrapper.phase, Phase::Inadmissible(_))) {
        *pending.entry((&wrapper.key.namespace, "", "refused")).or_default() += 1;
    }
    for ((namespace, queue, state), number) in pending {
        let labels = [("namespace", namespace), ("queue", queue), ("state", state)];
        families.gauge("pending_gangs", &labels, &none, number);
    }
    for ((namespace, queue), number) in running {
        families.gauge("running_gangs", &[("namespace", namespace), ("queue", queue)], &none, number);
    }
    for (queue, since) in oldest {
        let waits = Number::seconds(u64::try_from(now.0.saturating_sub(since)).unwrap_or_default());
        families.gauge("oldest_pending_gang_seconds", &[("queue", queue)], &none, waits);
    }
    let reserved = u64::try_from(world.reserved().len()).unwrap_or(u64::MAX);
    families.gauge("reserved_starts", &[], &none, reserved);
    for (namespace, pods) in index.troubled_pods() {
        let labels = [("namespace", namespace)];
        families.gauge("unschedulable_pods", &labels, &none, pods.unschedulable);
        families.gauge("misplaced_pods", &labels, &none, pods.misplaced);
    }
}

/// The queue of a gang. An AppWrapper has none without quota trees.
fn queue_of<'a>(index: &'a Index, gang: &Gang) -> &'a str {
    let world = index.world();
    let quota = gang.charges.first().filter(|_| gang.key.kind != WORKLOADS);
    quota.map_or_else(|| world.queue_name(gang.queue), |quota| world.quota_name(*quota))
}

/// How a gang waits; `None` if it holds its capacity.
fn pending_state(index: &Index, gang: &Gang) -> Option<&'static str> {
    match (&gang.state, index.world().verdict(&gang.uid)) {
        (GangState::Reserved(_) | GangState::Unplaced, _) => None,
        (GangState::Nominated(_), _) => Some("preempting"),
        (GangState::Waiting, Some(Verdict::Never(_))) => Some("never_fits"),
        (GangState::Waiting, Some(Verdict::Wait(_))) => Some("waiting"),
        (GangState::Waiting, Some(Verdict::Admit(_) | Verdict::Preempt(_)) | None) => Some("new"),
    }
}
