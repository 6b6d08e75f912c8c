//! GET and LIST: resource version semantics, and consistent pages at one revision.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::list_options::{Filter, check_options, revision_of};
use crate::page::{Page, decode_token, encode_token};
use crate::registry::Resource;
use crate::request::{Call, Query, Target};
use crate::response::{Answer, ResponseObject};
use crate::server::ApiServer;
use crate::status::Status;
use crate::store::Object;

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
