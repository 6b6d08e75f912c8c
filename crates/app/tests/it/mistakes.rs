//! Ordinary mistakes on the command line: one line that says what is wrong, where, and what to do.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::common::{Process, muster, stderr_of_failure};

/// The kubeconfig of a cluster at this address, in the folder.
fn kubeconfig(dir: &Path, address: &str) {
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "c", "user": {}}], "contexts": [
            {"name": "c", "context": {"cluster": "c", "user": "c"}}, {"name": "d", "context": {"cluster": "c", "user": "c"}}]});
    std::fs::write(dir.join("config"), kubeconfig.to_string()).unwrap();
}

/// An address at which nobody listens.
fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// A cluster with its API server at this address, and the first line that it prints.
fn up_at(address: &str, dir: &Path) -> (Process, String) {
    let flags = ["up", "--listen", address, "--dashboard", "127.0.0.1:0"];
    let mut running = Process(muster(&flags, dir).stdout(Stdio::piped()).spawn().unwrap());
    let mut ready = String::new();
    BufReader::new(running.0.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    (running, ready)
}

fn without_cluster(arguments: &[&str], dir: &Path) -> Command {
    let mut command = muster(arguments, dir);
    command.env_remove("KUBECONFIG").env("HOME", dir).env_remove("KUBERNETES_SERVICE_HOST");
    command
}

#[test]
fn a_cluster_that_is_not_found_is_named_once_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let address = free_address();
    kubeconfig(dir.path(), &address);
    for (arguments, variable, expected) in [
        (
            &["why", "a", "--kubeconfig", "nope"][..],
            None,
            "muster: cannot read the kubeconfig nope: No such file or directory (os error 2)\n".to_owned(),
        ),
        (
            &["why", "a"],
            Some("nope:neither"),
            "muster: KUBECONFIG names nope:neither, which does not exist\n".into(),
        ),
        (&["why", "a"], None, "muster: no cluster is configured: set --kubeconfig or KUBECONFIG\n".into()),
        (
            &["why", "a", "--context", "e"],
            Some("nope:config"),
            "muster: the kubeconfig has no context e; it has c, d\n".into(),
        ),
        (
            &["why", "a", "--kubeconfig", "config"],
            None,
            format!(
                "muster: cannot reach the cluster at http://{address}/: Connection refused (os error 111)\n"
            ),
        ),
    ] {
        let mut command = without_cluster(arguments, dir.path());
        command.envs(variable.map(|variable| ("KUBECONFIG", variable)));
        assert_eq!(stderr_of_failure(&command.output().unwrap()), expected, "{arguments:?}");
    }
}

#[test]
fn a_controller_waits_for_a_cluster_that_does_not_answer_yet() {
    let dir = tempfile::tempdir().unwrap();
    let address = free_address();
    kubeconfig(dir.path(), &address);
    let mut command = without_cluster(&["controller", "--kubeconfig", "config"], dir.path());
    let mut controller = Process(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let mut said = String::new();
    let mut errors = BufReader::new(controller.0.stderr.take().unwrap());
    errors.read_line(&mut said).unwrap();
    assert!(said.contains(&format!("cannot reach the cluster at http://{address}/")), "{said}");
    assert!(said.ends_with("waiting for it\n"), "{said}");
    let _running = up_at(&address, dir.path());
    let mut printed = String::new();
    BufReader::new(controller.0.stdout.take().unwrap()).read_line(&mut printed).unwrap();
    assert!(printed.starts_with("muster controls a cluster"), "{printed}");
}

#[test]
fn flags_of_muster_up_say_what_to_write_and_take_host_names() {
    let dir = tempfile::tempdir().unwrap();
    for (flags, expected) in [
        (["--listen", "8080"], "it has no port; write a host and a port, such as 127.0.0.1:7443"),
        (["--listen", "127.0.0.1:99999"], "\"99999\" is no port"),
        (["--node", "cpu=4,memory=64GB"], "amount of memory: \"64GB\" is not a quantity: expected a number"),
    ] {
        let output = muster(&[&["up"][..], &flags].concat(), dir.path()).output().unwrap();
        let error = stderr_of_failure(&output);
        assert!(error.contains(expected), "{flags:?}: {error}");
    }
    let (_running, ready) = up_at("localhost:0", dir.path());
    assert!(ready.starts_with("muster is ready"), "{ready}");
}
