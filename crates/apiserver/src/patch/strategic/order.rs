//! Order of a list after a strategic merge: the order in the patch, and the live order for all other items.

use serde_json::Value;

use super::{DIRECTIVE, SET_ORDER, no_merge_key};
use crate::patch::{PatchError, go_value};

/// Identity of the items of a list.
#[derive(Clone, Copy)]
pub(super) enum Identity<'a> {
    /// The value of this field, the merge key.
    Key(&'a str),
    /// The whole item.
    Whole,
}

impl<'a> Identity<'a> {
    pub(super) fn of(merge_key: Option<&'a str>) -> Self {
        merge_key.map_or(Self::Whole, Self::Key)
    }

    fn get(self, item: &Value) -> Option<&Value> {
        match self {
            Self::Key(key) => item.get(key),
            Self::Whole => Some(item),
        }
    }

    fn position(self, list: &[Value], item: &Value) -> Option<usize> {
        let identity = self.get(item)?;
        list.iter().position(|other| self.get(other) == Some(identity))
    }
}

/// Checks that all items of the patch occur in `order`, in the same sequence.
pub(super) fn check_order(
    patch: &[Value],
    order: &[Value],
    merge_key: Option<&str>,
) -> Result<(), PatchError> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut rest = order.iter();
    for item in patch.iter().filter(|item| item.get(DIRECTIVE).is_none()) {
        let identity = match merge_key {
            Some(key) => item.get(key).ok_or_else(|| no_merge_key(item, key))?,
            None => item,
        };
        let mut found = false;
        for ordered in rest.by_ref() {
            let other = match merge_key {
                Some(key) => ordered.get(key).ok_or_else(|| no_merge_key(ordered, key))?,
                None => ordered,
            };
            if other == identity {
                found = true;
                break;
            }
        }
        if !found {
            return Err(PatchError::Internal(format!(
                "The order in patch list:\n{}\n doesn't match {SET_ORDER} list:\n{}\n",
                go_value(&Value::Array(patch.to_vec())),
                go_value(&Value::Array(order.to_vec())),
            )));
        }
    }
    Ok(())
}

/// Orders a merged list. Items in `order` keep that order, all other items keep the live order. The two are
/// interleaved so that a server-only item stays before the first item that it preceded.
pub(super) fn arrange(
    merged: Vec<Value>,
    order: &[Value],
    live: &[Value],
    identity: Identity<'_>,
) -> Result<Vec<Value>, PatchError> {
    if let Identity::Key(key) = identity
        && let Some(item) = merged.iter().find(|item| item.get(key).is_none())
    {
        return Err(no_merge_key(item, key));
    }
    let (mut ordered, mut others): (Vec<_>, Vec<_>) =
        merged.into_iter().partition(|item| identity.position(order, item).is_some());
    ordered.sort_by_cached_key(|item| identity.position(order, item));
    others.sort_by_cached_key(|item| identity.position(live, item).unwrap_or(usize::MAX));
    let mut result = Vec::with_capacity(ordered.len() + others.len());
    let mut others = others.into_iter().peekable();
    for item in ordered {
        let place = identity.position(live, &item);
        while let Some(other) = others.peek() {
            match (identity.position(live, other), place) {
                (Some(left), Some(right)) if left < right => result.extend(others.next()),
                _ => break,
            }
        }
        result.push(item);
    }
    result.extend(others);
    Ok(result)
}
