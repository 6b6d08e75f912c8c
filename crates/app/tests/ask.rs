//! `muster why` and `muster plan` as processes: what they print, and what they refuse.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};

use common::{Up, muster, refused};
use serde_json::Value;

fn job(name: &str, cpu: u32) -> String {
    format!(
        "apiVersion: mcad.ibm.com/v1beta1\nkind: AppWrapper\nmetadata: {{name: {name}}}\nspec: {{resources: {{GenericItems: [{{generictemplate: \
            {{apiVersion: batch/v1, kind: Job, metadata: {{name: {name}}}, spec: {{template: {{spec: {{restartPolicy: Never, \
            containers: [{{name: c, image: i, resources: {{requests: {{cpu: {cpu}}}}}}}]}}}}}}}}}}]}}}}\n"
    )
}

fn ask(dir: &Path, arguments: &[&str], input: &str) -> Output {
    let kubeconfig = ["--kubeconfig", ".muster/kubeconfig"];
    let mut child = muster(&[arguments, &kubeconfig].concat(), dir).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).ok();
    child.wait_with_output().unwrap()
}

fn printed(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn several_manifests_are_judged_one_after_the_other_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let running = Up::start(&["--node", "count=1,name=n,cpu=4,memory=16Gi"], dir.path());
    let both = format!("{}---\n{}", job("first", 3), job("second", 2));
    std::fs::write(dir.path().join("both.yaml"), &both).unwrap();
    let from_file = printed(&ask(dir.path(), &["plan", "-f", "both.yaml"], ""));
    assert!(from_file.starts_with("default/first would start now, on n (1 pod)\n"), "{from_file}");
    assert!(from_file.contains("default/second would be pending, at position 1 of 1\n"), "{from_file}");
    let accounts = printed(&ask(dir.path(), &["plan", "-f", "-", "-o", "json"], &both));
    let accounts: Value = serde_json::from_str(&accounts).unwrap();
    assert_eq!(accounts[0]["state"], "placed");
    assert_eq!(accounts[1]["start"]["after"], "default/first");
    let nothing = refused(&ask(dir.path(), &["why", "first"], ""));
    assert!(nothing.contains("no AppWrapper is named default/first"), "{nothing}");
    assert_eq!(running.end(), Some(0));
}

#[test]
fn what_cannot_be_judged_is_refused_with_what_is_wrong_and_where() {
    let dir = tempfile::tempdir().unwrap();
    let running = Up::start(&["--appwrapper-group", "mcad.ibm.com"], dir.path());
    let foreign = job("a", 1).replace("mcad.ibm.com", "workload.codeflare.dev");
    for (arguments, input, says) in [
        (&["plan", "-f", "missing.yaml"][..], "", "cannot read missing.yaml"),
        (&["plan", "-f", "-"], "kind: [", "standard input: "),
        (&["plan", "-f", "-"], "", "there is no AppWrapper in it"),
        (
            &["plan", "-f", "-"],
            "{kind: Job, apiVersion: batch/v1}",
            "document 1: Job of batch/v1 is not queued",
        ),
        (&["plan", "-f", "-"], &foreign, "this cluster serves no appwrappers.workload.codeflare.dev"),
        (&["plan", "-f", "-"], "{kind: AppWrapper, apiVersion: mcad.ibm.com/v1beta1}", "metadata"),
        (&["why", "kube-system/none"], "", "no AppWrapper is named kube-system/none"),
        (&["why", "a", "--context", "other"], "", "other"),
    ] {
        let error = refused(&ask(dir.path(), arguments, input));
        assert!(error.contains(says), "{arguments:?} {input}: {error}");
    }
    let address = running.address("API server").to_owned();
    assert_eq!(running.end(), Some(0));
    let kubeconfig = serde_json::json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "c", "user": {}}], "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}]});
    std::fs::write(dir.path().join(".muster/kubeconfig"), kubeconfig.to_string()).unwrap();
    let error = refused(&ask(dir.path(), &["why", "a"], ""));
    assert!(error.contains("the cluster does not answer"), "{error}");
}
