//! How the hub reaches a worker: address, certificate and token.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use k8s_openapi::ByteString;
use kube::Client;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::PAUSE;
use super::manifests::{ACCOUNT, TOKEN};
use crate::connection::{listed, objects, read, resource};
use crate::visibility::told;

/// How long the worker may take to write the token into its Secret.
const TOKEN_MAX: Duration = Duration::from_secs(30);

/// The `cluster` of a kubeconfig.
pub(super) type Address = Value;

/// The address of the API server of a kubeconfig, with its certificate in place.
pub(super) fn address(file: &Path, context: Option<&str>, server: Option<&str>) -> Result<Address> {
    let config = read(file)?;
    let context = context.or(config.current_context.as_deref());
    let context =
        context.ok_or_else(|| anyhow!("{} has no current context: set --context", file.display()))?;
    let known = config.contexts.iter().find(|known| known.name == context);
    let name = known.and_then(|known| Some(&known.context.as_ref()?.cluster));
    let name = name.ok_or_else(|| {
        let names: Vec<&str> = config.contexts.iter().map(|known| known.name.as_str()).collect();
        anyhow!("{} has no context {context}; it has {}", file.display(), listed(&names))
    })?;
    let found = config.clusters.iter().find(|known| known.name == *name);
    let cluster = found.and_then(|found| found.cluster.clone());
    let cluster = cluster.ok_or_else(|| anyhow!("{} has no cluster {name}", file.display()))?;
    let mut address = json!({"server": server.or(cluster.server.as_deref()).unwrap_or_default()});
    if let Some(data) = cluster.certificate_authority_data {
        address["certificate-authority-data"] = data.into();
    } else if let Some(authority) = cluster.certificate_authority {
        let bytes =
            std::fs::read(&authority).with_context(|| format!("cannot read the certificate {authority}"))?;
        address["certificate-authority-data"] = json!(ByteString(bytes));
    }
    // What the hub refuses is not left out: the hub would connect in another way than the author of the file.
    for (field, value) in [
        ("insecure-skip-tls-verify", json!(cluster.insecure_skip_tls_verify)),
        ("proxy-url", json!(cluster.proxy_url)),
        ("tls-server-name", json!(cluster.tls_server_name)),
    ] {
        if !value.is_null() && value != false {
            address[field] = value;
        }
    }
    Ok(address)
}

/// The kubeconfig for the hub.
pub(super) fn kubeconfig(address: &Address, token: &str) -> String {
    let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "worker",
        "clusters": [{"name": "worker", "cluster": address}],
        "users": [{"name": ACCOUNT, "user": {"token": token}}],
        "contexts": [{"name": "worker", "context": {"cluster": "worker", "user": ACCOUNT}}]});
    format!("{config:#}\n")
}

/// The token that the worker has written into the Secret of the account.
pub(super) async fn stored_token(worker: &Client, namespace: &str) -> Result<String> {
    let api = objects(worker, &resource("v1", "Secret", "secrets"), Some(namespace));
    let begin = Instant::now();
    while begin.elapsed() < TOKEN_MAX {
        let secret = api.get(TOKEN).await.map_err(told);
        let secret =
            secret.with_context(|| format!("cannot read Secret {namespace}/{TOKEN} of the worker"))?;
        if let Ok(ByteString(token)) = serde_json::from_value(secret.data["data"]["token"].clone()) {
            return String::from_utf8(token).context("the token of the worker is not text");
        }
        sleep(PAUSE).await;
    }
    bail!(
        "the worker has written no token into Secret {namespace}/{TOKEN} within {} s: ask for one with --token-lifetime",
        TOKEN_MAX.as_secs()
    )
}

/// A token of the account that ends.
pub(super) async fn requested_token(worker: &Client, namespace: &str, lifetime: Duration) -> Result<String> {
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"expirationSeconds": lifetime.as_secs()}});
    let api = objects(worker, &resource("v1", "ServiceAccount", "serviceaccounts"), Some(namespace));
    let answer: Result<Value, _> = api.create_subresource("token", ACCOUNT, &<_>::default(), &body).await;
    let answer = answer.map_err(told);
    let answer =
        answer.with_context(|| format!("cannot get a token of ServiceAccount {namespace}/{ACCOUNT}"))?;
    let token = answer["status"]["token"].as_str().ok_or_else(|| anyhow!("the worker has sent no token"))?;
    if let Some(end) = answer["status"]["expirationTimestamp"].as_str() {
        println!("the token ends at {end}: repeat this command before");
    }
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(cluster: &Value) -> tempfile::NamedTempFile {
        let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "a",
            "clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "u", "user": {"token": "admin"}}],
            "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u"}}]});
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), config.to_string()).unwrap();
        file
    }

    #[test]
    fn the_hub_gets_the_address_and_not_the_credentials_of_the_admin() {
        let authority = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(authority.path(), "pem").unwrap();
        let found = json!({"server": "https://w.example", "certificate-authority": authority.path()});
        let file = file(&found);
        let address = address(file.path(), None, None).unwrap();
        assert_eq!(address, json!({"server": "https://w.example", "certificate-authority-data": "cGVt"}));
        let text = kubeconfig(&address, "t-1");
        assert!(clusters::judge(&text).is_ok());
        assert!(text.contains("t-1") && !text.contains("admin"), "{text}");
        let other = super::address(file.path(), None, Some("https://other.example")).unwrap();
        assert_eq!(other["server"], "https://other.example");
        let error = super::address(file.path(), Some("b"), None).unwrap_err().to_string();
        assert!(error.ends_with("has no context b; it has a"), "{error}");
    }

    #[test]
    fn what_the_hub_would_refuse_is_not_hidden() {
        let file = file(&json!({"server": "https://w.example", "insecure-skip-tls-verify": true}));
        let text = kubeconfig(&address(file.path(), None, None).unwrap(), "t");
        let refusal = clusters::judge(&text).unwrap_err();
        assert!(refusal.text.contains("insecure TLS"), "{}", refusal.text);
    }
}
