//! The server on a socket: HTTP/1.1, TLS, and shutdown with open watches.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::sync::Arc;
use std::time::Duration;

use apiserver::{ApiServer, Config, Service, Tls, kubeconfig, names_for, serve};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

fn service() -> Service {
    Service::new(ApiServer::new(Config::default()), Arc::new(jiff::Timestamp::now))
}

/// Reads from the stream until the text appears.
async fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let mut read = String::new();
    let mut buffer = [0; 4096];
    let found = async {
        while !read.contains(text) {
            let count = stream.read(&mut buffer).await.unwrap();
            assert!(count > 0, "closed after {read}");
            read.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    };
    tokio::time::timeout(Duration::from_secs(10), found).await.unwrap();
    read
}

#[tokio::test]
async fn a_shutdown_closes_open_watches() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(serve(listener, service(), None, async {
        let _ = stopped.await;
    }));
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = "GET /api/v1/namespaces?watch=true HTTP/1.1\r\nhost: x\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let read = read_until(&mut stream, "kube-system").await;
    assert!(read.starts_with("HTTP/1.1 200 OK"), "{read}");
    stop.send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(10), server).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_kubeconfig_contains_the_certificate_authority_and_the_token() {
    let tls = Tls::generate(&names_for([127, 0, 0, 1].into())).unwrap();
    let text = kubeconfig("local", "https://127.0.0.1:1", Some(&tls), Some("secret"));
    let config: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(config["users"][0]["user"]["token"], "secret");
    assert!(config["clusters"][0]["cluster"]["certificate-authority-data"].is_string());
    assert!(tls.authority().starts_with("-----BEGIN CERTIFICATE-----"));
}
