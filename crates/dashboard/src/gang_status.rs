//! Where a gang stands, as JSON: for the page's `/api/view` and for the command line.

use std::collections::BTreeMap;

use model::{GangKey, GangStatus, PodsPerNode, Slip, Time};
use serde::Serialize;

/// Where a gang stands. Times are RFC 3339, gangs are `NAMESPACE/NAME`; what does not apply is absent.
#[derive(Debug, Default, Serialize)]
pub struct GangStatusView {
    /// `new`, `waits`, `never fits`, `takes over`, `gives way` or `placed`.
    pub state: &'static str,
    /// Why it does not start, one sentence a cause, most telling first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<String>,
    /// Its place in its queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<PositionView>,
    /// When it could start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<StartView>,
    /// Why that is later than it was promised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved: Option<String>,
    /// Who is being stopped for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub victims: Vec<String>,
    /// For whom it is being stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gives_way_to: Option<String>,
    /// How many pods on which node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub places: BTreeMap<String, u64>,
    /// When it was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// When it will end, if that was declared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends: Option<String>,
}

/// A place in a queue.
#[derive(Debug, Serialize)]
pub struct PositionView {
    /// From 1.
    pub place: usize,
    /// How many wait.
    pub of: usize,
    /// Who is just before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind: Option<String>,
}

/// When a gang could start.
#[derive(Debug, Serialize)]
pub struct StartView {
    /// Not before.
    pub at: String,
    /// Nobody who comes later may delay it.
    pub reserved: bool,
    /// Every end that it counts on was declared, none guessed.
    pub declared: bool,
    /// Whose end makes room at last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

impl GangStatusView {
    /// Of a status.
    pub fn of(status: &GangStatus) -> Self {
        let name = |key: &GangKey| key.to_string();
        let nodes = |PodsPerNode(places): &PodsPerNode| places.clone();
        let time = |time: &Time| time.to_string();
        let view = Self { state: word(status), ..Self::default() };
        match status {
            GangStatus::New => view,
            GangStatus::Pending(wait) => Self {
                causes: wait.shortage.causes.iter().map(ToString::to_string).collect(),
                position: Some(PositionView {
                    place: wait.position.place,
                    of: wait.position.of,
                    behind: wait.behind.as_ref().map(name),
                }),
                start: wait.start.as_ref().map(|start| StartView {
                    at: time(&start.at),
                    reserved: start.is_reserved,
                    declared: start.is_declared,
                    after: start.after.as_ref().map(name),
                }),
                moved: wait.moved.as_ref().map(Slip::reminder),
                ..view
            },
            GangStatus::Preempting { victims, places } => {
                Self { victims: victims.iter().map(name).collect(), places: nodes(places), ..view }
            }
            GangStatus::Preempted { to } => Self { gives_way_to: Some(name(to)), ..view },
            GangStatus::Running { places, since, ends } => Self {
                places: nodes(places),
                since: since.as_ref().map(time),
                ends: ends.as_ref().map(time),
                ..view
            },
        }
    }
}

/// What a gang does, in a word or two.
pub(crate) fn word(status: &GangStatus) -> &'static str {
    match status {
        GangStatus::New => "new",
        GangStatus::Pending(wait) if wait.is_never => "never fits",
        GangStatus::Pending(_) => "waits",
        GangStatus::Preempting { .. } => "takes over",
        GangStatus::Preempted { .. } => "gives way",
        GangStatus::Running { .. } => "placed",
    }
}
