//! Nodes, and the nodes with each host name.

use api::scheduling_gate::HOSTNAME;
use model::Event;

use super::Index;
use crate::{remove_from, translate, wire};

impl Index {
    /// Adds or updates a node. An update without a relevant change (heartbeats are frequent) is ignored.
    pub fn upsert_node(&mut self, node: wire::Node) {
        let created = node.metadata.creation_timestamp.clone();
        self.note_readiness(&node);
        let node = translate::node(node, self.world.resources_mut());
        if self.world.node(&node.name) == Some(&node) {
            return;
        }
        let name = node.name.clone();
        self.remove_host(&name);
        if let Some(host) = node.labels.get(HOSTNAME) {
            self.hosts.entry(host.clone()).or_default().insert(name.clone());
        }
        self.world.apply_deferred(Event::NodeUpserted(node));
        self.clear_node_exclusions(&name);
        self.note_node(&name, &created);
        self.changed_nodes.insert(name);
    }

    /// Removes a deleted node.
    pub fn delete_node(&mut self, name: &str) {
        self.remove_host(name);
        self.forget_node(name);
        self.forget_readiness(name);
        self.world.apply_deferred(Event::NodeRemoved(name.to_owned()));
        self.changed_nodes.insert(name.to_owned());
    }

    /// Forgets the host name label of a node.
    fn remove_host(&mut self, node: &str) {
        let Some(host) = self.host(node).map(str::to_owned) else { return };
        remove_from(&mut self.hosts, &host, node);
    }
}
