//! What planning reads of the indexes: nodes by class, and waiting gangs by shape.

use std::sync::Arc;

use super::{ClassIx, ClassRow, DirtyNode, NodeIx, QueueIx, ShapeIx, ShapeRow, World};
use crate::device::{DeviceShares, FreeResources};

impl World {
    /// The classes of nodes that exist, by index.
    pub fn classes(&self) -> impl Iterator<Item = (ClassIx, &ClassRow)> {
        self.classes.iter()
    }

    /// One class of nodes.
    pub fn class(&self, ix: ClassIx) -> &ClassRow {
        self.classes.row(ix)
    }

    /// What became of nodes since the last plan was accepted, by node.
    pub fn dirty_nodes(&self) -> impl Iterator<Item = (NodeIx, &DirtyNode)> {
        self.classes.dirty_nodes()
    }

    /// Whether an aggregate shrank since the last plan was accepted.
    pub fn aggregates_shrank(&self) -> bool {
        self.classes.has_supply_risen()
    }

    /// The index of a node that exists.
    pub fn node_ix(&self, name: &str) -> Option<NodeIx> {
        self.ledger.get(name).filter(|ix| self.ledger.node(*ix).is_some())
    }

    /// The class of a node that exists.
    pub fn class_of(&self, node: NodeIx) -> Option<ClassIx> {
        self.classes.of(node)
    }

    /// What a node has free; nothing when it does not exist. May be negative.
    pub fn free(&self, node: NodeIx) -> &FreeResources {
        self.ledger.free(node)
    }

    /// What is taken of the shared devices of a node.
    pub fn shares(&self, node: NodeIx) -> &DeviceShares {
        self.ledger.shares(node)
    }

    /// The name of a node.
    pub fn node_name(&self, node: NodeIx) -> &Arc<str> {
        self.ledger.name(node)
    }

    /// One row of waiting gangs of equal shape, queue and priority.
    pub fn shape(&self, ix: ShapeIx) -> &ShapeRow {
        self.shapes.shape(ix)
    }

    /// The row of a waiting gang; none for one that does not wait.
    pub fn shape_of(&self, uid: &str) -> Option<ShapeIx> {
        self.gangs.get(uid).and_then(|&ix| self.shapes.shape_of(ix))
    }

    /// The rows of waiting gangs in a queue.
    pub fn rows_of(&self, queue: QueueIx) -> impl Iterator<Item = ShapeIx> {
        self.shapes.rows_of(queue)
    }

    /// Whether a gang that waited left a queue since the last plan was accepted, or one came before others that wait, so that
    /// another one may be the first.
    pub fn queue_head_changed(&self, queue: QueueIx) -> bool {
        self.shapes.queue_head_changed(queue)
    }

    /// The shapes that wait for a decision.
    pub fn active(&self) -> impl Iterator<Item = ShapeIx> {
        self.shapes.active()
    }

    /// Parked shapes with gangs that have not been told so.
    pub fn unreported(&self) -> impl Iterator<Item = ShapeIx> {
        self.shapes.unreported()
    }
}
