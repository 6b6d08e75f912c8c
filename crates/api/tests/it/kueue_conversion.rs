//! Conversion of Kueue's kinds between the two versions.

use api::kueue::{ConversionError, Domain, TopologyAssignment, convert};
use serde_json::{Value, json};

const OLD: &str = "kueue.x-k8s.io/v1beta1";
const NEW: &str = "kueue.x-k8s.io/v1beta2";

fn converted(kind: &str, from: &str, to: &str, rest: &Value) -> Value {
    let mut object = json!({"apiVersion": from, "kind": kind, "metadata": {"name": "x"}});
    for (key, value) in rest.as_object().expect("cases are objects") {
        object[key] = value.clone();
    }
    convert(&mut object, to).expect("cases are converted");
    assert_eq!(object["apiVersion"], to);
    assert_eq!(object["kind"], kind);
    assert_eq!(object["metadata"], json!({"name": "x"}));
    let mut fields = object.as_object().expect("it stays an object").clone();
    for key in ["apiVersion", "kind", "metadata"] {
        fields.remove(key);
    }
    fields.into()
}

/// A conversion upwards, and downwards if the way back gives the same.
struct Case {
    name: &'static str,
    kind: &'static str,
    old: Value,
    new: Value,
    /// What the new form is as the old version; `None` if it is `old` again.
    back: Option<Value>,
}

fn cases() -> Vec<Case> {
    let case = |name, kind, old, new| Case { name, kind, old, new, back: None };
    vec![
        case(
            "a cohort gets its other name",
            "ClusterQueue",
            json!({"spec": {"cohort": "all", "queueingStrategy": "StrictFIFO"}}),
            json!({"spec": {"cohortName": "all", "queueingStrategy": "StrictFIFO"}}),
        ),
        Case {
            back: Some(json!({"spec": {}})),
            ..case(
                "an empty cohort is none",
                "ClusterQueue",
                json!({"spec": {"cohort": ""}}),
                json!({"spec": {}}),
            )
        },
        Case {
            back: Some(
                json!({"spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": "a"}, {"name": "b"}]}}}),
            ),
            ..case(
                "the list of checks becomes a strategy, and wins over one",
                "ClusterQueue",
                json!({"spec": {"admissionChecks": ["a", "b"],
                    "admissionChecksStrategy": {"admissionChecks": [{"name": "c"}]}}}),
                json!({"spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": "a"}, {"name": "b"}]}}}),
            )
        },
        Case {
            back: Some(json!({"spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": "c"}]}}})),
            ..case(
                "an empty list of checks leaves the strategy",
                "ClusterQueue",
                json!({"spec": {"admissionChecks": [], "admissionChecksStrategy": {"admissionChecks": [{"name": "c"}]}}}),
                json!({"spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": "c"}]}}}),
            )
        },
        Case {
            back: Some(json!({"spec": {"flavorFungibility":
                {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"}}})),
            ..case(
                "former names of the fungibility",
                "ClusterQueue",
                json!({"spec": {"flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}}}),
                json!({"spec": {"flavorFungibility":
                    {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"}}}),
            )
        },
        case(
            "other values of the fungibility stay",
            "ClusterQueue",
            json!({"spec": {"flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "preference": "x"}}}),
            json!({"spec": {"flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "preference": "x"}}}),
        ),
        Case {
            back: Some(json!({"status": {"pendingWorkloads": 3, "fairSharing": {"weightedShare": 4}}})),
            ..case(
                "the status of a cluster queue loses what nothing reads",
                "ClusterQueue",
                json!({"status": {"pendingWorkloads": 3, "pendingWorkloadsStatus": {"lastChangeTime": "x"},
                    "fairSharing": {"weightedShare": 4, "admissionFairSharingStatus": {}}}}),
                json!({"status": {"pendingWorkloads": 3, "fairSharing": {"weightedShare": 4}}}),
            )
        },
        case(
            "a cohort object keeps its fields",
            "Cohort",
            json!({"spec": {"parentName": "root", "fairSharing": {"weight": "2"}}}),
            json!({"spec": {"parentName": "root", "fairSharing": {"weight": "2"}}}),
        ),
        Case {
            back: Some(
                json!({"status": {"flavorUsage": [{"name": "f"}], "fairSharing": {"admissionFairSharingStatus": {}}}}),
            ),
            ..case(
                "the usage of a local queue gets its other name; the list of flavors is gone",
                "LocalQueue",
                json!({"status": {"flavorUsage": [{"name": "f"}], "flavors": [{"name": "f"}],
                    "fairSharing": {"admissionFairSharingStatus": {}}}}),
                json!({"status": {"flavorsUsage": [{"name": "f"}], "fairSharing": {"admissionFairSharingStatus": {}}}}),
            )
        },
        case(
            "a cluster with a kubeconfig",
            "MultiKueueCluster",
            json!({"spec": {"kubeConfig": {"location": "secret", "locationType": "Secret"}}}),
            json!({"spec": {"clusterSource": {"kubeConfig": {"location": "secret", "locationType": "Secret"}}}}),
        ),
        case(
            "a cluster with a profile",
            "MultiKueueCluster",
            json!({"spec": {"kubeConfig": {"location": "", "locationType": ""}, "clusterProfileRef": {"name": "p"}}}),
            json!({"spec": {"clusterSource": {"clusterProfileRef": {"name": "p"}}}}),
        ),
        case(
            "a class of workload priorities",
            "Workload",
            json!({"spec": {"priority": 5, "priorityClassName": "high",
                "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass"}}),
            json!({"spec": {"priority": 5, "priorityClassRef":
                {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}}}),
        ),
        case(
            "a class of pod priorities",
            "Workload",
            json!({"spec": {"priorityClassName": "high", "priorityClassSource": "scheduling.k8s.io/priorityclass"}}),
            json!({"spec": {"priorityClassRef":
                {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "high"}}}),
        ),
        Case {
            back: Some(json!({"spec": {"queueName": "q"}})),
            ..case(
                "no source, no class",
                "Workload",
                json!({"spec": {"queueName": "q", "priorityClassSource": ""}}),
                json!({"spec": {"queueName": "q"}}),
            )
        },
        case(
            "the time of a workload",
            "Workload",
            json!({"status": {"accumulatedPastExexcutionTimeSeconds": 0}}),
            json!({"status": {"accumulatedPastExecutionTimeSeconds": 0}}),
        ),
        case(
            "places in two slices, by name of the pool",
            "Workload",
            json!({"status": {"admission": {"podSetAssignments": [{"name": "main", "topologyAssignment": {
                "levels": ["block", "kubernetes.io/hostname"],
                "domains": [
                    {"values": ["b1", "a-long-name-of-a-pool-1-node-1"], "count": 2},
                    {"values": ["b1", "a-long-name-of-a-pool-1-node-2"], "count": 2},
                    {"values": ["b2", "another-name-of-a-pool-node-1"], "count": 1},
                    {"values": ["b2", "another-name-of-a-pool-node-2"], "count": 3},
                    {"values": ["b2", "another-name-of-a-pool-node-3"], "count": 3},
                    {"values": ["b2", "another-name-of-a-pool-node-4"], "count": 3},
                    {"values": ["b2", "another-name-of-a-pool-node-5"], "count": 3},
                    {"values": ["b2", "another-name-of-a-pool-node-6"], "count": 3},
                    {"values": ["b2", "another-name-of-a-pool-node-7"], "count": 3},
                    {"values": ["b2", "another-name-of-a-pool-node-8"], "count": 3},
                ],
            }}]}}}),
            json!({"status": {"admission": {"podSetAssignments": [{"name": "main", "topologyAssignment": {
                "levels": ["block", "kubernetes.io/hostname"],
                "slices": [
                    {"domainCount": 2, "podCounts": {"universal": 2}, "valuesPerLevel": [{"universal": "b1"},
                        {"individual": {"prefix": "a-long-name-of-a-pool-1-node-", "roots": ["1", "2"]}}]},
                    {"domainCount": 8, "podCounts": {"individual": [1, 3, 3, 3, 3, 3, 3, 3]}, "valuesPerLevel": [
                        {"universal": "b2"},
                        {"individual": {"prefix": "another-name-of-a-pool-node-",
                            "roots": ["1", "2", "3", "4", "5", "6", "7", "8"]}}]},
                ],
            }}]}}}),
        ),
        case(
            "places above nodes are one slice",
            "Workload",
            json!({"status": {"admission": {"podSetAssignments": [{"topologyAssignment": {
                "levels": ["rack"], "domains": [{"values": ["ababa"], "count": 1}, {"values": ["aba"], "count": 1}]}}]}}}),
            json!({"status": {"admission": {"podSetAssignments": [{"topologyAssignment": {
                "levels": ["rack"], "slices": [{"domainCount": 2, "podCounts": {"universal": 1}, "valuesPerLevel": [
                    {"individual": {"suffix": "aba", "roots": ["ab", ""]}}]}]}}]}}}),
        ),
        case(
            "no places",
            "Workload",
            json!({"status": {"admission": {"podSetAssignments": [{"topologyAssignment": {"levels": ["rack"], "domains": []}}]}}}),
            json!({"status": {"admission": {"podSetAssignments": [{"topologyAssignment": {"levels": ["rack"], "slices": []}}]}}}),
        ),
        case(
            "kinds with equal fields change only the version",
            "ResourceFlavor",
            json!({"spec": {"nodeLabels": {"a": "b"}}}),
            json!({"spec": {"nodeLabels": {"a": "b"}}}),
        ),
    ]
}

#[test]
fn objects_are_converted_both_ways() {
    for Case { name, kind, old, new, back } in cases() {
        assert_eq!(converted(kind, OLD, NEW, &old), new, "{name}, upwards");
        assert_eq!(converted(kind, NEW, OLD, &new), back.unwrap_or(old), "{name}, downwards");
    }
}

#[test]
fn what_the_older_version_lacks_is_lost_in_it() {
    let queue = json!({"spec": {"concurrentAdmissionPolicy": {"migration": {}}}});
    assert_eq!(converted("ClusterQueue", NEW, OLD, &queue), json!({"spec": {}}));
    let workload = json!({
        "spec": {"preemptionGates": [{"name": "g"}], "podSets": [{"topologyRequest":
            {"required": "rack", "podsetSliceRequiredTopologyConstraints": []}}]},
        "status": {"preemptionGates": [{"name": "g"}]},
    });
    let old = json!({"spec": {"podSets": [{"topologyRequest": {"required": "rack"}}]}, "status": {}});
    assert_eq!(converted("Workload", NEW, OLD, &workload), old);
}

#[test]
fn fields_that_no_version_knows_survive() {
    for kind in ["ClusterQueue", "Cohort", "LocalQueue", "Workload"] {
        let object = json!({"extra": 1, "spec": {"extra": {"a": [1]}}, "status": {"extra": null}});
        assert_eq!(converted(kind, OLD, NEW, &object), object);
        assert_eq!(converted(kind, NEW, OLD, &object), object);
    }
}

#[test]
fn odd_objects_are_errors_and_stay_as_they_are() {
    let places = |version: &str, place: Value| {
        json!({"apiVersion": version, "kind": "Workload", "spec": {"priorityClassName": "a"},
            "status": {"admission": {"podSetAssignments": [{"topologyAssignment": place}]}}})
    };
    let path = "status.admission.podSetAssignments[0].topologyAssignment";
    for (mut object, to, text) in [
        (
            json!({"apiVersion": OLD, "kind": "ClusterQueue"}),
            "kueue.x-k8s.io/v1",
            "cannot convert to \"kueue.x-k8s.io/v1\": the served versions are kueue.x-k8s.io/v1beta1 and kueue.x-k8s.io/v1beta2".to_owned(),
        ),
        (
            json!({"apiVersion": "v1", "kind": "Pod"}),
            NEW,
            "cannot convert from \"v1\": the served versions are kueue.x-k8s.io/v1beta1 and kueue.x-k8s.io/v1beta2".to_owned(),
        ),
        (
            json!({"apiVersion": OLD, "kind": "Pod"}),
            NEW,
            "cannot convert an object of kind \"Pod\": the group kueue.x-k8s.io has no such kind".to_owned(),
        ),
        (
            places(OLD, json!({"levels": ["a", "b"], "domains": [{"values": ["x"]}]})),
            NEW,
            format!("cannot convert {path}.domains[0].values: has 1 values for 2 levels"),
        ),
        (
            places(NEW, json!({"levels": ["a"], "slices": [{"domainCount": 1}]})),
            OLD,
            format!("cannot convert {path}.slices[0].valuesPerLevel: has 0 entries for 1 levels"),
        ),
        (
            places(NEW, json!({"levels": [], "slices": [{"domainCount": 2, "podCounts": {"individual": [1]}}]})),
            OLD,
            format!("cannot convert {path}.slices[0].podCounts.individual: has 1 counts for 2 domains"),
        ),
        (
            places(NEW, json!({"levels": ["a"], "slices": [{"domainCount": 2, "podCounts": {"universal": 1},
                "valuesPerLevel": [{"individual": {"roots": ["x"]}}]}]})),
            OLD,
            format!("cannot convert {path}.slices[0].valuesPerLevel[0].individual.roots: has 1 values for 2 domains"),
        ),
        (
            places(NEW, json!({"levels": [], "slices": [{"domainCount": 2_000_000_000, "podCounts": {"universal": 1}}]})),
            OLD,
            format!("cannot convert {path}.slices[0].domainCount: must not be more than 100000"),
        ),
    ] {
        let before = object.clone();
        let error: ConversionError = convert(&mut object, to).unwrap_err();
        assert_eq!(error.to_string(), text);
        assert_eq!(object, before, "{text}");
    }
}

#[test]
fn wrong_types_are_no_panic() {
    for odd in [json!(null), json!(3), json!("x"), json!([1]), json!([{}]), json!({}), json!({"podSets": 1})]
    {
        for kind in ["ClusterQueue", "Cohort", "LocalQueue", "MultiKueueCluster", "Workload"] {
            for (from, to) in [(OLD, NEW), (NEW, OLD)] {
                let status = json!({"admission": {"podSetAssignments": [odd, {"topologyAssignment": odd}]}});
                let mut object = json!({"apiVersion": from, "kind": kind, "spec": odd, "status": status});
                let _ = convert(&mut object, to);
                let mut object = json!({"apiVersion": from, "kind": kind, "spec": {
                    "kubeConfig": odd, "clusterSource": odd, "flavorFungibility": odd, "admissionChecks": odd,
                    "priorityClassRef": odd, "podSets": odd}, "status": odd});
                let _ = convert(&mut object, to);
            }
        }
        let _ = convert(&mut odd.clone(), NEW);
    }
}

#[test]
fn random_places_survive_both_ways() {
    // A fixed sequence of pseudo-random numbers (Knuth's multiplier).
    let mut state = 7_u64;
    let mut below = |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    for round in 0..500 {
        let levels = ["block", "rack", "kubernetes.io/hostname"];
        let levels: Vec<String> =
            levels[usize::try_from(below(3)).unwrap()..].iter().map(|&l| l.into()).collect();
        let words = ["pool-a-", "pool-a-b-", "é", "node-", "1", "aba", "ba", "-"];
        let mut value = || {
            let parts = 1 + below(4);
            (0..parts).map(|_| words[usize::try_from(below(8)).unwrap()]).collect::<String>()
        };
        let domains = (0..round % 17)
            .map(|n| Domain { values: levels.iter().map(|_| value()).collect(), count: 1 + n % 3 })
            .collect();
        let places = TopologyAssignment { levels, domains };
        let new = places.to_v1beta2();
        assert_eq!(TopologyAssignment::from_v1beta2(&new).unwrap(), places, "{new}");
        assert_eq!(TopologyAssignment::from_v1beta1(&places.to_v1beta1()).unwrap(), places);
    }
}

#[test]
fn many_places_need_no_more_slices_than_allowed() {
    let values = |n: usize| vec![format!("pool-{}-node-{n}", n / 2)];
    let domains: Vec<Domain> = (0..5000).map(|n| Domain { values: values(n), count: 1 }).collect();
    let places = TopologyAssignment { levels: vec!["kubernetes.io/hostname".into()], domains };
    let new = places.to_v1beta2();
    assert!(new["slices"].as_array().unwrap().len() <= 1000);
    assert_eq!(TopologyAssignment::from_v1beta2(&new).unwrap(), places);
}
