//! The status of a gang, as one value and one text for status, events, command line and dashboard.

use std::collections::BTreeMap;
use std::fmt;

use crate::amount::Time;
use crate::assignment::{Assignment, NodeName};
use crate::expected_start::ExpectedStart;
use crate::gang::{Gang, GangState};
use crate::gang_key::GangKey;
use crate::plan::Verdict;
use crate::shortage::Shortage;
use crate::slip::Slip;
use crate::snapshot::Snapshot;
use crate::world::{Position, World};

/// The status of a gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GangStatus {
    /// No verdict yet.
    New,
    /// The gang is pending.
    Pending(Box<PendingStatus>),
    /// The gang has an assignment and starts when its victims, or other terminating gangs, have released it.
    Preempting {
        /// The gangs that are preempted for it.
        victims: Vec<GangKey>,
        /// The assigned nodes.
        places: PodsPerNode,
    },
    /// The gang is being preempted. It holds its capacity until its pods are gone.
    Preempted {
        /// The preemptor.
        to: GangKey,
    },
    /// The gang holds its capacity.
    Running {
        /// The nodes of its pods, or the assigned nodes before any pod is bound. Empty when another controller
        /// started the gang and no pod is bound.
        places: PodsPerNode,
        /// When the gang was dispatched.
        since: Option<Time>,
        /// The declared end, if it is in the future.
        ends: Option<Time>,
        /// What the nodes lacked when quota alone admitted the gang; `None` once a pod is bound.
        without_room: Option<Shortage>,
    },
}

/// Why a gang is pending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingStatus {
    /// Its position in its queue.
    pub position: Position,
    /// The gang just before it in its queue.
    pub behind: Option<GangKey>,
    /// Why it is not admitted.
    pub shortage: Shortage,
    /// The gang does not fit even on empty nodes and unused quota.
    pub is_never: bool,
    /// What is known of its start.
    pub start: Option<ExpectedStart>,
    /// The slip of its reservation, if the start moved to a later time.
    pub slip: Option<Slip>,
}

/// Nodes that a text names; it counts the others.
const NAMED_MAX: usize = 20;

/// The number of pods per node, by node name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodsPerNode(pub BTreeMap<NodeName, u64>);

impl GangStatus {
    /// The status of the gang of this uid at the time of the snapshot. `None` when the gang does not exist.
    pub fn of(snapshot: &Snapshot<'_>, uid: &str) -> Option<Self> {
        let position = snapshot.world.position(uid, snapshot.now);
        Self::at(snapshot, uid, position.as_ref())
    }

    /// The same for a gang whose [`position`](crate::World::position) the caller knows.
    pub fn at(snapshot: &Snapshot<'_>, uid: &str, position: Option<&Position>) -> Option<Self> {
        let (world, now) = (snapshot.world, snapshot.now);
        let gang = world.gang(uid)?;
        let places = |assignment| PodsPerNode::of(world, uid, assignment);
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
                    without_room: world
                        .without_room(uid)
                        .filter(|_| world.pods_of(uid).all(|pod| pod.node.is_none()))
                        .cloned(),
                },
            },
        })
    }
}

impl GangStatus {
    /// The status as the answer to a query about the gang; continuation lines are indented.
    pub fn describe(&self) -> String {
        match self {
            Self::Pending(wait) => format!("is pending{}", wait.lines()),
            Self::New | Self::Preempting { .. } | Self::Preempted { .. } | Self::Running { .. } => {
                self.to_string()
            }
        }
    }

    /// The predicted status of a gang that does not exist yet, in the same form.
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
            Self::Running { places, without_room, .. } => {
                format!("would start now, on {places}{}", without_room_text(without_room.as_ref()))
            }
        }
    }
}

fn without_room_text(shortage: Option<&Shortage>) -> String {
    shortage
        .map_or(String::new(), |shortage| format!("; quota admitted it, but no node had room: {shortage}"))
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

/// The gang for which another gang is being preempted.
fn preemptor<'a>(snapshot: &Snapshot<'a>, victim: &str) -> Option<&'a Gang> {
    let is_preemptor = |gang: &&Gang| match &gang.state {
        GangState::Nominated(preemption) => preemption.victim_uids().any(|uid| uid == victim),
        GangState::Waiting | GangState::Reserved(_) | GangState::Unplaced => false,
    };
    snapshot.world.nominated().find(is_preemptor)
}

fn wait(
    snapshot: &Snapshot<'_>,
    uid: &str,
    position: Option<&Position>,
    shortage: &Shortage,
    is_never: bool,
) -> PendingStatus {
    let world = snapshot.world;
    let ahead = position.and_then(|position| position.ahead.as_ref()).and_then(|uid| world.gang(uid));
    let behind = ahead.map(|gang| gang.key.clone());
    PendingStatus {
        position: position.cloned().unwrap_or_default(),
        behind,
        shortage: shortage.clone(),
        is_never,
        start: ExpectedStart::of(snapshot, uid).filter(|_| !is_never),
        slip: world.slip_of(uid).filter(|_| !is_never).cloned(),
    }
}

impl PodsPerNode {
    /// The nodes of the bound pods of the gang of this uid; before any pod is bound, the assigned nodes.
    pub fn of(world: &World, uid: &str, assignment: Option<&Assignment>) -> Self {
        let mut places: BTreeMap<NodeName, u64> = BTreeMap::new();
        for node in world.pods_of(uid).filter_map(|pod| pod.node.clone()) {
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
            Self::Running { places, since, ends, without_room } => {
                match since {
                    Some(since) => write!(f, "runs since {since}")?,
                    None => f.write_str("is starting")?,
                }
                write!(f, " on {places}")?;
                ends.map_or(Ok(()), |end| write!(f, ", expected to end at {end}"))?;
                f.write_str(&without_room_text(without_room.as_ref()))
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

impl fmt::Display for PodsPerNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("nodes that are not known yet");
        }
        // All nodes are named, or some and the number of two or more others.
        let named = if self.0.len() <= NAMED_MAX + 1 { self.0.len() } else { NAMED_MAX };
        let pods_text = |pods: u64| format!("{pods} {}", if pods == 1 { "pod" } else { "pods" });
        for (at, (node, pods)) in self.0.iter().take(named).enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            write!(f, "{separator}{node} ({})", pods_text(*pods))?;
        }
        let others = self.0.len() - named;
        if others > 0 {
            let pods = self.0.values().skip(named).sum();
            write!(f, " and {others} other nodes ({})", pods_text(pods))?;
        }
        Ok(())
    }
}
