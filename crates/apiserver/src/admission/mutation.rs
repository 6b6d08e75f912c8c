//! Mutating webhooks.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::configuration::{Phase, Webhook, is_exempt};
use super::matching::{Attributes, Operation, Question};
use crate::object;
use crate::patch;
use crate::registry::Resource;
use crate::server::ApiServer;
use crate::status::Status;
use crate::write::{FieldValidation, WriteOptions, check_type, sanitize};

/// Fields that a new object does not have yet when webhooks see it.
const LATER_FIELDS: [&str; 2] = ["uid", "creationTimestamp"];

/// The object that a mutating webhook sees, and the write that it belongs to.
struct Draft<'a> {
    options: &'a WriteOptions,
    request_options: &'a Value,
    resource: &'a Arc<Resource>,
    new: &'a mut Value,
    old: Option<&'a Value>,
}

impl Draft<'_> {
    fn attributes(&self) -> Attributes<'_> {
        Attributes {
            resource: self.resource,
            subresource: &self.options.subresource,
            operation: if self.old.is_some() { Operation::Update } else { Operation::Create },
            object: Some(self.new),
            old: self.old,
            is_dry_run: self.options.dry,
            options: self.request_options,
        }
    }
}

impl ApiServer {
    /// Lets the mutating webhooks complete an object that is created or updated. A scale is not changed by webhooks.
    pub(crate) fn mutate_by_webhooks(
        &mut self,
        options: &WriteOptions,
        resource: &Arc<Resource>,
        new: &mut Value,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        let Some(request_options) = &options.request_options else { return Ok(()) };
        if self.admission.is_none() || is_exempt(resource) || options.subresource == "scale" {
            return Ok(());
        }
        let webhooks = self.webhooks_of(Phase::Mutation);
        if webhooks.is_empty() {
            return Ok(());
        }
        let later: Vec<(&str, Value)> = LATER_FIELDS
            .into_iter()
            .filter(|_| old.is_none())
            .filter_map(|field| Some((field, object::remove(new, &["metadata", field])?)))
            .collect();
        self.mutate_in_rounds(
            &webhooks,
            &mut Draft { options, request_options, resource, new, old },
            warnings,
        )?;
        for (field, value) in later {
            object::set(new, &["metadata", field], value);
        }
        Ok(())
    }

    /// Calls the webhooks one after the other. If one changes the object, those before it that ask for it are called
    /// once more.
    fn mutate_in_rounds(
        &mut self,
        webhooks: &[Webhook],
        draft: &mut Draft<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        let (mut called, mut again) = (BTreeSet::new(), BTreeSet::new());
        for (at, webhook) in webhooks.iter().enumerate() {
            let Some(is_changed) = self.mutate_by(webhook, draft, warnings)? else { continue };
            if is_changed {
                again.extend(called.iter().copied());
            }
            if webhook.is_reinvoked() {
                called.insert(at);
            }
        }
        for at in again {
            self.mutate_by(&webhooks[at], draft, warnings)?;
        }
        Ok(())
    }

    /// Whether the webhook has changed the object; `None` if it is not called.
    fn mutate_by(
        &mut self,
        webhook: &Webhook,
        draft: &mut Draft<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<Option<bool>, Status> {
        let write = draft.attributes();
        let Some(Question { version, request }) = self.question(webhook, &write)? else { return Ok(None) };
        let Some(permission) = self.ask(Phase::Mutation, webhook, request)? else {
            return Ok(Some(false));
        };
        warnings.extend(permission.warnings);
        if permission.patch.is_null() {
            return Ok(Some(false));
        }
        let seen = self.converted(draft.resource, &version, draft.new.clone())?;
        let patched =
            patch::json(&seen, &permission.patch).map_err(|error| Status::internal(error.message()))?;
        let mut changed = self.converted(&version, draft.resource, patched)?;
        decode(draft, &mut changed)?;
        let is_changed = changed != *draft.new;
        *draft.new = changed;
        Ok(Some(is_changed))
    }
}

/// Decodes the result of a patch as an object of its kind.
fn decode(draft: &Draft<'_>, changed: &mut Value) -> Result<(), Status> {
    let internal = |status: Status| Status::internal(status.message());
    let lenient = WriteOptions { fields: FieldValidation::Ignore, ..draft.options.clone() };
    check_type(draft.resource, changed).map_err(internal)?;
    sanitize(&lenient, draft.resource, changed, draft.old, &mut Vec::new()).map_err(internal)
}
