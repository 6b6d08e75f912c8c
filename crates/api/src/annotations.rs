//! What an author, or the workload itself, tells about a gang in annotations: how long it will run, what would be lost by
//! stopping it.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use crate::time::MicroTime;

/// How long the gang runs once it was started, such as `90s` or `2h30m`. Goes before all that its objects declare.
pub const EXPECTED_DURATION: &str = "muster.dev/expected-duration";
/// The last moment from which the workload could go on after being stopped, RFC 3339. May be written while it runs.
pub const CHECKPOINTED_AT: &str = "muster.dev/checkpointed-at";
/// `true`: the gang is never stopped for another one.
pub const PROTECTED: &str = "muster.dev/protected";

/// What annotations tell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hints {
    /// How long it will run, microseconds.
    pub expected_us: Option<i64>,
    /// From when it could go on.
    pub checkpointed_at: Option<MicroTime>,
    /// Whether it is never stopped for another one.
    pub is_protected: bool,
    /// What could not be read, and how it should be written; it counts as absent.
    pub flaws: Vec<String>,
}

impl Hints {
    /// Reads annotations.
    pub fn read(annotations: &BTreeMap<String, String>) -> Self {
        let mut flaws = Vec::new();
        let mut read = |key: &str, form: &str, parse: &dyn Fn(&str) -> Option<i64>| {
            let text = annotations.get(key)?;
            let value = parse(text.trim());
            if value.is_none() {
                flaws.push(format!("annotation {key} is ignored: \"{text}\" is no {form}"));
            }
            value
        };
        let expected_us = read(EXPECTED_DURATION, "duration such as 90s or 2h30m", &duration_us);
        let checkpointed_at = read(CHECKPOINTED_AT, "time such as 2026-11-21T09:30:00Z", &|text| {
            MicroTime::parse(text).map(|time| time.0)
        });
        let is_protected = read(PROTECTED, "true or false", &|text| match text {
            "true" => Some(1),
            "false" => Some(0),
            _ => None,
        });
        Self {
            expected_us,
            checkpointed_at: checkpointed_at.map(MicroTime),
            is_protected: is_protected == Some(1),
            flaws,
        }
    }
}

/// Whole seconds without a unit are understood too.
fn duration_us(text: &str) -> Option<i64> {
    let duration = match text.parse::<u32>() {
        Ok(seconds) => SignedDuration::from_secs(seconds.into()),
        Err(_) => text.parse().ok()?,
    };
    i64::try_from(duration.as_micros()).ok().filter(|us| *us >= 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(key: &str, value: &str) -> Hints {
        Hints::read(&BTreeMap::from([(key.to_owned(), value.to_owned())]))
    }

    #[test]
    fn durations_are_read_as_kubernetes_users_write_them() {
        for (text, seconds) in [("90s", 90), ("2h30m", 9_000), ("1.5h", 5_400), ("45", 45), ("1h 1s", 3_601)]
        {
            assert_eq!(read(EXPECTED_DURATION, text).expected_us, Some(seconds * 1_000_000), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_said_and_counts_as_absent() {
        for (key, text) in [
            (EXPECTED_DURATION, "soon"),
            (EXPECTED_DURATION, "-5m"),
            (CHECKPOINTED_AT, "noon"),
            (PROTECTED, "yes"),
        ] {
            let hints = read(key, text);
            assert_eq!(hints.flaws.len(), 1, "{text}");
            assert!(hints.flaws[0].contains(key) && hints.flaws[0].contains(text), "{}", hints.flaws[0]);
            assert_eq!(Hints { flaws: Vec::new(), ..hints }, Hints::default());
        }
    }

    #[test]
    fn a_checkpoint_and_a_protection_are_read() {
        let stamp = MicroTime::parse("2026-11-21T09:30:00Z");
        assert_eq!(read(CHECKPOINTED_AT, "2026-11-21T10:30:00+01:00").checkpointed_at, stamp);
        assert!(read(PROTECTED, "true").is_protected);
        assert_eq!(read(PROTECTED, "false"), Hints::default());
    }
}
