//! The controller of custom resource definitions: names and conditions, registration of the versions, and deletion of
//! the instances of a deleted definition.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::delete::DeleteOptions;
use crate::managed_fields::track_system_update;
use crate::object;
use crate::registry::{Resource, custom_resources, state_of};
use crate::server::{ApiServer, WorkItem};
use crate::status::Status;
use crate::store::{Object, StorageId};
pub(crate) use crate::strategy::definitions::STORAGE;
use crate::strategy::definitions::{CLEANUP_FINALIZER, set_condition};

impl ApiServer {
    /// Reconciles a definition: accepts its names, sets its conditions and registers its versions. For a definition
    /// that is being deleted, deletes its instances, then the definition.
    pub(crate) fn reconcile_definition(&mut self, now: Timestamp, name: &str) {
        let Some(live) = self.store.get(STORAGE, name).cloned() else { return };
        let resource = self.registry.by_storage(STORAGE).cloned().expect("definitions are built in");
        let old = live.value();
        if live.deleting {
            self.delete_instances(now, &resource, &live, &old);
            return;
        }
        let mut new = old.clone();
        match self.name_conflict(&old) {
            None => {
                let mut accepted = object::get(&old, &["spec", "names"]).cloned().unwrap_or_default();
                let kind = object::text(&accepted, &["kind"]).to_owned();
                if object::text(&accepted, &["singular"]).is_empty() {
                    object::set(&mut accepted, &["singular"], kind.to_lowercase());
                }
                if object::text(&accepted, &["listKind"]).is_empty() {
                    object::set(&mut accepted, &["listKind"], format!("{kind}List"));
                }
                object::set(&mut new, &["status", "acceptedNames"], accepted);
                set_condition(&mut new, now, "NamesAccepted", "True", "NoConflicts", "no conflicts found");
                let message = "the initial names have been accepted";
                set_condition(&mut new, now, "Established", "True", "InitialNamesAccepted", message);
            }
            Some((reason, message)) => {
                set_condition(&mut new, now, "NamesAccepted", "False", &reason, &message);
                let established = object::items(&new, &["status", "conditions"]).iter().any(|c| {
                    object::text(c, &["type"]) == "Established" && object::text(c, &["status"]) == "True"
                });
                if !established {
                    set_condition(
                        &mut new,
                        now,
                        "Established",
                        "False",
                        "NotAccepted",
                        "not all names are accepted",
                    );
                }
            }
        }
        if new != old {
            track_system_update(now, &resource, &old, &mut new, ("kube-apiserver", "status"));
            self.commit(&resource, new, now);
            return; // The write queues the definition again.
        }
        self.serve_definition(&old);
    }

    /// Rejects the creation of an instance of a definition that is being deleted.
    pub(crate) fn check_definition_active(&self, resource: &Resource) -> Result<(), Status> {
        let Some(custom) = &resource.custom else { return Ok(()) };
        match self.store.get(STORAGE, &custom.definition) {
            Some(definition) if !definition.deleting => Ok(()),
            _ => Err(Status::other(
                405,
                "MethodNotAllowed",
                "create not allowed while custom resource definition is terminating",
            )),
        }
    }

    /// The reason and message of a name conflict with another definition of the same group.
    fn name_conflict(&self, definition: &Value) -> Option<(String, String)> {
        let group = object::text(definition, &["spec", "group"]);
        let own = object::name(definition);
        let others: Vec<Value> = self
            .store
            .range(STORAGE, None, None)
            .map(|object| object.value())
            .filter(|d| object::name(d) != own && object::text(d, &["spec", "group"]) == group)
            .collect();
        let (mut resources, mut kinds) = (Vec::new(), Vec::new());
        for other in &others {
            let accepted = |key| object::text(other, &["status", "acceptedNames", key]).to_owned();
            resources.extend([accepted("plural"), accepted("singular")]);
            resources
                .extend(object::texts(other, &["status", "acceptedNames", "shortNames"]).map(String::from));
            kinds.extend([accepted("kind"), accepted("listKind")]);
        }
        let wanted = |key| object::text(definition, &["spec", "names", key]).to_owned();
        for (key, taken) in
            [("plural", &resources), ("singular", &resources), ("kind", &kinds), ("listKind", &kinds)]
        {
            let name = wanted(key);
            if !name.is_empty() && taken.contains(&name) {
                let mut reason = key[..1].to_uppercase();
                reason.push_str(&key[1..]);
                return Some((format!("{reason}Conflict"), format!("{name:?} is already in use")));
            }
        }
        let short = object::texts(definition, &["spec", "names", "shortNames"])
            .find(|s| resources.iter().any(|r| r == s));
        short.map(|name| ("ShortNamesConflict".into(), format!("{name:?} is already in use")))
    }

    /// Registers the served versions of an established definition.
    pub(crate) fn serve_definition(&mut self, definition: &Value) {
        let established = object::items(definition, &["status", "conditions"])
            .iter()
            .any(|c| object::text(c, &["type"]) == "Established" && object::text(c, &["status"]) == "True");
        if !established {
            return;
        }
        let group = object::text(definition, &["spec", "group"]);
        let plural = object::text(definition, &["spec", "names", "plural"]);
        let storage = crate::status::qualified(group, plural);
        let served = self
            .registry
            .by_storage(&storage)
            .and_then(|instance_resource| instance_resource.custom.as_ref());
        if served.is_some_and(|custom| custom.state == state_of(definition)) {
            return;
        }
        self.registry.remove(group, plural);
        let converter = self.converters.get(group);
        for instance_resource in custom_resources(definition, converter) {
            self.store.open(&instance_resource.storage);
            self.registry.insert(instance_resource);
        }
        self.apply_schema_to_instances(&storage);
    }

    /// Prunes and defaults the stored instances by a changed schema. kube-apiserver does this at every read.
    fn apply_schema_to_instances(&mut self, storage: &str) {
        let Some(instance_resource) = self.registry.by_storage(storage).cloned() else { return };
        let schema = instance_resource.custom.as_ref().and_then(|custom| custom.structural.as_ref());
        let objects: Vec<Arc<Object>> = self.store.range(storage, None, None).cloned().collect();
        for object in objects {
            let old = object.value();
            let mut new = old.clone();
            if let Some(schema) = schema {
                schema.prune(&mut new);
                schema.default(&mut new);
            }
            let fields = instance_resource.field_values(&new);
            if new != old || fields != object.fields {
                self.store.replace_without_revision(&instance_resource.storage, new, fields, object.revision);
            }
        }
    }

    /// Deletes the instances of a definition that is being deleted; removes the cleanup finalizer when none is left.
    fn delete_instances(
        &mut self,
        now: Timestamp,
        resource: &Arc<Resource>,
        live: &Arc<Object>,
        value: &Value,
    ) {
        let group = object::text(value, &["spec", "group"]);
        let plural = object::text(value, &["spec", "names", "plural"]);
        let storage = crate::status::qualified(group, plural);
        if let Some(instance_resource) = self.registry.by_storage(&storage).cloned() {
            let instances: Vec<Arc<Object>> =
                self.store.range(&storage, None, None).filter(|o| !o.deleting).cloned().collect();
            for instance in instances {
                // Fails only on preconditions, and there are none.
                let _ = self.delete_object(now, &instance_resource, &instance, &DeleteOptions::default());
            }
        }
        if self.store.len(&storage) == 0 && live.finalizers.iter().any(|f| &**f == CLEANUP_FINALIZER) {
            self.remove_finalizer(now, resource, live, CLEANUP_FINALIZER);
        }
    }

    /// Removes the resources of a deleted definition from the registry.
    pub(crate) fn unregister_definition(&mut self, definition: &Value) {
        let group = object::text(definition, &["spec", "group"]);
        let plural = object::text(definition, &["spec", "names", "plural"]);
        self.registry.remove(group, plural);
        let storage: StorageId = crate::status::qualified(group, plural).into();
        if self.store.len(&storage) == 0 {
            self.store.close(&storage);
        }
        // Queue the other definitions: a definition with a name conflict may now be established.
        let others = self.store.range(STORAGE, None, None).map(|other| other.name().to_owned());
        let others: Vec<String> = others.collect();
        self.work_queue.extend(others.into_iter().map(WorkItem::Definition));
    }
}
