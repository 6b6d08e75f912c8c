//! The start of a pending gang, as far as it is known.

use std::fmt;

use crate::amount::Time;
use crate::forecast::ForecastStart;
use crate::gang_key::GangKey;
use crate::plan::{Hold, Reservation};
use crate::snapshot::Snapshot;

/// The start of a pending gang. A time is told only if it relies on declared ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpectedStart {
    /// The start is promised: gangs admitted by backfill must not delay it.
    Reserved {
        /// The time.
        at: Time,
        /// The last gang that has to end before.
        after: Option<GangKey>,
    },
    /// The start is a forecast: it moves when other gangs arrive.
    Forecast {
        /// The time.
        at: Time,
        /// The last gang that has to end before.
        after: Option<GangKey>,
    },
    /// The start relies on an end that nobody knows.
    Unknown {
        /// The end.
        end: UnknownEnd,
        /// Until when nodes are kept free for the gang, if others are held back for it.
        kept_until: Option<Time>,
    },
}

/// An end that nobody knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnknownEnd {
    /// The gang declares no run time.
    Undeclared(GangKey),
    /// The gang has run for longer than it declared.
    Overrun(GangKey),
    /// The end of one of several gangs.
    OneOfSeveral,
}

impl ExpectedStart {
    const RESERVED: &str = "start reserved for";
    const EXPECTED: &str = "expected start";
    const UNKNOWN: &str = "start unknown";

    /// Whether a text that was made from a [`PendingStatus`](crate::PendingStatus) contains what is known of the start.
    pub fn is_in(text: &str) -> bool {
        [Self::RESERVED, Self::EXPECTED, Self::UNKNOWN].iter().any(|kind| text.contains(kind))
    }

    /// The time, or that it is not known: for a column.
    pub fn short(&self) -> String {
        self.at().map_or_else(|| "unknown".to_owned(), |at| at.to_string())
    }

    /// The time, if it is known.
    pub fn at(&self) -> Option<Time> {
        match self {
            Self::Reserved { at, .. } | Self::Forecast { at, .. } => Some(*at),
            Self::Unknown { .. } => None,
        }
    }

    /// The start of the pending gang of this uid: as reserved, or else as forecast. `None` if none was computed yet, or
    /// if its time has passed.
    pub(crate) fn of(snapshot: &Snapshot<'_>, uid: &str) -> Option<Self> {
        let Snapshot { world, now } = *snapshot;
        let reservation = world.reserved().iter().find(|reserved| reserved.gang == uid);
        let start = match reservation {
            Some(Reservation { start, declared, after, .. }) => {
                ForecastStart { start: *start, declared: *declared, after: after.clone() }
            }
            None => world.forecast_of(world.gang(uid)?)?,
        };
        let ForecastStart { start: at, declared, after } = start;
        let is_promise = reservation.is_some_and(|reserved| reserved.hold == Hold::UntilStart);
        if !declared {
            let kept_until = reservation.and_then(|reserved| reserved.hold.until());
            let kept_until = kept_until.filter(|until| *until > now);
            return Some(Self::Unknown { end: UnknownEnd::of(snapshot, after.as_deref()), kept_until });
        }
        let after = after.and_then(|uid| world.gang(&uid)).map(|gang| gang.key.clone());
        let start = if is_promise { Self::Reserved { at, after } } else { Self::Forecast { at, after } };
        (at > now).then_some(start)
    }
}

impl UnknownEnd {
    /// The gang whose end nobody knows, if it is one.
    pub fn gang(&self) -> Option<&GangKey> {
        match self {
            Self::Undeclared(gang) | Self::Overrun(gang) => Some(gang),
            Self::OneOfSeveral => None,
        }
    }

    /// The end that is not known, if the last one that a start relies on is that of the gang of this uid.
    fn of(snapshot: &Snapshot<'_>, last: Option<&str>) -> Self {
        let Some(gang) = last.and_then(|uid| snapshot.world.gang(uid)) else { return Self::OneOfSeveral };
        let Some(runs_us) = gang.runs_us else { return Self::Undeclared(gang.key.clone()) };
        let is_over = gang.started_at.is_some_and(|since| since.after(runs_us) <= snapshot.now);
        if is_over { Self::Overrun(gang.key.clone()) } else { Self::OneOfSeveral }
    }
}

/// How the author of a gang declares its run time, by kind of gang.
fn how_to_declare(gang: &GangKey) -> &'static str {
    if gang.kind.starts_with("workloads.") {
        "the annotation muster.dev/expected-duration of its job"
    } else {
        "spec.schedulingSpec.dispatchDuration.expected"
    }
}

impl fmt::Display for ExpectedStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, at, after) = match self {
            Self::Reserved { at, after } => (Self::RESERVED, at, after),
            Self::Forecast { at, after } => (Self::EXPECTED, at, after),
            Self::Unknown { end, kept_until } => {
                write!(f, "{}: {end}", Self::UNKNOWN)?;
                return kept_until
                    .map_or(Ok(()), |until| write!(f, ", nodes are kept free for it until {until}"));
            }
        };
        write!(f, "{kind} {at}")?;
        after.as_ref().map_or(Ok(()), |gang| write!(f, ", when {gang} ends"))
    }
}

impl fmt::Display for UnknownEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undeclared(gang) => {
                write!(f, "{gang} declares no run time (set {})", how_to_declare(gang))
            }
            Self::Overrun(gang) => write!(f, "{gang} runs longer than it declared"),
            Self::OneOfSeveral => f.write_str("not all ends before it are known"),
        }
    }
}
