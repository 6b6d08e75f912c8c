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
        self.publish_workloads_in(&[name.clone()].into());
        errors
    }

    /// Removes a deleted Namespace.
    pub fn delete_namespace(&mut self, name: &str) {
        self.namespaces.remove(name);
        self.selectors.set_namespace(name, None);
        self.namespace_labels_changed(name);
    }

    /// What admins allow in a namespace.
    pub(crate) fn limits_in(&self, namespace: &str) -> Arc<NamespaceLimits> {
        self.namespaces.get(namespace).cloned().unwrap_or_default()
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
        spec.priority_milli = limits.capped(self.asked_priority);
        // An aging priority would pass the greatest one.
        spec.slope_micro = if limits.priority_max_milli.is_some() { 0 } else { self.asked_slope };
        self.limits = limits;
    }

    /// Whether it is never preempted: its author asks for it, and an admin allows it.
    pub(crate) fn is_protected(&self) -> bool {
        self.annotations.is_protected && self.limits.allows_protected
    }

    /// What its author asks for and its namespace does not allow: reasons and texts of Events.
    pub fn disallowed(&self) -> Vec<(&'static str, String)> {
        let asked = Asked {
            namespace: &self.key.namespace,
            priority_milli: self.asked_priority,
            is_protected: self.annotations.is_protected,
            run_factor: self.declared_us().map_or(1, |_| self.run_factor),
        };
        asked.disallowed(&self.limits)
    }
}

/// What the author of a gang asks for.
pub(crate) struct Asked<'a> {
    pub(crate) namespace: &'a str,
    /// In thousandths.
    pub(crate) priority_milli: i64,
    pub(crate) is_protected: bool,
    /// How many times over its declared run time counts; 1 without one.
    pub(crate) run_factor: i64,
}

impl Asked<'_> {
    /// What the namespace does not allow: reasons and texts of Events.
    pub(crate) fn disallowed(&self, limits: &NamespaceLimits) -> Vec<(&'static str, String)> {
        let Self { namespace, priority_milli, is_protected, run_factor } = self;
        let mut texts = Vec::new();
        if let Some(max) = limits.priority_max_milli.filter(|max| max < priority_milli) {
            let (asked, max) = (milli_text(*priority_milli), milli_text(max));
            let text = format!("priority {asked} counts as {max}, the maximum of namespace {namespace}");
            texts.push(("PriorityLimited", text));
        }
        if *is_protected && !limits.allows_protected {
            let text = format!(
                "annotation {PROTECTED} has no effect: namespace {namespace} has no annotation {ALLOW_PROTECTED}: \"true\""
            );
            texts.push(("ProtectionNotAllowed", text));
        }
        if *run_factor > 1 {
            let text = format!(
                "the declared run time counts {run_factor} times: gangs of namespace {namespace} have run longer than they declared"
            );
            texts.push(("RunTimeStretched", text));
        }
        texts
    }
}
