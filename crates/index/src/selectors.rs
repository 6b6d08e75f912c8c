//! Interns the selectors of pod rules and the label sets of pods, and knows which selectors select which label set.
//!
//! A selector exists as long as a pod or a pod set uses it; a label set as long as one has it. A new selector is compared
//! with the label sets of its namespaces once, and a new label set with the selectors of its namespace. An event about a
//! pod with a known label set compares nothing. Without a selector nothing is compared at all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::selector::{Labels, PodSelector, SelectedPod};
use model::{PodRules, SelectorIx};

use crate::remove_from;

/// The label that the API server gives each namespace: its name.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// A label set with its namespace, as a dense index. An index is not used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LabelSetIx(u64);

/// All selectors and label sets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selectors {
    rows: BTreeMap<SelectorIx, SelectorRow>,
    selector_ix: BTreeMap<Arc<PodSelector>, SelectorIx>,
    /// Selectors by the only namespace in which they select pods; under `None` those without such a namespace.
    by_namespace: BTreeMap<Option<String>, BTreeSet<SelectorIx>>,
    /// The number of selectors that depend on labels of namespaces.
    readers_of_namespaces: usize,
    label_sets: BTreeMap<LabelSetIx, LabelSetRow>,
    label_set_ix: BTreeMap<String, BTreeMap<Arc<SelectedPod>, LabelSetIx>>,
    /// The observed labels of namespaces.
    namespaces: BTreeMap<String, Labels>,
    /// Label sets that other selectors select since the last call of [`Self::take_changed`].
    changed: BTreeSet<LabelSetIx>,
    next_selector: u32,
    next_label_set: u64,
}

#[derive(Clone, Debug)]
struct SelectorRow {
    selector: Arc<PodSelector>,
    users: u32,
}

#[derive(Clone, Debug)]
struct LabelSetRow {
    pod: Arc<SelectedPod>,
    users: u32,
    /// The selectors that select it.
    selected_by: BTreeSet<SelectorIx>,
    /// The rules of pods without a rule of their own.
    rules: Option<Arc<PodRules>>,
}

impl Selectors {
    /// Interns a selector for one more user.
    pub(crate) fn acquire(&mut self, selector: PodSelector) -> SelectorIx {
        if let Some(ix) = self.selector_ix.get(&selector).copied() {
            if let Some(row) = self.rows.get_mut(&ix) {
                row.users += 1;
            }
            return ix;
        }
        let ix = self.next_selector();
        let selector = Arc::new(selector);
        self.selector_ix.insert(selector.clone(), ix);
        self.readers_of_namespaces += usize::from(selector.reads_namespaces());
        let namespace = selector.namespace().map(str::to_owned);
        self.by_namespace.entry(namespace.clone()).or_default().insert(ix);
        for set in self.label_sets_of(namespace.as_deref()) {
            self.update(set, [(ix, &*selector)]);
        }
        self.rows.insert(ix, SelectorRow { selector, users: 1 });
        ix
    }

    /// Ends one use of a selector. A selector without users ends.
    pub(crate) fn release(&mut self, ix: SelectorIx) {
        let Some(row) = self.rows.get_mut(&ix) else { return };
        row.users -= 1;
        if row.users > 0 {
            return;
        }
        let Some(SelectorRow { selector, .. }) = self.rows.remove(&ix) else { return };
        self.selector_ix.remove(&selector);
        self.readers_of_namespaces -= usize::from(selector.reads_namespaces());
        let namespace = selector.namespace().map(str::to_owned);
        remove_from(&mut self.by_namespace, &namespace, &ix);
        for set in self.label_sets_of(namespace.as_deref()) {
            self.set_selected(set, ix, false);
        }
    }

    /// Interns a label set for one more user.
    pub(crate) fn acquire_labels(&mut self, pod: Arc<SelectedPod>) -> LabelSetIx {
        if let Some(ix) = self.label_set_ix.get(&pod.namespace).and_then(|sets| sets.get(&pod)).copied() {
            if let Some(row) = self.label_sets.get_mut(&ix) {
                row.users += 1;
            }
            return ix;
        }
        self.next_label_set += 1;
        let ix = LabelSetIx(self.next_label_set);
        let candidates = self.selectors_for(&pod.namespace);
        let namespace = self.namespace_labels(&pod.namespace);
        let selects = |(_, selector): &(SelectorIx, Arc<PodSelector>)| selector.selects(&pod, &namespace);
        let selected_by: BTreeSet<_> = candidates.into_iter().filter(selects).map(|(ix, _)| ix).collect();
        self.label_set_ix.entry(pod.namespace.clone()).or_default().insert(pod.clone(), ix);
        let mut row = LabelSetRow { pod, users: 1, selected_by, rules: None };
        row.refresh();
        self.label_sets.insert(ix, row);
        ix
    }

    /// Ends one use of a label set.
    pub(crate) fn release_labels(&mut self, ix: LabelSetIx) {
        let Some(row) = self.label_sets.get_mut(&ix) else { return };
        row.users -= 1;
        if row.users > 0 {
            return;
        }
        let Some(LabelSetRow { pod, .. }) = self.label_sets.remove(&ix) else { return };
        self.changed.remove(&ix);
        if let Some(sets) = self.label_set_ix.get_mut(&pod.namespace) {
            sets.remove(&pod);
            if sets.is_empty() {
                self.label_set_ix.remove(&pod.namespace);
            }
        }
    }

    /// What selectors read of the pods with a label set.
    pub(crate) fn labels(&self, ix: LabelSetIx) -> Option<&Arc<SelectedPod>> {
        self.label_sets.get(&ix).map(|row| &row.pod)
    }

    /// The rules of pods with this label set, and with rules of their own. `None`: no rule concerns them.
    pub(crate) fn rules(&self, ix: LabelSetIx, own: Option<&Arc<PodRules>>) -> Option<Arc<PodRules>> {
        let row = self.label_sets.get(&ix)?;
        match own {
            None => row.rules.clone(),
            Some(own) if row.selected_by.is_empty() => Some(own.clone()),
            Some(own) => Some(Arc::new(PodRules { selected_by: row.selected_by.clone(), ..(**own).clone() })),
        }
    }

    /// The label sets that other selectors select since the last call.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<LabelSetIx> {
        std::mem::take(&mut self.changed)
    }

    /// Whether a selector depends on labels of namespaces.
    pub(crate) fn reads_namespaces(&self) -> bool {
        self.readers_of_namespaces > 0
    }

    /// The observed labels of a namespace; none before it is observed.
    pub(crate) fn observed_namespace(&self, name: &str) -> &Labels {
        static NONE: Labels = Labels::new();
        self.namespaces.get(name).unwrap_or(&NONE)
    }

    /// Sets the labels of a namespace; `None`: it is deleted, or not known.
    pub(crate) fn set_namespace(&mut self, name: &str, labels: Option<Labels>) {
        let before = match labels {
            Some(labels) => self.namespaces.insert(name.to_owned(), labels),
            None => self.namespaces.remove(name),
        };
        if before.as_ref() == self.namespaces.get(name) || !self.reads_namespaces() {
            return;
        }
        let readers =
            self.selectors_for(name).into_iter().filter(|(_, selector)| selector.reads_namespaces());
        let readers: Vec<_> = readers.collect();
        for set in self.label_sets_of(Some(name)) {
            self.update(set, readers.iter().map(|(ix, selector)| (*ix, &**selector)));
        }
    }

    /// An index that no selector has. It is used again only after all others: a gang may still refer to a selector that
    /// has ended.
    fn next_selector(&mut self) -> SelectorIx {
        loop {
            self.next_selector = self.next_selector.wrapping_add(1);
            let ix = SelectorIx(self.next_selector);
            if !self.rows.contains_key(&ix) {
                return ix;
            }
        }
    }

    /// The selectors that may select pods of a namespace.
    fn selectors_for(&self, namespace: &str) -> Vec<(SelectorIx, Arc<PodSelector>)> {
        if self.rows.is_empty() {
            return Vec::new();
        }
        let keys = [Some(namespace.to_owned()), None];
        let ixs = keys.iter().filter_map(|key| self.by_namespace.get(key)).flatten();
        ixs.filter_map(|ix| Some((*ix, self.rows.get(ix)?.selector.clone()))).collect()
    }

    /// The label sets of a namespace, or of all namespaces.
    fn label_sets_of(&self, namespace: Option<&str>) -> Vec<LabelSetIx> {
        match namespace {
            Some(namespace) => {
                self.label_set_ix.get(namespace).into_iter().flat_map(BTreeMap::values).copied().collect()
            }
            None => self.label_sets.keys().copied().collect(),
        }
    }

    /// Compares a label set with selectors.
    fn update<'a>(
        &mut self,
        set: LabelSetIx,
        selectors: impl IntoIterator<Item = (SelectorIx, &'a PodSelector)>,
    ) {
        let Some(pod) = self.label_sets.get(&set).map(|row| row.pod.clone()) else { return };
        let namespace = self.namespace_labels(&pod.namespace);
        for (ix, selector) in selectors {
            self.set_selected(set, ix, selector.selects(&pod, &namespace));
        }
    }

    fn set_selected(&mut self, set: LabelSetIx, ix: SelectorIx, is_selected: bool) {
        let Some(row) = self.label_sets.get_mut(&set) else { return };
        let has_changed = if is_selected { row.selected_by.insert(ix) } else { row.selected_by.remove(&ix) };
        if has_changed {
            row.refresh();
            self.changed.insert(set);
        }
    }

    /// The labels of a namespace. Of a namespace that was not observed, only its name is known.
    fn namespace_labels(&self, name: &str) -> Labels {
        if !self.reads_namespaces() {
            return Labels::new();
        }
        let named = || Labels::from([(NAME_LABEL.to_owned(), name.to_owned())]);
        self.namespaces.get(name).cloned().unwrap_or_else(named)
    }
}

impl LabelSetRow {
    fn refresh(&mut self) {
        let rules = || PodRules { selected_by: self.selected_by.clone(), ..PodRules::default() };
        self.rules = (!self.selected_by.is_empty()).then(|| Arc::new(rules()));
    }
}
