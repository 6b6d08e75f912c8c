//! Where a gang stands, for people and programs: one value and one text for status, events, command line and dashboard.

use std::collections::BTreeMap;
use std::fmt;

use crate::amount::Time;
use crate::forecast::ForecastStart;
use crate::gang::{Assignment, Gang, GangKey, GangState, NodeName};
use crate::plan::{Reservation, Verdict};
use crate::shortage::Shortage;
use crate::slip::Slip;
use crate::snapshot::Snapshot;
use crate::world::Position;

/// Where a gang stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GangStatus {
    /// Nothing was decided about it yet.
    New,
    /// It waits.
    Pending(Box<PendingStatus>),
    /// Others are being stopped for it, or are leaving; it starts once its places are free.
    Preempting {
        /// Who is being stopped for it.
        victims: Vec<GangKey>,
        /// Where it will go.
        places: PodsPerNode,
    },
    /// It is being stopped for another one, and holds its places until it is gone.
    Preempted {
        /// For whom.
        to: GangKey,
    },
    /// It holds its places.
    Running {
        /// Where its pods are, or will be; nothing when somebody else started it and none is bound.
        places: PodsPerNode,
        /// When it was started, if it was already.
        since: Option<Time>,
        /// When it will end, if that was declared and is still to come.
        ends: Option<Time>,
    },
}

/// What a waiting gang waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingStatus {
    /// Its place in its queue.
    pub position: Position,
    /// Who is just before it in its queue.
    pub behind: Option<GangKey>,
    /// Why it does not start.
    pub shortage: Shortage,
    /// It fits on no such nodes, whoever leaves.
    pub is_never: bool,
    /// When it could start, if that was computed and is still to come.
    pub start: Option<ExpectedStart>,
    /// Why that is later than it was promised, if it is.
    pub slip: Option<Slip>,
}

/// When a waiting gang could start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedStart {
    /// Then, if all goes as expected.
    pub at: Time,
    /// Nobody who comes later may delay it.
    pub is_reserved: bool,
    /// Every end that it counts on was declared, none guessed.
    pub is_declared: bool,
    /// Whose end makes room at last.
    pub after: Option<GangKey>,
}

/// How many pods on which node, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodsPerNode(pub BTreeMap<NodeName, u64>);

impl GangStatus {
    /// Where the gang of this uid stands at the time of the snapshot; none if there is no such gang.
    pub fn of(snapshot: &Snapshot<'_>, uid: &str) -> Option<Self> {
        let position = snapshot.world.position(uid, snapshot.now);
        Self::at(snapshot, uid, position.as_ref())
    }

    /// The same for a gang whose [`position`](crate::World::position) is known already.
    pub fn at(snapshot: &Snapshot<'_>, uid: &str, position: Option<&Position>) -> Option<Self> {
        let (world, now) = (snapshot.world, snapshot.now);
        let gang = world.gang(uid)?;
        let places = |assignment| PodsPerNode::of(snapshot, uid, assignment);
        Some(match &gang.state {
            GangState::Waiting => match world.verdict(uid) {
                Some(Verdict::Wait(shortage)) => {
                    Self::Pending(Box::new(wait(snapshot, uid, position, shortage, false)))
                }
                Some(Verdict::Never(shortage)) => {
                    Self::Pending(Box::new(wait(snapshot, uid, position, shortage, true)))
                }
                Some(Verdict::Admit(_) | Verdict::Preempt(_)) | None => Self::New,
            },
            GangState::Nominated(preemption) => {
                let victims = preemption.victim_uids();
                let victims = victims.filter_map(|uid| world.gang(uid)).map(|gang| gang.key.clone());
                Self::Preempting { victims: victims.collect(), places: places(Some(&preemption.assignment)) }
            }
            GangState::Reserved(_) | GangState::Unplaced => match preemptor(snapshot, uid) {
                Some(by) => Self::Preempted { to: by.key.clone() },
                None => Self::Running {
                    places: places(gang.state.assignment()),
                    since: gang.started_at,
                    ends: gang
                        .started_at
                        .and_then(|since| Some(since.after(gang.runs_us?)))
                        .filter(|end| *end > now),
                },
            },
        })
    }
}

impl GangStatus {
    /// What a gang does, as an answer to somebody who asks about it; further lines are indented.
    pub fn describe(&self) -> String {
        match self {
            Self::Pending(wait) => format!("is pending{}", wait.lines()),
            Self::New | Self::Preempting { .. } | Self::Preempted { .. } | Self::Running { .. } => {
                self.to_string()
            }
        }
    }

    /// What a gang would do if it existed, in the same form.
    pub fn describe_outcome(&self) -> String {
        match self {
            Self::New => "would be planned".into(),
            Self::Pending(wait) => format!("would be pending{}", wait.lines()),
            Self::Preempting { victims, places } => {
                let names: Vec<_> = victims.iter().map(GangKey::to_string).collect();
                let gone = match &*names {
                    [] => "when the pods of the preempted gangs have terminated".to_owned(),
                    names => format!("after preempting {}", names.join(", ")),
                };
                format!("would start on {places} {gone}")
            }
            Self::Preempted { to } => format!("would be preempted by {to} at once"),
            Self::Running { places, .. } => format!("would start now, on {places}"),
        }
    }
}

impl PendingStatus {
    fn lines(&self) -> String {
        let Self { position: Position { place, of, .. }, behind, shortage, is_never, start, slip } = self;
        if *is_never {
            return format!(": it can never start on these nodes\n  {shortage}");
        }
        let behind = behind.as_ref().map_or(String::new(), |gang| format!(", behind {gang}"));
        let start = start.as_ref().map_or(String::new(), |start| format!("\n  {start}"));
        let slip = slip.as_ref().map_or(String::new(), |slip| format!("\n  {}", slip.status_text()));
        format!(", at position {place} of {of}{behind}\n  {shortage}{start}{slip}")
    }
}

/// The gang for which another one is being stopped.
fn preemptor<'a>(snapshot: &Snapshot<'a>, victim: &str) -> Option<&'a Gang> {
    let stops = |gang: &&Gang| match &gang.state {
        GangState::Nominated(preemption) => preemption.victim_uids().any(|uid| uid == victim),
        GangState::Waiting | GangState::Reserved(_) | GangState::Unplaced => false,
    };
    snapshot.world.nominated().find(stops)
}

fn wait(
    snapshot: &Snapshot<'_>,
    uid: &str,
    position: Option<&Position>,
    shortage: &Shortage,
    is_never: bool,
) -> PendingStatus {
    let Snapshot { world, now } = *snapshot;
    let reserved = world.reserved().iter().find(|reserved| reserved.gang == uid);
    let promised = reserved.map(|Reservation { start, declared, after, .. }| ForecastStart {
        start: *start,
        declared: *declared,
        after: after.clone(),
    });
    let forecast = promised.or_else(|| world.forecast_of(world.gang(uid)?));
    let start = forecast.filter(|forecast| forecast.start > now && !is_never).map(|forecast| {
        let ForecastStart { start: at, declared: is_declared, after } = forecast;
        let after = after.and_then(|uid| world.gang(&uid)).map(|gang| gang.key.clone());
        ExpectedStart { at, is_reserved: reserved.is_some(), is_declared, after }
    });
    let ahead = position.and_then(|position| position.ahead.as_ref()).and_then(|uid| world.gang(uid));
    let behind = ahead.map(|gang| gang.key.clone());
    PendingStatus {
        position: position.cloned().unwrap_or_default(),
        behind,
        shortage: shortage.clone(),
        is_never,
        start,
        slip: world.slip_of(uid).filter(|_| !is_never).cloned(),
    }
}

impl PodsPerNode {
    /// Where the pods of a gang are once they are bound, where they are meant to go before.
    fn of(snapshot: &Snapshot<'_>, uid: &str, assignment: Option<&Assignment>) -> Self {
        let mut places: BTreeMap<NodeName, u64> = BTreeMap::new();
        for node in snapshot.world.pods_of(uid).filter_map(|pod| pod.node.clone()) {
            *places.entry(node).or_default() += 1;
        }
        if places.is_empty() {
            for (node, pods) in assignment.iter().flat_map(|assignment| assignment.pod_sets.iter().flatten())
            {
                *places.entry(node.clone()).or_default() += u64::from(*pods);
            }
        }
        Self(places)
    }
}

impl fmt::Display for GangStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::New => f.write_str("not planned yet"),
            Self::Pending(wait) => wait.fmt(f),
            Self::Preempting { victims, .. } => match &**victims {
                [] => f.write_str("starts when the pods of the preempted gangs have terminated"),
                victims => {
                    let names: Vec<_> = victims.iter().map(GangKey::to_string).collect();
                    write!(f, "is preempting {}", names.join(", "))
                }
            },
            Self::Preempted { to } => write!(f, "is being preempted by {to}"),
            Self::Running { places, since, ends } => {
                match since {
                    Some(since) => write!(f, "runs since {since}")?,
                    None => f.write_str("is starting")?,
                }
                write!(f, " on {places}")?;
                ends.map_or(Ok(()), |end| write!(f, ", expected to end at {end}"))
            }
        }
    }
}

impl fmt::Display for PendingStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { position: Position { place, of, .. }, shortage, is_never, start, slip, .. } = self;
        if *is_never {
            return write!(f, "can never start on these nodes: {shortage}");
        }
        write!(f, "{shortage}. Position {place} of {of}")?;
        start.as_ref().map_or(Ok(()), |start| write!(f, ", {start}"))?;
        slip.as_ref().map_or(Ok(()), |slip| write!(f, "; {}", slip.status_text()))
    }
}

impl ExpectedStart {
    const RESERVED: &str = "start reserved for";
    const EXPECTED: &str = "expected start";

    /// Whether a text that was made of a [`PendingStatus`] tells a start.
    pub fn is_in(text: &str) -> bool {
        [Self::RESERVED, Self::EXPECTED].iter().any(|kind| text.contains(kind))
    }
}

impl fmt::Display for ExpectedStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, is_reserved, is_declared, after } = self;
        let kind = if *is_reserved { Self::RESERVED } else { Self::EXPECTED };
        write!(f, "{kind} {at}")?;
        match (after, is_declared) {
            (Some(gang), true) => write!(f, ", when {gang} ends"),
            (Some(gang), false) => write!(f, ", if {gang} ends by then"),
            (None, true) => Ok(()),
            (None, false) => f.write_str(", if the running gangs end by then"),
        }
    }
}

impl fmt::Display for PodsPerNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("nodes that are not known yet");
        }
        for (at, (node, pods)) in self.0.iter().enumerate() {
            let (separator, noun) =
                (if at == 0 { "" } else { ", " }, if *pods == 1 { "pod" } else { "pods" });
            write!(f, "{separator}{node} ({pods} {noun})")?;
        }
        Ok(())
    }
}
