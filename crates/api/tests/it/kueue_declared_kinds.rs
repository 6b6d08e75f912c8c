//! Kinds of jobs that a file declares.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use api::kueue::jobs::declare;
use serde_json::{Value, json};

fn document() -> Value {
    let text = include_str!("../../../../examples/kueue/job-kinds.yaml");
    serde_saphyr::from_str(text).unwrap()
}

#[test]
fn a_declared_kind_says_where_its_fields_are() {
    let kind = declare(&document()).unwrap()[0];
    assert_eq!((kind.framework, kind.plural), ("example.com/trainingrun", "trainingruns"));
    let group =
        |name: &str, replicas: u32| json!({"name": name, "replicas": replicas, "template": {"spec": {}}});
    let mut job = json!({"spec": {"suspend": true, "groups": [group("leader", 1), group("worker", 3)]}});
    assert!(kind.is_suspended(&job));
    let sets = kind.integration.pod_sets(&job);
    let counts: Vec<_> = sets.iter().map(|set| (&set["name"], &set["count"])).collect();
    assert_eq!(counts, [(&json!("leader"), &json!(1)), (&json!("worker"), &json!(3))]);
    job["status"] = json!({"groups": [{"active": 1, "ready": 1}, {"active": 3, "ready": 2}]});
    assert!(kind.integration.is_active(&job) && !kind.integration.are_pods_ready(&job));
    job["status"]["groups"][1]["ready"] = 3.into();
    assert!(kind.integration.are_pods_ready(&job));
}

#[test]
fn a_declaration_that_cannot_work_is_refused_with_its_field() {
    let with = |pointer: &str, value: Value| {
        let mut document = document();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        document.pointer_mut(parent).unwrap()[field] = value;
        declare(&document).unwrap_err()
    };
    for (pointer, value, why) in [
        ("/kinds/0/suspended", json!("/spec"), "kinds[0].suspended: unknown field `suspended`"),
        (
            "/kinds/0/active",
            json!("status"),
            "kinds[0].active: \"status\" is no JSON pointer: it begins with /",
        ),
        (
            "/kinds/0/podSets/count",
            json!([["replicas"]]),
            "kinds[0].podSets.count: \"replicas\" is no JSON pointer",
        ),
        ("/kinds/0/kind", json!(""), "kinds[0].kind: \"\" is no kind: write letters and digits"),
        ("/kinds/0/kind", json!("training run"), "kinds[0].kind: \"training run\" is no kind"),
        (
            "/kinds/0/resource",
            json!("TrainingRuns"),
            "kinds[0].resource: \"TrainingRuns\" is no resource: write the plural in lower case",
        ),
        (
            "/kinds/0/apiVersion",
            json!("v1"),
            "kinds[0].apiVersion: \"v1\" is no apiVersion: write GROUP/VERSION",
        ),
        ("/kinds/0/apiVersion", json!("example..com/v1"), "kinds[0].apiVersion: "),
        ("/kinds/0/apiVersion", json!("example.com/1"), "kinds[0].apiVersion: "),
        ("/kinds/0/ready", json!({"condition": 1}), "kinds[0].ready.condition: invalid type"),
    ] {
        let found = with(pointer, value);
        assert!(found.starts_with(why), "{pointer}: {found}");
    }
    let mut twice = document();
    twice["kinds"][0]["apiVersion"] = "batch/v1".into();
    twice["kinds"][0]["kind"] = "Job".into();
    assert_eq!(declare(&twice).unwrap_err(), "kinds[0]: Job of batch/v1 is served already: leave it out");
    assert_eq!(declare(&Value::Null).unwrap_err(), "it is empty: write a list of kinds");
}
