//! Amounts of a resource and points in time. Vectors of amounts are in `resources`.

use std::fmt;

/// An amount of one resource in its base unit: milli for `cpu`, bytes for `memory`, `ephemeral-storage` and
/// `hugepages-*`, whole units for everything else.
///
/// Arithmetic saturates. [`Amount::MAX`] stands for an amount that is too large to count. It fits nowhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount(pub i64);

impl Amount {
    /// Zero.
    pub const ZERO: Self = Self(0);
    /// An amount that is too large to count; see [`Amount::fits_in`].
    pub const MAX: Self = Self(i64::MAX);

    /// The sum, saturating at both ends.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, saturating at both ends; may be negative.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The product with a count, saturating.
    #[must_use]
    pub fn times(self, count: u32) -> Self {
        Self(self.0.saturating_mul(i64::from(count)))
    }

    /// Returns whether this amount can be subtracted from `free`.
    ///
    /// Zero and negative amounts always fit, even where `free` is negative. [`Amount::MAX`] never fits.
    pub fn fits_in(self, free: Self) -> bool {
        self.0 <= 0 || (self != Self::MAX && self <= free)
    }

    /// Clamps a 128-bit sum to the range of an amount.
    pub fn clamped(sum: i128) -> Self {
        Self(i64::try_from(sum).unwrap_or(if sum < 0 { i64::MIN } else { i64::MAX }))
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A point in time: microseconds since the Unix epoch. Time is an input; nothing in this crate reads a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub i64);

impl Time {
    /// The time `micros` microseconds later, saturating.
    #[must_use]
    pub fn after(self, micros: i64) -> Self {
        Self(self.0.saturating_add(micros))
    }

    /// Microseconds from `earlier` to this time; negative when `earlier` is later.
    pub fn since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// RFC 3339 in UTC, to the second.
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.div_euclid(1_000_000);
        let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        // Years start in March here, so that a leap day is the last day of a year. Eras of 400 years are equal. There
        // are 719,468 days from 1 March of the year 0 to the epoch.
        let (era, day) = ((days + 719_468).div_euclid(146_097), (days + 719_468).rem_euclid(146_097));
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
        let year = era * 400 + year + next_year;
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}
