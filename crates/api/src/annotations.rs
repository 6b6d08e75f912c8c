//! Annotations of an AppWrapper, or of a job in a queue, that the planner uses: expected duration, last checkpoint, and protection
//! from preemption. Annotations of a Namespace limit them.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use crate::meta::Meta;
use crate::quantity::Quantity;
use crate::time::MicroTime;

/// Expected run time of the gang after its start, such as `90s` or `2h30m`. Has priority over the deadlines in its
/// objects.
pub const EXPECTED_DURATION: &str = "muster.dev/expected-duration";
/// Time of the last checkpoint, RFC 3339: the workload loses only the work since then when it is preempted. May be
/// updated while the gang runs.
pub const CHECKPOINTED_AT: &str = "muster.dev/checkpointed-at";
/// `true`: the gang is never preempted.
pub const PROTECTED: &str = "muster.dev/protected";

/// The annotations that a Workload has from its job.
pub const OF_GANGS: [&str; 3] = [EXPECTED_DURATION, CHECKPOINTED_AT, PROTECTED];

/// On a Namespace: the greatest priority of its AppWrappers and Workloads. A higher one counts as this.
pub const PRIORITY_MAX: &str = "muster.dev/priority-max";
/// On a Namespace, `true`: [`PROTECTED`] has an effect on its AppWrappers and Workloads.
pub const ALLOW_PROTECTED: &str = "muster.dev/allow-protected";

/// What an admin allows the gangs of a namespace, by its annotations and labels. Only admins write Namespaces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamespaceLimits {
    /// The greatest priority, in thousandths. None: any.
    pub priority_max_milli: Option<i64>,
    /// Whether gangs may be excluded from preemption.
    pub allows_protected: bool,
    /// Labels: one with the name of a quota tree selects the group of all gangs.
    pub labels: BTreeMap<String, String>,
    /// Messages about invalid annotations. They allow as little as possible: a greatest priority of 0, no protection.
    pub errors: Vec<String>,
}

impl NamespaceLimits {
    /// Reads the metadata of a Namespace.
    pub fn read(meta: &Meta) -> Self {
        let mut errors = Vec::new();
        let mut read = |key: &str, form: &str, parse: &dyn Fn(&str) -> Option<i64>| {
            let text = meta.annotations.get(key)?;
            let value = parse(text.trim());
            if value.is_none() {
                errors.push(format!("annotation {key} of namespace {}: \"{text}\" is no {form}", meta.name));
            }
            value.or(Some(0))
        };
        let priority_max_milli =
            read(PRIORITY_MAX, "number", &|text| Quantity::parse(text).ok().map(Quantity::milli));
        let allows_protected = read(ALLOW_PROTECTED, "true or false", &flag) == Some(1);
        Self { priority_max_milli, allows_protected, labels: meta.labels.clone(), errors }
    }

    /// The priority that counts of one that is asked for, both in thousandths.
    pub fn capped(&self, priority_milli: i64) -> i64 {
        self.priority_max_milli.map_or(priority_milli, |max| max.min(priority_milli))
    }
}

/// The parsed annotations of a gang.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GangAnnotations {
    /// Expected run time in microseconds.
    pub expected_us: Option<i64>,
    /// Time of the last checkpoint.
    pub checkpointed_at: Option<MicroTime>,
    /// Whether the gang is never preempted.
    pub is_protected: bool,
    /// Messages about invalid annotations, with the expected form. An invalid annotation is ignored.
    pub errors: Vec<String>,
}

impl GangAnnotations {
    /// Parses the annotations of an AppWrapper or a Workload.
    pub fn read(annotations: &BTreeMap<String, String>) -> Self {
        let mut errors = Vec::new();
        let mut read = |key: &str, form: &str, parse: &dyn Fn(&str) -> Option<i64>| {
            let text = annotations.get(key)?;
            let value = parse(text.trim());
            if value.is_none() {
                errors.push(format!("annotation {key} is ignored: \"{text}\" is no {form}"));
            }
            value
        };
        let expected_us = read(EXPECTED_DURATION, "duration such as 90s or 2h30m", &duration_us);
        let checkpointed_at = read(CHECKPOINTED_AT, "time such as 2026-11-21T09:30:00Z", &|text| {
            MicroTime::parse(text).map(|time| time.0)
        });
        let is_protected = read(PROTECTED, "true or false", &flag);
        Self {
            expected_us,
            checkpointed_at: checkpointed_at.map(MicroTime),
            is_protected: is_protected == Some(1),
            errors,
        }
    }
}

/// Parses `true` as 1 and `false` as 0.
fn flag(text: &str) -> Option<i64> {
    match text {
        "true" => Some(1),
        "false" => Some(0),
        _ => None,
    }
}

/// Parses a duration. A whole number without a unit counts as seconds.
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

    fn read(key: &str, value: &str) -> GangAnnotations {
        GangAnnotations::read(&BTreeMap::from([(key.to_owned(), value.to_owned())]))
    }

    #[test]
    fn durations_parse_in_the_formats_of_kubernetes() {
        for (text, seconds) in [("90s", 90), ("2h30m", 9_000), ("1.5h", 5_400), ("45", 45), ("1h 1s", 3_601)]
        {
            assert_eq!(read(EXPECTED_DURATION, text).expected_us, Some(seconds * 1_000_000), "{text}");
        }
    }

    #[test]
    fn an_invalid_annotation_is_reported_and_ignored() {
        for (key, text) in [
            (EXPECTED_DURATION, "soon"),
            (EXPECTED_DURATION, "-5m"),
            (CHECKPOINTED_AT, "noon"),
            (PROTECTED, "yes"),
        ] {
            let annotations = read(key, text);
            assert_eq!(annotations.errors.len(), 1, "{text}");
            assert!(
                annotations.errors[0].contains(key) && annotations.errors[0].contains(text),
                "{}",
                annotations.errors[0]
            );
            assert_eq!(GangAnnotations { errors: Vec::new(), ..annotations }, GangAnnotations::default());
        }
    }

    #[test]
    fn checkpoint_time_and_protection_parse() {
        let stamp = MicroTime::parse("2026-11-21T09:30:00Z");
        assert_eq!(read(CHECKPOINTED_AT, "2026-11-21T10:30:00+01:00").checkpointed_at, stamp);
        assert!(read(PROTECTED, "true").is_protected);
        assert_eq!(read(PROTECTED, "false"), GangAnnotations::default());
    }

    #[test]
    fn invalid_limits_of_a_namespace_allow_as_little_as_possible() {
        let limits = |annotations: &[(&str, &str)]| {
            let annotations = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            NamespaceLimits::read(&Meta {
                name: "team".into(),
                annotations: annotations.collect(),
                ..Meta::default()
            })
        };
        assert_eq!(limits(&[]), NamespaceLimits::default());
        let valid = limits(&[(PRIORITY_MAX, "-2.5"), (ALLOW_PROTECTED, "true")]);
        assert_eq!((valid.priority_max_milli, valid.allows_protected), (Some(-2_500), true));
        let odd = limits(&[(PRIORITY_MAX, "high"), (ALLOW_PROTECTED, "yes")]);
        assert_eq!((odd.priority_max_milli, odd.allows_protected), (Some(0), false));
        assert_eq!(
            odd.errors,
            [
                "annotation muster.dev/priority-max of namespace team: \"high\" is no number",
                "annotation muster.dev/allow-protected of namespace team: \"yes\" is no true or false"
            ]
        );
    }
}
