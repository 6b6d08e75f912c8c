//! An API server on a loopback port, for tests of clients: `serve [ADDRESS [KUBECONFIG]]`.
//!
//! The default address is `127.0.0.1:8001`, without TLS and authentication. With a kubeconfig path the server uses TLS and
//! token authentication, and writes a kubeconfig of an administrator to the path.

use std::collections::BTreeMap;
use std::sync::Arc;

use apiserver::{ApiServer, Auth, Config, Service, Tls, User, kubeconfig, names_for, serve};
use tokio::net::TcpListener;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:8001".into());
    let file = arguments.next();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(&address).await?;
        let bound = listener.local_addr()?;
        let mut config = Config::default();
        let mut tls = None;
        if let Some(file) = file {
            let generated = Tls::generate(&names_for(bound.ip()))?;
            let url = format!("https://{bound}");
            std::fs::write(&file, kubeconfig("local", &url, Some(&generated), Some("administrator")))?;
            println!("{url} {file}");
            let admin = ("administrator".to_owned(), User::admin());
            config.auth = Auth::Tokens(BTreeMap::from([admin]));
            tls = Some(generated);
        } else {
            println!("http://{bound}");
        }
        let service = Service::new(ApiServer::new(config), Arc::new(jiff::Timestamp::now));
        let interrupted = async {
            let _ = tokio::signal::ctrl_c().await;
        };
        serve(listener, service, tls, interrupted).await?;
        Ok(())
    })
}
