//! Which kubeconfigs of workers are accepted, and the client of a worker. After `validateKubeconfig` of Kueue v0.19, and stricter: whoever may
//! write a `MultiKueueCluster` or its Secret must not get files, programs or unprotected connections of the hub by it.

use std::path::{Component, Path};
use std::time::Duration;

use controllers::describe_error;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// How long a connection may take to be made.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// A longer silence ends a connection: a watch ends earlier by itself.
const READ_MAX: Duration = Duration::from_secs(330);

/// Why a worker is not connected to: reason and text of its condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Reason.
    pub reason: &'static str,
    /// Text.
    pub text: String,
}

impl Refusal {
    pub(crate) fn bad(text: impl Into<String>) -> Self {
        Self { reason: "BadKubeConfig", text: text.into() }
    }

    fn insecure(text: impl Into<String>) -> Self {
        Self { reason: "InsecureKubeConfig", text: text.into() }
    }
}

/// Reads a kubeconfig, and checks all its clusters and users, not only the chosen ones.
///
/// # Errors
///
/// It cannot be read, or names something that a kubeconfig of a worker must not have.
pub fn judge(text: &str) -> Result<Kubeconfig, Refusal> {
    let config = Kubeconfig::from_yaml(text).map_err(|error| {
        Refusal::bad(format!("failed to parse kubeconfig: {}", first_line(&error.to_string())))
    })?;
    for user in &config.auth_infos {
        let Some(info) = &user.auth_info else { continue };
        let forbidden = [
            (info.exec.is_some(), "exec plugins are not allowed"),
            (info.auth_provider.is_some(), "auth providers are not allowed"),
            (info.token_file.is_some(), "tokenFile is not allowed, use token"),
            (info.username.is_some() || info.password.is_some(), "basic auth is not allowed"),
            (
                info.client_certificate.is_some(),
                "client-certificate file paths are not allowed, use client-certificate-data",
            ),
            (info.client_key.is_some(), "client-key file paths are not allowed, use client-key-data"),
        ];
        if let Some((_, why)) = forbidden.iter().find(|(is_there, _)| *is_there) {
            return Err(Refusal::insecure(format!("{why} for user {}", user.name)));
        }
    }
    for named in &config.clusters {
        let Some(cluster) = &named.cluster else { continue };
        let of = |why: &str| Refusal::insecure(format!("{why} for cluster {}", named.name));
        if cluster.insecure_skip_tls_verify == Some(true) {
            return Err(of("insecure TLS verification is not allowed"));
        }
        if cluster.certificate_authority.is_some() {
            return Err(of(
                "certificate-authority file paths are not allowed, use certificate-authority-data",
            ));
        }
        if cluster.proxy_url.is_some() {
            return Err(of("proxy-url is not allowed"));
        }
        let server = cluster.server.as_deref().unwrap_or_default();
        if server.is_empty() {
            return Err(of("server URL is required"));
        }
        check_server(server).map_err(of)?;
    }
    Ok(config)
}

/// A message about YAML quotes the lines around the error: they may hold a token.
fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn check_server(server: &str) -> Result<(), &'static str> {
    let (scheme, rest) = server.split_once("://").ok_or("the server URL has no scheme")?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.is_empty() || authority.contains('@') {
        return Err("untrusted server endpoint");
    }
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    let is_loopback =
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    match scheme {
        "https" => Ok(()),
        "http" if is_loopback => Ok(()),
        "http" => Err("plain HTTP is allowed to loopback addresses only, use https,"),
        _ => Err("untrusted server endpoint"),
    }
}

/// Reads the file of a kubeconfig below the permitted folder.
pub(crate) fn read(path: &str, folder: &Path) -> Result<String, Refusal> {
    let outside = || {
        Refusal::bad(format!(
            "kubeconfig path is not under the allowed prefix: {path:?} is not under {}",
            folder.display()
        ))
    };
    let named = Path::new(path);
    if !named.is_absolute() || named.components().any(|part| part == Component::ParentDir) {
        return Err(outside());
    }
    let folder_there = folder.canonicalize().map_err(|_| outside())?;
    let found = named.canonicalize().map_err(|_| {
        if named.starts_with(folder) {
            Refusal::bad(format!("the file {path:?} cannot be read"))
        } else {
            outside()
        }
    })?;
    if !found.starts_with(&folder_there) {
        return Err(outside());
    }
    std::fs::read_to_string(&found).map_err(|_| Refusal::bad(format!("the file {path:?} cannot be read")))
}

/// The client of a worker.
///
/// # Errors
///
/// The kubeconfig names no cluster or user that exists, or its certificates cannot be used.
pub async fn connect(config: Kubeconfig) -> Result<Client, String> {
    let options = KubeConfigOptions::default();
    let read = Config::from_custom_kubeconfig(config, &options).await;
    let mut config = read.map_err(|error| first_line(&error.to_string()).to_owned())?;
    config.connect_timeout = Some(CONNECT_MAX);
    config.read_timeout = Some(READ_MAX);
    // A proxy of the environment of the hub is not for its workers.
    config.proxy_url = None;
    Client::try_from(config).map_err(|error| describe_error(&error))
}
