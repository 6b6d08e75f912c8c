//! Metric families and the text format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Names and values of labels.
pub(crate) type Labels = Vec<(String, String)>;

/// The upper bounds of the buckets of histograms, in microseconds: 1 s, 2.5 s, and twice the last one on.
const BUCKETS_US: [u64; 14] = {
    let mut buckets = [1_000_000; 14];
    let mut at = 1;
    while at < 14 {
        buckets[at] = 2_500_000 << (at - 1);
        at += 1;
    }
    buckets
};

/// A histogram of durations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Histogram {
    /// How many are at most as long as each bucket's bound.
    buckets: [u64; BUCKETS_US.len()],
    count: u64,
    sum_us: u64,
}

impl Histogram {
    /// Adds a duration in microseconds.
    pub(super) fn observe(&mut self, us: u64) {
        for (bucket, bound) in self.buckets.iter_mut().zip(BUCKETS_US) {
            *bucket += u64::from(us <= bound);
        }
        self.count += 1;
        self.sum_us = self.sum_us.saturating_add(us);
    }
}

/// Metric families by name.
#[derive(Debug, Default)]
pub(super) struct Families {
    role: String,
    /// The type and the lines of each family.
    families: BTreeMap<&'static str, (&'static str, Vec<String>)>,
}

impl Families {
    /// No families. Every series gets the label `replica_role` with this value.
    pub(super) fn new(role: &str) -> Self {
        Self { role: role.to_owned(), families: BTreeMap::new() }
    }

    /// Adds a series of a gauge. The name is without the prefix `kueue_`.
    pub(super) fn gauge(
        &mut self,
        name: &'static str,
        labels: &[(&str, &str)],
        custom: &Labels,
        value: impl Into<Number>,
    ) {
        let labels = self.labels(labels, custom);
        self.line(name, "gauge", format!("kueue_{name}{{{labels}}} {}", value.into().0));
    }

    /// Adds a series of a counter.
    pub(super) fn counter(&mut self, name: &'static str, labels: &Labels, value: u64) {
        let labels = self.labels(&[], labels);
        self.line(name, "counter", format!("kueue_{name}{{{labels}}} {value}"));
    }

    /// Adds a series of a histogram.
    pub(super) fn histogram(&mut self, name: &'static str, labels: &Labels, histogram: &Histogram) {
        let labels = self.labels(&[], labels);
        for (count, bound) in histogram.buckets.iter().zip(BUCKETS_US) {
            let bound = Number::thousandths(i128::from(bound / 1000)).0;
            self.line(name, "histogram", format!("kueue_{name}_bucket{{{labels},le=\"{bound}\"}} {count}"));
        }
        let Histogram { count, sum_us, .. } = histogram;
        self.line(name, "histogram", format!("kueue_{name}_bucket{{{labels},le=\"+Inf\"}} {count}"));
        let sum = Number::thousandths(i128::from(sum_us / 1000)).0;
        self.line(name, "histogram", format!("kueue_{name}_sum{{{labels}}} {sum}"));
        self.line(name, "histogram", format!("kueue_{name}_count{{{labels}}} {count}"));
    }

    fn line(&mut self, name: &'static str, kind: &'static str, line: String) {
        self.families.entry(name).or_insert((kind, Vec::new())).1.push(line);
    }

    fn labels(&self, labels: &[(&str, &str)], more: &Labels) -> String {
        let more = more.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let all = labels.iter().copied().chain(more).chain([("replica_role", self.role.as_str())]);
        let all = all.map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
        all.collect::<Vec<_>>().join(",")
    }

    /// All families as text.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for (name, (kind, lines)) in &self.families {
            // Writing to a String does not fail.
            let _ = writeln!(text, "# TYPE kueue_{name} {kind}\n{}", lines.join("\n"));
        }
        text
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The value of a gauge, as text.
pub(super) struct Number(String);

impl Number {
    /// A number of thousandths.
    pub(super) fn thousandths(number: i128) -> Self {
        let sign = if number < 0 { "-" } else { "" };
        let (whole, rest) = (number.unsigned_abs() / 1000, number.unsigned_abs() % 1000);
        Self(if rest == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{rest:03}") })
    }

    /// An amount of a resource, in base units.
    pub(super) fn amount(resource: &str, amount: i128) -> Self {
        if resource == "cpu" { Self::thousandths(amount) } else { Self(amount.to_string()) }
    }

    /// A fraction, with 20 decimals: more than a reader of floats tells apart.
    pub(super) fn fraction(numerator: u128, denominator: u128) -> Self {
        let denominator = denominator.max(1);
        let (whole, mut rest) = (numerator / denominator, numerator % denominator);
        let mut text = whole.to_string();
        for at in 0..20 {
            if rest == 0 {
                break;
            }
            if at == 0 {
                text.push('.');
            }
            rest = rest.saturating_mul(10);
            text.push_str(&(rest / denominator).to_string());
            rest %= denominator;
        }
        Self(text)
    }

    /// Without a limit.
    pub(super) fn infinite() -> Self {
        Self("+Inf".into())
    }

    /// Not a number.
    pub(super) fn none() -> Self {
        Self("NaN".into())
    }
}

impl From<u64> for Number {
    fn from(number: u64) -> Self {
        Self(number.to_string())
    }
}

impl From<bool> for Number {
    fn from(is_one: bool) -> Self {
        Self::from(u64::from(is_one))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_text_with_escaped_labels() {
        let mut families = Families::new("leader");
        families.gauge("of_queue", &[("queue", "a\"b\\")], &vec![], Number::amount("cpu", 1_500));
        families.gauge("of_queue", &[("queue", "c")], &vec![("custom_x".into(), "y".into())], true);
        families.gauge("limit", &[], &vec![], Number::infinite());
        assert_eq!(
            families.text(),
            "# TYPE kueue_limit gauge\nkueue_limit{replica_role=\"leader\"} +Inf\n\
             # TYPE kueue_of_queue gauge\n\
             kueue_of_queue{queue=\"a\\\"b\\\\\",replica_role=\"leader\"} 1.500\n\
             kueue_of_queue{queue=\"c\",custom_x=\"y\",replica_role=\"leader\"} 1\n"
        );
    }

    #[test]
    fn a_fraction_is_exact_to_a_reader_of_floats() {
        for (numerator, denominator) in [(4_000_u128, 9_u128), (2, 3), (1000, 1), (0, 7)] {
            let Number(text) = Number::fraction(numerator, denominator);
            let expected =
                f64::from(u32::try_from(numerator).unwrap()) / f64::from(u32::try_from(denominator).unwrap());
            assert_eq!(text.parse::<f64>().unwrap().to_bits(), expected.to_bits(), "{text}");
        }
    }

    #[test]
    fn a_histogram_counts_durations_by_bound() {
        let mut histogram = Histogram::default();
        for us in [0, 2_400_000, 9_000_000_000_000] {
            histogram.observe(us);
        }
        let mut families = Families::new("standalone");
        families.histogram("wait_seconds", &vec![], &histogram);
        let text = families.text();
        for line in [
            "kueue_wait_seconds_bucket{replica_role=\"standalone\",le=\"1\"} 1",
            "kueue_wait_seconds_bucket{replica_role=\"standalone\",le=\"2.500\"} 2",
            "kueue_wait_seconds_bucket{replica_role=\"standalone\",le=\"10240\"} 2",
            "kueue_wait_seconds_bucket{replica_role=\"standalone\",le=\"+Inf\"} 3",
            "kueue_wait_seconds_sum{replica_role=\"standalone\"} 9000002.400",
            "kueue_wait_seconds_count{replica_role=\"standalone\"} 3",
        ] {
            assert!(text.contains(line), "{line} is not in:\n{text}");
        }
    }
}
