//! What admins allow the gangs of a namespace: the greatest priority, protection from preemption, and the group in quota
//! trees. Only admins write Namespaces, so their annotations and labels can be trusted.

use std::sync::Arc;

use api::NamespaceLimits;
use api::annotations::{ALLOW_PROTECTED, PROTECTED};
use model::milli_text;

use super::Index;
use crate::wire;
use crate::wrapper::Wrapper;

impl Index {
    /// Adds or updates a Namespace. Returns messages about its invalid annotations, if they are new. A lower limit does
    /// not change the priority of running gangs.
    pub fn upsert_namespace(&mut self, namespace: &wire::Namespace) -> Vec<String> {
        let (name, limits) = (&namespace.metadata.name, NamespaceLimits::read(&namespace.metadata));
        let has_other_labels = *self.selectors.observed_namespace(name) != namespace.metadata.labels;
        self.selectors.set_namespace(name, Some(namespace.metadata.labels.clone()));
        if has_other_labels {
            self.note_namespace_labels(name);
            self.namespace_labels_changed(name);
        }
        if self.namespaces.get(name).is_some_and(|known| **known == limits) {
            return Vec::new();
        }
        let errors = limits.errors.clone();
        self.namespaces.insert(name.clone(), Arc::new(limits));
        let inside = self.wrappers.values().filter(|wrapper| wrapper.key.namespace == *name);
        let uids: Vec<String> = inside.map(|wrapper| wrapper.uid.clone()).collect();
        for uid in uids {
            self.update_phase(&uid);
            self.dirty.insert(uid);
        }
        errors
    }

    /// Removes a deleted Namespace.
    pub fn delete_namespace(&mut self, name: &str) {
        self.namespaces.remove(name);
        self.selectors.set_namespace(name, None);
        self.namespace_labels_changed(name);
    }

    /// Applies the limits of its namespace to a wrapper.
    pub(super) fn limit(&mut self, uid: &str) {
        let Some(wrapper) = self.wrappers.get_mut(uid) else { return };
        if let Some(limits) = self.namespaces.get(&wrapper.key.namespace)
            && *limits != wrapper.limits
        {
            wrapper.limit(limits.clone());
        }
    }
}

impl Wrapper {
    fn limit(&mut self, limits: Arc<NamespaceLimits>) {
        let spec = &mut self.summary.spec;
        let max = limits.priority_max_milli;
        spec.priority_milli = max.map_or(self.asked_priority, |max| max.min(self.asked_priority));
        // An aging priority would pass the greatest one.
        spec.slope_micro = if max.is_some() { 0 } else { self.asked_slope };
        self.limits = limits;
    }

    /// Whether it is never preempted: its author asks for it, and an admin allows it.
    pub(crate) fn is_protected(&self) -> bool {
        self.annotations.is_protected && self.limits.allows_protected
    }

    /// What its author asks for and its namespace does not allow: reasons and texts of Events.
    pub fn disallowed(&self) -> Vec<(&'static str, String)> {
        let namespace = &self.key.namespace;
        let mut texts = Vec::new();
        if let Some(max) = self.limits.priority_max_milli.filter(|max| *max < self.asked_priority) {
            let (asked, max) = (milli_text(self.asked_priority), milli_text(max));
            let text = format!("priority {asked} counts as {max}, the maximum of namespace {namespace}");
            texts.push(("PriorityLimited", text));
        }
        if self.annotations.is_protected && !self.limits.allows_protected {
            let text = format!(
                "annotation {PROTECTED} has no effect: namespace {namespace} has no annotation {ALLOW_PROTECTED}: \"true\""
            );
            texts.push(("ProtectionNotAllowed", text));
        }
        if self.run_factor > 1 && self.declared_us().is_some() {
            let text = format!(
                "the declared run time counts {} times: gangs of namespace {namespace} have run longer than they declared",
                self.run_factor
            );
            texts.push(("RunTimeStretched", text));
        }
        texts
    }
}
