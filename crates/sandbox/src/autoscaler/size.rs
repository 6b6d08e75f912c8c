//! The nodes of the pools: booting, present, idle.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::pool::{NodePool, POOL_LABEL};
use crate::pace::{Pace, suffix};
use crate::wire::{Node, Pod};

/// How long a node has no pods until it is removed; divided by the speed.
const IDLE: Duration = Duration::from_mins(10);

/// A node that boots.
#[derive(Debug, Clone)]
pub(super) struct Boot {
    pub(super) name: String,
    /// The position of its pool.
    pub(super) pool: usize,
    pub(super) manifest: Value,
    pub(super) ready_at: Instant,
}

impl Boot {
    /// The node as it will be.
    pub(super) fn node(&self) -> Arc<Node> {
        let mut manifest = self.manifest.clone();
        manifest["metadata"]["labels"]["kubernetes.io/hostname"] = self.name.clone().into();
        Arc::new(serde_json::from_value(manifest).unwrap_or_default())
    }
}

/// The pools with their nodes.
#[derive(Debug)]
pub(super) struct Pools {
    pub(super) all: Vec<NodePool>,
    pace: Pace,
    pub(super) booting: Vec<Boot>,
    /// The number of nodes that were requested so far.
    serial: u64,
    /// The number of scale-ups so far.
    attempts: u64,
    idle_since: BTreeMap<String, Instant>,
}

impl Pools {
    pub(super) fn new(pools: Vec<NodePool>, pace: Pace) -> Self {
        let (booting, idle_since) = (Vec::new(), BTreeMap::new());
        Self { all: pools, pace, booting, serial: 0, attempts: 0, idle_since }
    }

    /// The pool of a node.
    fn pool_of(&self, node: &Node) -> Option<usize> {
        let name = node.metadata.label(POOL_LABEL)?;
        self.all.iter().position(|pool| pool.name == name)
    }

    /// The number of nodes of a pool, with the ones that boot.
    fn size(&self, pool: usize, nodes: &[Arc<Node>]) -> u32 {
        let present = nodes.iter().filter(|node| self.pool_of(node) == Some(pool)).count();
        let booting = self.booting.iter().filter(|boot| boot.pool == pool).count();
        u32::try_from(present + booting).unwrap_or(u32::MAX)
    }

    /// How many nodes a pool may add.
    pub(super) fn room(&self, pool: usize, nodes: &[Arc<Node>]) -> u32 {
        self.all[pool].max.saturating_sub(self.size(pool, nodes))
    }

    /// How many nodes a pool lacks of its smallest size.
    pub(super) fn lack(&self, pool: usize, nodes: &[Arc<Node>]) -> u32 {
        self.all[pool].min.saturating_sub(self.size(pool, nodes))
    }

    /// The next nodes of a pool that would be requested, with further labels.
    pub(super) fn next(&self, pool: usize, count: u32, labels: &[(&str, &str)]) -> Vec<Boot> {
        let of = |at: u32| {
            let name = &self.all[pool].name;
            let name = format!("{name}-{}", suffix(self.pace.draw((name, self.serial + u64::from(at)))));
            let mut manifest = self.all[pool].node(&name);
            for (key, value) in labels {
                manifest["metadata"]["labels"][key] = (*value).into();
            }
            let ready_at = Instant::now() + self.pace.scaled(self.all[pool].boot);
            Boot { name, pool, manifest, ready_at }
        };
        (0..count).map(of).collect()
    }

    /// Requests nodes from [`Self::next`]. Returns whether the scale-up succeeds: otherwise they never come.
    pub(super) fn boot(&mut self, boots: Vec<Boot>) -> bool {
        let Some(pool) = boots.first().map(|boot| boot.pool) else { return true };
        self.serial += boots.len() as u64;
        self.attempts += 1;
        let succeeds = !self.all[pool].fails(self.pace, self.attempts);
        if succeeds {
            self.booting.extend(boots);
        }
        succeeds
    }

    /// Takes the nodes that have booted.
    pub(super) fn ready(&mut self, now: Instant) -> Vec<Boot> {
        let (ready, booting) =
            std::mem::take(&mut self.booting).into_iter().partition(|boot| boot.ready_at <= now);
        self.booting = booting;
        ready
    }

    /// The nodes that are removed: without pods for some time, unless they are kept, and above the smallest size of their pool.
    pub(super) fn idle(
        &mut self,
        nodes: &[Arc<Node>],
        pods: impl Fn(&Node) -> Vec<Arc<Pod>>,
        kept: &BTreeSet<String>,
        now: Instant,
    ) -> Vec<Arc<Node>> {
        let (mut removed, mut left) = (Vec::new(), BTreeMap::new());
        for node in nodes {
            let Some(pool) = self.pool_of(node) else { continue };
            let name = &node.metadata.name;
            if kept.contains(name) || pods(node).iter().any(|pod| holds_node(pod)) {
                self.idle_since.remove(name);
                continue;
            }
            let since = *self.idle_since.entry(name.clone()).or_insert(now);
            let size = *left.entry(pool).or_insert_with(|| self.size(pool, nodes));
            if since + self.pace.scaled(IDLE) <= now && size > self.all[pool].min {
                left.insert(pool, size - 1);
                removed.push(node.clone());
            }
        }
        let exists = |name: &String| nodes.iter().any(|node| node.metadata.name == *name);
        self.idle_since.retain(|name, _| exists(name));
        removed
    }

    /// The next time at which something happens by itself.
    pub(super) fn next_event(&self) -> Option<Instant> {
        let boots = self.booting.iter().map(|boot| boot.ready_at);
        let removals = self.idle_since.values().map(|since| *since + self.pace.scaled(IDLE));
        let now = Instant::now();
        boots.chain(removals.filter(|at| *at > now)).min()
    }
}

/// Whether a pod keeps its node from being removed. Pods of `DaemonSet`s go with the node.
fn holds_node(pod: &Pod) -> bool {
    !pod.is_finished() && pod.metadata.controller().is_none_or(|owner| owner.kind != "DaemonSet")
}
