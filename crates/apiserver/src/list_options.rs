//! List options of lists, watches and collection deletions: selectors, resource versions and their validation.

use crate::fields::FieldSelector;
use crate::registry::Resource;
use crate::request::{Query, Target};
use crate::selector::Selector;
use crate::status::{Cause, Status};
use crate::store::Object;

/// Selects objects of a resource by namespace, labels and fields.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
    pub(crate) namespace: Option<String>,
    pub(crate) labels: Selector,
    pub(crate) fields: FieldSelector,
}

impl Filter {
    pub(crate) fn parse(target: &Target, query: &Query, resource: &Resource) -> Result<Self, Status> {
        let labels = Selector::parse(query.text("labelSelector")).map_err(Status::bad_request)?;
        let fields =
            FieldSelector::parse(query.text("fieldSelector"), resource).map_err(Status::bad_request)?;
        let namespace = target
            .namespace
            .clone()
            .or_else(|| (resource.namespaced).then(|| fields.namespace().map(String::from)).flatten());
        Ok(Self { namespace, labels, fields })
    }

    /// Whether the filter has a label or field selector.
    pub(crate) fn has_selectors(&self) -> bool {
        !self.labels.is_empty() || !self.fields.is_empty()
    }

    pub(crate) fn matches(&self, object: &Object) -> bool {
        self.namespace.as_deref().is_none_or(|n| n == object.namespace())
            && self.labels.matches(|key| object.label(key))
            && self.fields.matches(object)
    }
}

/// Parses a `resourceVersion` parameter; `None` if it is empty.
pub(crate) fn revision_of(text: &str) -> Result<Option<u64>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        )
    })
}

/// Validates the list options like `ValidateListOptions` of `k8s.io/apimachinery`.
pub(crate) fn check_options(query: &Query, watch: bool) -> Result<(), Status> {
    let matching = query.text("resourceVersionMatch");
    let revision = query.text("resourceVersion");
    let initial = query.has("sendInitialEvents");
    let mut causes = Vec::new();
    let mut forbid = |field: &str, why: &str| causes.push(Cause::forbidden(field, why));
    if watch && initial {
        if matching != "NotOlderThan" {
            forbid(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            );
        }
    } else if initial {
        forbid("sendInitialEvents", "sendInitialEvents is forbidden for list");
    }
    if !(matching.is_empty() || watch && initial) {
        if watch {
            forbid(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            );
        } else if revision.is_empty() {
            forbid(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            );
        }
        if query.has("continue") && !query.text("continue").is_empty() {
            forbid("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided");
        }
        if matching == "Exact" && revision == "0" {
            forbid(
                "resourceVersionMatch",
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            );
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            causes.push(Cause {
                reason: "FieldValueNotSupported".into(),
                message: format!(
                    "Unsupported value: \"{matching}\": supported values: \"Exact\", \"NotOlderThan\", \"\""
                ),
                field: "resourceVersionMatch".into(),
            });
        }
    }
    if causes.is_empty() { Ok(()) } else { Err(Status::invalid("meta.k8s.io", "ListOptions", "", causes)) }
}
