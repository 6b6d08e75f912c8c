//! The metrics of clusters.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use clusters::ClustersConfig;
use controllers::{Config, Controller, Meter, Role};

use crate::common::*;

#[tokio::test(start_paused = true)]
async fn clusters_and_what_runs_there_are_counted_by_the_names_of_multikueue() {
    let world = World::new(&[("east", 4)]).await;
    let (death, meter) = (Death::default(), Meter::default());
    let config = ClustersConfig { meter: meter.clone(), ..world.config(&death) };
    let _loop = world.start_with(config, &death);
    let serving = Controller::new(world.hub.client.clone(), Config { meter, ..Config::default() });
    let text = || serving.metrics().text(Role::Leader);
    let has = |line: &str| {
        let text = text();
        assert!(text.lines().any(|known| known == line), "{line} in\n{text}");
    };
    let workload = world.submit("train", 2).await;
    world.runs("train", &workload).await;
    let labels = "{cluster_queue=\"team\",cluster=\"east\",replica_role=\"leader\"}";
    has(&format!("multikueue_workloads_dispatched_total{labels} 1"));
    has(&format!("multikueue_workloads_admitted_total{labels} 1"));
    has("muster_cluster_connected{cluster=\"east\"} 1");
    has("muster_cluster_gangs{cluster=\"east\"} 1");
    world.workers["east"].cut();
    let members = kueue("MultiKueueCluster", "multikueueclusters");
    world.hub.wait(&members, "east", |c| is(c, "Active", "False", "ClientConnectionFailed")).await;
    has("muster_cluster_connected{cluster=\"east\"} 0");
    has("muster_cluster_gangs{cluster=\"east\"} 1");
    world.workers["east"].restore();
    world.workers["east"].complete("train").await;
    world.hub.wait(&workloads(), &workload, |w| is(w, "Finished", "True", "Succeeded")).await;
    has("muster_cluster_connected{cluster=\"east\"} 1");
    world.hub.delete(&members, "", "east").await;
    let begin = tokio::time::Instant::now();
    while text().contains("east") {
        assert!(begin.elapsed() < std::time::Duration::from_mins(1), "{}", text());
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
}
