//! The basic behaviour of MCAD: gangs that fit run; others are queued without creating a pod.

use crate::common::{Cluster, Group, example, of_mcad, ray_clusters, renamed, rest, story, wrappers};
use serde_json::json;

const DISPATCHED: [&str; 4] =
    ["Init", "Queueing AwaitingHeadOfLine", "HeadOfLine FrontOfQueue.", "Dispatched AppWrapperRunnable"];
const QUEUED: [&str; 4] = [
    "Init",
    "Queueing AwaitingHeadOfLine",
    "HeadOfLine FrontOfQueue.",
    "Backoff AppWrapperNotRunnable. Insufficient resources to dispatch AppWrapper.",
];

#[tokio::test(start_paused = true)]
async fn the_second_appwrapper_is_queued_until_the_first_is_deleted() {
    let cluster = Cluster::new().await;
    cluster.default_nodes().await;
    let _controller = cluster.controller();
    cluster.submit(of_mcad(example("aw-raycluster.yaml"))).await;
    let status = cluster.wait_state(Group::Mcad, "raycluster-autoscaler", "Running", "Dispatched").await;
    assert_eq!(story(&status), DISPATCHED);
    assert_eq!(
        rest(&status),
        json!({
            "canrun": true, "filterignore": true, "queuejobstate": "Dispatched",
            "sender": "before manageQueueJob - afterEtcdDispatching", "state": "Running",
        })
    );
    assert_eq!(cluster.names(&ray_clusters(), "default").await, ["raycluster-autoscaler"]);

    let second =
        renamed(of_mcad(example("aw-raycluster.yaml")), "raycluster-autoscaler-1", "raycluster-autoscaler-1");
    cluster.submit(second).await;
    let status = cluster.wait_state(Group::Mcad, "raycluster-autoscaler-1", "Pending", "HeadOfLine").await;
    assert_eq!(story(&status), QUEUED);
    assert_eq!(
        rest(&status),
        json!({
            "filterignore": true, "queuejobstate": "HeadOfLine", "sender": "before ScheduleNext - setHOL", "state": "Pending",
            "queue": {"position": "1 of 1", "start": "unknown"},
            "message": "needs 20 cpu in total (declared); 12 of 32 cpu are free on 2 eligible nodes. \
                Position 1 of 1, start unknown: default/raycluster-autoscaler declares no run time \
                (set spec.schedulingSpec.dispatchDuration.expected)",
        })
    );
    assert_eq!(cluster.names(&ray_clusters(), "default").await, ["raycluster-autoscaler"]);

    cluster.delete(&wrappers(Group::Mcad), "default", "raycluster-autoscaler").await;
    let status = cluster.wait_state(Group::Mcad, "raycluster-autoscaler-1", "Running", "Dispatched").await;
    assert_eq!(story(&status)[..4], QUEUED);
    assert_eq!(story(&status)[4], "Dispatched AppWrapperRunnable");
    assert_eq!(status.get("message"), None);
    cluster.wait_gone(&ray_clusters(), "default", "raycluster-autoscaler").await;
    assert_eq!(cluster.names(&ray_clusters(), "default").await, ["raycluster-autoscaler-1"]);
}
