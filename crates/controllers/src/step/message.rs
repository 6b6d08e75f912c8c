//! The message of a status, and the first Events of an AppWrapper.

use index::Wrapper;

use super::NewEvent;

/// Reason of the Event about what is not planned.
pub(crate) const NOT_PLANNED: &str = "NotPlanned";

/// Events of the first reconciliation: annotations that could not be parsed, and fields that got a default.
pub(super) fn first_events(wrapper: &Wrapper) -> Vec<NewEvent> {
    if !wrapper.status.conditions.is_empty() {
        return Vec::new();
    }
    let flaws = wrapper.annotations.errors.iter().cloned();
    let mut events: Vec<_> =
        flaws.map(|text| NewEvent { is_warning: true, reason: "AnnotationIgnored", text }).collect();
    let limits = wrapper.disallowed().into_iter();
    events.extend(limits.map(|(reason, text)| NewEvent { is_warning: true, reason, text }));
    if !wrapper.summary.spec.notes.is_empty() {
        events.push(NewEvent { is_warning: false, reason: "CanonicalForm", text: defaulted(wrapper) });
    }
    if let Some(text) = unplanned(wrapper) {
        events.push(NewEvent { is_warning: true, reason: NOT_PLANNED, text });
    }
    events
}

/// What is not planned, if anything is.
pub(crate) fn unplanned(wrapper: &Wrapper) -> Option<String> {
    let joined = |texts: &[String]| (!texts.is_empty()).then(|| texts.join("; "));
    let constraints = joined(&wrapper.unplanned()).map(|texts| {
        format!(
            "not planned: {texts}. These pods start where the scheduler finds nodes, perhaps not all of them"
        )
    });
    let admission = joined(&wrapper.dry_run.failures).map(|texts| {
        format!("not planned: what admission changes in the pods, because a dry run failed: {texts}")
    });
    joined(&constraints.into_iter().chain(admission).collect::<Vec<_>>())
}

/// The message of the status: the reason why the gang is pending, the defaulted fields, and what is not planned. Usually
/// empty.
pub(super) fn message(wrapper: &Wrapper, reason: Option<&str>) -> String {
    let defaulted = (!wrapper.summary.spec.notes.is_empty()).then(|| defaulted(wrapper));
    let parts = [reason.map(str::to_owned), defaulted, unplanned(wrapper)];
    parts.into_iter().flatten().collect::<Vec<_>>().join(". ")
}

fn defaulted(wrapper: &Wrapper) -> String {
    format!("filled in: {}", wrapper.summary.spec.notes.join(", "))
}

/// The message without figures. The queue position and the expected start are dropped completely.
pub(super) fn without_figures(text: &str) -> String {
    let (reason, _) = text.split_once(". Position ").unwrap_or((text, ""));
    reason.chars().filter(|c| !c.is_ascii_digit()).collect()
}
