//! Allocation of cluster IPs and node ports, like the `ipallocator` and `portallocator` of kube-apiserver.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use crate::rng::Rng;

/// The service CIDR 10.96.0.0/16. The default of kubeadm, 10.96.0.0/12, is larger.
const NETWORK: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 0);
const ADDRESSES: u32 = 1 << 16;
const NODE_PORTS: std::ops::RangeInclusive<i64> = 30_000..=32_767;

/// The allocated cluster IPs and node ports of services.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServiceAllocator {
    addresses: BTreeSet<Ipv4Addr>,
    node_ports: BTreeSet<i64>,
}

impl ServiceAllocator {
    /// Allocates a requested address. The error is a message for the client.
    pub(crate) fn allocate_address(&mut self, address: Ipv4Addr) -> Result<(), String> {
        let within =
            u32::from(address).checked_sub(u32::from(NETWORK)).is_some_and(|offset| offset < ADDRESSES);
        if !within {
            return Err(format!(
                "failed to allocate IP {address}: the provided IP is not in the valid range. The range of valid IPs is {NETWORK}/16"
            ));
        }
        if !self.addresses.insert(address) {
            return Err(format!("failed to allocate IP {address}: provided IP is already allocated"));
        }
        Ok(())
    }

    /// Allocates a random free address. The first 256 addresses are reserved for requests with a given `clusterIP`.
    pub(crate) fn next_address(&mut self, rng: &mut Rng) -> Ipv4Addr {
        loop {
            let offset = 256 + rng.below(u64::from(ADDRESSES) - 512);
            let address = Ipv4Addr::from(u32::from(NETWORK) + u32::try_from(offset).unwrap_or(256));
            if self.addresses.insert(address) || self.addresses.len() > 60_000 {
                return address;
            }
        }
    }

    pub(crate) fn release_address(&mut self, address: Ipv4Addr) {
        self.addresses.remove(&address);
    }

    /// Allocates a requested node port. The error is a message for the client.
    pub(crate) fn allocate_node_port(&mut self, port: i64) -> Result<(), &'static str> {
        if !NODE_PORTS.contains(&port) {
            return Err("provided port is not in the valid range. The range of valid ports is 30000-32767");
        }
        if !self.node_ports.insert(port) {
            return Err("provided port is already allocated");
        }
        Ok(())
    }

    /// Allocates a random free node port; `None` if all are allocated.
    pub(crate) fn next_node_port(&mut self, rng: &mut Rng) -> Option<i64> {
        let free = NODE_PORTS.filter(|port| !self.node_ports.contains(port)).count();
        let pick = rng.below(u64::try_from(free).unwrap_or(0));
        let port = NODE_PORTS
            .filter(|port| !self.node_ports.contains(port))
            .nth(usize::try_from(pick).unwrap_or(0))?;
        self.node_ports.insert(port);
        Some(port)
    }

    pub(crate) fn release_node_port(&mut self, port: i64) {
        self.node_ports.remove(&port);
    }
}
