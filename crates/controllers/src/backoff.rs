//! Exponential backoff between retries.

use std::time::Duration;

use kube::runtime::utils::Backoff;

/// Endless sequence of delays. Each delay is twice the previous one, up to a maximum.
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
        let delay = self.next;
        self.next = (delay * 2).min(self.max);
        Some(delay)
    }
}

impl Backoff for ExponentialBackoff {
    fn reset(&mut self) {
        self.next = self.initial;
    }
}
