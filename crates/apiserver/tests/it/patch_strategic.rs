//! Strategic merge patches: every directive, list order and errors.

use crate::support;
use apiserver::patch::strategic;
use serde_json::{Value, json};

/// A deployment with these containers in its pod template.
fn with_containers(containers: &Value) -> Value {
    json!({"spec": {"template": {"spec": {"containers": containers}}}})
}

struct Case {
    name: &'static str,
    doc: Value,
    patch: Value,
    expected: Value,
}

#[test]
fn a_patch_merges_by_the_patch_strategies_of_the_type() {
    let two = with_containers(&json!([{"name": "a", "image": "x"}, {"name": "b", "image": "y"}]));
    let cases = [
        Case {
            name: "an item is merged by its key",
            doc: two.clone(),
            patch: with_containers(&json!([{"name": "b", "image": "z"}])),
            expected: with_containers(&json!([{"name": "a", "image": "x"}, {"name": "b", "image": "z"}])),
        },
        Case {
            name: "a new item goes to the front, for want of a place among the live ones",
            doc: two.clone(),
            patch: with_containers(&json!([{"name": "c", "args": null}])),
            expected: with_containers(&json!([
                {"name": "c"}, {"name": "a", "image": "x"}, {"name": "b", "image": "y"}])),
        },
        Case {
            name: "an item is deleted by its key",
            doc: two.clone(),
            patch: with_containers(&json!([{"name": "a", "$patch": "delete"}])),
            expected: with_containers(&json!([{"name": "b", "image": "y"}])),
        },
        Case {
            name: "a list is replaced by directive",
            doc: two.clone(),
            patch: with_containers(&json!([{"name": "c"}, {"$patch": "replace"}])),
            expected: with_containers(&json!([{"name": "c"}])),
        },
        Case {
            name: "an object is replaced by directive",
            doc: json!({"spec": {"replicas": 1, "paused": true}}),
            patch: json!({"spec": {"$patch": "replace", "replicas": 2}}),
            expected: json!({"spec": {"replicas": 2}}),
        },
        Case {
            name: "an object is emptied by directive",
            doc: json!({"spec": {"replicas": 1}}),
            patch: json!({"spec": {"$patch": "delete"}}),
            expected: json!({"spec": {}}),
        },
        Case {
            name: "null deletes, also what is not there",
            doc: json!({"spec": {"replicas": 1, "paused": true}}),
            patch: json!({"spec": {"paused": null, "selector": null}, "status": null}),
            expected: json!({"spec": {"replicas": 1}}),
        },
        Case {
            name: "a list without a strategy is replaced",
            doc: json!({"spec": {"template": {"spec": {"tolerations": [{"key": "a"}, {"key": "b"}]}}}}),
            patch: json!({"spec": {"template": {"spec": {"tolerations": [{"key": "c"}]}}}}),
            expected: json!({"spec": {"template": {"spec": {"tolerations": [{"key": "c"}]}}}}),
        },
        Case {
            name: "scalars are merged without duplicates",
            doc: json!({"metadata": {"finalizers": ["a", "b"]}}),
            patch: json!({"metadata": {"finalizers": ["b", "c"]}}),
            expected: json!({"metadata": {"finalizers": ["a", "b", "c"]}}),
        },
        Case {
            name: "scalars are deleted and ordered",
            doc: json!({"metadata": {"finalizers": ["a", "b", "c"]}}),
            patch: json!({"metadata": {
                "$deleteFromPrimitiveList/finalizers": ["b"],
                "$setElementOrder/finalizers": ["d", "a", "c"], "finalizers": ["d"]}}),
            expected: json!({"metadata": {"finalizers": ["d", "a", "c"]}}),
        },
        Case {
            name: "the order of a list is set, and items of the server keep their place",
            doc: with_containers(&json!([{"name": "a"}, {"name": "side"}, {"name": "b"}])),
            patch: json!({"spec": {"template": {"spec": {
                "$setElementOrder/containers": [{"name": "c"}, {"name": "b"}, {"name": "a"}],
                "containers": [{"name": "c", "image": "new"}, {"name": "a", "image": "x"}]}}}}),
            expected: with_containers(&json!([
                {"name": "c", "image": "new"}, {"name": "side"}, {"name": "b"}, {"name": "a", "image": "x"}])),
        },
        Case {
            name: "an order alone sorts the live list",
            doc: with_containers(&json!([{"name": "a"}, {"name": "b"}])),
            patch: json!({"spec": {"template": {"spec": {
                "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}}}}),
            expected: with_containers(&json!([{"name": "b"}, {"name": "a"}])),
        },
        Case {
            name: "retained keys clear the others",
            doc: json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}),
            patch: json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}),
            expected: json!({"spec": {"strategy": {"type": "Recreate"}}}),
        },
        Case {
            name: "keys of maps merge",
            doc: json!({"metadata": {"labels": {"a": "1", "b": "2"}}}),
            patch: json!({"metadata": {"labels": {"b": null, "c": "3"}}}),
            expected: json!({"metadata": {"labels": {"a": "1", "c": "3"}}}),
        },
        Case {
            name: "directives and nulls leave no trace in new values",
            doc: json!({}),
            patch: json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate", "rollingUpdate": null},
                "selector": {"$patch": "delete"}}}),
            expected: json!({"spec": {"strategy": {"type": "Recreate"}}}),
        },
        Case {
            name: "an atomic object of server-side apply still merges",
            doc: json!({"spec": {"selector": {"matchLabels": {"a": "1"}}}}),
            patch: json!({"spec": {"selector": {"matchLabels": {"b": "2"}}}}),
            expected: json!({"spec": {"selector": {"matchLabels": {"a": "1", "b": "2"}}}}),
        },
    ];
    for case in cases {
        let patched = strategic(&case.doc, &case.patch, &support::deployment()).unwrap();
        assert_eq!(patched, case.expected, "{}", case.name);
    }
}

#[test]
fn an_invalid_patch_gives_the_code_and_message_of_kube_apiserver() {
    let doc = with_containers(&json!([{"name": "a"}]));
    let cases = [
        (json!([1]), 400, "json: cannot unmarshal array into Go value of type map[string]interface {}"),
        (json!({"$patch": "what"}), 500, "unknown patch type: what in map: map[$patch:what]"),
        (
            with_containers(&json!([{"image": "x"}])),
            500,
            "map: map[image:x] does not contain declared merge key: name",
        ),
        (
            with_containers(&json!([{"name": "a", "$patch": "merge"}])),
            500,
            "merging lists cannot yet be specified in the patch",
        ),
        (with_containers(&json!(["a"])), 500, "list element types are not identical: [[map[name:a]] [a]]"),
        (json!({"spec": {"$retainKeys": "x"}}), 400, "invalid patch format of retainKeys"),
        (
            json!({"spec": {"$retainKeys": ["paused"], "replicas": 1}}),
            400,
            "invalid patch format of retainKeys",
        ),
        (json!({"$setElementOrder": []}), 400, "invalid patch format of setElementOrder list"),
        (json!({"$deleteFromPrimitiveList": []}), 400, "invalid patch format of primitive list"),
        (
            json!({"spec": {"template": {"spec": {"$setElementOrder/containers": [{"name": "b"}],
                "containers": [{"name": "a"}]}}}}),
            500,
            "The order in patch list:\n[map[name:a]]\n doesn't match $setElementOrder list:\n[map[name:b]]\n",
        ),
    ];
    for (patch, code, message) in cases {
        let error = strategic(&doc, &patch, &support::deployment()).unwrap_err();
        assert_eq!((error.code(), error.message()), (code, message), "{patch}");
    }
    let unknown = strategic(&json!({"spec": {"x": {}}}), &json!({"spec": {"x": {}}}), &support::deployment());
    assert_eq!(
        unknown.unwrap_err().message(),
        r#"unable to find api field in struct DeploymentSpec for the json field "x""#
    );
}

#[test]
fn a_strategic_merge_patch_without_a_type_is_rejected() {
    let error = strategic(&json!({}), &json!({}), &apiserver::typeinfo::UNTYPED).unwrap_err();
    assert_eq!((error.code(), error.message()), (400, "strategic merge patch format is not supported"));
}
