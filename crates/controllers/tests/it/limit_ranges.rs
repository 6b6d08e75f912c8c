//! The charge of a pod is what the API server makes of it: its own limits, the limits of the whole pod, and a `LimitRange`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use crate::common::{Cluster, resource};
use api::limit_range::ContainerDefaults;
use api::pod::effective_request;
use kube::api::DynamicObject;
use serde_json::{Value, json};

/// Creates an object and returns it as the API server has stored it.
async fn stored(cluster: &Cluster, kind: &str, plural: &str, name: &str, spec: &Value) -> Value {
    let object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let api = cluster.api(&resource("v1", kind, plural), "default");
    let mut object = api.create(&kube::api::PostParams::default(), &object).await.unwrap();
    object.data["spec"].take()
}

#[tokio::test]
async fn a_pod_is_charged_for_what_the_api_server_makes_of_it() {
    let of_container = [
        json!(null),
        json!({"requests": {"cpu": "500m"}}),
        json!({"limits": {"cpu": 3, "memory": "3Gi"}}),
        json!({"requests": {"memory": "1Gi"}, "limits": {"memory": "2Gi"}}),
    ];
    let of_pod = [
        json!(null),
        json!({"limits": {"cpu": 8, "memory": "8Gi"}}),
        json!({"requests": {"cpu": 8}, "limits": {"memory": "8Gi"}}),
    ];
    let limits = [
        json!({"type": "Container", "defaultRequest": {"cpu": 1, "memory": "256Mi"}}),
        json!({"type": "Container", "default": {"cpu": 3, "memory": "3Gi"}}),
        json!({"type": "Container", "max": {"memory": "3Gi"}, "min": {"cpu": "250m"}}),
    ];
    // No range, each alone, and two that disagree.
    let ranges = (0..limits.len()).map(|at| vec![at]).chain([vec![], vec![0, 1], vec![1, 2]]);
    let mut cases = 0;
    for range in ranges {
        let cluster = Cluster::bare();
        let mut defaults = ContainerDefaults::default();
        for at in &range {
            let spec = json!({"limits": [limits[*at]]});
            let spec = stored(&cluster, "LimitRange", "limitranges", &format!("r{at}"), &spec).await;
            spec["limits"].as_array().unwrap().iter().for_each(|item| defaults.add(item));
        }
        for (first, second, init, whole) in combinations(&of_container, &of_pod) {
            let container =
                |name: &str, resources: &Value| json!({"name": name, "image": "i", "resources": resources});
            let mut spec = json!({"containers": [container("a", first), container("b", second)],
                "initContainers": [container("c", init)], "resources": whole});
            let pod = stored(&cluster, "Pod", "pods", &format!("p{cases}"), &spec).await;
            defaults.complete(&mut spec);
            let (charged, made) = (effective_request(&spec).unwrap(), effective_request(&pod).unwrap());
            assert_eq!(charged, made, "ranges {range:?}, pod {pod:#}");
            cases += 1;
        }
    }
    assert_eq!(cases, 6 * 4 * 4 * 4 * 3);
}

/// Resources of two containers, an init container and the whole pod.
fn combinations<'a>(
    of_container: &'a [Value],
    of_pod: &'a [Value],
) -> impl Iterator<Item = (&'a Value, &'a Value, &'a Value, &'a Value)> {
    let pairs = of_container.iter().flat_map(|first| of_container.iter().map(move |second| (first, second)));
    let triples =
        pairs.flat_map(|(first, second)| of_container.iter().map(move |init| (first, second, init)));
    triples.flat_map(|(first, second, init)| of_pod.iter().map(move |whole| (first, second, init, whole)))
}
