//! Metric families and the text format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Names and values of labels.
pub(crate) type Labels = Vec<(String, String)>;

/// The upper bounds of the buckets of waits, in microseconds: 1 s, 2.5 s, and twice the last one on.
pub(crate) const WAITS_US: [u64; 14] = {
    let mut buckets = [1_000_000; 14];
    let mut at = 1;
    while at < 14 {
        buckets[at] = 2_500_000 << (at - 1);
        at += 1;
    }
    buckets
};

/// The upper bounds of the buckets of requests and computations, in microseconds.
pub(crate) const CALLS_US: [u64; 13] = [
    1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000,
    10_000_000,
];

/// A histogram of durations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Histogram {
    /// The upper bounds of the buckets, in microseconds.
    bounds_us: &'static [u64],
    /// How many are at most as long as each bucket's bound.
    buckets: Vec<u64>,
    count: u64,
    sum_us: u64,
}

impl Histogram {
    /// An empty histogram with these upper bounds, in microseconds.
    pub(super) fn new(bounds_us: &'static [u64]) -> Self {
        Self { bounds_us, buckets: vec![0; bounds_us.len()], count: 0, sum_us: 0 }
    }

    /// Adds a duration in microseconds.
    pub(super) fn observe(&mut self, us: u64) {
        for (bucket, bound) in self.buckets.iter_mut().zip(self.bounds_us) {
            *bucket += u64::from(us <= *bound);
        }
        self.count += 1;
        self.sum_us = self.sum_us.saturating_add(us);
    }
}

/// Metric families by name, with one prefix.
#[derive(Debug)]
pub(crate) struct Families {
    prefix: &'static str,
    /// The labels of every series.
    common: Labels,
    by_name: BTreeMap<&'static str, Family>,
}

#[derive(Debug, Default)]
struct Family {
    kind: &'static str,
    help: &'static str,
    lines: Vec<String>,
}

impl Families {
    /// No families. Their names begin with the prefix, and every series gets these labels.
    pub(crate) fn new(prefix: &'static str, common: Labels) -> Self {
        Self { prefix, common, by_name: BTreeMap::new() }
    }

    /// Says what a family means.
    pub(crate) fn describe(&mut self, name: &'static str, help: &'static str) {
        self.by_name.entry(name).or_default().help = help;
    }

    /// Adds a series of a gauge. The name is without the prefix.
    pub(crate) fn gauge(
        &mut self,
        name: &'static str,
        labels: &[(&str, &str)],
        custom: &Labels,
        value: impl Into<Number>,
    ) {
        let labels = self.labels(labels, custom);
        self.line(name, "gauge", format!("{}{name}{labels} {}", self.prefix, value.into().0));
    }

    /// Adds a series of a counter.
    pub(super) fn counter(&mut self, name: &'static str, labels: &Labels, value: u64) {
        let labels = self.labels(&[], labels);
        self.line(name, "counter", format!("{}{name}{labels} {value}", self.prefix));
    }

    /// Adds a series of a histogram.
    pub(super) fn histogram(&mut self, name: &'static str, labels: &Labels, histogram: &Histogram) {
        let Histogram { bounds_us, buckets, count, sum_us } = histogram;
        let prefix = self.prefix;
        let bounds = bounds_us.iter().map(|bound| Number::seconds(*bound).0);
        for (count, bound) in buckets.iter().zip(bounds).chain([(count, "+Inf".to_owned())]) {
            let labels = self.labels(&[("le", &bound)], labels);
            self.line(name, "histogram", format!("{prefix}{name}_bucket{labels} {count}"));
        }
        let labels = self.labels(&[], labels);
        self.line(name, "histogram", format!("{prefix}{name}_sum{labels} {}", Number::seconds(*sum_us).0));
        self.line(name, "histogram", format!("{prefix}{name}_count{labels} {count}"));
    }

    fn line(&mut self, name: &'static str, kind: &'static str, line: String) {
        let family = self.by_name.entry(name).or_default();
        family.kind = kind;
        family.lines.push(line);
    }

    /// Labels in braces; nothing without labels.
    fn labels(&self, labels: &[(&str, &str)], more: &Labels) -> String {
        let more = more.iter().chain(&self.common).map(|(name, value)| (name.as_str(), value.as_str()));
        let all = labels.iter().copied().chain(more);
        let all = all.map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
        let all = all.collect::<Vec<_>>().join(",");
        if all.is_empty() { all } else { format!("{{{all}}}") }
    }

    /// All families with series as text.
    pub(crate) fn text(&self) -> String {
        let (prefix, mut text) = (self.prefix, String::new());
        for (name, Family { kind, help, lines }) in &self.by_name {
            if lines.is_empty() {
                continue;
            }
            // Writing to a String does not fail.
            if !help.is_empty() {
                let _ = writeln!(text, "# HELP {prefix}{name} {help}");
            }
            let _ = writeln!(text, "# TYPE {prefix}{name} {kind}\n{}", lines.join("\n"));
        }
        text
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The value of a gauge, as text.
pub(crate) struct Number(String);

impl Number {
    /// A number of thousandths.
    fn thousandths(number: i128) -> Self {
        let sign = if number < 0 { "-" } else { "" };
        let (whole, rest) = (number.unsigned_abs() / 1000, number.unsigned_abs() % 1000);
        Self(if rest == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{rest:03}") })
    }

    /// Seconds from microseconds.
    pub(crate) fn seconds(us: u64) -> Self {
        Self::fraction(us.into(), 1_000_000)
    }

    /// An amount of a resource, in base units.
    pub(crate) fn amount(resource: &str, amount: i128) -> Self {
        if resource == "cpu" { Self::thousandths(amount) } else { Self(amount.to_string()) }
    }

    /// A fraction, with 20 decimals: more than a reader of floats tells apart.
    pub(crate) fn fraction(numerator: u128, denominator: u128) -> Self {
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
    pub(crate) fn infinite() -> Self {
        Self("+Inf".into())
    }

    /// Not a number.
    pub(crate) fn none() -> Self {
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

    fn role(role: &str) -> Labels {
        vec![("replica_role".into(), role.into())]
    }

    #[test]
    fn series_are_text_with_escaped_labels() {
        let mut families = Families::new("kueue_", role("leader"));
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
        let mut histogram = Histogram::new(&WAITS_US);
        for us in [0, 2_400_000, 9_000_000_000_000] {
            histogram.observe(us);
        }
        let mut families = Families::new("kueue_", role("standalone"));
        families.histogram("wait_seconds", &vec![], &histogram);
        let text = families.text();
        for line in [
            "kueue_wait_seconds_bucket{le=\"1\",replica_role=\"standalone\"} 1",
            "kueue_wait_seconds_bucket{le=\"2.5\",replica_role=\"standalone\"} 2",
            "kueue_wait_seconds_bucket{le=\"10240\",replica_role=\"standalone\"} 2",
            "kueue_wait_seconds_bucket{le=\"+Inf\",replica_role=\"standalone\"} 3",
            "kueue_wait_seconds_sum{replica_role=\"standalone\"} 9000002.4",
            "kueue_wait_seconds_count{replica_role=\"standalone\"} 3",
        ] {
            assert!(text.contains(line), "{line} is not in:\n{text}");
        }
    }
}
