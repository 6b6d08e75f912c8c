//! A controller is killed between any two of its writes; the next one continues.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use crate::common::mortal::Mortal;
use crate::common::{Cluster, Group, config_maps, ray_clusters, story, wrappers};
use kube::api::DynamicObject;
use serde_json::{Value, json};

fn wrapper(name: &str, objects: &[Value], scheduling: &Value) -> Value {
    let items: Vec<_> = objects.iter().map(|object| json!({"generictemplate": object})).collect();
    json!({
        "apiVersion": "mcad.ibm.com/v1beta1", "kind": "AppWrapper", "metadata": {"name": name, "namespace": "default"},
        "spec": {"resources": {"GenericItems": items}, "schedulingSpec": scheduling},
    })
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

fn cluster_of(name: &str, cpu: &str) -> Value {
    let pod = json!({"spec": {"containers": [{"name": "ray", "image": "ray", "resources": {"requests": {"cpu": cpu}}}]}});
    json!({"apiVersion": "ray.io/v1alpha1", "kind": "RayCluster", "metadata": {"name": name},
        "spec": {"headGroupSpec": {"template": pod}}})
}

/// Creates a gang that fits, one that has to wait for it, and one that fails halfway; then deletes the first.
async fn story_of(cluster: &Cluster) {
    cluster.submit(wrapper("first", &[config_map("first"), cluster_of("first", "10")], &json!({}))).await;
    cluster.submit(wrapper("fails", &[config_map("fails"), config_map("foreign")], &json!({}))).await;
    cluster.submit(wrapper("second", &[config_map("second"), cluster_of("second", "12")], &json!({}))).await;
}

/// Names and uids of the existing objects.
async fn identities(cluster: &Cluster, namespace: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for kind in [config_maps(), ray_clusters()] {
        let list = cluster.api(&kind, namespace).list(&kube::api::ListParams::default()).await.unwrap();
        let identity = |object: DynamicObject| {
            (format!("{} {}", kind.kind, object.metadata.name.unwrap()), object.metadata.uid.unwrap())
        };
        found.extend(list.items.into_iter().map(identity));
    }
    found
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_at_any_write_each_object_exists_once_and_no_gang_is_half_started() {
    let mut crashes = 0;
    for lifetime in 1.. {
        let cluster = Cluster::new().await;
        cluster.node("n", &json!({"cpu": "16", "memory": "64Gi", "pods": "110"})).await;
        cluster.create_as(&config_maps(), "default", config_map("foreign")).await;
        let mortal = Mortal::after_writes(&cluster, lifetime);
        let first = cluster.controller_over(mortal.client.clone());
        story_of(&cluster).await;

        // The first controller is killed during the story, or after it.
        let before = async {
            cluster.wait_state(Group::Mcad, "first", "Running", "Dispatched").await;
            cluster.wait_state(Group::Mcad, "fails", "Failed", "Failed").await;
            cluster.wait_state(Group::Mcad, "second", "Pending", "HeadOfLine").await;
            cluster.delete(&wrappers(Group::Mcad), "default", "first").await;
            cluster.wait_state(Group::Mcad, "second", "Running", "Dispatched").await;
            cluster.settled().await;
        };
        let died = tokio::select! {
            biased;
            () = mortal.death.notified() => true,
            () = before => false,
        };
        let existed = identities(&cluster, "default").await;
        drop(first);
        let _second = cluster.controller();
        let first_gone =
            cluster.api(&wrappers(Group::Mcad), "default").get_opt("first").await.unwrap().is_none();
        if !first_gone {
            let status = cluster.wait_state(Group::Mcad, "first", "Running", "Dispatched").await;
            let dispatches = story(&status).iter().filter(|line| line.starts_with("Dispatched")).count();
            assert_eq!(dispatches, 1, "killed after write {lifetime}");
            let status = cluster.wait_state(Group::Mcad, "second", "Pending", "HeadOfLine").await;
            assert_eq!(status.get("canrun"), None, "killed after write {lifetime}");
            let exists = identities(&cluster, "default").await;
            for (name, uid) in existed.iter().filter(|(name, _)| name.ends_with(" first")) {
                assert!(
                    exists.contains(&(name.clone(), uid.clone())),
                    "{name} was made twice, killed after write {lifetime}"
                );
            }
            assert!(
                !exists.iter().any(|(name, _)| name.ends_with(" second")),
                "half started after write {lifetime}"
            );
            cluster.delete(&wrappers(Group::Mcad), "default", "first").await;
        }
        let failed = cluster.wait_state(Group::Mcad, "fails", "Failed", "Failed").await;
        assert_eq!(
            story(&failed).last().unwrap(),
            "Failed ItemCreationFailure. default/fails creation failure: configmaps \"foreign\" already exists"
        );
        cluster.wait_state(Group::Mcad, "second", "Running", "Dispatched").await;
        cluster.wait_gone(&ray_clusters(), "default", "first").await;
        cluster.wait_gone(&config_maps(), "default", "first").await;
        let mut names: Vec<_> =
            identities(&cluster, "default").await.into_iter().map(|(name, _)| name).collect();
        names.retain(|name| !name.contains("kube-root-ca"));
        assert_eq!(
            names,
            ["ConfigMap foreign", "ConfigMap second", "RayCluster second"],
            "killed after write {lifetime}"
        );
        if !died {
            break;
        }
        crashes += 1;
    }
    assert!(crashes > 10, "only {crashes} writes were covered");
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_at_any_write_a_requeued_gang_is_queued_again() {
    let scheduling = json!({"minAvailable": 1, "requeuing": {"timeInSeconds": 60, "growthType": "none"}});
    let mut crashes = 0;
    for lifetime in 1.. {
        let cluster = Cluster::new().await;
        cluster.node("n", &json!({"cpu": "16", "memory": "64Gi", "pods": "110"})).await;
        let mortal = Mortal::after_writes(&cluster, lifetime);
        let first = cluster.controller_over(mortal.client.clone());
        cluster.submit(wrapper("w", &[config_map("w"), cluster_of("w", "10")], &scheduling)).await;
        let again = |wrapper: &DynamicObject| {
            wrapper.data["status"]["numberOfRequeueings"] == 1
                && wrapper.data["status"]["queuejobstate"] == "Dispatched"
        };
        let kind = wrappers(Group::Mcad);
        let died = tokio::select! {
            biased;
            () = mortal.death.notified() => true,
            _ = cluster.wait(&kind, "default", "w", again) => false,
        };
        drop(first);
        let _second = cluster.controller();
        let status = cluster.wait(&kind, "default", "w", again).await.data["status"].clone();
        let message = "Insufficient number of Running pods, minimum=1, running=0.";
        assert_eq!(
            story(&status),
            [
                "Init".to_owned(),
                "Queueing AwaitingHeadOfLine".into(),
                "HeadOfLine FrontOfQueue.".into(),
                "Dispatched AppWrapperRunnable".into(),
                format!("PreemptCandidate MinPodsNotRunning {message}"),
                format!("Backoff PreemptionTriggered {message}"),
            ],
            "killed after write {lifetime}"
        );
        assert_eq!(cluster.names(&ray_clusters(), "default").await, ["w"], "killed after write {lifetime}");
        if !died {
            break;
        }
        crashes += 1;
    }
    assert!(crashes > 6, "only {crashes} writes were covered");
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_at_any_write_a_preempted_gang_is_queued_again() {
    let prioritised = |name: &str, priority: i32, cpu: &str| {
        let mut wrapper = wrapper(name, &[config_map(name), cluster_of(name, cpu)], &json!({}));
        wrapper["spec"]["priority"] = json!(priority);
        wrapper
    };
    let mut crashes = 0;
    for lifetime in 1.. {
        let cluster = Cluster::new().await;
        cluster.node("n", &json!({"cpu": "16", "memory": "64Gi", "pods": "110"})).await;
        let mortal = Mortal::after_writes(&cluster, lifetime);
        let first = cluster.controller_with(mortal.client.clone(), true);
        let kind = wrappers(Group::Mcad);
        let before = async {
            cluster.submit(prioritised("weak", 1, "10")).await;
            cluster.wait_state(Group::Mcad, "weak", "Running", "Dispatched").await;
            cluster.submit(prioritised("bystander", 1, "4")).await;
            cluster.wait_state(Group::Mcad, "bystander", "Running", "Dispatched").await;
            cluster.submit(prioritised("strong", 9, "12")).await;
            cluster.wait_state(Group::Mcad, "strong", "Running", "Dispatched").await;
            cluster.wait_state(Group::Mcad, "weak", "Pending", "HeadOfLine").await;
            cluster.settled().await;
        };
        let died = tokio::select! {
            biased;
            () = mortal.death.notified() => true,
            () = before => false,
        };
        drop(first);
        let _second = cluster.controller_with(cluster.client.clone(), true);
        for wrapper in
            [prioritised("weak", 1, "10"), prioritised("bystander", 1, "4"), prioritised("strong", 9, "12")]
        {
            let name = wrapper["metadata"]["name"].as_str().unwrap().to_owned();
            if cluster.api(&kind, "default").get_opt(&name).await.unwrap().is_none() {
                cluster.submit(wrapper).await;
                cluster.settled().await;
            }
        }
        let strong = cluster.wait_state(Group::Mcad, "strong", "Running", "Dispatched").await;
        assert_eq!(dispatches(&strong), 1, "killed after write {lifetime}");
        let weak = cluster.wait_state(Group::Mcad, "weak", "Pending", "HeadOfLine").await;
        let preempted = story(&weak).iter().filter(|line| line.starts_with("Preempted ")).count();
        assert_eq!(preempted, 1, "killed after write {lifetime}");
        cluster.wait_state(Group::Mcad, "bystander", "Running", "Dispatched").await;
        assert_eq!(
            cluster.names(&ray_clusters(), "default").await,
            ["bystander", "strong"],
            "killed after write {lifetime}"
        );
        cluster.delete(&kind, "default", "strong").await;
        let weak = cluster.wait_state(Group::Mcad, "weak", "Running", "Dispatched").await;
        assert_eq!(dispatches(&weak), 1, "killed after write {lifetime}");
        assert_eq!(
            cluster.names(&ray_clusters(), "default").await,
            ["bystander", "weak"],
            "killed after write {lifetime}"
        );
        if !died {
            break;
        }
        crashes += 1;
    }
    assert!(crashes > 15, "only {crashes} writes were covered");
}

fn dispatches(status: &Value) -> usize {
    story(status).iter().filter(|line| line.starts_with("Dispatched")).count()
}
