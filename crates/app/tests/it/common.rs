//! Runs `muster` as a process.
#![allow(dead_code, reason = "each test file uses only some of these functions")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

pub(crate) fn muster(arguments: &[&str], dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
    command
        .args(arguments)
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

pub(crate) const ANY_PORT: [&str; 5] = ["up", "--listen", "127.0.0.1:0", "--dashboard", "127.0.0.1:0"];

pub(crate) fn up(arguments: &[&str], dir: &Path) -> Command {
    muster(&[&ANY_PORT[..], arguments].concat(), dir)
}

/// A running `muster up`; killed on drop.
pub(crate) struct Up {
    child: Child,
    /// What it printed when it was ready.
    pub(crate) output: String,
}

impl Up {
    pub(crate) fn start(arguments: &[&str], dir: &Path) -> Self {
        let mut child = up(arguments, dir).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let printed = if arguments.contains(&"--api-only") { 3 } else { 4 };
        let output = (0..printed).map(|_| lines.next().unwrap().unwrap() + "\n").collect();
        Self { child, output }
    }

    pub(crate) fn address(&self, what: &str) -> &str {
        let line = self.output.lines().find(|line| line.trim_start().starts_with(what)).unwrap();
        line.rsplit_once("://").unwrap().1
    }

    pub(crate) fn end(mut self) -> Option<i32> {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A process; killed on drop.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Sends a request with a body of JSON, and returns the answer; `None` if nothing listens there. `head`: method and path.
pub(crate) fn request(address: &str, head: &str, body: &str) -> Option<String> {
    request_of(address, head, "application/json", body)
}

/// Applies an object on the server, as `kubectl apply --server-side` does.
pub(crate) fn apply(address: &str, path: &str, object: &str) -> Option<String> {
    let head = format!("PATCH {path}?fieldManager=kubectl&force=true");
    request_of(address, &head, "application/apply-patch+yaml", object)
}

fn request_of(address: &str, head: &str, content: &str, body: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    let length = body.len();
    let fields = format!(
        "Host: {address}\r\nConnection: close\r\nContent-Type: {content}\r\nContent-Length: {length}"
    );
    write!(stream, "{head} HTTP/1.1\r\n{fields}\r\n\r\n{body}").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// Runs a command against the cluster of `muster up` in this folder.
pub(crate) fn run(dir: &Path, arguments: &[&str]) -> Output {
    muster(&[arguments, &["--kubeconfig", ".muster/kubeconfig"]].concat(), dir).output().unwrap()
}

/// What a command that succeeds has printed.
pub(crate) fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The standard error of a process that failed.
pub(crate) fn stderr_of_failure(output: &Output) -> String {
    assert!(!output.status.success(), "the process should fail");
    String::from_utf8(output.stderr.clone()).unwrap()
}
