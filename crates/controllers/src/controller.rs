//! The loop: fold what is new, plan, take the next steps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;

use api::MicroTime;
use api::appwrapper::Group;
use index::{Index, Kind, KindState, ObjectRow, Phase, wire};
use kube::Client;
use model::{Plan, Time};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

use crate::config::Config;
use crate::discovery::Resources;
use crate::error::Error;
use crate::events::Recorder;
use crate::execute::{Outcome, Task};
use crate::facts::{Fact, Source};
use crate::step::{self, News, Step};
use crate::watches::Watches;

/// Most facts that are folded before the next plan.
const FOLD_MAX: usize = 10_000;
/// How long the figures in a message may lag behind while the reason stays the same, seconds.
const FIGURES_LAG_S: i64 = 10;
/// Messages of which only figures changed, written per second over all gangs that wait: beyond, they lag longer.
const FIGURES_PER_S: usize = 20;
/// First pause after a step that did not work.
const RETRY_FIRST_US: i64 = 100_000;
/// Longest pause, as a power of two of the first.
const RETRY_SHIFT_MAX: u32 = 8;

/// Looks after the wrappers of one cluster.
pub struct Controller {
    client: Client,
    config: Config,
    index: Arc<RwLock<Index>>,
    changes: watch::Sender<u64>,
}

impl Controller {
    /// A controller for the cluster behind `client`. Nothing happens before [`Controller::run`].
    pub fn new(client: Client, config: Config) -> Self {
        Self { client, config, index: Arc::default(), changes: watch::Sender::default() }
    }

    /// What the controller knows, for those who show it.
    pub fn index(&self) -> Arc<RwLock<Index>> {
        self.index.clone()
    }

    /// Tells the generation of the index's world whenever it has changed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Runs until `shutdown` is ready. Steps under way are dropped then, as a crash would: the next start finishes them.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
        let (sender, mut facts) = mpsc::unbounded_channel();
        let mut state = State::new(self.client, self.config, self.index, sender);
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            let wake = state.sleep();
            tokio::select! {
                biased;
                () = &mut shutdown => return Ok(()),
                fact = facts.recv() => state.fold(fact),
                () = wake => {}
            }
            for _ in 1..FOLD_MAX {
                let Ok(fact) = facts.try_recv() else { break };
                state.fold(Some(fact));
            }
            state.learn_kinds();
            state.plan();
            state.take_steps();
            let generation = State::index(&state.index).world().generation();
            self.changes.send_if_modified(|told| std::mem::replace(told, generation) != generation);
        }
    }
}

/// What the loop keeps beside the index. None of it outlives the process, and none of it has to.
struct State {
    client: Client,
    config: Config,
    index: Arc<RwLock<Index>>,
    facts: mpsc::UnboundedSender<Fact>,
    watches: Watches,
    recorder: Recorder,
    /// Watches whose first list is still to come; nothing is planned before.
    unlisted: BTreeSet<Source>,
    has_started: bool,
    planned: Option<u64>,
    /// Definitions by name, with the kinds they serve and how.
    definitions: BTreeMap<String, (BTreeSet<Kind>, KindState)>,
    /// Groups whose definition writes the status together with the rest.
    without_status: BTreeSet<Group>,
    discovering: BTreeSet<String>,
    /// Kinds that are watched, and whether all their objects are.
    watched: BTreeMap<Kind, bool>,
    tasks: JoinSet<()>,
    questions: JoinSet<()>,
    permits: Arc<Semaphore>,
    busy: BTreeMap<String, (AbortHandle, Vec<News>)>,
    /// When waiting gangs were last told their figures.
    told: BTreeMap<String, MicroTime>,
    failures: BTreeMap<String, (u32, MicroTime)>,
    wakes: BTreeSet<(MicroTime, String)>,
}

impl State {
    fn new(
        client: Client,
        config: Config,
        index: Arc<RwLock<Index>>,
        facts: mpsc::UnboundedSender<Fact>,
    ) -> Self {
        let mut watches = Watches::new(client.clone(), facts.clone());
        watches.nodes();
        watches.pods();
        watches.definitions();
        Self {
            recorder: Recorder::new(client.clone(), config.clock.clone()),
            permits: Arc::new(Semaphore::new(config.writers.max(1))),
            unlisted: BTreeSet::from([Source::Nodes, Source::Pods, Source::Definitions]),
            has_started: false,
            planned: None,
            definitions: BTreeMap::new(),
            without_status: BTreeSet::new(),
            discovering: BTreeSet::new(),
            watched: BTreeMap::new(),
            tasks: JoinSet::new(),
            questions: JoinSet::new(),
            busy: BTreeMap::new(),
            told: BTreeMap::new(),
            failures: BTreeMap::new(),
            wakes: BTreeSet::new(),
            client,
            config,
            index,
            facts,
            watches,
        }
    }

    fn now(&self) -> MicroTime {
        MicroTime::from((self.config.clock)())
    }

    /// The index to change. A reader that panicked has not changed it.
    fn index(index: &RwLock<Index>) -> RwLockWriteGuard<'_, Index> {
        index.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until the earliest deadline, for ever without one.
    fn sleep(&self) -> impl Future<Output = ()> + use<> {
        let due = self.wakes.first().map(|(due, _)| *due);
        let now = self.now();
        async move {
            match due {
                Some(due) => {
                    let pause = u64::try_from(due.0.saturating_sub(now.0)).unwrap_or(0);
                    tokio::time::sleep(Duration::from_micros(pause)).await;
                }
                None => std::future::pending().await,
            }
        }
    }

    fn fold(&mut self, fact: Option<Fact>) {
        let Some(fact) = fact else { return };
        let now = self.now();
        let shared = self.index.clone();
        let mut index = Self::index(&shared);
        match fact {
            Fact::Node(node) => index.node_seen(node),
            Fact::NodeGone(name) => index.node_gone(&name),
            Fact::Pod(pod) => index.pod_seen(pod),
            Fact::PodGone(uid) => index.pod_gone(&uid),
            Fact::Object(kind, object) => index.object_seen(ObjectRow::of(&kind, object)),
            Fact::ObjectGone(uid) => index.object_gone(&uid),
            Fact::Wrapper(group, wrapper) => index.wrapper_seen(group, *wrapper, now),
            Fact::WrapperGone(uid) => {
                index.wrapper_gone(&uid);
                self.forget(&uid);
            }
            Fact::Definition(definition) => self.definition_seen(&mut index, &definition),
            Fact::DefinitionGone(name) => self.definition_gone(&mut index, &name),
            Fact::Discovered(api_version, resources) => self.discovered(&mut index, &api_version, &resources),
            Fact::Listed(source) => {
                if let Source::Objects(kind) = &source
                    && let Some(KindState::Served { plural, .. }) = index.kind(kind).cloned()
                {
                    index.kind_known(kind, &KindState::Served { plural, listed: true });
                }
                self.unlisted.remove(&source);
            }
            Fact::Done(uid, outcome) => self.done(&mut index, &uid, *outcome, now),
        }
    }

    fn forget(&mut self, uid: &str) {
        if let Some((task, _)) = self.busy.remove(uid) {
            task.abort();
        }
        self.told.remove(uid);
        self.failures.remove(uid);
        self.wakes.retain(|(_, other)| other != uid);
    }

    /// Our own resources are watched once they are served; kinds that were missing may be served now.
    fn definition_seen(&mut self, index: &mut Index, definition: &wire::Definition) {
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
            if is_ours
                && spec.versions.iter().find(is_v1beta1).is_some_and(|v| v.subresources.status.is_none())
            {
                self.without_status.insert(group);
            }
            if is_ours && !self.watches.has(&source) {
                self.watches.wrappers(group);
                if !self.has_started {
                    self.unlisted.insert(source);
                }
            }
        }
        let state = match spec.scope.as_str() {
            "Namespaced" => KindState::Served { plural: spec.names.plural.clone(), listed: false },
            _ => KindState::ClusterScoped,
        };
        for kind in &kinds {
            if index.kind(kind) == Some(&KindState::Missing) {
                self.kind_known(index, kind, &state);
            }
        }
        self.definitions.insert(definition.metadata.name.clone(), (kinds, state));
    }

    fn definition_gone(&mut self, index: &mut Index, name: &str) {
        for group in Group::ALL.into_iter().filter(|group| group.resource() == name) {
            self.watches.stop(&Source::Wrappers(group));
            self.without_status.remove(&group);
            let gone: Vec<_> = index
                .wrappers()
                .filter(|wrapper| wrapper.key.group == group)
                .map(|wrapper| wrapper.uid.clone())
                .collect();
            for uid in gone {
                index.wrapper_gone(&uid);
                self.forget(&uid);
            }
        }
        for kind in self.definitions.remove(name).map(|(kinds, _)| kinds).unwrap_or_default() {
            self.watches.stop(&Source::Objects(kind.clone()));
            self.watched.remove(&kind);
            if index.kind(&kind).is_some() {
                index.kind_known(&kind, &KindState::Missing);
            }
        }
    }

    fn discovered(&mut self, index: &mut Index, api_version: &str, resources: &Resources) {
        self.discovering.remove(api_version);
        let asked: Vec<_> =
            index.unknown_kinds().filter(|kind| kind.api_version == api_version).cloned().collect();
        for kind in asked {
            self.kind_known(index, &kind, &resources.state(&kind));
        }
    }

    /// Tells the index about a kind, and watches its objects.
    fn kind_known(&mut self, index: &mut Index, kind: &Kind, state: &KindState) {
        index.kind_known(kind, state);
        let KindState::Served { plural, .. } = state else { return };
        let all = index.kinds().any(|(parent, _)| parent.children().contains(kind));
        if self.watched.get(kind).is_none_or(|was_all| all && !was_all) {
            self.watched.insert(kind.clone(), all);
            self.watches.objects(kind, plural, all);
            if !self.has_started {
                self.unlisted.insert(Source::Objects(kind.clone()));
            }
        }
    }

    /// Asks for what is not known about kinds yet, once for each group and version.
    fn learn_kinds(&mut self) {
        let shared = self.index.clone();
        let mut index = Self::index(&shared);
        let unknown: Vec<_> = index.unknown_kinds().cloned().collect();
        for kind in unknown {
            let defined = self.definitions.values().find(|(kinds, _)| kinds.contains(&kind));
            if let Some(state) = defined.map(|(_, state)| state.clone()) {
                self.kind_known(&mut index, &kind, &state);
            } else if self.discovering.insert(kind.api_version.clone()) {
                let (client, facts) = (self.client.clone(), self.facts.clone());
                while self.questions.try_join_next().is_some() {}
                self.questions.spawn(async move {
                    let resources = Resources::of(client, kind.api_version.clone()).await;
                    // Nobody listens any more: the answer is not needed.
                    drop(facts.send(Fact::Discovered(kind.api_version, resources)));
                });
            }
        }
        if !self.has_started && self.unlisted.is_empty() && index.unknown_kinds().next().is_none() {
            self.has_started = true;
            tracing::info!(
                wrappers = index.wrappers().count(),
                nodes = index.world().nodes().count(),
                "ready to plan"
            );
        }
    }

    /// Plans on what is known, if anything has changed since.
    fn plan(&mut self) {
        let shared = self.index.clone();
        let mut index = Self::index(&shared);
        if !self.has_started || self.planned == Some(index.world().generation()) {
            return;
        }
        let snapshot = index.world().snapshot(Time(self.now().0));
        let plan: Plan = planner::plan(&snapshot);
        if let Some(inspect) = &self.config.inspect {
            inspect(&snapshot, &plan);
        }
        for uid in index.accept(plan) {
            self.failures.remove(&uid);
        }
        self.planned = Some(index.world().generation());
    }

    /// Takes the next step for every wrapper about which something is new.
    fn take_steps(&mut self) {
        if !self.has_started {
            return;
        }
        let now = self.now();
        let shared = self.index.clone();
        let mut index = Self::index(&shared);
        while let Some((due, uid)) = self.wakes.first().cloned() {
            if due > now {
                break;
            }
            self.wakes.pop_first();
            index.touch(&uid);
        }
        while self.tasks.try_join_next().is_some() {}
        let mut dirty: Vec<_> = index.take_dirty().into_iter().collect();
        // Who may start goes first, in the order of the queue.
        dirty.sort_by_cached_key(|uid| {
            let wrapper = index.wrapper(uid);
            let is_starting = wrapper.is_some_and(|wrapper| matches!(wrapper.phase, Phase::Starting(_)));
            (!is_starting, wrapper.map(|wrapper| (-wrapper.outline.spec.priority_milli, wrapper.seen)))
        });
        for uid in dirty {
            self.take_step(&mut index, &uid, now);
        }
    }

    fn take_step(&mut self, index: &mut Index, uid: &str, now: MicroTime) {
        if self.busy.contains_key(uid) {
            return; // Looked at again when the step under way ends.
        }
        let Some(wrapper) = index.wrapper(uid) else { return };
        if let Some((_, not_before)) = self.failures.get(uid)
            && *not_before > now
        {
            self.wakes.insert((*not_before, uid.to_owned()));
            return;
        }
        let lag_s = FIGURES_LAG_S + i64::try_from(self.told.len() / FIGURES_PER_S).unwrap_or(i64::MAX);
        let figures_due = self.told.get(uid).map(|told| told.plus_s(lag_s));
        let step = step::next(index, wrapper, now, figures_due);
        let news = match &step {
            Step::Rest(due) => {
                self.wakes.extend(due.map(|due| (due, uid.to_owned())));
                return;
            }
            Step::Stop(stop) => {
                index.enter(uid, Phase::Stopping(stop.clone()));
                return self.take_step(index, uid, now);
            }
            Step::Write(_, news) => {
                if wrapper.phase == Phase::Waiting {
                    self.told.insert(uid.to_owned(), now);
                }
                news.clone()
            }
            Step::Dispatch { news, .. } => {
                self.told.remove(uid);
                news.clone()
            }
            Step::Remove(_) => Vec::new(),
        };
        let task = self.task(index, wrapper, step);
        let (facts, uid) = (self.facts.clone(), uid.to_owned());
        let key = uid.clone();
        let handle = self.tasks.spawn(async move {
            let outcome = Box::new(task.run().await);
            // Nobody listens any more: the next start finds what was done.
            drop(facts.send(Fact::Done(uid, outcome)));
        });
        self.busy.insert(key, (handle, news));
    }

    fn task(&self, index: &Index, wrapper: &index::Wrapper, step: Step) -> Task {
        let mut plurals = BTreeMap::new();
        let objects: Vec<_> =
            index.objects_of(&wrapper.uid).map(|row| (row.key.clone(), row.uid.clone())).collect();
        for kind in wrapper.outline.objects().chain(objects.iter().map(|(key, _)| key)).map(|key| &key.kind) {
            if let Some(KindState::Served { plural, .. }) = index.kind(kind) {
                plurals.insert(kind.clone(), plural.clone());
            }
        }
        Task {
            client: self.client.clone(),
            clock: self.config.clock.clone(),
            wrapper: wrapper.clone(),
            plurals,
            objects,
            has_status: !self.without_status.contains(&wrapper.key.group),
            permits: self.permits.clone(),
            permit: Mutex::default(),
            step,
        }
    }

    /// Folds the outcome of a step.
    fn done(&mut self, index: &mut Index, uid: &str, outcome: Outcome, now: MicroTime) {
        let Some((_, news)) = self.busy.remove(uid) else { return };
        let Some(wrapper) = index.wrapper(uid) else { return };
        let (group, phase) = (wrapper.key.group, wrapper.phase.clone());
        if !matches!(outcome, Outcome::Retry(_)) {
            self.failures.remove(uid);
        }
        if matches!(outcome, Outcome::Written { .. } | Outcome::Dispatched { .. }) {
            for news in &news {
                self.recorder.record(wrapper, news);
            }
        }
        match outcome {
            Outcome::Written { resource_version, status } => {
                let is_queued_again = matches!(phase, Phase::Stopping(_)) && !status.state.is_terminal();
                index.written(uid, &resource_version, *status);
                if is_queued_again {
                    index.enter(uid, Phase::Waiting);
                }
            }
            Outcome::Dispatched { resource_version, status } => {
                index.written(uid, &resource_version, *status);
                if let Phase::Starting(assignment) = phase {
                    index.enter(uid, Phase::Running(assignment));
                }
            }
            Outcome::Stale(wrapper) => {
                // Its place was promised to what it was; while nothing exists of it, it is judged anew.
                if matches!(phase, Phase::Starting(_)) && index.objects_of(uid).next().is_none() {
                    index.wrapper_changed(group, *wrapper);
                } else {
                    index.wrapper_seen(group, *wrapper, now);
                }
            }
            Outcome::Gone => index.enter(uid, Phase::Ended),
            Outcome::Retry(error) => {
                let failures = self.failures.get(uid).map_or(0, |(failures, _)| *failures);
                let pause_us = RETRY_FIRST_US << failures.min(RETRY_SHIFT_MAX);
                self.failures.insert(uid.to_owned(), (failures + 1, MicroTime(now.0 + pause_us)));
                tracing::warn!(wrapper = %wrapper_name(index, uid), %error, failures, "a step did not work, trying again");
            }
        }
        index.touch(uid);
    }
}

fn wrapper_name(index: &Index, uid: &str) -> String {
    index.wrapper(uid).map_or_else(|| uid.to_owned(), |wrapper| wrapper.key.to_string())
}
