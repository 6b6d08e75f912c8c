//! Time stamps with microseconds, as in the conditions of AppWrappers.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Microseconds since the Unix epoch; on the wire RFC 3339 with exactly six fractional digits and `Z`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MicroTime(pub i64);

impl MicroTime {
    /// Parses an RFC 3339 time stamp.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse::<Timestamp>().ok().map(Self::from)
    }

    /// Adds whole seconds, saturating.
    #[must_use]
    pub fn plus_s(self, seconds: i64) -> Self {
        Self(self.0.saturating_add(seconds.saturating_mul(1_000_000)))
    }
}

impl From<Timestamp> for MicroTime {
    fn from(stamp: Timestamp) -> Self {
        Self(stamp.as_microsecond())
    }
}

impl fmt::Display for MicroTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stamp = Timestamp::from_microsecond(self.0).unwrap_or(Timestamp::UNIX_EPOCH);
        stamp.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").fmt(f)
    }
}

impl Serialize for MicroTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// An invalid time stamp decodes as the epoch, so that an invalid object does not fail the watch.
impl<'de> Deserialize<'de> for MicroTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        Ok(text.and_then(|text| Self::parse(&text)).unwrap_or_default())
    }
}

/// Generates strictly increasing time stamps, even if the wall clock steps back.
#[derive(Debug, Clone, Default)]
pub struct MonotonicTimestamps {
    last: MicroTime,
}

impl MonotonicTimestamps {
    /// The maximum of `now` and one microsecond after the last time stamp.
    pub fn next(&mut self, now: MicroTime) -> MicroTime {
        self.last = now.max(MicroTime(self.last.0 + 1));
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_stamp_is_formatted_with_six_fractional_digits() {
        let stamp = MicroTime::parse("2022-09-27T21:07:34.25Z").unwrap();
        assert_eq!(stamp.to_string(), "2022-09-27T21:07:34.250000Z");
        assert_eq!(
            MicroTime::parse("2022-09-27T21:07:34Z").unwrap().to_string(),
            "2022-09-27T21:07:34.000000Z"
        );
    }

    #[test]
    fn time_stamps_increase_when_the_clock_stops_or_steps_back() {
        let mut stamps = MonotonicTimestamps::default();
        let handed: Vec<_> = [5, 5, 3, 9].map(|now| stamps.next(MicroTime(now)).0).into();
        assert_eq!(handed, [5, 6, 7, 9]);
    }
}
