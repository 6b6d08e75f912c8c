//! GET and LIST: selectors, resource version semantics, and consistent pages at one revision.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::fields::FieldSelector;
use crate::registry::Resource;
use crate::request::{Call, Query, Target};
use crate::selector::Selector;
use crate::server::{Answer, ApiServer, ResponseObject};
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

/// One page of a list.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) objects: Vec<Arc<Object>>,
    pub(crate) revision: u64,
    pub(crate) continue_token: String,
    pub(crate) remaining: Option<usize>,
}

#[derive(Serialize, Deserialize)]
struct Token {
    v: String,
    rv: i64,
    start: String,
}

fn encode_token(revision: i64, start: &str) -> String {
    let token = Token { v: "meta.k8s.io/v1".into(), rv: revision, start: start.into() };
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).expect("tokens serialize to memory"))
}

fn decode_token(text: &str) -> Result<Token, Status> {
    let invalid = || Status::bad_request("continue key is not valid: token is malformed");
    let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).map_err(|_| invalid())?;
    let token: Token = serde_json::from_slice(&bytes).map_err(|_| invalid())?;
    if token.v != "meta.k8s.io/v1" || token.rv == 0 {
        return Err(Status::bad_request(format!(
            "continue key is not valid: server does not recognize this encoded version {:?}",
            token.v
        )));
    }
    Ok(token)
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

/// Start of a page: the key it follows, and the revision of the list (`None`: the current one).
struct Start {
    after: Option<String>,
    pinned: Option<u64>,
}

impl ApiServer {
    pub(crate) fn read(
        &self,
        call: &Call<'_>,
        target: &Target,
        resource: &Arc<Resource>,
    ) -> Result<Answer, Status> {
        if let Some(asked) = revision_of(call.query.text("resourceVersion")).ok().flatten()
            && asked > self.store.revision()
        {
            return Err(Status::too_large_version(asked, self.store.revision()));
        }
        let object = self.find(target, resource)?;
        Ok(Answer::object(200, resource, ResponseObject::Stored(object)))
    }

    /// The object that `target` names, or 404.
    pub(crate) fn find(&self, target: &Target, resource: &Resource) -> Result<Arc<Object>, Status> {
        let name = target.name.as_deref().unwrap_or_default();
        let key = crate::store::key_of(target.namespace.as_deref().unwrap_or_default(), name);
        self.store
            .get(&resource.storage, &key)
            .cloned()
            .ok_or_else(|| Status::not_found(&resource.group, &resource.plural, name))
    }

    pub(crate) fn list(
        &self,
        call: &Call<'_>,
        target: &Target,
        resource: &Arc<Resource>,
    ) -> Result<Answer, Status> {
        check_options(&call.query, false)?;
        let filter = Filter::parse(target, &call.query, resource)?;
        // `resourceVersion=0` ignores the limit: kube-apiserver serves such a list from its watch cache.
        let old =
            call.query.text("resourceVersion") == "0" && call.query.text("resourceVersionMatch").is_empty();
        let limit = match call.query.number("limit")? {
            Some(limit) if limit > 0 && !old => usize::try_from(limit).unwrap_or(usize::MAX),
            Some(_) | None => usize::MAX,
        };
        let start = self.start(&call.query, limit)?;
        let page = self.page(resource, &filter, &start, limit)?;
        Ok(Answer::List { resource: resource.clone(), page })
    }

    fn start(&self, query: &Query, limit: usize) -> Result<Start, Status> {
        let asked = revision_of(query.text("resourceVersion"))
            .map_err(|why| Status::bad_request(format!("invalid resource version: {why}")))?;
        let current = self.store.revision();
        match query.text("continue") {
            "" => {
                if let Some(asked) = asked
                    && asked > current
                {
                    return Err(Status::too_large_version(asked, current));
                }
                let exact = match query.text("resourceVersionMatch") {
                    "Exact" => true,
                    "NotOlderThan" => false,
                    _ => limit != usize::MAX, // Without resourceVersionMatch, only a paged list is exact.
                };
                Ok(Start { after: None, pinned: asked.filter(|r| *r > 0 && exact) })
            }
            token => {
                if asked.is_some_and(|r| r > 0) {
                    return Err(Status::bad_request(
                        "specifying resource version is not allowed when using continue",
                    ));
                }
                let token = decode_token(token)?;
                Ok(Start { after: Some(token.start), pinned: u64::try_from(token.rv).ok() })
            }
        }
    }

    /// The current objects that match a filter. A `metadata.name` field selector is a lookup by key, not a scan.
    pub(crate) fn selected<'a>(
        &'a self,
        resource: &Resource,
        filter: &'a Filter,
    ) -> impl Iterator<Item = &'a Arc<Object>> + use<'a> {
        let namespace = filter.namespace.as_deref();
        let key = match (filter.fields.name(), namespace) {
            (Some(name), Some(namespace)) => Some(crate::store::key_of(namespace, name)),
            (Some(name), None) if !resource.namespaced => Some(name.to_owned()),
            _ => None,
        };
        let one = key.as_deref().and_then(|key| self.store.get(&resource.storage, key));
        let all = key.is_none().then(|| self.store.range(&resource.storage, namespace, None));
        one.into_iter().chain(all.into_iter().flatten()).filter(|object| filter.matches(object))
    }

    fn page(
        &self,
        resource: &Resource,
        filter: &Filter,
        start: &Start,
        limit: usize,
    ) -> Result<Page, Status> {
        let storage = &resource.storage;
        let current = self.store.revision();
        if start.after.is_none() && start.pinned.is_none() {
            let objects =
                self.selected(resource, filter).take(limit.saturating_add(1)).cloned().collect::<Vec<_>>();
            if objects.len() <= limit {
                return Ok(Page {
                    objects,
                    revision: current,
                    continue_token: String::new(),
                    remaining: None,
                });
            }
        }
        let revision = start.pinned.unwrap_or(current);
        if revision > current {
            return Err(Status::too_large_version(revision, current));
        }
        let past = match start.pinned {
            None => BTreeMap::new(),
            Some(pinned) => {
                self.store.previous_states(storage, pinned).map_err(|compacted| match &start.after {
                    Some(after) => Status::expired_continue(encode_token(-1, after)),
                    None => Status::expired(format!(
                        "The resourceVersion for the provided list is too old: {pinned} ({})",
                        compacted.compact_revision
                    )),
                })?
            }
        };
        let namespace = filter.namespace.as_deref();
        let present = self
            .store
            .range(storage, namespace, start.after.as_deref())
            .filter(|o| !past.contains_key(&o.key));
        let gone = past.iter().filter_map(|(key, object)| {
            let after = start.after.as_deref().is_none_or(|after| &**key > after);
            object.as_ref().filter(|_| after)
        });
        let mut all = merged(present, gone).filter(|object| filter.matches(object));
        let objects: Vec<Arc<Object>> = all.by_ref().take(limit).cloned().collect();
        let mut continue_token = String::new();
        let mut remaining = None;
        if let (Some(last), Some(_)) = (objects.last(), all.next()) {
            continue_token = encode_token(i64::try_from(revision).unwrap_or(-1), &last.key);
            remaining = (!filter.has_selectors()).then(|| 1 + all.count());
        }
        Ok(Page { objects, revision, continue_token, remaining })
    }
}

/// Merges two sequences of objects that are ordered by key.
fn merged<'a>(
    a: impl Iterator<Item = &'a Arc<Object>>,
    b: impl Iterator<Item = &'a Arc<Object>>,
) -> impl Iterator<Item = &'a Arc<Object>> {
    let (mut a, mut b) = (a.peekable(), b.peekable());
    std::iter::from_fn(move || match (a.peek(), b.peek()) {
        (Some(x), Some(y)) if y.key < x.key => b.next(),
        (None, Some(_)) => b.next(),
        _ => a.next(),
    })
}
