//! The namespace controller: namespaces that exist from the start, default objects of a new namespace, and deletion of
//! the content of a terminating namespace.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::delete::DeleteOptions;
use crate::object;
use crate::registry::Resource;
use crate::request::Target;
use crate::server::ApiServer;
use crate::store::Object;
use crate::write::WriteOptions;

impl ApiServer {
    /// Creates the default namespaces and bootstrap objects at the first call.
    pub(crate) fn boot(&mut self, now: Timestamp) {
        if self.booted {
            return;
        }
        self.booted = true;
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            self.create_system_object(
                now,
                json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }),
            );
        }
        for object in crate::bootstrap::objects() {
            self.create_system_object(now, object);
        }
        while self.run_controllers(now) {}
    }

    /// Creates a bootstrap or default object; does nothing if it already exists.
    pub(crate) fn create_system_object(&mut self, now: Timestamp, value: Value) {
        let api_version = object::text(&value, &["apiVersion"]);
        let kind = object::text(&value, &["kind"]);
        let resource = self.registry.by_kind(api_version, kind).cloned();
        let resource = resource.expect("bootstrap objects are of built-in kinds");
        let namespace = object::namespace(&value);
        let target =
            Target { namespace: (!namespace.is_empty()).then(|| namespace.to_owned()), ..Target::default() };
        // The field manager is kube-apiserver, as for bootstrap objects; service accounts are created by
        // kube-controller-manager.
        let mut options = WriteOptions::system(now);
        if kind != "ServiceAccount" {
            "kube-apiserver".clone_into(&mut options.manager);
        }
        // Fails if the object exists or its namespace is terminating; nothing is to do in either case.
        let _ = self.insert(&options, &target, &resource, value, &mut Vec::new());
    }

    /// Creates the missing default objects of a namespace. For a terminating namespace, deletes its content, then the
    /// namespace.
    pub(crate) fn reconcile_namespace(&mut self, now: Timestamp, name: &str) {
        let Some(namespace) = self.store.get("namespaces", name).cloned() else { return };
        if !namespace.deleting {
            self.create_default_objects(now, name);
            return;
        }
        let rows: Vec<Arc<Resource>> = self.stored_resources().filter(|r| r.namespaced).collect();
        let (mut left, mut finalizers) = (0_usize, 0_usize);
        for resource in &rows {
            let objects: Vec<Arc<Object>> =
                self.store.range(&resource.storage, Some(name), None).cloned().collect();
            for object in objects {
                if !object.deleting {
                    // Fails only on preconditions, and there are none.
                    let _ = self.delete_object(now, resource, &object, &DeleteOptions::background());
                }
                if let Some(object) = self.store.get(&resource.storage, &object.key) {
                    left += 1;
                    finalizers += usize::from(!object.finalizers.is_empty());
                }
            }
        }
        let resource = self.registry.by_storage("namespaces").cloned().expect("namespaces are built in");
        let mut value = namespace.value();
        if left == 0 {
            object::remove(&mut value, &["spec", "finalizers"]);
            if namespace.finalizers.is_empty() {
                self.delete_immediately(&resource, name, Some(value));
                return;
            }
        } else {
            let conditions = conditions(left, finalizers, now, &value);
            object::set(&mut value, &["status", "conditions"], conditions);
        }
        if value != namespace.value() {
            self.commit(&resource, value, now);
        }
    }

    /// One registered version of each stored resource.
    pub(crate) fn stored_resources(&self) -> impl Iterator<Item = Arc<Resource>> + '_ {
        self.registry
            .all()
            .filter(|r| {
                !r.is_virtual() && self.registry.by_storage(&r.storage).is_some_and(|row| Arc::ptr_eq(row, r))
            })
            .cloned()
    }

    /// Creates the objects that kube-controller-manager creates in every namespace.
    fn create_default_objects(&mut self, now: Timestamp, namespace: &str) {
        for (api_version, kind, name, data) in [
            ("v1", "ServiceAccount", "default", Value::Null),
            ("v1", "ConfigMap", "kube-root-ca.crt", json!({ "ca.crt": "" })),
        ] {
            let mut value = json!({
                "apiVersion": api_version,
                "kind": kind,
                "metadata": { "name": name, "namespace": namespace },
            });
            if !data.is_null() {
                value["data"] = data;
            }
            self.create_system_object(now, value);
        }
    }
}

/// The conditions of a terminating namespace that still has content.
fn conditions(left: usize, finalizers: usize, now: Timestamp, value: &Value) -> Value {
    let before = object::items(value, &["status", "conditions"]);
    let condition = |kind: &str, status: bool, reason: &str, message: String| {
        let status = if status { "True" } else { "False" };
        let same = before
            .iter()
            .find(|c| object::text(c, &["type"]) == kind && object::text(c, &["status"]) == status);
        let since =
            same.map_or_else(|| object::stamp(now), |c| object::text(c, &["lastTransitionTime"]).to_owned());
        json!({ "type": kind, "status": status, "lastTransitionTime": since, "reason": reason, "message": message })
    };
    json!([
        condition(
            "NamespaceContentRemaining",
            true,
            "SomeResourcesRemain",
            format!("Some resources are remaining: {left} resource instances")
        ),
        condition(
            "NamespaceFinalizersRemaining",
            finalizers > 0,
            if finalizers > 0 { "SomeFinalizersRemain" } else { "ContentHasNoFinalizers" },
            if finalizers > 0 {
                format!(
                    "Some content in the namespace has finalizers remaining: in {finalizers} resource instances"
                )
            } else {
                "All content-preserving finalizers finished".into()
            }
        ),
    ])
}
