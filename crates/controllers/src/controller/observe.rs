//! A read-only controller, for `muster why` and `muster plan`. It watches the cluster and plans like the real
//! controller, but writes nothing. So its answers are decisions of the same code on the same observations. It can
//! also plan AppWrappers and Workloads that do not exist in the cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use index::{Kind, KueueKind, Phase};
use kube::Client;
use serde_json::Value;

use super::State;
use super::reports::{self, GangKind, GangReport, NewGang, NodeReport, Page, QuotaGroup, Reported};
use crate::api_calls::ResourcePath;
use crate::config::Config;
use crate::error::Error;
use crate::observations::{Receiver, Source, queue};

/// Timeout for the initial lists of all watches.
const READ_WITHIN: Duration = Duration::from_secs(30);

/// A read-only controller.
pub struct Observer {
    state: State,
    observations: Receiver,
}

impl Observer {
    /// Reads the cluster behind `client` and plans as a controller with this configuration would.
    pub async fn of(client: Client, config: Config) -> Result<Self, Error> {
        let (sender, observations) = queue();
        let mut observer = Self { state: State::new(client, config, <_>::default(), sender), observations };
        observer.read_until(|state| state.has_synced).await?;
        observer.state.plan_and_forecast();
        Ok(observer)
    }

    /// Reports the AppWrappers and the Workload of this name; each API group may have one.
    pub fn why(&self, namespace: &str, name: &str) -> Vec<GangReport> {
        let (index, now) = (State::index(&self.state.index), self.state.now());
        let of = |kind: Reported| kind.in_namespace(&index, namespace, name, now);
        [Reported::Wrappers, Reported::Workloads].into_iter().flat_map(of).collect()
    }

    /// Reports all AppWrappers and Workloads of a namespace, or of all.
    pub fn all(&self, namespace: Option<&str>) -> Vec<GangReport> {
        let (index, now) = (State::index(&self.state.index), self.state.now());
        let page = Page { namespace, after: ("", ""), most: usize::MAX };
        let of = |kind: Reported| kind.page(&index, &page, now).0;
        [Reported::Wrappers, Reported::Workloads].into_iter().flat_map(of).collect()
    }

    /// Reports all nodes, by name.
    pub fn nodes(&self) -> Vec<NodeReport> {
        reports::capacity::nodes(&State::index(&self.state.index))
    }

    /// Reports the groups of MCAD's quota trees, by name.
    pub fn quota_groups(&self) -> Vec<QuotaGroup> {
        reports::capacity::quota_groups(&State::index(&self.state.index))
    }

    /// Whether the cluster serves objects of this kind.
    pub fn serves(&self, kind: GangKind) -> bool {
        self.state.watches.has(&match kind {
            GangKind::Wrapper(group) => Source::Wrappers(group),
            GangKind::Workload => Source::Kueue(KueueKind::Workload),
        })
    }

    /// The namespaces with an AppWrapper or a Workload of this name.
    pub fn namespaces_of(&self, name: &str) -> BTreeSet<String> {
        let index = State::index(&self.state.index);
        let wrappers = index.wrappers().filter(|wrapper| wrapper.key.name == name);
        let workloads = index.workloads().filter(|row| row.object.metadata.name == name);
        let wrappers = wrappers.map(|wrapper| wrapper.key.namespace.clone());
        wrappers.chain(workloads.map(|row| row.namespace().to_owned())).collect()
    }

    /// Reports what would happen to a manifest if it were created now, after the manifests of earlier calls. The API
    /// server validates it in a dry run; nothing is written. `namespace` applies to a manifest without a namespace.
    pub async fn what_if(
        &mut self,
        kind: GangKind,
        namespace: &str,
        mut manifest: Value,
    ) -> Result<GangReport, Error> {
        let field = |field: &Value| field.as_str().unwrap_or_default().to_owned();
        let namespace = manifest["metadata"]["namespace"].as_str().unwrap_or(namespace).to_owned();
        if let Some(meta) = manifest["metadata"].as_object_mut() {
            meta.insert("namespace".into(), namespace.clone().into());
        }
        let version = Kind::new(field(&manifest["apiVersion"]), kind.names().0);
        let path = ResourcePath::of(&version, kind.names().1, &namespace);
        let created: Value = path.create_dry_run(&self.state.client, &manifest).await?;
        self.what_if_completed(kind, created).await
    }

    /// The same for an object that is as the API server would complete it.
    pub async fn what_if_completed(&mut self, kind: GangKind, created: Value) -> Result<GangReport, Error> {
        let uid = created["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let created = NewGang::read(kind, created).map_err(Error::Refused)?;
        let now = self.state.now();
        created.add_to(&mut State::index(&self.state.index), now)?;
        let is_classified = |state: &State| {
            let index = State::index(&state.index);
            index.wrapper(&uid).is_none_or(|wrapper| wrapper.phase != Phase::Unknown)
        };
        self.read_until(is_classified).await?;
        self.state.plan_and_forecast();
        let report = reports::of_uid(&State::index(&self.state.index), &uid, now);
        report.ok_or_else(|| Error::NotFound("the object was deleted in the meantime".into()))
    }

    /// Stops the watches. Otherwise, watches that the runtime drops at its end report an interruption.
    pub async fn close(self) {
        self.state.watches.end().await;
    }

    async fn read_until(&mut self, is_enough: impl Fn(&State) -> bool) -> Result<(), Error> {
        let state = &mut self.state;
        let read = async {
            state.discover_kinds();
            while !is_enough(state) {
                let observation = self.observations.recv().await;
                state.apply(observation);
                state.discover_kinds();
            }
        };
        if tokio::time::timeout(READ_WITHIN, read).await.is_err() {
            let missing: Vec<_> = self.state.unsynced.iter().map(ToString::to_string).collect();
            let what = if missing.is_empty() { "all kinds".into() } else { missing.join(", ") };
            return Err(Error::Unreachable(format!(
                "{what} could not be read within {} s; see the warnings above",
                READ_WITHIN.as_secs()
            )));
        }
        Ok(())
    }
}
