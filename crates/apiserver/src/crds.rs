//! Custom resource definitions: their conditions, their rows in the registry, and the deletion of their instances.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::delete::DeleteOptions;
use crate::gc::Work;
use crate::object;
use crate::registry::{Resource, custom_resources, state_of};
use crate::server::ApiServer;
use crate::status::Status;
use crate::store::{Object, StorageId};
use crate::write::track_own;

pub(crate) const STORAGE: &str = "customresourcedefinitions.apiextensions.k8s.io";
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The status of a new definition: what it stores is known at once, the rest is found out.
pub(crate) fn on_create(definition: &mut Value) {
    let stored = object::items(definition, &["spec", "versions"])
        .iter()
        .find(|version| object::flag(version, &["storage"]))
        .map(|version| object::text(version, &["name"]).to_owned());
    let status = json!({
        "acceptedNames": { "kind": "", "plural": "" },
        "conditions": null,
        "storedVersions": stored.into_iter().collect::<Vec<_>>(),
    });
    object::set(definition, &["status"], status);
}

/// A version that becomes the stored one is remembered, as objects may be stored in it from now on.
pub(crate) fn on_update(definition: &mut Value) {
    let stored = object::items(definition, &["spec", "versions"])
        .iter()
        .find(|version| object::flag(version, &["storage"]))
        .map(|version| object::text(version, &["name"]).to_owned());
    let Some(stored) = stored else { return };
    let mut all: Vec<String> =
        object::texts(definition, &["status", "storedVersions"]).map(String::from).collect();
    if !all.contains(&stored) {
        all.push(stored);
        object::set(definition, &["status", "storedVersions"], json!(all));
    }
}

/// Marks a definition whose instances have to go first.
pub(crate) fn on_delete(definition: &mut Value, now: Timestamp) {
    let mut finalizers: Vec<String> =
        object::texts(definition, &["metadata", "finalizers"]).map(String::from).collect();
    if !finalizers.iter().any(|f| f == CLEANUP) {
        finalizers.push(CLEANUP.into());
    }
    object::set(definition, &["metadata", "finalizers"], json!(finalizers));
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    condition(definition, now, "Terminating", "True", "InstanceDeletionPending", message);
}

fn condition(definition: &mut Value, now: Timestamp, kind: &str, status: &str, reason: &str, message: &str) {
    let mut all = object::items(definition, &["status", "conditions"]).to_vec();
    let new = json!({
        "type": kind,
        "status": status,
        "lastTransitionTime": object::stamp(now),
        "reason": reason,
        "message": message,
    });
    match all.iter_mut().find(|c| object::text(c, &["type"]) == kind) {
        Some(old) if object::text(old, &["status"]) == status => {
            old["reason"] = reason.into();
            old["message"] = message.into();
        }
        Some(old) => *old = new,
        None => all.push(new),
    }
    object::set(definition, &["status", "conditions"], all);
}

impl ApiServer {
    /// Brings a definition one step further: names, conditions, rows; or the end of its instances and of itself.
    pub(crate) fn settle_definition(&mut self, now: Timestamp, name: &str) {
        let Some(live) = self.store.get(STORAGE, name).cloned() else { return };
        let resource = self.registry.by_storage(STORAGE).cloned().expect("definitions are built in");
        let old = live.value();
        if live.deleting {
            self.finish_definition(now, &resource, &live, &old);
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
                condition(&mut new, now, "NamesAccepted", "True", "NoConflicts", "no conflicts found");
                let message = "the initial names have been accepted";
                condition(&mut new, now, "Established", "True", "InitialNamesAccepted", message);
            }
            Some((reason, message)) => {
                condition(&mut new, now, "NamesAccepted", "False", &reason, &message);
                let established = object::items(&new, &["status", "conditions"]).iter().any(|c| {
                    object::text(c, &["type"]) == "Established" && object::text(c, &["status"]) == "True"
                });
                if !established {
                    condition(
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
            track_own(now, &resource, &old, &mut new, ("kube-apiserver", "status"));
            self.commit(&resource, new, now);
            return; // Settled once more with what was written.
        }
        self.serve_definition(&old);
    }

    /// A definition that is being deleted takes no new instances.
    pub(crate) fn check_definition_stays(&self, resource: &Resource) -> Result<(), Status> {
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

    /// Names that another definition of the group has taken.
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

    /// Puts the versions of an established definition into the registry.
    fn serve_definition(&mut self, definition: &Value) {
        let established = object::items(definition, &["status", "conditions"])
            .iter()
            .any(|c| object::text(c, &["type"]) == "Established" && object::text(c, &["status"]) == "True");
        if !established {
            return;
        }
        let group = object::text(definition, &["spec", "group"]);
        let plural = object::text(definition, &["spec", "names", "plural"]);
        let storage = crate::status::qualified(group, plural);
        let served = self.registry.by_storage(&storage).and_then(|row| row.custom.as_ref());
        if served.is_some_and(|custom| custom.state == state_of(definition)) {
            return;
        }
        self.registry.remove(group, plural);
        for row in custom_resources(definition) {
            self.store.open(&row.storage);
            self.registry.insert(row);
        }
        self.reread_instances(&storage);
    }

    /// Lets stored objects show the defaults that a changed schema brings, as a real server does when it reads them.
    fn reread_instances(&mut self, storage: &str) {
        let Some(row) = self.registry.by_storage(storage).cloned() else { return };
        let schema = row.custom.as_ref().and_then(|custom| custom.structural.as_ref());
        let objects: Vec<Arc<Object>> = self.store.range(storage, None, None).cloned().collect();
        for object in objects {
            let old = object.value();
            let mut new = old.clone();
            if let Some(schema) = schema {
                schema.prune(&mut new);
                schema.default(&mut new);
            }
            let fields = row.field_values(&new);
            if new != old || fields != object.fields {
                self.store.reread(&row.storage, new, fields, object.revision);
            }
        }
    }

    /// Deletes the instances of a definition that is being deleted, then lets it go.
    fn finish_definition(
        &mut self,
        now: Timestamp,
        resource: &Arc<Resource>,
        live: &Arc<Object>,
        value: &Value,
    ) {
        let group = object::text(value, &["spec", "group"]);
        let plural = object::text(value, &["spec", "names", "plural"]);
        let storage = crate::status::qualified(group, plural);
        if let Some(row) = self.registry.by_storage(&storage).cloned() {
            let instances: Vec<Arc<Object>> =
                self.store.range(&storage, None, None).filter(|o| !o.deleting).cloned().collect();
            for instance in instances {
                // Fails for preconditions alone, and there are none.
                let _ = self.remove(now, &row, &instance, &DeleteOptions::default());
            }
        }
        if self.store.len(&storage) == 0 && live.finalizers.iter().any(|f| &**f == CLEANUP) {
            self.drop_finalizer(now, resource, live, CLEANUP);
        }
    }

    /// Takes the rows of a deleted definition out of the registry.
    pub(crate) fn drop_definition(&mut self, definition: &Value) {
        let group = object::text(definition, &["spec", "group"]);
        let plural = object::text(definition, &["spec", "names", "plural"]);
        self.registry.remove(group, plural);
        let storage: StorageId = crate::status::qualified(group, plural).into();
        if self.store.len(&storage) == 0 {
            self.store.close(&storage);
        }
        // Its names are free for those that wait for them.
        let others = self.store.range(STORAGE, None, None).map(|other| other.name().to_owned());
        let others: Vec<String> = others.collect();
        self.work.extend(others.into_iter().map(Work::Definition));
    }
}
