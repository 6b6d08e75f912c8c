//! Conversion of custom resources whose definition names a conversion webhook: a function in the same process converts
//! them, in place of the webhook.
//!
//! A write is stored only if the object can be read in every served version, so that reads never fail.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::crds;
use crate::object;
use crate::registry::Resource;
use crate::server::ApiServer;
use crate::status::Status;

type Function = dyn Fn(&mut Value, &str) -> Result<(), String> + Send + Sync;

/// Converts the objects of one API group between its versions.
#[derive(Clone)]
pub struct Converter(Arc<Function>);

impl fmt::Debug for Converter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Converter").finish_non_exhaustive()
    }
}

impl Converter {
    /// A converter from a function, which gets an object and the `apiVersion` to convert it to. Its error says why the
    /// object cannot be converted. Metadata must stay as it is.
    pub fn new(convert: impl Fn(&mut Value, &str) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(convert))
    }

    /// Converts an object.
    pub(crate) fn convert(&self, value: &mut Value, wanted: &str) -> Result<(), String> {
        (self.0)(value, wanted)
    }
}

/// How the versions of a custom resource are converted.
#[derive(Debug, Clone)]
pub(crate) enum Conversion {
    /// They differ only in `apiVersion` (strategy `None`).
    ByVersion,
    /// A converter is registered.
    ByConverter(Converter),
    /// The definition names a webhook, and no converter is registered. Webhooks are not called.
    Missing,
}

impl Conversion {
    /// The conversion of a definition.
    pub(crate) fn of(definition: &Value, converter: Option<&Converter>) -> Self {
        match (object::text(definition, &["spec", "conversion", "strategy"]), converter) {
            ("Webhook", Some(converter)) => Self::ByConverter(converter.clone()),
            ("Webhook", None) => Self::Missing,
            _ => Self::ByVersion,
        }
    }
}

impl ApiServer {
    /// Registers the converter of an API group. Definitions of the group without a conversion webhook do not use it.
    pub fn convert_with(&mut self, group: &str, converter: Converter) {
        self.converters.insert(group.into(), converter);
        for definition in
            self.store.range(crds::STORAGE, None, None).map(|stored| stored.value()).collect::<Vec<_>>()
        {
            if object::text(&definition, &["spec", "group"]) == group {
                self.registry.remove(group, object::text(&definition, &["spec", "names", "plural"]));
                self.serve_definition(&definition);
            }
        }
    }

    /// Refuses an object, in its storage version, that another served version cannot express.
    pub(crate) fn check_readable(&self, resource: &Resource, stored: &Value) -> Result<(), Status> {
        let Some(Conversion::ByConverter(converter)) = resource.custom.as_ref().map(|c| &c.conversion) else {
            return Ok(());
        };
        let others = self.registry.all().filter(|other| other.storage == resource.storage);
        for other in others.map(|other| other.api_version()).filter(|other| *other != resource.stored_as) {
            let converted = converter.convert(&mut stored.clone(), &other);
            converted.map_err(|why| failed(resource, &resource.stored_as, &why))?;
        }
        Ok(())
    }
}

/// Refuses a request in a version that cannot be converted to the stored one.
pub(crate) fn check_convertible(resource: &Resource) -> Result<(), Status> {
    let is_missing = resource.custom.as_ref().is_some_and(|c| matches!(c.conversion, Conversion::Missing));
    if !is_missing || resource.api_version() == resource.stored_as {
        return Ok(());
    }
    let why = format!(
        "conversion webhooks are not called, and no converter of group {} is registered",
        resource.group
    );
    Err(failed(resource, &resource.stored_as, &why))
}

/// The error of a failed conversion from `api_version`.
pub(crate) fn failed(resource: &Resource, api_version: &str, why: &str) -> Status {
    let kind = &resource.kind;
    Status::other(500, "", &format!("conversion webhook for {api_version}, Kind={kind} failed: {why}"))
}
