//! Who goes first of those who compete for the quota of one tree.
//!
//! Queues that share a tree do not simply take turns by rank. Each sends its first gang that can move, and these are compared
//! by what would be if they had started: with fair sharing level by level from the root down, at each level the subtree
//! that borrows nothing for it first, then the one of the smallest dominant share; without, by how far up they would borrow.
//! Rank breaks ties. After Kueue (`pkg/scheduler/fair_sharing_iterator.go` and `scheduler.go`, v0.19), but the next gang of
//! a queue competes as soon as the one before it has started.
//!
//! A start changes the usage of the nodes above it only, so only their entries are weighed again: one ordered set a node.
//! A queue of a node itself goes before those of nodes below it.
//! Gangs of queues that compete with nobody go by rank, and so do the winners of different trees. A queue whose local queues
//! take turns sends its first gang that can move as well, also if it shares no tree: its other gangs may be of higher rank.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use model::{Assignment, Charges, QueueIx, QuotaIx, ShapeIx, ShapeRow, Share, Snapshot, Usage, World};

use crate::order::Next;
use crate::quota::{Quotas, Trial};
use crate::usage_order::{LocalQueueUsages, QueueHeads};

/// The gangs whose turn may come in a pass: the next one of each row that is taken up.
pub(crate) struct Heads<'s> {
    usage_order: LocalQueueUsages<'s>,
    /// Those of queues that compete with nobody, and pods that join gangs that run.
    loose: BTreeSet<Next<'s>>,
    trees: BTreeMap<Arena, Tree<'s>>,
    /// Those in lines where rank is not what decides first.
    lined: BTreeSet<Next<'s>>,
    /// Queues whose contender is not known.
    vacant: BTreeSet<QueueIx>,
    /// The winner of each tree.
    winners: BTreeSet<(Next<'s>, Arena)>,
    /// All contenders, by rank.
    contenders: BTreeSet<Next<'s>>,
    /// Trees with nodes that are to be weighed again.
    dirty: BTreeSet<Arena>,
}

/// Where queues compete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Arena {
    /// In the tree of quota with this root.
    Tree(QuotaIx),
    /// Nowhere: the queue shares no quota, but its local queues take turns.
    Alone(QueueIx),
}

/// One tree of quota.
#[derive(Default)]
struct Tree<'s> {
    /// The next gangs of the rows of each queue, but for its contender.
    lines: BTreeMap<QueueIx, QueueHeads<'s>>,
    /// What each queue's first gang would be charged.
    charges: BTreeMap<QueueIx, (Next<'s>, Charges)>,
    /// Who competes at each node.
    stands: BTreeMap<QuotaIx, BTreeSet<Entry<'s>>>,
    /// The entry of each node at the one above.
    listed: BTreeMap<QuotaIx, Entry<'s>>,
    /// Nodes whose entries above are to be weighed again.
    dirty: BTreeSet<QuotaIx>,
    winner: Option<Next<'s>>,
}

/// A contender at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry<'s> {
    weight: Weight,
    next: Next<'s>,
    queue: QueueIx,
}

/// What decides between contenders before rank does; the lighter goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Weight {
    /// How far up it would borrow; with fair sharing one if at all.
    level: u32,
    /// The share that the node would have, with fair sharing.
    share: Option<Share>,
}

impl<'s> Heads<'s> {
    pub(crate) fn of(snapshot: &Snapshot<'s>) -> Self {
        Self {
            usage_order: LocalQueueUsages::of(snapshot),
            loose: BTreeSet::new(),
            trees: BTreeMap::new(),
            lined: BTreeSet::new(),
            vacant: BTreeSet::new(),
            winners: BTreeSet::new(),
            contenders: BTreeSet::new(),
            dirty: BTreeSet::new(),
        }
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.loose.is_empty() && self.contenders.is_empty() && self.vacant.is_empty()
    }

    /// Adds the next gang of a row.
    pub(crate) fn insert(&mut self, world: &World, next: Next<'s>) {
        let row = world.shape(next.ix);
        let queue = row.queue;
        let Some((leaf, arena)) = competes(world, queue).filter(|_| row.shape.scale_up.is_none()) else {
            self.loose.insert(next);
            return;
        };
        self.line_up(world, arena, next);
        let Some(tree) = self.trees.get_mut(&arena) else { return };
        let contender = tree.charges.get(&queue).map(|(contender, _)| *contender);
        let mut key =
            |next: Next<'s>| (self.usage_order.weighted_usage(queue, world.shape(next.ix).local_queue), next);
        if contender.is_none_or(|contender| key(next) < key(contender)) {
            if let Some((contender, _)) = tree.withdraw(leaf, queue) {
                self.contenders.remove(&contender);
                self.dirty.insert(arena);
                self.line_up(world, arena, contender);
            }
            self.vacant.insert(queue);
        }
    }

    /// Puts a gang into the line of its queue.
    fn line_up(&mut self, world: &World, arena: Arena, next: Next<'s>) {
        let row = world.shape(next.ix);
        let weighted_usage = self.usage_order.weighted_usage(row.queue, row.local_queue);
        let line = self.trees.entry(arena).or_default().lines.entry(row.queue).or_default();
        line.insert(next, row.local_queue, weighted_usage);
        if world.sharing(row.queue).is_some() {
            self.lined.insert(next);
        }
    }

    /// The first gang of a queue of which it is not known whether it can move; it leaves the line.
    pub(crate) fn unknown(&mut self, world: &World) -> Option<Next<'s>> {
        while let Some(queue) = self.vacant.first().copied() {
            if let Some(first) = self.line(world, queue).and_then(QueueHeads::pop_first) {
                self.lined.remove(&first);
                return Some(first);
            }
            self.vacant.remove(&queue);
        }
        None
    }

    fn line(&mut self, world: &World, queue: QueueIx) -> Option<&mut QueueHeads<'s>> {
        let (_, arena) = competes(world, queue)?;
        self.trees.get_mut(&arena)?.lines.get_mut(&queue)
    }

    /// Lets a gang compete for its queue, with what it would be charged.
    pub(crate) fn compete(&mut self, world: &World, next: Next<'s>, charges: Charges) {
        let queue = world.shape(next.ix).queue;
        let Some((leaf, arena)) = competes(world, queue) else { return };
        let tree = self.trees.entry(arena).or_default();
        tree.charges.insert(queue, (next, charges));
        tree.stands.entry(leaf).or_default().insert(Entry { weight: Weight::default(), next, queue });
        tree.dirty.insert(leaf);
        self.dirty.insert(arena);
        self.vacant.remove(&queue);
        self.contenders.insert(next);
    }

    /// The one of the highest rank among all who may come.
    pub(crate) fn highest(&self) -> Option<Next<'s>> {
        let firsts = [self.loose.first(), self.contenders.first(), self.lined.first()];
        firsts.into_iter().flatten().min().copied()
    }

    /// Whether another gang of its queue comes before a gang that has to wait, although its rank may be lower.
    pub(crate) fn has_ahead(&mut self, world: &World, next: &Next<'s>) -> bool {
        let row = world.shape(next.ix);
        let Some((_, arena)) = competes(world, row.queue).filter(|_| world.sharing(row.queue).is_some())
        else {
            return false;
        };
        let Some(tree) = self.trees.get(&arena) else { return false };
        let contender = tree.charges.get(&row.queue).map(|(contender, _)| *contender);
        let first = tree.lines.get(&row.queue).and_then(QueueHeads::first).map(|(_, next)| next);
        let mut key = |next: Next<'s>| {
            (self.usage_order.weighted_usage(row.queue, world.shape(next.ix).local_queue), next)
        };
        let mine = key(*next);
        contender.into_iter().chain(first).any(|other| key(other) < mine)
    }

    /// The first gang of a row that comes after another one.
    pub(crate) fn first_behind(
        &mut self,
        snapshot: &Snapshot<'s>,
        ahead: &Next<'s>,
        ix: ShapeIx,
    ) -> Option<Next<'s>> {
        let (before, row) = (snapshot.world.shape(ahead.ix), snapshot.world.shape(ix));
        let usage_order = &mut self.usage_order;
        let mut weighted_usage = |row: &ShapeRow| usage_order.weighted_usage(row.queue, row.local_queue);
        let by_burden = if before.queue == row.queue {
            weighted_usage(before).cmp(&weighted_usage(row))
        } else {
            Ordering::Equal
        };
        match by_burden {
            Ordering::Less => Next::first_of(snapshot, ix),
            Ordering::Equal => Next::after(snapshot, ix, &ahead.turn),
            Ordering::Greater => None,
        }
    }

    /// Notes what a gang is given that starts.
    pub(crate) fn serve(&mut self, world: &World, row: &ShapeRow, given: &Assignment) {
        if world.sharing(row.queue).is_none() {
            return;
        }
        let promise = row.shape.placed(given).promise();
        self.usage_order.serve(row.queue, row.local_queue, &promise);
        let weighted_usage = self.usage_order.weighted_usage(row.queue, row.local_queue);
        if let Some(line) = self.line(world, row.queue) {
            line.list(row.local_queue, weighted_usage);
        }
    }

    /// Takes out the one whose turn it is.
    pub(crate) fn pop(&mut self, quotas: &Quotas<'_>) -> Option<Next<'s>> {
        while let Some(arena) = self.dirty.pop_first() {
            let Some(tree) = self.trees.get_mut(&arena) else { continue };
            let before = tree.winner;
            tree.settle(arena, quotas);
            if let Some(before) = before {
                self.winners.remove(&(before, arena));
            }
            self.winners.extend(tree.winner.map(|winner| (winner, arena)));
        }
        let loose = self.loose.first().copied();
        let Some((winner, arena)) =
            self.winners.first().copied().filter(|(winner, _)| loose.is_none_or(|loose| *winner < loose))
        else {
            return self.loose.pop_first();
        };
        let world = quotas.world();
        let queue = world.shape(winner.ix).queue;
        if let Some(((leaf, _), tree)) = competes(world, queue).zip(self.trees.get_mut(&arena)) {
            tree.withdraw(leaf, queue);
        }
        self.contenders.remove(&winner);
        self.dirty.insert(arena);
        self.vacant.insert(queue);
        Some(winner)
    }

    /// Weighs everybody again in the trees of some nodes: usage changed there beside the way of a queue.
    pub(crate) fn disturb(&mut self, world: &World, nodes: &[QuotaIx]) {
        for arena in nodes.iter().map(|node| Arena::Tree(world.forest().root(*node))) {
            if let Some(tree) = self.trees.get_mut(&arena) {
                tree.dirty.extend(tree.stands.keys().copied());
                self.dirty.insert(arena);
            }
        }
    }
}

impl<'s> Tree<'s> {
    /// Takes out the contender of a queue.
    fn withdraw(&mut self, leaf: QuotaIx, queue: QueueIx) -> Option<(Next<'s>, Charges)> {
        let contender = self.charges.remove(&queue)?;
        if let Some(stand) = self.stands.get_mut(&leaf) {
            stand.remove(&Entry { weight: Weight::default(), next: contender.0, queue });
        }
        self.dirty.insert(leaf);
        Some(contender)
    }

    /// Finds the winner.
    fn settle(&mut self, arena: Arena, quotas: &Quotas<'_>) {
        let world = quotas.world();
        let Arena::Tree(root) = arena else {
            self.winner = self.stands.values().find_map(BTreeSet::first).map(|entry| entry.next);
            return;
        };
        if world.policy().fair_sharing.is_some() {
            let above: BTreeSet<(usize, QuotaIx)> = std::mem::take(&mut self.dirty)
                .into_iter()
                .flat_map(|node| world.forest().path(node))
                .map(|node| (world.forest().path(node).count(), node))
                .collect();
            for (_, node) in above.into_iter().rev() {
                self.list(node, world.forest().parent(node), quotas);
            }
        } else {
            for node in std::mem::take(&mut self.dirty).into_iter().filter(|node| *node != root) {
                self.list(node, Some(root), quotas);
            }
            // Usage only grows in a pass, so whoever is listed as borrowing less than it would is noticed when it is first.
            while let Some(first) = self.stands.get(&root).and_then(BTreeSet::first).copied()
                && let Some(node) = world.quota_of(first.queue).filter(|node| *node != root)
                && self.weigh(node, &first, quotas) != first.weight
            {
                self.list(node, Some(root), quotas);
            }
        }
        self.winner = self.stands.get(&root).and_then(BTreeSet::first).map(|entry| entry.next);
    }

    /// Lists the first contender at a node at the one above.
    fn list(&mut self, node: QuotaIx, above: Option<QuotaIx>, quotas: &Quotas<'_>) {
        let Some(above) = above else { return };
        let first = self.stands.get(&node).and_then(BTreeSet::first).copied();
        let stand = self.stands.entry(above).or_default();
        if let Some(before) = self.listed.remove(&node) {
            stand.remove(&before);
        }
        if let Some(first) = first {
            let entry = Entry { weight: self.weigh(node, &first, quotas), ..first };
            self.stands.entry(above).or_default().insert(entry);
            self.listed.insert(node, entry);
        }
    }

    /// What a node would weigh if a contender below it had started.
    fn weigh(&self, node: QuotaIx, entry: &Entry<'s>, quotas: &Quotas<'_>) -> Weight {
        let Some((_, charges)) = self.charges.get(&entry.queue) else { return Weight::default() };
        let forest = quotas.world().forest();
        let mut trial = Trial::of(quotas);
        if quotas.world().policy().fair_sharing.is_none() {
            let levels = charges.iter().map(|((at, of), amount)| trial.borrowing_level(*at, *of, *amount));
            return Weight { level: levels.max().unwrap_or(0), share: None };
        }
        for ((at, of), amount) in charges {
            trial.charge(*at, *of, *amount);
        }
        let borrows = charges.keys().any(|(_, of)| trial.used(node, *of) > forest.owned(node, *of));
        Weight { level: u32::from(borrows), share: Some(forest.share(&trial, node)) }
    }
}

/// The quota node of a queue and where it competes, if others may use its tree as well, or if its local queues take turns.
fn competes(world: &World, queue: QueueIx) -> Option<(QuotaIx, Arena)> {
    let forest = world.forest();
    let leaf = world.quota_of(queue);
    let shared = leaf.filter(|leaf| {
        let has_others = || forest.parent(*leaf).is_some() || forest.children(*leaf).next().is_some();
        forest.is_sound(*leaf) && has_others()
    });
    match shared {
        Some(leaf) => Some((leaf, Arena::Tree(forest.root(leaf)))),
        None => world.sharing(queue).map(|_| (leaf.unwrap_or_default(), Arena::Alone(queue))),
    }
}
