//! TLS connections: accepts them, and serves HTTP on them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Timeout of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Maximum number of connections. The API server shares one for many requests.
const CONNECTIONS_MAX: usize = 256;
/// After the end of the process was requested, requests that have arrived are answered for so long.
const DRAIN: Duration = Duration::from_secs(5);

/// Changes when the server stops.
pub(crate) type Stopping = watch::Receiver<()>;

/// Accepts connections and serves each in a task of its own until `shutdown` completes; then waits a short time until
/// the requests that have arrived are answered.
pub(crate) async fn run<F>(
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
    connection: impl Fn(TcpStream, Stopping) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let stop = watch::Sender::new(());
    tokio::select! {
        () = shutdown => {}
        () = accept(&listener, &stop, connection) => {}
    }
    drop(listener);
    stop.send_replace(());
    tokio::time::timeout(DRAIN, stop.closed()).await.ok();
}

async fn accept<F>(
    listener: &TcpListener,
    stop: &watch::Sender<()>,
    connection: impl Fn(TcpStream, Stopping) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        // The semaphore is never closed.
        let permit = permits.clone().acquire_owned().await.ok();
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
        };
        // Small answers are sent at once.
        let _ = stream.set_nodelay(true);
        let served = connection(stream, stop.subscribe());
        tokio::spawn(async move {
            served.await;
            drop(permit);
        });
    }
}

/// Performs the TLS handshake.
///
/// # Errors
/// A failed handshake, and one that does not end in time.
pub(crate) async fn handshake(acceptor: &TlsAcceptor, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
    tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await?
}

/// Serves HTTP until the client closes the connection, or until the server stops and the requests are answered.
pub(crate) async fn serve(stream: TlsStream<TcpStream>, router: Router, mut stopping: Stopping) {
    let builder = auto::Builder::new(TokioExecutor::new());
    let serving = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut serving = std::pin::pin!(serving);
    let ended = tokio::select! {
        ended = &mut serving => ended,
        _ = stopping.changed() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}
