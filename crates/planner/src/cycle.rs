//! One scheduling cycle: tries the pending gangs in order and records a verdict for each.

mod guessed_starts;
mod nomination;
mod preemption;
mod stepwise;
mod turns;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;
use std::ops::Bound;

use model::{
    Assignment, Cause, Charges, Gang, OrderKey, Plan, QueueIx, QueueingHint, QuotaIx, ShapeIx, ShapeRow,
    Shortage, Snapshot, Time, Verdict, World,
};

use self::preemption::Part;
use self::stepwise::Nomination;
use crate::backfill::{StartReservations, Timeline};
use crate::flavors::Attempts;
use crate::held_quota::HeldQuota;
use crate::ledger::Ledger;
use crate::order::{self, BlockedQueues, RowHead};
use crate::preemption::{Holders, terminating_victims};
use crate::request::{Fit, GangRequest};
use crate::slip::slips;
use crate::tournament::Tournament;
use crate::{fit, held_quota, requeue};

/// The state of one scheduling cycle.
pub(crate) struct Cycle<'s> {
    snapshot: Snapshot<'s>,
    ledger: Ledger<'s>,
    holders: Holders<'s>,
    plan: Plan,
    /// The shape rows that this cycle tries.
    attempted: BTreeSet<ShapeIx>,
    /// The next gang of each shape row that this cycle tries.
    heads: Tournament<'s>,
    /// Cache of negative verdicts. A verdict holds in this cycle for every gang with an equal request that
    /// has no higher precedence: a lower priority, or the same priority and a queueing time that is not
    /// earlier.
    unschedulable: BTreeMap<GangRequest<'s>, (Precedence, Verdict)>,
    /// The gangs that this cycle preempts.
    victims: BTreeSet<String>,
    blocked: BlockedQueues<'s>,
    backfill: Option<BackfillState<'s>>,
    /// What contenders would get whose flavors are chosen one after another, by uid.
    /// With the number of verdicts at that time: what was not decided since cannot have taken it from them.
    nominations: BTreeMap<String, (usize, Nomination)>,
    /// The attempts of such gangs, by uid.
    attempts: BTreeMap<String, Attempts>,
    /// The charges of such gangs that wait for their victims.
    awaiting: Vec<Charges>,
    /// The queues that borrow for such gangs since this cycle admitted them, with the roots of their quota trees.
    new_borrowers: BTreeSet<(QuotaIx, QueueIx)>,
}

/// The priority of a gang, and its queueing time.
type Precedence = (i64, Reverse<Time>);

/// What backfill needs in a cycle.
struct BackfillState<'s> {
    timeline: Timeline<'s>,
    /// The gangs with a reserved start, which no admission may delay.
    reservations: StartReservations<'s>,
    /// Further gangs that may get a reserved start, and whether this cycle found them unschedulable.
    waiting: BTreeMap<RowHead<'s>, bool>,
}

impl<'s> Cycle<'s> {
    /// The state at the start of the cycle.
    pub(crate) fn of(snapshot: &Snapshot<'s>) -> Self {
        let world = snapshot.world;
        let mut attempted: BTreeSet<ShapeIx> = world.active().chain(requeue::to_requeue(snapshot)).collect();
        attempted.extend(held_quota::rows_to_try(snapshot, &attempted));
        let blocked = BlockedQueues::of(snapshot, &mut attempted);
        let mut heads = Tournament::of(snapshot);
        attempted
            .iter()
            .filter_map(|&ix| RowHead::first_of(snapshot, ix))
            .for_each(|next| heads.insert(world, next));
        let plan = Plan { generation: world.generation(), ..Plan::default() };
        Self {
            snapshot: *snapshot,
            ledger: Ledger::of(world),
            holders: Holders::of(world),
            plan,
            attempted,
            heads,
            unschedulable: BTreeMap::new(),
            victims: BTreeSet::new(),
            blocked,
            backfill: None,
            nominations: BTreeMap::new(),
            attempts: BTreeMap::new(),
            awaiting: Vec::new(),
            new_borrowers: BTreeSet::new(),
        }
    }

    /// Runs the cycle and returns its plan.
    pub(crate) fn run(mut self) -> Plan {
        let world = self.snapshot.world;
        self.decide_nominated();
        if self.heads.is_empty() {
            self.plan.reserved = world.reserved().to_vec();
        } else if world.policy().backfill.reservation_depth() > 0 {
            self.backfill = Some(BackfillState::of(&self.snapshot, &self.attempted));
        }
        loop {
            self.decide_contenders();
            if self.reserve_next_start() {
                continue; // The reservation may have activated parked gangs.
            }
            let Some(next) = self.heads.pop(&self.ledger.quotas) else { break };
            self.attempt(&next);
        }
        if let Some(backfill) = &self.backfill {
            self.plan.reserved = backfill.reservations.reserved();
            self.begin_holds();
        }
        self.record_parked_verdicts();
        self.plan.without_room = self.without_room();
        self.plan.slips = slips(&self.snapshot, &self.plan);
        self.plan
    }

    /// What the nodes lack for gangs that this cycle admits without nodes.
    fn without_room(&self) -> Vec<(String, Shortage)> {
        let admitted = self.plan.verdicts.iter().filter_map(|(uid, verdict)| match verdict {
            Verdict::Admit(assignment) if !assignment.unplaced.is_empty() => Some((uid, assignment)),
            Verdict::Admit(_) | Verdict::Preempt(_) | Verdict::Wait(_) | Verdict::Never(_) => None,
        });
        let shortage = |(uid, assignment): (&String, &Assignment)| {
            let gang = self.snapshot.world.gang(uid)?;
            let shape = gang.shape();
            let request = GangRequest::of_gang(gang, &shape);
            Some((uid.clone(), fit::without_room(&self.ledger, &request, assignment)?))
        };
        admitted.filter_map(shortage).collect()
    }

    /// The quota that a gang holds when it stays pending as the first one of its strict queue.
    fn held_quota(&self, next: &RowHead<'s>) -> Option<HeldQuota> {
        let world = self.snapshot.world;
        let row = world.shape(next.ix);
        let is_first = self.blocked.blocked_by(world, row.queue, next).is_none();
        let is_ready = is_first && terminating_pods(world, &next.order_key.uid).is_none();
        is_ready.then(|| HeldQuota::of(&self.ledger.quotas, &GangRequest::of(row))).flatten()
    }

    /// Keeps the quota that the first gang of a strict queue holds from the gangs that are tried after it.
    fn hold_quota(&mut self, head: &RowHead<'s>) {
        if let Some(HeldQuota { held, .. }) = self.held_quota(head) {
            self.ledger.quotas.charge(&held);
            let node = self.snapshot.world.quota_of(self.snapshot.world.shape(head.ix).queue);
            self.heads.invalidate(self.snapshot.world, &Vec::from_iter(node));
        }
    }

    /// Tries to schedule one gang and records its verdict.
    fn attempt(&mut self, head: &RowHead<'s>) {
        let world = self.snapshot.world;
        let RowHead { order_key, ix, .. } = *head;
        let row = world.shape(ix);
        let scale_up = row.shape.scale_up.is_some();
        if let Some(first) = self.blocked.blocked_by(world, row.queue, head).filter(|_| !scale_up) {
            let verdict = order::behind_verdict(first);
            self.record_behind(head, row, &verdict);
            return;
        }
        let next = head.following(&self.snapshot);
        if scale_up && self.is_being_preempted(&order_key.uid) {
            self.push(next);
            return;
        }
        if let Some(verdict) = terminating_pods(world, &order_key.uid).filter(|_| !scale_up) {
            if row.unreported.contains(order_key) || row.parked.is_some() {
                self.plan.verdicts.push((order_key.uid.to_string(), verdict));
            }
            self.blocked.block(world, row.queue, head);
            self.push(next);
            return;
        }
        if let Some(backfill) = &mut self.backfill {
            backfill.reservations.remove(order_key); // The gang is tried itself now.
        }
        let verdict = match self.known_verdict(row, order_key) {
            Some(verdict) => verdict.clone(),
            None => match self.nominations.remove(&*order_key.uid) {
                Some((decided, nomination)) => match self.confirm(row, order_key, nomination) {
                    Some(verdict) => verdict,
                    None if decided == self.plan.verdicts.len() => stepwise::unproven(),
                    None => return self.push(Some(*head)), // Others took it: it is looked at again in the next round.
                },
                None => self.decide(row, order_key),
            },
        };
        match verdict {
            Verdict::Admit(_) | Verdict::Preempt(_) => {
                if matches!(&verdict, Verdict::Preempt(preemption) if !preemption.victims.is_empty()) {
                    // Later gangs may fit into what the victims leave over.
                    self.activate_parked(head, |_| true);
                }
                if scale_up {
                    self.heads.invalidate(world, &Vec::from_iter(world.quota_of(row.queue)));
                } else if let Some(assignment) = verdict.assignment() {
                    self.heads.record_admission(world, row, assignment);
                }
                if self.is_stepwise(row) {
                    if let Verdict::Preempt(preemption) = &verdict {
                        let charges = self.ledger.charges(&GangRequest::of(row), &preemption.assignment);
                        self.awaiting.push(charges);
                        self.blocked.await_victims(row.queue, head.rank);
                    } else {
                        self.note_borrower(row.queue);
                    }
                }
                self.plan.verdicts.push((order_key.uid.to_string(), verdict));
                self.heads.invalidate(world, &row.charges);
                self.push(next);
            }
            Verdict::Wait(ref shortage) | Verdict::Never(ref shortage) => {
                let is_proven = shortage.queueing_hint != QueueingHint::AnyChange;
                if is_proven || world.preemptors_of(&order_key.uid).is_empty() {
                    record(&mut self.plan, row, Some(order_key), &verdict);
                } else {
                    // Another gang of the row may preempt gangs that this one may not.
                    self.plan.verdicts.push((order_key.uid.to_string(), verdict.clone()));
                    self.push(next);
                }
                if scale_up {
                    return;
                }
                if matches!(verdict, Verdict::Wait(_)) {
                    self.hold_quota(head);
                }
                self.blocked.block(world, row.queue, head);
                if let Some(backfill) =
                    self.backfill.as_mut().filter(|backfill| !backfill.reservations.is_full())
                    && matches!(verdict, Verdict::Wait(_))
                {
                    backfill.waiting.insert(*head, true);
                }
                if is_proven {
                    // Within a cycle free resources and possible victims only decrease for later gangs.
                    let precedence = (row.priority, Reverse(order_key.queued_at));
                    self.unschedulable.insert(GangRequest::of(row), (precedence, verdict));
                }
            }
        }
    }

    fn push(&mut self, next: Option<RowHead<'s>>) {
        if let Some(next) = next {
            self.heads.insert(self.snapshot.world, next);
        }
    }

    /// Records for the gangs of a row that they wait behind another gang, unless that is their verdict
    /// already.
    fn record_behind(&mut self, head: &RowHead<'s>, row: &ShapeRow, verdict: &Verdict) {
        // Then the row becomes active once the plan is applied.
        let started = row.waiting.first() != Some(head.order_key);
        if row.parked.as_ref() == Some(verdict) && !started {
            // `record_parked_verdicts` reports to the gangs that joined the row since.
            self.attempted.remove(&head.ix);
        } else {
            record(&mut self.plan, row, Some(head.order_key), verdict);
        }
    }

    /// The cached negative verdict that applies to a gang, if there is one.
    fn known_verdict(&self, row: &'s ShapeRow, order_key: &OrderKey) -> Option<&Verdict> {
        let precedence = (row.priority, Reverse(order_key.queued_at));
        let (precedence_max, verdict) = self.unschedulable.get(&GangRequest::of(row))?;
        (precedence <= *precedence_max).then_some(verdict)
    }

    /// Decides about the next gang of a row, and reserves in the ledger what it is assigned.
    fn decide(&mut self, row: &'s ShapeRow, order_key: &'s OrderKey) -> Verdict {
        if self.is_stepwise(row) {
            return self.decide_stepwise(row, order_key);
        }
        if let Some(preemption) = self.preferred_preemption(row, order_key) {
            return self.nominate(row, order_key, preemption);
        }
        let shortage = match fit::fit(&self.ledger, &GangRequest::of(row)) {
            Ok(fit) => return self.admit(row, order_key, &fit),
            Err(Verdict::Wait(shortage)) => shortage,
            Err(verdict) => return verdict,
        };
        if row.shape.scale_up.is_some() {
            // Scaling up a running gang neither preempts nor gets a reserved start.
            return Verdict::Wait(shortage);
        }
        let whole = match self.preempt(row, &row.shape, order_key, &[]) {
            Ok(preemption) => return self.nominate(row, order_key, preemption),
            Err(hint) => hint,
        };
        let part = match self.largest_part(row, order_key) {
            Ok(Part::Fits(fit)) => return self.admit(row, order_key, &fit),
            Ok(Part::FitsAfterPreemption { shape, .. }) => self.preempt(row, &shape, order_key, &[]),
            Err(hint) => Err(hint),
        };
        match part {
            Ok(preemption) => self.nominate(row, order_key, preemption),
            Err(part) => {
                let queueing_hint = part.max(whole).max(shortage.queueing_hint);
                Verdict::Wait(Shortage { queueing_hint, ..shortage })
            }
        }
    }

    /// Admits a gang that fits, unless it would delay a reserved start.
    fn admit(&mut self, row: &'s ShapeRow, order_key: &'s OrderKey, fit: &Fit) -> Verdict {
        let request = GangRequest::of(row);
        let (ledger, gang) = (&mut self.ledger, self.snapshot.world.gang(&order_key.uid));
        let merged = |found: Assignment| {
            let scale_up_request = gang.and_then(|gang| Some((gang.scale_up_request()?, gang)));
            scale_up_request.map_or_else(
                || found.clone(),
                |(scale_up_request, gang)| scale_up_request.merged(gang, &found),
            )
        };
        let (Some(backfill), Some(gang)) = (&mut self.backfill, gang) else {
            return Verdict::Admit(merged(ledger.reserve(&request, fit)));
        };
        let assignment = match backfill.reservations.admit(ledger, &backfill.timeline, gang, &request, fit) {
            Ok(assignment) => assignment,
            Err(shortage) => return Verdict::Wait(shortage),
        };
        backfill.timeline.admit(gang, request, assignment.clone());
        let verdict = Verdict::Admit(merged(assignment));
        self.renew_passed_starts();
        verdict
    }

    /// Activates parked rows, from their first gang after `predecessor` on.
    fn activate_parked(&mut self, predecessor: &RowHead<'s>, which: impl Fn(&ShapeRow) -> bool) {
        let world = self.snapshot.world;
        let mut activated = BTreeSet::new();
        for ix in world.parked().filter(|ix| which(world.shape(*ix))) {
            if let Some(first) = self.heads.first_after(&self.snapshot, predecessor, ix)
                && self.attempted.insert(ix)
            {
                self.heads.insert(world, first);
                activated.insert(ix);
            }
        }
        for ix in &activated {
            self.blocked.hold_back(&self.snapshot, world.shape(*ix).queue, &self.attempted);
        }
        for ix in held_quota::rows_to_try(&self.snapshot, &activated) {
            if self.attempted.insert(ix)
                && let Some(first) = RowHead::first_of(&self.snapshot, ix)
            {
                self.heads.insert(world, first);
            }
        }
    }

    /// Reserves a start for the first waiting gang, if a further start may be reserved and no gang of a
    /// higher rank is still to be tried. Returns whether a start was reserved.
    fn reserve_next_start(&mut self) -> bool {
        let highest = self.heads.highest_ranked();
        while let Some(backfill) = self.backfill.as_mut().filter(|backfill| !backfill.reservations.is_full())
            && let Some(entry) = backfill.waiting.first_entry()
            && highest.is_none_or(|highest| entry.key().rank < highest.rank)
            && !self.heads.has_predecessor(self.snapshot.world, entry.key())
        {
            let (first, is_unschedulable) = entry.remove_entry();
            let queue = self.snapshot.world.shape(first.ix).queue;
            if !is_unschedulable
                && (self.attempted.contains(&first.ix)
                    || self.blocked.blocked_by(self.snapshot.world, queue, &first).is_some())
            {
                continue;
            }
            if !order::reserves_starts(self.snapshot.world, queue) {
                backfill.reservations.pass_over();
                continue;
            }
            if !order::is_strict(self.snapshot.world, queue)
                && let Some(behind) = first_startable(&self.snapshot, first.following(&self.snapshot))
            {
                backfill.waiting.insert(behind, is_unschedulable);
            }
            if self.reserve_start(&first) {
                return true;
            }
        }
        false
    }

    /// Reserves a start for a gang, if its start can be computed.
    fn reserve_start(&mut self, next: &RowHead<'s>) -> bool {
        let world = self.snapshot.world;
        let row = world.shape(next.ix);
        let Some(backfill) = &mut self.backfill else { return false };
        let Some(head) =
            backfill.reservations.add(&mut self.ledger, &backfill.timeline, next, GangRequest::of(row))
        else {
            return false;
        };
        let reservation = head.reserved();
        if !world.reserved().iter().any(|former| former.is_same(&reservation)) {
            // The reservation is a new one, so gangs that the former one held back may be schedulable now.
            self.activate_held_back(next);
        }
        true
    }

    /// Activates parked rows that a reservation may have held back.
    fn activate_held_back(&mut self, predecessor: &RowHead<'s>) {
        self.activate_parked(predecessor, |row| {
            let shortage = row.parked.as_ref().and_then(Verdict::shortage);
            shortage.is_some_and(|shortage| shortage.queueing_hint == QueueingHint::AnyChange)
        });
    }

    /// Reports the verdict of a parked row to gangs that joined it since.
    fn record_parked_verdicts(&mut self) {
        let world = self.snapshot.world;
        let mut unreported: Vec<&ShapeRow> =
            world.unreported().filter(|ix| !self.attempted.contains(ix)).map(|ix| world.shape(ix)).collect();
        // Row indices depend on history, and a plan must not.
        unreported.sort_by_key(|row| row.waiting.first());
        for row in unreported {
            if let Some(verdict) = &row.parked {
                record(&mut self.plan, row, None, verdict);
            }
        }
    }
}

impl<'s> BackfillState<'s> {
    fn of(snapshot: &Snapshot<'s>, attempted: &BTreeSet<ShapeIx>) -> Self {
        let world = snapshot.world;
        let terminating_victims: Vec<&Gang> = terminating_victims(world).collect();
        let is_strict = |ix: ShapeIx| order::is_strict(world, world.shape(ix).queue);
        let starts = |ix: &ShapeIx| !attempted.contains(ix) && world.shape(*ix).shape.scale_up.is_none();
        let first = |ix| {
            let first = RowHead::first_of(snapshot, ix);
            if is_strict(ix) { first } else { first_startable(snapshot, first) }
        };
        let mut parked: Vec<_> = world.parked().filter(starts).filter_map(first).collect();
        parked.sort_by_cached_key(|next| (next.weighted_usage(snapshot), *next));
        let mut queues = BTreeSet::new(); // Of a strict queue only the first gang, whatever its verdict.
        parked.retain(|next| !is_strict(next.ix) || queues.insert(world.shape(next.ix).queue));
        parked.retain(|next| {
            matches!(&world.shape(next.ix).parked, Some(Verdict::Wait(_)))
                && terminating_pods(world, &next.order_key.uid).is_none()
        });
        let waiting = parked.into_iter().map(|next| (next, false)).collect();
        let timeline = Timeline::of(world, snapshot.now, &terminating_victims);
        let reservations = StartReservations::of(world, &timeline);
        Self { timeline, reservations, waiting }
    }
}

/// The first gang of a row, from a given one on, that has no bound pods of an earlier run.
fn first_startable<'s>(snapshot: &Snapshot<'s>, from: Option<RowHead<'s>>) -> Option<RowHead<'s>> {
    std::iter::successors(from, |next| next.following(snapshot))
        .find(|next| terminating_pods(snapshot.world, &next.order_key.uid).is_none())
}

/// Why a gang waits that only closed gates keep from preempting.
fn gated() -> Shortage {
    Shortage { causes: [Cause::PreemptionGated].into(), queueing_hint: QueueingHint::AnyChange }
}

/// A gang that was stopped is not admitted again while pods of its earlier run are still bound.
fn terminating_pods(world: &World, gang: &str) -> Option<Verdict> {
    let pods = world.pods_of(gang).filter(|pod| pod.node.is_some()).count();
    let causes = [Cause::StillStopping { pods: u32::try_from(pods).unwrap_or(u32::MAX) }];
    (pods > 0)
        .then(|| Verdict::Wait(Shortage { causes: causes.into(), queueing_hint: QueueingHint::OwnPodsGone }))
}

/// Records a verdict for the gang at `order_key` and for the gangs behind it in the row that share the
/// verdict. If the kind of the verdict changed, these are all gangs of the row; otherwise those that have no
/// verdict yet.
fn record(plan: &mut Plan, row: &ShapeRow, order_key: Option<&OrderKey>, verdict: &Verdict) {
    if let Some(order_key) = order_key {
        plan.verdicts.push((order_key.uid.to_string(), verdict.clone()));
    }
    let has_changed = row.parked.as_ref().is_some_and(|parked| discriminant(parked) != discriminant(verdict));
    let uninformed = if has_changed { &row.waiting } else { &row.unreported };
    let after = order_key.map_or(Bound::Unbounded, Bound::Excluded);
    for order_key in uninformed.range::<OrderKey, _>((after, Bound::Unbounded)) {
        plan.verdicts.push((order_key.uid.to_string(), verdict.clone()));
    }
}
