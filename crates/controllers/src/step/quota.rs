//! What the status says about the quota of an admitted gang.

use api::MicroTime;
use api::appwrapper::{Status, transition};
use index::{Index, Wrapper};

/// Start of each message about a quota label that does not count.
const CHARGED_UNTIL_REQUEUED: &str = "charged until it is requeued to quota ";

/// Records what the gang is charged until it is requeued.
pub(super) fn record(index: &Index, wrapper: &Wrapper, status: &mut Status, now: MicroTime) {
    if let Some(charge) = index.quota_record(wrapper) {
        transition::reserve_quota(status, &charge, now);
    }
}

/// Whether a message is about quota labels that do not count.
pub(super) fn is_reported(message: &str) -> bool {
    message.contains(CHARGED_UNTIL_REQUEUED)
}

/// The text about quota labels that were changed after the admission, if there are any.
pub(super) fn ignored_labels(index: &Index, wrapper: &Wrapper) -> Option<String> {
    let groups = index.ignored_groups(wrapper).into_iter();
    let texts: Vec<_> = groups
        .map(|(tree, charged, asked)| {
            format!("{CHARGED_UNTIL_REQUEUED}{tree}/{charged}; the label {tree}: {asked} counts then")
        })
        .collect();
    (!texts.is_empty()).then(|| texts.join(". "))
}
