//! Completions of the command line with the names of a cluster, as the scripts of the shells ask for them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::common::{muster, printed, run};
use crate::get::{Cluster, wait};

/// The words that may stand in the place of the last one.
fn words(dir: &Path, line: &[&str]) -> Vec<String> {
    let mut asked = muster(&["--", "muster"], dir);
    asked.args(line).env("MUSTER_COMPLETE", "bash").env("KUBECONFIG", ".muster/kubeconfig");
    asked.env("_CLAP_IFS", "\n").env("_CLAP_COMPLETE_INDEX", line.len().to_string());
    printed(&asked.output().unwrap()).lines().map(str::to_owned).collect()
}

#[test]
fn the_command_line_is_completed_with_the_names_of_the_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let cluster = Cluster::start(dir);
    cluster.job("first", 2, json!({}));
    cluster.wrapper("default", "wrapped", 1);
    wait(dir, &["get", "gangs"], "Admitted");
    let gangs = ["appwrapper/wrapped", "job/first"];
    for (line, expected) in [
        (&["why", ""][..], &gangs[..]),
        (&["why", "j"], &["job/first"]),
        (&["hold", "job/first", "-n", "def"], &["default"]),
        (&["get", "gangs", ""], &gangs),
        (&["get", "gangs", "-n", "kube-system", ""], &[]),
        (&["get", "gangs", "-A", ""], &["appwrapper/default/wrapped", "job/default/first"]),
        (&["describe", "gang", "app"], &["appwrapper/wrapped"]),
        (&["queue", "hold", ""], &["clusterqueue/shared", "localqueue/team"]),
        (&["describe", "queue", "cl"], &["clusterqueue/shared"]),
        (&["get", "nodes", ""], &["n"]),
        (&["get", "nodes", "--context", ""], &["muster"]),
        (&["get", "nodes", "--kubeconfig", "none", ""], &[]),
        (&["get", "nodes", "--as", "nobody", ""], &[]),
        (&["unh"], &["unhold"]),
    ] {
        let words = words(dir, line);
        let words: Vec<&str> =
            words.iter().map(|word| word.trim()).filter(|word| !word.starts_with('-')).collect();
        assert_eq!(words, expected, "{line:?}");
    }
}

#[test]
fn kubectl_completes_its_plugin_by_a_program() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let _cluster = Cluster::start(dir);
    let script = printed(&muster(&["completion", "kubectl"], dir).output().unwrap());
    let program = dir.join("kubectl_complete-muster");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut asked = Command::new(&program);
    asked.args(["get", "nodes", ""]).current_dir(dir).env("KUBECONFIG", ".muster/kubeconfig");
    let path = std::env::split_paths(&std::env::var_os("PATH").unwrap()).collect::<Vec<_>>();
    let bin = Path::new(env!("CARGO_BIN_EXE_muster")).parent().unwrap().to_owned();
    asked.env("PATH", std::env::join_paths([vec![bin], path].concat()).unwrap());
    let printed = printed(&asked.output().unwrap());
    assert!(printed.lines().any(|line| line == "n") && printed.ends_with("\n:4\n"), "{printed}");
    let bash = crate::common::printed(&muster(&["completion", "bash"], dir).output().unwrap());
    assert!(bash.contains("MUSTER_COMPLETE=\"bash\""), "{bash}");
    assert!(run(dir, &["completion", "tcsh"]).status.code() == Some(2));
}
