//! Gangs whose flavors are chosen one after another, because quota alone decides: none is taken back, so a gang may stay
//! pending although other flavors, or other victims, would do. After Kueue.

use std::collections::BTreeMap;

use model::{Gang, Places, Verdict};

use super::{Flavors, Quotas, flavor_choices};
use crate::quota_only::is_quota_only;

impl<'w> Quotas<'w> {
    /// Whether a gang has to be admitted with these flavors if they are free, or after preemption.
    pub(crate) fn must_start(&self, gang: &Gang, flavors: &Flavors, preempts: bool) -> bool {
        let Some(queue) = self.world.queues().get(&gang.queue).filter(|_| self.is_stepwise(gang)) else {
            return true;
        };
        let choices = flavor_choices(gang, queue);
        let has_one_choice = choices.iter().map(|(_, resources, _)| resources.len()).sum::<usize>() <= 1;
        let charges = self.charges(gang, flavors);
        let is_owned = charges.iter().all(|((node, of), amount)| *amount <= self.subtree_quota(node, *of));
        has_one_choice && (!preempts || is_owned)
    }

    /// Whether a plan admits a gang of another queue that borrows in the quota tree of this gang: the next plan may preempt it.
    pub(crate) fn has_new_borrowers(&self, gang: &Gang, decided: &BTreeMap<&str, &Verdict>) -> bool {
        let node = |gang: &Gang| self.world.queues().get(&gang.queue)?.quota.as_deref();
        let root = |node| self.path(node).and_then(|path| path.last().copied());
        let tree = node(gang).and_then(root);
        let borrows = |node: &&'w str| {
            self.flavor_resources(node)
                .into_iter()
                .any(|of| self.usage(node, of, &[]) > self.subtree_quota(node, of))
        };
        let admitted = decided.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Admit(_)));
        let admitted = admitted.filter_map(|(uid, _)| self.world.gang(uid));
        let others = admitted.filter(|other| other.queue != gang.queue && self.is_stepwise(other));
        others.filter_map(node).any(|node| root(node) == tree && borrows(&node))
    }

    /// Whether quota alone decides about a gang.
    pub(crate) fn is_stepwise(&self, gang: &Gang) -> bool {
        let Some(queue) = self.world.queues().get(&gang.queue).filter(|queue| !queue.groups.is_empty())
        else {
            return false;
        };
        let mut listed = queue.groups.iter().flat_map(|group| &group.flavors);
        let needs_no_node = gang.places == Places::Open
            || !queue.places_pods && listed.all(|flavor| is_quota_only(self.world, *flavor));
        needs_no_node && gang.charges.is_empty() && gang.replaces.is_none()
    }
}
