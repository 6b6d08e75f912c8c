//! Discovery of kinds, and which resources are watched.

use std::collections::BTreeSet;

use api::appwrapper::Group;
use api::quota;
use index::{Index, Kind, KindState, wire};

use super::State;
use crate::discovery::Resources;
use crate::observations::{Observation, Source};

impl State {
    /// Applies a CRD. Starts the watches of AppWrappers and quota trees when they are served. Kinds that were unknown
    /// may be served now.
    pub(super) fn definition_seen(&mut self, index: &mut Index, definition: &wire::Definition) {
        if !definition.is_established() {
            return;
        }
        let spec = &definition.spec;
        let served = spec.versions.iter().filter(|version| version.served);
        let kinds: BTreeSet<_> = served
            .map(|version| Kind::new(format!("{}/{}", spec.group, version.name), &spec.names.kind))
            .collect();
        for group in Group::ALL {
            let source = Source::Wrappers(group);
            let is_ours = self.config.groups.contains(&group)
                && definition.metadata.name == group.resource()
                && kinds.contains(&Kind::new(group.api_version(), api::appwrapper::KIND));
            let is_v1beta1 = |v: &&wire::DefinitionVersion| v.name == api::appwrapper::VERSION;
            if let Some(version) = spec.versions.iter().find(is_v1beta1).filter(|_| is_ours) {
                index.set_int32_totals(group, version.has_int32_totals());
                if version.subresources.status.is_none() {
                    self.without_status_subresource.insert(group);
                }
            }
            if is_ours && !self.watches.has(&source) {
                self.watches.wrappers(group);
                if !self.has_synced {
                    self.unsynced.insert(source);
                }
            }
        }
        self.quotas_served(&definition.metadata.name, &kinds);
        let state = match spec.scope.as_str() {
            "Namespaced" => KindState::Served { plural: spec.names.plural.clone(), listed: false },
            _ => KindState::ClusterScoped,
        };
        for kind in &kinds {
            if index.kind(kind) == Some(&KindState::Missing) {
                self.set_kind_state(index, kind, &state);
            }
        }
        self.definitions.insert(definition.metadata.name.clone(), (kinds, state));
    }

    /// Starts the watch of quota trees when they are served, if the configuration enables quota.
    fn quotas_served(&mut self, definition: &str, kinds: &BTreeSet<Kind>) {
        let is_served = |group: &quota::Group| {
            group.resource() == definition && kinds.contains(&Kind::new(group.api_version(), quota::KIND))
        };
        let Some(group) = quota::Group::ALL.into_iter().find(is_served) else { return };
        let source = Source::Quotas(group);
        if self.config.quota && !self.watches.has(&source) {
            self.watches.quotas(group);
            if !self.has_synced {
                self.unsynced.insert(source);
            }
        }
    }

    pub(super) fn definition_deleted(&mut self, index: &mut Index, name: &str) {
        for group in Group::ALL.into_iter().filter(|group| group.resource() == name) {
            self.watches.stop(&Source::Wrappers(group));
            self.without_status_subresource.remove(&group);
            let gone: Vec<_> = index
                .wrappers()
                .filter(|wrapper| wrapper.key.group == group)
                .map(|wrapper| wrapper.uid.clone())
                .collect();
            for uid in gone {
                index.delete_wrapper(&uid);
                self.forget(&uid);
            }
        }
        for group in quota::Group::ALL.into_iter().filter(|group| group.resource() == name) {
            self.watches.stop(&Source::Quotas(group));
        }
        for kind in self.definitions.remove(name).map(|(kinds, _)| kinds).unwrap_or_default() {
            self.watches.stop(&Source::Objects(kind.clone()));
            self.watched.remove(&kind);
            if index.kind(&kind).is_some() {
                index.set_kind_state(&kind, &KindState::Missing);
            }
        }
    }

    pub(super) fn discovered(&mut self, index: &mut Index, api_version: &str, resources: &Resources) {
        self.discovering.remove(api_version);
        let asked: Vec<_> =
            index.unknown_kinds().filter(|kind| kind.api_version == api_version).cloned().collect();
        for kind in asked {
            self.set_kind_state(index, &kind, &resources.state(&kind));
        }
    }

    /// Applies that the initial list of a watch is complete.
    pub(super) fn synced(&mut self, index: &mut Index, source: &Source) {
        self.unsynced.remove(source);
        let Source::Objects(kind) = source else { return };
        if let Some(plural) = index.kind(kind).and_then(KindState::plural) {
            let plural = plural.to_owned();
            index.set_kind_state(kind, &KindState::Served { plural, listed: true });
        }
    }

    /// Applies that a watch is forbidden. When the controller may not watch a wrapped kind, only AppWrappers that
    /// wrap this kind stay pending. Without nodes, pods or AppWrappers the controller cannot plan at all, so it keeps
    /// waiting for those.
    pub(super) fn watch_forbidden(&mut self, index: &mut Index, source: &Source, why: String) {
        let Source::Objects(kind) = source else { return };
        self.unsynced.remove(source);
        if let Some(KindState::Served { plural, .. }) = index.kind(kind) {
            let plural = plural.clone();
            index.set_kind_state(kind, &KindState::Forbidden { plural, message: why });
        }
    }

    /// Stores the state of a kind in the index and starts its watch. Restarts the watches of the kinds that its
    /// operator creates: so far they may have been watched by label only.
    pub(super) fn set_kind_state(&mut self, index: &mut Index, kind: &Kind, state: &KindState) {
        index.set_kind_state(kind, state);
        self.watch_objects(index, kind);
        for child in kind.children() {
            self.watch_objects(index, &child);
        }
    }

    /// Watches the objects of a served kind: all objects if an operator creates some of them, else only those with
    /// the label of an AppWrapper.
    fn watch_objects(&mut self, index: &Index, kind: &Kind) {
        let Some(KindState::Served { plural, .. }) = index.kind(kind) else { return };
        let all = index.kinds().any(|(parent, _)| parent.children().contains(kind));
        if self.watched.get(kind).is_none_or(|was_all| all && !was_all) {
            self.watched.insert(kind.clone(), all);
            self.watches.objects(kind, plural, all);
            if !self.has_synced {
                self.unsynced.insert(Source::Objects(kind.clone()));
            }
        }
    }

    /// Discovers unknown kinds, with one request for each group and version.
    pub(super) fn discover_kinds(&mut self) {
        let shared = self.index.clone();
        let mut index = Self::index(&shared);
        let unknown: Vec<_> = index.unknown_kinds().cloned().collect();
        for kind in unknown {
            let defined = self.definitions.values().find(|(kinds, _)| kinds.contains(&kind));
            if let Some(state) = defined.map(|(_, state)| state.clone()) {
                self.set_kind_state(&mut index, &kind, &state);
            } else if self.discovering.insert(kind.api_version.clone()) {
                let (client, observations) = (self.client.clone(), self.observations.clone());
                while self.discovery_tasks.try_join_next().is_some() {}
                self.discovery_tasks.spawn(async move {
                    let resources = Resources::of(client, kind.api_version.clone()).await;
                    // The receiver is gone when the controller has ended.
                    drop(observations.send(Observation::Discovered(kind.api_version, resources)));
                });
            }
        }
        if !self.has_synced && self.unsynced.is_empty() && index.unknown_kinds().next().is_none() {
            self.has_synced = true;
            tracing::info!(
                wrappers = index.wrappers().count(),
                nodes = index.world().nodes().count(),
                "ready to plan"
            );
        }
    }
}
