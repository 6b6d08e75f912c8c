//! Kueue's configuration file: `Configuration` of `config.kueue.x-k8s.io/v1beta1` or `v1beta2`.
//!
//! The file is parsed strictly: an unknown field, a wrong type and an impossible value are errors with their path. After
//! Kueue v0.19.1, `apis/config` and `pkg/config`.

use std::fmt;

use jiff::SignedDuration;
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

use super::feature_gates::FeatureGates;

mod defaults;
mod fields;
mod manager;
mod rules;
mod v1beta1;

pub use fields::*;
pub use manager::*;
pub use rules::FRAMEWORKS;

const GROUP: &str = "config.kueue.x-k8s.io";

/// Something wrong in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct ConfigError {
    /// Where, such as `webhook.port`; `.` is the file.
    pub path: String,
    /// What, without a full stop.
    pub problem: String,
}

/// A configuration with its defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct Configuration {
    /// The fields of the file.
    pub fields: Fields,
    /// The feature gates.
    pub gates: FeatureGates,
}

impl Configuration {
    /// The file in `v1beta2`, without defaults.
    ///
    /// # Errors
    /// It has another version, or a field that its version does not have.
    pub fn in_v1beta2(mut document: Value) -> Result<Value, ConfigError> {
        if is_v1beta1(&document)? {
            v1beta1::convert(&mut document)?;
        }
        Ok(document)
    }

    /// Reads a configuration. `namespace` is that of the controller, unless the file names one.
    ///
    /// # Errors
    /// All that is wrong; after an unknown field or a wrong type only the first.
    pub fn parse(document: Value, namespace: &str) -> Result<Self, Vec<ConfigError>> {
        let is_old = is_v1beta1(&document).map_err(|error| vec![error])?;
        let document = Self::in_v1beta2(document).map_err(|error| vec![error])?;
        let mut fields: Fields = serde_path_to_error::deserialize(document).map_err(|error| {
            vec![ConfigError { path: error.path().to_string(), problem: error.into_inner().to_string() }]
        })?;
        defaults::set(&mut fields, namespace, is_old);
        let mut errors = rules::check(&fields);
        let named = fields.feature_gates.clone().unwrap_or_default();
        match FeatureGates::new(&named) {
            Ok(gates) if errors.is_empty() => Ok(Self { fields, gates }),
            Ok(_) => Err(errors),
            Err(wrong) => {
                errors.extend(wrong);
                Err(errors)
            }
        }
    }
}

fn is_v1beta1(document: &Value) -> Result<bool, ConfigError> {
    let wrong = |path: &str, problem: String| ConfigError { path: path.into(), problem };
    if !document.is_object() {
        return Err(wrong(".", "the file is not a Configuration".into()));
    }
    let expected = |field: &str, wanted: &str| {
        let found = &document[field];
        let found = if found.is_null() { "nothing".to_owned() } else { found.to_string() };
        wrong(field, format!("expected {wanted}, found {found}"))
    };
    if document["kind"] != "Configuration" {
        return Err(expected("kind", "Configuration"));
    }
    match document["apiVersion"].as_str().and_then(|version| version.strip_prefix(GROUP)) {
        Some("/v1beta1") => Ok(true),
        Some("/v1beta2") => Ok(false),
        _ => Err(expected("apiVersion", &format!("{GROUP}/v1beta1 or {GROUP}/v1beta2"))),
    }
}

/// A duration as Go writes it, such as `1h0m0s`, `300ms` or `-1.5h`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GoDuration(pub SignedDuration);

impl GoDuration {
    /// Whole seconds.
    pub const fn from_secs(seconds: i64) -> Self {
        Self(SignedDuration::from_secs(seconds))
    }

    /// Parses a duration; `None` if it is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let (is_negative, rest) = match text.as_bytes() {
            [b'-', ..] => (true, &text[1..]),
            [b'+', ..] => (false, &text[1..]),
            _ => (false, text),
        };
        if rest == "0" {
            return Some(Self::default());
        }
        let mut nanoseconds: i128 = 0;
        let mut rest = rest;
        if rest.is_empty() {
            return None;
        }
        while !rest.is_empty() {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
            let (number, after) = rest.split_at(end);
            let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
            let (unit, next) = after.split_at(unit_end);
            nanoseconds = nanoseconds.checked_add(amount(number, unit)?)?;
            rest = next;
        }
        let nanoseconds = i64::try_from(if is_negative { -nanoseconds } else { nanoseconds }).ok()?;
        Some(Self(SignedDuration::from_nanos(nanoseconds)))
    }
}

/// A decimal number of a unit, in nanoseconds, rounded down.
fn amount(number: &str, unit: &str) -> Option<i128> {
    let scale: i128 = match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') || number.len() > 24 {
        return None;
    }
    let digits = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<i128>().ok() };
    let tens = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let part = digits(fraction)?.checked_mul(scale)? / tens;
    digits(whole)?.checked_mul(scale)?.checked_add(part)
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0.is_negative() { "-" } else { "" };
        write!(f, "{sign}{:#}", self.0.abs())
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text)
            .ok_or_else(|| de::Error::custom(format!("{text:?} is not a duration such as 30s or 1h30m")))
    }
}
