//! ExponentialBackoff between tries.

use std::time::Duration;

use kube::runtime::utils::Backoff;

/// ExponentialBackoff without end, each twice as long as the one before, up to a longest.
#[derive(Debug, Clone)]
pub(crate) struct ExponentialBackoff {
    first: Duration,
    next: Duration,
    longest: Duration,
}

impl ExponentialBackoff {
    pub(crate) const fn between(first: Duration, longest: Duration) -> Self {
        Self { first, next: first, longest }
    }
}

impl Iterator for ExponentialBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        Some(pause)
    }
}

impl Backoff for ExponentialBackoff {
    fn reset(&mut self) {
        self.next = self.first;
    }
}
