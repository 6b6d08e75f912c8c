//! Predictions for gangs: compared with what happens when the manifests are created.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::collections::BTreeMap;

use crate::common::{Cluster, Group, reason, resource, wrappers};
use controllers::{Config, GangKind, Observer, WrapperPhase, WrapperReport};
use index::assignment_from_json;
use kube::api::ListParams;
use model::GangStatus;
use serde_json::{Value, json};

async fn observer(cluster: &Cluster) -> Observer {
    let config = Config { clock: cluster.clock.clone(), preemption: true, ..Config::default() };
    Observer::of(cluster.client.clone(), config).await.unwrap()
}

/// A `StatefulSet`, which runs until it is deleted.
fn gang(name: &str, priority: u64, pods: u64, cpu: u64, run_time: Option<u64>) -> Value {
    let requests = json!({"cpu": cpu.to_string()});
    let template = json!({"metadata": {"labels": {"app": name}}, "spec": {
        "containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}]}});
    let object = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name},
        "spec": {"replicas": pods, "serviceName": name, "selector": {"matchLabels": {"app": name}}, "template": template}});
    let duration = run_time.map_or(json!({}), |expected| json!({"dispatchDuration": {"expected": expected}}));
    json!({
        "apiVersion": "mcad.ibm.com/v1beta1", "kind": "AppWrapper", "metadata": {"name": name, "namespace": "default"},
        "spec": {"priority": priority, "schedulingSpec": duration,
            "resources": {"GenericItems": [{"generictemplate": object}]}},
    })
}

/// Pseudo-random numbers from a seed. After Marsaglia, "Xorshift RNGs", 2003.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        for (left, right) in [(13, 7), (17, 0)] {
            self.0 ^= self.0 << left;
            self.0 ^= self.0 >> right.max(1);
        }
        self.0 % sides
    }

    fn gang(&mut self, name: &str) -> Value {
        let run_time = [None, Some(60), Some(3_600)][usize::try_from(self.roll(3)).unwrap()];
        gang(name, self.roll(3), 1 + self.roll(3), 1 + self.roll(4), run_time)
    }
}

/// The gangs that were preempted by this one, according to the Events.
async fn preempted_by(cluster: &Cluster, name: &str) -> Vec<String> {
    let told = format!("Preempted by default/{name},");
    let events = cluster.events().await;
    let victims = events.iter().filter(|event| event.contains(&told));
    let mut victims: Vec<_> =
        victims.map(|event| format!("default/{}", event.split(' ').next().unwrap())).collect();
    victims.sort();
    victims
}

/// The planned nodes of a gang, from the annotation of its objects.
async fn places(cluster: &Cluster, name: &str) -> BTreeMap<String, u64> {
    let sets = cluster.api(&resource("apps/v1", "StatefulSet", "statefulsets"), "default");
    let set = sets.get(name).await.unwrap();
    let assignment =
        assignment_from_json(&set.metadata.annotations.unwrap()["muster.dev/assignment"]).unwrap();
    let mut places = BTreeMap::new();
    for (node, pods) in assignment.pod_sets.into_iter().flatten() {
        *places.entry(node).or_default() += u64::from(pods);
    }
    places
}

#[tokio::test(start_paused = true)]
async fn a_created_manifest_gets_the_predicted_outcome() {
    let mut outcomes = BTreeMap::<&str, u32>::new();
    for seed in 1..=40 {
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let cluster = Cluster::new().await;
        for node in ["n-0", "n-1", "n-2"] {
            cluster.node(node, &json!({"cpu": "4", "memory": "16Gi", "pods": "110"})).await;
        }
        let _controller = cluster.preempting_controller();
        for at in 0..dice.roll(7) {
            cluster.submit(dice.gang(&format!("g-{at}"))).await;
            cluster.settled().await;
        }
        let newcomer = dice.gang("newcomer");
        let versions = versions(&cluster).await;
        let report = observer(&cluster)
            .await
            .what_if(GangKind::Wrapper(Group::Mcad), "default", newcomer.clone())
            .await
            .unwrap();
        assert_eq!(self::versions(&cluster).await, versions, "something was written, seed {seed}");

        cluster.submit(newcomer).await;
        cluster.settled().await;
        let kind = wrappers(Group::Mcad);
        let status =
            cluster.wait(&kind, "default", "newcomer", |w| w.data["status"]["state"].is_string()).await;
        let status = &status.data["status"];
        let victims = preempted_by(&cluster, "newcomer").await;
        let Some(WrapperReport { phase: WrapperPhase::Queued(expected), .. }) = report.wrapper() else {
            panic!("{report:?}, seed {seed}")
        };
        let phase = match expected {
            GangStatus::Running { places: said, .. } => {
                assert_eq!(
                    (&*victims, &said.0),
                    (&[][..], &places(&cluster, "newcomer").await),
                    "seed {seed}"
                );
                "starts"
            }
            GangStatus::Preempting { victims: said, places: on } => {
                let said: Vec<_> = said.iter().map(ToString::to_string).collect();
                assert_eq!((victims, &places(&cluster, "newcomer").await), (said, &on.0), "seed {seed}");
                "takes over"
            }
            GangStatus::Pending(wait) => {
                let said = wait.to_string();
                let said = said.split_once(". Position ").map_or(&*said, |(reason, _)| reason);
                assert_eq!((&*victims, reason(status)), (&[][..], said), "seed {seed}");
                let position = format!("Position {} of {}", wait.position.place, wait.position.of);
                let message = status["message"].as_str().unwrap();
                assert!(wait.is_never || message.contains(&position), "{message}: {position}, seed {seed}");
                "waits"
            }
            GangStatus::New | GangStatus::Preempted { .. } => panic!("{expected:?}, seed {seed}"),
        };
        *outcomes.entry(phase).or_default() += 1;
    }
    assert!(outcomes.len() == 3 && outcomes.values().all(|times| *times > 3), "{outcomes:?}");
}

/// Resource versions of all AppWrappers and objects.
async fn versions(cluster: &Cluster) -> Vec<Option<String>> {
    let mut versions = Vec::new();
    for kind in [
        wrappers(Group::Mcad),
        resource("apps/v1", "StatefulSet", "statefulsets"),
        resource("v1", "Event", "events"),
        resource("v1", "ConfigMap", "configmaps"),
    ] {
        let list = cluster.api(&kind, "").list(&ListParams::default()).await.unwrap();
        versions.extend(list.items.into_iter().map(|object| object.metadata.resource_version));
    }
    versions
}

#[tokio::test(start_paused = true)]
async fn every_appwrapper_has_a_report_and_reading_writes_nothing() {
    let cluster = Cluster::new().await;
    cluster.node("n", &json!({"cpu": "4", "memory": "16Gi", "pods": "110"})).await;
    let _controller = cluster.preempting_controller();
    for wrapper in [
        gang("runs", 5, 1, 4, Some(600)),
        gang("waits", 1, 1, 2, None),
        gang("behind", 1, 1, 3, None),
        gang("never", 1, 1, 64, None),
        gang("strong", 9, 1, 4, Some(60)),
    ] {
        cluster.submit(wrapper).await;
        cluster.settled().await;
    }
    let mut foreign = gang("fails", 1, 1, 1, None);
    foreign["spec"]["resources"]["GenericItems"] = json!([{"completionstatus": "x"}]);
    cluster.submit(foreign).await;
    cluster.settled().await;
    let observer = observer(&cluster).await;
    let asked = |name: &str| {
        let reports = observer.why("default", name);
        assert_eq!(reports.len(), 1, "{name}");
        let phase = &reports[0].wrapper().unwrap().phase;
        if let WrapperPhase::Queued(status) = phase { status.describe() } else { format!("{phase:?}") }
    };
    assert_eq!(
        asked("strong"),
        "runs since 2023-11-14T22:13:20Z on n (1 pod), expected to end at 2023-11-14T22:14:20Z"
    );
    assert_eq!(
        asked("runs"),
        "is pending, at position 1 of 4\n  statefulset: needs 4 cpu on one node; the only eligible node has none free\n  \
            start reserved for 2023-11-14T22:14:20Z, when default/strong ends"
    );
    let stopped = &observer.why("default", "runs")[0];
    assert_eq!(
        stopped.wrapper().unwrap().stopped.as_deref(),
        Some(
            "Preempted by default/strong, whose priority is 9; the priority of this gang is 5, at 2023-11-14T22:13:20Z"
        )
    );
    assert!(
        asked("waits").starts_with("is pending, at position 2 of 4, behind default/runs\n"),
        "{}",
        asked("waits")
    );
    assert!(asked("never").starts_with("is pending: it can never start on these nodes\n"));
    assert!(
        asked("fails").starts_with("Ended(Failed, \"default/fails creation failure:"),
        "{}",
        asked("fails")
    );
    assert_eq!(observer.why("default", "unknown"), []);
    assert_eq!(observer.namespaces_of("runs").into_iter().collect::<Vec<_>>(), ["default"]);
}

#[tokio::test(start_paused = true)]
async fn a_manifest_that_the_api_server_rejects_is_reported_with_its_error() {
    let cluster = Cluster::new().await;
    cluster.node("n", &json!({"cpu": "4", "memory": "16Gi", "pods": "110"})).await;
    cluster.submit(gang("there", 1, 1, 1, None)).await;
    let mut observer = observer(&cluster).await;
    let mut malformed = gang("malformed", 1, 1, 1, None);
    malformed["spec"]["priority"] = json!("high");
    for (manifest, says) in [
        (gang("there", 1, 1, 1, None), "\"there\" already exists"),
        (malformed, "spec.priority"),
        (json!({"apiVersion": "mcad.ibm.com/v1beta1", "kind": "AppWrapper", "metadata": {}}), "name"),
    ] {
        let error = observer
            .what_if(GangKind::Wrapper(Group::Mcad), "default", manifest)
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains(says), "{error}");
    }
    observer.what_if(GangKind::Wrapper(Group::Mcad), "default", gang("twice", 1, 1, 1, None)).await.unwrap();
    let again = observer
        .what_if(GangKind::Wrapper(Group::Mcad), "default", gang("twice", 1, 1, 1, None))
        .await
        .unwrap_err();
    assert!(again.to_string().contains("given twice"), "{again}");
}

#[tokio::test(start_paused = true)]
async fn pending_gangs_and_planned_manifests_have_an_expected_start() {
    let cluster = Cluster::new().await;
    cluster.node("n", &json!({"cpu": "4", "memory": "16Gi", "pods": "110"})).await;
    let _controller = cluster.controller();
    for (name, run_time) in [("runs", 60), ("first", 120), ("second", 30), ("third", 30)] {
        cluster.submit(gang(name, 1, 1, 4, Some(run_time))).await;
        cluster.settled().await;
    }
    for (name, says) in [
        ("first", "Position 1 of 3, start reserved for 2023-11-14T22:14:20Z, when default/runs ends"),
        ("second", "Position 2 of 3, expected start 2023-11-14T22:16:20Z, when default/first ends"),
        ("third", "Position 3 of 3, expected start 2023-11-14T22:16:50Z, when default/second ends"),
    ] {
        let is_told = |message: &str| message.split_once(". ").is_some_and(|(_, rest)| rest == says);
        let kind = wrappers(Group::Mcad);
        cluster
            .wait(&kind, "default", name, |w| w.data["status"]["message"].as_str().is_some_and(is_told))
            .await;
    }
    let next = gang("next", 1, 1, 4, None);
    let report =
        observer(&cluster).await.what_if(GangKind::Wrapper(Group::Mcad), "default", next).await.unwrap();
    let Some(WrapperPhase::Queued(status)) = report.wrapper().map(|report| &report.phase) else {
        panic!("{report:?}")
    };
    assert_eq!(
        status.describe_outcome(),
        "would be pending, at position 4 of 4, behind default/third\n  statefulset: needs 4 cpu on one node; the only eligible \
            node has none free\n  expected start 2023-11-14T22:17:20Z, when default/third ends"
    );
}
