//! Running gangs that lost objects which nothing creates again: wrapped Pods that a disruption ended, and objects that were
//! deleted.

use api::MicroTime;
use api::appwrapper::Status;
use api::appwrapper::transition::RequeueReason;
use index::{Index, ObjectKey, Wrapper};

use super::{NewEvent, Step, message};

/// Disruptions ended these wrapped Pods: the whole gang is requeued at once.
pub(super) fn requeue(
    index: &Index,
    wrapper: &Wrapper,
    mut status: Status,
    pods: &[&ObjectKey],
    now: MicroTime,
) -> Step {
    let disrupted = i64::try_from(pods.len()).unwrap_or(i64::MAX);
    let cause = RequeueReason::PodsDisrupted { disrupted, running: status.running };
    super::shortfall::requeue(index, wrapper, &mut status, cause, now);
    let text = format!(
        "{} ended by a loss of its node or by an eviction; the gang is requeued",
        names_and_verb(pods)
    );
    status.tell(message(wrapper, Some(&text)));
    Step::Requeue(status, index.cached_pods(wrapper))
}

/// The text about the objects of a running gang that were deleted before their end, if there are any.
pub(super) fn deleted_text(index: &Index, wrapper: &Wrapper) -> Option<String> {
    let keys = index.deleted_before_end(wrapper);
    (!keys.is_empty()).then(|| {
        let what = names_and_verb(&keys);
        format!("{what} deleted while the AppWrapper was running; the places are released")
    })
}

fn names_and_verb(keys: &[&ObjectKey]) -> String {
    let names: Vec<_> = keys.iter().map(|key| format!("{} {}", key.kind.kind, key.name)).collect();
    let verb = if names.len() == 1 { "was" } else { "were" };
    format!("{} {verb}", names.join(", "))
}

pub(super) fn deletion_event(text: &str) -> NewEvent {
    NewEvent { is_warning: true, reason: "ObjectsDeleted", text: text.to_owned() }
}
