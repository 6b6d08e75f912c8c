//! Simulated durations: a speed divides them, and a seed randomizes them.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use jiff::SignedDuration;

/// Converts simulated durations to real ones and draws reproducible random numbers from a seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// The real duration of a simulated second.
    second: Duration,
    seed: u64,
}

impl Pace {
    /// Panics unless `speed` is positive.
    pub(crate) fn new(speed: f64, seed: u64) -> Self {
        assert!(speed > 0.0, "the speed of a sandbox must be positive");
        Self { second: Duration::from_secs(1).div_f64(speed), seed }
    }

    /// The real duration of a simulated one; zero if it is shorter than a tenth of a millisecond.
    pub(crate) fn scaled(self, duration: Duration) -> Duration {
        let nanos = duration.as_nanos() * self.second.as_nanos() / 1_000_000_000;
        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
        if nanos < 100_000 { Duration::ZERO } else { Duration::from_nanos(nanos) }
    }

    /// The real duration of a deadline: divided by the speed, but at least five seconds, because API requests do not
    /// get faster with the speed.
    pub(crate) fn deadline(self, duration: Duration) -> Duration {
        self.scaled(duration).max(duration.min(Duration::from_secs(5)))
    }

    /// The real duration of simulated milliseconds.
    pub(crate) fn millis(self, millis: u64) -> Duration {
        self.scaled(Duration::from_millis(millis))
    }

    /// A random simulated duration between two bounds in milliseconds. Equal seeds and inputs give equal durations.
    pub(crate) fn between(self, what: impl Hash, millis: (u64, u64)) -> Duration {
        let span = millis.1.saturating_sub(millis.0) + 1;
        self.millis(millis.0 + self.draw(what) % span)
    }

    /// A random number that depends on nothing but the seed and the input.
    pub(crate) fn draw(self, what: impl Hash) -> u64 {
        let mut hasher = Fnv(0xcbf2_9ce4_8422_2325 ^ self.seed);
        what.hash(&mut hasher);
        hasher.finish()
    }
}

/// FNV-1a with a final mix. Unlike the standard library's hasher, its result is the same in every build.
struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// Parses a duration such as `90`, `30s`, `2m`, `1h30m` or `250ms`; a bare number is in seconds.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let parsed: SignedDuration = text.parse().ok()?;
    Duration::try_from(parsed).ok()
}

/// A random five-letter suffix, as kube-apiserver appends to `generateName`. Equal inputs give equal suffixes.
pub(crate) fn suffix(mut draw: u64) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let base = LETTERS.len() as u64;
    let mut text = String::with_capacity(5);
    for _ in 0..5 {
        let letter = usize::try_from(draw % base).expect("an index below the length of the alphabet");
        text.push(char::from(LETTERS[letter]));
        draw /= base;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_divided_by_the_speed_and_round_down_to_zero() {
        assert_eq!(Pace::new(50.0, 1).millis(60_000), Duration::from_millis(1200));
        assert_eq!(Pace::new(1_000_000.0, 1).millis(60_000), Duration::ZERO);
        let pace = Pace::new(1.0, 7);
        let drawn = pace.between("pod", (1000, 3000));
        assert_eq!(drawn, pace.between("pod", (1000, 3000)));
        assert!((1000..=3000).contains(&drawn.as_millis()));
    }

    #[test]
    fn durations_parse_in_go_notation_and_as_seconds() {
        for (text, seconds) in
            [("90", 90.0), ("30s", 30.0), ("1h30m", 5400.0), ("250ms", 0.25), ("1.5s", 1.5)]
        {
            assert_eq!(parse_duration(text).map(|d| d.as_secs_f64()), Some(seconds), "{text}");
        }
        assert_eq!(parse_duration("soon"), None);
        assert_eq!(parse_duration("-3s"), None);
    }
}
