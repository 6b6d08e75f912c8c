//! The watches of objects beside nodes, pods and wrapped objects that decide what pods will be and where.

use index::{Kind, MutatorChange, ReferencedChange, ReferencedKind};
use kube::runtime::watcher;

use super::{Handlers, Watches, resource};
use crate::observations::{Observation, Source};
use crate::watched::HasMeta;

impl Watches {
    /// Watches the objects of a kind that templates refer to, by which admission changes pods, or that create pods on new nodes.
    pub(crate) fn referenced(&mut self, kind: ReferencedKind) {
        use ReferencedChange as Change;
        match kind {
            ReferencedKind::DaemonSets => {
                self.start_referenced(kind, Change::DaemonSet, |uid, _| Change::DaemonSetDeleted(uid));
            }
            ReferencedKind::LimitRanges => {
                let applied = |range| Change::Mutator(MutatorChange::LimitRange(range));
                let deleted = |uid, _| Change::Mutator(MutatorChange::LimitRangeDeleted(uid));
                self.start_referenced(kind, applied, deleted);
            }
            ReferencedKind::RuntimeClasses => {
                let applied = |class| Change::Mutator(MutatorChange::RuntimeClass(class));
                let deleted = |_, name| Change::Mutator(MutatorChange::RuntimeClassDeleted(name));
                self.start_referenced(kind, applied, deleted);
            }
            ReferencedKind::MutatingWebhooks => {
                let applied = |webhooks| Change::Mutator(MutatorChange::Webhooks(webhooks));
                let deleted = |uid, _| Change::Mutator(MutatorChange::WebhooksDeleted(uid));
                self.start_referenced(kind, applied, deleted);
            }
            ReferencedKind::Claims => {
                self.start_referenced(kind, Change::Claim, |uid, _| Change::ClaimDeleted(uid));
            }
            ReferencedKind::Volumes => {
                self.start_referenced(kind, Change::Volume, |_, name| Change::VolumeDeleted(name));
            }
            ReferencedKind::StorageClasses => {
                self.start_referenced(kind, Change::StorageClass, |_, name| {
                    Change::StorageClassDeleted(name)
                });
            }
        }
    }

    fn start_referenced<T: HasMeta>(
        &mut self,
        kind: ReferencedKind,
        applied: fn(T) -> ReferencedChange,
        deleted: fn(String, String) -> ReferencedChange,
    ) {
        let handlers = Handlers {
            on_apply: Box::new(move |object| Observation::Referenced(Box::new(applied(object)))),
            on_delete: Box::new(move |uid, name| Observation::Referenced(Box::new(deleted(uid, name)))),
        };
        let (api_version, name, plural) = kind.resource();
        let resource = resource(&Kind::new(api_version, name), plural);
        self.start::<T>(Source::Referenced(kind), &resource, watcher::Config::default(), handlers);
    }
}
