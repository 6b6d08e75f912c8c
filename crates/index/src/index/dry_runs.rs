//! The dry runs of pods: which templates need one, and what is known from the answers.
//!
//! A template needs a dry run if a `LimitRange`, a `RuntimeClass` or a webhook may change its pods, or if a pod of it came
//! larger than planned. The answer serves all equal templates of the namespace until one of these objects changes. A gang is
//! not queued before the answer; afterwards it is planned with the pod of the answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{PodSet, ResourceVec};

use super::ownership::Ownership;
use super::{Index, ReferencedKind};
use crate::dry_run::{DryRun, DryRunAnswer, PlannedPod, TemplateId};
use crate::mutators::{Concerned, MutatedTemplate, Mutation, MutatorChange, Mutators};
use crate::phase::Phase;
use crate::spec_summary::TemplateRules;
use crate::translate;

/// Most answers that are kept, and most templates whose pods came larger than planned.
const KEPT_MAX: usize = 10_000;

/// What dry runs mean for a gang.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DryRunOutcome {
    /// An answer is awaited.
    pub is_awaited: bool,
    /// Why the API server would refuse its pods, by pod set.
    pub refusals: Vec<String>,
    /// Why the requests of its pods are not known, by pod set.
    pub failures: Vec<String>,
}

/// The dry runs of all templates.
#[derive(Clone, Debug, Default)]
pub(crate) struct DryRuns {
    /// Without it, gangs are planned with their templates.
    is_enabled: bool,
    mutators: Mutators,
    /// The live wrappers with a template, by uid.
    templated: BTreeSet<String>,
    entries: BTreeMap<TemplateId, Entry>,
    /// The templates with users whose pods are not admitted yet.
    open: BTreeSet<TemplateId>,
    /// The greatest requests of pods that came larger than planned.
    observed: BTreeMap<TemplateId, ResourceVec>,
    /// Namespaces whose answers count no longer.
    changed: BTreeSet<String>,
    generation: u64,
}

/// The dry run of one template.
#[derive(Clone, Debug)]
struct Entry {
    generation: u64,
    /// The pod sets with this template: uid of the wrapper, and index.
    users: BTreeSet<(String, usize)>,
    answer: Option<Answer>,
    /// The last pod that was admitted.
    last: Option<Arc<PlannedPod>>,
}

#[derive(Clone, Debug, PartialEq)]
enum Answer {
    Admitted,
    Refused(String),
    Failed(String),
}

impl DryRuns {
    /// Whether the kinds of mutators are to be watched.
    pub(super) fn needs_mutators(&self) -> bool {
        self.is_enabled && !self.templated.is_empty()
    }

    /// The objects by which admission changes pods.
    pub(crate) fn mutators(&self) -> &Mutators {
        &self.mutators
    }

    fn entry(&mut self, id: &TemplateId) -> &mut Entry {
        let generation = &mut self.generation;
        self.entries.entry(id.clone()).or_insert_with(|| {
            *generation += 1;
            Entry { generation: *generation, users: BTreeSet::new(), answer: None, last: None }
        })
    }

    fn join(&mut self, id: &TemplateId, uid: &str, set: usize) {
        let entry = self.entry(id);
        entry.users.insert((uid.to_owned(), set));
        if entry.answer != Some(Answer::Admitted) {
            self.open.insert(id.clone());
        }
    }

    fn leave(&mut self, id: &TemplateId, uid: &str, set: usize) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        entry.users.remove(&(uid.to_owned(), set));
        if entry.users.is_empty() {
            self.open.remove(id);
            if entry.answer != Some(Answer::Admitted) {
                self.entries.remove(id);
            }
        }
        if self.entries.len() > KEPT_MAX {
            self.entries.retain(|_, entry| !entry.users.is_empty());
        }
    }

    /// Discards the answer for a template.
    fn invalidate(&mut self, id: &TemplateId) {
        self.generation += 1;
        if let Some(entry) = self.entries.get_mut(id) {
            entry.generation = self.generation;
            entry.answer = None;
            self.open.insert(id.clone());
        }
    }

    /// The pod that a template is planned with. Adds what this means for its gang.
    fn planned(
        &self,
        namespace: &str,
        set: &str,
        template: &TemplateRules,
        outcome: &mut DryRunOutcome,
    ) -> Arc<PlannedPod> {
        let id = template.observed_id(namespace).filter(|_| !self.observed.is_empty());
        let observed = id.and_then(|id| self.observed.get(&id));
        let raised = |pod: &Arc<PlannedPod>| observed.map_or_else(|| pod.clone(), |most| pod.raised_to(most));
        let Some(entry) = template.dry_run.as_ref().and_then(|id| self.entries.get(id)) else {
            return raised(&template.own);
        };
        let last = entry.last.as_ref().unwrap_or(&template.own);
        match &entry.answer {
            Some(Answer::Admitted) => return last.clone(),
            Some(Answer::Refused(why)) => {
                outcome.refusals.push(format!("{set}: its pods are refused, retrying: {why}"));
            }
            Some(Answer::Failed(why)) => outcome.failures.push(format!("{set}: {why}")),
            None => outcome.is_awaited = self.is_enabled,
        }
        raised(last)
    }
}

impl Index {
    /// Plans gangs with the answers to dry runs from now on.
    pub fn enable_dry_runs(&mut self) {
        self.dry_runs.is_enabled = true;
    }

    /// Plans the gangs that come from now on with the answers that are known, or with their templates.
    pub fn disable_dry_runs(&mut self) {
        self.dry_runs.is_enabled = false;
    }

    /// The dry runs that are to be asked or repeated. A refused or failed one is repeated as long as a gang waits for it.
    pub fn wanted_dry_runs(&mut self) -> Vec<DryRun> {
        self.settle_dry_runs();
        if !self.dry_runs.is_enabled {
            return Vec::new();
        }
        let wanted = self.dry_runs.open.iter().filter_map(|id| {
            let entry = self.dry_runs.entries.get(id)?;
            let mut users = entry.users.iter().filter_map(|(uid, set)| Some((self.wrappers.get(uid)?, *set)));
            let (wrapper, set) = match entry.answer {
                None => users.next(),
                Some(_) => users.find(|(wrapper, _)| wrapper.phase.is_queued()),
            }?;
            Some(DryRun {
                id: id.clone(),
                generation: entry.generation,
                wrapper: wrapper.key.clone(),
                uid: wrapper.uid.clone(),
                set,
            })
        });
        wanted.collect()
    }

    /// Applies the answer to a dry run. Returns the uids of the queued wrappers that it concerns, if it is new.
    pub fn dry_run_done(&mut self, id: &TemplateId, generation: u64, answer: DryRunAnswer) -> Vec<String> {
        let (answer, admitted) = match answer {
            DryRunAnswer::Admitted(pod) => {
                let pod = PlannedPod::of(&pod.shape, pod.added_labels, self.world.resources_mut());
                (Answer::Admitted, Some(pod))
            }
            DryRunAnswer::Refused(why) => (Answer::Refused(why), None),
            DryRunAnswer::Failed(why) => (Answer::Failed(why), None),
        };
        let Some(entry) = self.dry_runs.entries.get_mut(id).filter(|entry| entry.generation == generation)
        else {
            return Vec::new();
        };
        if entry.answer.as_ref() == Some(&answer) {
            return Vec::new();
        }
        if answer == Answer::Admitted {
            self.dry_runs.open.remove(id);
        }
        entry.answer = Some(answer);
        entry.last = admitted.or(entry.last.take());
        let users: BTreeSet<String> = entry.users.iter().map(|(uid, _)| uid.clone()).collect();
        for uid in &users {
            self.update_planned_pods(uid);
        }
        let is_queued = |uid: &String| self.wrappers.get(uid).is_some_and(|w| w.phase.is_queued());
        users.into_iter().filter(is_queued).collect()
    }

    /// Registers the templates of a new wrapper.
    pub(super) fn register_dry_runs(&mut self, uid: &str) {
        let Some(wrapper) = self.wrappers.get(uid) else { return };
        if wrapper.summary.templates.iter().any(|template| template.keys.is_some()) {
            self.dry_runs.templated.insert(uid.to_owned());
            self.join_dry_runs(uid);
            self.refresh_planned_pods(uid);
        }
    }

    /// Forgets a wrapper that has ended.
    pub(super) fn unregister_dry_runs(&mut self, uid: &str) {
        self.dry_runs.templated.remove(uid);
        let Some(wrapper) = self.wrappers.get_mut(uid) else { return };
        for (set, template) in wrapper.summary.templates.iter_mut().enumerate() {
            if let Some(id) = template.dry_run.take() {
                self.dry_runs.leave(&id, uid, set);
            }
        }
    }

    /// Applies a change of a mutator, and notes which namespaces it concerns.
    pub(super) fn apply_mutator(&mut self, change: MutatorChange) {
        match self.dry_runs.mutators.apply(change) {
            Concerned::Nothing => {}
            Concerned::Namespace(namespace) => {
                self.namespace_requests_changed(&namespace);
                self.dry_runs.changed.insert(namespace);
            }
            Concerned::Selected(selectors) => {
                let namespaces: BTreeSet<String> = self.labels.keys().map(|(name, _)| name.clone()).collect();
                let is_selected = |name: &String| {
                    let labels = self.selectors.observed_namespace(name);
                    selectors.iter().any(|selector| selector.matches(labels))
                };
                self.dry_runs.changed.extend(namespaces.into_iter().filter(is_selected));
            }
            Concerned::RuntimeClass(class) => {
                self.runtime_class_changed(&class);
                let wrappers = self.dry_runs.templated.iter().filter_map(|uid| self.wrappers.get(uid));
                let names = |template: &TemplateRules| template.runtime_class.as_deref() == Some(&*class);
                let users = wrappers.filter(|wrapper| wrapper.summary.templates.iter().any(names));
                let namespaces: Vec<String> = users.map(|wrapper| wrapper.key.namespace.clone()).collect();
                self.dry_runs.changed.extend(namespaces);
            }
        }
    }

    /// Notes a change of the labels of a namespace.
    pub(super) fn note_namespace_labels(&mut self, namespace: &str) {
        if self.dry_runs.mutators.reads_namespaces() {
            self.dry_runs.changed.insert(namespace.to_owned());
        }
    }

    /// Updates all gangs: another kind of mutators is listed.
    pub(super) fn mutators_listed(&mut self) {
        let wrappers = self.dry_runs.templated.iter().filter_map(|uid| self.wrappers.get(uid));
        let namespaces: Vec<String> = wrappers.map(|wrapper| wrapper.key.namespace.clone()).collect();
        self.dry_runs.changed.extend(namespaces);
        self.settle_dry_runs();
    }

    /// Updates the gangs of the namespaces with a change.
    pub(super) fn settle_dry_runs(&mut self) {
        for namespace in std::mem::take(&mut self.dry_runs.changed) {
            let runs = &mut self.dry_runs;
            runs.observed.retain(|id, _| id.namespace != namespace);
            let of_namespace = runs.entries.keys().filter(|id| id.namespace == namespace);
            for id in of_namespace.cloned().collect::<Vec<_>>() {
                match runs.entries.get(&id) {
                    Some(entry) if entry.users.is_empty() => drop(runs.entries.remove(&id)),
                    Some(_) | None => runs.invalidate(&id),
                }
            }
            for uid in self.templated_in(&namespace) {
                self.join_dry_runs(&uid);
                self.update_planned_pods(&uid);
            }
        }
    }

    /// Compares a pod that is new with its pod set. If it is larger than planned, admission changes pods in a way that is not
    /// known: the template is asked for again.
    pub(super) fn learn_request(&mut self, uid: &str, ownership: &Ownership) {
        let Some((row, set)) = self.pods.get(uid).zip(ownership.pod_set) else { return };
        if row.is_compared || !row.is_live() || !self.dry_runs.is_enabled {
            return;
        }
        let request = translate::amounts(&row.request, self.world.resources_mut());
        self.pods.set_compared(uid);
        let Some(wrapper) = self.wrappers.get(&ownership.wrapper) else { return };
        let (Some(planned), Some(template)) =
            (wrapper.summary.pod_sets.get(set), wrapper.summary.templates.get(set))
        else {
            return;
        };
        let is_larger = planned.request.clone().max(&request) != planned.request;
        let id = template.observed_id(&wrapper.key.namespace).filter(|_| is_larger);
        let Some(id) = id else { return };
        let runs = &mut self.dry_runs;
        let known = runs.observed.get(&id);
        let most = known.map_or_else(|| request.clone(), |known| known.clone().max(&request));
        if known == Some(&most) {
            return;
        }
        if runs.observed.len() >= KEPT_MAX {
            runs.observed.clear();
        }
        runs.observed.insert(id.clone(), most);
        runs.invalidate(&id);
        for uid in self.templated_in(&id.namespace) {
            let is_equal =
                |template: &TemplateRules| template.observed_id(&id.namespace).as_ref() == Some(&id);
            if self.wrappers.get(&uid).is_some_and(|w| w.summary.templates.iter().any(is_equal)) {
                self.join_dry_runs(&uid);
                self.update_planned_pods(&uid);
            }
        }
    }

    fn templated_in(&self, namespace: &str) -> Vec<String> {
        let from = (namespace.to_owned(), String::new());
        let of_namespace = self.labels.range(from..).take_while(|((name, _), _)| name == namespace);
        let uids = of_namespace.flat_map(|(_, uids)| uids);
        uids.filter(|uid| self.dry_runs.templated.contains(*uid)).cloned().collect()
    }

    /// Attributes the templates of a wrapper to their dry runs.
    fn join_dry_runs(&mut self, uid: &str) {
        let Some(wrapper) = self.wrappers.get(uid) else { return };
        let namespace = wrapper.key.namespace.clone();
        let ids: Vec<_> =
            wrapper.summary.templates.iter().map(|template| self.dry_run_of(&namespace, template)).collect();
        let Some(wrapper) = self.wrappers.get_mut(uid) else { return };
        for (set, (template, id)) in wrapper.summary.templates.iter_mut().zip(ids).enumerate() {
            if template.dry_run == id {
                continue;
            }
            if let Some(old) = &template.dry_run {
                self.dry_runs.leave(old, uid, set);
            }
            if let Some(new) = &id {
                self.dry_runs.join(new, uid, set);
            }
            template.dry_run = id;
        }
    }

    /// The dry run that a template needs, if it needs one.
    fn dry_run_of(&self, namespace: &str, template: &TemplateRules) -> Option<TemplateId> {
        let keys = template.keys?;
        let id = |hash| TemplateId { namespace: namespace.to_owned(), hash };
        if !self.dry_runs.observed.is_empty() && self.dry_runs.observed.contains_key(&id(keys.all)) {
            return Some(id(keys.all));
        }
        let known = |id: TemplateId| {
            let is_known = self.dry_runs.entries.contains_key(&id);
            (self.dry_runs.is_enabled || is_known).then_some(id)
        };
        match self.dry_runs.mutators.mutation(MutatedTemplate {
            namespace,
            namespace_labels: self.selectors.observed_namespace(namespace),
            labels: &template.expected.labels,
            runtime_class: template.runtime_class.as_deref(),
        }) {
            Mutation::None => None,
            Mutation::Amounts => known(id(keys.amounts)),
            Mutation::Anything => known(id(keys.all)),
        }
    }

    /// Plans a wrapper with what is known now about its pods.
    fn update_planned_pods(&mut self, uid: &str) {
        if !self.refresh_planned_pods(uid) {
            return;
        }
        self.register_rules(uid);
        self.register_references(uid);
        if let Some(wrapper) = self.wrappers.get_mut(uid)
            && wrapper.phase.is_queued()
        {
            wrapper.phase = Phase::Unknown;
        }
        self.update_phase(uid);
        self.dirty.insert(uid.to_owned());
    }

    /// Gives the pod sets of a wrapper the requests and constraints of their pods. Returns whether anything changed.
    fn refresh_planned_pods(&mut self, uid: &str) -> bool {
        let Some(wrapper) = self.wrappers.get(uid) else { return false };
        let mut outcome = DryRunOutcome::default();
        let namespace = &wrapper.key.namespace;
        let templates = wrapper.summary.templates.iter().zip(wrapper.summary.pod_sets.iter());
        let planned = templates
            .map(|(template, set)| self.dry_runs.planned(namespace, &set.name, template, &mut outcome));
        let planned: Vec<Arc<PlannedPod>> = planned.collect();
        let is_unlisted = |kind: &ReferencedKind| !self.listed.contains_key(kind);
        outcome.is_awaited |= self.dry_runs.is_enabled && ReferencedKind::MUTATORS.iter().any(is_unlisted);
        let Some(wrapper) = self.wrappers.get_mut(uid) else { return false };
        let is_same =
            wrapper.summary.templates.iter().zip(&planned).all(|(template, pod)| template.planned == *pod);
        if is_same && wrapper.dry_run == outcome {
            return false;
        }
        wrapper.dry_run = outcome;
        let sets = wrapper.summary.pod_sets.iter().zip(&planned).map(|(set, pod)| PodSet {
            request: pod.request.clone(),
            constraints: pod.constraints.clone(),
            ..set.clone()
        });
        wrapper.summary.pod_sets = sets.collect();
        for (template, pod) in wrapper.summary.templates.iter_mut().zip(planned) {
            template.planned = pod;
        }
        true
    }
}
