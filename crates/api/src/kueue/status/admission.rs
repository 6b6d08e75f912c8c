//! What a Workload holds: its queue, flavors and places. Places may come after its admission checks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{EVICTED, FINISHED, QUOTA_RESERVED, Status};
use crate::meta::null_is_default;

/// The pods of a pod set get their places after the admission checks.
pub const DELAYED: &str = "Pending";
/// They have got them.
pub const PLACED: &str = "Ready";

/// The reason and the message of the condition `Admitted` while places are the last thing that a Workload lacks.
pub(super) const PLACES_PENDING: (&str, &str) =
    ("PendingDelayedTopologyRequests", "There are pending delayed topology requests");

/// The queue, flavors and places of a Workload.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Admission {
    /// The `ClusterQueue`.
    pub cluster_queue: String,
    /// The pod sets.
    #[serde(deserialize_with = "null_is_default")]
    pub pod_set_assignments: Vec<PodSetAssignment>,
}

/// The flavors and places of a pod set.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSetAssignment {
    /// The pod set.
    pub name: String,
    /// The flavor of each resource.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub flavors: BTreeMap<String, String>,
    /// What all its pods request, as quantities.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub resource_usage: BTreeMap<String, Value>,
    /// The number of its pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// Its topology domains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology_assignment: Option<Value>,
    /// Whether its topology domains are assigned after the admission checks: [`DELAYED`] until they are, then [`PLACED`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delayed_topology_request: Option<String>,
}

impl PodSetAssignment {
    /// Whether its pods get their places after the admission checks, and have none yet.
    pub fn is_open(&self) -> bool {
        self.topology_assignment.is_none() && self.delayed_topology_request.as_deref() == Some(DELAYED)
    }
}

impl Status {
    /// Whether pods get their places after the admission checks, and have none yet.
    pub fn has_open_places(&self) -> bool {
        let mut sets = self.admission.iter().flat_map(|admission| &admission.pod_set_assignments);
        sets.any(PodSetAssignment::is_open)
    }

    /// Whether it holds quota and its places are the last thing that it lacks for its admission.
    pub fn awaits_places(&self) -> bool {
        self.has_open_places()
            && self.are_checks_ready()
            && self.is(QUOTA_RESERVED)
            && !self.is(EVICTED)
            && !self.is(FINISHED)
    }
}
