//! The life of namespaces: those that are there from the start, what each new one gets, and how one is drained.

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

/// Namespaces that cannot be deleted.
pub(crate) const IMMORTAL: &[&str] = &["default", "kube-public", "kube-system"];

impl ApiServer {
    /// Creates what every cluster has, once.
    pub(crate) fn boot(&mut self, now: Timestamp) {
        if self.booted {
            return;
        }
        self.booted = true;
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            self.create_own(
                now,
                json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }),
            );
        }
        for object in crate::bootstrap::objects() {
            self.create_own(now, object);
        }
        while self.housekeep(now) {}
    }

    /// Creates an object of the server's own; one that is there already is left alone.
    pub(crate) fn create_own(&mut self, now: Timestamp, value: Value) {
        let api_version = object::text(&value, &["apiVersion"]);
        let kind = object::text(&value, &["kind"]);
        let resource = self.registry.by_kind(api_version, kind).cloned();
        let resource = resource.expect("the server creates objects of built-in kinds only");
        let namespace = object::namespace(&value);
        let target =
            Target { namespace: (!namespace.is_empty()).then(|| namespace.to_owned()), ..Target::default() };
        // Of the namespaces, the account in each is the controllers'; what is there from the start is the server's.
        let mut options = WriteOptions::own(now);
        if kind != "ServiceAccount" {
            "kube-apiserver".clone_into(&mut options.manager);
        }
        // It exists, or its namespace is going: both leave nothing to do.
        let _ = self.insert(&options, &target, &resource, value, &mut Vec::new());
    }

    /// Brings a namespace what it lacks, or drains it when it is being deleted.
    pub(crate) fn drain_namespace(&mut self, now: Timestamp, name: &str) {
        let Some(namespace) = self.store.get("namespaces", name).cloned() else { return };
        if !namespace.deleting {
            self.furnish(now, name);
            return;
        }
        let rows: Vec<Arc<Resource>> = self.stored_rows().filter(|r| r.namespaced).collect();
        let (mut left, mut finalizers) = (0_usize, 0_usize);
        for resource in &rows {
            let objects: Vec<Arc<Object>> =
                self.store.range(&resource.storage, Some(name), None).cloned().collect();
            for object in objects {
                if !object.deleting {
                    // Fails for preconditions alone, and there are none.
                    let _ = self.remove(now, resource, &object, &DeleteOptions::background());
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
                self.erase(&resource, name, Some(value));
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

    /// One row for each stored resource.
    pub(crate) fn stored_rows(&self) -> impl Iterator<Item = Arc<Resource>> + '_ {
        self.registry
            .all()
            .filter(|r| {
                !r.is_virtual() && self.registry.by_storage(&r.storage).is_some_and(|row| Arc::ptr_eq(row, r))
            })
            .cloned()
    }

    /// What controllers of a real cluster put into each namespace.
    fn furnish(&mut self, now: Timestamp, namespace: &str) {
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
            self.create_own(now, value);
        }
    }
}

/// What `kubectl describe` shows of a namespace that cannot go yet.
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
