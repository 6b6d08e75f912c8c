//! Admission of the objects of an API group by a plugin in the same process: it completes and checks them where
//! kube-apiserver calls webhooks.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::convert;
use crate::registry::Resource;
use crate::server::ApiServer;
use crate::status::Status;

/// Completes and checks the objects of an API group. Objects are given in their storage version.
pub trait AdmissionPlugin: fmt::Debug + Send + Sync {
    /// Whether it has to see this write. Default: every write of its group.
    fn covers(&self, write: &Write<'_>) -> bool {
        let _ = write;
        true
    }

    /// Fills in an object that is created or updated, before it is validated. Not called for subresources.
    fn mutate(&self, write: &Write<'_>, new: &mut Value);

    /// Checks an object that is valid for its schema. The warnings are returned to the client. `old` is the stored object
    /// of an update.
    ///
    /// # Errors
    /// The text of the response, which has the code 403.
    fn validate(&self, write: &Write<'_>, new: &Value, old: Option<&Value>) -> Result<Vec<String>, String>;
}

/// A write that a plugin reviews.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write<'a> {
    /// Plural name of the resource.
    pub plural: &'a str,
    /// Name of the subresource; empty for the object itself.
    pub subresource: &'a str,
    /// Whether the object is created.
    pub is_create: bool,
}

impl ApiServer {
    /// Registers a plugin of an API group. It is asked after those that are registered already.
    pub fn admit_with(&mut self, group: &str, plugin: Arc<dyn AdmissionPlugin>) {
        self.plugins.entry(group.into()).or_default().push(plugin);
    }

    /// Lets the plugins of the group fill in an object, which is in the version of `resource`.
    pub(crate) fn mutate(
        &self,
        resource: &Resource,
        is_create: bool,
        value: &mut Value,
    ) -> Result<(), Status> {
        let write = Write { plural: &resource.plural, subresource: "", is_create };
        let plugins = self.plugins_of(resource, &write);
        if plugins.is_empty() {
            return Ok(());
        }
        let stored = self.to_store(resource, value.clone())?;
        let mut new = stored.clone();
        for plugin in plugins {
            plugin.mutate(&write, &mut new);
        }
        if new != stored {
            *value = convert::from_storage(resource, new);
        }
        Ok(())
    }

    /// Lets the plugins of the group check an object, which is in its storage version like `old`.
    pub(crate) fn admit(
        &self,
        resource: &Resource,
        subresource: &str,
        new: &Value,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        let write = Write { plural: &resource.plural, subresource, is_create: old.is_none() };
        for plugin in self.plugins_of(resource, &write) {
            warnings.extend(plugin.validate(&write, new, old).map_err(Status::forbidden_path)?);
        }
        Ok(())
    }

    /// The plugins that have to see a write.
    fn plugins_of(&self, resource: &Resource, write: &Write<'_>) -> Vec<&dyn AdmissionPlugin> {
        let of_group = self.plugins.get(&resource.group).into_iter().flatten();
        of_group.map(AsRef::as_ref).filter(|plugin| plugin.covers(write)).collect()
    }
}
