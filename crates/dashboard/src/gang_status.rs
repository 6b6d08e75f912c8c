//! The status of a gang as JSON: for `/api/view` and for `muster why` and `muster plan`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use model::{ExpectedStart, GangKey, GangStatus, PodsPerNode, Slip, Time};
use serde::Serialize;

/// The status of a gang. Times are RFC 3339, gangs are `NAMESPACE/NAME`. Fields that do not apply are absent.
#[derive(Debug, Default, Serialize)]
pub struct GangStatusView {
    /// `new`, `waits`, `never fits`, `takes over`, `gives way` or `placed`; of what is not planned, why.
    pub state: Cow<'static, str>,
    /// The causes of its shortage, one sentence each, the most important first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<String>,
    /// Position in its queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<PositionView>,
    /// What is known of its start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<StartView>,
    /// Why the reserved start slipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved: Option<String>,
    /// The preemption victims that are being stopped for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub victims: Vec<String>,
    /// The gang that preempts it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gives_way_to: Option<String>,
    /// Number of pods by node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub places: BTreeMap<String, u64>,
    /// Time of its start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Expected end, if a run time is declared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends: Option<String>,
}

/// A position in a queue.
#[derive(Debug, Serialize)]
pub struct PositionView {
    /// Position, from 1.
    pub place: usize,
    /// Number of waiting gangs in the queue.
    pub of: usize,
    /// The gang directly before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind: Option<String>,
}

/// What is known of the start of a pending gang.
#[derive(Debug, Default, Serialize)]
pub struct StartView {
    /// Earliest start. Absent if nobody knows it, because it relies on an end that nobody declared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Whether the start is reserved: later gangs must not delay it.
    pub reserved: bool,
    /// Whether the start relies only on declared run times.
    pub declared: bool,
    /// The last gang whose end the start relies on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Why nobody knows the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
    /// Until when nodes are kept free for a gang whose start nobody knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes_kept_until: Option<String>,
}

impl GangStatusView {
    /// Converts a status.
    pub fn of(status: &GangStatus) -> Self {
        let name = |key: &GangKey| key.to_string();
        let nodes = |PodsPerNode(places): &PodsPerNode| places.clone();
        let time = |time: &Time| time.to_string();
        let view = Self { state: state_name(status).into(), ..Self::default() };
        match status {
            GangStatus::New => view,
            GangStatus::Pending(wait) => Self {
                causes: wait.shortage.causes.iter().map(ToString::to_string).collect(),
                position: Some(PositionView {
                    place: wait.position.place,
                    of: wait.position.of,
                    behind: wait.behind.as_ref().map(name),
                }),
                start: wait.start.as_ref().map(StartView::of),
                moved: wait.slip.as_ref().map(Slip::status_text),
                ..view
            },
            GangStatus::Preempting { victims, places } => {
                Self { victims: victims.iter().map(name).collect(), places: nodes(places), ..view }
            }
            GangStatus::Preempted { to } => Self { gives_way_to: Some(name(to)), ..view },
            GangStatus::Running { places, since, ends, .. } => Self {
                places: nodes(places),
                since: since.as_ref().map(time),
                ends: ends.as_ref().map(time),
                ..view
            },
        }
    }
}

impl StartView {
    fn of(start: &ExpectedStart) -> Self {
        let at = start.at().map(|at| at.to_string());
        let after = |gang: &Option<GangKey>| gang.as_ref().map(ToString::to_string);
        match start {
            ExpectedStart::Reserved { after: last, .. } => {
                Self { at, reserved: true, declared: true, after: after(last), ..Self::default() }
            }
            ExpectedStart::Forecast { after: last, .. } => {
                Self { at, declared: true, after: after(last), ..Self::default() }
            }
            ExpectedStart::Unknown { end, kept_until } => Self {
                after: after(&end.gang().cloned()),
                unknown: Some(end.to_string()),
                nodes_kept_until: kept_until.map(|until| until.to_string()),
                ..Self::default()
            },
        }
    }
}

/// The name of the state.
pub(crate) fn state_name(status: &GangStatus) -> &'static str {
    match status {
        GangStatus::New => "new",
        GangStatus::Pending(wait) if wait.is_never => "never fits",
        GangStatus::Pending(_) => "waits",
        GangStatus::Preempting { .. } => "takes over",
        GangStatus::Preempted { .. } => "gives way",
        GangStatus::Running { .. } => "placed",
    }
}
