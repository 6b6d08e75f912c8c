//! Read access of the planner to the indexes: nodes by class, and pending gangs by shape.

use std::sync::Arc;

use super::{ClassIx, ClassRow, DirtyNode, NodeIx, ShapeIx, ShapeRow, World};
use crate::device::{DeviceShares, FreeResources};
use crate::node::Node;
use crate::queue::QueueIx;

impl World {
    /// The classes of nodes, by index.
    pub fn classes(&self) -> impl Iterator<Item = (ClassIx, &ClassRow)> {
        self.classes.iter()
    }

    /// One class of nodes.
    pub fn class(&self, ix: ClassIx) -> &ClassRow {
        self.classes.row(ix)
    }

    /// The changes of nodes since the last plan was accepted, by node.
    pub fn dirty_nodes(&self) -> impl Iterator<Item = (NodeIx, &DirtyNode)> {
        self.classes.dirty_nodes()
    }

    /// Whether an aggregate reservation shrank since the last plan was accepted.
    pub fn aggregates_shrank(&self) -> bool {
        self.classes.has_aggregate_shrunk()
    }

    /// The index of a node that exists.
    pub fn node_ix(&self, name: &str) -> Option<NodeIx> {
        self.ledger.get(name).filter(|ix| self.ledger.node(*ix).is_some())
    }

    /// The node with this index, if it exists.
    pub fn node_at(&self, node: NodeIx) -> Option<&Node> {
        self.ledger.node(node)
    }

    /// The class of a node that exists.
    pub fn class_of(&self, node: NodeIx) -> Option<ClassIx> {
        self.classes.of(node)
    }

    /// The free resources of a node; zero when the node does not exist. May be negative.
    pub fn free(&self, node: NodeIx) -> &FreeResources {
        self.ledger.free(node)
    }

    /// The allocated shares of the devices of a node.
    pub fn shares(&self, node: NodeIx) -> &DeviceShares {
        self.ledger.shares(node)
    }

    /// The name of a node.
    pub fn node_name(&self, node: NodeIx) -> &Arc<str> {
        self.ledger.name(node)
    }

    /// A row of pending gangs of equal shape, queue and priority.
    pub fn shape(&self, ix: ShapeIx) -> &ShapeRow {
        self.shapes.shape(ix)
    }

    /// The row of a pending gang; `None` for a gang that is not pending.
    pub fn shape_of(&self, uid: &str) -> Option<ShapeIx> {
        self.gangs.get(uid).and_then(|&ix| self.shapes.shape_of(ix))
    }

    /// The rows of pending gangs in a queue.
    pub fn rows_of(&self, queue: QueueIx) -> impl Iterator<Item = ShapeIx> {
        self.shapes.rows_of(queue)
    }

    /// Whether the head of a queue may have changed since the last plan was accepted: a pending gang left the queue,
    /// or a gang arrived ahead of parked ones.
    pub fn queue_head_changed(&self, queue: QueueIx) -> bool {
        self.shapes.queue_head_changed(queue)
    }

    /// The rows that are due for planning, like kube-scheduler's active queue.
    pub fn active(&self) -> impl Iterator<Item = ShapeIx> {
        self.shapes.active()
    }

    /// The parked rows with gangs that have no reported verdict.
    pub fn unreported(&self) -> impl Iterator<Item = ShapeIx> {
        self.shapes.unreported()
    }
}
