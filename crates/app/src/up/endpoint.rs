//! The address of an API server of `muster up`, and who may use it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use apiserver::{Auth, Tls, User};
use tokio::net::TcpListener;

use crate::kubeconfig;

/// The URL of the API server and its authentication.
pub(super) struct Endpoint {
    pub(super) url: String,
    pub(super) tls: Option<Tls>,
    token: Option<String>,
    pub(super) auth: Auth,
    /// The server in the kubeconfig: the URL, and a path that no other start has. kubectl takes what it knows of a server by its URL.
    named: String,
}

impl Endpoint {
    /// Plain HTTP without authentication, on loopback addresses only; or TLS with a token of an administrator.
    pub(super) fn new(tls: bool, address: SocketAddr) -> Result<Self> {
        if !tls && !address.ip().is_loopback() {
            bail!(
                "{address} is not a loopback address, and the API server has no authentication without --tls: add --tls"
            );
        }
        if !tls {
            let url = format!("http://{address}");
            return Ok(Self { named: named(&url)?, url, tls: None, token: None, auth: Auth::Open });
        }
        let names = apiserver::names_for(address.ip());
        let tls = Tls::generate(&names.iter().map(String::as_str).collect::<Vec<_>>())
            .context("cannot generate a certificate")?;
        let token = kubeconfig::token()?;
        let auth = Auth::Tokens(BTreeMap::from([(token.clone(), User::admin())]));
        let url = format!("https://{address}");
        Ok(Self { named: named(&url)?, url, tls: Some(tls), token: Some(token), auth })
    }

    pub(super) fn kubeconfig(&self) -> String {
        apiserver::kubeconfig("muster", &self.named, self.tls.as_ref(), self.token.as_deref())
    }
}

/// The URL of one start of a server.
fn named(url: &str) -> Result<String> {
    let start: String = kubeconfig::token()?.chars().take(8).collect();
    Ok(format!("{url}{}/{start}", apiserver::CLUSTERS))
}

/// A bound address and its listener.
pub(super) struct Bound {
    pub(super) address: SocketAddr,
    pub(super) listener: TcpListener,
}

pub(super) async fn bind(address: SocketAddr, what: &str, flag: &str) -> Result<Bound> {
    let listener = TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address} for the {what}: choose another address with {flag}, such as 127.0.0.1:0")
    })?;
    Ok(Bound { address: listener.local_addr()?, listener })
}
