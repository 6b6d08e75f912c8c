//! Claims: the admission plugin `DefaultStorageClass`. After `plugin/pkg/admission/storage/storageclass/setdefault` of Kubernetes.

use serde_json::Value;

use crate::object;
use crate::server::ApiServer;

const CLASSES: &str = "storageclasses.storage.k8s.io";
const IS_DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";

/// Sets the class of a claim that names none: the latest of the default classes.
pub(super) fn set_class(server: &ApiServer, claim: &mut Value) {
    if object::get(claim, &["spec", "storageClassName"]).is_some() {
        return;
    }
    let classes = server.store.range(CLASSES, None, None).map(|class| class.value());
    let defaults =
        classes.filter(|class| object::text(class, &["metadata", "annotations", IS_DEFAULT]) == "true");
    let created = |class: &Value| object::text(class, &["metadata", "creationTimestamp"]).to_owned();
    let latest = defaults.max_by(|one, other| {
        created(one).cmp(&created(other)).then_with(|| object::name(other).cmp(object::name(one)))
    });
    if let Some(class) = latest {
        object::set(claim, &["spec", "storageClassName"], object::name(&class));
    }
}
