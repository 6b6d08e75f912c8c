//! The rules between pods, and the selectors of these rules, of observed pods and of the pod sets of wrappers.
//!
//! The pod sets of a gang have the labels of their templates, and those that operators add as far as they are known
//! before the creation. The labels of its first pods complete them.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::pod_rules as wire_rules;
use api::selector::{Labels, NamespacedSelector, PodSelector, SelectedPod};
use model::{HostPort, PodAffinity, PodRules, PodSet, PodTerm, SelectorIx, SpreadConstraint};

use super::Index;
use super::ownership::Ownership;
use crate::phase::Phase;
use crate::selectors::{LabelSetIx, Selectors};
use crate::wire;

/// The interned labels and rules of a pod, or of the pods of a pod set.
#[derive(Clone, Debug)]
pub(crate) struct InternedRules {
    labels: LabelSetIx,
    own: Option<Arc<PodRules>>,
    /// The selectors of its own rules; a selector may occur several times.
    used: Vec<SelectorIx>,
}

impl InternedRules {
    /// `exclusive`: the claims that no other pod may use.
    fn acquire(
        selectors: &mut Selectors,
        rules: &wire_rules::PodRules,
        exclusive: &BTreeSet<String>,
        pod: Arc<SelectedPod>,
    ) -> Self {
        let (own, used) = own_rules(selectors, rules, exclusive, &pod);
        Self { labels: selectors.acquire_labels(pod), own, used }
    }

    /// The label set.
    pub(super) fn labels(&self) -> LabelSetIx {
        self.labels
    }

    fn release(self, selectors: &mut Selectors) {
        selectors.release_labels(self.labels);
        for ix in self.used {
            selectors.release(ix);
        }
    }
}

impl Index {
    /// Interns the labels and rules of a pod. An event that does not change them costs only their comparison.
    pub(super) fn intern_rules(&mut self, pod: &wire::Pod) -> InternedRules {
        let known = self.pods.take_rules(&pod.metadata.uid);
        let (rules, claims) = (pod.rules(), pod.claims());
        let labels = known.as_ref().and_then(|known| self.selectors.labels(known.labels));
        let labels = labels.filter(|labels| {
            labels.labels == pod.metadata.labels
                && labels.claims == claims
                && labels.is_terminating == pod.metadata.is_deleting()
        });
        match known {
            Some(known) if labels.is_some() && known.own.is_none() && rules.is_empty() => known,
            known => {
                let observed = || SelectedPod {
                    namespace: pod.metadata.namespace.clone(),
                    labels: pod.metadata.labels.clone(),
                    claims,
                    is_terminating: pod.metadata.is_deleting(),
                };
                let selected = labels.cloned().unwrap_or_else(|| Arc::new(observed()));
                let new = InternedRules::acquire(&mut self.selectors, &rules, &BTreeSet::new(), selected);
                self.forget_rules(known);
                new
            }
        }
    }

    /// Forgets the labels and rules of a pod.
    pub(super) fn forget_rules(&mut self, rules: Option<InternedRules>) {
        if let Some(rules) = rules {
            rules.release(&mut self.selectors);
        }
    }

    /// The rules that concern a pod.
    pub(super) fn rules_of(&self, rules: Option<&InternedRules>) -> Option<Arc<PodRules>> {
        let rules = rules?;
        self.selectors.rules(rules.labels, rules.own.as_ref())
    }

    /// Interns the labels and rules of the pod sets of a wrapper.
    pub(super) fn register_rules(&mut self, uid: &str) {
        let Some(wrapper) = self.wrappers.get_mut(uid) else { return };
        if wrapper.phase == Phase::Finished || wrapper.status.state.is_terminal() {
            return;
        }
        let namespace = &wrapper.key.namespace;
        let none = BTreeSet::new();
        let sets = wrapper.summary.templates.iter().enumerate().map(|(set, template)| {
            let mut labels = template.expected.labels.clone();
            labels.extend(template.planned.added_labels.clone());
            let claims = template.claims.named.clone();
            let pod = SelectedPod { namespace: namespace.clone(), labels, claims, is_terminating: false };
            let exclusive = wrapper.references.exclusive.get(set).unwrap_or(&none);
            InternedRules::acquire(&mut self.selectors, &template.planned.rules, exclusive, Arc::new(pod))
        });
        let former = std::mem::replace(&mut wrapper.rules, sets.collect());
        for rules in former {
            rules.release(&mut self.selectors);
        }
        self.refresh_pod_sets(uid);
    }

    /// Forgets the labels and rules of the pod sets of a wrapper.
    pub(super) fn unregister_rules(&mut self, uid: &str) {
        let Some(wrapper) = self.wrappers.get_mut(uid) else { return };
        for rules in std::mem::take(&mut wrapper.rules) {
            rules.release(&mut self.selectors);
        }
    }

    /// Updates the pods and gangs that other selectors select than before.
    pub(super) fn update_selected(&mut self) {
        let changed = self.selectors.take_changed();
        if changed.is_empty() {
            return;
        }
        let is_changed = |rules: &InternedRules| changed.contains(&rules.labels);
        let pods = self.pods.iter().filter(|row| row.rules.as_ref().is_some_and(is_changed));
        let pods: Vec<String> = pods.map(|row| row.uid.clone()).collect();
        for uid in pods {
            self.publish_known_pod(&uid);
        }
        let wrappers = self.wrappers.values().filter(|wrapper| wrapper.rules.iter().any(is_changed));
        let wrappers: Vec<String> = wrappers.map(|wrapper| wrapper.uid.clone()).collect();
        for uid in wrappers {
            self.refresh_pod_sets(&uid);
            self.unpublished.insert(uid);
        }
    }

    /// Completes the labels of a pod set from one of its pods: an operator has generated a part of them. The pods of a
    /// gang that is started again, or updated, have new ones.
    pub(super) fn learn_labels(&mut self, ownership: &Ownership, pod: LabelSetIx, is_new: bool) {
        let Some(template) = ownership
            .pod_set
            .and_then(|set| self.wrappers.get_mut(&ownership.wrapper)?.summary.templates.get_mut(set))
        else {
            return;
        };
        let Some(labels) = self.selectors.labels(pod).map(|pod| &pod.labels) else { return };
        if learn(&mut template.expected.labels, &template.expected.generated, labels, is_new) {
            self.register_rules(&ownership.wrapper);
            self.unpublished.insert(ownership.wrapper.clone());
        }
    }

    /// Gives the pod sets of a wrapper the rules that concern them.
    fn refresh_pod_sets(&mut self, uid: &str) {
        let Some(wrapper) = self.wrappers.get_mut(uid) else { return };
        let rules: Vec<_> = wrapper
            .rules
            .iter()
            .map(|rules| self.selectors.rules(rules.labels, rules.own.as_ref()))
            .collect();
        let sets = &wrapper.summary.pod_sets;
        if sets.iter().zip(&rules).all(|(set, rules)| set.rules == *rules) {
            return;
        }
        let sets = sets.iter().zip(rules).map(|(set, rules)| PodSet { rules, ..set.clone() });
        wrapper.summary.pod_sets = sets.collect();
    }
}

/// Takes the generated labels of a pod, if none are known yet, or if the pod is new. Returns whether this changes them.
fn learn(expected: &mut Labels, generated: &[&'static str], pod: &Labels, is_new: bool) -> bool {
    let mut has_changed = false;
    for key in generated {
        let Some((expected, value)) = expected.get_mut(*key).zip(pod.get(*key)) else { continue };
        if expected != value && (is_new || expected.starts_with('?')) {
            expected.clone_from(value);
            has_changed = true;
        }
    }
    has_changed
}

/// Converts the rules of a pod, and interns their selectors; `None` without a rule.
fn own_rules(
    selectors: &mut Selectors,
    rules: &wire_rules::PodRules,
    exclusive: &BTreeSet<String>,
    pod: &SelectedPod,
) -> (Option<Arc<PodRules>>, Vec<SelectorIx>) {
    if rules.is_empty() && exclusive.is_empty() {
        return (None, Vec::new());
    }
    let mut used = Vec::new();
    let mut acquire = |selector: PodSelector| {
        let ix = selectors.acquire(selector);
        used.push(ix);
        ix
    };
    let mut of_parts =
        |parts: BTreeSet<NamespacedSelector>| acquire(PodSelector { parts, skips_terminating: false });
    let anti_affinity = rules.anti_affinity.iter().take(wire_rules::TERMS_MAX).map(|term| PodTerm {
        selector: of_parts(BTreeSet::from([term.selector(pod)])),
        topology_key: term.topology_key.clone(),
    });
    let mut anti_affinity: BTreeSet<PodTerm> = anti_affinity.collect();
    anti_affinity.extend(exclusive.iter().map(|claim| PodTerm {
        selector: of_parts(BTreeSet::from([NamespacedSelector::users_of(&pod.namespace, claim)])),
        topology_key: PodTerm::CLUSTER.to_owned(),
    }));
    let affinity = (!rules.affinity.is_empty()).then(|| PodAffinity {
        selector: of_parts(rules.affinity.iter().map(|term| term.selector(pod)).collect()),
        topology_keys: rules.affinity.iter().map(|term| term.topology_key.clone()).collect(),
    });
    let spread = rules.spread.iter().map(|constraint| SpreadConstraint {
        selector: acquire(constraint.selector(pod)),
        topology_key: constraint.topology_key.clone(),
        max_skew: constraint.max_skew,
        min_domains: constraint.min_domains,
        honors_affinity: constraint.honors_affinity,
        honors_taints: constraint.honors_taints,
    });
    let spread = spread.collect();
    let host_ports = rules.host_ports.iter().map(|port| HostPort {
        port: port.port,
        protocol: port.protocol.clone(),
        address: port.address.clone(),
    });
    let host_ports = host_ports.collect();
    let rules = PodRules { selected_by: BTreeSet::new(), anti_affinity, affinity, spread, host_ports };
    (Some(Arc::new(rules)), used)
}
