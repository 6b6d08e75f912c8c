//! The writes about places on failed nodes: the status names the node, then the places that replace those on it, or the Workload is
//! evicted. After `pkg/controller/tas/node_controller.go` and `pkg/scheduler/scheduler.go` of Kueue v0.19.

use std::collections::BTreeSet;

use serde_json::json;

use super::{Decision, admission};

/// The reason of the eviction.
const NODE_FAILURES: &str = "NodeFailures";

impl Decision<'_> {
    /// Brings the failed nodes in the status up to date. A Workload that has lost all its places is evicted.
    pub(super) fn replace_nodes(&mut self) {
        if self.write_replaced_places() {
            return;
        }
        let failed = self.index.failed_hosts(self.row);
        let known: Vec<String> = self.status.unhealthy_hosts().map(str::to_owned).collect();
        if known.is_empty() && failed.is_empty() {
            return;
        }
        let new: Vec<&String> = failed.iter().filter(|host| !known.contains(host)).collect();
        let all: Vec<&String> = known.iter().chain(new.iter().copied()).collect();
        let hosts = all.iter().map(|host| host.as_str()).collect();
        if all.len() > 1 && !new.is_empty() && self.index.has_lost_all(self.row, &hosts) {
            let names = joined(&all, ", ");
            let text = format!(
                "Workload eviction triggered due to multiple TAS assigned node failures, including: {names}"
            );
            self.evict(NODE_FAILURES, "", &text);
        } else if !new.is_empty() {
            self.status.unhealthy_nodes.extend(new.iter().map(|host| json!({ "name": host })));
        } else if known.iter().any(|host| !failed.contains(host)) {
            self.status
                .unhealthy_nodes
                .retain(|node| node["name"].as_str().is_some_and(|host| failed.contains(host)));
        } else if self.row.lacks_replacement() && self.options.rules.failed_nodes.fails_fast {
            let names = joined(&all, ",");
            let text =
                format!("Workload was evicted as there was no replacement for unhealthy node(s): {names}");
            self.evict(NODE_FAILURES, "", &text);
        }
    }

    /// Writes the places that replace those on failed nodes.
    fn write_replaced_places(&mut self) -> bool {
        let Some(written) = self.row.replaced().and_then(|new| admission::of(self.index, self.row, new))
        else {
            return false;
        };
        let Some(admission) = &mut self.status.admission else { return false };
        for set in &mut admission.pod_set_assignments {
            let new = written.pod_set_assignments.iter().find(|new| new.name == set.name);
            if let Some(new) = new.filter(|_| set.topology_assignment.is_some()) {
                set.topology_assignment.clone_from(&new.topology_assignment);
            }
        }
        let failed: BTreeSet<String> = self.status.unhealthy_hosts().map(str::to_owned).collect();
        self.status.unhealthy_nodes.clear();
        let names = joined(&failed.iter().collect::<Vec<_>>(), ", ");
        self.event(
            false,
            "NodesReplaced",
            format!("Found other places for those on the failed node(s) {names}"),
        );
        true
    }
}

fn joined(names: &[&String], separator: &str) -> String {
    names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(separator)
}
