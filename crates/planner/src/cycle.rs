//! One pass over those who are waiting: who is tried, in which sequence, and what each is told.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;
use std::ops::Bound;

use model::{
    Assignment, Cause, Charges, Gang, GangState, OrderKey, Plan, Preemption, QueueingHint, ShapeIx, ShapeRow,
    Shortage, Snapshot, Time, Verdict, World, charges,
};

use crate::backfill::{Promises, Timeline};
use crate::ledger::Ledger;
use crate::order::{self, Next, Strict};
use crate::preemption::{Leave, Room, doomed, make_room, may_stop_others};
use crate::request::{Fit, GangRequest};
use crate::slip::slips;
use crate::tournament::Heads;
use crate::{fit, nomination, requeue};

/// The state of one pass.
pub(crate) struct Cycle<'s> {
    snapshot: Snapshot<'s>,
    ledger: Ledger<'s>,
    plan: Plan,
    /// Shapes that were taken up in this pass.
    tried: BTreeSet<ShapeIx>,
    /// The next gang of each shape that is taken up.
    heads: Heads<'s>,
    /// Verdicts that hold in this pass for every further gang that asks for the same and has no more rights: no higher
    /// priority, nor the same and been queued before.
    refused: BTreeMap<GangRequest<'s>, (Refused, Verdict)>,
    /// Gangs that are stopped by this pass.
    stopped: BTreeSet<String>,
    strict: Strict<'s>,
    ahead: Option<Ahead<'s>>,
}

/// The priority of a gang, and since when it is queued.
type Refused = (i64, Reverse<Time>);

/// What a pass needs to look ahead in time.
struct Ahead<'s> {
    timeline: Timeline<'s>,
    /// The gangs that must not be delayed.
    promises: Promises<'s>,
    /// Gangs that could be promised a start as well; whether they were refused in this pass.
    waiting: BTreeMap<Next<'s>, bool>,
}

impl<'s> Cycle<'s> {
    /// A pass at its start.
    pub(crate) fn of(snapshot: &Snapshot<'s>) -> Self {
        let world = snapshot.world;
        let mut tried: BTreeSet<ShapeIx> = world.awake().chain(requeue::woken(snapshot)).collect();
        let strict = Strict::of(snapshot, &mut tried);
        let mut heads = Heads::of(snapshot);
        tried
            .iter()
            .filter_map(|&ix| Next::first_of(snapshot, ix))
            .for_each(|next| heads.insert(world, next));
        let plan = Plan { generation: world.generation(), ..Plan::default() };
        Self {
            snapshot: *snapshot,
            ledger: Ledger::of(world),
            plan,
            tried,
            heads,
            refused: BTreeMap::new(),
            stopped: BTreeSet::new(),
            strict,
            ahead: None,
        }
    }

    /// Decides all that there is to decide.
    pub(crate) fn run(mut self) -> Plan {
        let world = self.snapshot.world;
        self.settle_nominated();
        if self.heads.is_empty() {
            self.plan.reserved = world.reserved().to_vec();
        } else if world.policy().backfill.heads() > 0 {
            self.ahead = Some(Ahead::of(&self.snapshot, &self.tried));
        }
        loop {
            self.find_contenders();
            if self.promise_next() {
                continue; // Others may have been taken up for it.
            }
            let Some(next) = self.heads.pop(&self.ledger.quotas) else { break };
            self.take_up(&next);
        }
        if let Some(ahead) = &self.ahead {
            self.plan.reserved = ahead.promises.reserved();
        }
        self.tell_the_untold();
        self.plan.slips = slips(&self.snapshot, &self.plan);
        self.plan
    }

    fn settle_nominated(&mut self) {
        let mut nominated: Vec<&Gang> = self.snapshot.world.nominated().collect();
        nominated.sort_by_key(|gang| gang.turn(self.snapshot.now));
        for gang in nominated {
            let GangState::Nominated(preemption) = &gang.state else { continue };
            let verdict = nomination::settle(&mut self.ledger, gang, preemption);
            self.plan.verdicts.extend(verdict.map(|verdict| (gang.uid.clone(), verdict)));
        }
    }

    /// Finds the first gang that can move of each queue that competes with others, and decides about those that cannot.
    fn find_contenders(&mut self) {
        let world = self.snapshot.world;
        while let Some(next) = self.heads.unknown(world) {
            match self.prospect(&next) {
                Some(charges) => self.heads.compete(world, next, charges),
                None => self.take_up(&next),
            }
        }
    }

    /// What a gang would be charged at the node of its queue if it were its turn now; none if it could not move.
    fn prospect(&mut self, next: &Next<'s>) -> Option<Charges> {
        let world = self.snapshot.world;
        let row = world.shape(next.ix);
        let request = GangRequest::of(row);
        let is_told =
            self.strict.ahead_of(world, row.queue, next).is_some() || self.refusal(row, next.place).is_some();
        if is_told || still_stopping(world, &next.place.uid).is_some() {
            return None;
        }
        let flavors = match fit::look(&self.ledger, &request) {
            Ok(fit) => fit.flavors,
            Err(_) => match self.preempt(row, next.place) {
                Ok(preemption) => {
                    self.take_back(&request, &preemption);
                    preemption.assignment.flavors
                }
                Err(_) => fit::partly(&self.ledger, &request).ok()?.flavors,
            },
        };
        Some(charges(request.shape, &flavors, world.quota_of(row.queue), &[]))
    }

    /// Decides about one gang.
    fn take_up(&mut self, taken: &Next<'s>) {
        let world = self.snapshot.world;
        let Next { place, ix, .. } = *taken;
        let row = world.shape(ix);
        let scale_up = row.shape.scale_up.is_some();
        if let Some(first) = self.strict.ahead_of(world, row.queue, taken).filter(|_| !scale_up) {
            let verdict = order::behind(first);
            self.tell_behind(taken, row, &verdict);
            return;
        }
        let next = taken.behind(&self.snapshot);
        if scale_up && self.is_leaving(&place.uid) {
            self.put_back(next);
            return;
        }
        if let Some(verdict) = still_stopping(world, &place.uid).filter(|_| !scale_up) {
            if row.untold.contains(place) || row.parked.is_some() {
                self.plan.verdicts.push((place.uid.to_string(), verdict));
            }
            self.strict.bar(world, row.queue, taken);
            self.put_back(next);
            return;
        }
        if let Some(ahead) = &mut self.ahead {
            ahead.promises.strike(place); // Its turn has come itself.
        }
        let verdict = match self.refusal(row, place) {
            Some(verdict) => verdict.clone(),
            None => self.decide(row, place),
        };
        match verdict {
            Verdict::Admit(_) | Verdict::Preempt(_) => {
                if matches!(&verdict, Verdict::Preempt(preemption) if !preemption.victims.is_empty()) {
                    // Who comes later may be given what the victims leave over.
                    self.take_up_parked(taken, |_| true);
                }
                if scale_up {
                    self.heads.disturb(world, &Vec::from_iter(world.quota_of(row.queue)));
                } else if let Some(given) = verdict.assignment() {
                    self.heads.serve(world, row, given);
                }
                self.plan.verdicts.push((place.uid.to_string(), verdict));
                self.heads.disturb(world, &row.charges);
                self.put_back(next);
            }
            Verdict::Wait(ref shortage) | Verdict::Never(ref shortage) => {
                let proven = shortage.wake != QueueingHint::Change;
                if proven || world.stopped_for(&place.uid).is_empty() {
                    tell(&mut self.plan, row, Some(place), &verdict);
                } else {
                    // Others of its shape may take places that it may not.
                    self.plan.verdicts.push((place.uid.to_string(), verdict.clone()));
                    self.put_back(next);
                }
                if scale_up {
                    return;
                }
                self.strict.bar(world, row.queue, taken);
                if let Some(ahead) = self.ahead.as_mut().filter(|ahead| !ahead.promises.is_full())
                    && matches!(verdict, Verdict::Wait(_))
                {
                    ahead.waiting.insert(*taken, true);
                }
                if proven {
                    // In one pass there is ever less free, and ever fewer could be stopped for those who come later.
                    let rights = (row.priority, Reverse(place.queued_at));
                    self.refused.insert(GangRequest::of(row), (rights, verdict));
                }
            }
        }
    }

    fn put_back(&mut self, next: Option<Next<'s>>) {
        if let Some(next) = next {
            self.heads.insert(self.snapshot.world, next);
        }
    }

    /// Tells the gangs of a row that it is not their turn, if they were not told that yet.
    fn tell_behind(&mut self, taken: &Next<'s>, row: &ShapeRow, verdict: &Verdict) {
        let started = row.waiting.first() != Some(taken.place); // Then the row is awake once the plan is accepted.
        if row.parked.as_ref() == Some(verdict) && !started {
            self.tried.remove(&taken.ix); // Who joined it since is told in the end.
        } else {
            tell(&mut self.plan, row, Some(taken.place), verdict);
        }
    }

    /// The verdict about a gang that holds already, if there is one.
    fn refusal(&self, row: &'s ShapeRow, place: &OrderKey) -> Option<&Verdict> {
        let rights = (row.priority, Reverse(place.queued_at));
        let (most, verdict) = self.refused.get(&GangRequest::of(row))?;
        (rights <= *most).then_some(verdict)
    }

    /// Decides about the next gang of a shape, and takes what it is given out of the ledger.
    fn decide(&mut self, row: &'s ShapeRow, place: &'s OrderKey) -> Verdict {
        let shortage = match fit::fit(&self.ledger, &GangRequest::of(row)) {
            Ok(fit) => return self.admit(row, place, &fit),
            Err(Verdict::Wait(shortage)) => shortage,
            Err(refusal) => return refusal,
        };
        if row.shape.scale_up.is_some() {
            return Verdict::Wait(shortage); // Nobody is stopped, and nobody held back, for a gang that runs.
        }
        let shortage = match self.preempt(row, place) {
            Ok(preemption) => return self.nominate(row, place, preemption),
            Err(wake) => Shortage { wake: wake.max(shortage.wake), ..shortage },
        };
        match fit::partly(&self.ledger, &GangRequest::of(row)) {
            Ok(fit) => self.admit(row, place, &fit),
            Err(wake) => Verdict::Wait(Shortage { wake: wake.max(shortage.wake), ..shortage }),
        }
    }

    /// Admits a gang that fits, unless it would delay the one that must not be delayed.
    fn admit(&mut self, row: &'s ShapeRow, place: &'s OrderKey, fit: &Fit) -> Verdict {
        let request = GangRequest::of(row);
        let (ledger, gang) = (&mut self.ledger, self.snapshot.world.gang(&place.uid));
        let joined = |found: Assignment| {
            let scale_up_request = gang.and_then(|gang| Some((gang.scale_up_request()?, gang)));
            scale_up_request.map_or_else(
                || found.clone(),
                |(scale_up_request, gang)| scale_up_request.merged(gang, &found),
            )
        };
        let (Some(ahead), Some(gang)) = (&mut self.ahead, gang) else {
            return Verdict::Admit(joined(ledger.reserve(&request, fit)));
        };
        let assignment = match ahead.promises.let_pass(ledger, &ahead.timeline, gang, &request, fit) {
            Ok(assignment) => assignment,
            Err(shortage) => return Verdict::Wait(shortage),
        };
        ahead.timeline.start(gang, request, assignment.clone());
        Verdict::Admit(joined(assignment))
    }

    /// Whether a gang that runs is being stopped.
    fn is_leaving(&self, uid: &str) -> bool {
        self.stopped.contains(uid) || doomed(self.snapshot.world).any(|gang| gang.uid == uid)
    }

    /// Nominates a gang for places that others leave, unless it would delay the one that must not be delayed.
    fn nominate(&mut self, row: &'s ShapeRow, place: &'s OrderKey, preemption: Preemption) -> Verdict {
        let Some(ahead) = &mut self.ahead else { return Verdict::Preempt(preemption) };
        if let Err(shortage) = ahead.promises.hold(&mut self.ledger, &ahead.timeline, &place.uid) {
            self.take_back(&GangRequest::of(row), &preemption);
            return Verdict::Wait(shortage);
        }
        for victim in preemption.stopped() {
            ahead.timeline.stop(victim);
        }
        if let Some(gang) = self.snapshot.world.gang(&place.uid) {
            ahead.timeline.start(gang, GangRequest::of(row), preemption.assignment.clone());
        }
        Verdict::Preempt(preemption)
    }

    /// Undoes [`Self::preempt`].
    fn take_back(&mut self, request: &GangRequest<'_>, preemption: &Preemption) {
        self.ledger.give_back(request, &preemption.assignment);
        for uid in preemption.stopped() {
            self.stopped.remove(uid);
        }
    }

    /// Stops weaker gangs for one, if that is allowed and helps.
    fn preempt(&mut self, row: &'s ShapeRow, place: &OrderKey) -> Result<Preemption, QueueingHint> {
        if !may_stop_others(self.snapshot.world, &GangRequest::of(row)) {
            return Err(QueueingHint::Turn);
        }
        let (request, stopped) = (GangRequest::of(row), &self.stopped);
        let Some(gang) = self.snapshot.world.gang(&place.uid) else { return Err(QueueingHint::Nodes) };
        let leave = Leave::of(&mut self.ledger, stopped);
        let spared = |uid: &str| stopped.contains(uid) || *uid == *place.uid;
        let superior = self.snapshot.world.stopped_for(&place.uid);
        let room = make_room(&mut self.ledger, &self.snapshot, gang, &superior, &spared);
        let Room { victims, fit } = match room {
            Ok(room) => room,
            Err(wake) => {
                leave.undo(&mut self.ledger, &[]);
                return Err(wake);
            }
        };
        let assignment = self.ledger.reserve(&request, &fit);
        leave.undo(&mut self.ledger, &victims);
        self.stopped.extend(victims.iter().map(|victim| victim.uid.clone()));
        Ok(Preemption { victims, assignment })
    }

    /// Takes up parked shapes from a place in the order on.
    fn take_up_parked(&mut self, ahead: &Next<'s>, which: impl Fn(&ShapeRow) -> bool) {
        let world = self.snapshot.world;
        for ix in world.parked().filter(|ix| which(world.shape(*ix))) {
            if let Some(first) = self.heads.first_behind(&self.snapshot, ahead, ix)
                && self.tried.insert(ix)
            {
                self.heads.insert(world, first);
            }
        }
    }

    /// Promises a start to the first gang that waits, if there is another one to promise and nobody of a higher rank may still
    /// come. True when it did.
    fn promise_next(&mut self) -> bool {
        let highest = self.heads.highest();
        while let Some(ahead) = self.ahead.as_mut().filter(|ahead| !ahead.promises.is_full())
            && let Some(entry) = ahead.waiting.first_entry()
            && highest.is_none_or(|highest| entry.key().turn < highest.turn)
            && !self.heads.has_ahead(self.snapshot.world, entry.key())
        {
            let (first, is_refused) = entry.remove_entry();
            let queue = self.snapshot.world.shape(first.ix).queue;
            if !is_refused
                && (self.tried.contains(&first.ix)
                    || self.strict.ahead_of(self.snapshot.world, queue, &first).is_some())
            {
                continue;
            }
            if !order::is_strict(self.snapshot.world, queue)
                && let Some(behind) = first_to_start(&self.snapshot, first.behind(&self.snapshot))
            {
                ahead.waiting.insert(behind, is_refused);
            }
            if self.promise(&first) {
                return true;
            }
        }
        false
    }

    /// Promises a gang a start, if that can be foreseen.
    fn promise(&mut self, next: &Next<'s>) -> bool {
        let world = self.snapshot.world;
        let row = world.shape(next.ix);
        let Some(ahead) = &mut self.ahead else { return false };
        let Some(head) = ahead.promises.add(&mut self.ledger, &ahead.timeline, next, GangRequest::of(row))
        else {
            return false;
        };
        let promised = head.reserved();
        if !world.reserved().iter().any(|former| former.is_same(&promised)) {
            // Another one than before must not be delayed: who was held back for the old one may be free to go.
            self.take_up_parked(next, |row| {
                row.parked
                    .as_ref()
                    .and_then(Verdict::shortage)
                    .is_some_and(|shortage| shortage.wake == QueueingHint::Change)
            });
        }
        true
    }

    /// Tells gangs that joined a parked shape what it waits for.
    fn tell_the_untold(&mut self) {
        let world = self.snapshot.world;
        let mut untold: Vec<&ShapeRow> =
            world.untold().filter(|ix| !self.tried.contains(ix)).map(|ix| world.shape(ix)).collect();
        untold.sort_by_key(|row| row.waiting.first()); // Indices depend on history, plans must not.
        for row in untold {
            if let Some(verdict) = &row.parked {
                tell(&mut self.plan, row, None, verdict);
            }
        }
    }
}

impl<'s> Ahead<'s> {
    fn of(snapshot: &Snapshot<'s>, tried: &BTreeSet<ShapeIx>) -> Self {
        let world = snapshot.world;
        let doomed: Vec<&Gang> = doomed(world).collect();
        let is_strict = |ix: ShapeIx| order::is_strict(world, world.shape(ix).queue);
        let starts = |ix: &ShapeIx| !tried.contains(ix) && world.shape(*ix).shape.scale_up.is_none();
        let first = |ix| {
            let first = Next::first_of(snapshot, ix);
            if is_strict(ix) { first } else { first_to_start(snapshot, first) }
        };
        let mut parked: Vec<_> = world.parked().filter(starts).filter_map(first).collect();
        parked.sort_by_cached_key(|next| (next.weighted_usage(snapshot), *next));
        let mut queues = BTreeSet::new(); // Of a strict queue, only the first gang, whatever it waits for.
        parked.retain(|next| !is_strict(next.ix) || queues.insert(world.shape(next.ix).queue));
        parked.retain(|next| {
            matches!(&world.shape(next.ix).parked, Some(Verdict::Wait(_)))
                && still_stopping(world, &next.place.uid).is_none()
        });
        let waiting = parked.into_iter().map(|next| (next, false)).collect();
        let timeline = Timeline::of(world, snapshot.now, &doomed);
        let promises = Promises::of(world, snapshot.now);
        Self { timeline, promises, waiting }
    }
}

/// The first gang of a row from one on that has no pods of a former life.
fn first_to_start<'s>(snapshot: &Snapshot<'s>, from: Option<Next<'s>>) -> Option<Next<'s>> {
    std::iter::successors(from, |next| next.behind(snapshot))
        .find(|next| still_stopping(snapshot.world, &next.place.uid).is_none())
}

/// A gang that ran before does not start again while pods of its former life are still there.
fn still_stopping(world: &World, gang: &str) -> Option<Verdict> {
    let pods = world.pods_of(gang).filter(|pod| pod.node.is_some()).count();
    let causes = [Cause::StillStopping { pods: u32::try_from(pods).unwrap_or(u32::MAX) }];
    (pods > 0).then(|| Verdict::Wait(Shortage { causes: causes.into(), wake: QueueingHint::Pods }))
}

/// Notes a verdict for the gang at `place` and for those behind it that share it and do not know: all of them if it is
/// of another kind than the last one, else those that have not been told any.
fn tell(plan: &mut Plan, row: &ShapeRow, place: Option<&OrderKey>, verdict: &Verdict) {
    if let Some(place) = place {
        plan.verdicts.push((place.uid.to_string(), verdict.clone()));
    }
    let turned = row.parked.as_ref().is_some_and(|parked| discriminant(parked) != discriminant(verdict));
    let unaware = if turned { &row.waiting } else { &row.untold };
    let after = place.map_or(Bound::Unbounded, Bound::Excluded);
    for place in unaware.range::<OrderKey, _>((after, Bound::Unbounded)) {
        plan.verdicts.push((place.uid.to_string(), verdict.clone()));
    }
}
