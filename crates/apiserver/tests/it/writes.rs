//! Writes: errors, field validation, dry runs, preconditions, finalizers and allocators.

use crate::harness::{
    CONFIG_MAPS, Cluster, DEFINITIONS, GADGETS, PODS, config_map, gadget, gadget_definition, pod,
};
use serde_json::{Value, json};

fn with_gadgets() -> Cluster {
    let mut cluster = Cluster::new();
    cluster.create(DEFINITIONS, gadget_definition());
    cluster.settle();
    cluster
}

#[test]
fn invalid_writes_give_the_codes_and_messages_of_kube_apiserver() {
    let mut cluster = with_gadgets();
    cluster.create(CONFIG_MAPS, config_map("there"));
    let named = |name: &str| json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } });
    let mut elsewhere = named("a");
    elsewhere["metadata"]["namespace"] = "kube-system".into();
    let mut versioned = named("a");
    versioned["metadata"]["resourceVersion"] = "1".into();
    let cases: Vec<(&str, &str, Value, u64, &str)> = vec![
        ("POST", CONFIG_MAPS, named("there"), 409, "configmaps \"there\" already exists"),
        (
            "POST",
            CONFIG_MAPS,
            named(""),
            422,
            "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required",
        ),
        (
            "POST",
            CONFIG_MAPS,
            named("Up"),
            422,
            "ConfigMap \"Up\" is invalid: metadata.name: Invalid value: \"Up\": a lowercase RFC 1123 subdomain must consist of",
        ),
        (
            "POST",
            CONFIG_MAPS,
            elsewhere,
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        ("POST", CONFIG_MAPS, versioned, 500, "resourceVersion should not be set on objects to be created"),
        ("POST", CONFIG_MAPS, pod("p"), 400, "Pod in version \"v1\" cannot be handled as a ConfigMap"),
        (
            "POST",
            CONFIG_MAPS,
            gadget("g"),
            400,
            "the API version in the data (example.com/v1) does not match the expected API version (v1)",
        ),
        ("POST", GADGETS, json!({ "metadata": { "name": "g" } }), 400, "Object 'Kind' is missing in"),
        ("POST", "/api/v1/namespaces/nope/configmaps", named("a"), 404, "namespaces \"nope\" not found"),
        (
            "PUT",
            "/api/v1/namespaces/default/configmaps/other",
            named("other"),
            404,
            "configmaps \"other\" not found",
        ),
        (
            "PUT",
            "/api/v1/namespaces/default/configmaps/nowhere",
            named("a"),
            400,
            "the name of the object (a) does not match the name on the URL (nowhere)",
        ),
        (
            "PUT",
            "/api/v1/namespaces/default/configmaps/there",
            named("a"),
            400,
            "the name of the object (a) does not match the name on the URL (there)",
        ),
        (
            "PUT",
            CONFIG_MAPS,
            named("a"),
            405,
            "the server does not allow this method on the requested resource",
        ),
        (
            "POST",
            "/api/v1/namespaces/default/configmaps/there",
            named("a"),
            405,
            "the server does not allow this method on the requested resource",
        ),
        (
            "DELETE",
            "/api/v1/namespaces",
            json!(null),
            405,
            "the server does not allow this method on the requested resource",
        ),
        (
            "POST",
            PODS,
            json!({ "kind": "Pod", "apiVersion": "v1", "metadata": { "name": "p" },
            "spec": { "priorityClassName": "nope", "containers": [{ "name": "c", "image": "i" }] } }),
            403,
            "pods \"p\" is forbidden: no PriorityClass with name nope was found",
        ),
        (
            "POST",
            PODS,
            json!({ "kind": "Pod", "apiVersion": "v1", "metadata": { "name": "p" },
            "spec": { "serviceAccountName": "nope", "containers": [{ "name": "c", "image": "i" }] } }),
            403,
            "pods \"p\" is forbidden: error looking up service account default/nope: serviceaccount \"nope\" not found",
        ),
    ];
    for (method, path, body, code, message) in cases {
        let answer = cluster.send(method, path, &[("content-type", "application/json")], body.to_string());
        let (found, told) = answer.failure();
        assert!(found == code && told.starts_with(message), "{method} {path}: {found} {told}");
    }
    let unknown = cluster.get("/apis/nope/v1/things");
    assert_eq!((unknown.code, unknown.text.as_str()), (404, "404 page not found\n"));
    let media = cluster.send("POST", CONFIG_MAPS, &[("content-type", "text/csv")], "a,b");
    assert_eq!(media.code, 415);
    let strategic = cluster.send(
        "PATCH",
        &format!("{GADGETS}/g"),
        &[("content-type", "application/strategic-merge-patch+json")],
        "{}",
    );
    assert_eq!(strategic.code, 415);
    assert_eq!(cluster.send("GET", CONFIG_MAPS, &[("accept", "text/html")], "").code, 406);
}

#[test]
fn unknown_fields_are_rejected_warned_about_or_dropped_by_field_validation() {
    let mut cluster = with_gadgets();
    for (path, mut body, kind) in
        [(GADGETS, gadget("x"), "Gadget"), (CONFIG_MAPS, config_map("x"), "ConfigMap")]
    {
        body["nonsense"] = 1.into();
        let strict = cluster.post(&format!("{path}?fieldValidation=Strict"), body.clone());
        let why = format!(
            "{kind} in version \"v1\" cannot be handled as a {kind}: strict decoding error: unknown field \"nonsense\""
        );
        assert_eq!(strict.failure(), (400, why.as_str()));
        body["metadata"]["name"] = "warned".into();
        let warned = cluster.post(path, body.clone());
        assert_eq!(warned.headers["warning"], "299 - \"unknown field \\\"nonsense\\\"\"");
        assert_eq!((warned.code, warned.body.get("nonsense")), (201, None));
        body["metadata"]["name"] = "ignored".into();
        let ignored = cluster.post(&format!("{path}?fieldValidation=Ignore"), body);
        assert_eq!((ignored.code, ignored.headers.get("warning")), (201, None));
    }
}

#[test]
fn a_dry_run_returns_the_object_and_stores_nothing() {
    let mut cluster = Cluster::new();
    let created = cluster.post(&format!("{CONFIG_MAPS}?dryRun=All"), config_map("a"));
    assert_eq!((created.code, cluster.get(&format!("{CONFIG_MAPS}/a")).code), (201, 404));
    let live = cluster.create(CONFIG_MAPS, config_map("a"));
    let path = format!("{CONFIG_MAPS}/a");
    let patched = cluster.merge(&format!("{path}?dryRun=All"), json!({ "data": { "b": "2" } }));
    assert_eq!(patched.body["data"]["b"], "2");
    cluster.delete(&format!("{path}?dryRun=All"));
    assert_eq!(cluster.get(&path).body, live);
    assert_eq!(cluster.post(&format!("{CONFIG_MAPS}?dryRun=Some"), config_map("b")).code, 422);
}

#[test]
fn generated_names_have_the_prefix_and_depend_on_the_seed() {
    let names = |seed| {
        let mut cluster = Cluster::with(apiserver::Config { seed, ..apiserver::Config::default() });
        let mut body = config_map("");
        body["metadata"] = json!({ "generateName": "gen-" });
        (0..3)
            .map(|_| {
                cluster.create(CONFIG_MAPS, body.clone())["metadata"]["name"].as_str().unwrap().to_owned()
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(names(7), names(7));
    assert_ne!(names(7), names(8));
    assert!(names(7).iter().all(|name| name.starts_with("gen-") && name.len() == 9));
}

#[test]
fn a_deletion_with_a_failed_precondition_is_a_conflict() {
    let mut cluster = Cluster::new();
    let live = cluster.create(CONFIG_MAPS, config_map("a"));
    let path = format!("{CONFIG_MAPS}/a");
    let mut delete = |preconditions: Value| {
        let body = json!({ "preconditions": preconditions }).to_string();
        cluster.send("DELETE", &path, &[], body)
    };
    let uid = live["metadata"]["uid"].as_str().unwrap();
    let why = format!(
        "Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition (other) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
    );
    assert_eq!(delete(json!({ "uid": "other" })).failure(), (409, why.as_str()));
    assert_eq!(delete(json!({ "resourceVersion": "1" })).code, 409);
    let version = &live["metadata"]["resourceVersion"];
    assert_eq!(delete(json!({ "uid": uid, "resourceVersion": version })).code, 200);
}

#[test]
fn an_update_cannot_change_uid_creation_time_or_generation() {
    let mut cluster = Cluster::new();
    let live = cluster.create(CONFIG_MAPS, config_map("a"));
    let path = format!("{CONFIG_MAPS}/a");
    let refused = cluster.merge(&path, json!({ "metadata": { "uid": "other" } }));
    assert_eq!(refused.code, 422, "{}", refused.text);
    let stamped =
        cluster.merge(&path, json!({ "metadata": { "creationTimestamp": "2001-01-01T00:00:00Z" } }));
    assert_eq!(stamped.code, 422, "{}", stamped.text);
    let mut same = live.clone();
    same["metadata"]["generation"] = 42.into();
    assert_eq!(cluster.put(&path, same).body, live);
}

#[test]
fn an_update_of_a_custom_resource_requires_a_resource_version() {
    let mut cluster = with_gadgets();
    cluster.create(GADGETS, gadget("g"));
    let blind = cluster.put(&format!("{GADGETS}/g"), gadget("g"));
    let why = "gadgets.example.com \"g\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update";
    assert_eq!(blind.failure(), (422, why));
}

#[test]
fn a_finalizer_delays_deletion_and_cannot_be_added_during_deletion() {
    let mut cluster = Cluster::new();
    let mut held = config_map("a");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    cluster.create(CONFIG_MAPS, held);
    let path = format!("{CONFIG_MAPS}/a");
    let marked = cluster.delete(&path).body;
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    let late = cluster
        .merge(&path, json!({ "metadata": { "finalizers": ["example.com/hold", "example.com/late"] } }));
    assert_eq!(late.code, 422, "{}", late.text);
    let gone = cluster.merge(&path, json!({ "metadata": { "finalizers": [] } }));
    assert_eq!((gone.code, cluster.get(&path).code), (200, 404));
}

#[test]
fn delete_collection_deletes_only_matching_objects() {
    let mut cluster = Cluster::new();
    for (name, label) in [("a", "x"), ("b", "y"), ("c", "x")] {
        let mut map = config_map(name);
        map["metadata"]["labels"] = json!({ "l": label });
        cluster.create(CONFIG_MAPS, map);
    }
    let deleted = cluster.delete(&format!("{CONFIG_MAPS}?labelSelector=l%3Dx"));
    assert_eq!(deleted.names(), ["a", "c"]);
    assert_eq!(cluster.get(&format!("{CONFIG_MAPS}?labelSelector=l")).names(), ["b"]);
}

#[test]
fn a_service_gets_a_cluster_ip_and_releases_it_at_deletion() {
    let mut cluster = Cluster::new();
    let services = "/api/v1/namespaces/default/services";
    let service = |name: &str, address: &str| {
        json!({ "metadata": { "name": name }, "spec": { "clusterIP": address, "type": "NodePort",
            "ports": [{ "port": 80 }] } })
    };
    let given = cluster.create(services, service("a", ""));
    let address = given["spec"]["clusterIP"].as_str().unwrap().to_owned();
    assert!(address.starts_with("10.96."));
    assert!(given["spec"]["ports"][0]["nodePort"].as_i64().is_some_and(|p| (30_000..=32_767).contains(&p)));
    assert_eq!(cluster.post(services, service("b", &address)).code, 422);
    cluster.delete(&format!("{services}/a"));
    assert_eq!(cluster.post(services, service("b", &address)).code, 201);
}

#[test]
fn stored_objects_get_the_defaults_of_a_changed_schema() {
    let mut cluster = with_gadgets();
    let before = cluster.create(GADGETS, gadget("g"));
    let mut definition = cluster.get(&format!("{DEFINITIONS}/gadgets.example.com")).body;
    for version in definition["spec"]["versions"].as_array_mut().unwrap() {
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["extra"] =
            json!({ "type": "string", "default": "new" });
    }
    let updated = cluster.put(&format!("{DEFINITIONS}/gadgets.example.com"), definition);
    assert_eq!(updated.code, 200, "{}", updated.text);
    cluster.settle();
    let after = cluster.get(&format!("{GADGETS}/g")).body;
    assert_eq!(after["spec"]["extra"], "new");
    assert_eq!(after["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"]);
}
