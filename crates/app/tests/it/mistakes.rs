//! Ordinary mistakes on the command line: one line that says what is wrong, where, and what to do.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::common::{Process, Up, muster, run, stderr_of_failure};

mod objects;

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
fn a_command_that_is_mistyped_says_what_to_write() {
    let dir = tempfile::tempdir().unwrap();
    for (arguments, expected) in [
        (&["up", "--listen", "8080"][..], "it has no port; write a host and a port, such as 127.0.0.1:7443"),
        (&["up", "--listen", "127.0.0.1:99999"], "\"99999\" is no port"),
        (
            &["up", "--node", "cpu=4,memory=64GB"],
            "amount of memory: \"64GB\" is not a quantity: expected a number",
        ),
        (&["up", "--node", "cpu=16,mem=64Gi"], "\"mem\" is unknown, expected count, name, label.KEY"),
        (&["up", "--speed", "fast"], "it is no number above 0; write a factor, such as 10 or 0.5"),
        (&["up", "--speed", "0"], "it is no number above 0; write a factor, such as 10 or 0.5"),
        (&["up", "--log", "x=foo"], "write a level (error, warn, info, debug, trace), or `target=level,…`"),
        (&["wy", "a"], "a similar subcommand exists: 'why'"),
        (&["why", "a", "--namespce", "b"], "a similar argument exists: '--namespace'"),
        (&["plan", "-f", "nope"], "cannot read nope: No such file or directory"),
        (&["plan"], "--filename <FILE|DIR>"),
        (&["install", "--set", "kueue.enabld=true"], "kueue.enabld: there is no such value"),
        (&["install", "--set", "replicas=abc"], "replicas: got string, want integer"),
        (&["controller", "--parts", "corr"], "there is no such part; built are appwrappers, core, scheduler"),
        (
            &["controller", "--parts", "core", "--config", "nope"],
            "cannot read the configuration nope: No such file or directory",
        ),
        (&["controller", "--leader-elect-lease-duration", "12"], "write a duration such as 15s"),
    ] {
        let error = stderr_of_failure(&without_cluster(arguments, dir.path()).output().unwrap());
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
    std::fs::write(dir.path().join("bad.yaml"), "a: [").unwrap();
    kubeconfig(dir.path(), &free_address());
    let plan = ["plan", "-f", "bad.yaml", "--kubeconfig", "config"];
    let error = stderr_of_failure(&without_cluster(&plan, dir.path()).output().unwrap());
    assert!(error.contains("line 1 column 4: unclosed bracket"), "{error}");
    let (_running, ready) = up_at("localhost:0", dir.path());
    assert!(ready.starts_with("muster is ready"), "{ready}");
}

/// A Job without a queue, a queued one, and an AppWrapper of the other kind, of one pod.
const PLANNED: &str = "
apiVersion: batch/v1
kind: Job
metadata: {name: NAME, labels: LABELS}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}}}
";

#[test]
fn a_command_for_a_cluster_says_what_it_lacks() {
    let dir = tempfile::tempdir().unwrap();
    let up = Up::start(&["--node", "count=1,name=n,cpu=4,memory=8Gi"], dir.path());
    for (name, labels) in [("free", "{}"), ("queued", "{kueue.x-k8s.io/queue-name: nope}")] {
        let text = PLANNED.replace("NAME", name).replace("LABELS", labels);
        std::fs::write(dir.path().join(format!("{name}.yaml")), text).unwrap();
    }
    for (arguments, expected) in [
        (
            &["plan", "-f", "free.yaml"][..],
            "is in no queue: give it the label kueue.x-k8s.io/queue-name, or wrap it in an AppWrapper",
        ),
        (
            &["plan", "-n", "default", "-f", "queued.yaml"],
            "LocalQueue nope doesn't exist; create it, or name another one",
        ),
        (&["why", "a", "--as", "bob"], "the ClusterRole muster-visibility has this right, and so have view"),
        (
            &["plan", "-f", "queued.yaml", "--as", "bob"],
            "User \"bob\" cannot create resource \"jobs\" in API group \"batch\" in the namespace \"default\"",
        ),
        (&["uninstall"], "no namespace has a Deployment of Muster, and muster-up-"),
    ] {
        let output = run(dir.path(), arguments);
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
    // A second cluster in this folder, and one at this address.
    let second = ["up", "--listen", "127.0.0.1:0", "--dashboard", "127.0.0.1:0"];
    let error = stderr_of_failure(&muster(&second, dir.path()).output().unwrap());
    assert!(
        error
            .contains("another `muster up` runs in .muster: stop it, or choose another directory with --dir"),
        "{error}"
    );
    let address = up.address("API server");
    let same = ["up", "--dir", "other", "--listen", address, "--dashboard", "127.0.0.1:0"];
    let error = stderr_of_failure(&muster(&same, dir.path()).output().unwrap());
    assert!(error.contains("choose another address with --listen, such as 127.0.0.1:0"), "{error}");
    assert_eq!(up.end(), Some(0));
}
