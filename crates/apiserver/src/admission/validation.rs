//! Validating webhooks.

use std::sync::Arc;

use serde_json::Value;

use super::configuration::{Phase, is_exempt};
use super::matching::{Attributes, Operation};
use super::unanswered;
use crate::convert;
use crate::object;
use crate::registry::Resource;
use crate::request::{Call, Target};
use crate::server::ApiServer;
use crate::status::Status;
use crate::store::Object;
use crate::subresources::scale::scale_of;
use crate::write::{WriteOptions, request_options};

impl ApiServer {
    /// Lets the validating webhooks check an object that is created or updated.
    pub(crate) fn validate_by_webhooks(
        &mut self,
        options: &WriteOptions,
        resource: &Arc<Resource>,
        new: &Value,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        let Some(request_options) = &options.request_options else { return Ok(()) };
        let scales = (options.subresource == "scale")
            .then(|| (scale_of(resource, new), old.map(|old| scale_of(resource, old))));
        let (new, old) = scales.as_ref().map_or((new, old), |(new, old)| (new, old.as_ref()));
        let write = Attributes {
            resource,
            subresource: &options.subresource,
            operation: if old.is_some() { Operation::Update } else { Operation::Create },
            object: Some(new),
            old,
            is_dry_run: options.dry,
            options: request_options,
        };
        self.validate_all(&[write], warnings)
    }

    /// Lets the webhooks check an object that is created in a subresource and not stored: a binding or an eviction.
    pub(crate) fn validate_action(
        &mut self,
        call: &mut Call<'_>,
        resource: &Arc<Resource>,
        target: &Target,
        body: &Value,
    ) -> Result<(), Status> {
        if self.admission.is_none() {
            return Ok(());
        }
        let subresource = target.subresource.as_deref().unwrap_or_default();
        let (api_version, kind) =
            if subresource == "binding" { ("v1", "Binding") } else { ("policy/v1", "Eviction") };
        let mut object = body.clone();
        object::set(&mut object, &["apiVersion"], api_version);
        object::set(&mut object, &["kind"], kind);
        object::set(&mut object, &["metadata", "name"], target.name.as_deref().unwrap_or_default());
        object::set(&mut object, &["metadata", "namespace"], target.namespace.as_deref().unwrap_or_default());
        let (options, is_dry_run) = (request_options(call), call.dry_run()?);
        let write = Attributes {
            resource,
            subresource,
            operation: Operation::Create,
            object: Some(&object),
            old: None,
            is_dry_run,
            options: &options,
        };
        self.validate_all(&[write], &mut call.warnings)
    }

    /// Lets the webhooks check the deletion of objects.
    pub(crate) fn validate_deletion(
        &mut self,
        call: &mut Call<'_>,
        resource: &Arc<Resource>,
        objects: &[Arc<Object>],
        is_dry_run: bool,
    ) -> Result<(), Status> {
        if self.admission.is_none() {
            return Ok(());
        }
        let options = request_options(call);
        let stored: Vec<Value> =
            objects.iter().map(|object| convert::from_storage(resource, object.value())).collect();
        let writes: Vec<Attributes<'_>> = stored
            .iter()
            .map(|old| Attributes {
                resource,
                subresource: "",
                operation: Operation::Delete,
                object: None,
                old: Some(old),
                is_dry_run,
                options: &options,
            })
            .collect();
        self.validate_all(&writes, &mut call.warnings)
    }

    /// Asks all webhooks at once. The first refusal counts.
    fn validate_all(&mut self, writes: &[Attributes<'_>], warnings: &mut Vec<String>) -> Result<(), Status> {
        if self.admission.is_none() {
            return Ok(());
        }
        let webhooks = self.webhooks_of(Phase::Validation);
        let mut refused = None;
        for write in writes.iter().filter(|write| !is_exempt(write.resource)) {
            for webhook in &webhooks {
                let asked = match self.question(webhook, write) {
                    Ok(None) => continue,
                    Ok(Some(question)) => self.ask(Phase::Validation, webhook, question.request),
                    Err(status) => Err(status),
                };
                match asked {
                    Ok(permission) => {
                        warnings.extend(permission.into_iter().flat_map(|permission| permission.warnings));
                    }
                    Err(status) => refused = refused.or(Some(status)),
                }
            }
        }
        if self.has_missing_answers() {
            return Err(unanswered());
        }
        refused.map_or(Ok(()), Err)
    }
}
