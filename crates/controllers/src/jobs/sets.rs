//! The steps about sets of pods: a `StatefulSet` has a Workload, and its pods become the group that the Workload is for. After
//! `pkg/controller/jobs/statefulset` of Kueue v0.19. The group is started and stopped by `pods`.

use api::kueue::jobs::sets::{member, replicas, workload_names};
use api::kueue::jobs::{GATED_BY, new_gang_annotations, queue_name};
use api::kueue::status::{EVICTED, FINISHED, ON_HOLD, QUOTA_RESERVED};
use serde_json::{Map, Value, json};

use super::groups;
use super::objects::has_quota;
use super::owner::Ancestor;
use super::step::{AWAIT, JobStep, View, silently};
use super::workload::Owned;
use super::write::{PodWrite, Write};

/// The next step about a set of pods.
pub(super) fn decide(view: &View<'_>) -> JobStep {
    let is_own = match view.objects.ancestor(view.key(), view.job, view.config) {
        Ancestor::Unseen(question) => return JobStep::Ask(question),
        Ancestor::Absent => true,
        // It got its owner later, and goes on as a set of its own until it has lost its quota.
        Ancestor::Job(_) | Ancestor::Other => view.objects.workload_of_set(view.job).is_some_and(has_quota),
    };
    if !is_own || !view.is_managed() || view.job.metadata.is_deleting() {
        return AWAIT;
    }
    if view.kind.has_groups() {
        return groups::decide(view);
    }
    view.gather().or_else(|| view.keep_workload()).unwrap_or(AWAIT)
}

impl View<'_> {
    /// Makes the pods members of the group, and renews their queue.
    fn gather(&self) -> Option<JobStep> {
        let [name, _] = workload_names(&self.job.value);
        let known = self.objects.workload_of_set(self.job);
        let group = known.map_or(&name, |known| &known.metadata.name);
        let pods = self.objects.pods_of(&self.key()).filter(|pod| !pod.metadata.is_deleting());
        let changed = pods.filter_map(|pod| member(&self.job.value, &pod.value, group));
        let writes: Vec<PodWrite> = changed.map(|pod| PodWrite::Replace(Box::new(pod))).collect();
        (!writes.is_empty()).then(|| silently(Write::Pods(writes)))
    }

    /// Creates the Workload, and keeps its queue, its owner and its hold. A set without pods gives its quota back, and keeps the
    /// Workload.
    fn keep_workload(&self) -> Option<JobStep> {
        let set = &self.job.value;
        let is_empty = replicas(set) == 0;
        let Some(whole) = self.objects.workload_of_set(self.job) else {
            return (!is_empty).then(|| self.create());
        };
        let owned = self.owned(whole)?;
        let status = &owned.workload.status;
        if status.is(FINISHED) || whole.metadata.is_deleting() {
            return None;
        }
        if !is_empty && let Some(patch) = self.patch(&whole.value) {
            return Some(silently(Write::Workload(Box::new(whole.clone()), patch)));
        }
        let known = whole.value["spec"]["podSets"][0]["count"].as_u64();
        if !is_empty && !status.is(QUOTA_RESERVED) && known != Some(replicas(set).into()) {
            return Some(self.update(&owned));
        }
        let has_pods = self.objects.pods_of(&self.key()).next().is_some();
        if !has_pods && let Some(step) = self.release_empty(&owned) {
            return Some(step);
        }
        if is_empty && status.is(QUOTA_RESERVED) && owned.workload.is_active() {
            let text = "StatefulSet scaled to zero; workload on hold";
            return Some(self.unreserve(&owned, ON_HOLD, text, |_| {}));
        }
        if !is_empty && status.is_on_hold() {
            let text = "Workload no longer on hold; waiting for quota reservation";
            return Some(self.unreserve(&owned, "Pending", text, |_| {}));
        }
        None
    }

    /// Gives back the quota of an evicted group without pods. While there are pods, their group does this.
    pub(super) fn release_empty(&self, owned: &Owned<'_>) -> Option<JobStep> {
        let status = &owned.workload.status;
        let evicted = status.condition(EVICTED).filter(|evicted| evicted.is_true())?;
        status.is(QUOTA_RESERVED).then(|| self.release_quota(owned, evicted, false))
    }

    fn create(&self) -> JobStep {
        let priority = match self.priority() {
            Ok(priority) => priority,
            Err(step) => return step,
        };
        let [name, _] = workload_names(&self.job.value);
        super::workload::create(vec![self.kind.group_workload(&self.job.value, &name, &priority)])
    }

    /// What the Workload lacks of its set.
    pub(super) fn patch(&self, known: &Value) -> Option<Value> {
        let set = &self.job.value;
        let mut patch = Map::new();
        let mut annotations = Map::new();
        annotations.extend(self.new_gates(known).map(|gates| (GATED_BY.to_owned(), gates)));
        annotations.extend(new_gang_annotations(set, known));
        let mut owners = known["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        if !owners.iter().any(|owner| owner["uid"] == set["metadata"]["uid"]) {
            owners.push(self.kind.group_owner(set));
            patch.insert("ownerReferences".into(), owners.into());
            annotations.extend(self.kind.owner_annotations(set));
        }
        let queue = queue_name(set);
        let is_moved = known["spec"]["queueName"].as_str().unwrap_or_default() != queue;
        if !annotations.is_empty() {
            patch.insert("annotations".into(), annotations.into());
        }
        if patch.is_empty() && !is_moved {
            return None;
        }
        patch.insert("resourceVersion".into(), known["metadata"]["resourceVersion"].clone());
        let spec =
            if is_moved { json!({"queueName": (!queue.is_empty()).then_some(queue)}) } else { json!({}) };
        Some(json!({"metadata": patch, "spec": spec}))
    }
}
