//! Names of wrapped objects: only the condensed shape fills them in.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use api::appwrapper::Spec;
use serde_json::{Value, json};

fn error(resources: &Value) -> String {
    Spec::read(&json!({"resources": resources}), "w").unwrap_err().to_string()
}

#[test]
fn an_object_of_an_item_needs_a_name() {
    let named = |name: &Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": name, "spec": {}});
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [named(&json!({"name": "a"})), named(&json!({}))]});
    let unnamed = [
        named(&Value::Null),
        named(&json!({})),
        named(&json!({"name": ""})),
        named(&json!({"name": 3})),
        list,
    ];
    for template in unnamed {
        let item = json!({"generictemplate": template});
        assert_eq!(
            error(&json!({"GenericItems": [{"generictemplate": named(&json!({"name": "a"}))}, item]})),
            "resources.GenericItems[1].generictemplate: metadata.name is missing; every object needs apiVersion, kind \
             and metadata.name",
            "{template}"
        );
    }
    let legacy = json!({"type": "Service", "template": {"spec": {}}});
    assert_eq!(
        error(&json!({"Items": [legacy]})),
        "resources.Items[0].template: metadata.name is missing; give the object a name"
    );
}

#[test]
fn a_generated_name_and_the_name_of_a_legacy_pod_are_names() {
    let generated = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "a-"}});
    let legacy = json!({"type": "Pod", "template": {"template": {"spec": {}}}});
    let resources = json!({"GenericItems": [{"generictemplate": generated}], "Items": [legacy]});
    assert_eq!(Spec::read(&json!({"resources": resources}), "w").unwrap().objects().count(), 2);
}
