//! Kueue's queues, cohorts and flavors in the World.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use index::{Index, KueueChange, KueueRules, UsageRules};
use model::{
    Amount, BorrowWithinCohort, Effect, FlavorFungibilityPolicy, FlavorFungibilityPreference, FlavorResource,
    QueueingStrategy, QuotaPreemption, ReclaimWithinCohort, ResourceIx, WithinClusterQueue,
};
use serde_json::{Value, from_value, json};

fn queue(spec: &Value) -> KueueChange {
    KueueChange::ClusterQueue(
        from_value(json!({"metadata": {"name": "team", "uid": "q"}, "spec": spec})).unwrap(),
    )
}

/// An index with one queue of this spec, and the flavor `spot`.
fn index(spec: &Value) -> Index {
    let mut index = Index::new();
    let spot = json!({"metadata": {"name": "spot"}, "spec": {
        "nodeLabels": {"kind": "spot"},
        "nodeTaints": [{"key": "spot", "value": "yes", "effect": "NoSchedule"}],
        "tolerations": [{"key": "spot", "operator": "Exists"}],
    }});
    index.apply_kueue(KueueChange::Flavor(from_value(spot).unwrap()));
    index.apply_kueue(queue(spec));
    index.settle();
    index
}

fn groups(resource: &Value) -> Value {
    json!([{"coveredResources": [resource["name"]], "flavors": [{"name": "spot", "resources": [resource]}]}])
}

#[test]
fn the_fields_of_a_cluster_queue_reach_the_planner() {
    let quota =
        json!({"name": "memory", "nominalQuota": "4Gi", "borrowingLimit": "1Gi", "lendingLimit": 512});
    let index = index(&json!({
        "cohortName": "all",
        "queueingStrategy": "StrictFIFO",
        "resourceGroups": groups(&quota),
        "fairSharing": {"weight": "1500m"},
        "flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor",
            "preference": "PreemptionOverBorrowing"},
        "preemption": {"withinClusterQueue": "LowerOrNewerEqualPriority", "reclaimWithinCohort": "LowerPriority",
            "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 7}},
    }));
    let world = index.world();
    let queue = world.queues().values().find(|queue| queue.name == "team").unwrap();
    assert_eq!((queue.queueing_strategy, queue.stopped), (QueueingStrategy::StrictFifo, false));
    assert!(!queue.reserves_starts, "Kueue's strategies know no reserved start");
    let fungibility = queue.fungibility;
    assert_eq!(fungibility.when_can_borrow, FlavorFungibilityPolicy::TryNextFlavor);
    assert_eq!(fungibility.when_can_preempt, FlavorFungibilityPolicy::TryNextFlavor);
    assert_eq!(fungibility.preference, FlavorFungibilityPreference::PreemptionOverBorrowing);
    let (flavor, spot) = world.flavors().iter().find(|(_, flavor)| flavor.name == "spot").unwrap();
    assert!(spot.quota_only && spot.tolerations.len() == 1);
    assert_eq!((spot.node_taints[0].effect, spot.node_labels["kind"].as_str()), (Effect::NoSchedule, "spot"));
    assert_eq!(
        (&queue.groups[0].flavors, &queue.groups[0].resources),
        (&vec![*flavor], &vec![ResourceIx::MEMORY])
    );
    let node = world.quota_nodes().values().find(|node| Some(&node.name) == queue.quota.as_ref()).unwrap();
    assert_eq!((node.parent.as_deref(), node.weight_milli), (Some("cohort:all"), Some(1500)));
    let limits = node.limits[&FlavorResource { flavor: *flavor, resource: ResourceIx::MEMORY }];
    assert_eq!(
        (limits.nominal, limits.borrowing, limits.lending),
        (Amount(4 << 30), Some(Amount(1 << 30)), Some(Amount(512)))
    );
    let preemption = QuotaPreemption {
        within_cluster_queue: WithinClusterQueue::LowerOrNewerEqualPriority,
        reclaim_within_cohort: ReclaimWithinCohort::LowerPriority,
        borrow_within_cohort: Some(BorrowWithinCohort { max_priority_threshold: Some(7000) }),
    };
    assert_eq!(node.preemption, preemption);
}

#[test]
fn a_cohort_has_quota_and_a_parent_of_its_own() {
    let mut index = index(&json!({"cohortName": "team", "resourceGroups": []}));
    let quota = json!({"name": "cpu", "nominalQuota": 3});
    let cohort = json!({"metadata": {"name": "team"}, "spec": {
        "parentName": "root", "resourceGroups": groups(&quota), "fairSharing": {"weight": 2},
    }});
    index.apply_kueue(KueueChange::Cohort(from_value(cohort).unwrap()));
    let world = index.world();
    let node = world.quota_nodes().values().find(|node| node.name == "cohort:team").unwrap();
    assert_eq!((node.parent.as_deref(), node.weight_milli), (Some("cohort:root"), Some(2000)));
    assert_eq!(node.limits.values().map(|limits| limits.nominal).collect::<Vec<_>>(), [Amount(3000)]);
    assert_eq!(index.queue_path("team").unwrap(), "/root/team/team");
}

#[test]
fn a_queue_reserves_starts_by_its_annotation() {
    let mut index = Index::new();
    let meta = json!({"name": "team", "uid": "q", "annotations": {"muster.dev/reserve-starts": "true"}});
    let team = from_value(json!({"metadata": meta, "spec": {}})).unwrap();
    index.apply_kueue(KueueChange::ClusterQueue(team));
    assert!(index.world().queues().values().any(|queue| queue.name == "team" && queue.reserves_starts));
}

#[test]
fn a_stopped_or_broken_queue_admits_nothing() {
    let reason = |spec: &Value| {
        let index = index(spec);
        let queue = index.world().queues().values().find(|queue| queue.name == "team").unwrap().clone();
        let activity = index.cluster_queue_activity("team");
        assert_eq!(queue.stopped, !activity.is_active);
        (activity.reason, activity.message)
    };
    let quota = json!({"name": "cpu", "nominalQuota": 3});
    assert_eq!(reason(&json!({"resourceGroups": groups(&quota)})).0, "Ready");
    let (stopped, message) = reason(&json!({"stopPolicy": "Hold"}));
    assert_eq!((stopped, &*message), ("Stopped", "Can't admit new workloads: is stopped."));
    let checks = json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "b"}, {"name": "a"}]}});
    let (missing, message) = reason(&checks);
    assert_eq!(
        (missing, &*message),
        ("AdmissionCheckNotFound", "Can't admit new workloads: references missing AdmissionCheck(s): a,b.")
    );
}

#[test]
fn a_name_of_a_quota_tree_is_no_name_of_a_queue() {
    let mut index = index(&json!({"resourceGroups": []}));
    let before = index.world().quota_nodes().len();
    let subtree = json!({"metadata": {"name": "t", "uid": "t", "labels": {"tree": "clusterqueue"}},
        "spec": {"children": [{"name": "team", "quotas": {"requests": {"cpu": 1}}}]}});
    index.upsert_quota(from_value(subtree).unwrap());
    assert_eq!(index.world().quota_nodes().len(), before + 1);
}

#[test]
fn the_weights_of_local_queues_reach_the_planner() {
    let mut index = Index::new();
    let usage = UsageRules {
        half_life_us: 7,
        sampling_us: 3,
        resource_weights: [("cpu".to_owned(), 2_500_000)].into(),
    };
    index.set_kueue_rules(KueueRules { usage: Some(usage), ..KueueRules::default() });
    let quota = |name: &str| json!({"name": name, "nominalQuota": 3});
    let flavors = json!([{"name": "spot", "resources": [quota("cpu"), quota("memory")]}]);
    let spec = json!({
        "resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": flavors}],
        "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"},
    });
    index.apply_kueue(queue(&spec));
    let local = |weight: &Value| {
        let spec = json!({"clusterQueue": "team", "fairSharing": {"weight": weight}});
        KueueChange::LocalQueue(
            from_value(json!({"metadata": {"name": "one", "namespace": "ns", "uid": "l"}, "spec": spec}))
                .unwrap(),
        )
    };
    for (weight, milli) in [(json!("500m"), 500), (json!(2), 2000)] {
        index.apply_kueue(local(&weight));
        let world = index.world();
        let queue = world.queues().values().find(|queue| queue.name == "team").unwrap();
        let sharing = queue.admission_fair_sharing.as_ref().unwrap();
        assert_eq!((sharing.half_life_us, sharing.sampling_us), (7, 3));
        let weights = [(ResourceIx::CPU, 2_500), (ResourceIx::MEMORY, 1_000_000)];
        assert_eq!(sharing.resource_weights, weights.into());
        assert_eq!(sharing.weights_milli.values().copied().collect::<Vec<_>>(), [milli]);
    }
    index.apply_kueue(KueueChange::LocalQueueDeleted("l".into()));
    let queues = index.world().queues();
    let sharing = queues.values().find_map(|queue| queue.admission_fair_sharing.as_ref()).unwrap();
    assert!(sharing.weights_milli.is_empty(), "a deleted local queue has no weight");
}
