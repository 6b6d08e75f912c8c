//! The commands that wait for a gang, change it, or help a shell: exit codes, texts, and what they write.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::common::{muster, printed, run, stderr_of_failure};
use crate::get::Cluster;

/// Repeats a command until it prints a text.
fn wait(dir: &Path, arguments: &[&str], text: &str) {
    let begin = Instant::now();
    loop {
        let output = run(dir, arguments);
        if String::from_utf8_lossy(&output.stdout).contains(text) {
            return;
        }
        assert!(begin.elapsed() < Duration::from_mins(1), "{arguments:?}: {output:?}");
    }
}

#[test]
fn exit_codes_tell_whether_a_gang_runs_waits_or_can_never_start() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let cluster = Cluster::start(dir);
    cluster.job("first", 2, json!({}));
    wait(dir, &["why", "job/first"], "is admitted");
    cluster.job("second", 1, json!({}));
    cluster.job("huge", 3, json!({}));
    wait(dir, &["why", "job/second"], "is pending");
    wait(dir, &["why", "job/huge"], "can never start");
    let code = |arguments: &[&str]| run(dir, arguments).status.code();
    for (name, expected) in [("job/first", 0), ("job/second", 3), ("job/huge", 4), ("job/none", 1)] {
        assert_eq!(code(&["why", name, "--exit-code"]), Some(expected), "{name}");
    }
    assert_eq!(code(&["why", "job/huge"]), Some(0), "only with --exit-code");
    let folder = dir.join("manifests");
    std::fs::create_dir(&folder).unwrap();
    let manifest = |name: &str, cpu: u32| {
        let template = json!({"spec": {"restartPolicy": "Never",
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}});
        json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": template},
            "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "team"}}})
        .to_string()
    };
    std::fs::write(folder.join("b.json"), manifest("later", 1)).unwrap();
    std::fs::write(
        folder.join("a.yaml"),
        format!("{}\n---\n{{apiVersion: v1, kind: Service}}\n", manifest("never", 3)),
    )
    .unwrap();
    std::fs::write(folder.join("README.md"), "text").unwrap();
    std::fs::write(folder.join("empty.yml"), "# nothing\n").unwrap();
    let planned = run(dir, &["plan", "-f", "manifests", "-f", "manifests/b.json", "--exit-code"]);
    assert!(String::from_utf8_lossy(&planned.stderr).contains("is given twice"), "{planned:?}");
    let planned = run(dir, &["plan", "-f", "manifests", "--exit-code", "-o", "yaml"]);
    assert_eq!(planned.status.code(), Some(4), "{planned:?}");
    let left_out = String::from_utf8_lossy(&planned.stderr);
    assert!(left_out.contains("left out: manifests/a.yaml: document 2: Service of v1"), "{left_out}");
    let text = String::from_utf8(planned.stdout).unwrap();
    assert!(text.find("job-never").unwrap() < text.find("job-later").unwrap(), "{text}");
    assert_eq!(code(&["plan", "-f", "manifests/b.json", "--exit-code"]), Some(3));

    let timed_out = run(dir, &["why", "job/second", "--wait", "--timeout", "1s"]);
    assert!(stderr_of_failure(&timed_out).contains("is not met after"), "{timed_out:?}");
    printed(&run(dir, &["why", "job/first", "--wait", "--timeout", "1s"]));
    for (arguments, expected) in [
        (&["why", "job/first", "-A"][..], "muster get gangs -A"),
        (&["why", "job/first", "-w"], "muster why --wait"),
        (&["wy"], "a similar subcommand exists: 'why'"),
        (&["get", "gnags"], "'gangs'"),
    ] {
        let output = run(dir, arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let error = stderr_of_failure(&output);
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
    assert_eq!(cluster.running.end(), Some(0));
}

#[test]
fn a_gang_and_a_queue_are_held_requeued_and_prioritized_by_what_kubectl_could_write() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let cluster = Cluster::start(dir);
    let class = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "urgent"}, "value": 7});
    cluster.create("/apis/kueue.x-k8s.io/v1beta2/workloadpriorityclasses", &class);
    cluster.job("first", 2, json!({}));
    wait(dir, &["why", "job/first"], "is admitted");
    let done = printed(&run(dir, &["hold", "job/first"]));
    assert!(done.starts_with("workloads.kueue.x-k8s.io/job-first-") && done.ends_with(" held\n"), "{done}");
    wait(dir, &["why", "job/first"], "spec.active is false");
    assert!(printed(&run(dir, &["hold", "first"])).ends_with("is held already\n"));
    let error = stderr_of_failure(&run(dir, &["requeue", "first"]));
    assert!(error.contains("is held: it waits again after `muster unhold`"), "{error}");
    printed(&run(dir, &["unhold", "first"]));
    wait(dir, &["why", "job/first"], "is admitted");
    cluster.job("second", 2, json!({}));
    wait(dir, &["why", "job/second"], "is pending");
    assert!(printed(&run(dir, &["requeue", "job/second"])).ends_with("waits already\n"));
    for (value, priority) in [("urgent", "priority: 7"), ("-3", "priority: -3")] {
        let name = if value == "urgent" { "job/second" } else { "appwrapper/wrapped" };
        if value == "-3" {
            cluster.wrapper("default", "wrapped", 100);
            wait(dir, &["why", name], "can never start");
        }
        printed(&run(dir, &["prioritize", name, value]));
        wait(dir, &["why", name, "-o", "yaml"], priority);
    }
    // The first one gives way: it waits behind the other.
    assert!(printed(&run(dir, &["requeue", "first"])).ends_with(" requeued\n"));
    wait(dir, &["why", "job/second"], "is admitted");
    wait(dir, &["why", "job/first"], "is pending");
    for (arguments, expected) in [
        (
            &["prioritize", "first", "urgnet"][..],
            "\"urgnet\" is neither a number nor a WorkloadPriorityClass; there are urgent",
        ),
        (&["prioritize", "wrapped", "urgent"], "has a number as its priority, and no class"),
        (
            &["hold", "wrapped"],
            "cannot be held: AppWrappers of workload.codeflare.dev/v1beta1 have no field for it",
        ),
        (&["hold", "nothing"], "there is no nothing"),
        (&["hold", "job/second", "--as", "tenant"], "tenant"),
        (&["queue", "hold", "none"], "there is no queue none"),
        (&["queue", "hold", "node/n"], "\"node\" is no kind of queue; known are localqueue and clusterqueue"),
    ] {
        let error = stderr_of_failure(&run(dir, arguments));
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
    assert_eq!(printed(&run(dir, &["queue", "drain", "team"])), "localqueue.kueue.x-k8s.io/team draining\n");
    wait(dir, &["get", "queues", "lq/team"], "Draining");
    wait(dir, &["why", "job/second"], "cannot be queued");
    assert!(
        stderr_of_failure(&run(dir, &["queue", "hold", "shared", "--as", "tenant"]))
            .contains("that you may read")
    );
    printed(&run(dir, &["queue", "resume", "team"]));
    printed(&run(dir, &["queue", "hold", "clusterqueue/shared"]));
    wait(dir, &["get", "queues", "shared"], "Held");
    printed(&run(dir, &["queue", "resume", "cq/shared"]));
    wait(dir, &["get", "gangs"], "Admitted");
    assert_eq!(cluster.running.end(), Some(0));
}

#[test]
fn shells_get_completions_and_man_pages_and_kubectl_a_plugin() {
    let dir = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let script = printed(&muster(&["completion", shell], dir.path()).output().unwrap());
        assert!(script.contains("MUSTER_COMPLETE") && script.contains("muster"), "{shell}");
    }
    printed(&muster(&["man", "pages/man1"], dir.path()).output().unwrap());
    for page in ["muster.1", "muster-why.1", "muster-get-gangs.1", "muster-queue-drain.1"] {
        let text = std::fs::read_to_string(dir.path().join("pages/man1").join(page)).unwrap();
        assert!(text.contains(".SH SYNOPSIS"), "{page}");
    }
    let plugin = dir.path().join("kubectl-muster");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_muster"), &plugin).unwrap();
    let help = printed(&Command::new(&plugin).args(["get", "gangs", "--help"]).output().unwrap());
    assert!(help.contains("Usage: kubectl muster get gangs [OPTIONS]"), "{help}");
    let flags = printed(&muster(&["controller", "--help"], dir.path()).output().unwrap());
    assert!(flags.contains("Leader election:") && !flags.contains("--cpuprofile"), "{flags}");
}
