//! A bare API server on a loopback port, for trying clients against it: `serve [ADDRESS]`, default `127.0.0.1:8001`.

use std::sync::Arc;

use apiserver::{ApiServer, Config, Service, serve};
use tokio::net::TcpListener;

fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8001".into());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(&address).await?;
        println!("http://{}", listener.local_addr()?);
        let service = Service::new(ApiServer::new(Config::default()), Arc::new(jiff::Timestamp::now));
        serve(listener, service, None, std::future::pending()).await
    })
}
