//! Orders gangs of queues that compete for the quota of one tree.
//!
//! Each queue of a tree enters its first schedulable gang. With fair sharing, the entries are compared level
//! by level from the root: at each level the subtree that would not borrow for the gang goes first, then the
//! one with the smallest dominant share after the admission. Without fair sharing, the entry that would
//! borrow at the lower level goes first. Rank breaks ties. After Kueue
//! (`pkg/scheduler/fair_sharing_iterator.go` and `scheduler.go`, v0.19). A queue in which quota alone decides enters one gang in each
//! round, as in each of Kueue's scheduling cycles, if it would get quota as the round begins. In other queues, and with fair
//! sharing, the next gang enters as soon as the previous one is admitted.
//!
//! An admission changes the usage of the node that is charged and of its ancestors only, so only their
//! entries are compared again. Each node keeps its entries in an ordered set. The queue of a node goes before
//! the queues below that node.
//!
//! Gangs of queues that share no tree are ordered by rank, and so are the winners of different trees. A queue
//! with admission fair sharing also enters its first schedulable gang when it shares no tree, since gangs
//! that are behind it may rank higher.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use model::{
    Assignment, Charges, DominantShare, QueueIx, QuotaIx, QuotaUsage, ShapeIx, ShapeRow, Snapshot, World,
};

use crate::order::RowHead;
use crate::quota::{Quotas, Trial};
use crate::usage_order::{LocalQueueUsages, QueueHeads};

/// The next gang of each row that the cycle tries.
pub(crate) struct Tournament<'s> {
    usage_order: LocalQueueUsages<'s>,
    /// Gangs of queues that compete with no other queue, and scale-ups of running gangs.
    uncontested: BTreeSet<RowHead<'s>>,
    trees: BTreeMap<Scope, QuotaTree<'s>>,
    /// Pending gangs of queues in which usage is compared before rank.
    usage_ordered: BTreeSet<RowHead<'s>>,
    /// Queues that have their turn, and whose contender is not determined.
    undecided: BTreeSet<(Scope, QueueIx)>,
    /// Scopes whose round may be over.
    rounds: BTreeSet<Scope>,
    /// The winner of each scope.
    winners: BTreeSet<(RowHead<'s>, Scope)>,
    /// All contenders, by rank.
    contenders: BTreeSet<RowHead<'s>>,
    /// Scopes whose winner is to be recomputed.
    dirty: BTreeSet<Scope>,
}

/// Where a queue competes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    /// In the quota tree with this root.
    QuotaTree(QuotaIx),
    /// Only within itself: the queue shares no quota, but uses admission fair sharing.
    Queue(QueueIx),
}

/// The competition within one quota tree.
#[derive(Default)]
struct QuotaTree<'s> {
    /// The row heads of each queue, without its contender.
    queue_heads: BTreeMap<QueueIx, QueueHeads<'s>>,
    /// Queues whose turn in this round has ended.
    ended: BTreeSet<QueueIx>,
    /// The contender of each queue.
    charges: BTreeMap<QueueIx, Contender<'s>>,
    /// The entries of each quota node: its queue's contender and the best entry of each child.
    entries: BTreeMap<QuotaIx, BTreeSet<Entry<'s>>>,
    /// The entry of each quota node in the set of its parent.
    parent_entries: BTreeMap<QuotaIx, Entry<'s>>,
    /// Nodes whose entry in the parent is to be recomputed.
    dirty: BTreeSet<QuotaIx>,
    winner: Option<RowHead<'s>>,
}

/// The first gang of a queue in this round.
struct Contender<'s> {
    next: RowHead<'s>,
    /// What it would be charged.
    charges: Charges,
    /// The level at which it would have borrowed when it was looked at; `None`: that at which it would borrow now.
    level: Option<u32>,
}

/// A contender in the set of a quota node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry<'s> {
    borrowing: BorrowingKey,
    next: RowHead<'s>,
    queue: QueueIx,
}

/// Compared before rank; the smaller goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct BorrowingKey {
    /// The level at which it would borrow; with fair sharing 1 if it would borrow at all, else 0.
    level: u32,
    /// With fair sharing, the dominant share that the node would have.
    share: Option<DominantShare>,
}

impl<'s> Tournament<'s> {
    pub(crate) fn of(snapshot: &Snapshot<'s>) -> Self {
        Self {
            usage_order: LocalQueueUsages::of(snapshot),
            uncontested: BTreeSet::new(),
            trees: BTreeMap::new(),
            usage_ordered: BTreeSet::new(),
            undecided: BTreeSet::new(),
            rounds: BTreeSet::new(),
            winners: BTreeSet::new(),
            contenders: BTreeSet::new(),
            dirty: BTreeSet::new(),
        }
    }

    /// Whether no gang is left to try.
    pub(crate) fn is_empty(&self) -> bool {
        self.uncontested.is_empty()
            && self.contenders.is_empty()
            && self.undecided.is_empty()
            && self.rounds.is_empty()
    }

    /// Adds the next gang of a row.
    pub(crate) fn insert(&mut self, world: &World, next: RowHead<'s>) {
        let row = world.shape(next.ix);
        let queue = row.queue;
        let Some((leaf, scope)) = contention_scope(world, queue).filter(|_| row.shape.scale_up.is_none())
        else {
            self.uncontested.insert(next);
            return;
        };
        self.enqueue(world, scope, next);
        let Some(tree) = self.trees.get_mut(&scope).filter(|tree| !tree.ended.contains(&queue)) else {
            return;
        };
        let contender = tree.charges.get(&queue).map(|contender| contender.next);
        let mut key = |next: RowHead<'s>| {
            (self.usage_order.weighted_usage(queue, world.shape(next.ix).local_queue), next)
        };
        if contender.is_none_or(|contender| key(next) < key(contender)) {
            if let Some(contender) = contender {
                tree.remove_contender(leaf, queue);
                self.contenders.remove(&contender);
                self.dirty.insert(scope);
                self.enqueue(world, scope, contender);
            }
            self.undecided.insert((scope, queue));
        }
    }

    /// Adds a gang to the heads of its queue.
    fn enqueue(&mut self, world: &World, scope: Scope, next: RowHead<'s>) {
        let row = world.shape(next.ix);
        let weighted_usage = self.usage_order.weighted_usage(row.queue, row.local_queue);
        let queue_heads = self.trees.entry(scope).or_default().queue_heads.entry(row.queue).or_default();
        queue_heads.insert(next, row.local_queue, weighted_usage);
        if world.admission_fair_sharing(row.queue).is_some() {
            self.usage_ordered.insert(next);
        }
    }

    /// Takes out the first gang of a queue whose turn has come.
    pub(crate) fn pop_undecided(&mut self) -> Option<RowHead<'s>> {
        loop {
            self.begin_rounds();
            let (scope, queue) = self.undecided.first().copied()?;
            let queue_heads = self.trees.get_mut(&scope).and_then(|tree| tree.queue_heads.get_mut(&queue));
            if let Some(first) = queue_heads.and_then(QueueHeads::pop_first) {
                self.usage_ordered.remove(&first);
                return Some(first);
            }
            self.undecided.remove(&(scope, queue));
            self.rounds.insert(scope);
        }
    }

    /// Gives every queue of a tree its turn again, if all had one and no contender is left.
    fn begin_rounds(&mut self) {
        while let Some(scope) = self.rounds.pop_first() {
            let Some(tree) = self.trees.get_mut(&scope).filter(|tree| tree.charges.is_empty()) else {
                continue;
            };
            let all = (scope, QueueIx(0))..=(scope, QueueIx(u32::MAX));
            if self.undecided.range(all).next().is_none() {
                self.undecided
                    .extend(std::mem::take(&mut tree.ended).into_iter().map(|queue| (scope, queue)));
            }
        }
    }

    /// Ends the turn of a queue.
    pub(crate) fn end_turn(&mut self, world: &World, queue: QueueIx) {
        let Some((_, scope)) = contention_scope(world, queue) else { return };
        self.undecided.remove(&(scope, queue));
        self.trees.entry(scope).or_default().ended.insert(queue);
        self.rounds.insert(scope);
    }

    fn queue_heads(&mut self, world: &World, queue: QueueIx) -> Option<&mut QueueHeads<'s>> {
        let (_, scope) = contention_scope(world, queue)?;
        self.trees.get_mut(&scope)?.queue_heads.get_mut(&queue)
    }

    /// Makes a gang the contender of its queue, with what it would be charged, and the level at which it would borrow if that
    /// does not follow from the usage when its turn comes.
    pub(crate) fn add_contender(
        &mut self,
        world: &World,
        next: RowHead<'s>,
        charges: Charges,
        level: Option<u32>,
    ) {
        let queue = world.shape(next.ix).queue;
        let Some((leaf, scope)) = contention_scope(world, queue) else { return };
        let tree = self.trees.entry(scope).or_default();
        tree.charges.insert(queue, Contender { next, charges, level });
        tree.entries.entry(leaf).or_default().insert(Entry {
            borrowing: BorrowingKey::default(),
            next,
            queue,
        });
        tree.dirty.insert(leaf);
        self.dirty.insert(scope);
        self.undecided.remove(&(scope, queue));
        self.contenders.insert(next);
    }

    /// The gang of the highest rank that is still to be tried.
    pub(crate) fn highest_ranked(&self) -> Option<RowHead<'s>> {
        let firsts = [self.uncontested.first(), self.contenders.first(), self.usage_ordered.first()];
        firsts.into_iter().flatten().min().copied()
    }

    /// Whether another gang of its queue goes before a waiting gang, though that one may rank higher.
    pub(crate) fn has_predecessor(&mut self, world: &World, next: &RowHead<'s>) -> bool {
        let row = world.shape(next.ix);
        let Some((_, scope)) =
            contention_scope(world, row.queue).filter(|_| world.admission_fair_sharing(row.queue).is_some())
        else {
            return false;
        };
        let Some(tree) = self.trees.get(&scope) else { return false };
        let contender = tree.charges.get(&row.queue).map(|contender| contender.next);
        let first = tree.queue_heads.get(&row.queue).and_then(QueueHeads::first).map(|(_, next)| next);
        let mut key = |next: RowHead<'s>| {
            (self.usage_order.weighted_usage(row.queue, world.shape(next.ix).local_queue), next)
        };
        let own_key = key(*next);
        contender.into_iter().chain(first).any(|other| key(other) < own_key)
    }

    /// The first gang of a row that is ordered after another gang.
    pub(crate) fn first_after(
        &mut self,
        snapshot: &Snapshot<'s>,
        predecessor: &RowHead<'s>,
        ix: ShapeIx,
    ) -> Option<RowHead<'s>> {
        let (before, row) = (snapshot.world.shape(predecessor.ix), snapshot.world.shape(ix));
        let usage_order = &mut self.usage_order;
        let mut weighted_usage = |row: &ShapeRow| usage_order.weighted_usage(row.queue, row.local_queue);
        let by_usage = if before.queue == row.queue {
            weighted_usage(before).cmp(&weighted_usage(row))
        } else {
            Ordering::Equal
        };
        match by_usage {
            Ordering::Less => RowHead::first_of(snapshot, ix),
            Ordering::Equal => RowHead::first_after(snapshot, ix, &predecessor.rank),
            Ordering::Greater => None,
        }
    }

    /// Adds the assignment of an admitted gang to the usage of its local queue.
    pub(crate) fn record_admission(&mut self, world: &World, row: &ShapeRow, assignment: &Assignment) {
        if world.admission_fair_sharing(row.queue).is_none() {
            return;
        }
        let request = row.shape.placed(assignment).quota_request();
        self.usage_order.record_admission(row.queue, row.local_queue, &request);
        let weighted_usage = self.usage_order.weighted_usage(row.queue, row.local_queue);
        if let Some(queue_heads) = self.queue_heads(world, row.queue) {
            queue_heads.update_head(row.local_queue, weighted_usage);
        }
    }

    /// Takes out the gang to try next.
    pub(crate) fn pop(&mut self, quotas: &Quotas<'_>) -> Option<RowHead<'s>> {
        while let Some(scope) = self.dirty.pop_first() {
            let Some(tree) = self.trees.get_mut(&scope) else { continue };
            let before = tree.winner;
            tree.update_winner(scope, quotas);
            if let Some(before) = before {
                self.winners.remove(&(before, scope));
            }
            self.winners.extend(tree.winner.map(|winner| (winner, scope)));
        }
        let uncontested = self.uncontested.first().copied();
        let Some((winner, scope)) = self
            .winners
            .first()
            .copied()
            .filter(|(winner, _)| uncontested.is_none_or(|uncontested| *winner < uncontested))
        else {
            return self.uncontested.pop_first();
        };
        let world = quotas.world();
        let queue = world.shape(winner.ix).queue;
        if let Some(((leaf, _), tree)) = contention_scope(world, queue).zip(self.trees.get_mut(&scope)) {
            tree.remove_contender(leaf, queue);
        }
        self.contenders.remove(&winner);
        self.dirty.insert(scope);
        if self.trees.get(&scope).is_none_or(|tree| !tree.ended.contains(&queue)) {
            self.undecided.insert((scope, queue));
        }
        self.rounds.insert(scope);
        Some(winner)
    }

    /// Recomputes all entries of the trees of some quota nodes, after usage changed elsewhere than at the
    /// winner's queue.
    pub(crate) fn invalidate(&mut self, world: &World, nodes: &[QuotaIx]) {
        for scope in nodes.iter().map(|node| Scope::QuotaTree(world.forest().root(*node))) {
            if let Some(tree) = self.trees.get_mut(&scope) {
                tree.dirty.extend(tree.entries.keys().copied());
                self.dirty.insert(scope);
            }
        }
    }
}

impl<'s> QuotaTree<'s> {
    /// Takes out the contender of a queue.
    fn remove_contender(&mut self, leaf: QuotaIx, queue: QueueIx) {
        let Some(Contender { next, .. }) = self.charges.remove(&queue) else { return };
        if let Some(entries_above) = self.entries.get_mut(&leaf) {
            entries_above.remove(&Entry { borrowing: BorrowingKey::default(), next, queue });
        }
        self.dirty.insert(leaf);
    }

    /// Recomputes the winner.
    fn update_winner(&mut self, scope: Scope, quotas: &Quotas<'_>) {
        let world = quotas.world();
        let Scope::QuotaTree(root) = scope else {
            self.winner = self.entries.values().find_map(BTreeSet::first).map(|entry| entry.next);
            return;
        };
        if world.policy().fair_sharing.is_some() {
            let above: BTreeSet<(usize, QuotaIx)> = std::mem::take(&mut self.dirty)
                .into_iter()
                .flat_map(|node| world.forest().path(node))
                .map(|node| (world.forest().path(node).count(), node))
                .collect();
            for (_, node) in above.into_iter().rev() {
                self.update_entry(node, world.forest().parent(node), quotas);
            }
        } else {
            for node in std::mem::take(&mut self.dirty).into_iter().filter(|node| *node != root) {
                self.update_entry(node, Some(root), quotas);
            }
            // Usage only grows within a cycle. So a stale entry borrows too little, and is found when it
            // comes first.
            while let Some(first) = self.entries.get(&root).and_then(BTreeSet::first).copied()
                && let Some(node) = world.quota_of(first.queue).filter(|node| *node != root)
                && self.borrowing_key(node, &first, quotas) != first.borrowing
            {
                self.update_entry(node, Some(root), quotas);
            }
        }
        self.winner = self.entries.get(&root).and_then(BTreeSet::first).map(|entry| entry.next);
    }

    /// Puts the first entry of a node into the set of its parent.
    fn update_entry(&mut self, node: QuotaIx, above: Option<QuotaIx>, quotas: &Quotas<'_>) {
        let Some(above) = above else { return };
        let first = self.entries.get(&node).and_then(BTreeSet::first).copied();
        let entries_above = self.entries.entry(above).or_default();
        if let Some(before) = self.parent_entries.remove(&node) {
            entries_above.remove(&before);
        }
        if let Some(first) = first {
            let entry = Entry { borrowing: self.borrowing_key(node, &first, quotas), ..first };
            self.entries.entry(above).or_default().insert(entry);
            self.parent_entries.insert(node, entry);
        }
    }

    /// The comparison key of a node if a contender below it were admitted.
    fn borrowing_key(&self, node: QuotaIx, entry: &Entry<'s>, quotas: &Quotas<'_>) -> BorrowingKey {
        let Some(Contender { charges, level, .. }) = self.charges.get(&entry.queue) else {
            return BorrowingKey::default();
        };
        let forest = quotas.world().forest();
        let mut trial = Trial::of(quotas);
        if quotas.world().policy().fair_sharing.is_none() {
            let levels = charges.iter().map(|((at, of), amount)| trial.borrowing_level(*at, *of, *amount));
            return BorrowingKey { level: level.unwrap_or_else(|| levels.max().unwrap_or(0)), share: None };
        }
        for ((at, of), amount) in charges {
            trial.charge(*at, *of, *amount);
        }
        let borrows = charges.keys().any(|(_, of)| trial.used(node, *of) > forest.subtree_quota(node, *of));
        BorrowingKey { level: u32::from(borrows), share: Some(forest.share(&trial, node)) }
    }
}

/// The quota node of a queue and the scope in which it competes; none if it shares no tree and does not use
/// admission fair sharing.
fn contention_scope(world: &World, queue: QueueIx) -> Option<(QuotaIx, Scope)> {
    let forest = world.forest();
    let leaf = world.quota_of(queue);
    let shared = leaf.filter(|leaf| {
        let has_others = || forest.parent(*leaf).is_some() || forest.children(*leaf).next().is_some();
        forest.has_root(*leaf) && has_others()
    });
    match shared {
        Some(leaf) => Some((leaf, Scope::QuotaTree(forest.root(leaf)))),
        None => world.admission_fair_sharing(queue).map(|_| (leaf.unwrap_or_default(), Scope::Queue(queue))),
    }
}
