//! Fills of the `openb` trace.

use expect_test::{Expect, expect};
use model::Packing;
use replay::openb::Workload;
use replay::{Error, FillReport, Source};

const NODES: &str = "sn,cpu_milli,memory_mib,gpu,model
    a,64000,262144,4,T4
    b,64000,262144,2,P100";

fn workload(tasks: &str) -> Result<Workload, Error> {
    let tasks = format!("name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n{tasks}");
    Workload::read(&Source::new("nodes.csv", NODES), &Source::new("pods.csv", tasks))
}

fn filled(tasks: &str, seeds: std::ops::Range<u64>) -> FillReport {
    let packing = Packing::LeastFragmentation;
    let workload = workload(tasks).expect("the tables are well formed");
    let fill =
        |seed| (seed, workload.fill(packing, seed, true, |_| ()).expect("every plan passes the audit"));
    FillReport::of(&workload, packing, &seeds.map(fill).collect::<Vec<_>>())
}

fn rejected(tasks: &str, expected: &Expect) {
    expected.assert_eq(&workload(tasks).expect_err("the text is invalid").to_string());
}

#[test]
fn unallocated_gpus_are_whole_and_sometimes_zero_when_tasks_request_whole_gpus() {
    let report = filled("one,1000,1024,1,1000,\ntwo,1000,1024,2,1000,T4|P100", 0..20);
    assert!(report.seeds.iter().all(|seed| seed.came >= 3), "{report}");
    let whole = |unallocated: f64| unallocated >= 0.0 && unallocated.fract() == 0.0;
    assert!(report.seeds.iter().all(|seed| whole(seed.unallocated_gpus)), "{report}");
    assert!(report.seeds.iter().any(|seed| seed.unallocated_gpus == 0.0), "{report}");
}

#[test]
fn a_task_runs_only_on_the_gpu_models_of_its_gpu_spec() {
    let report = filled("t4,1000,1024,2,1000,T4", 0..1);
    // Three tasks arrive. For the third, two GPUs of another model are idle.
    let seed = report.seeds[0];
    assert_eq!((seed.came, seed.refused), (3, 1));
    assert_eq!((seed.unallocated_gpus, seed.fragmented_gpus), (2.0, 2.0));
}

#[test]
fn a_task_runs_on_any_gpu_model_when_the_table_has_no_gpu_spec() {
    let tasks = Source::new("pods.csv", "num_gpu,gpu_milli,cpu_milli,memory_mib\n2,1000,1000,1024");
    let workload =
        Workload::read(&Source::new("nodes.csv", NODES), &tasks).expect("models need not be named");
    let filled =
        workload.fill(Packing::LeastFragmentation, 0, true, |_| ()).expect("every plan passes the audit");
    assert_eq!((filled.came, filled.refused, filled.allocated_milli), (3, 0, 6000));
}

#[test]
fn two_tasks_that_request_half_a_gpu_share_one_gpu() {
    let report = filled("half,1000,1024,1,500,", 0..1);
    assert_eq!((report.seeds[0].came, report.seeds[0].refused), (12, 0));
    assert!(report.unallocated_gpus.abs() < 1e-9);
}

#[test]
fn idle_gpus_count_as_fragmented_when_the_node_has_too_little_cpu() {
    // The node has no CPU for a second task, so its other GPUs are unusable.
    let report = filled("cpu-bound,60000,1024,1,1000,", 0..1);
    let seed = report.seeds[0];
    assert_eq!((seed.came, seed.refused), (6, 4));
    assert_eq!((seed.unallocated_gpus, seed.fragmented_gpus), (4.0, 4.0));
    assert!((report.utilization - 2.0 / 6.0).abs() < 1e-9 && (report.fragmentation - 4.0 / 6.0).abs() < 1e-9);
}

#[test]
fn equal_seeds_give_equal_reports_and_different_seeds_different_orders() {
    let tasks = "a,9000,1024,1,1000,\nb,30000,1024,1,1000,\nc,40000,1024,2,1000,T4\nd,1000,200000,1,1000,";
    let text = |report: &FillReport| serde_json::to_string(report).expect("figures are JSON");
    let (first, again) = (filled(tasks, 0..8), filled(tasks, 0..8));
    assert_eq!(text(&first), text(&again));
    assert!(first.seeds.iter().any(|seed| seed.refused != first.seeds[0].refused));
}

#[test]
fn a_table_with_an_invalid_amount_is_rejected() {
    rejected(
        "a,1000,1024,1,1500,",
        &expect![
            "pods.csv:2:15: gpu_milli is `1500`, which is not between 1 and 1000 thousandths of each GPU"
        ],
    );
    rejected(
        "a,1000,1024,2,500,",
        &expect![
            "pods.csv:2:15: gpu_milli is `500`, which is not 1000: a task with several GPUs gets whole GPUs"
        ],
    );
    rejected(
        "a,1000,-1,1,1000,",
        &expect!["pods.csv:2:8: memory_mib is `-1`, which is not an integer in range"],
    );
    rejected("a,1000,1024,0,0,", &expect!["pods.csv has no tasks that ask for GPUs"]);
}
