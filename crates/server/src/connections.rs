//! TLS connections: accepts them, and serves HTTP on them.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Timeout of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Maximum number of connections. The API server uses one for many requests.
pub(crate) const CONNECTIONS_MAX: usize = 256;
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
    let mut open = Connections::default();
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
        };
        // Small answers are sent at once.
        let _ = stream.set_nodelay(true);
        let task = tokio::spawn(connection(stream, stop.subscribe()));
        open.add(peer.ip(), task.abort_handle());
    }
}

/// The open connections, the oldest first.
#[derive(Default)]
struct Connections(VecDeque<(IpAddr, AbortHandle)>);

impl Connections {
    /// Adds a connection. If there are too many, the peer with the most connections loses its oldest one: anything in the
    /// cluster can connect, and must not keep the API server away.
    fn add(&mut self, peer: IpAddr, task: AbortHandle) {
        self.0.push_back((peer, task));
        if self.0.len() <= CONNECTIONS_MAX {
            return;
        }
        self.0.retain(|(_, task)| !task.is_finished());
        if self.0.len() <= CONNECTIONS_MAX {
            return;
        }
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for (peer, _) in &self.0 {
            *counts.entry(*peer).or_default() += 1;
        }
        let busiest = counts.into_iter().max_by_key(|(_, count)| *count).map(|(peer, _)| peer);
        let at = self.0.iter().position(|(peer, _)| Some(*peer) == busiest);
        if let Some((_, task)) = at.and_then(|at| self.0.remove(at)) {
            task.abort();
        }
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
