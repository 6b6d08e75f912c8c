//! Sockets: HTTP/1.1 and HTTP/2 over plain TCP.

use std::future::Future;
use std::io;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::service::Service;

/// Serves clients of a listener until `shutdown` completes; open watches are cut then.
pub async fn serve(
    listener: TcpListener,
    service: Service,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let mut shutdown = std::pin::pin!(shutdown);
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
        };
        // A client that is gone before it is accepted is no reason to stop.
        let Ok((stream, _)) = accepted else { continue };
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(service.clone());
        connections.spawn(async move {
            let builder = auto::Builder::new(TokioExecutor::new());
            if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
                tracing::debug!(%error, "connection ended");
            }
        });
    }
    connections.shutdown().await;
    Ok(())
}
