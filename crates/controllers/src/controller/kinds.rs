//! Discovery of kinds, and which resources are watched.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::MicroTime;
use api::appwrapper::Group;
use api::quota;
use index::{Index, Kind, KindState, wire};
use tokio::task::AbortHandle;

use super::State;
use crate::discovery::{self, Resources};
use crate::forbidden::ForbiddenRequest;
use crate::observations::Source;
use crate::watch_failures::WatchFailure;

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
        self.kueue_served(index, &definition.metadata.name);
        let state = match spec.scope.as_str() {
            "Namespaced" => KindState::Served { plural: spec.names.plural.clone(), listed: false },
            _ => KindState::ClusterScoped,
        };
        for kind in &kinds {
            if index.kind(kind).is_some_and(KindState::needs_discovery) {
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
            // Also later: a failure of the first list is told.
            self.unsynced.insert(source);
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
            let source = Source::Quotas(group);
            self.watches.stop(&source);
            self.unsynced.remove(&source);
            index.set_admission_failure(&group.resource(), None);
            let (gone, kept) = std::mem::take(&mut self.quota_groups)
                .into_iter()
                .partition::<BTreeMap<_, _>, _>(|(_, of)| *of == group);
            self.quota_groups = kept;
            for uid in gone.keys() {
                index.delete_quota(uid);
            }
        }
        self.kueue_deleted(index, name);
        for kind in self.definitions.remove(name).map(|(kinds, _)| kinds).unwrap_or_default() {
            self.end_watch(&kind);
            index.retain_objects(&kind, &BTreeSet::new());
            if index.kind(&kind).is_some() {
                index.set_kind_state(&kind, &KindState::Missing);
            }
        }
    }

    pub(super) fn discovered(&mut self, index: &mut Index, api_version: &str, resources: &Resources) {
        self.mark_answered(api_version);
        let asked: Vec<_> =
            index.undiscovered_kinds().filter(|kind| kind.api_version == api_version).cloned().collect();
        for kind in asked {
            self.set_kind_state(index, &kind, &resources.state(&kind));
        }
    }

    /// Applies that the initial list of a watch is complete.
    pub(super) fn synced(&mut self, index: &mut Index, source: &Source) {
        self.unsynced.remove(source);
        if let Some((resource, _)) = needed_for_admission(source) {
            index.set_admission_failure(&resource, None);
        }
        if let Source::Referenced(kind) = source {
            index.set_listed(*kind, Ok(()));
        }
        if let Source::Kueue(kind) = source {
            index.set_kueue_failure(*kind, None);
        }
        let Source::Objects(kind) = source else { return };
        if let Some(plural) = index.kind(kind).and_then(KindState::plural) {
            let plural = plural.to_owned();
            index.set_kind_state(kind, &KindState::Served { plural, listed: true });
        }
    }

    /// Applies that discovery of a group and version keeps failing. Only AppWrappers that wrap a kind of it stay
    /// pending.
    pub(super) fn discovery_failed(&mut self, index: &mut Index, api_version: &str, why: &str) {
        self.mark_answered(api_version);
        let of_version = index.undiscovered_kinds().filter(|kind| kind.api_version == api_version);
        let kinds: Vec<_> = of_version.cloned().collect();
        for kind in kinds {
            let message = format!("{kind} cannot be looked up, retrying: {why}");
            index.set_kind_state(&kind, &KindState::Unavailable { plural: None, message });
        }
    }

    fn mark_answered(&mut self, api_version: &str) {
        if let Some(lookup) = self.discovering.get_mut(api_version) {
            lookup.is_answered = true;
        }
    }

    /// Applies that a watch keeps failing. When the controller cannot watch a wrapped kind, only AppWrappers that wrap
    /// this kind stay pending. Without nodes, pods or AppWrappers the controller cannot plan at all, so it keeps
    /// waiting for those.
    pub(super) fn watch_failed(&mut self, index: &mut Index, source: &Source, why: &WatchFailure) {
        if let Some((resource, what)) = needed_for_admission(source) {
            // What was known stays. Without any of it, running gangs go on, and no gang is admitted.
            if self.unsynced.remove(source) {
                let message = format!("{what} cannot be listed, retrying: {}", why.text);
                index.set_admission_failure(&resource, Some(&message));
            }
            return;
        }
        if let Source::Referenced(kind) = source {
            index.set_listed(*kind, Err(why.text.clone()));
            return;
        }
        if let Source::Kueue(kind) = source {
            // AppWrappers do not wait for it. What was listed before stays.
            if self.unsynced.remove(source) {
                let message = format!("{source} cannot be listed, retrying: {}", why.text);
                index.set_kueue_failure(*kind, Some(&message));
            }
            return;
        }
        let Source::Objects(kind) = source else { return };
        self.unsynced.remove(source);
        let Some(plural) = index.kind(kind).and_then(KindState::plural).map(str::to_owned) else { return };
        let message = if ForbiddenRequest::in_message(&why.text).is_some() {
            why.text.clone()
        } else {
            format!("{kind} cannot be listed and watched, retrying: {}", why.text)
        };
        let is_gone = why.code == Some(404);
        if is_gone {
            self.end_watch(kind);
        }
        let plural = Some(plural).filter(|_| !is_gone);
        index.set_kind_state(kind, &KindState::Unavailable { plural, message });
    }

    fn end_watch(&mut self, kind: &Kind) {
        let source = Source::Objects(kind.clone());
        self.watches.stop(&source);
        self.watched.remove(kind);
        self.unsynced.remove(&source);
    }

    /// Stores the state of a kind in the index and starts its watch. Restarts the watches of the kinds that its
    /// operator creates: so far they may have been watched by label only.
    pub(super) fn set_kind_state(&mut self, index: &mut Index, kind: &Kind, state: &KindState) {
        let is_new = index.kind(kind) == Some(&KindState::Unknown);
        index.set_kind_state(kind, state);
        self.watch_objects(index, kind);
        if !is_new {
            // Others do not wait for a kind whose requests have failed.
            self.unsynced.remove(&Source::Objects(kind.clone()));
        }
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

    /// Discovers kinds without a resource, with one request for each group and version, and ends the watches of kinds
    /// that are not used any more.
    pub(super) fn discover_kinds(&mut self) {
        let shared = self.index.clone();
        let mut index = Self::index(&shared);
        self.end_unused_watches(&mut index);
        self.watch_referenced(&index);
        let wanted: Vec<_> = index.undiscovered_kinds().cloned().collect();
        let mut versions = BTreeSet::new();
        for kind in wanted {
            let is_new = index.kind(&kind) == Some(&KindState::Unknown);
            let defined = self.definitions.values().find(|(kinds, _)| is_new && kinds.contains(&kind));
            if let Some(state) = defined.map(|(_, state)| state.clone()) {
                self.set_kind_state(&mut index, &kind, &state);
                continue;
            }
            self.discover(&kind.api_version, is_new);
            versions.insert(kind.api_version);
        }
        self.discovering.retain(|version, lookup| {
            let is_wanted = versions.contains(version);
            if !is_wanted {
                lookup.task.abort();
            }
            is_wanted
        });
        let are_kinds_known = index.unknown_kinds().next().is_none() && index.unlisted_kinds().is_empty();
        if !self.has_synced && self.unsynced.is_empty() && are_kinds_known {
            self.has_synced = true;
            index.restore_usages();
            tracing::info!(
                wrappers = index.wrappers().count(),
                nodes = index.world().nodes().count(),
                "ready to plan"
            );
        }
    }

    /// Starts the watches of the kinds that templates refer to. They go on when no template does any more.
    fn watch_referenced(&mut self, index: &Index) {
        for kind in index.referenced_kinds() {
            if !self.watches.has(&Source::Referenced(kind)) {
                self.watches.referenced(kind);
            }
        }
    }

    /// Starts the discovery of a group and version, unless it is running. A new kind does not wait for its next
    /// attempt.
    fn discover(&mut self, api_version: &str, is_new: bool) {
        match self.discovering.get(api_version) {
            Some(lookup) if is_new && lookup.is_answered => lookup.task.abort(),
            Some(_) => return,
            None => {}
        }
        while self.discovery_tasks.try_join_next().is_some() {}
        let task = self.discovery_tasks.spawn(discovery::discover(
            self.client.clone(),
            api_version.to_owned(),
            if is_new { Duration::ZERO } else { discovery::AFTER_NOT_FOUND },
            self.discovery_permits.clone(),
            self.observations.clone(),
        ));
        self.discovering.insert(api_version.to_owned(), Lookup { task, is_answered: false });
    }

    /// Ends the watches of kinds that no live AppWrapper has wrapped for a while, and removes their objects.
    fn end_unused_watches(&mut self, index: &mut Index) {
        let now = self.now();
        let unused: BTreeSet<Kind> = index.unused_kinds().cloned().collect();
        self.unused_since.retain(|kind, _| unused.contains(kind));
        for kind in unused {
            let since = *self.unused_since.entry(kind.clone()).or_insert(now);
            if since.plus_s(UNUSED_WATCH_S) <= now {
                self.end_watch(&kind);
                index.remove_kind(&kind);
                self.unused_since.remove(&kind);
            }
        }
    }

    /// When the next unused watch ends.
    pub(super) fn next_watch_end(&self) -> Option<MicroTime> {
        self.unused_since.values().min().map(|since| since.plus_s(UNUSED_WATCH_S))
    }
}

/// How long the watch of a kind stays after the end of the last AppWrapper that wraps it, in seconds. The next one may
/// come soon.
const UNUSED_WATCH_S: i64 = 60;

/// The discovery of one group and version.
pub(super) struct Lookup {
    task: AbortHandle,
    /// It has reported an answer or a failure.
    is_answered: bool,
}

/// What no gang is admitted without: the resource, and what it has.
fn needed_for_admission(source: &Source) -> Option<(String, String)> {
    match source {
        Source::Namespaces => Some(("namespaces".into(), "the limits of the namespaces".into())),
        Source::Quotas(group) => Some((group.resource(), format!("the quota trees ({})", group.resource()))),
        Source::Nodes
        | Source::Pods
        | Source::Definitions
        | Source::Wrappers(_)
        | Source::Referenced(_)
        | Source::Kueue(_)
        | Source::Jobs(_)
        | Source::Provisioning(_)
        | Source::Objects(_) => None,
    }
}
