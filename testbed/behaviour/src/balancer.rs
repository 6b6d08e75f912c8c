//! A TCP balancer on loopback. It has the part of a Service that selects all replicas of a controller: the real API server
//! reaches the webhook through it. A connection goes to the next replica that accepts it, as when replicas that are not ready
//! are no endpoints of the Service.

use std::net::Ipv4Addr;

use anyhow::{Context as _, Result};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A running balancer. It ends on drop.
pub struct Balancer {
    /// The port on which it listens.
    pub port: u16,
    task: JoinHandle<()>,
}

impl Balancer {
    /// Balances connections between these ports of loopback.
    pub async fn start(replicas: Vec<u16>) -> Result<Self> {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("cannot listen on loopback")?;
        let port = listener.local_addr()?.port();
        let task = tokio::spawn(async move {
            let mut turn = 0;
            while let Ok((mut near, _)) = listener.accept().await {
                turn += 1;
                let replicas = replicas.clone();
                tokio::spawn(async move {
                    for at in 0..replicas.len() {
                        let port = replicas[(turn + at) % replicas.len()];
                        if let Ok(mut far) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
                            copy_bidirectional(&mut near, &mut far).await.ok();
                            return;
                        }
                    }
                });
            }
        });
        Ok(Self { port, task })
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A port of loopback that nothing listens on.
pub async fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?.local_addr()?.port())
}
