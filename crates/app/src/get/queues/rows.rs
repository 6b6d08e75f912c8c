//! A row of the table of queues: one queue, flavor and resource.

use api::kueue::quantity::{canonical, millionths};
use controllers::QuotaGroup;
use serde_json::{Value, json};

use crate::why::is_word;

/// One flavor and resource of a queue. Amounts are in base units; those that do not apply are absent.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Row {
    /// Its namespace; empty for a ClusterQueue.
    pub(super) namespace: String,
    /// `clusterqueue/NAME`, `localqueue/NAME` or `quotasubtree/TREE/GROUP`.
    pub(crate) object: String,
    pub(super) cohort: String,
    pub(super) cluster_queue: String,
    pub(super) flavor: String,
    pub(super) resource: String,
    pub(super) quota: Option<i64>,
    pub(super) used: Option<i64>,
    pub(super) borrowed: Option<i64>,
    pub(super) lent: Option<i64>,
    pub(super) borrowing_limit: Option<i64>,
    pub(super) lending_limit: Option<i64>,
    pub(super) waiting: Option<i64>,
    pub(super) admitted: Option<i64>,
    pub(super) state: String,
}

impl Row {
    /// Whether this is its name, or `KIND/NAME`.
    pub(crate) fn is_named(&self, asked: &str) -> bool {
        let (kind, name) = self.object.split_once('/').unwrap_or_default();
        asked == name
            || asked
                .split_once('/')
                .is_some_and(|(asked, of)| of == name && is_word(asked, kind, short_name(kind)))
    }

    /// What all rows of the queue say.
    pub(crate) fn facts(&self) -> [(&'static str, String); 7] {
        let count = |count: Option<i64>| count.map_or_else(String::new, |count| count.to_string());
        [
            ("Name", self.object.clone()),
            ("Namespace", self.namespace.clone()),
            ("Cohort", self.cohort.clone()),
            ("ClusterQueue", self.cluster_queue.clone()),
            ("State", self.state.clone()),
            ("Waiting", count(self.waiting)),
            ("Admitted", count(self.admitted)),
        ]
    }

    /// Flavor, resource and amounts.
    pub(super) fn amounts(&self) -> Vec<String> {
        let amount =
            |amount: Option<i64>| amount.map_or_else(String::new, |amount| canonical(&self.resource, amount));
        let amounts = [self.quota, self.used, self.borrowed, self.lent].map(amount);
        [self.flavor.clone(), self.resource.clone()].into_iter().chain(amounts).collect()
    }

    pub(super) fn cells(&self, has_namespace: bool, is_wide: bool) -> Vec<String> {
        let amount =
            |amount: Option<i64>| amount.map_or_else(String::new, |amount| canonical(&self.resource, amount));
        let count = |count: Option<i64>| count.map_or_else(String::new, |count| count.to_string());
        let mut cells = if has_namespace { vec![self.namespace.clone()] } else { Vec::new() };
        cells.extend([self.object.clone(), self.cohort.clone()]);
        cells.extend(self.amounts());
        cells.extend([self.waiting, self.admitted].map(count));
        if is_wide {
            cells.extend([self.borrowing_limit, self.lending_limit].map(amount));
            cells.push(self.cluster_queue.clone());
        }
        cells.push(self.state.clone());
        cells
    }

    /// The fields of `-o json`; those that do not apply are absent.
    pub(super) fn value(&self) -> Value {
        let mut value = json!({"object": self.object, "state": self.state});
        let texts = [
            ("namespace", &self.namespace),
            ("cohort", &self.cohort),
            ("clusterQueue", &self.cluster_queue),
            ("flavor", &self.flavor),
            ("resource", &self.resource),
        ];
        for (field, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            value[field] = json!(text);
        }
        let amounts = [
            ("quota", self.quota),
            ("used", self.used),
            ("borrowed", self.borrowed),
            ("lent", self.lent),
            ("borrowingLimit", self.borrowing_limit),
            ("lendingLimit", self.lending_limit),
        ];
        for (field, amount) in amounts.into_iter().filter_map(|(field, amount)| Some((field, amount?))) {
            value[field] = json!(canonical(&self.resource, amount));
        }
        for (field, count) in [("waiting", self.waiting), ("admitted", self.admitted)] {
            if let Some(count) = count {
                value[field] = json!(count);
            }
        }
        value
    }
}

fn short_name(kind: &str) -> &'static str {
    match kind {
        "clusterqueue" => "cq",
        "localqueue" => "lq",
        _ => "",
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// An amount in base units; `None` for an absent field.
fn amount(resource: &str, quantity: &Value) -> Option<i64> {
    let whole = || i64::try_from(millionths(resource, quantity).div_ceil(1_000_000)).unwrap_or(i64::MAX);
    (!quantity.is_null()).then(whole)
}

/// What all rows of a queue have.
fn of_queue(kind: &str, queue: &Value) -> Row {
    let (spec, status) = (&queue["spec"], &queue["status"]);
    let active =
        status["conditions"].as_array().into_iter().flatten().find(|known| known["type"] == "Active");
    let state = match (spec["stopPolicy"].as_str(), active) {
        (Some("Hold"), _) => "Held".into(),
        (Some("HoldAndDrain"), _) => "Draining".into(),
        (_, Some(active)) if active["status"] != "True" => text(&active["reason"]),
        (_, Some(_)) => "Active".into(),
        (_, None) => "Unknown".into(),
    };
    Row {
        namespace: text(&queue["metadata"]["namespace"]),
        object: format!("{kind}/{}", text(&queue["metadata"]["name"])),
        waiting: status["pendingWorkloads"].as_i64(),
        admitted: status["admittedWorkloads"].as_i64(),
        state,
        ..Row::default()
    }
}

/// The total and the borrowed amount that a status tells for a flavor and a resource.
fn used(status: &Value, flavor: &str, resource: &str) -> (Option<i64>, Option<i64>) {
    let named = |list: &Value, name: &str| -> Option<Value> {
        list.as_array()?.iter().find(|item| item["name"] == name).cloned()
    };
    let found =
        named(&status["flavorsReservation"], flavor).and_then(|flavor| named(&flavor["resources"], resource));
    let found = found.unwrap_or_default();
    (amount(resource, &found["total"]), amount(resource, &found["borrowed"]))
}

/// A row if a queue has none yet, so that none is left out.
fn or_one(rows: Vec<Row>, queue: Row) -> Vec<Row> {
    if rows.is_empty() { vec![queue] } else { rows }
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The rows of `ClusterQueue` objects: their quota, flavor by flavor.
pub(super) fn of_cluster_queues(queues: &[Value]) -> Vec<Row> {
    let of = |queue: &Value| {
        let mut common = of_queue("clusterqueue", queue);
        common.cohort = text(&queue["spec"]["cohortName"]);
        common.cluster_queue = text(&queue["metadata"]["name"]);
        let mut rows = Vec::new();
        for flavor in array(&queue["spec"]["resourceGroups"]).flat_map(|group| array(&group["flavors"])) {
            for quota in array(&flavor["resources"]) {
                let (flavor, resource) = (text(&flavor["name"]), text(&quota["name"]));
                let (used, borrowed) = used(&queue["status"], &flavor, &resource);
                let of = |field: &str| amount(&resource, &quota[field]);
                rows.push(Row {
                    quota: of("nominalQuota"),
                    used: used.or(Some(0)),
                    borrowed: borrowed.or(Some(0)),
                    borrowing_limit: of("borrowingLimit"),
                    lending_limit: of("lendingLimit"),
                    flavor,
                    resource,
                    ..common.clone()
                });
            }
        }
        or_one(rows, common)
    };
    queues.iter().flat_map(of).collect()
}

/// The rows of `LocalQueue` objects: what their Workloads use. Quota belongs to the ClusterQueue.
pub(super) fn of_local_queues(queues: &[Value]) -> Vec<Row> {
    let of = |queue: &Value| {
        let mut common = of_queue("localqueue", queue);
        common.cluster_queue = text(&queue["spec"]["clusterQueue"]);
        let mut rows = Vec::new();
        for flavor in array(&queue["status"]["flavorsReservation"]) {
            for resource in array(&flavor["resources"]) {
                let (flavor, name) = (text(&flavor["name"]), text(&resource["name"]));
                rows.push(Row {
                    used: amount(&name, &resource["total"]),
                    flavor,
                    resource: name,
                    ..common.clone()
                });
            }
        }
        or_one(rows, common)
    };
    queues.iter().flat_map(of).collect()
}

/// A row of a group of a quota tree.
pub(super) fn of_group(group: &QuotaGroup) -> Row {
    let QuotaGroup { name, parent, resource, quota, used, borrowed, waiting, admitted } = group;
    Row {
        object: format!("{}/{name}", api::quota::KIND.to_lowercase()),
        cohort: parent.clone().unwrap_or_default(),
        resource: resource.clone(),
        quota: Some(*quota),
        used: Some(*used),
        borrowed: Some(*borrowed),
        waiting: *waiting,
        admitted: *admitted,
        state: "Active".into(),
        ..Row::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_queue_has_a_row_for_each_flavor_and_resource_and_a_local_queue_what_it_uses() {
        let resources = json!([{"name": "cpu", "nominalQuota": "1500m", "borrowingLimit": 2}, {"name": "memory", "nominalQuota": "2Gi"}]);
        let usage = |borrowed: &str| json!([{"name": "f", "resources": [{"name": "cpu", "total": "2", "borrowed": borrowed}]}]);
        let queue = json!({"metadata": {"name": "q"},
            "spec": {"cohortName": "c", "resourceGroups": [{"flavors": [{"name": "f", "resources": resources}]}]},
            "status": {"pendingWorkloads": 3, "admittedWorkloads": 1, "flavorsReservation": usage("500m"),
                "conditions": [{"type": "Active", "status": "True", "reason": "Ready"}]}});
        let cells: Vec<String> =
            of_cluster_queues(&[queue]).iter().map(|row| row.cells(false, true).join(" ")).collect();
        assert_eq!(
            cells,
            [
                "clusterqueue/q c f cpu 1500m 2 500m  3 1 2  q Active",
                "clusterqueue/q c f memory 2Gi 0 0  3 1   q Active"
            ]
        );
        let local = json!({"metadata": {"name": "l", "namespace": "n"}, "spec": {"clusterQueue": "q", "stopPolicy": "Hold"},
            "status": {"pendingWorkloads": 3, "flavorsReservation": usage("")}});
        let rows = of_local_queues(&[
            local,
            json!({"metadata": {"name": "m"}, "spec": {}, "status": {"conditions":
            [{"type": "Active", "status": "False", "reason": "ClusterQueueDoesNotExist"}]}}),
        ]);
        assert_eq!(rows[0].cells(true, false).join(" "), "n localqueue/l  f cpu  2   3  Held");
        assert_eq!(rows[1].state, "ClusterQueueDoesNotExist");
        assert!(rows[0].is_named("lq/l") && rows[0].is_named("l") && !rows[0].is_named("cq/l"));
    }
}
