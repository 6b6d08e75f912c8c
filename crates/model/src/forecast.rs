//! When gangs that wait will presumably start.

use std::collections::{BTreeMap, BTreeSet};

use crate::amount::Time;

/// When a gang could start, from the expected ends of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForecastStart {
    /// When.
    pub start: Time,
    /// Every end that it counts on was declared, none guessed.
    pub declared: bool,
    /// The uid of the gang whose end makes room at last; none when those are enough who are leaving already.
    pub after: Option<String>,
}

/// What the future holds for those who wait if everybody ends when that is expected and nobody else comes. Nobody is promised
/// anything by it, and no decision depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forecast {
    /// When it was made.
    pub at: Time,
    /// By uid, the starts that were foreseen.
    pub starts: BTreeMap<String, ForecastStart>,
    /// The uids of those for whom none was, as far as was looked.
    pub without_start: BTreeSet<String>,
    /// When the last of these starts, if others waited behind all of them who were not looked at.
    pub not_before: Option<Time>,
}

impl Forecast {
    /// When the gang of this uid, which waits since `queued_at`, is expected to start. Who was not looked at comes after those who
    /// were; of who came later nothing is known.
    pub fn of(&self, uid: &str, queued_at: Time) -> Option<ForecastStart> {
        let not_before = || {
            let is_behind = queued_at <= self.at && !self.without_start.contains(uid);
            let start = self.not_before.filter(|_| is_behind)?;
            Some(ForecastStart { start, declared: false, after: None })
        };
        self.starts.get(uid).cloned().or_else(not_before)
    }
}
