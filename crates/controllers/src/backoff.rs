//! ExponentialBackoff new tries.

use std::time::Duration;

use kube::runtime::utils::Backoff;

/// ExponentialBackoff without end, each twice as long as the one before, up to a max.
#[derive(Debug, Clone)]
pub(crate) struct ExponentialBackoff {
    initial: Duration,
    next: Duration,
    max: Duration,
}

impl ExponentialBackoff {
    pub(crate) const fn new(initial: Duration, max: Duration) -> Self {
        Self { initial, next: initial, max }
    }
}

impl Iterator for ExponentialBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = self.next;
        self.next = (pause * 2).min(self.max);
        Some(pause)
    }
}

impl Backoff for ExponentialBackoff {
    fn reset(&mut self) {
        self.next = self.initial;
    }
}
