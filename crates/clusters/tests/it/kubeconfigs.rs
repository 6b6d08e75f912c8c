//! Which kubeconfigs of workers are accepted.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use clusters::judge;
use serde_json::{Value, json};

fn config(cluster: &Value, user: &Value) -> String {
    json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]})
    .to_string()
}

#[test]
fn a_kubeconfig_with_a_token_or_a_certificate_and_a_protected_connection_is_accepted() {
    for server in [
        "https://10.0.0.1:6443",
        "https://api.example.com",
        "http://127.0.0.1:7443",
        "http://[::1]:1",
        "http://localhost",
    ] {
        let user = json!({"token": "t", "client-certificate-data": "x", "client-key-data": "x"});
        let text = config(&json!({"server": server, "certificate-authority-data": "x"}), &user);
        assert!(judge(&text).is_ok(), "{server}: {:?}", judge(&text).err());
    }
}

#[test]
fn a_hostile_kubeconfig_is_refused_with_its_reason() {
    let good = json!({"server": "https://a.example"});
    let token = json!({"token": "t"});
    let user = |field: &str, value: Value| config(&good, &json!({ field: value }));
    let cluster = |field: &str, value: Value| {
        let mut cluster = good.clone();
        cluster[field] = value;
        config(&cluster, &token)
    };
    let cases = [
        ("exec", user("exec", json!({"command": "sh", "apiVersion": "client.authentication.k8s.io/v1"}))),
        ("auth providers", user("auth-provider", json!({"name": "gcp", "config": {}}))),
        ("tokenFile", user("tokenFile", "/var/run/secrets/kubernetes.io/serviceaccount/token".into())),
        ("basic auth", user("username", "admin".into())),
        ("client-certificate file", user("client-certificate", "/etc/shadow".into())),
        ("client-key file", user("client-key", "/etc/shadow".into())),
        ("insecure TLS", cluster("insecure-skip-tls-verify", true.into())),
        ("certificate-authority file", cluster("certificate-authority", "/etc/shadow".into())),
        ("proxy-url", cluster("proxy-url", "http://evil.example".into())),
        ("plain HTTP", cluster("server", "http://127.0.0.1.evil.example".into())),
        ("untrusted", cluster("server", "https://user@evil.example".into())),
        ("untrusted", cluster("server", "file:///etc/shadow".into())),
        ("required", cluster("server", "".into())),
    ];
    for (told, text) in cases {
        let refusal = judge(&text).unwrap_err();
        assert_eq!(refusal.reason, "InsecureKubeConfig", "{told}");
        assert!(refusal.text.contains(told), "{told}: {}", refusal.text);
    }
    let refusal = judge("{users: [{name: u, user: {token: s3cr3t}}], clusters: 7}").unwrap_err();
    assert_eq!(refusal.reason, "BadKubeConfig");
    assert!(!refusal.text.contains("s3cr3t"), "{}", refusal.text);
}

#[test]
fn not_only_the_chosen_user_is_checked() {
    let mut text: Value =
        serde_json::from_str(&config(&json!({"server": "https://a"}), &json!({"token": "t"}))).unwrap();
    text["users"].as_array_mut().unwrap().push(json!({"name": "other", "user": {"tokenFile": "/x"}}));
    assert!(judge(&text.to_string()).unwrap_err().text.ends_with("for user other"));
}
