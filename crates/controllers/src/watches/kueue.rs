//! Watches of Kueue's kinds.

use api::kueue::workload::API_VERSION;
use index::{Kind, KueueChange, KueueKind};
use kube::runtime::watcher;

use super::{Handlers, Watches, resource};
use crate::observations::{Observation, Source};
use crate::watched::HasMeta;

impl Watches {
    /// Watches the objects of a kind of Kueue.
    pub(crate) fn kueue(&mut self, kind: KueueKind) {
        use KueueChange as Change;
        match kind {
            KueueKind::Flavor => self.start_kueue(kind, Change::Flavor),
            KueueKind::Topology => self.start_kueue(kind, Change::Topology),
            KueueKind::Cohort => self.start_kueue(kind, Change::Cohort),
            KueueKind::ClusterQueue => self.start_kueue(kind, |queue| Change::ClusterQueue(Box::new(queue))),
            KueueKind::LocalQueue => self.start_kueue(kind, Change::LocalQueue),
            KueueKind::Check => self.start_kueue(kind, Change::Check),
            KueueKind::PriorityClass => self.start_kueue(kind, Change::PriorityClass),
            KueueKind::Workload => self.start_kueue(kind, |workload| Change::Workload(Box::new(workload))),
        }
    }

    fn start_kueue<T: HasMeta>(&mut self, kind: KueueKind, applied: fn(T) -> KueueChange) {
        let handlers = Handlers {
            on_apply: Box::new(move |object| Observation::Kueue(Box::new(applied(object)))),
            on_delete: Box::new(move |uid, name| {
                Observation::Kueue(Box::new(KueueChange::deleted(kind, uid, name)))
            }),
        };
        let (name, plural) = kind.resource();
        let resource = resource(&Kind::new(API_VERSION, name), plural);
        self.start::<T>(Source::Kueue(kind), &resource, watcher::Config::default(), handlers);
    }
}
