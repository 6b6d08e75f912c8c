//! A read-only controller, for `muster why` and `muster plan`. It watches the cluster and plans like the real
//! controller, but writes nothing. So its answers are decisions of the same code on the same observations. It can
//! also plan AppWrappers that do not exist in the cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use api::appwrapper::{AppWrapper, Group};
use index::Phase;
use kube::Client;
use serde_json::Value;

use super::State;
use super::reports::{self, WrapperReport};
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

    /// Reports the AppWrappers of this name; each API group may have one.
    pub fn why(&self, namespace: &str, name: &str) -> Vec<WrapperReport> {
        let index = State::index(&self.state.index);
        reports::in_namespace(&index, namespace, name, self.state.now())
    }

    /// Whether the cluster serves the `AppWrapper` of this group.
    pub fn serves(&self, group: Group) -> bool {
        self.state.watches.has(&Source::Wrappers(group))
    }

    /// The namespaces with an AppWrapper of this name.
    pub fn namespaces_of(&self, name: &str) -> BTreeSet<String> {
        let index = State::index(&self.state.index);
        let named = index.wrappers().filter(|wrapper| wrapper.key.name == name);
        named.map(|wrapper| wrapper.key.namespace.clone()).collect()
    }

    /// Reports what would happen to a manifest if it were created now, after the manifests of earlier calls. The API
    /// server validates it in a dry run; nothing is written. `namespace` applies to a manifest without a namespace.
    pub async fn what_if(
        &mut self,
        group: Group,
        namespace: &str,
        mut manifest: Value,
    ) -> Result<WrapperReport, Error> {
        let namespace = manifest["metadata"]["namespace"].as_str().unwrap_or(namespace).to_owned();
        if let Some(meta) = manifest["metadata"].as_object_mut() {
            meta.insert("namespace".into(), namespace.clone().into());
        }
        let created: AppWrapper =
            ResourcePath::wrappers(group, &namespace).create_dry_run(&self.state.client, &manifest).await?;
        let uid = created.metadata.uid.clone();
        reports::check_is_new(&State::index(&self.state.index), group, &created)?;
        let now = self.state.now();
        State::index(&self.state.index).upsert_wrapper(group, created, now);
        let is_classified = |state: &State| {
            let index = State::index(&state.index);
            index.wrapper(&uid).is_none_or(|wrapper| wrapper.phase != Phase::Unknown)
        };
        self.read_until(is_classified).await?;
        self.state.plan_and_forecast();
        let report = reports::report(&State::index(&self.state.index), &uid, now);
        report.ok_or_else(|| Error::NotFound("the AppWrapper was deleted in the meantime".into()))
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
