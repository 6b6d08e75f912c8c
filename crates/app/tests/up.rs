//! `muster up` as a process: what it refuses, what it writes, and how it ends.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;

use common::{Up, muster, refused, up};

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn it_serves_a_cluster_and_a_page_until_it_is_told_to_end() {
    let dir = tempfile::tempdir().unwrap();
    let running = Up::start(&[], dir.path());
    assert!(running.said.starts_with("muster is ready after "), "{}", running.said);
    let kubeconfig = dir.path().join(".muster/kubeconfig");
    let config: serde_json::Value = serde_json::from_slice(&std::fs::read(&kubeconfig).unwrap()).unwrap();
    let address = running.address("API server");
    assert_eq!(config["clusters"][0]["cluster"]["server"], format!("http://{address}"));
    assert!(get(address, "/api/v1/nodes").contains("\"gpu\""));
    assert!(get(address, "/apis").contains("mcad.ibm.com"));
    assert!(get(running.address("dashboard"), "/").contains("<h1>Muster</h1>"));
    assert_eq!(running.end(), Some(0));
    assert!(!kubeconfig.exists(), "a kubeconfig of nothing is left");
}

#[test]
fn a_second_one_in_the_same_folder_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let running = Up::start(&["--dir", "here"], dir.path());
    let error = refused(&up(&["--dir", "here"], dir.path()).output().unwrap());
    assert!(error.contains("another `muster up` runs in here"), "{error}");
    assert_eq!(running.end(), Some(0));
    assert_eq!(Up::start(&["--dir", "here"], dir.path()).end(), Some(0));
}

#[test]
fn an_address_that_is_taken_is_named_with_the_flag_to_change_it() {
    let dir = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let error = refused(&muster(&["up", "--listen", &address], dir.path()).output().unwrap());
    assert!(error.contains(&address) && error.contains("--listen"), "{error}");
}

#[test]
fn an_open_door_to_other_machines_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = ["up", "--listen", "0.0.0.0:0", "--dashboard", "127.0.0.1:0"];
    let error = refused(&muster(&arguments, dir.path()).output().unwrap());
    assert!(error.contains("--tls"), "{error}");
}

#[test]
fn descriptions_that_make_no_sense_are_refused_before_anything_starts() {
    let dir = tempfile::tempdir().unwrap();
    for (arguments, says) in [
        (["--node", "cpu=many,memory=1Gi"], "cpu"),
        (["--nodes", "missing.yaml"], "missing.yaml"),
        (["--speed", "0"], "speed"),
        (["--appwrapper-group", "example.org"], "mcad.ibm.com"),
    ] {
        let error = refused(&up(&arguments, dir.path()).output().unwrap());
        assert!(error.contains(says), "{arguments:?}: {error}");
        assert!(!dir.path().join(".muster/kubeconfig").exists());
    }
}

#[test]
fn with_tls_the_kubeconfig_carries_an_authority_and_a_token_and_is_private() {
    let dir = tempfile::tempdir().unwrap();
    let running = Up::start(&["--tls"], dir.path());
    let file = dir.path().join(".muster/kubeconfig");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let config: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert!(config["clusters"][0]["cluster"]["server"].as_str().unwrap().starts_with("https://"));
    assert!(config["clusters"][0]["cluster"]["certificate-authority-data"].is_string());
    assert!(config["users"][0]["user"]["token"].is_string());
    assert_eq!(running.end(), Some(0));
}
