//! What the simulated nodes could ever hold: no object gets more pods, so that none exhausts the memory of this process.

use std::sync::Arc;

use super::events::Recorder;
use super::kinds::Resource;
use super::store::Store;
use crate::wire::{Job, Node, ReplicaSet, StatefulSet};

/// Objects that ask for no more than this are not looked at: a single node holds as many.
const SMALL: i64 = 110;

/// An object that says how many pods, or objects with pods, are made for it.
pub(crate) trait Counted: Resource + Clone {
    /// The largest number of pods that one of its parts has.
    fn largest(&self) -> i64;

    /// Lowers the numbers, so that no part has more pods.
    fn lower(&mut self, most: i64);
}

/// The nodes, and the pods that nodes of the autoscaler's pools could hold beside them.
#[derive(Clone)]
pub(crate) struct Room {
    nodes: Arc<Store<Node>>,
    pooled: i64,
}

impl Room {
    pub(crate) fn new(nodes: Arc<Store<Node>>, pooled: i64) -> Self {
        Self { nodes, pooled }
    }

    /// The number of pods that all nodes together hold.
    pub(super) fn pods(&self) -> i64 {
        let of = |node: &Arc<Node>| node.status.allocatable.get("pods").map_or(0, |pods| pods.ceil());
        self.nodes.all().iter().map(of).fold(self.pooled, i64::saturating_add).max(SMALL)
    }

    /// The object as it is acted upon: no number in it exceeds what all nodes hold. Otherwise it is told so.
    pub(crate) fn limit<K: Counted>(&self, object: Arc<K>, recorder: &Recorder) -> Arc<K> {
        let largest = object.largest();
        if largest <= SMALL {
            return object;
        }
        let most = self.pods();
        if largest <= most {
            return object;
        }
        let message = format!(
            "asks for {largest}, and all simulated nodes together hold {most} pods: no more are made"
        );
        recorder.warning(&*object, "TooManyPods", message);
        let mut limited = (*object).clone();
        limited.lower(most);
        Arc::new(limited)
    }
}

/// An object with one such number.
macro_rules! counted {
    ($($type:ty => $($field:ident).+;)*) => {
        $(impl Counted for $type {
            fn largest(&self) -> i64 {
                self.$($field).+.unwrap_or(0)
            }

            fn lower(&mut self, most: i64) {
                self.$($field).+ = self.$($field).+.map(|count| count.min(most));
            }
        })*
    };
}

counted! {
    Job => spec.parallelism;
    ReplicaSet => spec.replicas;
    StatefulSet => spec.replicas;
}
