//! In which turn the rights to several gangs are exercised: each only while its title still holds.

use model::{Gang, PreemptionReason};

use crate::preemption::cost::Candidate;
use crate::preemption::rules::{Kind, Rules, Title};
use crate::quota::Quotas;

impl<'s> Rules<'s> {
    /// Those of the candidates who may be stopped together if they are asked in this order. With `within`, the gang may end
    /// only within what its node owns, and titles that demand that count too.
    pub(super) fn in_turn(
        &self,
        usage: &Quotas<'s>,
        candidates: &[Candidate<'s>],
        order: impl Iterator<Item = usize>,
        within: bool,
    ) -> Vec<usize> {
        if self.fairness.is_some() {
            return self.by_share(usage, candidates);
        }
        let mut usage = usage.clone();
        let mut taken = Vec::new();
        for at in order {
            let candidate = &candidates[at];
            if self.open_title(&usage, candidate, within).is_some() {
                taken.push(at);
                self.let_go(&mut usage, candidate.gang);
            }
        }
        taken
    }

    /// The reasons on which these candidates are stopped together in some turn, if there is one; not where shares decide.
    ///
    /// The turn is found from its end. Who may be the last one may be so whoever went before; and with that one back, what is
    /// used is the more beyond what is owned, so this is in nobody's way.
    pub(super) fn reasons(
        &self,
        usage: &Quotas<'s>,
        candidates: &[Candidate<'s>],
        stopped: &[usize],
        within: bool,
    ) -> Option<Vec<(usize, PreemptionReason)>> {
        let mut usage = usage.clone();
        for at in stopped {
            self.let_go(&mut usage, candidates[*at].gang);
        }
        let (mut rest, mut reasons) = (stopped.to_vec(), Vec::new());
        while !rest.is_empty() {
            let before = rest.len();
            rest.retain(|at| {
                let candidate = &candidates[*at];
                self.have_back(&mut usage, candidate.gang);
                let title = self.open_title(&usage, candidate, within);
                match title {
                    Some(title) => reasons.push((*at, title.kind.reason())),
                    None => self.let_go(&mut usage, candidate.gang),
                }
                title.is_none()
            });
            if rest.len() == before {
                return None;
            }
        }
        Some(reasons)
    }

    /// A title to a candidate that holds with this usage.
    fn open_title<'c>(
        &self,
        usage: &Quotas<'_>,
        candidate: &'c Candidate<'_>,
        within: bool,
    ) -> Option<&'c Title> {
        let counts = |title: &&Title| within || title.kind != Kind::ReclaimWithin;
        candidate.titles.iter().filter(counts).find(|title| self.is_open(usage, title))
    }

    /// Gives back what a gang is charged.
    pub(super) fn let_go(&self, usage: &mut Quotas<'_>, gang: &Gang) {
        if let Some(charges) = self.world.charged(&gang.uid) {
            usage.give_back(charges);
        }
    }

    /// Charges a gang again.
    fn have_back(&self, usage: &mut Quotas<'_>, gang: &Gang) {
        if let Some(charges) = self.world.charged(&gang.uid) {
            usage.charge(charges);
        }
    }
}
